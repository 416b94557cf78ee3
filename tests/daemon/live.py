"""The daemon as a process of its own, a server to look at, and waiting for what should be seen.

Nothing here sleeps for a fixed time: :func:`until` asks again until a condition holds or it has taken too long.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

__all__ = ["Live", "MetricsServer", "line", "stamp", "until", "vllm_page"]

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0
"""Seconds after which something that should happen has not; generous, since the machine may be busy."""

_T = TypeVar("_T")

RULES = """\
rules:
  - alert: EngineGone
    failure: engine_dead
    fingerprint:
      within: 10m
      stages:
        - {stage: start, severity: INFO, optional: true, any: [{contains: "engine is set up"}]}
        - {stage: pressure, severity: WARN, any: [{regex: 'queue holds (?P<waiting>\\d+) requests'}]}
        - {stage: symptom, severity: ERROR, terminal: true, any: [{regex: 'engine loop died: (?P<why>.*)'}]}
    for: 0s
    keep_firing_for: 1s
    annotations: {summary: "{{ server }} died with {{ fields.waiting }} waiting"}
  - alert: Noted
    failure: config_risk
    fingerprint: {stages: [{stage: line, any: [{regex: 'take note of (?P<what>\\w+)'}]}]}
    for: 0s
    annotations: {summary: "{{ server }}: {{ fields.what }}"}
"""
"""A page and a warning that come at once, so that no test waits for a deadline."""


def until(what: str, ask: Callable[[], _T], seconds: float = PATIENCE, about: Callable[[], str] = str) -> _T:
    """The first answer that is true. Fails with ``what`` and what ``about`` says when none comes in time."""
    deadline = time.monotonic() + seconds
    while True:
        answer = ask()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:.0f} s: {what}\n{about()}")
        time.sleep(0.02)


def stamp(moment: float | None = None, form: str = "%m/%d/%Y-%H:%M:%S") -> str:
    """Now, or a moment, as TensorRT-LLM writes it."""
    return datetime.fromtimestamp(time.time() if moment is None else moment, UTC).strftime(form)


def line(severity: str, text: str, moment: float | None = None) -> str:
    """A line of TensorRT-LLM's logger; ``severity`` is I, W or E."""
    return f"[{stamp(moment)}] [TRT-LLM] [{severity}] {text}\n"


