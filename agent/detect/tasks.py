"""Requests of an engine that tells of each when it takes it up and when it is done, and of nothing in between.

llama.cpp is one, and its metrics page hangs together with its loop. A task that was begun and of which nothing more is
heard is silence that somebody waits in. How long that may be depends: right after the first line others follow within
the time of one batch, where this build prints them; a long answer may be written without a word.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from agent.detect.state import Remembered

__all__ = ["Tasks"]

FLOOR: Final = 1800.0
"""Seconds without a word while an answer is written: 18,000 tokens at ten a second."""
PAUSES: Final = 5.0
"""So many times the longest pause between two lines."""
_MOST: Final = 1024


class Tasks(Remembered):
    """Tasks in work, as the log's lines tell. All times are event time."""

    __slots__ = ("_begun", "_follows", "_newest", "last", "longest")
    _PLAIN: ClassVar = __slots__
    _TIMES: ClassVar = ("last",)

    def __init__(self) -> None:
        self._begun: list[str] = []
        self._newest = False
        """The last line was the first one of a task."""
        self._follows = False
        """This build says something soon after the first line of a task."""
        self.last: float | None = None
        self.longest = 0.0

    def begin(self, task: str, timestamp: float) -> None:
        """A task was taken up."""
        self._note(timestamp)
        if task not in self._begun:
            self._begun = [*self._begun, task][-_MOST:]
        self._newest = True

    def end(self, task: str, timestamp: float) -> None:
        """A task is done, or its client went away. Without a name all are."""
        self._note(timestamp)
        self._begun = [other for other in self._begun if task and other != task]

    def hear(self, timestamp: float) -> None:
        """The engine says something of a task between its begin and its end."""
        self._follows |= self._newest
        self._note(timestamp)

    def _note(self, timestamp: float) -> None:
        if self.last is not None and self._begun:
            self.longest = max(self.longest, timestamp - self.last)
        self._newest = False
        self.last = max(timestamp, self.last or timestamp)

    def forget(self) -> None:
        """The process is gone, and its tasks with it."""
        self._begun, self._newest = [], False

    def patience(self, soon: float) -> float:
        """Seconds without a word that are called a stall. ``soon``: right after the first line of a task."""
        if self._newest and self._follows:
            return max(soon, PAUSES * min(self.longest, soon))
        return max(FLOOR, PAUSES * self.longest)

    def overdue(self, soon: float) -> float | None:
        """The event time at which the next word is overdue; None while no task is in work."""
        return None if self.last is None or not self._begun else self.last + self.patience(soon)

    def restore(self, data: Any) -> None:
        """Inverse of :meth:`snapshot`; of an older release there is nothing."""
        super().restore(data or {})
