"""Discord: a webhook whose message is edited when things change.

``?wait=true`` returns the message's id, so an edit needs no bot. An edit rings nobody: a resolve or a repeat is also
said in a short message of its own. No mention in any text is ever followed.
https://discord.com/developers/docs/resources/webhook#execute-webhook
"""

from __future__ import annotations

import hashlib
import re
import time
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from agent.model import Secret, rfc3339
from integrations.base import ConfigFault, DeliveryError, Notification, Outcome, ReceiverOptions, Traits
from integrations.http import HttpClient, HttpConfig, HttpResponse, encode_json, parse_retry_after, reveal
from integrations.limits import Discord
from integrations.message import Message, build, fit
from integrations.picture import FILE_NAME, draw_for
from integrations.plain import evidence_lines, spark_lines
from integrations.status import by_status
from integrations.text import escaped, utf16

__all__ = ["DiscordConfig", "DiscordReceiver", "embed", "escape"]

_MARKUP: Final = re.compile(r"([\\*_~|`>#\[\]()<:])")
_ZERO_WIDTH: Final = "\u200b"
_COLORS: Final = {"critical": 0xC0392B, "resolved": 0x27AE60}
_OTHER_COLOR: Final = 0xE67E22


@dataclass(frozen=True, kw_only=True)
class DiscordConfig(ReceiverOptions):
    """One Discord channel."""

    webhook_url: Secret = field(metadata={"doc": "the URL is the credential"})
    picture: bool = field(default=False, metadata={"doc": "a small picture of the course around the onset"})
    http_config: HttpConfig | None = None


class DiscordReceiver:
    """Says one page in one channel."""

    kind = "discord"
    traits = Traits(editable=True)

    def __init__(self, config: DiscordConfig, client: HttpClient) -> None:
        self._config = config
        self._client = client

    def notify(self, notification: Notification) -> Outcome:
        message = build(notification, self._config)
        body: dict[str, Any] = {"allowed_mentions": {"parse": []}, "username": "wedgewatch"}
        if notification.degraded == 0:
            body["embeds"] = [fit(message, embed, _fits)]
            body["content"] = ""
        else:
            body["content"] = escaped(message.headline, Discord.CONTENT, escape)
            body["embeds"] = []
        try:
            return self._send(notification, body, escaped(message.headline, Discord.CONTENT, escape))
        except DeliveryError as error:
            return Outcome.from_error(error)

    def _send(self, notification: Notification, body: dict[str, Any], line: str) -> Outcome:
        ends = time.monotonic() + self._config.timeout
        known = notification.ref.get("message_id")
        if not isinstance(known, str) or notification.action == "open":
            picture = draw_for(notification) if self._config.picture else None
            return self._call("POST", "", body, ends, picture)
        edit = {key: value for key, value in body.items() if key != "username"}
        edited = self._call("PATCH", f"/messages/{known}", edit, ends)
        if edited.detail.startswith("404"):  # somebody deleted it
            return self._call("POST", "", body, ends)
        if edited.kind != "success" or notification.action == "update":
            return edited
        said = self._call("POST", "", {"content": line, "allowed_mentions": {"parse": []}}, ends)
        return Outcome.success() if said.kind == "success" else said

    def _call(self, method: str, path: str, body: dict[str, Any], ends: float, picture: bytes | None = None) -> Outcome:
        parts = urlsplit(reveal(self._config.webhook_url, "webhook_url"))
        if parts.scheme not in {"http", "https"}:
            raise ConfigFault("webhook_url is no http(s) URL")
        url = urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") + path, "wait=true", ""))
        data, content_type = encode_json(body), "application/json"
        if picture is not None:
            data, content_type = _with_file(data, picture)
        answer = self._client.request(
            method,
            url,
            timeout=max(0.5, ends - time.monotonic()),
            body=data,
            headers={"Content-Type": content_type},
        )
        if answer.status == 429:
            return Outcome.retry("429", reason="rate_limited", after=_retry_after(answer))
        outcome = by_status(answer)
        if outcome.kind != "success":
            return outcome
        said = answer.json()
        if answer.status == 200 and not (isinstance(said, dict) and isinstance(said.get("id"), str)):
            return Outcome.retry("answered 200 but not as Discord does", reason="client", uncertain=not answer.complete)
        return Outcome.success(message_id=said["id"]) if isinstance(said, dict) and "id" in said else Outcome.success()


