"""What rotation leaves beside a log: ``app.log.1``, ``app.log-20261120``, ``app-20261120.log``, also compressed.

:func:`plan` says in which order they are to be read.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Final, Self

from agent.logs.identity import TAIL, Position
from agent.logs.sources.finished import COMPRESSED, FinishedLog, open_finished

__all__ = ["Content", "Sibling", "Step", "Unfinished", "bases", "is_rotated_name", "open_sibling", "plan", "siblings"]

_ENDING: Final = "(?:" + "|".join(re.escape(ending) for ending in COMPRESSED) + ")?"
# logrotate calls a file whose new name is taken app.log-2026112003.backup.
_MARK: Final = r"[._-](?:\d[\d._:TZ-]*(?:\.backup)?|old|prev|bak|backup)"
# Before the file's ending only a date or, as logrotate's `extension` does it, a dot and a number: worker-1.log is the
# log of another worker.
_INNER_MARK: Final = r"(?:[._-]\d{4}[._-]?\d\d[._-]?\d\d[\d._:TZ-]*|\.\d{1,3})"


_LOOKS: Final = 5
"""How often a directory is looked at again until two looks show the same."""


class Unfinished(Exception):
    """A compressed file that is still being written."""


@dataclass(frozen=True, slots=True)
class Sibling:
    """A rotated file as the directory showed it."""

    path: str
    device: int
    inode: int
    size: int
    modified: int
    compressed: bool


def bases(name: str) -> set[str]:
    """What a file may have been called before rotation gave it ``name``."""
    out = set()
    ends = [match.start() for match in re.finditer(r"[._-]", name)]
    for end in ends:
        if end and re.fullmatch(_MARK + _ENDING, name[end:]):
            out.add(name[:end])
        inside = re.fullmatch(rf"{_INNER_MARK}(?P<ending>\.[^.]+?){_ENDING}", name[end:])
        if end and inside is not None:
            out.add(name[:end] + inside["ending"])
    return out


def is_rotated_name(name: str, base: str) -> bool:
    """Whether a file called ``name`` is what rotation makes of one called ``base``."""
    return base in bases(name)


def siblings(paths: Iterable[str]) -> list[Sibling]:
    """Rotated files beside each of ``paths``, oldest first. A directory that cannot be read has none.

    Raises FileNotFoundError when the directory keeps changing under the look: half a picture would lose a file.
    """
    paths = list(dict.fromkeys(paths))
    before = _look_beside(paths)
    for _ in range(_LOOKS):
        now = _look_beside(paths)
        if now == before:
            return sorted(now.values(), key=_age)
        before = now
    raise FileNotFoundError(errno.ENOENT, "is being rotated", paths[0])


def _look_beside(paths: Iterable[str]) -> dict[tuple[int, int], Sibling]:
    found: dict[tuple[int, int], Sibling] = {}
    for path in paths:
        folder, base = os.path.split(path)
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        # A compressed file beside its source is still being written; the source holds everything.
        compressing = set(names) if any(name.endswith(COMPRESSED) for name in names) else set()
        for name in names:
            if not is_rotated_name(name, base) or (
                name.endswith(COMPRESSED) and os.path.splitext(name)[0] in compressing
            ):
                continue
            sibling = _stat(os.path.join(folder, name))
            if sibling is not None:
                found[sibling.device, sibling.inode] = sibling
    return found


class Content:
    """A file's content by offset; a compressed one is read forward and started anew to go back."""

    def __init__(self, path: str, compressed: bool) -> None:
        """Raises OSError."""
        self.path = path
        self._compressed = compressed
        self._log: FinishedLog | None = None
        self._at = 0
        self._file: IO[bytes] | None = None
        self._recent = b""
        if compressed:
            self._log = open_finished(path)
        else:
            self._file = open(path, "rb", buffering=0)  # noqa: SIM115  # closed by close()

    def read(self, offset: int, size: int) -> bytes:
        """Bytes at an offset, fewer at the end. Raises OSError, and Unfinished for a compressed file cut short."""
        if self._file is not None:
            return os.pread(self._file.fileno(), size, offset)
        start = self._at - len(self._recent)
        if offset < start:
            self._rewind()
        while self._at < offset + size:
            data = self._next()
            if not data:
                break
            # As much is kept as a look back at the last bytes read may want.
            self._recent = (self._recent + data)[-(size + len(data) + (64 << 10)) :]
            self._at += len(data)
        start = self._at - len(self._recent)
        return self._recent[max(0, offset - start) : max(0, offset - start + size)]

    def _next(self) -> bytes:
        assert self._log is not None, "plain files are read by offset"
        data = self._log.read(256 << 10)
        if self._log.damaged:
            raise Unfinished(self._log.damaged)
        return data

    def _rewind(self) -> None:
        assert self._log is not None, "plain files are read by offset"
        self._log.close()
        self._log, self._at, self._recent = open_finished(self.path), 0, b""

    def status(self) -> os.stat_result | None:
        """The plain file's status; None for a compressed one, which grows no more."""
        return None if self._file is None else os.fstat(self._file.fileno())

    def close(self) -> None:
        """Let the file go."""
        for handle in (self._log, self._file):
            if handle is not None:
                handle.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_sibling(sibling: Sibling) -> Content:
    """The content of a rotated file. Raises OSError, FileNotFoundError also when another file has its name now."""
    content = Content(sibling.path, sibling.compressed)
    status = os.stat(sibling.path) if sibling.compressed else content.status()
    if status is None or (status.st_dev, status.st_ino) != (sibling.device, sibling.inode):
        content.close()
        raise FileNotFoundError(errno.ENOENT, "was rotated again", sibling.path)
    return content


