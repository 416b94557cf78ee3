"""Bytes as they come, cut into blocks of whole lines; memory is bounded whatever comes."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any, Final

__all__ = ["BLOCK", "MAX_LINE", "Framer"]

BLOCK: Final = 256 << 10
"""Bytes handed on at once: large enough to amortise a call, small enough to stay in the processor's cache."""
MAX_LINE: Final = 1 << 20
"""A longer line is cut here, and counted."""


class Framer:
    """Keeps the half-written last line. ``cut_lines`` counts the lines that were longer than MAX_LINE."""

    def __init__(self) -> None:
        self.cut_lines = 0
        self._pending = bytearray()
        self._cut = False

    @property
    def is_open(self) -> bool:
        """Whether a line has begun and not ended."""
        return bool(self._pending or self._cut)

    def blocks(self, data: bytes | bytearray | memoryview) -> Iterator[bytes]:
        """Whole lines, each ending in a newline, in blocks of at most BLOCK bytes or one line."""
        view = memoryview(data)
        for start in range(0, len(view), BLOCK):
            chunk = view[start : start + BLOCK]
            end = _after_last_newline(chunk)
            begin = 0
            if end and self.is_open:
                begin = _after_first_newline(chunk)
                self._keep(chunk[:begin])
                yield self._take()
            if begin < end:
                yield bytes(chunk[begin:end])
            if end < len(chunk):
                self._keep(chunk[end:])

    def rest(self) -> bytes:
        """The half-written line as if it ended here; empty when there is none."""
        if not self.is_open:
            return b""
        return self._take()

    def _keep(self, piece: memoryview) -> None:
        room = MAX_LINE - len(self._pending)
        ends = piece[-1] == 10
        self._cut = self._cut or len(piece) - ends > room
        self._pending += piece[: room + ends]

    def _take(self) -> bytes:
        line = bytes(self._pending).removesuffix(b"\n")
        self._pending.clear()
        if self._cut:
            line = line[:MAX_LINE]
            self.cut_lines += 1
            self._cut = False
        return line + b"\n"

    def snapshot(self) -> dict[str, Any]:
        """The half-written line and the count, as JSON-able values."""
        return {"pending": base64.b64encode(self._pending).decode(), "cut": self._cut, "cut_lines": self.cut_lines}

    def restore(self, data: Mapping[str, Any]) -> None:
        """Inverse of :meth:`snapshot`."""
        self._pending = bytearray(base64.b64decode(data["pending"]))
        self._cut, self.cut_lines = data["cut"], data["cut_lines"]


def _after_last_newline(chunk: memoryview) -> int:
    for size in (4096, len(chunk)):
        start = max(0, len(chunk) - size)
        found = bytes(chunk[start:]).rfind(b"\n")
        if found >= 0:
            return start + found + 1
    return 0


def _after_first_newline(chunk: memoryview) -> int:
    found = bytes(chunk[:4096]).find(b"\n")
    return (found if found >= 0 else bytes(chunk).find(b"\n")) + 1