class Live:
    """One daemon. ``folder`` holds its configuration, logs and state; ``cache`` what all daemons share."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder = folder
        self.config_file = folder / "wedgewatch.yaml"
        self.rules_file = cache / "rules.yaml"  # the same for all: read once, it comes from the cache
        if not self.rules_file.exists():
            self.rules_file.write_text(RULES)
        self.alert_log = folder / "alerts.jsonl"
        self.log = folder / "server.log"
        self.stderr = ""
        self.stdout = ""
        self._environment = {
            **{name: value for name, value in os.environ.items() if name not in ("NOTIFY_SOCKET", "STATE_DIRECTORY")},
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "XDG_CACHE_HOME": str(cache),
            "TZ": "UTC",
        }
        state = folder / "state"
        state.mkdir(parents=True)
        # What is compiled once serves all tests.
        (cache / "wedgewatch").mkdir(parents=True, exist_ok=True)
        (state / "cache").symlink_to(cache / "wedgewatch")
        self._process: subprocess.Popen[bytes] | None = None
        self._readers: list[threading.Thread] = []

    # -- running ---------------------------------------------------------------------------------------------

    def configure(self, more: str = "", *, servers: str = "", rules: str = "") -> None:
        """Write the configuration: one server with one log unless ``servers`` says otherwise, and ``more``. ``rules``
        are written to a file of this daemon's own, :attr:`rules_file`."""
        if rules:
            self.rules_file = self.folder / "rules.yaml"
            self.rules_file.write_text(rules)
        self.config_file.write_text(
            "global: {scrape_interval: 500ms, scrape_timeout: 400ms}\n"
            f"state: {{path: {self.folder / 'state'}}}\n"
            'web: {listen_address: "127.0.0.1:0"}\n'
            f"rule_files: [{self.rules_file}]\n"
            + (servers or f"servers: [{{name: llama, logs: [{{path: {self.log}, poll_interval: 50ms}}]}}]\n")
            + more
        )

    def start(self, *arguments: str, stdin: int | None = subprocess.DEVNULL, ready: bool = True) -> None:
        """Start it on its configuration, or with ``arguments`` alone when they name what to watch."""
        given = list(arguments)
        if "--log" not in given and "--metrics" not in given:
            given = ["-c", str(self.config_file), *given]
        if "--listen" not in given and "-c" not in given:
            given += ["--listen", "127.0.0.1:0"]
        self.stderr = self.stdout = ""
        command = [sys.executable, "-m", "agent", "run", "--alert-log", str(self.alert_log), *given]
        self._process = subprocess.Popen(
            command, cwd=self.folder, env=self._environment, stdin=stdin,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self._readers = [
            threading.Thread(target=self._drain, args=(name,), daemon=True) for name in ("stdout", "stderr")
        ]
        for reader in self._readers:
            reader.start()
        if ready:
            self.until("the daemon is up", lambda: "page, API and metrics at" in self.stderr or self.ended)
            assert not self.ended, self.stderr

    def _drain(self, name: str) -> None:
        pipe = getattr(self.process, name)
        for data in iter(lambda: pipe.read1(65536), b""):
            setattr(self, name, getattr(self, name) + data.decode("utf-8", "replace"))

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "started"
        return self._process

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def stop(self, *, seconds: float = PATIENCE) -> int:
        """SIGTERM, and the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait(seconds)

    def kill(self) -> None:
        """SIGKILL: no last words."""
        self.process.kill()
        self.wait()

    def wait(self, seconds: float = PATIENCE) -> int:
        code = self.process.wait(seconds)
        self._let_go()
        return code

    def _let_go(self) -> None:
        for reader in self._readers:
            reader.join(5)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def close(self) -> None:
        if self._process is not None:
            if self._process.poll() is None:
                self._process.kill()
            self._process.wait(PATIENCE)
            self._let_go()

    # -- seeing ----------------------------------------------------------------------------------------------

    def until(self, what: str, ask: Callable[[], _T], seconds: float = PATIENCE) -> _T:
        return until(what, ask, seconds, lambda: f"stderr: {self.stderr[-3000:]}\nalerts: {self.alerts()[-5:]}")

    def says(self, text: str) -> None:
        """Wait until it has said this in its own log."""
        self.until(f"it says {text!r}", lambda: text in self.stderr)

    def alerts(self, state: str = "") -> list[dict[str, Any]]:
        """The transitions in the alert log."""
        if not self.alert_log.exists():
            return []
        found = [json.loads(row) for row in self.alert_log.read_text().splitlines()]
        return [alert for alert in found if state in ("", alert["state"])]

    def fires(self, name: str, count: int = 1) -> dict[str, Any]:
        """Wait until an alert of this name has fired so often; the last one."""

        def ask() -> list[dict[str, Any]]:
            found = [alert for alert in self.alerts("firing") if alert["alertname"] == name]
            return found if len(found) >= count else []

        return self.until(f"{name} fires", ask)[-1]

    @property
    def url(self) -> str:
        return self.stderr.partition("page, API and metrics at ")[2].partition('"')[0]

    def get(self, path: str) -> bytes:
        """What the daemon's own web server answers."""
        parts = urlsplit(self.url)
        connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=20)
        try:
            connection.request("GET", path)
            return connection.getresponse().read()
        finally:
            connection.close()

    def api(self, path: str) -> Any:
        return json.loads(self.get(f"/api/v1/{path}"))

    def metric(self, name: str, **labels: str) -> float:
        """The sum of our own series of that name with these labels; 0 when there is none."""
        total = 0.0
        for row in self.get("/metrics").decode().splitlines():
            head, _, value = row.rpartition(" ")
            if head.partition("{")[0] == f"wedgewatch_{name}" and all(f'{k}="{v}"' in head for k, v in labels.items()):
                total += float(value)
        return total

    def counts(self, name: str, at_least: float, **labels: str) -> None:
        """Wait until a metric of ours has come so far."""
        self.until(f"{name} {labels} >= {at_least}", lambda: self.metric(name, **labels) >= at_least)

    def run(self, *arguments: str) -> str:
        """What another wedgewatch command prints."""
        command = [sys.executable, "-m", "agent", *arguments]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
        )
        return done.stdout.decode()

    # -- the watched server ----------------------------------------------------------------------------------

    def write(self, *lines: str, path: Path | None = None) -> None:
        """Append to the server's log."""
        with open(path or self.log, "a") as handle:
            handle.write("".join(lines))

    def dies(self, why: str = "budget", waiting: int = 7, moment: float | None = None) -> None:
        """What EngineGone is looking for."""
        self.write(
            line("I", "engine is set up", moment),
            line("W", f"queue holds {waiting} requests", moment),
            line("E", f"engine loop died: {why}", moment),
        )


def vllm_page(running: int = 0, waiting: int = 0, finished: int = 0, tokens: int = 0, engine: str = "0") -> bytes:
    """A metrics page as vLLM writes it."""
    labels = f'engine="{engine}",model_name="m"'
    return (
        f"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{{{labels}}} {running}\n"
        f"# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{{{labels}}} {waiting}\n"
        f"# TYPE vllm:generation_tokens_total counter\nvllm:generation_tokens_total{{{labels}}} {tokens}\n"
        f'# TYPE vllm:request_success_total counter\nvllm:request_success_total{{{labels},finished_reason="stop"}} '
        f"{finished}\n"
    ).encode()


class MetricsServer:
    """A watched server's HTTP side. ``page`` is what /metrics answers; a function is asked at each request.

    ``completion`` answers POST /v1/completions; ``hang`` makes every answer wait until it is cleared.
    """

    def __init__(self) -> None:
        self.page: bytes | Callable[[], bytes] = vllm_page()
        self.kind = "text/plain; version=0.0.4"
        self.hang = threading.Event()
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self._closing = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self)

            do_POST = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        self.asked.append((handler.command, handler.path, dict(handler.headers.items()), body))
        while self.hang.is_set() and not self._closing.wait(0.05):
            pass
        kind, reply = self.kind, b""
        if handler.path == "/v1/models":
            kind, reply = "application/json", b'{"data": [{"id": "m"}]}'
        elif handler.path == "/v1/completions":
            kind, reply = (
                "application/json",
                (b'{"choices": [{"text": "pong"}], "usage": {"prompt_tokens": 2, "completion_tokens": 1}}'),
            )
        else:
            reply = self.page if isinstance(self.page, bytes) else self.page()
        try:
            handler.send_response(200)
            handler.send_header("Content-Type", kind)
            handler.send_header("Content-Length", str(len(reply)))
            handler.end_headers()
            handler.wfile.write(reply)
        except OSError:
            return  # the other side had waited long enough

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> MetricsServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)
