"""Which file is this, and how far was it read? Answers that survive renames, copies and compression.

An inode names a file only while it exists, and copytruncate keeps the inode while it changes the content. So what was
read is named by its content too: a digest of its first bytes and of the last bytes before the position.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

__all__ = ["HEAD", "TAIL", "Position", "digest"]

HEAD: Final = 1024
"""Bytes from the start of a file that tell it from others."""
TAIL: Final = 256
"""Bytes before the position that tell whether the content is still what was read."""

MARKS: Final = 8
"""Earlier positions in the same file that are remembered."""

ReadAt = Callable[[int, int], bytes]
"""``read(offset, size)`` of a file's (decompressed) content; shorter at its end. Raises OSError."""


def digest(data: bytes) -> str:
    """Short digest of a piece of log; no part of the log can be told from it."""
    return hashlib.blake2b(data, digest_size=12).hexdigest()


@dataclass(frozen=True, slots=True)
class Position:
    """How far a file was read. JSON-able by :meth:`to_json`; times are nanoseconds of the file system.

    ``offset`` counts bytes of the content. ``head``/``head_size`` and ``tail`` name the content read so far (empty
    when nothing was), ``marks`` name earlier stretches of it: (offset, tail). ``path`` is where the file was when it
    was read, links resolved.
    """

    path: str
    device: int
    inode: int
    offset: int = 0
    head: str = ""
    head_size: int = 0
    tail: str = ""
    modified: int = 0
    marks: tuple[tuple[int, str], ...] = ()

    def same_inode(self, device: int, inode: int) -> bool:
        """Whether that is the file's inode (which may be reused by another file)."""
        return (self.device, self.inode) == (device, inode)

    def relation(self, read: ReadAt) -> Literal["whole", "part", ""]:
        """What a content is to what was read: it begins with all of it, it is an earlier copy of it, or neither.

        A copy is shorter than what was read when more was written, and read, between the copying and the truncation.
        """
        if not self.offset:
            return ""
        start = read(0, self.head_size)
        if len(start) == self.head_size and digest(start) != self.head:
            return ""
        if _tail(read, self.offset) == self.tail:
            return "whole"
        for offset, tail in reversed(self.marks):
            # A few first bytes are those of many a file: then it must be all there is.
            if _tail(read, offset) == tail and (offset >= TAIL or not read(offset, 1)):
                return "part"
        return ""

    def advanced(self, read: ReadAt, offset: int, modified: int) -> Position:
        """The position after the bytes up to ``offset`` were read."""
        head, head_size = self.head, self.head_size
        if head_size < HEAD and offset > head_size:
            start = read(0, min(offset, HEAD))
            head, head_size = digest(start), len(start)
        marks = self.marks
        if self.offset and offset != self.offset:
            marks = (*marks, (self.offset, self.tail))[-MARKS:]
        tail = _tail(read, offset)
        return Position(self.path, self.device, self.inode, offset, head, head_size, tail, modified, marks)

    def moved(self, path: str, device: int, inode: int) -> Position:
        """The same stretch of content, in another file."""
        return replace(self, path=path, device=device, inode=inode)

    def to_json(self) -> dict[str, Any]:
        """All fields as JSON-able values."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Position:
        """Inverse of :meth:`to_json`. Raises KeyError or TypeError for what is no position."""
        values = {name: data[name] for name in cls.__slots__}
        values["marks"] = tuple((int(offset), str(tail)) for offset, tail in data["marks"])
        return cls(**values)


def _tail(read: ReadAt, offset: int) -> str:
    size = min(offset, TAIL)
    return digest(read(offset - size, size)) if size else ""
