"""The tests that call a stretch without progress a stall.

Each is a pure function of the looks so far and the time; the tracker says when to ask. A full stop is found by a
deadline (see :mod:`agent.detect.deadline`); two kinds of stall move something and have tests of their own: a trickle
(tokens drip, nothing completes, the queue grows) and a preemption livelock (requests are thrown out and taken back for
ever, nothing is delivered).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from agent.detect.deadline import ProgressLimits

__all__ = ["Point", "Stall", "StallKind", "livelock", "trickle"]

StallKind = Literal["full", "trickle", "livelock", "silence", "lost_replies", "canary"]


@dataclass(frozen=True, slots=True)
class Stall:
    """Work waits or runs and none is issued.

    ``since`` is the last progress (or the moment work came in, when that is later), ``declared`` the event time
    at which the deadline had passed. ``kind`` says which test found it. ``certain`` is false when only silence in
    a log speaks for it.
    """

    since: float
    declared: float
    kind: StallKind
    deadline: float
    deadline_source: str
    certain: bool = True


@dataclass(frozen=True, slots=True)
class Point:
    """One look at the signals; deltas are since the look before."""

    timestamp: float
    step: float = 0.0
    running: float | None = None
    waiting: float | None = None
    in_flight: float | None = None
    kv: float | None = None
    finished: float | None = None
    generated: float | None = None
    prompted: float | None = None
    preempted: float = 0.0
    aborted: float = 0.0
    progress: bool = False


def livelock(points: Sequence[Point], timestamp: float, limits: ProgressLimits, hole: float) -> Stall | None:
    """Preemptions climb through the whole window, nothing finishes, and next to no token is delivered."""
    if not points or points[-1].timestamp != timestamp or points[-1].preempted <= 0:
        return None
    window = _window(points, timestamp, limits.livelock, hole)
    if not window or any(point.finished is None or point.finished > 0 for point in window):
        return None
    busy = all((point.in_flight or 0.0) > 0 for point in window)
    active = sum(1 for point in window if point.preempted > 0) >= len(window) / 3
    if not (busy and active and sum(point.preempted for point in window) >= max(10.0, limits.livelock / 10)):
        return None
    if _token_rate(window) > 0.05 * _usual_token_rate(points, window[0].timestamp):
        return None
    return Stall(_quiet_since(points, window[0].timestamp), timestamp, "livelock", limits.livelock, "livelock")


def trickle(points: Sequence[Point], timestamp: float, limits: ProgressLimits, hole: float) -> Stall | None:
    """Tokens drip at under 2 % of their usual rate and nothing completes while the queue grows, for a whole window."""
    if not points or points[-1].timestamp != timestamp:
        return None
    window = _window(points, timestamp, limits.trickle, hole)
    if len(window) < 4 or any(p.finished is None or p.finished > 0 or p.generated is None for p in window):
        return None
    usual = _usual_token_rate(points, window[0].timestamp)
    if usual <= 0 or _token_rate(window) > 0.02 * usual:
        return None
    first, last = window[0], window[-1]
    grew = (last.waiting or 0.0) > (first.waiting or 0.0) and all((p.in_flight or 0.0) > 0 for p in window)
    if not grew or any((p.kv or 0.0) - (first.kv or 0.0) > 0.02 for p in window):
        return None  # a pool that fills is a prefill under way
    return Stall(_quiet_since(points, first.timestamp), timestamp, "trickle", limits.trickle, "trickle")


def _window(points: Sequence[Point], timestamp: float, seconds: float, hole: float) -> list[Point]:
    """The looks of the last ``seconds``, or none when they do not cover them without a hole."""
    chosen: list[Point] = []
    for point in reversed(points):
        if point.timestamp < timestamp - seconds:
            return chosen[::-1]
        if point.step > hole:
            return []
        chosen.append(point)
    return []


def _quiet_since(points: Sequence[Point], fallback: float) -> float:
    return next((point.timestamp for point in reversed(points) if (point.finished or 0.0) > 0), fallback)


def _token_rate(window: Sequence[Point]) -> float:
    seconds = sum(point.step for point in window)
    return sum(point.generated or 0.0 for point in window) / seconds if seconds > 0 else 0.0


def _usual_token_rate(points: Sequence[Point], before: float) -> float:
    """Median tokens a second over the looks up to ``before`` in which any came; 0 when there is no such history."""
    rates = sorted(p.generated / p.step for p in points if p.timestamp <= before and p.generated and p.step > 0)
    return rates[len(rates) // 2] if rates else 0.0
