"""A web server over the scene, and a client that shows what comes over the wire."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from agent.telemetry import Telemetry
from agent.web.server import WebServer
from tests.web.scene import MemoryView, bad_night


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """One request a connection, headers as given."""

    def __init__(self, server: WebServer, view: MemoryView) -> None:
        self.server, self.view = server, view

    def __call__(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Reply:
        host, port = self.server.address
        connection = http.client.HTTPConnection(host, port, timeout=20)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            response = connection.getresponse()
            read = response.read()
            return Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, read)
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Reply:
        return self("GET", path, **headers)


Serve = Callable[..., Client]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """``serve(view, **options)`` starts a server on a free port and hands out its client."""
    with contextlib.ExitStack() as stack:

        def start(view: MemoryView | None = None, **options: Any) -> Client:
            view = view or bad_night()
            telemetry = Telemetry(version="0.1.0", process=False)
            server = WebServer(
                view,
                telemetry,
                **{"listen_address": "127.0.0.1:0", "event_gap": 0.02, "poll_interval": 0.01, **options},
            )
            server.start()
            stack.callback(server.close)
            return Client(server, view)

        yield start


@pytest.fixture
def client(serve: Serve) -> Client:
    return serve()
