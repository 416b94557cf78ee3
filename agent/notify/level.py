"""Alertmanager's worker: one for each peer, which sends what fires now, again and again.

There is no outbox here: what to send is what holds, read from the store at each round, so a restart, a lost answer or
an Alertmanager that forgot everything is put right by the next round.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from agent.model import Alert
from agent.notify.values import Target
from agent.notify.worker import Event, Meter, NoMeter, backoff
from agent.redact import redact
from integrations.alertmanager import RemoteSilence
from integrations.base import DeliveryError, Outcome

__all__ = ["LevelWorker", "Peer"]

_log = logging.getLogger(__name__)


class Peer(Protocol):
    """One Alertmanager."""

    peer: str
    skew: float | None

    @property
    def resend_interval(self) -> float: ...

    def push(self, alerts: Sequence[Alert], *, now: float) -> Outcome: ...

    def silences(self) -> list[RemoteSilence]: ...


class LevelWorker:
    """Pushes to one peer. :meth:`step` is one round."""

    def __init__(
        self,
        target: Target,
        peer: Peer,
        alerts: Callable[[float], Sequence[Alert]],
        *,
        clock: Callable[[], float],
        on_event: Callable[[Event], None],
        on_silences: Callable[[str, Sequence[RemoteSilence]], None] | None = None,
        meter: Meter | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.target = target
        self.peer = peer
        self.name = f"{target.id}/{peer.peer}"
        self.last_error = ""
        self.failures = 0
        self.last_success: float | None = None
        self._alerts = alerts
        self._clock = clock
        self._on_event = on_event
        self._on_silences = on_silences
        self._meter: Meter = meter or NoMeter()
        self._rng = rng or random.Random()
        self._wake = threading.Event()
        self._silences_due = 0.0

    def wake(self) -> None:
        """Something changed: send now."""
        self._wake.set()

    def run(self, stop: threading.Event) -> None:
        """Rounds until ``stop``. A change is sent at once, but not while the peer is known to fail."""
        while not stop.is_set():
            wait = self.step(self._clock())
            ends = self._clock() + wait
            while not stop.is_set() and self._clock() < ends:
                woken = self._wake.wait(min(1.0, max(0.0, ends - self._clock())))
                self._wake.clear()
                if woken and not self.failures:
                    break

    def step(self, now: float) -> float:
        """One round. Returns the seconds until the next."""
        alerts = self._alerts(now)
        names = {"receiver": self.target.id, "integration": self.target.kind}
        outcome = Outcome.success()
        if alerts:
            self._meter.inc("notification_requests_total", 1.0, **names)
            started = self._clock()
            outcome = self.peer.push(alerts, now=now)
            self._meter.observe("notification_latency_seconds", self._clock() - started, integration=self.target.kind)
        wait = self._succeeded(bool(alerts), now) if outcome.kind == "success" else self._failed(outcome)
        if self._on_silences is not None and not self.failures and now >= self._silences_due:
            self._silences_due = now + self.peer.resend_interval
            self._read_silences()
        if self.peer.skew is not None:
            self._meter.set("receiver_clock_skew_seconds", self.peer.skew, receiver=self.target.id)
        return wait

    def _succeeded(self, sent: bool, now: float) -> float:
        self.failures, self.last_error = 0, ""
        if sent:
            self.last_success = now
            self._meter.inc("notifications_total", receiver=self.target.id, integration=self.target.kind)
            self._meter.set("receiver_up", 1.0, receiver=self.target.id)
            self._on_event(Event(self.target.id, "ok", peer=self.peer.peer))
        return self.peer.resend_interval

    def _failed(self, outcome: Outcome) -> float:
        detail = redact(outcome.detail)[:256]
        self.failures += 1
        self.last_error = detail
        names = {"receiver": self.target.id, "integration": self.target.kind}
        self._meter.inc("notification_requests_failed_total", 1.0, **names)
        self._meter.inc("notifications_failed_total", 1.0, **names, reason=outcome.reason or "other")
        if self.failures == 1:
            _log.warning("%s: not delivered (%s)", self.name, detail)
        kind: Literal["retry", "broken"] = "retry" if outcome.kind == "retry" else "broken"
        self._on_event(Event(self.target.id, kind, detail, peer=self.peer.peer))
        if outcome.after is not None:
            return outcome.after
        return min(self.peer.resend_interval, max(1.0, backoff(self.failures, self._rng)))

    def _read_silences(self) -> None:
        assert self._on_silences is not None
        try:
            self._on_silences(self.peer.peer, self.peer.silences())
        except DeliveryError as error:
            # The next round asks again; silences known so far hold until their end. That the peer cannot be reached is
            # said now, not only when there is an alert to send.
            _log.info("%s: silences cannot be read (%s)", self.name, error)
            self._on_event(Event(self.target.id, "retry", str(error), peer=self.peer.peer))
            self.last_error = str(error)
        else:
            self._on_event(Event(self.target.id, "ok", peer=self.peer.peer))
