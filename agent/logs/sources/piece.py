"""What sources that are not files hand over, and the loop that keeps them going."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from agent.logs.batch import Notice, NoticeKind

__all__ = ["Deliver", "Piece", "Say", "Trouble", "keep_going"]


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole lines of one stream with the position to commit once they are processed."""

    key: str
    data: bytes
    position: Mapping[str, Any]


Deliver = Callable[[Piece], None]
Say = Callable[[Notice], None]

_PAUSES: Final = (1.0, 2.0, 5.0, 10.0, 30.0)


class Trouble:
    """Says once what keeps a source from being read, and once that it is over."""

    def __init__(self, name: str, say: Say) -> None:
        self.name = name
        self.reason = ""
        self._say = say

    def begins(self, kind: NoticeKind, reason: str) -> None:
        """Something is wrong; a reason that was said last is not said again."""
        if reason != self.reason:
            self.reason = reason
            self._say(Notice(kind, self.name, f"{self.name}: {reason}"))

    def ends(self) -> None:
        """It works."""
        if self.reason:
            self.reason = ""
            self._say(Notice("recovered", self.name, f"{self.name} is read"))


def keep_going(
    attempt: Callable[[], bool], stop: threading.Event, wait: Callable[[float], object] | None = None
) -> None:
    """Call ``attempt`` until ``stop``, with pauses that grow while it gives False (nothing came of it)."""
    failures = 0
    while not stop.is_set():
        failures = 0 if attempt() else failures + 1
        if not stop.is_set():
            (wait or stop.wait)(_PAUSES[min(max(failures - 1, 0), len(_PAUSES) - 1)])
