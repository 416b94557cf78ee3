"""How long to wait now: the learned deadline, and the reasons to wait longer than it."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from agent.detect.deadline import GapHistory, ProgressLimits
from agent.detect.stall import Point
from agent.detect.state import Remembered

__all__ = ["Patience"]

_SLOWEST_PREFILL: Final = 1000.0
"""Prompt tokens a second that are assumed until more was seen."""
_UNKNOWN_POOL: Final = 200_000.0
"""Tokens of a KV pool whose size nobody told."""
_PREFILL_SLACK: Final = 3.0
"""Prefill slows down with the length of the context."""
_RATE_FADES: Final = 0.999


class Patience(Remembered):
    """The deadline of one engine: all it ever showed, what this process showed, and what it is doing."""

    __slots__ = ("_admitted", "_forgiven", "early", "history", "prefill_rate")
    _PLAIN: ClassVar = ("_admitted", "_forgiven", "prefill_rate")

    def __init__(self) -> None:
        self.history = GapHistory()
        """Gaps over the whole life of the server, restarts included."""
        self.early = GapHistory()
        """Gaps of the present process: what it compiles on its first requests no earlier process foretells."""
        self.prefill_rate = 0.0
        self._admitted = 0.0
        self._forgiven: float | None = None

    def learn(self, gap: float, load: float) -> None:
        """A busy gap ended with progress."""
        self.history.add(gap, load)
        self.early.add(gap, load)

    def forgive(self, gap: float, load: float, limits: ProgressLimits) -> None:
        """What was called a stall ended by itself: nobody restarted the server and no client gave up. Twice is a habit
        of this server (an update of its weights, say) and is learned, up to half of ``cold``, so that a real stall is
        never taken for a habit of more than ``cold`` and one look."""
        gap = min(gap, limits.cold / 2)
        if self._forgiven is None:
            self._forgiven = gap
            return
        self.learn(self._forgiven, load)
        self.learn(gap, load)

    def restarted(self) -> None:
        """A new process."""
        self.early = GapHistory()
        self._admitted = 0.0

    def look(self, point: Point, kv_rise: float, pool: float | None) -> None:
        """A look with progress; ``kv_rise`` is the share of the pool (of ``pool`` tokens) taken since the last one."""
        self._admitted = max(0.0, kv_rise) * (pool or _UNKNOWN_POOL)
        if point.prompted and point.step > 0:
            self.prefill_rate = max(self.prefill_rate * _RATE_FADES, point.prompted / point.step)

    def deadline(
        self, limits: ProgressLimits, interval: float, load: float, *, transfer: bool, vanished: bool
    ) -> tuple[float, str]:
        """Busy seconds without progress that are called a stall now, and what set them. ``transfer``: all that is in
        flight waits for something else than capacity. ``vanished``: signs of progress are gone from the page."""
        known = self.history.deadline(limits, interval, load)
        early = self.early.deadline(limits, interval)
        best = max(known, early, key=lambda found: found[0]) if self.history.count else early
        # An engine that prefills a prompt in one step shows the pool taken, then nothing until the first token.
        rate = max(_SLOWEST_PREFILL, self.prefill_rate)
        prefill = min(limits.ceiling, _PREFILL_SLACK * self._admitted / rate)
        if prefill > best[0]:
            best = prefill, "prefill"
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
