"""Name look-ups with a time limit, which ``getaddrinfo`` has not."""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["LookupFailed", "Lookups"]


class LookupFailed(Exception):
    """The name has no address; the text says why."""


class Lookups:
    """One thread for each name that is being looked up, shared by all who wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[tuple[str, int], _Lookup] = {}

    def resolve(self, host: str, port: int, timeout: float) -> list[Any]:
        """Addresses as ``getaddrinfo`` gives them. Raises TimeoutError or :class:`LookupFailed`."""
        try:
            ipaddress.ip_address(host)
        except ValueError:
            pass
        else:
            return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        with self._lock:
            lookup = self._running.get((host, port))
            if lookup is None:
                lookup = self._running[host, port] = _Lookup(host, port, self._forget)
                lookup.start()
        if not lookup.done.wait(max(0.0, timeout)):
            raise TimeoutError
        if lookup.error is not None:
            raise LookupFailed(lookup.error)
        return lookup.addresses

    def _forget(self, host: str, port: int) -> None:
        with self._lock:
            self._running.pop((host, port), None)


class _Lookup(threading.Thread):
    def __init__(self, host: str, port: int, forget: Callable[[str, int], None]) -> None:
        super().__init__(name=f"resolve {host}", daemon=True)
        self._host, self._port, self._forget = host, port, forget
        self.done = threading.Event()
        self.addresses: list[Any] = []
        self.error: str | None = None

    def run(self) -> None:
        try:
            self.addresses = list(socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM))
        except OSError as error:
            self.error = error.strerror or str(error)
        except UnicodeError:
            self.error = "it is no host name"
        finally:
            self._forget(self._host, self._port)
            self.done.set()
