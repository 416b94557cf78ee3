"""A webhook in the payload of Alertmanager's own, version 4, which dozens of services take unchanged.

One more object, ``incident``, says what an Alertmanager cannot (checks, numbers, evidence); ``payload: alertmanager``
leaves it out for receivers that refuse unknown keys. ``Idempotency-Key`` names page and step; with ``hmac_secret``
``X-Wedgewatch-Signature: sha256=<hex>`` signs ``<X-Wedgewatch-Timestamp>.<body>``.
https://prometheus.io/docs/alerting/latest/configuration/#webhook_config
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from agent.model import Alert, Secret, rfc3339
from integrations.alertmanager import label_set
from integrations.base import DeliveryError, Notification, Outcome, ReceiverOptions, Traits
from integrations.http import HttpClient, HttpConfig, encode_json, reveal
from integrations.limits import Webhook
from integrations.message import Message, build, safe_url, shorten
from integrations.plain import evidence_lines
from integrations.status import by_status
from integrations.text import clean, clip
from integrations.wording import worst_first

__all__ = ["WebhookConfig", "WebhookReceiver", "payload"]

_NEVER: Final = "0001-01-01T00:00:00Z"  # what Alertmanager sends as the end of a firing alert; receivers parse it


@dataclass(frozen=True, kw_only=True)
class WebhookConfig(ReceiverOptions):
    """Any service that takes Alertmanager's webhook."""

    url: Secret = field(metadata={"doc": "where to POST; may hold a credential, so it is shown nowhere"})
    payload: Literal["full", "alertmanager"] = field(
        default="full", metadata={"doc": "alertmanager: without our additional object"}
    )
    hmac_secret: Secret | None = field(default=None, metadata={"doc": "signs each request"})
    max_alerts: int = field(default=0, metadata={"doc": "at most so many alerts in a message; 0: 256", "minimum": 0})
    allow_html: bool = field(
        default=False, metadata={"doc": "take a web page for success; else it counts as a login page in between"}
    )
    http_config: HttpConfig | None = None


class WebhookReceiver:
    """POSTs the page's alerts as they stand."""

    kind = "webhook"
    traits = Traits(partial=True)

    def __init__(self, config: WebhookConfig, client: HttpClient) -> None:
        self._config = config
        self._client = client

    def notify(self, notification: Notification) -> Outcome:
        try:
            body = self._body(notification)
            headers = {
                "Content-Type": "application/json",
                "Idempotency-Key": f"{_ascii(notification.key)}/{notification.seq}",
            }
            if self._config.hmac_secret is not None:
                stamp = str(int(notification.now))
                secret = reveal(self._config.hmac_secret, "hmac_secret").encode()
                digest = hmac.new(secret, stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
                headers |= {"X-Wedgewatch-Timestamp": stamp, "X-Wedgewatch-Signature": f"sha256={digest}"}
            answer = self._client.request(
                "POST", reveal(self._config.url, "url"), timeout=self._config.timeout, body=body, headers=headers
            )
            refused = frozenset({400, 413, 422})
            return by_status(answer, content_refused=refused, html_is_fine=self._config.allow_html)
        except DeliveryError as error:
            return Outcome.from_error(error)

    def _body(self, notification: Notification) -> bytes:
        message = build(notification, self._config)
        full = self._config.payload == "full" and notification.degraded < 2
        limit = min(self._config.max_alerts or Webhook.ALERTS, Webhook.ALERTS)
        for level in (0, 2, 5) if notification.degraded == 0 else (5,):
            body = encode_json(payload(notification, shorten(message, level), limit=limit, full=full))
            if len(body) <= Webhook.BODY_BYTES:
                return body
        while len(body) > Webhook.BODY_BYTES and limit > 1:
            limit //= 2
            body = encode_json(payload(notification, shorten(message, 5), limit=limit, full=full))
        return body


def payload(notification: Notification, message: Message, *, limit: int, full: bool) -> dict[str, Any]:
    """The JSON object, version 4."""
    alerts = worst_first(notification.alerts)
    shown = alerts[:limit]
    external = safe_url(notification.external_url)
    objects = [_alert(alert, external) for alert in shown]
    result: dict[str, Any] = {
        "version": "4",
        "groupKey": notification.group_key or notification.key,
        "truncatedAlerts": len(alerts) - len(shown),
        "status": "firing" if notification.firing else "resolved",
        "receiver": notification.receiver,
        "groupLabels": dict(notification.group_labels),
        "commonLabels": _common([item["labels"] for item in objects]),
        "commonAnnotations": _common([item["annotations"] for item in objects]),
        "externalURL": external,
        "alerts": objects,
    }
    if full:
        result["incident"] = {
            "key": message.key,
            "seq": notification.seq,
            "action": notification.action,
            "title": message.title,
            "summary": message.summary,
            "facts": {fact.name: fact.value for fact in message.facts},
            "course": {spark.name: f"{spark.bars} {spark.text}" for spark in message.sparks},
            "evidence": evidence_lines(message.evidence),
            "checks": [{"mark": check.mark, "text": check.text} for check in message.checks],
            "not_this": list(message.excluded),
            "do_now": list(message.actions),
            "notes": list(message.notes),
            "links": [{"text": link.text, "url": link.url} for link in message.links],
            "test": notification.test,
        }
    return result


def _alert(alert: Alert, external_url: str) -> dict[str, Any]:
    firing = alert.state != "resolved"
    annotations = {key: clip(clean(value), 8000) for key, value in alert.annotations.items() if value}
    annotations["confidence"] = alert.confidence
    return {
        "status": "firing" if firing else "resolved",
        "labels": {key: value for key, value in label_set(alert).items() if key != "wedgewatch_id"},
        "annotations": annotations,
        "startsAt": rfc3339(alert.starts_at),
        "endsAt": _NEVER if firing else rfc3339(alert.ends_at),
        "generatorURL": f"{external_url.rstrip('/')}/alerts/{alert.fingerprint}" if external_url else "",
        "fingerprint": alert.fingerprint,
    }


def _common(maps: list[Mapping[str, str]]) -> dict[str, str]:
    """What all of them share."""
    if not maps:
        return {}
    return {key: value for key, value in maps[0].items() if all(other.get(key) == value for other in maps[1:])}


def _ascii(text: str) -> str:
    """A header value: printable ASCII."""
    return "".join(char if "!" <= char <= "~" else "_" for char in text)[:255]
