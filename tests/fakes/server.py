"""A fake service: the shipped local receiver's contracts, with faults on demand.

``script`` holds one-off behaviours, used up one a request; when it is empty the service behaves. A behaviour is a
:class:`Reply` or a function of the connection: :func:`hang`, :func:`drip`, :func:`reset`, :func:`lie`, ...
"""

from __future__ import annotations

import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

from integrations.local_receiver import Arrival, Desk, LocalReceiver, Reply

__all__ = [
    "Behaviour",
    "FakeService",
    "busy",
    "drip",
    "drip_body",
    "hang",
    "huge",
    "lie",
    "not_http",
    "redirect",
    "reset",
]

Behaviour = Reply | Callable[["FakeService", BaseHTTPRequestHandler, bytes], Reply | None]
DEALT_WITH = Reply(0)


class FakeService:
    """Use as a context manager. ``attempts`` are all requests, ``arrivals`` those that the service itself saw."""

    def __init__(self, *script: Behaviour, desk: Desk | None = None, forever: Behaviour | None = None) -> None:
        self.script: deque[Behaviour] = deque(script)
        self.forever = forever
        self.attempts: list[tuple[str, str, dict[str, str], bytes]] = []
        self.closing = threading.Event()
        self._lock = threading.Lock()
        self._receiver = LocalReceiver(desk=desk or self.new_desk(), before=self._before)

    def new_desk(self) -> Desk:
        return Desk()

    def _before(self, handler: BaseHTTPRequestHandler, data: bytes) -> Reply | None:
        with self._lock:
            self.attempts.append((handler.command, handler.path, dict(handler.headers.items()), data))
            behaviour = self.script.popleft() if self.script else self.forever
        if behaviour is None or isinstance(behaviour, Reply):
            return behaviour
        return behaviour(self, handler, data)

    @property
    def desk(self) -> Desk:
        return self._receiver.desk

    @property
    def arrivals(self) -> list[Arrival]:
        return self._receiver.desk.arrivals

    @property
    def bodies(self) -> list[Any]:
        """What was accepted, in order."""
        return [arrival.body for arrival in self.arrivals if arrival.accepted]

    @property
    def url(self) -> str:
        return self._receiver.url

    @property
    def port(self) -> int:
        return self._receiver.port

    def __enter__(self) -> FakeService:
        self._receiver.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._receiver.__exit__()


# -- behaviours -----------------------------------------------------------------------------------------------------


def hang(service: FakeService, handler: BaseHTTPRequestHandler, data: bytes) -> Reply:
    """Takes the request and never answers."""
    service.closing.wait(30)
    return DEALT_WITH


def drip(service: FakeService, handler: BaseHTTPRequestHandler, data: bytes) -> Reply:
    """Answers a byte every few milliseconds, without end: every single read is quick."""
    return _slowly(service, handler, b"HTTP/1.1 200 OK\r\nX-Filler: " + b"x" * 100_000)


def drip_body(service: FakeService, handler: BaseHTTPRequestHandler, data: bytes) -> Reply:
    """Status and headers at once, then the body a byte at a time, without end."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    return _slowly(service, handler, b"o" * 100_000)


def _slowly(service: FakeService, handler: BaseHTTPRequestHandler, data: bytes) -> Reply:
    try:
        for byte in data:
            handler.wfile.write(bytes([byte]))
            handler.wfile.flush()
            if service.closing.wait(0.01):
                break
    except OSError:
        pass  # the client had enough, which is what is tested
    return DEALT_WITH


def reset(service: FakeService, handler: BaseHTTPRequestHandler, data: bytes) -> Reply:
    """Tears the connection down."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()
    return DEALT_WITH


def accept_then_reset(service: FakeService, handler: BaseHTTPRequestHandler, data: bytes) -> Reply:
    """Does what was asked, and tears the connection down before saying so."""
    service.desk.answer(handler.command, handler.path.partition("?")[0], dict(handler.headers.items()), data)
    return reset(service, handler, data)


def not_http(service: FakeService, handler: BaseHTTPRequestHandler, data: bytes) -> Reply:
    """Speaks something else."""
    handler.wfile.write(b"\x15\x03\x01\x00\x02\x02\x50 SSH-2.0\r\n\r\n")
    return DEALT_WITH


def huge(service: FakeService, handler: BaseHTTPRequestHandler, data: bytes) -> Reply:
    """Refuses with fifty megabytes of binary."""
    try:
        handler.wfile.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 52428800\r\n\r\n")
        for _ in range(800):
            handler.wfile.write(b"\x00\x1b[31m\xff" * 8192)
    except OSError:
        pass  # the client reads only the beginning
    return DEALT_WITH


def redirect(service: FakeService, handler: BaseHTTPRequestHandler, data: bytes) -> Reply:
    """Sends the client to a login page."""
    return Reply(302, b"", {"Location": "https://sso.example.com/login?next=secret"})


def lie(service: FakeService, handler: BaseHTTPRequestHandler, data: bytes) -> Reply:
    """A proxy's login page with status 200."""
    return Reply(200, b"<html><title>Sign in</title></html>", content_type="text/html")


def busy(seconds: str | None = None, body: bytes = b"") -> Reply:
    """429, with or without Retry-After."""
    return Reply(429, body, {} if seconds is None else {"Retry-After": seconds})
