"""A receiver on this machine that speaks Slack's and PagerDuty's contracts and prints what arrived.

``python -m integrations.local_receiver --port 0 --port-file F``. The demonstration sends to it, the tests' fakes build
on it, and it is handy for a first look at messages: point ``api_url`` at ``http://127.0.0.1:PORT/slack``. It refuses
what the real services refuse (:mod:`integrations.contracts`).

Paths: ``/slack`` and ``/services/...`` incoming webhook; ``/api/chat.postMessage``, ``/api/chat.update`` Slack's Web
API; ``/v2/enqueue``, ``/v2/change/enqueue`` PagerDuty; anything else takes any JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import urlsplit

from integrations.contracts import pagerduty_change_faults, pagerduty_faults, slack_fault

__all__ = ["Arrival", "Desk", "LocalReceiver", "Reply", "main"]

_BODY_LIMIT: Final = 4 * 1024 * 1024
_DATE: Final = re.compile(r"<!date\^[^|>]*\|([^>]*)>")
"""Slack's own form of a time, with the text that stands for it where it cannot be shown."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request and how it was answered."""

    service: str
    method: str
    path: str
    headers: Mapping[str, str]
    body: Any
    status: int
    at: float

    @property
    def accepted(self) -> bool:
        """Whether the service took it; Slack's Web API says no with 200."""
        return 200 <= self.status < 300


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer; status 0: none is sent, the connection was dealt with otherwise."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/json"

    @classmethod
    def text(cls, status: int, text: str, **headers: str) -> Reply:
        return cls(status, text.encode(), headers, "text/plain")

    @classmethod
    def json(cls, status: int, value: Any, **headers: str) -> Reply:
        return cls(status, json.dumps(value).encode(), headers)


