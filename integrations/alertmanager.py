"""Alertmanager API v2: all firing alerts again and again, to every peer, whatever the clocks say.

Alertmanager keeps alerts in memory and lets them expire, so a single POST is wrong by design: the firing set is sent
every ``resend_interval``, what resolved for a while after. Peers do not share alerts, so each gets them directly and
has a queue of its own; there must be no load balancer in between.

Times are Alertmanager's. While an alert fires ``endsAt`` is left out (the lease runs on Alertmanager's clock);
``startsAt`` and the ``endsAt`` of a resolve are never later than its own ``Date``. A client whose clock is six minutes
behind would otherwise be answered 200 and notify nobody: https://github.com/prometheus/prometheus/issues/10342

https://github.com/prometheus/alertmanager/blob/main/docs/alerts_api.md
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from agent.model import Alert, Duration, parse_rfc3339, rfc3339
from agent.redact import redact
from integrations.base import DeliveryError, Notification, Outcome, ReceiverOptions, Traits
from integrations.http import HttpClient, HttpConfig, HttpResponse, encode_json, origin
from integrations.limits import Webhook
from integrations.message import build, safe_url
from integrations.plain import evidence_lines
from integrations.status import by_status
from integrations.text import clean, clip, one_line

__all__ = ["AlertmanagerConfig", "AlertmanagerPeer", "AlertmanagerReceiver", "RemoteSilence", "label_set"]

RESOLVED_FOR: Final = 900.0
"""Seconds for which a resolved alert is sent on: Prometheus's choice, and enough for one lost round."""
_NAME: Final = re.compile(r"[^a-zA-Z0-9_]")
_BATCH: Final = Webhook.ALERTS
_ANNOTATION: Final = 8000
_REFUSED: Final = frozenset({400, 413, 422})


@dataclass(frozen=True, kw_only=True)
class AlertmanagerConfig(ReceiverOptions):
    """One Alertmanager, with all its peers."""

    urls: tuple[str, ...] = field(metadata={"doc": "every peer, no load balancer", "nonempty": True})
    resend_interval: Duration = field(default=Duration(60.0), metadata={"doc": "below a third of resolve_timeout"})
    honor_silences: bool = field(default=True, metadata={"doc": "silences set there also hold for other receivers"})
    http_config: HttpConfig | None = None

    def check(self) -> Iterable[tuple[str, ...]]:
        for index, url in enumerate(self.urls):
            if not origin(url):
                yield f"urls.{index}", f"'{redact(url)[:60]}' is no http(s) URL"
        if len(set(self.urls)) < len(self.urls):
            yield "urls", "the same peer is listed twice"
        if self.resend_interval > 100:
            yield (
                "resend_interval",
                "three times this is longer than Alertmanager's default resolve_timeout of 5m: alerts will flap unless "
                "that is raised",
                "warning",
            )
        elif self.resend_interval <= 0:
            yield "resend_interval", "give a time, for example 1m"


@dataclass(frozen=True, slots=True)
class RemoteSilence:
    """An active silence of an Alertmanager, in its own notation."""

    id: str
    matchers: tuple[str, ...]
    starts_at: float
    ends_at: float
    comment: str = ""
    created_by: str = ""


class AlertmanagerReceiver:
    """All peers of one Alertmanager. The dispatcher drives each peer by itself; ``notify`` is for a test by hand."""

    kind = "alertmanager"
    traits = Traits(keyed=True, level=True, partial=True)

    def __init__(self, config: AlertmanagerConfig, client: HttpClient, external_url: str = "") -> None:
        self.peers = tuple(AlertmanagerPeer(url, config, client, external_url) for url in config.urls)
        self.honor_silences = config.honor_silences

    def notify(self, notification: Notification) -> Outcome:
        outcomes = [peer.push(notification.alerts, now=notification.now) for peer in self.peers]
        return next((outcome for outcome in outcomes if outcome.kind == "success"), outcomes[0])


