"""Follow many growing files: globs, new files, rotation, and when to look again.

A :class:`Follower` reads when it is told to and never sleeps; :func:`follow` is the thin loop around it. Events of the
file system only say when to look: what is there decides.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from agent.logs.batch import Batch, Notice
from agent.logs.openfile import CHUNK
from agent.logs.rotation import bases
from agent.logs.tail import Tail
from agent.logs.wake import Waker

__all__ = ["Batch", "FollowSpec", "Follower", "Notice", "follow"]

DISCOVER: Final = 1.0
"""Seconds between two searches for new files, unless a directory says that there is one."""
FORGET: Final = 600.0
"""Seconds after which a file that a glob had found and that is gone is forgotten."""
ROUND: Final = 16 * CHUNK
"""Bytes read from all files in one round; bounds memory when a source outruns us."""
SHARE: Final = 4 * CHUNK
"""Bytes read from one file in one round."""


@dataclass(frozen=True, slots=True)
class FollowSpec:
    """What to follow. ``from_end``: files that are there at the first look are begun at their end."""

    patterns: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    from_end: bool = True
    rotate_wait: float = 5.0


class Follower:
    """Reads what is new in the files of a spec. ``positions`` are the committed ones, by key.

    :meth:`poll` gives batches; whoever takes them commits each position together with what its bytes led to, and
    after a crash the next follower starts there. ``clock`` gives monotonic seconds. Belongs to one thread. ``more``
    says whether the last poll stopped because it had read enough.
    """

    def __init__(
        self,
        spec: FollowSpec,
        positions: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.spec = spec
        self.clock = clock
        self.more = False
        self.discover_every = DISCOVER
        self._positions = positions or {}
        self._tails: dict[str, Tail] = {}
        self._by_path: dict[str, list[Tail]] = {}
        self._directories: set[str] = set()
        self._stale = True
        self._restless: dict[str, Tail] = {}
        self._turn = 0
        self._first = True
        self._discover_at = 0.0
        self._gone_since: dict[str, float] = {}
        self._notices: list[Notice] = []
        self._empty: set[str] = set()

    # -- reading ---------------------------------------------------------------------------------------------

    def poll(self, changed: Collection[str] | None = None) -> list[Batch]:
        """Read what is new: everywhere, or only where ``changed`` (absolute paths) says that something happened."""
        now = self.clock()
        out: list[Batch] = []
        if now >= self._discover_at or (changed is not None and self._may_be_new(changed)):
            self._discover()
            out += self._forget(now)
        tails = self._due(changed, now)
        budget = ROUND
        self.more = False
        # Start with another file each time, so that one that is written without end does not starve the rest.
        self._turn += 1
        start = self._turn % len(tails) if tails else 0
        for tail in (*tails[start:], *tails[:start]):
            if budget <= 0:
                self.more = True
                break
            read = self._poll_one(tail, min(budget, SHARE))
            size = sum(len(batch.data) for batch in read)
            budget -= size
            self.more = self.more or size >= SHARE
            out += read
        return out

    def _poll_one(self, tail: Tail, budget: int) -> list[Batch]:
        inodes = tail.inode
        read = tail.poll(budget)
        self._stale = self._stale or tail.inode != inodes
        if tail.notices:
            self._notices += tail.notices
            tail.notices.clear()
        if tail.next_look() is None:
            self._restless.pop(tail.path, None)
        else:
            self._restless[tail.path] = tail
        return read

    def _due(self, changed: Collection[str] | None, now: float) -> list[Tail]:
        if changed is None:
            return list(self._tails.values())
        self._index()
        due = {tail.path: tail for path in changed for tail in self._by_path.get(path, ())}
        for path, tail in self._restless.items():
            at = tail.next_look()
            if at is not None and at <= now:
                due[path] = tail
        return list(due.values())

    def _index(self) -> None:
        if not self._stale:
            return
        self._stale = False
        self._by_path = {}
        for tail in self._tails.values():
            for path in tail.watched:
                self._by_path.setdefault(path, []).append(tail)
        self._directories = {os.path.dirname(path) for path in self._by_path}
        for pattern in self.spec.patterns:
            folder = os.path.dirname(os.path.abspath(pattern))
            while glob.has_magic(folder):
                folder = os.path.dirname(folder)
            self._directories.add(folder)

    # -- files -----------------------------------------------------------------------------------------------

    def _discover(self) -> None:
        self._discover_at = self.clock() + self.discover_every
        for pattern in self.spec.patterns:
            if not glob.has_magic(pattern):
                self._add(pattern)
                continue
            found = set(glob.iglob(pattern, recursive=True))
            if not found and pattern not in self._empty:
                self._empty.add(pattern)
                self._notices.append(Notice("waiting", pattern, f"{pattern} matches no file yet; waiting for one"))
            elif found and pattern in self._empty:
                self._empty.discard(pattern)
                self._notices.append(Notice("found", pattern, f"{pattern} matches {len(found)} file(s)"))
            for path in sorted(found.difference(self._tails)):
                folder, name = os.path.split(path)
                rotated = any(os.path.join(folder, base) in found for base in bases(name))
                if not rotated and os.path.isfile(path) and not self._is_known_inode(path):
                    self._add(path)
        self._first = False

    def _add(self, path: str) -> None:
        if path in self._tails or any(fnmatch.fnmatch(path, pattern) for pattern in self.spec.exclude):
            return
        self._tails[path] = Tail(
            path,
            self._positions.get(path),
            self.clock,
            from_end=self.spec.from_end and self._first,
            rotate_wait=self.spec.rotate_wait,
        )
        self._stale = True

    def _is_known_inode(self, path: str) -> bool:
        """Whether a path that was never seen is a file that is followed already, under its new name."""
        if path in self._positions:
            return False
        try:
            status = os.stat(path)
        except OSError:
            return True
        key = (status.st_dev, status.st_ino)
        return any(key in tail.inodes and tail.path != path for tail in self._tails.values())

    def _may_be_new(self, changed: Collection[str]) -> bool:
        self._index()
        patterns = [os.path.abspath(pattern).replace("**/", "*") for pattern in self.spec.patterns]
        unknown = [path for path in changed if path not in self._by_path]
        return any(fnmatch.fnmatch(path, pattern) for path in unknown for pattern in patterns)

    def _forget(self, now: float) -> list[Batch]:
        """Files that a glob had found and that are gone for good."""
        out = []
        for path, tail in list(self._tails.items()):
            if path in self.spec.patterns:
                continue
            if tail.trouble == "missing" and not tail.is_open:
                since = self._gone_since.setdefault(path, now)
                if now - since > FORGET:
                    del self._tails[path], self._gone_since[path]
                    tail.close()
                    self._stale = True
                    out.append(Batch(path, path, b"", {}, ended=True))
            else:
                self._gone_since.pop(path, None)
        return out

    # -- what others may ask ---------------------------------------------------------------------------------

    def next_look(self) -> float:
        """Monotonic time of the next look that is due though no event says so."""
        times = [at for tail in self._restless.values() if (at := tail.next_look()) is not None]
        return min([self._discover_at, *times])

    def directories(self) -> set[str]:
        """Directories whose events tell of changes: those of the paths, of what links point to, and of globs."""
        self._index()
        return self._directories

    def take_notices(self) -> list[Notice]:
        """What happened to the sources since the last call."""
        out, self._notices = self._notices, []
        return out

    def lag(self) -> dict[str, int]:
        """Bytes that are there and were not read, for each followed path."""
        return {path: tail.lag() for path, tail in self._tails.items()}

    @property
    def tails(self) -> Mapping[str, Tail]:
        """The followed paths."""
        return self._tails

    def close(self) -> None:
        """Let all files go."""
        for tail in self._tails.values():
            tail.close()


QUIET: Final = 0.05
"""Seconds of rest after a read: the first line after silence is read at once, a flood is read in gulps."""
EVENTLESS: Final = 0.25
"""Longest time between two looks where growth was seen that no event had told of."""
_LOOK_COST: Final = 0.005
"""Seconds that each file adds to the time between two looks at everything: it keeps the cost of looking constant."""


def follow(
    follower: Follower,
    waker: Waker,
    deliver: Callable[[list[Batch], list[Notice]], None],
    stopped: Callable[[], bool],
    *,
    poll_interval: float = 1.0,
    quiet: float = QUIET,
    rest: Callable[[float], object] = time.sleep,
) -> None:
    """Read until ``stopped``: wake at events, and look at everything each ``poll_interval`` seconds or so.

    ``deliver`` is also called with nothing, after a wait in which nothing came. Raises what it raises.
    """
    everything_at = 0.0
    pending: set[str] = set()
    while not stopped():
        now = follower.clock()
        changed: Collection[str] | None = None
        if now < everything_at and not follower.more:
            if pending:
                changed, pending = pending, set()
            else:
                changed = waker.wait(max(0.0, min(everything_at, follower.next_look()) - now))
        first = not everything_at
        batches = follower.poll(changed)
        grew = any(batch.data for batch in batches)
        if changed is None:
            files = len(follower.tails)
            pause = min(EVENTLESS, poll_interval) + 0.001 * files if waker.unreliable else poll_interval
            everything_at = follower.clock() + max(pause, 0.0 if waker.unreliable else _LOOK_COST * files)
            follower.discover_every = DISCOVER if waker.unreliable else 10 * DISCOVER
            waker.watch(follower.directories())
            if grew and not first:
                # Events of what was just read may wait to be heard; the others are kept for the next round.
                heard = waker.wait(0.0)
                everything_at = 0.0 if heard is None else everything_at
                pending.update(heard or ())
                waker.missed({os.path.dirname(os.path.realpath(batch.file)) for batch in batches if batch.data})
        deliver(batches, follower.take_notices())
        if grew and not follower.more and not stopped():
            rest(quiet)
