"""Clocks that count seconds of work without result. They run only while they can see.

Time counts when both its ends were looked at, work was in flight at both, and nothing came of it. A hole in our sight
counts neither as work nor as result. Idle time holds the clock and does not turn it back: clients that give up on a
stalled server leave it idle between two of them.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from agent.detect.state import Remembered

__all__ = ["BusyClock", "DripClock", "Pace"]

_IDLE_FORGETS: Final = 600.0
"""Idle for so long, a server starts afresh."""
_POOL_GREW: Final = 0.005
"""Rise of KV use, as a share of the pool, that no handful of tokens explains: a prefill is under way."""


class Pace:
    """The usual time between two looks, and what counts as a hole in our sight."""

    __slots__ = ("_steps", "interval", "least_hole")

    def __init__(self, usual: float = 5.0, least_hole: float = 15.0) -> None:
        self._steps = [usual]
        self.interval = usual
        """Seconds between two looks: the median of the last nine."""
        self.least_hole = least_hole

    def follow(self, step: float) -> None:
        """Two looks were ``step`` seconds apart."""
        self._steps = [*self._steps, step][-9:]
        self._find_middle()

    def _find_middle(self) -> None:
        self.interval = sorted(self._steps)[len(self._steps) // 2]

    @property
    def hole(self) -> float:
        """Seconds between two looks past which we were blind in between."""
        return max(3 * self.interval, self.least_hole)

    def snapshot(self) -> list[float]:
        return self._steps

    def restore(self, data: Any) -> None:
        self._steps = [float(step) for step in data] or self._steps
        self._find_middle()


class BusyClock(Remembered):
    """Busy seconds since the last progress."""

    __slots__ = ("busy", "busy_since", "idle_since", "lowest", "seconds", "since")
    _PLAIN: ClassVar = __slots__
    _TIMES: ClassVar = ("busy_since", "since", "idle_since")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Nothing is in flight, nothing is owed."""
        self.busy = False
        self.seconds = 0.0
        self.lowest = 0.0
        """Fewest requests in flight since the last progress."""
        self.since: float | None = None
        """Since when work is owed: the last progress under load, or the moment work came in after it."""
        self.busy_since: float | None = None
        self.idle_since: float | None = None

    def look(self, timestamp: float, step: float, load: float, *, seen: bool, moved: bool) -> float | None:
        """``load`` requests are in flight ``step`` seconds after the last look. Returns the length of a busy gap
        between two signs of progress, when one ended here and was seen whole."""
        busy = load > 0
        gap = None
        if moved:
            gap = self.seconds + step if self.busy and seen else None
            self.done()
        elif busy and self.busy and seen:
            self.seconds += step
        if busy:
            if self.since is None:
                owed_before = self.busy and seen and not moved
                self.since, self.lowest = (timestamp - step if owed_before else timestamp), load
            if self.busy_since is None:
                self.busy_since = timestamp
            self.lowest = min(self.lowest, load)
            self.idle_since = None
        else:
            self.busy_since = None
            self.idle_since = timestamp if self.idle_since is None else self.idle_since
            if timestamp - self.idle_since > _IDLE_FORGETS:
                self.seconds, self.since = 0.0, None
        self.busy = busy
        return gap

    def done(self) -> None:
        """Work showed a result."""
        self.seconds = 0.0
        self.since = None


class DripClock(Remembered):
    """Seconds in which requests queue, none completes, and those that run crawl: the stall that drips tokens.

    A look at a decent speed, a completion, a queue that is empty or a pool that fills (a prefill) turns it back; so it
    is a CUSUM whose steps are so unequal that only runs of slow looks ever reach its threshold.
    """

    __slots__ = ("_pool", "_queue", "drops", "seconds", "since")
    _PLAIN: ClassVar = __slots__
    _TIMES: ClassVar = ("since",)

    def __init__(self) -> None:
        self.seconds = 0.0
        self.drops = 0
        """Looks of this stretch that showed a few tokens: where tokens are counted at the end of a request only, a
        stretch without completions shows none, and says nothing of speed."""
        self.since: float | None = None
        self._pool: float | None = None
        self._queue = 0.0

    def forget(self) -> None:
        """Start over."""
        self.seconds, self.drops, self.since, self._pool = 0.0, 0, None, None

    def look(
        self,
        timestamp: float,
        step: float,
        *,
        seen: bool,
        crawls: bool,
        tokens: float,
        waiting: float,
        aborted: float,
        pool: float | None,
    ) -> None:
        """``crawls``: nothing completed and the ``tokens`` of this look were next to none for each running request.
        ``aborted`` of the queue were given up since the last look."""
        filled = pool is not None and self._pool is not None and pool - self._pool > _POOL_GREW
        shrank = self.since is not None and waiting + aborted < self._queue
        if not crawls or waiting <= 0 or filled or shrank:
            self.forget()
            return
        if self.since is None:
            self.since, self._pool, self._queue = (timestamp - step if seen else timestamp), pool, waiting
        self._queue = min(self._queue, waiting)
        self.drops += tokens > 0
        if seen:
            self.seconds += step
