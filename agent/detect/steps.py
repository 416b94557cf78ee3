"""The steps of a training run: work that nobody asks for and that is due all the time.

A server owes an answer only while a request waits; a run owes its next step until it says that it is done. Its log
tells of steps at a pace that depends on the model, so the silence that is called a stall is a multiple of the longest
pause the run itself has shown (validation, checkpoints), and never less than half an hour.
"""

from __future__ import annotations

from typing import ClassVar, Final

from agent.detect.state import Remembered

__all__ = ["Steps"]

FLOOR: Final = 1800.0
"""Seconds; longer than checkpoints and validations take, about the time-outs of collectives in training."""
PAUSES: Final = 5.0
"""So many times the longest pause seen between two reports."""


class Steps(Remembered):
    """When the run last reported a step, and when the next report is overdue. All times are event time."""

    __slots__ = ("last", "longest")
    _PLAIN: ClassVar = __slots__
    _TIMES: ClassVar = ("last",)

    def __init__(self) -> None:
        self.last: float | None = None
        self.longest = 0.0

    def report(self, timestamp: float) -> None:
        """The run told of a step, or of something else that it does."""
        if self.last is not None:
            self.longest = max(self.longest, timestamp - self.last)
        self.last = max(timestamp, self.last or timestamp)

    def forget(self) -> None:
        """The run has ended or begins anew."""
        self.last, self.longest = None, 0.0

    @property
    def patience(self) -> float:
        """Seconds without a report that are called a stall."""
        return max(FLOOR, PAUSES * self.longest)

    @property
    def overdue(self) -> float | None:
        """The event time at which the next report is overdue; None for what is no training run."""
        return None if self.last is None else self.last + self.patience