def _with_file(data: bytes, picture: bytes) -> tuple[bytes, str]:
    """Message and picture as one form: https://discord.com/developers/docs/reference#uploading-files"""
    mark = hashlib.sha256(data + picture).hexdigest()[:32]
    parts = (
        b'Content-Disposition: form-data; name="payload_json"\r\nContent-Type: application/json\r\n\r\n' + data,
        b'Content-Disposition: form-data; name="files[0]"; filename="'
        + FILE_NAME.encode()
        + b'"\r\nContent-Type: image/png\r\n\r\n'
        + picture,
    )
    body = b"".join(b"--" + mark.encode() + b"\r\n" + part + b"\r\n" for part in parts)
    return body + b"--" + mark.encode() + b"--\r\n", f"multipart/form-data; boundary={mark}"


def _retry_after(answer: HttpResponse) -> float | None:
    """Seconds as a float in the body, as a whole number in the header."""
    said = answer.json()
    inside = parse_retry_after(said.get("retry_after")) if isinstance(said, dict) else None
    return inside if inside is not None else answer.retry_after()


def escape(text: str) -> str:
    """Text without markup, links or mentions."""
    return _MARKUP.sub(r"\\\1", text).replace("@", "@" + _ZERO_WIDTH)


def embed(message: Message) -> dict[str, Any]:
    """One embed within every limit but the total, which the caller looks at."""
    parts = []
    if message.summary:
        parts.append(escaped(message.summary, 1000, escape))
    if message.sparks:
        parts.append(_fenced(spark_lines(message), 500))
    if message.evidence:
        parts.append("**Evidence**\n" + _fenced(evidence_lines(message.evidence), 1800))
    if message.checks:
        parts.append("**Checks**\n" + _lines([f"[{check.mark}] {check.text}" for check in message.checks], 600))
    if message.others:
        parts.append("**Also**\n" + _lines(list(message.others), 600))
    fields = [
        {
            "name": escaped(fact.name, Discord.FIELD_NAME, escape),
            "value": escaped(fact.value, 300, escape),
            "inline": len(fact.value) < 40,
        }
        for fact in message.facts[: Discord.FIELDS - 3]
    ]
    if message.excluded:
        fields.append({"name": "Not this", "value": escaped(", ".join(message.excluded), 600, escape)})
    if message.actions:
        steps = [f"{index}. {action}" for index, action in enumerate(message.actions, 1)]
        fields.append({"name": "Do now", "value": _lines(steps, Discord.FIELD_VALUE)})
    if message.links:
        links = "\n".join(f"[{link.text}]({link.url})" for link in message.links if len(link.url) < 300)
        if links:
            fields.append({"name": "Links", "value": links})
    footer = " | ".join([*message.notes, f"key {message.key}"] if message.key else message.notes)
    made: dict[str, Any] = {
        "title": escaped(message.headline, Discord.TITLE, escape),
        "description": "\n".join(parts),
        "color": _COLORS["resolved"] if "RESOLVED" in message.state else _COLORS.get(message.severity, _OTHER_COLOR),
        "fields": fields,
        "timestamp": rfc3339(message.timestamp),
    }
    if footer:
        made["footer"] = {"text": escaped(footer, 500, lambda text: text.replace("@", "@" + _ZERO_WIDTH))}
    return made


def _fenced(lines: list[str], limit: int) -> str:
    text = escaped(
        "\n".join(lines), limit, lambda part: part.replace("`", "`" + _ZERO_WIDTH).replace("@", "@" + _ZERO_WIDTH)
    )
    return f"```\n{text}\n```"


def _lines(lines: list[str], limit: int) -> str:
    return escaped("\n".join(lines), limit, escape)


def _fits(made: dict[str, Any]) -> bool:
    return _size(made) <= Discord.TOTAL and utf16(made["description"]) <= Discord.DESCRIPTION


def _size(made: dict[str, Any]) -> int:
    """What counts towards the 6000 characters."""
    texts = [made.get("title", ""), made.get("description", ""), made.get("footer", {}).get("text", "")]
    texts += [part for item in made.get("fields", ()) for part in (item["name"], item["value"])]
    return sum(utf16(text) for text in texts)
