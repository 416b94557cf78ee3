"""A server of raw bytes on the loopback: each connection is handed to a function, so that it can do what no HTTP
library would."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator

__all__ = ["Server", "answer", "read_request", "serve"]

Handler = Callable[[socket.socket, threading.Event], None]


class Server:
    """``port`` to connect to; ``requests`` are the heads that came in; ``connections`` counts."""

    def __init__(self, handler: Handler, context: ssl.SSLContext | None = None) -> None:
        self._handler = handler
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.stop = threading.Event()
        self.connections = 0
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        while not self.stop.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            if self.stop.is_set():
                connection.close()
                return
            self.connections += 1
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            if self._context is None:
                self._handler(connection, self.stop)
            else:
                with self._context.wrap_socket(connection, server_side=True) as secured:
                    self._handler(secured, self.stop)

    def close(self) -> None:
        self.stop.set()
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()  # wakes accept()
        self._listener.close()
        self._accepting.join(5)
        for thread in self._threads:
            thread.join(5)


@contextlib.contextmanager
def serve(handler: Handler, context: ssl.SSLContext | None = None) -> Iterator[Server]:
    server = Server(handler, context)
    try:
        yield server
    finally:
        server.close()


def read_request(connection: socket.socket) -> bytes:
    """The head of a request and, by its length, the body."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            return data
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            missing = int(line.split(b":")[1]) - len(body)
            while missing > 0:
                more = connection.recv(missing)
                body += more
                missing -= len(more)
    return head + b"\r\n\r\n" + body


def answer(
    body: bytes,
    *,
    status: str = "200 OK",
    headers: str = "",
    length: int | None = None,
    seen: list[bytes] | None = None,
) -> Handler:
    """A handler that gives one answer; ``length`` promises another length than is sent."""

    def handle(connection: socket.socket, stop: threading.Event) -> None:
        request = read_request(connection)
        if seen is not None:
            seen.append(request)
        size = len(body) if length is None else length
        connection.sendall(f"HTTP/1.1 {status}\r\nContent-Length: {size}\r\n{headers}\r\n".encode() + body)

    return handle
