"""A file while it is read: its content, how far it was read, and whether that is still what it holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from agent.logs.identity import TAIL, Position
from agent.logs.rotation import Content

__all__ = ["CHUNK", "OpenFile"]

CHUNK: Final = 256 << 10
"""Bytes read at once."""
COUNT_LIMIT: Final = 256 << 20
"""Lines before the start are counted in files up to this size."""


@dataclass(slots=True)
class OpenFile:
    """A file being read. ``tail`` holds the last bytes before the position, ``changed_at`` when it last grew.

    ``fresh``: nothing of it was handed over yet. ``is_copy``: the log was copied to it.
    """

    content: Content
    position: Position
    tail: bytes = b""
    changed_at: float = 0.0
    fresh: bool = True
    is_copy: bool = False

    @property
    def is_linked(self) -> bool:
        """Whether the file has a name."""
        status = self.content.status()
        return status is None or status.st_nlink > 0

    @property
    def grows(self) -> bool:
        """Whether somebody may still write to it: neither a compressed file nor a copy is written to."""
        return not self.is_copy and self.content.status() is not None

    def resume(self, position: Position) -> OpenFile:
        """Itself, moved to where this content was read to."""
        size = min(position.offset, TAIL)
        self.tail = self.content.read(position.offset - size, size)
        self.position = position.moved(self.position.path, self.position.device, self.position.inode)
        self.fresh = position.offset == 0
        return self

    def close(self) -> None:
        """Let the file go."""
        self.content.close()

    def read(self, now: float, *, whole_lines: bool = False) -> bytes | None:
        """The next bytes; empty at the end; None when what was read is no longer there. Raises OSError."""
        position, content = self.position, self.content
        status = content.status()
        modified = position.modified
        if status is not None:
            modified = status.st_mtime_ns
            if status.st_size < position.offset:
                return None
            if status.st_size == position.offset and (modified == position.modified or not position.offset):
                return b""
        kept = len(self.tail)
        raw = content.read(position.offset - kept, kept + CHUNK)
        if raw[:kept] != self.tail:
            return None
        if whole_lines:
            raw = raw[: max(kept, raw.rfind(b"\n") + 1)]
        data = raw[kept:]
        if data:
            self.tail = raw[-TAIL:]
            self.changed_at = now
        if data or modified != position.modified:
            self.position = position.advanced(content.read, position.offset + len(data), modified)
        return data

    def skip_to_end(self) -> int:
        """Move past the last whole line; gives the number of the line that begins there, 1 in a very large file."""
        read = self.content.read
        status = self.content.status()
        assert status is not None, "a plain file has a status"
        end = status.st_size
        while end > 0:
            start = max(0, end - CHUNK)
            found = read(start, end - start).rfind(b"\n")
            if found >= 0:
                end = start + found + 1
                break
            end = start
        self.tail = read(end - min(end, TAIL), min(end, TAIL))
        self.position = self.position.advanced(read, end, status.st_mtime_ns)
        if end > COUNT_LIMIT:
            return 1
        return 1 + sum(read(at, min(CHUNK, end - at)).count(b"\n") for at in range(0, end, CHUNK))
