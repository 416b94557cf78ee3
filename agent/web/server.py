"""The HTTP server: the standard library's threaded one, HTTP/1.1, with bounds on everything a client can send.

At most ``max_connections`` at once, deadlines for each phase of a request, 32 KiB of header, 64 KiB of body; loopback
by default, TLS and a token when configured. What an address means is :mod:`agent.web.api`'s business.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Collection
from functools import partial
from http.server import ThreadingHTTPServer
from typing import Any, Final

from agent.model import Secret
from agent.telemetry import Telemetry
from agent.web.access import Guard, is_loopback
from agent.web.api import Api
from agent.web.connections import Connections
from agent.web.events import EventBus
from agent.web.handler import Handler, Shared
from agent.web.probes import DEFAULT_CONFIDENCES
from agent.web.tls import Tls, TlsFiles
from agent.web.view import View

__all__ = ["TlsFiles", "WebServer", "parse_address"]

log = logging.getLogger("wedgewatch.web")

_HANDSHAKE: Final = 10.0  # seconds


def parse_address(text: str) -> tuple[str, int]:
    """``127.0.0.1:9464``, ``[::1]:9464``, ``:9464`` (every address). Raises ValueError with a sentence."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{text!r} is no address to listen on; write HOST:PORT, for example 127.0.0.1:9464")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r}: write an IPv6 address in brackets, for example [::1]:9464")
    return host, int(port)


class WebServer:
    """Serves ``view``. ``start`` binds and returns; ``close`` ends every connection.

    The caller publishes what changed on ``events``. Raises OSError when the address cannot be had and ValueError (or
    ssl.SSLError, an OSError) when TLS files are unusable.
    """

    def __init__(
        self,
        view: View,
        telemetry: Telemetry,
        *,
        events: EventBus | None = None,
        listen_address: str = "127.0.0.1:9464",
        token: Secret | None = None,
        tls: TlsFiles | None = None,
        hosts: Collection[str] = (),
        probe_confidences: Collection[str] = DEFAULT_CONFIDENCES,
        max_connections: int = 64,
        keep_alive: float = 15.0,
        event_gap: float = 2.0,
        poll_interval: float = 0.5,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.events = events or EventBus()
        self._telemetry = telemetry
        self._connections = Connections(max_connections, clock)
        host, port = parse_address(listen_address)
        loopback = bool(host) and is_loopback(host)
        api = Api(
            view,
            self.events,
            telemetry,
            probe_confidences=probe_confidences,
            keep_alive=keep_alive,
            event_gap=event_gap,
        )
        guard = Guard(token, loopback=loopback, hosts=hosts)
        shared = Shared(api, guard, self._connections, telemetry)
        self._server = _Server((host, port), shared, Tls(tls) if tls else None)
        self._scheme = "https" if tls else "http"
        self._poll_interval = poll_interval
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that are served; the real port when 0 was asked for."""
        name = self._server.server_address
        return str(name[0]), int(name[1])

    @property
    def url(self) -> str:
        host, port = self.address
        host = (
            "127.0.0.1"
            if host in ("0.0.0.0", "")
            else "[::1]"
            if host == "::"
            else f"[{host}]"
            if ":" in host
            else host
        )
        return f"{self._scheme}://{host}:{port}"

    def serve(self) -> None:
        """Accepts until :meth:`close`; for a caller that supervises its own threads."""
        self._server.serve_forever(self._poll_interval)

    def start(self) -> None:
        """:meth:`serve` in a thread of its own."""
        self._thread = threading.Thread(target=self.serve, name="web", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.events.close()
        if self._thread is not None:
            self.stop_serving()
            self._thread.join(5.0)
        self._server.server_close()
        self._connections.shut_all()

    def stop_serving(self) -> None:
        """Makes :meth:`serve` return; from another thread than its own."""
        ends = threading.Thread(target=self._server.shutdown, name="web end", daemon=True)
        ends.start()
        while ends.is_alive():
            # The loop sees that it is over when something happens, or at its next look, which may be seconds away.
            with contextlib.suppress(OSError):
                socket.create_connection(self._knock(), timeout=0.5).close()
            ends.join(0.1)

    def _knock(self) -> tuple[str, int]:
        host, port = self.address
        return {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host), port


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], shared: Shared, tls: Tls | None) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        self.shared = shared
        self.tls = tls
        self._converse = partial(Handler, shared=shared)
        super().__init__(address, self._converse)

    def server_bind(self) -> None:
        # Not the parent's: it looks the host's name up, which can hang for as long as a resolver does.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self.shared.connections.admit(request):
            with contextlib.suppress(OSError):
                request.setblocking(False)
                if self.tls is None:
                    request.send(b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\n\r\n")
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def finish_request(self, request: Any, client_address: Any) -> None:
        plain = request
        try:
            if self.tls is not None:
                plain.settimeout(_HANDSHAKE)
                request = self.tls.context().wrap_socket(plain, server_side=True)
                self.shared.connections.replace(plain, request)
            self._converse(request, client_address, self)
        except (OSError, ValueError) as error:  # the peer's doing: a reset, a bad handshake, a socket that was reaped
            log.debug("connection from %s ended: %s", client_address[0], error)
        finally:
            self.shared.connections.drop(request)
            self.shared.connections.drop(plain)
            if request is not plain:
                with contextlib.suppress(OSError):
                    request.close()

    def service_actions(self) -> None:
        self.shared.connections.reap()
        self.shared.telemetry.set("web_connections", len(self.shared.connections))

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.exception("a fault of ours while answering %s", client_address[0])
