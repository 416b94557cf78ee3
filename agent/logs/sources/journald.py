"""The systemd journal, through a ``journalctl -o json --follow`` child that starts again where it was.

The journal's cursor of the last whole entry is the position, so nothing is missed or read twice over restarts of the
child, of the daemon or of journald itself. https://www.freedesktop.org/software/systemd/man/latest/journalctl.html
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from agent.logs.sources.piece import Deliver, Piece, Say, Trouble, keep_going

__all__ = ["Journal"]

_FIELDS: Final = (
    "MESSAGE,PRIORITY,SYSLOG_IDENTIFIER,_COMM,_PID,_SYSTEMD_UNIT,_SYSTEMD_USER_UNIT,_SOURCE_REALTIME_TIMESTAMP"
)
_CURSOR: Final = re.compile(rb'"__CURSOR"\s*:\s*"([^"]+)"')
_CHUNK: Final = 256 << 10


class Journal:
    """Entries of the journal that ``arguments`` select (``-u vllm.service``), as lines of JSON.

    ``position`` is the last committed one; without it reading begins now, or with the oldest entry when ``from_end``
    is False.
    """

    def __init__(
        self,
        key: str,
        arguments: Sequence[str],
        position: Mapping[str, Any] | None = None,
        *,
        from_end: bool = True,
        command: str = "journalctl",
    ) -> None:
        self.key = key
        self.cursor = str(position["cursor"]) if position else ""
        self._arguments = tuple(arguments)
        self._from_end = from_end
        self._command = command
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(
        self, stop: threading.Event, deliver: Deliver, say: Say, wait: Callable[[float], object] | None = None
    ) -> None:
        """Hand over entries until ``stop`` is set and :meth:`close` is called."""
        trouble = Trouble(f"journal {' '.join(self._arguments)}", say)
        keep_going(lambda: self._attempt(stop, deliver, trouble), stop, wait)

    def close(self) -> None:
        """End a wait for entries, from any thread."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_write, b"x")

    def _attempt(self, stop: threading.Event, deliver: Deliver, trouble: Trouble) -> bool:
        """One life of the child; whether anything came."""
        where = ["--lines=0"] if self._from_end and not self.cursor else ["--no-tail"]
        if self.cursor:
            where.append(f"--after-cursor={self.cursor}")
        command = (
            # Without --all a message of more than 4 KiB comes as null.
            *(self._command, "--output=json", "--all", "--follow", "--no-pager", "--quiet"),
            f"--output-fields={_FIELDS}",
            *where,
            *self._arguments,
        )
        try:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        except OSError as error:
            trouble.begins("error", f"{self._command} cannot be started: {error.strerror}; trying again")
            return False
        with child:
            came = False
            try:
                came = self._read(child, stop, deliver, trouble)
            finally:
                child.terminate()
                rest = child.communicate()[1] or b""
            if not stop.is_set():
                said = rest.decode("utf-8", "replace").strip().splitlines()
                trouble.begins(
                    "error", f"{self._command} ended: {said[-1] if said else child.returncode}; trying again"
                )
            return came

    def _read(self, child: subprocess.Popen[bytes], stop: threading.Event, deliver: Deliver, trouble: Trouble) -> bool:
        assert child.stdout is not None, "the child's output is a pipe"
        descriptor = child.stdout.fileno()
        poll = select.poll()
        poll.register(descriptor, select.POLLIN | select.POLLHUP)
        poll.register(self._wake_read, select.POLLIN)
        pending = b""
        came = False
        while not stop.is_set():
            if any(fd == self._wake_read for fd, _ in poll.poll()):
                os.read(self._wake_read, 4096)
                continue
            data = os.read(descriptor, _CHUNK)
            if not data:
                break
            lines, newline, pending = (pending + data).rpartition(b"\n")
            if not newline:
                continue
            whole = lines + newline
            cursors = _CURSOR.findall(whole)
            if cursors:
                self.cursor = cursors[-1].decode("ascii", "replace")
            came = True
            trouble.ends()
            deliver(Piece(self.key, whole, {"cursor": self.cursor}))
        return came
