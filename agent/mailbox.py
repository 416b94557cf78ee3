"""The one queue between the edges and the core: bounded in bytes, and safe to wake from a signal handler."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

__all__ = ["Mailbox"]

_T = TypeVar("_T")

LIMIT: Final = 4 << 20
"""Bytes that may wait. A source that outruns the core waits itself; its bytes stay where they are."""
LONGEST: Final = 4096
"""Items that may wait, however small."""


class Mailbox(Generic[_T]):
    """Many threads put, one takes. ``limit`` is in bytes; one item always fits, however large it is."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        # Its put is reentrant, so a signal handler may call it: https://docs.python.org/3/library/queue.html
        self._items: queue.SimpleQueue[tuple[_T, int] | None] = queue.SimpleQueue()
        self._room = threading.Condition()
        self._bytes = 0
        self._count = 0

    def put(self, item: _T, size: int, given_up: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait for room and put. False when ``given_up`` (asked a few times a second) or the time is up."""
        with self._room:
            waited = 0.0
            while self._count and (self._bytes + size > self._limit or self._count >= LONGEST):
                if given_up() or (timeout is not None and waited >= timeout):
                    return False
                self._room.wait(0.25)
                waited += 0.25
            if given_up():
                return False
            self._bytes += size
            self._count += 1
            self._items.put((item, size))
        return True

    def take(self, timeout: float) -> _T | None:
        """The next item; None when there is none by then, or somebody woke us up."""
        try:
            got = self._items.get(timeout=timeout) if timeout > 0 else self._items.get_nowait()
            while got is None and timeout <= 0:
                got = self._items.get_nowait()
        except queue.Empty:
            return None
        if got is None:
            return None
        item, size = got
        with self._room:
            self._bytes -= size
            self._count -= 1
            self._room.notify_all()
        return item

    def wake(self) -> None:
        """End a wait in :meth:`take`. Takes no lock."""
        self._items.put(None)

    @property
    def waiting(self) -> int:
        """Bytes that wait."""
        return self._bytes
