"""Slack: an incoming webhook, or a bot token, with which the first message is edited when things change.

A webhook cannot edit and returns no id, so every change is a new message. With a bot token the first message of a page
turns into what holds now, and a reply in its thread rings those who follow it. Slack has no idempotency key: an attempt
that was cut off after sending may appear twice.

Contracts: https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks,
https://docs.slack.dev/reference/methods/chat.postMessage, https://docs.slack.dev/reference/methods/chat.update,
https://docs.slack.dev/apis/web-api/rate-limits
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

from agent.model import Secret
from integrations.base import DeliveryError, Notification, Outcome, ReceiverOptions, Traits
from integrations.http import HttpClient, HttpConfig, HttpResponse, parse_retry_after, reveal
from integrations.message import build
from integrations.picture import FILE_NAME, draw_for
from integrations.slack_blocks import message_payload, reply_text
from integrations.status import by_status

__all__ = ["SlackConfig", "SlackReceiver"]

_log = logging.getLogger(__name__)

# https://docs.slack.dev/changelog/2016-05-17-changes-to-errors-for-incoming-webhooks and the methods' error lists.
_CONTENT_REFUSED: Final = frozenset(
    {
        "invalid_payload", "no_text", "invalid_blocks", "invalid_blocks_format", "too_many_attachments",
        "msg_too_long", "msg_blocks_too_long", "invalid_attachments", "invalid_arguments", "invalid_json",
        "invalid_form_data",
    }
)  # fmt: skip
_CONFIG_REFUSED: Final = frozenset(
    {
        "action_prohibited", "invalid_token", "posting_to_general_channel_denied", "channel_not_found", "no_service",
        "no_active_hooks", "no_team", "team_disabled", "channel_is_archived", "not_in_channel", "is_archived",
        "invalid_auth", "not_authed", "token_revoked", "token_expired", "account_inactive", "missing_scope",
        "no_permission", "org_login_required", "ekm_access_denied", "restricted_action", "user_not_found",
        "not_allowed_token_type", "restricted_action_read_only_channel",
    }
)  # fmt: skip
_AUTH_REFUSED: Final = frozenset(
    {
        "invalid_token",
        "invalid_auth",
        "not_authed",
        "token_revoked",
        "token_expired",
        "account_inactive",
        "missing_scope",
    }
)
_MAYBE_DONE: Final = frozenset({"internal_error", "fatal_error", "rollup_error"})
_CANNOT_EDIT: Final = frozenset({"message_not_found", "cant_update_message", "edit_window_closed"})


@dataclass(frozen=True, kw_only=True)
class SlackConfig(ReceiverOptions):
    """One Slack channel."""

    api_url: Secret | None = field(default=None, metadata={"doc": "incoming webhook; the URL is the credential"})
    bot_token: Secret | None = field(default=None, metadata={"doc": "xoxb-...; with it messages are edited on resolve"})
    channel: str = field(default="", metadata={"doc": "channel id (C0123ABCD) or name, with bot_token"})
    base_url: str = field(default="https://slack.com/api", metadata={"doc": "Web API, for GovSlack another one"})
    thread_replies: bool = field(default=True, metadata={"doc": "with bot_token: also say changes in the thread"})
    picture: bool = field(
        default=False, metadata={"doc": "with bot_token: a small picture in the thread; wants the scope files:write"}
    )
    mention: str = field(
        default="", metadata={"doc": "put before critical messages, for example <!here>; default none"}
    )
    http_config: HttpConfig | None = None

    def check(self) -> Iterable[tuple[str, str]]:
        if (self.api_url is None) == (self.bot_token is None):
            yield "", "give either api_url (a webhook) or bot_token with channel"
        if self.bot_token is not None and not self.channel:
            yield "bot_token", "bot_token wants a channel, for example channel: C0123ABCD"
        if self.picture and self.bot_token is None:
            yield "picture", "a webhook takes no upload; use bot_token, or leave picture out"
        if self.api_url is not None and self.channel:
            yield "channel", "a webhook posts to its own channel; leave channel out or use bot_token"
        if not self.base_url.startswith(("https://", "http://")):
            yield "base_url", "give an http(s) URL"


class SlackReceiver:
    """Says one page in one channel."""

    kind = "slack"

    def __init__(self, config: SlackConfig, client: HttpClient) -> None:
        self._config = config
        self._client = client
        self.traits = Traits(editable=config.bot_token is not None, partial=config.bot_token is not None)

    def notify(self, notification: Notification) -> Outcome:
        message = build(notification, self._config)
        payload = message_payload(message, notification.degraded)
        if self._config.mention and notification.firing and message.severity == "critical":
            payload["text"] = f"{self._config.mention} {payload['text']}"
            if "blocks" in payload:  # with blocks the text is only the fallback, and rings nobody
                payload["blocks"].insert(
                    1, {"type": "section", "text": {"type": "mrkdwn", "text": self._config.mention}}
                )
        try:
            if self._config.bot_token is None:
                return self._webhook(payload)
            return self._bot(notification, payload, reply_text(message))
        except DeliveryError as error:
            return Outcome.from_error(error)

    def _webhook(self, payload: dict[str, Any]) -> Outcome:
        assert self._config.api_url is not None
        url = reveal(self._config.api_url, "api_url")
        answer = self._client.post_json(url, payload, timeout=self._config.timeout)
        said = answer.text(80)
        if answer.status == 200 and (said.lower() == "ok" or _says_ok(answer)):
            return Outcome.success()
        word = said.split()[0] if said else ""
        if answer.status != 429 and (known := _by_word(word)) is not None:
            return known
        if answer.status == 200:  # a login page, a proxy: nothing says that Slack has seen it
            return Outcome.retry(f"answered 200 but not ok: {said}", reason="client")
        return by_status(answer, content_refused=frozenset({400, 413}), retry_after=_retry_after(answer))

    def _bot(self, notification: Notification, payload: dict[str, Any], reply: str) -> Outcome:
        ends = time.monotonic() + self._config.timeout
        timestamp, channel = notification.ref.get("ts"), notification.ref.get("channel")
        if not (isinstance(timestamp, str) and isinstance(channel, str)) or notification.action == "open":
            posted = self._call("chat.postMessage", {"channel": self._config.channel, **payload}, ends)
            if posted.kind == "success" and self._config.picture:
                self._upload(notification, posted.ref, ends)
            return posted
        edit: dict[str, Any] = {"channel": channel, "ts": timestamp, **payload}
        edit.pop("unfurl_links", None)
        edit.pop("unfurl_media", None)
        if "blocks" not in edit:
            edit["blocks"] = []  # or the old blocks would stay above the new text
        edited = self._call("chat.update", edit, ends)
        if edited.detail in _CANNOT_EDIT:
            return self._call("chat.postMessage", {"channel": channel, **payload}, ends)
        if edited.kind != "success" or not self._config.thread_replies:
            return edited
        if notification.action == "update" and not notification.news:
            return edited
        answer = {"channel": channel, "thread_ts": timestamp, "text": reply, "unfurl_links": False}
        if notification.action in {"repeat", "resolve"}:
            answer["reply_broadcast"] = notification.action == "repeat"
        replied = self._call("chat.postMessage", answer, ends)
        # The reply's own ts must not replace the message's.
        return Outcome.success() if replied.kind == "success" else replied

    def _upload(self, notification: Notification, ref: Mapping[str, Any], ends: float) -> None:
        """The picture, into the message's thread. The message is there by now, so whatever goes wrong is only noted.

        https://docs.slack.dev/messaging/working-with-files#upload"""
        picture = draw_for(notification)
        if picture is None or "ts" not in ref or "channel" not in ref:
            return
        base, timeout = self._config.base_url.rstrip("/"), max(0.5, ends - time.monotonic())
        form = urlencode({"filename": FILE_NAME, "length": len(picture)}).encode()
        try:
            asked = self._client.request(
                "POST",
                f"{base}/files.getUploadURLExternal",
                timeout=timeout,
                body=form,
                headers={"Content-Type": "application/x-www-form-urlencoded", **self._authorization()},
            )
            said = asked.json()
            if not (isinstance(said, dict) and said.get("ok") is True):
                _log.info("slack: no picture (%s)", said.get("error") if isinstance(said, dict) else asked.status)
                return
            self._client.request("POST", str(said["upload_url"]), timeout=timeout, body=picture)
            files = [{"id": said["file_id"], "title": "around the onset"}]
            self._call(
                "files.completeUploadExternal",
                {"files": files, "channel_id": ref["channel"], "thread_ts": ref["ts"]},
                ends,
            )
        except (DeliveryError, KeyError) as error:
            _log.info("slack: no picture (%s)", error)

    def _authorization(self) -> dict[str, str]:
        assert self._config.bot_token is not None
        return {"Authorization": f"Bearer {reveal(self._config.bot_token, 'bot_token')}"}

    def _call(self, method: str, body: dict[str, Any], ends: float) -> Outcome:
        answer = self._client.post_json(
            f"{self._config.base_url.rstrip('/')}/{method}",
            body,
            timeout=max(0.5, ends - time.monotonic()),
            headers={"Content-Type": "application/json; charset=utf-8", **self._authorization()},
        )
        if answer.status != 200:
            return by_status(answer, content_refused=frozenset({413}), retry_after=_retry_after(answer))
        said = answer.json()
        if not isinstance(said, dict) or not isinstance(said.get("ok"), bool):
            return Outcome.retry("answered 200 but not as Slack does", reason="client", uncertain=not answer.complete)
        if said["ok"]:
            ref = {key: said[key] for key in ("ts", "channel") if isinstance(said.get(key), str)}
            return Outcome.success(**ref)
        word = str(said.get("error", ""))[:80]
        if word in {"ratelimited", "rate_limited", "message_limit_exceeded"}:
            return Outcome.retry(word, reason="rate_limited", after=_retry_after(answer))
        if word in _CANNOT_EDIT:
            return Outcome.permanent(word)
        return _by_word(word) or Outcome.retry(word or "no error named", reason="client")


def _by_word(word: str) -> Outcome | None:
    if word in _CONTENT_REFUSED:
        return Outcome.degrade(word)
    if word in _CONFIG_REFUSED:
        return Outcome.permanent(word, reason="auth" if word in _AUTH_REFUSED else "client")
    if word in _MAYBE_DONE:
        return Outcome.retry(word, reason="server", uncertain=True)
    return None


def _says_ok(answer: HttpResponse) -> bool:
    """Services that take Slack's webhooks (Mattermost, Rocket.Chat) may say it in JSON."""
    said = answer.json()
    return isinstance(said, dict) and (said.get("ok") is True or said.get("success") is True)


def _retry_after(answer: HttpResponse) -> float | None:
    if answer.status != 429:
        return answer.retry_after()
    said = answer.json()
    inside = parse_retry_after(said.get("retry_after")) if isinstance(said, dict) else None
    return answer.retry_after() or inside
