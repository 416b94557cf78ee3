"""HTTP in front of the engine: OpenAI's completions and chat, health, models, metrics.

A thread for each connection, no framework. Note what ``/health`` looks at: a flag that the engine sets when it *knows*
that it is down. It does not look at whether the loop moves, and neither do the engines whose behaviour this is.
"""

from __future__ import annotations

import json
import select
import socket
import threading
import time
import traceback
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Empty
from typing import Any, Final
from urllib.parse import urlsplit

from .engine import Engine, EngineDown, RequestFailed, Ticket
from .state import describe
from .voice.base import Voice

__all__ = ["Server"]

LARGEST_BODY: Final = 8 << 20
LOOK_SECONDS: Final = 0.5  # how often a waiting connection looks whether its client is still there
STOP_TOKEN: Final = 10  # a line feed ends an answer, unless the client asks for all of its tokens


class Server:
    """Listens on ``host:port`` (0 picks one) and serves until :meth:`stop`."""

    def __init__(
        self,
        engine: Engine,
        voice: Voice,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        device: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        self.engine, self.voice, self.model, self.device = engine, voice, voice.model, device
        threading.stack_size(512 << 10)  # hundreds of connections may wait at once
        self.httpd = _Httpd((host, port), _Handler)
        self.httpd.app = self
        self.host, self.port = host, int(self.httpd.server_address[1])
        self.stopped = threading.Event()

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def metrics_url(self) -> str:
        return self.url + self.voice.metrics_path

    def start(self) -> None:
        self.engine.start()
        threading.Thread(target=self.httpd.serve_forever, args=(0.1,), daemon=True).start()
        threading.Thread(target=self._timer, daemon=True).start()
        self.voice.ready(str(self.host), self.port)

    def stop(self) -> None:
        self.stopped.set()
        self.httpd.shutdown()
        self.httpd.server_close()
        self.engine.stop()

    def _timer(self) -> None:
        """The front end's own thread: stats lines of engines that print them by the clock, and a look at the engine."""
        interval = self.voice.stats_interval or 10.0
        last = time.monotonic()
        while not self.stopped.wait(1.0):
            if not self.engine.alive and not self.engine.down and self.engine.after_crash != "zombie":
                self.engine.down = "engine process died"
                self.voice.lost()
            now = time.monotonic()
            if self.voice.stats_interval and now - last >= interval:
                self.voice.timer(self.engine, now - last)
                last = now


class _Httpd(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024
    app: Server

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that is gone is no news; anything else is printed by the handler itself."""


class _Gone(Exception):
    """The client has closed its end."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Httpd

    @property
    def app(self) -> Server:
        return self.server.app

    def do_GET(self) -> None:
        engine, voice = self.app.engine, self.app.voice
        path = urlsplit(self.path).path
        if path == "/health":
            self._send(HTTPStatus.SERVICE_UNAVAILABLE if engine.down else HTTPStatus.OK, b"")
        elif path == "/v1/models":
            self._json(
                {"object": "list", "data": [{"id": self.app.model, "object": "model", "owned_by": "reproducer"}]}
            )
        elif path == voice.metrics_path:
            self._send(HTTPStatus.OK, voice.page(engine).encode(), "text/plain; version=0.0.4; charset=utf-8")
        elif path == "/metrics" and (records := voice.records()) is not None:
            self._json(records)
        elif path == "/reproducer/state":
            self._json(describe(engine, self.app.device))
        else:
            self._problem(HTTPStatus.NOT_FOUND, f"no such path: {path}")

    def do_POST(self) -> None:
        try:
            chat = {"/v1/completions": False, "/v1/chat/completions": True}[urlsplit(self.path).path]
        except KeyError:
            self._problem(HTTPStatus.NOT_FOUND, f"no such path: {self.path}")
            return
        ticket: Ticket | None = None
        try:
            body = self._body()
            prompt = _prompt(body, chat)
            limit = body.get("max_tokens") or body.get("max_completion_tokens") or 16
            ticket = self.app.engine.submit(prompt, int(limit), None if body.get("ignore_eos") else STOP_TOKEN)
            (self._stream if body.get("stream") else self._answer)(ticket, chat)
        except EngineDown as error:
            self._problem(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        except RequestFailed as error:
            self.app.voice.request_error(str(error), traceback.format_exc())
            self._problem(HTTPStatus.BAD_REQUEST, str(error))
        except (ValueError, TypeError, AttributeError) as error:
            self._problem(HTTPStatus.BAD_REQUEST, str(error))
        except (_Gone, ConnectionError):
            if ticket:
                self.app.engine.cancel(ticket)
            self.close_connection = True

    def _answer(self, ticket: Ticket, chat: bool) -> None:
        tokens: list[int] = []
        while (event := self._next(ticket)) is not None:
            tokens += event
        request = ticket.request
        usage = {
            "prompt_tokens": len(request.prompt),
            "completion_tokens": len(tokens),
            "total_tokens": len(request.prompt) + len(tokens),
        }
        self._json({**self._frame(ticket, chat, _text(tokens), request.finish_reason, whole=True), "usage": usage})

    def _stream(self, ticket: Ticket, chat: bool) -> None:
        """Server-sent events. The head, and with it the status 200, is sent before anything is scheduled."""
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            while (event := self._next(ticket)) is not None:
                self._event(self._frame(ticket, chat, _text(event), None, whole=False))
            self._event(self._frame(ticket, chat, "", ticket.request.finish_reason, whole=False))
        except RequestFailed as error:
            self.app.voice.request_error(str(error), traceback.format_exc())
            self._event({"error": {"message": str(error), "type": "BadRequestError", "code": 400}})
        except EngineDown as error:
            self._event({"error": {"message": str(error), "type": "ServiceUnavailable", "code": 503}})
        self.wfile.write(b"data: [DONE]\n\n")

    def _next(self, ticket: Ticket) -> list[int] | None:
        """Tokens, or None at the end; raises what the engine sent instead, or _Gone."""
        while True:
            try:
                event = ticket.events.get(timeout=LOOK_SECONDS)
            except Empty:
                self._look()
                continue
            if isinstance(event, Exception):
                raise event
            return event

    def _look(self) -> None:
        readable, _, _ = select.select([self.connection], [], [], 0)
        if readable and not self.connection.recv(1, socket.MSG_PEEK):
            raise _Gone

    def _frame(self, ticket: Ticket, chat: bool, text: str, reason: str | None, *, whole: bool) -> dict[str, Any]:
        if not chat:
            choice: dict[str, Any] = {"text": text}
        elif whole:
            choice = {"message": {"role": "assistant", "content": text}}
        else:
            choice = {"delta": {"content": text} if text else {}}
        kind = "chat.completion" if chat else "text_completion"
        return {
            "id": f"{'chatcmpl' if chat else 'cmpl'}-{ticket.request.id}",
            "object": kind if whole or not chat else "chat.completion.chunk",
            "created": int(ticket.born),
            "model": self.app.model,
            "choices": [{"index": 0, **choice, "finish_reason": reason}],
        }

    def _body(self) -> dict[str, Any]:
        size = int(self.headers.get("Content-Length") or 0)
        if not 0 < size <= LARGEST_BODY:
            raise ValueError(f"the body has {size} bytes; it must have 1 to {LARGEST_BODY}")
        body = json.loads(self.rfile.read(size))
        if not isinstance(body, dict):
            raise ValueError("the body must be a JSON object")
        return body

    def _event(self, data: dict[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(data).encode() + b"\n\n")

    def _json(self, data: Any) -> None:
        self._send(HTTPStatus.OK, json.dumps(data).encode(), "application/json")

    def _problem(self, status: HTTPStatus, message: str) -> None:
        error = {"object": "error", "message": message, "type": status.phrase, "code": int(status)}
        self._send(status, json.dumps(error).encode(), "application/json")

    def _send(self, status: HTTPStatus, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except ConnectionError:
            self.close_connection = True

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        if self.path == "/reproducer/state":
            return  # not the engine's business
        status = HTTPStatus(int(code))
        peer = f"{self.client_address[0]}:{self.client_address[1]}"
        self.app.voice.access(peer, self.requestline, int(status), status.phrase)

    def log_message(self, format: str, *args: Any) -> None:
        """Only requests are logged, by :meth:`log_request`."""


def _prompt(body: dict[str, Any], chat: bool) -> bytes | list[int]:
    """The prompt as tokens: the bytes of the text, or the numbers given."""
    if chat:
        messages = body["messages"] if isinstance(body.get("messages"), list) else []
        text = "\n".join(str(message.get("content") or "") for message in messages)
        return text.encode()
    prompt = body.get("prompt")
    if isinstance(prompt, list) and prompt and all(isinstance(token, int) and 0 <= token < 256 for token in prompt):
        return prompt
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str):
        raise ValueError("prompt must be a text, or a list of token numbers from 0 to 255")
    return prompt.encode()


def _text(tokens: list[int]) -> str:
    return bytes(tokens).decode("utf-8", "replace")
