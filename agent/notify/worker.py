"""One worker for each target: takes what is due from the outbox, makes one attempt, writes down how it went.

A worker knows one receiver, so a receiver that hangs delays nobody else. Order holds within a page: its rows are
claimed together, oldest first, and what piled up during an outage is said once, as it stands now (:func:`coalesce`).
Retries live in the outbox, not in a call stack, so they survive a restart.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from agent.model import Alert
from agent.notify.values import Target
from agent.redact import redact
from agent.store import OutboxRow, Page, Store
from integrations.base import Action, DeliveryError, Notification, Outcome, Receiver

__all__ = ["Event", "Meter", "NoMeter", "Said", "Settings", "Worker", "backoff", "coalesce"]

_log = logging.getLogger(__name__)

BACKOFF_FIRST: Final = 1.0
BACKOFF_MAX: Final = 60.0
MAX_AGE_CRITICAL: Final = 3600.0
MAX_AGE_OTHER: Final = 900.0
LATE: Final = 60.0
"""Seconds from which on a message says that it is late."""
_DEGRADE_STEPS: Final = 3
_IDLE: Final = 5.0
"""Seconds between two looks when nothing is due: another process (``outbox retry``) may have added work."""
# These tell of the receiver, not of the message, so its other messages wait too.
_RECEIVER_WIDE: Final = frozenset({"network", "timeout", "tls", "rate_limited", "server", "client"})


class Meter(Protocol):
    """Where numbers go; agent.telemetry.Telemetry is one."""

    def inc(self, name: str, amount: float = 1.0, **labels: str) -> None: ...

    def set(self, name: str, value: float, **labels: str) -> None: ...

    def observe(self, name: str, value: float, **labels: str) -> None: ...


class NoMeter:
    """Numbers that nobody reads."""

    def inc(self, name: str, amount: float = 1.0, **labels: str) -> None:
        """Nothing."""

    def set(self, name: str, value: float, **labels: str) -> None:
        """Nothing."""

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Nothing."""


@dataclass(frozen=True, slots=True)
class Event:
    """What the dispatcher has to know of an attempt. ``overdue``: delivery has been tried for longer than max_age.
    ``peer``: which of the target's peers, where it has several."""

    target: str
    kind: Literal["ok", "retry", "broken", "dead"]
    detail: str = ""
    overdue: bool = False
    peer: str = ""


@dataclass(frozen=True, slots=True)
class Settings:
    """What every notification carries."""

    external_url: str = ""
    fleet: int = 0


@dataclass(frozen=True, slots=True)
class Said:
    """What a page's undelivered rows come to. ``rows`` are done with it; an empty ``action`` says nothing at all."""

    action: Action | Literal[""]
    rows: tuple[OutboxRow, ...]
    body: dict[str, Any]
    notes: tuple[str, ...] = ()


def coalesce(rows: Sequence[OutboxRow], target: Target) -> Said:
    """One thing to say for all rows of a page that wait, oldest first.

    Opened, changed and changed again: opened, as it stands now. Opened and over before it could be said: one message
    that says both; nothing for a pager (there is nobody to wake), unless its first attempt may have arrived: then the
    resolve.
    """
    first, last = rows[0], rows[-1]
    if first.action != "open":
        repeated = any(row.action == "repeat" for row in rows) and last.action != "resolve"
        action = "repeat" if repeated else last.action
        return Said(action, tuple(rows), _merged(rows))  # type: ignore[arg-type]  # the planner's own words
    if last.action != "resolve":
        return Said("open", tuple(rows), _merged(rows))
    if not target.traits.late:
        return Said("resolve", tuple(rows), _merged(rows)) if first.uncertain else Said("", tuple(rows), {})
    if target.traits.keyed:  # a resolve without a trigger would be dropped by the service
        return Said("open", tuple(rows[:-1]), _merged(rows[:-1]))
    return Said("resolve", tuple(rows), _merged(rows), ("it fired and was over before this could be delivered",))


