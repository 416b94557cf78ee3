"""How long a busy server may go without progress before that silence is called a stall.

For a full stop no statistic on completions is quicker than a time-out: CUSUM degenerates to one, and the expected
delay is bounded below by about ``ln(gamma * rate) / rate`` for one false alarm in ``gamma`` seconds (Lorden 1971,
https://doi.org/10.1214/aoms/1177693055). The only question is the time-out. It is learned from the server's own gaps
between signs of progress, counted in busy time at the resolution at which we look:

* the largest of n exchangeable gaps is exceeded by the next with probability 1/(n+1), whatever their law;
* past that, an exponential tail is assumed with the scale that the largest gap tells, ``largest / ln(n + 1)``; the
  deadline is the quantile of it that is passed once in ``gamma`` seconds of busy time, and half as much again;
* never under twice the largest gap and one look: that much is data, not assumption;
* before the first gap there is nothing to learn from and a fixed, cautious deadline holds.

Gaps depend on load where an engine counts completions only, so they are kept by load level; the deadline of a level
rests on that level and the busier ones. The mathematics: docs/how-it-works.md. The false-alarm rate and the delay of
this rule are measured by ``python -m bench.detection``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["GapHistory", "ProgressLimits"]

GAMMA: Final = 30 * 86_400.0
"""One false alarm in 30 days of busy time, where the gaps obey the assumption."""
_SAFETY: Final = 1.5
"""Gaps of a real engine are not independent; bench/detection.py says what this factor buys."""
_MOST: Final = 200_000.0
"""Gaps that a level holds before it forgets half: a single long gap is remembered for 20 busy days at 5 s looks."""
_FORGOTTEN: Final = 0.1
_ENOUGH: Final = 200.0
"""Gaps that a load level needs before it speaks for itself."""
_LONGEST: Final = 600
_TOP_LEVEL: Final = 12


@dataclass(frozen=True, slots=True)
class ProgressLimits:
    """Bounds on the deadlines, in seconds; all of them can be set per server in the configuration."""

    floor: float = 25.0
    """No stall is called sooner without a line that proves one: five looks at 5 s with nothing in any of them."""
    cold: float = 120.0
    """Deadline before there is history; sooner than any engine's own watchdog (300 s)."""
    ceiling: float = 300.0
    """A server that is used to long gaps is never given more than this."""
    with_evidence: float = 10.0
    """Deadline after a line that names the stall: two looks without progress."""
    silence: float = 300.0
    """A log whose last word was "0 tokens/s, work waiting", and no metrics: this much silence counts as a stall."""
    trickle: float = 90.0
    """So long nothing completes, the queue does not shrink and each running request crawls: stalled."""
    livelock: float = 120.0
    """Window in which requests are preempted again and again and nothing is delivered."""
    saturated_after: float = 60.0
    """A queue that has not been empty for this long is called saturated."""


class _Gaps:
    """A histogram of gaps in whole seconds that forgets slowly."""

    __slots__ = ("counts", "total", "weighted")

    def __init__(self, counts: Mapping[int, float] | None = None) -> None:
        self.counts = dict(counts or {})
        self.total = sum(self.counts.values())
        self.weighted = sum(second * count for second, count in self.counts.items())

    def add(self, second: int, count: float = 1.0) -> None:
        self.counts[second] = self.counts.get(second, 0.0) + count
        self.total += count
        self.weighted += second * count
        if self.total > _MOST:
            halved = {s: c / 2 for s, c in self.counts.items() if c / 2 >= _FORGOTTEN}
            self.__init__(halved)  # type: ignore[misc]  # starts over with what is left


class GapHistory:
    """Gaps between signs of progress, in seconds of busy time, by the load they came under."""

    __slots__ = ("_levels",)

    def __init__(self) -> None:
        self._levels: dict[int, _Gaps] = {}

    def add(self, gap: float, load: float = 1.0) -> None:
        """A gap of ``gap`` seconds came to its end; ``load`` is the least that was in flight during it."""
        second = min(_LONGEST, max(0, math.ceil(gap - 1e-6)))
        self._levels.setdefault(_level(load), _Gaps()).add(second)

    @property
    def count(self) -> float:
        """Gaps that are remembered."""
        return sum(gaps.total for gaps in self._levels.values())

    @property
    def largest(self) -> float:
        """The longest gap that is remembered, in seconds."""
        return float(max((second for gaps in self._levels.values() for second in gaps.counts), default=0))

    def deadline(self, limits: ProgressLimits, interval: float, load: float | None = None) -> tuple[float, str]:
        """Seconds of busy time without progress that are called a stall, and what set them.

        ``interval`` is the time between two looks: a gap seen through it is known no finer. ``load`` is the least that
        was in flight since the last progress; without it all levels count. The second value is ``cold`` (no gap seen
        yet), ``floor``, ``learned`` or ``ceiling``.
        """
        total, weighted, largest = _sums(self._chosen(load))
        if total < 1:
            return limits.cold, "cold"
        mean = max(weighted / total, 0.1)
        largest = max(largest, interval)
        learned = _SAFETY * largest / math.log(total + 1) * math.log(GAMMA / mean)
        learned = max(learned, 2 * largest + interval)
        if largest <= 1.5 * interval:
            # Every look so far showed progress: a rough eye makes a young process no slower than that.
            learned = min(learned, max(limits.cold, 3 * interval))
        if learned <= limits.floor:
            return limits.floor, "floor"
        if learned >= limits.ceiling:
            return limits.ceiling, "ceiling"
        return learned, "learned"

    def _chosen(self, load: float | None) -> list[_Gaps]:
        """The levels that speak for ``load``: its own and the busier ones, then the next below until that is enough."""
        if load is None:
            return list(self._levels.values())
        own = _level(load)
        chosen = [gaps for level, gaps in self._levels.items() if level >= own]
        for level in sorted((level for level in self._levels if level < own), reverse=True):
            if sum(gaps.total for gaps in chosen) >= _ENOUGH:
                break
            chosen.append(self._levels[level])
        return chosen

    def snapshot(self) -> dict[str, Any]:
        """The counts as plain JSON: load level -> whole seconds -> how many."""
        return {str(k): {str(s): c for s, c in gaps.counts.items()} for k, gaps in self._levels.items()}

    def restore(self, data: Mapping[str, Any]) -> None:
        """Inverse of :meth:`snapshot`."""
        self._levels = {int(k): _Gaps({int(s): float(c) for s, c in counts.items()}) for k, counts in data.items()}


def _level(load: float) -> int:
    """Load levels double: 1, 2-3, 4-7, 8-15, ..."""
    return min(_TOP_LEVEL, max(1, int(load)).bit_length() - 1)


def _sums(chosen: Iterable[_Gaps]) -> tuple[float, float, float]:
    total = weighted = largest = 0.0
    for gaps in chosen:
        total += gaps.total
        weighted += gaps.weighted
        largest = max(largest, max(gaps.counts, default=0))
    return total, weighted, largest
