"""`wedgewatch init` on servers that are really there: a page on a port, a process behind it, a log file."""

from __future__ import annotations

import contextlib
import http.server
import io
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from agent.config import load_config
from agent.init_command import init
from tests.web.scene import CASES


def page_of(case: str) -> bytes:
    """The newest values of a case's metrics as the engine's own page, without stamps."""
    last: dict[str, str] = {}
    lines = []
    for line in (CASES / case / "metrics.om").read_text().splitlines():
        if line.startswith("# TYPE"):
            lines.append(line)
        elif not line.startswith("#"):
            series, value, _ = line.rsplit(" ", 2)
            last[series] = value
    return "\n".join([*lines, *(f"{series} {value}" for series, value in last.items()), ""]).encode()


@contextlib.contextmanager
def server_with(pages: dict[str, bytes]) -> Iterator[int]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = pages.get(self.path)
            self.send_response(200 if body is not None else 404)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made.server_port
        made.shutdown()
        thread.join()


def run(tmp_path: Path, log: str | None = None, metrics: str | None = None, **more: object) -> tuple[int, str, Path]:
    output, out = tmp_path / "wedgewatch.yaml", io.StringIO()
    given = {"ports": (), **more}
    code = init(log, metrics, str(output), out=out, **given)  # type: ignore[arg-type]
    return code, out.getvalue(), output


@pytest.mark.parametrize(
    ("case", "path", "engine", "title"),
    [
        ("vllm-idle", "/metrics", "vllm", "vLLM"),
        ("trtllm-assertion-wedge", "/prometheus/metrics", "tensorrt_llm", "TensorRT-LLM"),
        ("sglang-admission-latch", "/metrics", "sglang", "SGLang"),
    ],
)
def test_a_page_and_a_log_are_recognised(tmp_path: Path, case: str, path: str, engine: str, title: str) -> None:
    with server_with({path: page_of(case)}) as port:
        code, said, output = run(tmp_path, str(CASES / case / "server.log"), f"http://127.0.0.1:{port}")
    assert code == 0
    config, faults = load_config(output)
    assert [str(fault) for fault in faults if fault.severity == "error"] == []
    server = config.servers[0]
    assert (server.engine, server.logs[0].path) == (engine, str(CASES / case / "server.log"))
    assert server.metrics is not None
    assert server.metrics.url == f"http://127.0.0.1:{port}{path}"
    assert f"is a metrics page of {title}" in said
    assert f"written by {title}" in said
    assert "requests_running" in output.read_text()


def test_with_nothing_given_it_looks_around(tmp_path: Path) -> None:
    """A server that somebody started in a shell with its output into a file, on a port that engines use."""
    log = tmp_path / "engine.log"
    (tmp_path / "page").write_bytes(page_of("vllm-idle"))
    script = tmp_path / "toy.py"
    script.write_text(
        "import http.server, sys, threading\n"
        "class H(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        self.send_response(200 if self.path == '/metrics' else 404); self.end_headers()\n"
        f"        self.wfile.write(open({str(tmp_path / 'page')!r}, 'rb').read() if self.path == '/metrics' else b'')\n"
        "s = http.server.ThreadingHTTPServer(('127.0.0.1', 0), H)\n"
        f"print(open({str(CASES / 'vllm-idle' / 'server.log')!r}).read(), flush=True)\n"
        f"open({str(tmp_path / 'port')!r} + '.part', 'w').write(str(s.server_port))\n"
        f"import os; os.replace({str(tmp_path / 'port')!r} + '.part', {str(tmp_path / 'port')!r})\n"
        "threading.Thread(target=s.serve_forever, daemon=True).start(); sys.stdin.read()\n"
    )
    with open(log, "wb") as out:
        process = subprocess.Popen([sys.executable, str(script)], stdin=subprocess.PIPE, stdout=out, stderr=out)
    try:
        ready = threading.Event()
        while not (tmp_path / "port").exists():
            assert process.poll() is None, log.read_text()
            ready.wait(0.02)
        port = int((tmp_path / "port").read_text())
        code, said, output = run(tmp_path, ports=(port,))
    finally:
        process.communicate(timeout=20)
    assert code == 0
    assert f"Process {process.pid} writes its output to {log}" in said
    config, _ = load_config(output)
    assert config.servers[0].logs[0].path == str(log)
    assert config.servers[0].engine == "vllm"


def test_nothing_there_says_what_to_give(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said, output = run(tmp_path, ports=(1,))
    assert code == 2
    assert "tried ports 1" in said
    assert "--metrics http://HOST:PORT/metrics" in capsys.readouterr().err
    assert not output.exists()


def test_a_log_that_is_not_there_yet(tmp_path: Path) -> None:
    code, said, _ = run(tmp_path, str(tmp_path / "gone.log"))
    assert code == 2
    assert "No such file" in said


def test_a_file_of_the_user_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "wedgewatch.yaml").write_text("mine")
    log = str(CASES / "vllm-idle" / "server.log")
    assert run(tmp_path, log)[0] == 2
    assert "--force overwrites it" in capsys.readouterr().err
    assert run(tmp_path, log, force=True)[0] == 0


def test_a_page_that_answers_html_or_nothing_known(tmp_path: Path) -> None:
    pages = {"/metrics": b"<html>login</html>", "/prometheus/metrics": b"# TYPE node_load1 gauge\nnode_load1 1\n"}
    log = str(CASES / "vllm-idle" / "server.log")
    with server_with(pages) as port:
        code, said, output = run(tmp_path, log, f"http://127.0.0.1:{port}/metrics")
    assert code == 0
    assert "no engine is recognised in it" in said
    assert load_config(output)[0].servers[0].logs


def test_page_and_log_that_disagree_leave_it_to_auto(tmp_path: Path) -> None:
    with server_with({"/metrics": page_of("vllm-idle")}) as port:
        log = str(CASES / "sglang-watchdog" / "server.log")
        _, said, output = run(tmp_path, log, f"http://127.0.0.1:{port}")
    assert "The page says vllm, the log says sglang" in said
    assert load_config(output)[0].servers[0].engine == "auto"


def test_what_stands_in_comments_is_right_too(tmp_path: Path) -> None:
    """A reader takes the comment signs away and expects it to work."""
    _, _, output = run(tmp_path, str(CASES / "vllm-idle" / "server.log"))
    text = output.read_text()
    wanted = r"^# (?=receivers:|route:|heartbeat:|  )"
    awake = re.sub(wanted, "", text[text.index("# receivers:") :], flags=re.M).replace("/run/secrets", str(tmp_path))
    for name in ("slack_webhook", "pagerduty_key", "deadman_url"):
        (tmp_path / name).write_text("https://hooks.example/x")
    output.write_text(text[: text.index("# receivers:")] + awake)
    config, faults = load_config(output)
    assert [str(fault) for fault in faults] == []
    assert [receiver.name for receiver in config.receivers] == ["chat", "oncall"]


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a: b", "a#b", "å\n"])
def test_odd_paths_are_quoted(tmp_path: Path, name: str) -> None:
    log = tmp_path / name
    log.write_bytes((CASES / "vllm-idle" / "server.log").read_bytes())
    code, _, output = run(tmp_path, str(log))
    assert code == 0
    assert yaml.safe_load(output.read_text())["servers"][0]["logs"][0]["path"] == str(log)
