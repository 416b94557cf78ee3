"""What a follower hands over: bytes with the position they reach to, and what its operator may want to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Batch", "Notice", "NoticeKind"]

NoticeKind = Literal["waiting", "found", "missing", "denied", "error", "recovered", "rotated", "truncated", "lost"]


@dataclass(frozen=True, slots=True)
class Notice:
    """Something about a source that its operator may want to know; said once for each change."""

    kind: NoticeKind
    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Batch:
    """Bytes of one log with the position to commit once they are processed.

    ``key`` names the log for ever. ``new_file``: these bytes begin a file, so its lines count from ``first_line``.
    ``data`` may be empty: then only the position is new. ``ended``: the log is gone for good and its position can be
    forgotten.
    """

    key: str
    file: str
    data: bytes
    position: Mapping[str, Any]
    new_file: bool = False
    first_line: int = 1
    ended: bool = False
