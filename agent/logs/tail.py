"""One log path, through all the files that ever bear its name.

::

    app.log  (inode A) ----------- rename ------> app.log.1 (A) --- compress --> app.log.1.gz
        read to here ^                 read on to its end ^   then B, then C
    app.log  (inode B) ... rename ... app.log (inode C)

A :class:`Tail` reads one file at a time and knows which come next. Polling is the truth: each look compares the
file behind the path, its size and its content with what was read. Limits, where they lie:

* bytes written between copytruncate's copy and its truncation, and not read by then, are in no file any more;
* a file that was rotated and deleted before it was looked at is lost, and said so;
* truncation by a writer that then writes the very same bytes is not a change.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from agent.logs.batch import Batch, Notice, NoticeKind
from agent.logs.identity import TAIL, Position
from agent.logs.openfile import CHUNK, OpenFile
from agent.logs.rotation import Content, Sibling, Step, Unfinished, open_sibling, plan, siblings

__all__ = ["Tail"]

SETTLE: Final = 0.2
"""Seconds a renamed file must be quiet before the next one is begun, when that has data."""
COMPRESSING: Final = 5.0
"""Seconds that are granted to a compressed file that is being written."""
VANISHED: Final = 60.0
"""Seconds after which a deleted file that nothing is written to is closed."""
DONE: Final = 8
"""Finished files that are remembered, so that they are not read again under another name."""
_BACKOFF: Final = (1.0, 2.0, 5.0, 10.0, 30.0)


@dataclass(slots=True)
class Tail:
    """Follows ``path``. ``saved`` is the last committed position, None for a log never seen before.

    ``from_end``: a file that is there at the first look and was never seen is begun after its last whole line.
    ``rotate_wait``: seconds a renamed file must be quiet before it is let go. ``clock`` gives monotonic seconds.
    Notices gather in ``notices``.
    """

    path: str
    saved: Mapping[str, Any] | None
    clock: Callable[[], float]
    from_end: bool = False
    rotate_wait: float = 5.0
    notices: list[Notice] = field(default_factory=list)
    rotations: int = 0
    truncations: int = 0
    trouble: str = ""
    _current: OpenFile | None = None
    _queue: deque[Step | OpenFile] = field(default_factory=deque)
    _lingering: list[OpenFile] = field(default_factory=list)
    _done: deque[Position] = field(default_factory=lambda: deque(maxlen=DONE))
    _position: Position | None = None
    _midline: bool = False
    _on_copy: bool = False
    _copies: bool = False
    _break: bool = False
    _failures: int = 0
    _retry_at: float = 0.0
    _unfinished_since: float | None = None
    _released: list[Position] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.saved is not None:
            self._position = Position.from_json(self.saved["file"])
            self._done.extend(Position.from_json(item) for item in self.saved["done"])
            self._released = [Position.from_json(item) for item in self.saved["released"]]
            self._midline, self._on_copy = bool(self.saved["midline"]), bool(self.saved["on_copy"])

    # -- what others may ask ---------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether a file is being read."""
        return self._current is not None

    @property
    def watched(self) -> set[str]:
        """Paths whose change concerns this log: its name, and the file that a link at that name points to."""
        out = {os.path.abspath(self.path)}
        if self._current is not None:
            out.add(self._current.position.path)
        return out

    @property
    def inode(self) -> int:
        """Inode of the file being read, 0 when there is none."""
        return 0 if self._current is None else self._current.position.inode

    @property
    def inodes(self) -> set[tuple[int, int]]:
        """Device and inode of the files that are this log's: the one being read and those that are done with."""
        known = [*self._done] if self._position is None else [*self._done, self._position]
        return {(item.device, item.inode) for item in known}

    def lag(self) -> int:
        """Bytes that are there and were not read yet."""
        total = 0
        for item in (self._current, *self._queue):
            if isinstance(item, Step):
                total += item.sibling.size - (item.position.offset if item.position else 0)
            elif item is not None and (status := item.content.status()) is not None:
                total += status.st_size - item.position.offset
        return max(0, total)

    def next_look(self) -> float | None:
        """When a look is due though nothing happens (a renamed file settles, a pause ends); None: no such time."""
        if self._current is None:
            return self._retry_at if self.trouble in ("denied", "error") else None
        if self._queue:
            return self._current.changed_at + self._settling()
        return None

    def close(self) -> None:
        """Let all files go; the committed position is where to go on."""
        self._drop_queue()
        for item in (self._current, *self._lingering):
            if item is not None:
                item.close()
        self._current = None
        self._lingering.clear()

    def _drop_queue(self) -> None:
        for item in self._queue:
            if isinstance(item, OpenFile):
                item.close()
        self._queue.clear()

    # -- looking ---------------------------------------------------------------------------------------------

    def poll(self, budget: int = 4 * CHUNK) -> list[Batch]:
        """What is there to be read now, at most about ``budget`` bytes. The state of a file never raises."""
        if self._current is None and self.clock() < self._retry_at:
            return []
        if self._is_unchanged():
            return []
        out: list[Batch] = []
        try:
            for batches in self._rounds():
                out += batches
                budget -= sum(len(batch.data) for batch in batches)
                if budget <= 0:
                    break
        except Unfinished as error:
            self._wait_for_compression(str(error))
        except FileNotFoundError:
            # Something was renamed between two looks at the directory: the next look sees it whole.
            self._drop_queue()
        except OSError as error:
            self._fail(error)
        return out

    def _is_unchanged(self) -> bool:
        """The commonest look by far, in one call to the system: nothing happened."""
        current = self._current
        if current is None or self._queue or self._lingering or self.trouble:
            return False
        try:
            status = os.stat(self.path)
        except OSError:
            return False
        position = current.position
        return (
            status.st_size == position.offset
            and status.st_mtime_ns == position.modified
            and position.same_inode(status.st_dev, status.st_ino)
        )

    def _rounds(self) -> Iterator[list[Batch]]:
        """Reads step by step; what a step gives belongs together, and reading may stop after any."""
        if self._current is None and not self._queue:
            yield self._begin()
        yield self._read_lingering()
        while self._current is not None or self._queue:
            current = self._current if self._current is not None else self._take_next()
            if self._was_copied_unseen(current):
                continue
            data = current.read(self.clock())
            if data is None:
                self._restart_after_truncation(current)
            elif data:
                yield self._deliver(current, data)
            elif not self._move_on(current):
                return

    def _was_copied_unseen(self, current: OpenFile) -> bool:
        """Whether a file of which little was read was written on, copied and truncated since: then copies come first.

        Its few bytes say too little of it: what stands there now may begin with the same.
        """
        position, status = current.position, current.content.status()
        if position.offset >= TAIL or status is None or status.st_mtime_ns == position.modified:
            return False
        _, steps, opened = self._gather(position, open_now=False)
        if not steps or position.same_inode(steps[0].sibling.device, steps[0].sibling.inode):
            if opened is not None:
                opened.close()
            if not position.offset:
                current.position = replace(position, modified=status.st_mtime_ns)
            return False
        self._copies = opened is not None and position.same_inode(opened.position.device, opened.position.inode)
        current.close()
        self._current = None
        self._enqueue(
            # This was looked into now; the file is not to be asked again before it changes.
            [Step(s.sibling, s.position and replace(s.position, modified=s.sibling.modified)) for s in steps],
            opened,
        )
        return True

    def _gather(self, position: Position, *, open_now: bool) -> tuple[bool, list[Step], OpenFile | None]:
        """What comes after ``position``: see :func:`plan`; and the file at the path, if there is one.

        That is opened at once, so that it is not missed when it is renamed before its turn comes. Raises
        FileNotFoundError when the log is rotated meanwhile: then the next look finds out.
        """
        try:
            opened = self._open_path()
        except FileNotFoundError:
            opened = None
        try:
            found, steps = plan(self.path, position, self._done, open_now=open_now)
            status = _stat(self.path)
            now = None if status is None else (status.st_dev, status.st_ino)
            if now != (None if opened is None else (opened.position.device, opened.position.inode)):
                raise FileNotFoundError(errno.ENOENT, "was rotated just now", self.path)
        except BaseException:
            if opened is not None:
                opened.close()
            raise
        # What lingers is read as it is.
        inodes = {(item.position.device, item.position.inode) for item in self._lingering}
        return found, [s for s in steps if (s.sibling.device, s.sibling.inode) not in inodes], opened

    def _enqueue(self, steps: Iterable[Step], opened: OpenFile | None) -> None:
        self._drop_queue()
        self._queue.extend(steps)
        if opened is not None:
            self._queue.append(opened)

    def _deliver(self, current: OpenFile, data: bytes) -> list[Batch]:
        out = []
        if self._break:
            # The file before ended in the middle of a line that will not go on.
            self._break = self._midline = False
            out.append(Batch(self.path, self.path, b"\n", self._saved()))
        new, current.fresh = current.fresh, False
        self._position, self._on_copy = current.position, current.is_copy
        self._midline = not data.endswith(b"\n")
        self._recovered()
        out.append(Batch(self.path, self.path, data, self._saved(), new_file=new))
        return out

    def _saved(self) -> dict[str, Any]:
        assert self._position is not None, "nothing was read yet"
        return {
            "file": self._position.to_json(),
            "done": [item.to_json() for item in self._done],
            "released": [item.position.to_json() for item in self._lingering] + [p.to_json() for p in self._released],
            "midline": self._midline,
            "on_copy": self._on_copy,
        }

    # -- from file to file -----------------------------------------------------------------------------------

    def _begin(self) -> list[Batch]:
        """Find where to go on: the file at the path, or the one that was being read under its new name."""
        self._revive()
        status = _stat(self.path)
        position = self._position
        if position is None:
            if status is None:
                self._say_once("waiting", f"{self.path} is not there yet; waiting for it")
                self.from_end = False  # whatever comes now is new
                return []
            opened = self._open_path()
            first_line = opened.skip_to_end() if self.from_end else 1
            self._current, self._position, opened.fresh = opened, opened.position, False
            self._recovered()
            # The position is worth keeping before anything is read: lines written while we are away count from here.
            return [Batch(self.path, self.path, b"", self._saved(), new_file=True, first_line=first_line)]
        if status is not None and position.same_inode(status.st_dev, status.st_ino):
            opened = self._open_path()
            if not position.offset or position.relation(opened.content.read) == "whole":
                self._current = opened.resume(position)
                self._recovered()
                return []
            opened.close()
        in_place = status is not None and position.same_inode(status.st_dev, status.st_ino)
        self._copies = in_place or self._on_copy
        self._succeed(position)
        return []

    def _succeed(self, position: Position) -> None:
        """Queue the file that holds ``position``, those that came after it, and the file at the path."""
        found, steps, opened = self._gather(position, open_now=False)
        self._remember(position)  # a copy that holds no more than this is read already
        if opened is None and (not steps or (len(steps) == 1 and found and _ends_at(steps[0]))):
            self._say_once("missing", f"{self.path} is gone; waiting for it to come back")
            return
        self._enqueue(steps, opened)
        if not found:
            self._break = self._midline
            if position.offset:
                self._say("lost", f"{self.path}: the file that was being read is gone; what was not read of it is lost")

    def _revive(self) -> None:
        """Take up again the renamed files that a writer may not have let go of when we were stopped.

        Raises OSError, and Unfinished while one of them is being compressed.
        """
        if not self._released:
            return
        beside = siblings({self.path, os.path.realpath(self.path)})
        revived: list[OpenFile] = []
        try:
            for position in self._released:
                found = self._take_up(position, beside)
                if found is not None:
                    revived.append(found)
        except BaseException:
            for item in revived:
                item.close()
            raise
        self._released = []
        self._lingering += revived

    def _take_up(self, position: Position, beside: Iterable[Sibling]) -> OpenFile | None:
        """The file that was read to ``position``, wherever rotation put it; compressed, only when more is in it."""
        for item in sorted(beside, key=lambda item: item.compressed):
            if item.compressed:
                # Of a short content nothing tells that it is the same and not one that begins like it.
                if position.offset < TAIL or item.modified < position.modified:
                    continue
            elif not position.same_inode(item.device, item.inode):
                continue
            opened = self._opened(open_sibling(item), item.path, item.device, item.inode, item.modified)
            try:
                mine = position.relation(opened.content.read) == "whole" and (
                    not item.compressed or bool(opened.content.read(position.offset, 1))
                )
            except BaseException:
                opened.close()
                raise
            if mine:
                return opened.resume(position)
            opened.close()
        return None

    def _take_next(self) -> OpenFile:
        """Open the next file of the queue; one that cannot be read stays its first. Raises OSError."""
        step = self._queue[0]
        if isinstance(step, OpenFile):
            opened = self._past_the_copy(step)
            opened.changed_at = self.clock()
        else:
            sibling = step.sibling
            opened = self._opened(open_sibling(sibling), sibling.path, sibling.device, sibling.inode, sibling.modified)
            if step.position is not None:
                opened = opened.resume(step.position)
            opened.is_copy = self._copies
        self._queue.popleft()
        self._unfinished_since = None
        self._current = opened
        return opened

    def _past_the_copy(self, opened: OpenFile) -> OpenFile:
        """The file at the path, moved past what was read from a copy of it: it is copied but not truncated yet."""
        read, own = opened.content.read, opened.position
        for done in () if own.offset else reversed(self._done):
            # Of a short content only the times tell that it is the same and not one that begins like it.
            sure = done.offset >= TAIL or (own.modified <= done.modified and not read(done.offset, 1))
            if sure and done.relation(read) == "whole":
                return opened.resume(replace(done, modified=own.modified))
        return opened

    def _move_on(self, current: OpenFile) -> bool:
        """At the end of a file: is there another to go on with?"""
        if not self._queue:
            status = _stat(self.path)
            if status is None:
                self._say_once("missing", f"{self.path} is gone; waiting for it to come back")
                if self.clock() - current.changed_at > VANISHED:
                    self._let_go(current, linger=False)
                return False
            self._recovered()
            if current.position.same_inode(status.st_dev, status.st_ino):
                return False
            _, steps, opened = self._gather(current.position, open_now=True)
            self._enqueue(steps, opened)
            self._copies = False
            self.rotations += 1
            self._say("rotated", f"{self.path} was rotated")
        if self.clock() - current.changed_at < self._settling():
            return False
        self._break = self._midline and not current.is_copy
        self._let_go(current, linger=current.grows)
        return True

    def _settling(self) -> float:
        """Seconds of quiet after which the current file is taken to be finished.

        Its writer may go on with it for a while after it was renamed.
        """
        if self._current is None or not self._current.grows:
            return 0.0
        # Rotated twice since: its writer has moved on long ago.
        return 0.0 if self._queue and isinstance(self._queue[0], Step) else SETTLE

    def _let_go(self, current: OpenFile, *, linger: bool) -> None:
        self._remember(current.position)
        if linger and self.rotate_wait > 0:
            self._lingering.append(current)
        else:
            current.close()
        self._current = None

    def _restart_after_truncation(self, current: OpenFile) -> None:
        """What was read is gone from the file: it was copied and truncated, or just truncated."""
        self.truncations += 1
        self._say("truncated", f"{self.path} was truncated")
        current.close()
        self._current = None
        self._drop_queue()
        self._copies = True
        self._remember(current.position)
        found, steps, opened = self._gather(current.position, open_now=False)
        self._enqueue(steps, opened)
        if not found:
            self._break = self._midline

    def _read_lingering(self) -> list[Batch]:
        """Whole lines that were written late to files that were renamed."""
        out = []
        now = self.clock()
        # A writer that was never told to reopen its log goes on with the old file, and the new one stays empty.
        unused = self._current is not None and not self._current.position.offset
        for item in list(self._lingering):
            last = now - item.changed_at > (self.rotate_wait if not unused or not item.is_linked else VANISHED)
            data = b"" if self._midline else item.read(now, whole_lines=not last)
            if data:
                self._remember(item.position)
                whole = data if data.endswith(b"\n") else data + b"\n"
                out.append(Batch(self.path, self.path, whole, self._saved()))
            elif data is None or (last and not unused) or not item.is_linked:
                self._lingering.remove(item)
                item.close()
        return out

    def _remember(self, position: Position) -> None:
        if not position.offset:
            return  # there is nothing in it to be read again
        kept = [
            item
            for item in self._done
            # One inode holds one content after another when it is truncated.
            if not item.same_inode(position.device, position.inode) or item.head != position.head
        ]
        self._done.clear()
        self._done.extend((*kept, position))

    # -- opening ---------------------------------------------------------------------------------------------

    def _open_path(self) -> OpenFile:
        """The file at the path, from its beginning. Raises OSError."""
        # Not every name is a file, and opening a pipe would wait for its writer.
        if not stat.S_ISREG(os.stat(self.path).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", self.path)
        content = Content(self.path, compressed=False)
        status = content.status()
        assert status is not None, "a plain file has a status"
        return self._opened(content, os.path.realpath(self.path), status.st_dev, status.st_ino, status.st_mtime_ns)

    def _opened(self, content: Content, path: str, device: int, inode: int, modified: int) -> OpenFile:
        return OpenFile(content, Position(path, device, inode, modified=modified), changed_at=self.clock())

    # -- saying ----------------------------------------------------------------------------------------------

    def _say(self, kind: NoticeKind, text: str) -> None:
        self.notices.append(Notice(kind, self.path, text))

    def _say_once(self, kind: NoticeKind, text: str) -> None:
        if self.trouble != kind:
            self.trouble = kind
            self._say(kind, text)

    def _recovered(self) -> None:
        self._failures = 0
        if self.trouble:
            kind: NoticeKind = "found" if self.trouble in ("waiting", "missing") else "recovered"
            self.trouble = ""
            self._say(kind, f"{self.path} is read")

    def _fail(self, error: OSError) -> None:
        denied = error.errno in (errno.EACCES, errno.EPERM)
        reason = error.strerror or str(error)
        self._say_once("denied" if denied else "error", f"{self.path} cannot be read: {reason}; trying again")
        self._retry_at = self.clock() + _BACKOFF[min(self._failures, len(_BACKOFF) - 1)]
        self._failures += 1
        if self._current is not None:
            self._current.close()
            self._current = None
            self._drop_queue()

    def _wait_for_compression(self, reason: str) -> None:
        """A rotated file is being compressed: what it holds comes first, so wait, but not for ever."""
        now = self.clock()
        if self._unfinished_since is None:
            self._unfinished_since = now
        if now - self._unfinished_since < COMPRESSING:
            return
        self._unfinished_since = None
        self._say("lost", f"{reason}; going on without it")
        if self._current is None:
            self._drop_queue()
            with contextlib.suppress(FileNotFoundError):
                self._queue.append(self._open_path())


def _ends_at(step: Step) -> bool:
    """Whether nothing follows in a file after the position it was read to."""
    return step.position is not None and not step.sibling.compressed and step.sibling.size == step.position.offset


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
