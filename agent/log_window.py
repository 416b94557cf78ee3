"""The lines around an onset, found in a log of any size by the log's own stamps.

A log is sorted by time but for seconds, so that a handful of looks at 64 KiB each finds a moment in gigabytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import UTC, tzinfo
from typing import BinaryIO, Final

from agent.capture import Target
from agent.logs.engine import LogEngine
from agent.logs.timestamps import YearReference
from agent.rules.model import Dialect

__all__ = ["Clock", "around", "stamp_clock"]

Clock = Callable[[bytes], float | None]
"""Gives the event time (Unix seconds) of the first stamped line in whole lines, None when no line is stamped."""

_LOOK: Final = 64 << 10
"""Bytes of one look."""
_FAR: Final = 256 << 10
"""Bytes without a stamp after which nobody looks on."""
_NEAR: Final = 8 << 10
"""Bytes by which a place may lie before the moment that was looked for."""


def around(path: str, onset: float, window: float, clock: Clock) -> Callable[[int], bytes]:
    """What gives the lines of ``window`` seconds before and after ``onset``, for :attr:`Target.logs`.

    Where they are more than the bytes that may be read, those nearest to the onset come, at least as many before it as
    after it. A ``window`` of 0, stamps that nobody can read and a log that does not reach the onset give its end.
    """

    def read(size: int) -> bytes:
        if window <= 0:
            return Target.tail_of(path)(size)
        with open(path, "rb") as handle:
            length = handle.seek(0, os.SEEK_END)
            if length <= size:
                begin, end = 0, length
            else:
                first = _place(handle, length, onset - window, clock)
                if first is None:
                    return Target.tail_of(path)(size)
                middle = _place(handle, length, onset, clock) or first
                last = _place(handle, length, onset + window, clock) or length
                last = min(length, last + 2 * _NEAR) if last < length - _NEAR else length
                begin = max(first, min(middle - size // 2, last - size))
                end = min(last, begin + size)
            handle.seek(begin)
            data = handle.read(end - begin)
        if begin:
            data = data[data.find(b"\n") + 1 :]
        whole = data if end == length else data[: data.rfind(b"\n") + 1]
        return whole or Target.tail_of(path)(size)  # a line that is longer than what may be read

    return read


def _place(handle: BinaryIO, length: int, moment: float, clock: Clock) -> int | None:
    """Where the lines of ``moment`` begin, or at most ``_NEAR`` bytes before; None when no stamp tells."""
    low, high, stamped = 0, length, False
    while high - low > _NEAR:
        middle = (low + high) // 2
        time = _time_after(handle, middle, high, clock)
        stamped = stamped or time is not None
        if time is None and high - middle > _FAR:
            return None
        if time is not None and time < moment:
            low = middle
        else:
            high = middle
    return low if stamped else None


def _time_after(handle: BinaryIO, place: int, end: int, clock: Clock) -> float | None:
    """The first stamp after ``place``, before ``end`` and within ``_FAR``."""
    for begin in range(place, min(end, place + _FAR), _LOOK):
        handle.seek(begin)
        data = handle.read(_LOOK)
        if begin:
            data = data[data.find(b"\n") + 1 :]
        time = clock(data[: data.rfind(b"\n") + 1])
        if time is not None:
            return time
    return None


def stamp_clock(
    dialects: Mapping[str, Dialect], *, engine: str = "auto", envelope: str = "auto", timezone: tzinfo = UTC
) -> Clock:
    """A clock for logs of that engine; ``timezone`` is that of stamps which name none."""
    made = LogEngine([], dialects, year_reference=YearReference())

    def clock(lines: bytes) -> float | None:
        stream = made.stream(server="", file="", engine=engine, envelope=envelope, timezone=timezone)
        stream.feed(lines[: 16 << 10])
        if stream.first_timestamp is None:
            stream.feed(lines[16 << 10 :])
        return stream.first_timestamp

    return clock