@dataclass(frozen=True, slots=True)
class Step:
    """A rotated file to be read, from the beginning or, with ``position``, from where it was left."""

    sibling: Sibling
    position: Position | None = None


def plan(path: str, position: Position, done: Collection[Position], *, open_now: bool) -> tuple[bool, list[Step]]:
    """Which rotated files are to be read between ``position`` and the file at ``path``, oldest first.

    ``open_now``: the file of ``position`` is open and read to its end, so it is no step; otherwise the first step is
    the file that holds what follows ``position``, and the first result says whether there is one (or nothing follows).
    ``done`` are files that were finished. Raises OSError, and Unfinished when a compressed file cannot be judged yet.
    """
    real = os.path.realpath(path)
    beside = siblings({path, real, position.path})
    if real != position.path and (moved := _stat(position.path)) is not None:
        # A link points elsewhere now; the file is where it was.
        beside = [item for item in beside if (item.device, item.inode) != (moved.device, moved.inode)] + [moved]
    beside = [
        item
        for item in beside
        if item.modified >= position.modified and (item.size or position.same_inode(item.device, item.inode))
    ]
    holder: Step | None = None
    found = False
    steps: list[Step] = []
    # Its own inode is the surest sign, a copy or a compressed file is recognised by its content. When so little was
    # read that another content may begin the same, the inode says nothing against an older copy.
    told = position.offset >= TAIL
    order = sorted(beside, key=_age)
    order.sort(key=lambda item: told and not position.same_inode(item.device, item.inode))
    for item in order:
        kind = _relation(item, position)
        own = position.same_inode(item.device, item.inode)
        # Its writer may not have let go of the very file, so that is gone on with even when nothing follows yet.
        goes_on = kind == "more" or (kind == "same" and own and not item.compressed)
        if goes_on and holder is None and (own or not open_now):
            holder = Step(item, position.moved(item.path, item.device, item.inode))
        elif kind not in ("same", "part"):
            continue
        found = True
        beside.remove(item)
    for item in sorted(beside, key=_age):
        if holder is not None and position.offset and _age(item) < _age(holder.sibling):
            continue
        kinds = {_relation(item, old): old for old in done if old.offset}
        if "same" in kinds or "part" in kinds:
            continue
        # Many a file begins like another: only the very file, known well enough, has grown after it was let go.
        known = kinds.get("more")
        grown = known is not None and known.offset >= TAIL and known.same_inode(item.device, item.inode)
        steps.append(Step(item, known if grown else None))
    if holder is not None and not open_now:
        # A file that nothing was read of may have been copied before it was renamed.
        before = [step for step in steps if _age(step.sibling) < _age(holder.sibling)]
        steps = [*before, holder, *steps[len(before) :]]
    return found, steps


def _age(item: Sibling) -> tuple[int, int, str]:
    """Orders rotated files from the oldest; of two written in the same tick the higher number is older."""
    number = re.search(r"[._-](\d{1,4})(?=\.|$)", os.path.basename(item.path))
    return item.modified, -int(number[1]) if number else 0, item.path


def _relation(item: Sibling, position: Position) -> str:
    """``more`` or ``same``: the file holds all that was read, and more or not; ``part``: it is an earlier copy."""
    own = position.same_inode(item.device, item.inode)
    if not position.offset:
        return "" if not own else "more" if item.size else "same"
    with open_sibling(item) as content:
        kind = position.relation(content.read)
        if kind == "whole":
            return "more" if content.read(position.offset, 1) else "same"
        return kind


def _stat(path: str) -> Sibling | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return Sibling(path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, path.endswith(COMPRESSED))
