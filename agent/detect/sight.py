"""Do we see the signals? Blindness is never read as health, and never as a stall."""

from __future__ import annotations

from typing import ClassVar, Final

from agent.detect.busy import Pace
from agent.detect.state import Remembered

__all__ = ["Sight"]

_FROZEN: Final = 3
"""Copies in a row of one page that are called a frozen exporter."""
_LINES_FRESH: Final = 90.0
"""Seconds for which an engine's last stats line still speaks of now."""


class Sight(Remembered):
    """When each source was last seen, and why it no longer is."""

    __slots__ = ("failed_since", "failure", "last_metrics", "last_stats", "lines", "metrics")
    _PLAIN: ClassVar = ("failed_since", "failure", "last_metrics", "last_stats")
    _TIMES: ClassVar = ("failed_since", "last_metrics", "last_stats")

    def __init__(self) -> None:
        self.last_metrics: float | None = None
        self.last_stats: float | None = None
        self.failed_since: float | None = None
        self.failure = ""
        self.metrics = Pace()
        self.lines = Pace(10.0, least_hole=60.0)

    def fail(self, timestamp: float, why: str) -> None:
        """A look at the page failed, or showed nothing that can be trusted."""
        if self.failed_since is None:
            self.failed_since = timestamp
        self.failure = why

    def repeat(self, timestamp: float, repeats: int) -> None:
        """The page is a copy of the one before it, byte for byte."""
        if repeats >= _FROZEN:
            times = f"{repeats + 1} times in a row"
            self.fail(timestamp, f"frozen: the same page {times}, an exporter or a cache in between stands still")

    def see(self, timestamp: float) -> tuple[float, bool]:
        """The page was read. Returns the seconds since it was read before, and whether nothing was missed between."""
        step = timestamp - self.last_metrics if self.last_metrics is not None else 0.0
        if step > 0 and self.failed_since is None:
            self.metrics.follow(step)
        self.failed_since, self.failure, self.last_metrics = None, "", timestamp
        return step, 0 < step <= self.metrics.hole

    def fresh(self, timestamp: float) -> bool:
        """Is the page the truth at ``timestamp``?"""
        if self.last_metrics is None:
            return False
        return timestamp - self.last_metrics <= self.freshness

    @property
    def freshness(self) -> float:
        """Seconds for which a page is the truth."""
        return max(4 * self.metrics.interval, 20.0)

    def sees(self, timestamp: float) -> bool:
        """Does any source speak of ``timestamp``?"""
        if self.fresh(timestamp):
            return True
        return self.last_stats is not None and timestamp - self.last_stats <= _LINES_FRESH

    def snapshot(self) -> dict[str, object]:
        return {**super().snapshot(), "metrics": self.metrics.snapshot(), "lines": self.lines.snapshot()}

    def restore(self, data: dict[str, object]) -> None:  # type: ignore[override]  # narrower on purpose
        super().restore(data)
        self.metrics.restore(data.get("metrics", ()))
        self.lines.restore(data.get("lines", ()))
