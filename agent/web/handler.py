"""One connection's conversation: reads a request within bounds, asks the API, writes the answer."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

from agent.telemetry import Telemetry
from agent.web.access import Guard
from agent.web.api import Api
from agent.web.assets import CONTENT_SECURITY_POLICY
from agent.web.connections import Connections
from agent.web.http import MAX_BODY, HttpError, Request, Response, json_response

__all__ = ["Handler", "Shared"]

log = logging.getLogger("wedgewatch.web")

MAX_HEADER: Final = 32 * 1024
SOCKET_TIMEOUT: Final = 30.0
_COMPRESS_FROM: Final = 1400  # bytes; below, one packet carries it anyway
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_SECURITY_HEADERS: Final = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


@dataclass(frozen=True, slots=True)
class Shared:
    """What every connection's thread needs."""

    api: Api
    guard: Guard
    connections: Connections
    telemetry: Telemetry


class _Budget:
    """A reader that gives at most so many bytes of header lines a request."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self.left = MAX_HEADER

    def readline(self, limit: int = -1) -> bytes:
        line: bytes = self._reader.readline(min(limit if limit >= 0 else self.left + 1, self.left + 1))
        self.left -= len(line)
        if self.left < 0:
            raise HttpError(431, f"The header is larger than {MAX_HEADER} bytes.")
        return line

    def read(self, size: int) -> bytes:
        body: bytes = self._reader.read(size)
        return body

    def close(self) -> None:
        self._reader.close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "wedgewatch"
    sys_version = ""
    timeout = SOCKET_TIMEOUT
    disable_nagle_algorithm = True
    wbufsize = 64 * 1024

    def __init__(self, request: Any, client_address: Any, server: Any, *, shared: Shared) -> None:
        self._shared = shared
        self._refused = False
        super().__init__(request, client_address, server)

    def setup(self) -> None:
        super().setup()
        self._budget = _Budget(self.rfile)
        self.rfile = self._budget  # type: ignore[assignment]  # the three methods that the parent uses of a reader

    def finish(self) -> None:
        super().finish()
        if self._refused:
            self._linger()

    def _linger(self) -> None:
        """Reads what a refused client still sends, for a moment: closing over unread bytes resets the connection, and
        the client would lose the answer that says why."""
        left = 1 << 20
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.connection, socket.SHUT_WR)
            self.connection.settimeout(0.5)
            while left > 0 and (chunk := self.connection.recv(65536)):
                left -= len(chunk)

    def handle_one_request(self) -> None:
        shared = self._shared
        self._budget.left = MAX_HEADER
        shared.connections.enter(self.connection, "idle")
        self.close_connection = True  # until the request was understood: never guess where the next one begins
        try:
            self.raw_requestline = self.rfile.readline(65537)
            if not self.raw_requestline:
                return
            shared.connections.enter(self.connection, "reading")
            if not self.parse_request():
                return
            if self.request_version == "HTTP/0.9":
                raise HttpError(505, "Speak HTTP/1.1 or HTTP/1.0.")
            keep, self.close_connection = not self.close_connection, True
            request = self._read_request()
            self.close_connection = not keep
        except HttpError as error:
            self._refused = True
            self._send(_error(error), "other", head=False)
            return
        except TimeoutError:
            return
        shared.connections.enter(self.connection, "answering")
        handler, response = self._answer(request)
        self._send(response, handler, head=request.method == "HEAD", accept=request.headers.get("accept-encoding", ""))

    def _read_request(self) -> Request:
        headers = {name.lower(): value for name, value in self.headers.items()}
        if "transfer-encoding" in headers:
            raise HttpError(501, "Send a body with Content-Length, not in chunks.")
        lengths = self.headers.get_all("content-length") or ["0"]
        if len(set(lengths)) != 1 or not (lengths[0].isascii() and lengths[0].isdigit()) or len(lengths[0]) > 12:
            raise HttpError(400, "Content-Length must be one whole number.")
        length = int(lengths[0])
        if length > MAX_BODY:
            raise HttpError(413, f"A body has at most {MAX_BODY} bytes here.")
        if self.command not in _METHODS:
            raise HttpError(501, "Unknown method.")
        body = self.rfile.read(length) if length else b""
        if len(body) != length:
            raise HttpError(400, "The body is shorter than its Content-Length.")
        return Request.parse(
            self.command,
            self.path,
            headers=headers,
            body=body,
            peer=str(self.client_address[0]),
            secure=isinstance(self.connection, ssl.SSLSocket),
        )

    def _answer(self, request: Request) -> tuple[str, Response]:
        shared = self._shared
        handler = "other"
        try:
            route = shared.api.find(request)
            handler = route.handler
            shared.guard.check(route.access, request)
            response = shared.api.answer(route, request)
        except HttpError as error:
            return handler, _error(error)
        except Exception:  # the boundary: a fault in one answer must not take the server down
            log.exception("a fault of ours in %s", handler)
            return handler, json_response({"error": "A fault inside wedgewatch; its log says more."}, 500)
        etag = response.headers.get("ETag")
        if etag and etag in [
            item.strip().removeprefix("W/") for item in request.headers.get("if-none-match", "").split(",")
        ]:
            response = replace(response, status=304, body=b"")
        return handler, response

    def _send(self, response: Response, handler: str, *, head: bool, accept: str = "") -> None:
        shared = self._shared
        shared.telemetry.inc("web_requests_total", handler=handler, code=f"{response.status // 100}xx")
        self.log_request(response.status)
        if getattr(self, "request_version", "HTTP/0.9") == "HTTP/0.9":
            self.request_version = "HTTP/1.0"  # an answer without status line would be taken for what was asked for
        body = response.body
        headers = {"Content-Type": response.content_type, **_SECURITY_HEADERS, **response.headers}
        if isinstance(body, bytes):
            if "gzip" in accept and len(body) >= _COMPRESS_FROM:
                body = _gzip(body)
                headers["Content-Encoding"] = "gzip"
            headers["Vary"] = "Accept-Encoding"
            if response.status != 304:
                headers["Content-Length"] = str(len(body))
        chunked = not isinstance(body, bytes) and "Content-Length" not in headers and not head
        if chunked:
            if self.request_version == "HTTP/1.1":
                headers["Transfer-Encoding"] = "chunked"
            else:
                self.close_connection = True
        if self.close_connection:
            headers["Connection"] = "close"
        self.send_response_only(response.status, _reason(response.status))
        self.send_header("Server", self.server_version)
        self.send_header("Date", self.date_time_string())
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if isinstance(body, bytes):
            if not head:
                self.wfile.write(body)
            self.wfile.flush()
        else:
            if handler == "events":
                shared.connections.enter(self.connection, "streaming")
            self._send_blocks(body, chunked="Transfer-Encoding" in headers, head=head)

    def _send_blocks(self, blocks: Iterator[bytes], *, chunked: bool, head: bool) -> None:
        try:
            if head:
                self.wfile.flush()
                return
            for block in blocks:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(block), block) if chunked else block)
                self.wfile.flush()
            if chunked:
                self.wfile.write(b"0\r\n\r\n")
                self.wfile.flush()
        finally:
            close = getattr(blocks, "close", None)
            if close is not None:
                close()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """The parent's own complaints (a bad request line), as JSON instead of HTML."""
        self.close_connection = self._refused = True
        text = message if message and message.isascii() and message.isprintable() else _reason(code)
        self._send(_error(HttpError(code, f"{text}.")), "other", head=False)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        if log.isEnabledFor(logging.DEBUG):
            line = ascii(getattr(self, "requestline", ""))[:300]  # escapes: a client must not write our log's lines
            log.debug("%s %s %s", self.client_address[0], line, code)

    def log_message(self, format: str, *args: Any) -> None:
        log.debug("%s %s", self.client_address[0], ascii(format % args)[:300])


def _error(error: HttpError) -> Response:
    return json_response({"error": error.message}, error.status, error.headers)


def _reason(code: int) -> str:
    try:
        return HTTPStatus(code).phrase
    except ValueError:
        return "Unknown"


def _gzip(body: bytes) -> bytes:
    packer = zlib.compressobj(4, zlib.DEFLATED, 31)
    return packer.compress(body) + packer.flush()
