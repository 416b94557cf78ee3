"""Our own troubles as alerts: stored, routed, shown and resolved like any other.

What is wrong with one receiver is told to the others (:meth:`agent.notify.plan.Planner.targets_of`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from agent.model import Alert, alert_fingerprint
from agent.store import Store

__all__ = ["SERVER", "SelfAlerts"]

SERVER: Final = "wedgewatch"


class SelfAlerts:
    """Raises and clears them; the store remembers which are open. Thread-safe."""

    def __init__(self, store: Store, clock: Callable[[], float], changed: Callable[[], None]) -> None:
        self._store = store
        self._clock = clock
        self._changed = changed
        self._lock = threading.Lock()
        self._open: dict[str, Alert] = {
            stored.alert.fingerprint: stored.alert
            for stored in store.alerts(open=True)
            if stored.alert.context.get("self")
        }

    def open(self) -> list[Alert]:
        """Those that fire."""
        with self._lock:
            return list(self._open.values())

    def raise_(
        self,
        alertname: str,
        failure: str,
        summary: str,
        *,
        severity: str = "warning",
        labels: Mapping[str, str] | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> None:
        """Fires, unless it does already. One alert for each name and set of labels."""
        named = dict(labels or {})
        fingerprint = alert_fingerprint(alertname=alertname, server=SERVER, **named)
        now = self._clock()
        with self._lock:
            if fingerprint in self._open and self._open[fingerprint].severity == severity:
                return
            alert = Alert(
                alertname=alertname,
                failure=failure,
                state="firing",
                confidence="confirmed",
                severity=severity,
                server=SERVER,
                engine="",
                fingerprint=fingerprint,
                starts_at=now if fingerprint not in self._open else self._open[fingerprint].starts_at,
                fired_at=now,
                detected_at=now,
                labels={"alertname": alertname, "severity": severity, **named},
                annotations={"summary": summary},
                context={"self": True, **(context or {})},
            )
            self._open[fingerprint] = alert
            self._store.commit(alerts=[alert])
        self._changed()

    def clear(self, alertname: str, labels: Mapping[str, str] | None = None) -> None:
        """It is over; nothing when it does not fire."""
        fingerprint = alert_fingerprint(alertname=alertname, server=SERVER, **dict(labels or {}))
        with self._lock:
            alert = self._open.pop(fingerprint, None)
            if alert is None:
                return
            now = self._clock()
            self._store.commit(alerts=[alert.with_(state="resolved", ends_at=now, detected_at=now)])
        self._changed()
