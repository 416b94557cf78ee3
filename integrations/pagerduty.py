"""PagerDuty Events API v2: trigger, acknowledge, resolve, and change events.

The page's key is the dedup key, so a repeated trigger is an entry in the log of the open alert, and a resolve closes
it. A resolve that overtook its trigger would be dropped with 202 and leave the page open for ever: the outbox keeps
order per page. 202 says that the event was queued, not that an incident was made.
https://developer.pagerduty.com/docs/send-alert-event, https://developer.pagerduty.com/docs/send-change-event
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from agent.model import Secret, rfc3339
from integrations.base import ConfigFault, DeliveryError, Notification, Outcome, ReceiverOptions, Traits
from integrations.http import HttpClient, HttpConfig, HttpResponse, encode_json, reveal
from integrations.limits import PagerDuty
from integrations.message import LEVELS, Message, build, fit
from integrations.plain import evidence_lines
from integrations.status import by_status
from integrations.text import clip, one_line
from integrations.wording import worst_first

__all__ = ["PagerDutyConfig", "PagerDutyReceiver"]

_SEVERITIES: Final = frozenset({"critical", "error", "warning", "info"})
_EU_HINT: Final = "a key of an EU account wants url: https://events.eu.pagerduty.com/v2/enqueue"


@dataclass(frozen=True, kw_only=True)
class PagerDutyConfig(ReceiverOptions):
    """One PagerDuty service integration of type "Events API v2"."""

    routing_key: Secret = field(metadata={"doc": "integration key, 32 characters"})
    url: str = field(
        default="https://events.pagerduty.com/v2/enqueue",
        metadata={"doc": "for EU accounts https://events.eu.pagerduty.com/v2/enqueue"},
    )
    severity: Literal["", "critical", "error", "warning", "info"] = field(
        default="", metadata={"doc": "instead of the alert's own severity"}
    )
    change_events: bool = field(default=True, metadata={"doc": "tell of starts, restarts and changed configuration"})
    notify_late: bool = field(
        default=False, metadata={"doc": "page even for what was over before PagerDuty could be reached"}
    )
    http_config: HttpConfig | None = None

    def check(self) -> Iterable[tuple[str, str]]:
        if not self.url.startswith(("https://", "http://")):
            yield "url", "give an http(s) URL"


class PagerDutyReceiver:
    """Sends events for pages."""

    kind = "pagerduty"

    def __init__(self, config: PagerDutyConfig, client: HttpClient) -> None:
        self._config = config
        self._client = client
        self.traits = Traits(keyed=True, late=config.notify_late)

    @property
    def wants_changes(self) -> bool:
        """Whether change events are to be sent."""
        return self._config.change_events

    def notify(self, notification: Notification) -> Outcome:
        try:
            key = reveal(self._config.routing_key, "routing_key")
            if len(key) != PagerDuty.ROUTING_KEY:
                raise ConfigFault(
                    f"routing_key has {len(key)} characters, an integration key has {PagerDuty.ROUTING_KEY}"
                )
            if notification.action == "change":
                return self._change(notification, key)
            return self._send(self._config.url, self._event(notification, key))
        except DeliveryError as error:
            return Outcome.from_error(error)

    def _event(self, notification: Notification, routing_key: str) -> bytes:
        action = notification.action if notification.action in {"resolve", "acknowledge"} else "trigger"
        dedup_key = clip(notification.key, PagerDuty.DEDUP_KEY)
        if action != "trigger":
            return encode_json({"routing_key": routing_key, "event_action": action, "dedup_key": dedup_key})
        message = build(notification, self._config)
        alert = worst_first(notification.alerts)[0]
        start = {0: 0, 1: 5}.get(notification.degraded, LEVELS - 1)
        summary = clip(one_line(f"TEST {message.title}" if notification.test else message.title), PagerDuty.SUMMARY)

        def render(short: Message) -> bytes:
            payload: dict[str, Any] = {
                "summary": summary,
                "source": clip(one_line(alert.server) or "wedgewatch", 255),
                "severity": self._severity(alert.severity),
                "timestamp": rfc3339(alert.starts_at),
                "component": clip(one_line(alert.engine), 255),
                "group": clip(one_line(alert.labels.get("cluster", "") or alert.server), 255),
                "class": clip(one_line(alert.failure), 255),
                "custom_details": _details(short),
            }
            event: dict[str, Any] = {
                "routing_key": routing_key,
                "event_action": "trigger",
                "dedup_key": dedup_key,
                "client": "wedgewatch",
                "payload": {name: value for name, value in payload.items() if value},
                "links": [{"href": link.url, "text": link.text} for link in short.links[: PagerDuty.LINKS]],
            }
            if notification.external_url:
                event["client_url"] = notification.external_url
            return encode_json(event)

        body: bytes = fit(message, render, lambda data: len(data) <= PagerDuty.EVENT_BYTES, start)
        return body

    def _change(self, notification: Notification, routing_key: str) -> Outcome:
        text = notification.notes[0] if notification.notes else "wedgewatch: change"
        event = {
            "routing_key": routing_key,
            "payload": {
                "summary": clip(one_line(text), PagerDuty.SUMMARY),
                "source": clip(notification.group_labels.get("server", "wedgewatch"), 255),
                "timestamp": rfc3339(notification.now),
                "custom_details": dict(notification.group_labels),
            },
            "links": [],
        }
        base = self._config.url.rstrip("/").removesuffix("/enqueue")
        return self._send(f"{base}/change/enqueue", encode_json(event))

    def _send(self, url: str, body: bytes) -> Outcome:
        answer = self._client.request(
            "POST", url, timeout=self._config.timeout, body=body, headers={"Content-Type": "application/json"}
        )
        said = answer.json()
        status = said.get("status") if isinstance(said, dict) else None
        if answer.ok:
            if answer.status == 202 and (status == "success" or not answer.complete):
                return Outcome.success()
            return Outcome.retry(f"answered {answer.status}, but not as PagerDuty does", reason="client")
        if answer.status == 400:
            return self._refused(answer, said)
        after = answer.retry_after()
        if answer.status == 429 and after is None:
            after = PagerDuty.DEFAULT_RETRY_AFTER
        return by_status(answer, retry_after=after, hint=_EU_HINT)

    @staticmethod
    def _refused(answer: HttpResponse, said: Any) -> Outcome:
        errors = said.get("errors") if isinstance(said, dict) else None
        text = "; ".join(str(error) for error in errors) if isinstance(errors, list) else answer.text()
        text = clip(one_line(text), 200) or "400"
        if "routing_key" in text or "routing key" in text.lower() or "integration key" in text.lower():
            return Outcome.permanent(f"{text}; {_EU_HINT}", reason="auth")
        return Outcome.degrade(text)

    def _severity(self, severity: str) -> str:
        chosen = self._config.severity or severity
        return chosen if chosen in _SEVERITIES else "error"


def _details(message: Message) -> dict[str, Any]:
    details: dict[str, Any] = {fact.name.lower().replace(" ", "_"): fact.value for fact in message.facts}
    parts: dict[str, Any] = {
        "summary": message.summary,
        "evidence": evidence_lines(message.evidence),
        "course": [f"{spark.name} {spark.bars} {spark.text}" for spark in message.sparks],
        "checks": [f"[{check.mark}] {check.text}" for check in message.checks],
        "not_this": list(message.excluded),
        "do_now": list(message.actions),
        "also": list(message.others),
        "notes": list(message.notes),
    }
    details.update({name: value for name, value in parts.items() if value})
    return details
