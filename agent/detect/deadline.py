"""How long a busy server may go without progress before that silence is called a stall.

For a full stop no statistic on completions is quicker than a time-out: CUSUM degenerates to one, and the expected
delay is bounded below by about ``ln(gamma * rate) / rate`` for one false alarm in ``gamma`` seconds (Lorden 1971).
The only question is the time-out. It is learned from the server's own gaps between signs of progress, counted in
busy time at the resolution at which we look:

* the largest of n exchangeable gaps is exceeded by the next with probability 1/(n+1), whatever their law;
* past that, an exponential tail through it is assumed: scale = largest / ln(n + 1), and the deadline is the quantile
  that is passed once in ``gamma`` seconds of busy time;
* before there is enough history a fixed, cautious deadline holds.

``bench/detection.py`` measures the false-alarm rate and the delay of this rule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["GapHistory", "ProgressLimits"]

GAMMA: Final = 30 * 86_400.0
"""One false alarm in 30 days of busy time."""
_MIN_GAPS: Final = 12
_MAX_WEIGHT: Final = 20_000
_SAFETY: Final = 1.25
"""Gaps of a real engine are not independent; bench/detection.py says what this factor buys."""


@dataclass(frozen=True, slots=True)
class ProgressLimits:
    """Bounds on the deadlines, in seconds; all of them can be set per server in the configuration."""

    floor: float = 20.0
    """No stall is called sooner without a line that proves one: three looks at 5 s and some slack."""
    cold: float = 120.0
    """Deadline before there is history; sooner than any engine's own watchdog (300 s)."""
    ceiling: float = 300.0
    """A server that is used to long gaps is never given more than this."""
    with_evidence: float = 10.0
    """Deadline after a line that names the stall: two looks without progress."""
    silence: float = 300.0
    """A log whose last word was "0 tokens/s, work waiting", and no metrics: this much silence counts as a stall."""
    trickle: float = 300.0
    """Window in which nothing completes, the queue grows and tokens barely drip."""
    livelock: float = 120.0
    """Window in which requests are preempted again and again and nothing is delivered."""
    saturated_after: float = 60.0
    """A queue that has not been empty for this long is called saturated."""


class GapHistory:
    """Gaps between signs of progress, in whole seconds of busy time, as a histogram that forgets slowly."""

    __slots__ = ("_counts", "_total", "_weighted")

    def __init__(self) -> None:
        self._counts: dict[int, float] = {}
        self._total = 0.0
        self._weighted = 0.0

    def add(self, gap: float) -> None:
        """One gap of ``gap`` seconds came to its end."""
        second = min(600, max(0, math.ceil(gap - 1e-6)))
        self._counts[second] = self._counts.get(second, 0.0) + 1.0
        self._total += 1.0
        self._weighted += second
        if self._total > _MAX_WEIGHT:
            self._halve()

    def _halve(self) -> None:
        # A long gap is remembered for about ten days of busy time at 5 s looks, then it no longer sets the deadline.
        self._counts = {second: count / 2 for second, count in self._counts.items() if count >= 0.1}
        self._total = sum(self._counts.values())
        self._weighted = sum(second * count for second, count in self._counts.items())

    @property
    def count(self) -> float:
        return self._total

    @property
    def largest(self) -> float:
        return float(max(self._counts, default=0))

    def deadline(self, limits: ProgressLimits, interval: float) -> tuple[float, str]:
        """Seconds of busy time without progress that are called a stall, and what set them.

        ``interval`` is the time between two looks: a gap seen through it is known no finer.
        The second value is ``cold``, ``floor``, ``learned`` or ``ceiling``.
        """
        if self._total < _MIN_GAPS:
            return limits.cold, "cold"
        mean = max(self._weighted / self._total, 0.1)
        scale = max(self.largest, interval) / math.log(self._total + 1)
        learned = _SAFETY * scale * math.log(GAMMA / mean)
        # Never less than twice the worst gap ever seen: the tail below that is data, not assumption.
        learned = max(learned, 2 * self.largest + interval)
        if learned <= limits.floor:
            return limits.floor, "floor"
        if learned >= limits.ceiling:
            return limits.ceiling, "ceiling"
        return learned, "learned"

    def snapshot(self) -> dict[str, Any]:
        return {str(second): round(count, 3) for second, count in self._counts.items()}

    def restore(self, data: Mapping[str, Any]) -> None:
        self._counts = {int(second): float(count) for second, count in data.items()}
        self._total = sum(self._counts.values())
        self._weighted = sum(second * count for second, count in self._counts.items())
