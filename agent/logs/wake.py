"""When to look: events of the file system where they come, the clock where they do not.

inotify is used directly: one descriptor, one watch for each directory, no thread. A library that calls back for each
event would cost thirty times the processor at 5,000 lines a second (docs/bench-logs.md).
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
import threading
from collections.abc import Callable, Collection, Iterable
from typing import Final, Protocol

__all__ = ["InotifyWaker", "PollWaker", "Waker", "make_waker"]


class Waker(Protocol):
    """Says when something may have changed."""

    unreliable: bool
    """Whether growth was seen that no event had told of."""

    def watch(self, directories: Iterable[str]) -> None:
        """Tell of changes in these directories from now on; those watched before stay watched while they exist."""

    def wait(self, timeout: float) -> Collection[str] | None:
        """Wait for events; gives the paths concerned, none when the time is up, None for "look at everything"."""

    def missed(self, directories: Iterable[str]) -> None:
        """Growth was found in these directories by looking."""

    def wake(self) -> None:
        """End a wait from another thread."""

    def close(self) -> None:
        """Let go of what it holds."""


class PollWaker:
    """Knows of no events: only the clock wakes."""

    unreliable = True

    def __init__(self) -> None:
        self._event = threading.Event()

    def watch(self, directories: Iterable[str]) -> None:
        pass

    def wait(self, timeout: float) -> Collection[str] | None:
        woken = self._event.wait(timeout)
        self._event.clear()
        return None if woken else ()

    def missed(self, directories: Iterable[str]) -> None:
        pass

    def wake(self) -> None:
        self._event.set()

    def close(self) -> None:
        pass


# https://man7.org/linux/man-pages/man7/inotify.7.html
_MODIFY, _ATTRIB, _CLOSE_WRITE, _MOVED_FROM, _MOVED_TO = 0x2, 0x4, 0x8, 0x40, 0x80
_CREATE, _DELETE, _DELETE_SELF, _MOVE_SELF = 0x100, 0x200, 0x400, 0x800
_IGNORED, _OVERFLOW = 0x8000, 0x4000
_ONLYDIR: Final = 0x01000000
_MASK: Final = _MODIFY | _ATTRIB | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _ONLYDIR
_EVENT: Final = struct.Struct("iIII")


class InotifyWaker:
    """Events of the directories that files are in. Raises OSError where there is no inotify to be had."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        try:
            self._add: Callable[[int, bytes, int], int] = self._libc.inotify_add_watch
            self._fd: int = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        except AttributeError as error:
            raise OSError(errno.ENOSYS, "this system has no inotify") from error
        if self._fd < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)
        self._poll.register(self._wake_read, select.POLLIN)
        self._paths: dict[int, str] = {}
        self._watched: dict[str, int] = {}
        self._told: set[str] = set()
        self.unreliable = False
        self.refused = ""
        """Why a directory is not watched: the system's limit of watches was met."""

    def watch(self, directories: Iterable[str]) -> None:
        for path in directories:
            if path in self._watched:
                continue
            number = self._add(self._fd, os.fsencode(path), _MASK)
            if number >= 0:
                self._watched[path] = number
                self._paths[number] = path
            elif (code := ctypes.get_errno()) == errno.ENOSPC:
                self.refused = f"{path}: no more inotify watches (fs.inotify.max_user_watches), looking by the clock"
                self.unreliable = True
            elif code not in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
                self.refused = f"{path}: {os.strerror(code)}"
                self.unreliable = True

    def wait(self, timeout: float) -> Collection[str] | None:
        ready = self._poll.poll(timeout * 1000)
        changed: set[str] = set()
        for fd, _ in ready:
            if fd == self._wake_read:
                os.read(fd, 4096)
                return None
            if not self._read_events(changed):
                return None
        self._told.update(os.path.dirname(path) for path in changed)
        return changed

    def _read_events(self, changed: set[str]) -> bool:
        """False when events were lost."""
        whole = True
        while True:
            try:
                data = os.read(self._fd, 64 << 10)
            except BlockingIOError:
                return whole
            at = 0
            while at < len(data):
                number, mask, _, size = _EVENT.unpack_from(data, at)
                name = data[at + _EVENT.size : at + _EVENT.size + size].rstrip(b"\0")
                at += _EVENT.size + size
                if mask & _OVERFLOW:
                    whole = False
                elif mask & _IGNORED:
                    self._watched.pop(self._paths.pop(number, ""), None)
                    whole = False
                elif number in self._paths:
                    changed.add(os.path.join(self._paths[number], os.fsdecode(name)) if name else self._paths[number])

    def missed(self, directories: Iterable[str]) -> None:
        # A look and an event may cross each other, so a directory that ever told of anything is believed.
        self.unreliable = self.unreliable or any(path not in self._told for path in directories)

    def wake(self) -> None:
        os.write(self._wake_write, b"x")

    def close(self) -> None:
        for fd in (self._fd, self._wake_read, self._wake_write):
            os.close(fd)


def make_waker() -> tuple[Waker, str]:
    """The best waker of this system, and a sentence when it is not the one that was hoped for."""
    try:
        return InotifyWaker(), ""
    except OSError as error:
        return PollWaker(), f"no events of the file system ({error.strerror}); files are looked at by the clock"
