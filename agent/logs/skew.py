"""How far the clock that stamps a log is from ours, measured on lines that were read as they were written.

A line is read after it was written, sooner or later: buffers and readers only ever add to the difference. So the least
difference of many lines is the skew of the clocks and the smallest delay, which is far under a second.
"""

from __future__ import annotations

from collections import deque
from typing import Final

__all__ = ["LogClock"]

ALIKE: Final = 2.0
"""Seconds by which clocks may differ without anything being done: many logs stamp whole seconds."""
_LINES: Final = 5
_SPAN: Final = 30.0
"""Lines, and seconds between the first and the last of them, from which the least difference is believed."""
_WINDOW: Final = 900.0
_MOST: Final = 200


class LogClock:
    """The skew of one log."""

    def __init__(self) -> None:
        self.skew = 0.0
        """Seconds to add to a stamp of this log; 0 while the clocks agree, or too little is known."""
        self._seen: deque[tuple[float, float]] = deque(maxlen=_MOST)

    def see(self, stamp: float, now: float) -> bool:
        """A line stamped ``stamp`` was read at ``now``. True when :attr:`skew` is another one than before."""
        if self._seen and now < self._seen[-1][0]:
            self._seen.clear()  # our own clock was set
        self._seen.append((now, now - stamp))
        while self._seen[0][0] < now - _WINDOW:
            self._seen.popleft()
        if len(self._seen) < _LINES or now - self._seen[0][0] < _SPAN:
            return False
        least = min(off for _, off in self._seen)
        skew = least if abs(least) > ALIKE else 0.0
        if abs(skew - self.skew) <= ALIKE / 2 and (skew == 0.0) == (self.skew == 0.0):
            return False
        self.skew = skew
        return True
