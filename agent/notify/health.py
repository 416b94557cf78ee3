"""Which targets fail, since when, and when that becomes an alert of our own.

A refused message is told at once: somebody has to change something. A receiver that cannot be reached gets five
minutes, or until a message has been tried for its whole ``max_age``. Of an Alertmanager's peers one is enough.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

from agent.notify.selfalerts import SelfAlerts
from agent.notify.worker import Event

__all__ = ["Health"]

ALERTNAME: Final = "WedgewatchDeliveryFailing"
_PATIENCE: Final = 300.0


class Health:
    """Thread-safe: every worker reports here."""

    BROKEN_SECONDS: Final = 600.0
    """How long a target that refused for good is left alone, unless its configuration or a secret changes."""

    def __init__(self, alerts: SelfAlerts) -> None:
        self._alerts = alerts
        self._lock = threading.Lock()
        self._peers: dict[str, int] = {}
        self._failing: dict[str, dict[str, float]] = {}
        self._secrets: dict[str, str] = {}

    def reset(self, peers: Mapping[str, int]) -> None:
        """Another configuration: targets with their number of peers. Those that are gone trouble nobody."""
        with self._lock:
            self._peers = dict(peers)
            self._secrets.clear()
            self._failing = {target: since for target, since in self._failing.items() if target in peers}
        for alert in self._alerts.open():
            if alert.alertname == ALERTNAME and alert.context.get("target") not in peers:
                self._alerts.clear(ALERTNAME, {"receiver": alert.labels.get("receiver", "")})

    def note(self, event: Event, now: float) -> None:
        """An attempt went so."""
        with self._lock:
            failing = self._failing.setdefault(event.target, {})
            if event.kind == "ok":
                failing.pop(event.peer, None)
            else:
                failing.setdefault(event.peer, now)
            all_fail = len(failing) >= self._peers.get(event.target, 1)
            since = max(failing.values(), default=now)
        if event.kind == "ok":
            self._alerts.clear(ALERTNAME, {"receiver": event.target})
        elif not all_fail:
            return
        elif event.kind == "broken":
            text = f"{event.target} refuses our messages: {event.detail}. See `wedgewatch outbox list`"
            self._raise(event.target, text, "critical")
        elif event.kind == "dead":
            text = f"{event.target} could not be reached in time: {event.detail}. See `wedgewatch outbox list`"
            self._raise(event.target, text, "warning")
        elif event.overdue or now - since >= _PATIENCE:
            text = f"{event.target} cannot be reached: {event.detail}. Messages wait for it"
            self._raise(event.target, text, "warning")

    def remember_secrets(self, target: str, digest: str) -> None:
        """What the secrets were when the target refused."""
        with self._lock:
            self._secrets.setdefault(target, digest)

    def secrets_changed(self, target: str, digest: str) -> bool:
        """Whether they are others now."""
        with self._lock:
            before = self._secrets.get(target)
            if before is None or before == digest:
                return False
            del self._secrets[target]
            return True

    def _raise(self, target: str, summary: str, severity: str) -> None:
        self._alerts.raise_(
            ALERTNAME,
            "delivery_failing",
            summary,
            severity=severity,
            labels={"receiver": target},
            context={"target": target},
        )
