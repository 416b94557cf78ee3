"""Tells systemd how we are: the notify protocol, without a library.

https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html: one datagram to ``$NOTIFY_SOCKET``; a name that
begins with ``@`` is in the abstract namespace. The watchdog is for the loop that reads and decides to call after each
round, never for a timer of its own: a timer would go on ticking while the loop hangs.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping

__all__ = ["SystemdNotifier"]


class SystemdNotifier:
    """Does nothing outside of systemd. ``monotonic`` is injected for tests."""

    def __init__(
        self, environment: Mapping[str, str] | None = None, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        environment = os.environ if environment is None else environment
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._monotonic = monotonic
        self._interval = _watchdog_seconds(environment)
        self._last = float("-inf")

    @property
    def watched(self) -> bool:
        """Whether systemd waits for :meth:`alive`."""
        return bool(self._address) and self._interval > 0

    def ready(self, status: str = "") -> None:
        """Start-up is done."""
        self._send("READY=1", status)

    def status(self, status: str) -> None:
        """One line for ``systemctl status``."""
        self._send("", status)

    def reloading(self) -> None:
        """A reload begins; :meth:`ready` ends it."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={int(self._monotonic() * 1e6)}", "")

    def stopping(self) -> None:
        """Shut-down begins."""
        self._send("STOPPING=1", "")

    def alive(self) -> None:
        """Call after each round of real work; passed on at most three times in a watchdog's span."""
        now = self._monotonic()
        if self.watched and now - self._last >= self._interval / 3:
            self._last = now
            self._send("WATCHDOG=1", "")

    def _send(self, state: str, status: str) -> None:
        if not self._address:
            return
        text = "\n".join(part for part in (state, f"STATUS={status.splitlines()[0]}" if status else "") if part)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.connect(self._address)
                sock.sendall(text.encode())
        except OSError:  # systemd went away, or restarts itself: nothing that we could do about it
            return


def _watchdog_seconds(environment: Mapping[str, str]) -> float:
    """``$WATCHDOG_USEC`` in seconds when it is meant for this process, else 0."""
    try:
        if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
            return 0.0
        return max(0.0, int(environment.get("WATCHDOG_USEC", "0")) / 1e6)
    except ValueError:
        return 0.0
