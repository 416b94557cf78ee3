"""The progress endpoint that an orchestrator may use as the watched server's liveness probe.

A restart on a false alarm is worse than a late one, so 503 needs an open alert of the stalled or dead family with
confidence ``confirmed`` (more only when configured), and the evidence must have been taken first: a restart destroys
it. Everything else, our own blindness and a misspelt name included, answers 200 and says why in the body.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from agent.model import CRITICAL_FAMILIES, Alert
from agent.web.view import LiveStatus, Time, View

__all__ = ["DEFAULT_CONFIDENCES", "LiveAlert", "LiveAnswer", "live"]

DEFAULT_CONFIDENCES: Final = frozenset({"confirmed"})


@dataclass(frozen=True, slots=True)
class LiveAlert:
    """An alert that speaks against the server. No log text: a probe's answer ends up in cluster events."""

    alertname: str
    failure: str
    confidence: str
    fingerprint: str
    since: Time


@dataclass(frozen=True, slots=True)
class LiveAnswer:
    """``live`` false is the one answer that should restart the server."""

    server: str
    live: bool
    status: LiveStatus
    why: str
    alerts: tuple[LiveAlert, ...] = ()

    @property
    def code(self) -> int:
        return 200 if self.live else 503


def live(view: View, server: str, confidences: Collection[str] = DEFAULT_CONFIDENCES) -> LiveAnswer:
    """Whether ``server`` may go on running, as far as evidence goes."""
    known = {item.name: item for item in view.servers()}
    if server not in known:
        names = ", ".join(sorted(known)) or "none"
        return LiveAnswer(server, True, "unknown", f"No server of this name is watched here. Watched: {names}.")
    now = known[server]
    against = [alert for alert in view.alerts() if alert.server == server and _counts(alert, confidences)]
    if not against:
        if now.state == "idle":
            return LiveAnswer(server, True, "idle", "Idle: no request is waiting or running.")
        if now.state == "unknown":
            return LiveAnswer(server, True, "ok", "Unknown: no fresh signals. Blindness is no reason to restart.")
        return LiveAnswer(server, True, "ok", f"State {now.state}; no confirmed stall.")
    alerts = tuple(
        LiveAlert(item.alertname, item.failure, item.confidence, item.fingerprint, item.starts_at) for item in against
    )
    failures = ", ".join(sorted({alert.failure for alert in alerts}))
    if any(view.evidence_pending(alert) for alert in against):
        why = f"{failures}, {alerts[0].confidence}; evidence is being taken first, then this turns 503."
        return LiveAnswer(server, True, "held", why, alerts)
    seconds = max(0, round(view.now() - min(alert.since for alert in alerts)))
    return LiveAnswer(server, False, "stalled", f"{failures}, {alerts[0].confidence}, for {seconds} s.", alerts)


def _counts(alert: Alert, confidences: Collection[str]) -> bool:
    return alert.state == "firing" and alert.confidence in confidences and alert.family in CRITICAL_FAMILIES
