"""How long to wait now: the learned deadline, and the reasons to wait longer than it."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from agent.detect.deadline import GapHistory, ProgressLimits
from agent.detect.stall import Point
from agent.detect.state import Remembered

__all__ = ["Patience"]

_SLOW_PREFILL: Final = 3000.0
"""Prompt tokens a second that are assumed until more was seen."""
_PREFILL_SLACK: Final = 3.0
"""Prefill slows down with the length of the context."""
_RATE_FADES: Final = 0.999
_SETTLED: Final = 200.0
"""Gaps after which a process is like its predecessors: a busy quarter of an hour at 5 s looks."""
_TURNING: Final = 2.0
"""Floors that a young process is given while its loop turns and schedules nothing."""


class Patience(Remembered):
    """The deadline of one engine: all it ever showed, what this process showed, and what it is doing."""

    __slots__ = ("_forgiven", "_queue_lives", "early", "history", "prefill_rate")
    _PLAIN: ClassVar = ("_forgiven", "_queue_lives", "prefill_rate")

    def __init__(self) -> None:
        self.history = GapHistory()
        """Gaps over the whole life of the server, restarts included."""
        self.early = GapHistory()
        """Gaps of the present process: what it compiles on its first requests no earlier process foretells."""
        self.prefill_rate = 0.0
        """Prompt tokens a second, the most seen lately."""
        self._forgiven: float | None = None
        self._queue_lives = False

    def learn(self, gap: float, load: float, *, turned: bool = False) -> None:
        """A busy gap ended with progress. ``turned``: its queue was seen to grow meanwhile, so that proves nothing here
        (some front ends count the queue themselves)."""
        self._queue_lives |= turned
        self.history.add(gap, load)
        self.early.add(gap, load)

    def forgive(self, gap: float, load: float, limits: ProgressLimits) -> None:
        """What was called a stall ended by itself: nobody restarted the server and no client gave up. Twice is a habit
        of this server (an update of its weights, say) and is learned, but for no more than a quarter of ``cold``: the
        deadline then comes to about ``cold``, and a stall that is longer is called however often it comes."""
        gap = min(gap, limits.cold / 4)
        if self._forgiven is None:
            self._forgiven = gap
            return
        self.learn(self._forgiven, load)
        self.learn(gap, load)

    def restarted(self) -> None:
        """A new process."""
        self.early = GapHistory()

    def look(self, point: Point) -> None:
        """A look with progress."""
        if point.prompted and point.step > 0:
            self.prefill_rate = max(self.prefill_rate * _RATE_FADES, point.prompted / point.step)

    def deadline(
        self,
        limits: ProgressLimits,
        interval: float,
        load: float,
        *,
        budget: float = 0.0,
        turns: bool = False,
        waking: bool = False,
        transfer: bool = False,
        vanished: bool = False,
    ) -> tuple[float, str]:
        """Busy seconds without progress that are called a stall now, and what set them.

        ``budget``: tokens that one step may hold, 0 if unknown. ``turns``: the loop demonstrably goes round.
        ``waking``: it slept, and nothing has moved since.
        ``transfer``: all that is in flight waits for something else than capacity. ``vanished``: signs of progress are
        gone from the page.
        """
        known = self.history.deadline(limits, interval, load)
        early = self.early.deadline(limits, interval) if self.early.count < _SETTLED else known
        if turns and not self._queue_lives and early[0] > _TURNING * limits.floor:
            early = _TURNING * limits.floor, "turning"  # what turns does not compile
        older = self.history.count > self.early.count
        best = max(known, early, key=lambda found: found[0]) if older else early
        # An engine that does not cut prompts up shows nothing while one step prefills a long one.
        prefill = min(limits.cold, _PREFILL_SLACK * budget / max(_SLOW_PREFILL, self.prefill_rate))
        if prefill > best[0]:
            best = prefill, "prefill"
        if waking and limits.ceiling > best[0]:
            best = limits.ceiling, "waking"
        if transfer and limits.cold > best[0]:
            best = limits.cold, "transfer"
        if vanished and limits.ceiling > best[0]:
            best = limits.ceiling, "vanished"
        return best

    def snapshot(self) -> dict[str, Any]:
        return {**super().snapshot(), "history": self.history.snapshot(), "early": self.early.snapshot()}

    def restore(self, data: Any) -> None:
        super().restore(data)
        self.history.restore(data.get("history", {}))
        self.early.restore(data.get("early", {}))