def _merged(rows: Sequence[OutboxRow]) -> dict[str, Any]:
    body = dict(rows[-1].body)
    news = [name for row in rows for name in row.body.get("news", ())]
    notes = [note for row in rows for note in row.body.get("notes", ())]
    body["news"] = list(dict.fromkeys(news))
    body["notes"] = list(dict.fromkeys(notes))
    return body


def backoff(attempt: int, rng: random.Random) -> float:
    """Seconds before the next try after ``attempt`` failures: doubling to a minute, with full jitter."""
    return max(0.2, rng.uniform(0.0, min(BACKOFF_MAX, BACKOFF_FIRST * 2.0 ** min(attempt - 1, 16))))


class Worker:
    """Delivers to one target. :meth:`step` is one look; :meth:`run` looks until told to stop."""

    def __init__(
        self,
        target: Target,
        receiver: Receiver,
        store: Store,
        *,
        clock: Callable[[], float],
        on_event: Callable[[Event], None],
        settings: Settings | None = None,
        meter: Meter | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.target = target
        self.receiver = receiver
        self.last_error = ""
        self.failures = 0
        self._store = store
        self._clock = clock
        self._on_event = on_event
        self._settings = settings or Settings()
        self._meter: Meter = meter or NoMeter()
        self._rng = rng or random.Random()
        self._not_before = 0.0
        self._wake = threading.Event()

    def wake(self) -> None:
        """Something may be due."""
        self._wake.set()

    def run(self, stop: threading.Event) -> None:
        """Until ``stop``; a wake or the next due row ends each wait."""
        while not stop.is_set():
            wait = self.step(self._clock())
            if wait > 0 and not stop.is_set():
                self._wake.wait(min(wait, _IDLE))
            self._wake.clear()

    def step(self, now: float) -> float:
        """At most one attempt. Returns the seconds until there may be another, 0 for at once."""
        if now < self._not_before:
            return self._not_before - now
        rows = self._store.claim(self.target.id, now)
        if not rows:
            due = self._store.next_due(self.target.id)
            return _IDLE if due is None else max(0.05, due - now)
        page = self._store.page(rows[0].page)
        said = coalesce(rows, self.target)
        if page is None or not said.action:
            self._store.finish(
                [row.id for row in said.rows], state="dropped", error="over before it could be delivered"
            )
            self._meter.inc("notifications_suppressed_total", reason="stale")
            return 0.0
        kept = [row.id for row in rows if row not in said.rows]
        if kept:
            self._store.retry(kept, at=0.0)
        try:
            notification = self._notification(said, page, now)
            self._settle(said, page, notification, self._attempt(notification), now)
        except BaseException:  # this thread is started anew, and what it had claimed must not wait for ever
            self._store.retry([row.id for row in said.rows], at=now + BACKOFF_MAX, uncertain=True)
            raise
        return max(0.0, self._not_before - self._clock())

    def _notification(self, said: Said, page: Page, now: float) -> Notification:
        body = said.body
        age = now - said.rows[0].created
        assert said.action
        return Notification(
            receiver=self.target.receiver,
            key=page.key,
            action=said.action,
            alerts=tuple(Alert.from_json(item) for item in body.get("alerts", ())),
            now=now,
            seq=int(body.get("seq", 1)),
            group_key=page.group_key,
            group_labels=body.get("group_labels", {}),
            news=tuple(body.get("news", ())),
            ref=page.ref,
            degraded=max(row.degraded for row in said.rows),
            delayed=age if age >= LATE else 0.0,
            uncertain=any(row.uncertain for row in said.rows) and not self.target.traits.keyed,
            notes=(*body.get("notes", ()), *said.notes),
            others=tuple(body.get("others", ())),
            external_url=self._settings.external_url,
            fleet=self._settings.fleet,
            test=bool(body.get("test")),
        )

    def _attempt(self, notification: Notification) -> Outcome:
        names = {"receiver": self.target.id, "integration": self.target.kind}
        self._meter.inc("notification_requests_total", 1.0, **names)
        before = self._clock()
        try:
            outcome = self.receiver.notify(notification)
        except DeliveryError as error:
            outcome = Outcome.from_error(error)
        except Exception as error:  # noqa: BLE001  # a fault in one renderer must not stop this worker: say less
            _log.exception("%s: building or sending the message failed", self.target.id)
            outcome = Outcome.degrade(f"{type(error).__name__} while sending", reason="other")
        self._meter.observe("notification_latency_seconds", self._clock() - before, integration=self.target.kind)
        if outcome.kind != "success":
            self._meter.inc("notification_requests_failed_total", 1.0, **names)
        return outcome

    def _settle(self, said: Said, page: Page, notification: Notification, outcome: Outcome, now: float) -> None:
        ids = [row.id for row in said.rows]
        names = {"receiver": self.target.id, "integration": self.target.kind}
        if outcome.kind == "success":
            self._meter.inc("notifications_total", 1.0, **names)
            self._meter.set("receiver_up", 1.0, receiver=self.target.id)
            ref = {**page.ref, **outcome.ref} if outcome.ref else None
            self._store.finish(ids, state="sent", page=page.id, ref=ref)
            self.failures, self.last_error, self._not_before = 0, "", 0.0
            self._on_event(Event(self.target.id, "ok"))
            return
        detail = redact(outcome.detail)[:256]
        self.last_error = detail
        self._meter.inc("notifications_failed_total", 1.0, **names, reason=outcome.reason or "other")
        age = now - said.rows[0].created
        if outcome.kind == "degrade":
            step = notification.degraded + 1
            if step <= _DEGRADE_STEPS:
                _log.warning("%s: the message was refused (%s), sending a shorter one", self.target.id, detail)
                self._store.retry(ids, at=now, error=detail, degraded=step)
                return
            self._bury(said, page, detail, "permanent")
        elif outcome.kind == "permanent":
            self._bury(said, page, detail, "permanent")
        elif page.closed is not None and age > self._max_age(said.rows[0]):
            self._bury(said, page, f"tried for {age:.0f} s: {detail}", "too_old")
        else:
            self._put_off(said, ids, outcome, detail, age)

    def _put_off(self, said: Said, ids: list[int], outcome: Outcome, detail: str, age: float) -> None:
        self.failures += 1
        self._meter.set("receiver_up", 0.0, receiver=self.target.id)
        now = self._clock()
        wait = outcome.after if outcome.after is not None else backoff(said.rows[0].attempts, self._rng)
        if outcome.reason in _RECEIVER_WIDE:
            own = wait if outcome.after is not None else backoff(self.failures, self._rng)
            self._not_before = now + own
        _log.warning("%s: not delivered (%s), again in %.1f s", self.target.id, detail, wait)
        self._store.retry(
            ids,
            at=now + wait,
            error=detail,
            degraded=max(row.degraded for row in said.rows),
            uncertain=outcome.uncertain,
        )
        overdue = age > self._max_age(said.rows[0])
        self._on_event(Event(self.target.id, "retry", detail, overdue))

    def _bury(self, said: Said, page: Page, detail: str, reason: str) -> None:
        """Dead letter: kept, listed, and retried by hand. A page nobody heard of is not open, so that what still fires
        can be planned again once the receiver works."""
        unheard = said.rows[0].action == "open" and page.closed is None
        _log.error("%s: given up (%s); see `wedgewatch outbox list`", self.target.id, detail)
        self._meter.inc("notifications_dead_total", receiver=self.target.id, reason=reason)
        self._meter.set("receiver_up", 0.0, receiver=self.target.id)
        self._store.finish(
            [row.id for row in said.rows],
            state="dead",
            error=detail,
            page=page.id,
            page_state="undelivered" if unheard else None,
        )
        self._on_event(Event(self.target.id, "broken" if reason == "permanent" else "dead", detail))

    def _max_age(self, row: OutboxRow) -> float:
        if self.target.max_age is not None:
            return self.target.max_age
        return MAX_AGE_CRITICAL if row.priority == 0 else MAX_AGE_OTHER