class AlertmanagerPeer:
    """One peer. Not thread-safe: one worker pushes."""

    kind = "alertmanager"

    def __init__(self, url: str, config: AlertmanagerConfig, client: HttpClient, external_url: str = "") -> None:
        self._config = config
        self._client = client
        self._external_url = external_url
        base = url.rstrip("/")
        self._base = base.removesuffix("/api/v2/alerts")
        self.peer = origin(url)
        self.skew: float | None = None
        """The peer's clock less ours in seconds, from its last answer."""
        self._sent_labels: dict[str, dict[str, str]] = {}
        self._explained: dict[str, tuple[Alert, dict[str, str]]] = {}

    @property
    def resend_interval(self) -> float:
        return self._config.resend_interval

    def push(self, alerts: Sequence[Alert], *, now: float) -> Outcome:
        """Sends the alerts as they stand. Success when everything that can be accepted was; a refused alert is named.

        An alert whose identifying labels changed (a cause was found, so it has a new name) resolves under the old ones.
        """
        try:
            outcome = Outcome.success()
            for start in range(0, max(1, len(alerts)), _BATCH):
                batch = alerts[start : start + _BATCH]
                if batch:
                    outcome = _worse(outcome, self._push_batch(batch, now))
            if outcome.kind == "success":
                self._sent_labels = {alert.fingerprint: label_set(alert) for alert in alerts}
                self._explained = {key: kept for key, kept in self._explained.items() if key in self._sent_labels}
            return outcome
        except DeliveryError as error:
            return Outcome.from_error(error)

    def silences(self) -> list[RemoteSilence]:
        """Silences active there now. Raises DeliveryError; an answer that makes no sense gives none."""
        answer = self._client.request(
            "GET", f"{self._base}/api/v2/silences", timeout=self._config.timeout, body_limit=4 * 1024 * 1024
        )
        self._note_clock(answer)
        listed = answer.json() if answer.ok and answer.complete else None
        return [found for item in listed if (found := _silence(item)) is not None] if isinstance(listed, list) else []

    def states(self) -> dict[str, str]:
        """Our alerts by fingerprint label -> ``active``, ``suppressed`` or ``unprocessed``. Raises DeliveryError."""
        answer = self._client.request(
            "GET",
            f'{self._base}/api/v2/alerts?filter=wedgewatch_id%3D~"..*"',
            timeout=self._config.timeout,
            body_limit=4 * 1024 * 1024,
        )
        listed = answer.json() if answer.ok and answer.complete else None
        states: dict[str, str] = {}
        for item in listed if isinstance(listed, list) else []:
            if isinstance(item, dict) and isinstance(item.get("labels"), dict) and isinstance(item.get("status"), dict):
                states[str(item["labels"].get("wedgewatch_id"))] = str(item["status"].get("state"))
        return states

    def _push_batch(self, batch: Sequence[Alert], now: float) -> Outcome:
        answer = self._post(batch, now)
        if answer.status in _REFUSED:
            # Its clock is known now: times it found impossible are clamped to it. And one bad alert refuses the whole
            # request although the good ones were taken (seen in 0.25), so each goes alone to find the bad one.
            outcome = Outcome.success()
            for alert in batch:
                single = by_status(self._post([alert], now), content_refused=_REFUSED)
                if single.kind == "degrade":
                    single = by_status(self._post([alert], now, bare=True), content_refused=frozenset())
                if single.kind == "permanent":
                    single = Outcome.permanent(f"{alert.alertname} on {alert.server}: {single.detail}")
                outcome = _worse(outcome, single)
                if outcome.kind == "retry":
                    break
            return outcome
        return by_status(answer)

    def _post(self, alerts: Sequence[Alert], now: float, *, bare: bool = False) -> HttpResponse:
        body: list[dict[str, Any]] = []
        for alert in alerts:
            body += self._objects(alert, now, bare)
        answer = self._client.request(
            "POST",
            f"{self._base}/api/v2/alerts",
            timeout=self._config.timeout,
            body=encode_json(body),
            headers={"Content-Type": "application/json"},
        )
        self._note_clock(answer)
        return answer

    def _objects(self, alert: Alert, now: float, bare: bool) -> list[dict[str, Any]]:
        there = now + (self.skew or 0.0) if self.skew is not None else None
        labels = label_set(alert)
        starts = alert.starts_at if there is None else min(alert.starts_at + (self.skew or 0.0), there)
        item: dict[str, Any] = {"labels": labels, "startsAt": rfc3339(starts)}
        if not bare:
            item["annotations"] = self._annotations(alert, now)
            page = safe_url(
                f"{self._external_url.rstrip('/')}/alerts/{alert.fingerprint}" if self._external_url else ""
            )
            if page:
                item["generatorURL"] = page
        if alert.state == "resolved":
            ends = alert.ends_at if alert.ends_at is not None else now
            ends = ends if there is None else min(ends + (self.skew or 0.0), there)
            item["endsAt"] = rfc3339(ends)
            item["startsAt"] = rfc3339(min(starts, ends))
        objects = [item]
        old = self._sent_labels.get(alert.fingerprint)
        if old is not None and old != labels:
            over = rfc3339(there if there is not None else now)
            objects.append({"labels": old, "startsAt": item["startsAt"], "endsAt": over})
        return objects

    def _annotations(self, alert: Alert, now: float) -> dict[str, str]:
        """What explains the alert; kept from round to round, since most alerts do not change between two."""
        known = self._explained.get(alert.fingerprint)
        if known is None or known[0] != alert:
            known = self._explained[alert.fingerprint] = (alert, self._explain(alert, now))
        return known[1]

    def _explain(self, alert: Alert, now: float) -> dict[str, str]:
        action = "resolve" if alert.state == "resolved" else "open"
        message = build(Notification("alertmanager", "", action, (alert,), now))  # type: ignore[arg-type]  # two literals
        found = {_NAME.sub("_", key): value for key, value in alert.annotations.items()}
        found.setdefault("summary", message.title)
        found["confidence"] = alert.confidence
        found["evidence"] = "\n".join(evidence_lines(message.evidence))
        found["checks"] = "\n".join(f"[{check.mark}] {check.text}" for check in message.checks)
        found["do_now"] = "\n".join(message.actions)
        queue = next((fact.value for fact in message.facts if fact.name == "Queue"), "")
        found["queue"] = queue
        return {key: clip(clean(redact(value)), _ANNOTATION) for key, value in found.items() if value}

    def _note_clock(self, answer: HttpResponse) -> None:
        if answer.skew is not None:
            # Date has whole seconds: below two the difference is noise, and moving startsAt would only blur it.
            self.skew = answer.skew if abs(answer.skew) >= 2.0 else 0.0