class Desk:
    """Answers requests as the services would; no sockets. Thread-safe.

    ``messages`` are Slack's by timestamp, ``alerts`` PagerDuty's by dedup key (``open``, ``acknowledged``,
    ``resolved``), ``arrivals`` everything.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.arrivals: list[Arrival] = []
        self.messages: dict[str, dict[str, Any]] = {}
        self.alerts: dict[str, str] = {}
        self._clock = clock
        self._lock = threading.Lock()
        self._count = 0

    def answer(self, method: str, path: str, headers: Mapping[str, str], data: bytes) -> Reply:
        """The answer to one request, which is noted."""
        try:
            body: Any = json.loads(data)
        except (ValueError, RecursionError):
            body = None
        with self._lock:
            service, reply = self._route(method, path, headers, body, len(data))
            refused = reply.status == 200 and b'"ok": false' in reply.body
            noted = 400 if refused else reply.status
            self.arrivals.append(Arrival(service, method, path, dict(headers), body, noted, self._clock()))
        return reply

    def _route(self, method: str, path: str, headers: Mapping[str, str], body: Any, size: int) -> tuple[str, Reply]:
        if path.endswith(("/api/chat.postMessage", "/api/chat.update")):
            return "slack api", self._slack_api(path.rpartition("/")[2], headers, body)
        if path.startswith(("/slack", "/services/")):
            fault = slack_fault(body)
            return "slack", Reply.text(400, fault) if fault else Reply.text(200, "ok")
        if path.endswith("/v2/change/enqueue"):
            return "pagerduty change", self._pagerduty(pagerduty_change_faults(body), body, size)
        if path.endswith("/v2/enqueue"):
            return "pagerduty", self._pagerduty(pagerduty_faults(body), body, size)
        if method == "GET" or not size or body is not None:  # a heartbeat has no body
            return "webhook", Reply.json(200, {})
        return "webhook", Reply.text(400, "no JSON")

    def _slack_api(self, name: str, headers: Mapping[str, str], body: Any) -> Reply:
        def no(error: str) -> Reply:
            return Reply.json(200, {"ok": False, "error": error})

        given = {key.lower(): value for key, value in headers.items()}
        if not given.get("authorization", "").startswith("Bearer xoxb-"):
            return no("not_authed" if "authorization" not in given else "invalid_auth")
        fault = slack_fault(body)
        if fault:
            return no(fault)
        channel = body.get("channel")
        if not isinstance(channel, str) or not channel:
            return no("channel_not_found")
        if name == "chat.update":
            if not channel.startswith("C"):
                return no("channel_not_found")  # a name is not accepted here
            if body.get("ts") not in self.messages:
                return no("message_not_found")
            self.messages[body["ts"]] = {**self.messages[body["ts"]], **body}
            return Reply.json(200, {"ok": True, "ts": body["ts"], "channel": channel})
        self._count += 1
        stamp = f"{1700000000 + self._count}.{self._count:06d}"
        known = channel if channel.startswith("C") else "C0LOCAL"
        self.messages[stamp] = {**body, "channel": known}
        return Reply.json(200, {"ok": True, "ts": stamp, "channel": known})

    def _pagerduty(self, faults: list[str], body: Any, size: int) -> Reply:
        if size > 512 * 1024:
            return Reply.json(413, {"status": "error", "message": "Event is too large", "errors": ["too large"]})
        if faults:
            return Reply.json(400, {"status": "invalid event", "message": "Event object is invalid", "errors": faults})
        key = str(body.get("dedup_key") or f"made-{len(self.arrivals)}")
        action = body.get("event_action")
        if action == "trigger":
            self.alerts[key] = "open"
        elif action in {"acknowledge", "resolve"} and self.alerts.get(key, "resolved") != "resolved":
            self.alerts[key] = "acknowledged" if action == "acknowledge" else "resolved"
        return Reply.json(202, {"status": "success", "message": "Event processed", "dedup_key": key})


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are no news; anything else is printed as usual."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class LocalReceiver:
    """A :class:`Desk` behind HTTP on loopback. ``before`` may answer first (None: the desk does)."""

    def __init__(
        self,
        port: int = 0,
        *,
        desk: Desk | None = None,
        on_arrival: Callable[[Arrival], None] | None = None,
        before: Callable[[BaseHTTPRequestHandler, bytes], Reply | None] | None = None,
    ) -> None:
        self.desk = desk or Desk()
        self._server = _Server(("127.0.0.1", port), _handler(self.desk, on_arrival, before))
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, name="local receiver", daemon=True
        )

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> LocalReceiver:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


def _handler(
    desk: Desk,
    on_arrival: Callable[[Arrival], None] | None,
    before: Callable[[BaseHTTPRequestHandler, bytes], Reply | None] | None,
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30

        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            if length > _BODY_LIMIT:
                self.close_connection = True
                self._send(Reply.text(413, "too large"))
                return
            data = self.rfile.read(length)
            reply = before(self, data) if before is not None else None
            if reply is None:
                path = urlsplit(self.path).path
                reply = desk.answer(self.command, path, dict(self.headers.items()), data)
                if on_arrival is not None:
                    on_arrival(desk.arrivals[-1])
            self._send(reply)

        do_GET = do_POST = do_PATCH = do_PUT = _serve

        def _send(self, reply: Reply) -> None:
            if reply.status == 0:  # whoever answered before us has dealt with the connection
                self.close_connection = True
                return
            with contextlib.suppress(ConnectionError):
                self.send_response(reply.status)
                self.send_header("Content-Type", reply.content_type)
                self.send_header("Content-Length", str(len(reply.body)))
                for name, value in reply.headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.end_headers()
                self.wfile.write(reply.body)

        def log_message(self, format: str, *args: Any) -> None:
            """Requests are printed by what they hold, not as a web server would."""

    return Handler


# -- what a person sees ---------------------------------------------------------------------------------------------


def describe(arrival: Arrival) -> str:
    """An arrival as a few lines of text."""
    verdict = "accepted" if arrival.accepted else f"REFUSED ({arrival.status})"
    head = f"--> {arrival.service}: {verdict}"
    body = arrival.body if isinstance(arrival.body, Mapping) else {}
    if arrival.service.startswith("slack"):
        lines = [str(body.get("text", ""))] if not body.get("blocks") else list(_slack_lines(body["blocks"]))
        what = " (edit)" if arrival.path.endswith("update") else " (thread reply)" if body.get("thread_ts") else ""
        return "\n".join([head + what, *(f"    {line}" for text in lines for line in text.split("\n"))])
    if arrival.service == "pagerduty":
        payload = body.get("payload", {})
        return "\n".join(
            [
                f"{head} {body.get('event_action')} {body.get('dedup_key')}",
                *([f"    {payload.get('severity')}: {payload.get('summary')}"] if payload else []),
            ]
        )
    if arrival.service == "pagerduty change":
        return f"{head} {body.get('payload', {}).get('summary')}"
    return f"{head} {json.dumps(arrival.body, ensure_ascii=False)[:400]}"


def _slack_lines(blocks: Sequence[Any]) -> Sequence[str]:
    lines: list[str] = []
    for block in blocks:
        if not isinstance(block, Mapping):
            continue
        if block.get("type") == "header":
            lines.append(block["text"]["text"])
        elif block.get("type") == "actions":
            lines.append("  ".join(f"[{item['text']['text']}] {item.get('url', '')}" for item in block["elements"]))
        else:
            parts = [block["text"]] if "text" in block else []
            parts += [*block.get("fields", ()), *block.get("elements", ())]
            lines += [
                part["text"].replace("*\n", "* ") if part in block.get("fields", ()) else part["text"] for part in parts
            ]
    lines = [_DATE.sub(r"\1", line) for line in lines]
    return [line.replace("```", "").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&") for line in lines]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command: serves until a signal, printing what arrives."""
    parser = argparse.ArgumentParser(prog="python -m integrations.local_receiver", description=__doc__.split("\n")[0])
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 chooses a free one")
    parser.add_argument("--port-file", default="", help="file that gets the port's number once it is open")
    parser.add_argument("--record", default="", help="file that gets each arrival as a line of JSON")
    parser.add_argument("--quiet", action="store_true", help="print nothing")
    options = parser.parse_args(arguments)
    record = open(options.record, "a", encoding="utf-8") if options.record else None  # noqa: SIM115  # until the end
    lock = threading.Lock()

    def show(arrival: Arrival) -> None:
        with lock:
            if not options.quiet:
                print(describe(arrival) + "\n", flush=True)
            if record is not None:
                line = {
                    "service": arrival.service,
                    "path": arrival.path,
                    "status": arrival.status,
                    "body": arrival.body,
                }
                record.write(json.dumps(line) + "\n")
                record.flush()

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        with LocalReceiver(options.port, on_arrival=show) as receiver:
            if options.port_file:
                temporary = f"{options.port_file}.{os.getpid()}"
                with open(temporary, "w", encoding="ascii") as handle:
                    handle.write(f"{receiver.port}\n")
                os.replace(temporary, options.port_file)  # whoever waits for the file never reads half of it
            if not options.quiet:
                print(f"local receiver on {receiver.url} (Slack: /slack, PagerDuty: /v2/enqueue)", flush=True)
            stop.wait()
    except OSError as error:
        reason = error.strerror or str(error)
        where = error.filename or f"127.0.0.1:{options.port} (--port 0 chooses a free one)"
        print(f"local receiver: {where}: {reason}", file=sys.stderr)
        return 1
    finally:
        if record is not None:
            record.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
