"""The file that every transition is appended to, one JSON object a line, each exactly once, also over crashes.

Lines are written after the transaction that decided them. That transaction keeps them too (:meth:`AlertLog.pending`),
so that after a crash the missing ones are found and appended::

    commit(alerts, pending lines) -> append to the file -> next commit
                               ^ kill -9 here: the lines are in the store, not in the file; appended at start
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

__all__ = ["AlertLog"]

log = logging.getLogger("wedgewatch")

KEPT: Final = 1000
"""Lines that wait for a disk that is full; older ones are dropped, and said to be."""
_TAIL: Final = 4 << 20


class AlertLog:
    """Appends to ``path``. Raises OSError when the file cannot be opened at the start; later troubles are said once."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self.problem = ""
        self._waiting: list[str] = []
        self._fd = self._open()

    def _open(self) -> int:
        return os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def reopen(self) -> None:
        """Begin a new file when ours was renamed (logrotate)."""
        try:
            fd = self._open()
        except OSError as error:
            self._trouble(error)
            return
        os.close(self._fd)
        self._fd = fd

    def recover(self, last: Sequence[str]) -> None:
        """Append those of ``last`` (what the last transaction kept) that did not reach the file."""
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            return  # a pipe or a terminal keeps nothing that could be looked at
        size = status.st_size
        start = max(0, size - _TAIL)
        tail = os.pread(self._fd, size - start, start)
        whole, _, half = tail.rpartition(b"\n")
        if half:
            # A line that was cut in the middle is written again, whole; what is none of ours is only ended.
            ours = any(line.encode().startswith(half) for line in last)
            if ours:
                os.ftruncate(self._fd, size - len(half))
            else:
                os.write(self._fd, b"\n")
        present = set(whole.split(b"\n"))
        self.write([line for line in last if line.encode() not in present])

    def pending(self, lines: Sequence[str]) -> list[str]:
        """What a transaction must keep: ``lines`` and whatever is not in the file yet."""
        return [*self._waiting, *lines][-KEPT:]

    def write(self, lines: Sequence[str]) -> None:
        """Append lines, all or none of them; what a full disk refuses waits for the next call."""
        self._waiting += lines
        if not self._waiting:
            return
        dropped = len(self._waiting) - KEPT
        if dropped > 0:
            del self._waiting[:dropped]
            log.error("alert log %s: %d lines are lost, too many waited for its disk", self.path, dropped)
        data = "".join(f"{line}\n" for line in self._waiting).encode()
        before = 0
        try:
            before = os.fstat(self._fd).st_size
            view = memoryview(data)
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            self._trouble(error)
            # Half a line is no line.
            try:
                os.ftruncate(self._fd, before)
            except OSError:
                self._trouble(error)
            return
        self._waiting.clear()
        if self.problem:
            log.info("alert log %s is written again", self.path)
            self.problem = ""

    @property
    def behind(self) -> bool:
        """Whether lines wait for the disk."""
        return bool(self._waiting)

    def _trouble(self, error: OSError) -> None:
        text = f"alert log {self.path} cannot be written ({error.strerror}); its lines wait"
        if text != self.problem:
            log.error("%s", text)
        self.problem = text

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._fd)
