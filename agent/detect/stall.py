"""A stretch without progress that has a name of its own: the value, and the tests that are not a mere deadline.

A full stop is found by a deadline (:mod:`agent.detect.deadline`). Two kinds of stall move something: a trickle, timed
by :class:`agent.detect.busy.DripClock`, and a preemption livelock, where requests are thrown out and taken back for
ever and nothing is delivered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from agent.detect.deadline import ProgressLimits

__all__ = ["CLOCKS", "CRAWL", "Point", "Stall", "StallKind", "livelock", "merged", "preempts", "speed"]

StallKind = Literal["full", "trickle", "livelock", "silence", "lost_replies", "canary"]

CRAWL: Final = 0.05
"""Share of the usual tokens a second for each running request below which it crawls. Long contexts and prefills in
the same batch slow a request down several times, not twentyfold."""


CLOCKS: Final = 2.0
"""Seconds by which the clocks of log and metrics are trusted to agree; many logs stamp whole seconds only."""


@dataclass(frozen=True, slots=True)
class Stall:
    """Work waits or runs and none is issued.

    ``since`` is the last progress (or the moment work came in, when that is later), ``declared`` the event time
    at which the deadline had passed. ``kind`` says which test found it, ``deadline_source`` what set the deadline:
    ``floor``, ``learned``, ``cold``, ``ceiling``, ``evidence``, ``turning``, ``waking``, ``prefill``, ``transfer``,
    ``vanished``, or the kind.
    ``certain`` is false when nothing but silence in a log, our canary or the front end's own count speaks for it.
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


def merged(first: Point, second: Point) -> Point:
    """Two looks as one, at the time of the second."""
    sums: dict[str, Any] = {
        name: None if getattr(second, name) is None else (getattr(first, name) or 0.0) + getattr(second, name)
        for name in ("step", "finished", "generated", "prompted", "preempted", "aborted")
    }
    return replace(second, progress=first.progress or second.progress, **sums)


def speed(point: Point) -> float | None:
    """Tokens a second for each running request; None where tokens are not counted."""
    if point.generated is None or point.step <= 0:
        return None
    return point.generated / point.step / max(1.0, point.running or 0.0)


def livelock(
    points: Sequence[Point], timestamp: float, usual: float, limits: ProgressLimits, hole: float
) -> Stall | None:
    """Preemptions climb through the whole window, nothing finishes, and next to no token is delivered."""
    if not points or points[-1].timestamp != timestamp or points[-1].preempted <= 0:
        return None
    window = _window(points, timestamp, limits.livelock, hole)
    if not window or any(point.finished is None or point.finished > 0 for point in window):
        return None
    busy = all((point.in_flight or 0.0) > 0 for point in window)
    if not (busy and preempts(window, at_least=limits.livelock / 10)):
        return None
    speeds = [value for value in map(speed, window) if value is not None]
    if speeds and sum(speeds) / len(speeds) > CRAWL * usual:
        return None
    since = next((p.timestamp for p in reversed(points) if (p.finished or 0.0) > 0), window[0].timestamp)
    return Stall(since, timestamp, "livelock", limits.livelock, "livelock")


def preempts(window: Sequence[Point], at_least: float = 0.0) -> bool:
    """Are requests thrown out all through these looks?"""
    active = sum(1 for point in window if point.preempted > 0)
    return active >= max(2.0, len(window) / 3) and sum(point.preempted for point in window) >= max(10.0, at_least)


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
