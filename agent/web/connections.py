"""Which connections are open and until when: the bound on what strangers can make us hold.

The standard library's server gives every connection a thread and waits for its client for as long as the client
likes. Here a connection has a deadline in each phase (a per-read time-out alone is defeated by a client that sends a
byte a second), and the number is bounded: a newcomer takes the place of the connection that has idled longest.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["LIMITS", "Connections", "Phase"]

Phase = Literal["idle", "reading", "answering", "streaming"]

LIMITS: Final[dict[Phase, float]] = {
    "idle": 30.0,  # between requests, and from the first byte of a request to the end of its first line
    "reading": 10.0,  # headers and body
    "answering": 60.0,  # a tar of evidence over a slow line
    "streaming": float("inf"),  # events: each write has the socket's own time-out
}
"""Seconds that a connection may stay in a phase."""


@dataclass(slots=True)
class _Entry:
    phase: Phase
    since: float


class Connections:
    """The open connections. ``clock`` is monotonic."""

    def __init__(self, maximum: int, clock: Callable[[], float]) -> None:
        self._maximum = maximum
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: dict[socket.socket, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def admit(self, sock: socket.socket) -> bool:
        """Takes a new connection in, if need be in place of the one that has idled longest; False: all are busy."""
        with self._lock:
            if len(self._entries) >= self._maximum:
                idle = [(entry.since, key) for key, entry in self._entries.items() if entry.phase == "idle"]
                if not idle:
                    return False
                _, oldest = min(idle, key=lambda pair: pair[0])
                del self._entries[oldest]
                _shut(oldest)
            self._entries[sock] = _Entry("idle", self._clock())
            return True

    def replace(self, old: socket.socket, new: socket.socket) -> None:
        """``new`` is ``old`` with TLS on top."""
        with self._lock:
            entry = self._entries.pop(old, None)
            if entry is not None:
                self._entries[new] = entry

    def enter(self, sock: socket.socket, phase: Phase) -> None:
        with self._lock:
            if sock in self._entries:
                self._entries[sock] = _Entry(phase, self._clock())

    def drop(self, sock: socket.socket) -> None:
        with self._lock:
            self._entries.pop(sock, None)

    def reap(self) -> int:
        """Shuts those past their deadline; their threads then end. Returns how many."""
        now = self._clock()
        with self._lock:
            late = [key for key, entry in self._entries.items() if now - entry.since > LIMITS[entry.phase]]
            for sock in late:
                del self._entries[sock]
        for sock in late:
            _shut(sock)
        return len(late)

    def shut_all(self) -> None:
        with self._lock:
            socks = list(self._entries)
            self._entries.clear()
        for sock in socks:
            _shut(sock)


def _shut(sock: socket.socket) -> None:
    # The base class's method: that of an SSLSocket takes the TLS state away under the feet of the thread that reads.
    with contextlib.suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
