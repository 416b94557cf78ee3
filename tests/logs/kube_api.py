"""A small Kubernetes API server: pods and their logs, over HTTPS with a token.

It follows what the real one does with logs: ``sinceTime`` counts in whole seconds and includes them, ``follow`` ends
with the container, stamps have nine digits, ``previous`` is the log before the last restart.
"""

from __future__ import annotations

import json
import ssl
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import trustme


@dataclass
class Container:
    """A container and its log: (stamp, text) in the order written."""

    lines: list[tuple[str, str]] = field(default_factory=list)
    previous: list[tuple[str, str]] | None = None
    restarts: int = 0
    generation: int = 0


class KubeApi:
    """Serves until closed. ``cut`` ends the open streams in the middle of a line."""

    def __init__(self, folder: Path) -> None:
        self.pods: dict[str, dict[str, Container]] = {}
        self.labels: dict[str, str] = {}
        self.token = "first"
        self.refuse: tuple[int, str] | None = None
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.changed = threading.Condition()
        self.cuts = 0
        self.closed = False
        authority = trustme.CA()
        authority.cert_pem.write_to_path(folder / "ca.crt")
        (folder / "token").write_text("first\n")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                api.answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # a client that hangs up is no fault

        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()

    def close(self) -> None:
        """End all streams and the server."""
        with self.changed:
            self.closed = True
            self.changed.notify_all()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def write(self, pod: str, *lines: tuple[str, str], container: str = "server") -> None:
        """Append lines to a container's log."""
        with self.changed:
            self.pods.setdefault(pod, {}).setdefault(container, Container()).lines += lines
            self.changed.notify_all()

    def restart(self, pod: str, container: str = "server") -> None:
        """The container ends and begins anew: its log becomes the previous one."""
        with self.changed:
            item = self.pods[pod][container]
            item.previous, item.lines = item.lines, []
            item.restarts += 1
            item.generation += 1
            self.changed.notify_all()

    def cut(self) -> None:
        """Break all open streams in the middle of a line."""
        with self.changed:
            self.cuts += 1
            self.changed.notify_all()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(request.path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        self.requests.append((parts.path, query))
        names = parts.path.split("/")[6:]
        if request.headers["Authorization"] != f"Bearer {self.token}":
            self.status(request, 401, "Unauthorized")
        elif self.refuse is not None:
            self.status(request, *self.refuse)
        elif not names:
            chosen = [name for name in self.pods if query.get("labelSelector") in (None, self.labels.get(name))]
            self.json(request, {"items": [self.describe(name) for name in chosen]})
        elif names[0] not in self.pods:
            self.status(request, 404, f'pods "{names[0]}" not found')
        elif len(names) == 1:
            self.json(request, self.describe(names[0]))
        else:
            self.stream(request, self.pods[names[0]][query["container"]], query)

    def describe(self, pod: str) -> dict[str, Any]:
        containers = self.pods[pod]
        return {
            "metadata": {"name": pod},
            "spec": {"containers": [{"name": name} for name in containers]},
            "status": {
                "containerStatuses": [
                    {"name": name, "restartCount": item.restarts} for name, item in containers.items()
                ]
            },
        }

    @staticmethod
    def status(request: BaseHTTPRequestHandler, code: int, message: str) -> None:
        KubeApi.json(request, {"kind": "Status", "message": message, "code": code}, code)

    @staticmethod
    def json(request: BaseHTTPRequestHandler, value: Any, code: int = 200) -> None:
        body = json.dumps(value).encode()
        request.send_response(code)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    def stream(self, request: BaseHTTPRequestHandler, container: Container, query: dict[str, str]) -> None:
        lines = container.lines
        if query.get("previous"):
            if container.previous is None:
                self.status(request, 400, "previous terminated container not found")
                return
            lines = container.previous
        since = query.get("sinceTime", "")[:19]
        request.send_response(200)
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        sent = len(lines) - int(query["tailLines"]) if "tailLines" in query else 0
        generation, cuts = container.generation, self.cuts
        while True:
            with self.changed:
                new, sent = lines[sent:], len(lines)
                over = not query.get("follow") or container.generation != generation or self.closed
                if not new and not over and self.cuts == cuts:
                    self.changed.wait(5.0)
                    continue
            text = "".join(f"{stamp} {line}\n" for stamp, line in new if stamp[:19] >= since)
            if self.cuts != cuts:
                chunk(request, b"2026-11-20T09:59:59.000000000Z half a li")
                request.close_connection = True
                request.connection.close()
                return
            chunk(request, text.encode())
            if over:
                request.wfile.write(b"0\r\n\r\n")
                return


def chunk(request: BaseHTTPRequestHandler, data: bytes) -> None:
    if data:
        request.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