def label_set(alert: Alert) -> dict[str, str]:
    """Identifying labels in the classic form ``[a-zA-Z_][a-zA-Z0-9_]*``, never empty ones, always an alertname.

    Numbers that change while an alert fires are annotations: a changed label would be another alert."""
    labels = {
        **alert.labels,
        "alertname": alert.alertname or alert.failure or "Wedgewatch",
        "failure": alert.failure,
        "server": alert.server,
        "engine": alert.engine,
        "severity": alert.severity,
        "wedgewatch_id": alert.fingerprint,
    }
    named: dict[str, str] = {}
    for key, value in labels.items():
        name = _NAME.sub("_", key)
        name = f"_{name}" if not name or name[0].isdigit() else name
        text = clip(one_line(redact(str(value))), 1000)
        if text:
            named[name] = text
    return named


def _worse(one: Outcome, other: Outcome) -> Outcome:
    order = {"success": 0, "degrade": 1, "permanent": 2, "retry": 3}
    return other if order[other.kind] > order[one.kind] else one


def _silence(item: Any) -> RemoteSilence | None:
    if not isinstance(item, Mapping) or not isinstance(item.get("status"), Mapping):
        return None
    if item["status"].get("state") != "active" or not isinstance(item.get("matchers"), list):
        return None
    matchers = []
    for matcher in item["matchers"]:
        if not isinstance(matcher, Mapping) or not isinstance(matcher.get("name"), str):
            return None
        equal, regex = matcher.get("isEqual", True) is not False, matcher.get("isRegex") is True
        sign = ("=~" if regex else "=") if equal else ("!~" if regex else "!=")
        value = str(matcher.get("value", "")).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        matchers.append(f'{matcher["name"]}{sign}"{value}"')
    try:
        return RemoteSilence(
            id=str(item.get("id", "")),
            matchers=tuple(matchers),
            starts_at=parse_rfc3339(str(item["startsAt"])),
            ends_at=parse_rfc3339(str(item["endsAt"])),
            comment=one_line(str(item.get("comment", "")))[:200],
            created_by=one_line(str(item.get("createdBy", "")))[:80],
        )
    except (KeyError, ValueError):
        return None
