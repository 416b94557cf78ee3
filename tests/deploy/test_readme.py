"""The README is followed as it stands, in a fresh clone: its demo until the alert is on the page, then one's own
server.

Nothing is installed from the net here: ``make`` gets the environment that runs the tests (its variables ``VENV`` and
``STAMP``), ``pip`` finds what is installed already. ``test_newcomer`` does the same with everything installed anew.
"""

from __future__ import annotations

import json
import os
import queue
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.conftest import ROOT
from tests.metrics.raw_server import answer, serve

CASE = Path("tests/cases/trtllm-assertion-wedge")
BLOCKS = re.findall(r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
FIVE_MINUTES = 300.0


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("newcomer") / "wedgewatch"
    if not (ROOT / ".git").exists():  # an unpacked archive: what a clone would hold, and perhaps more
        ours = shutil.ignore_patterns(".venv", ".cache", "build", "dist", ".*_cache", "__pycache__")
        return Path(shutil.copytree(ROOT, folder, ignore=ours))
    git = ["git", "-c", "safe.directory=*", "-c", "advice.detachedHead=false"]
    subprocess.run([*git, "clone", "--quiet", str(ROOT), str(folder)], check=True, timeout=120)
    return folder


class Said:
    """A process and its lines; it is ended with its children at the end."""

    def __init__(self, command: str, cwd: Path, env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            ["bash", "-c", command], cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.lines: list[str] = []
        self._queue: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._queue.put(line)
        self._queue.put(None)

    def until(self, pattern: str, seconds: float = FIVE_MINUTES) -> re.Match[str]:
        """The first line from here on that matches."""
        end = time.monotonic() + seconds
        while True:
            try:
                line = self._queue.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                line = None
            assert line is not None, f"never said: {pattern}\n{''.join(self.lines[-80:])}"
            self.lines.append(line)
            if found := re.search(pattern, line):
                return found

    def end(self, seconds: float = FIVE_MINUTES) -> int:
        """Its exit status; it is stopped when it runs for longer."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.terminate()
            return self.process.wait(60)
        finally:
            self._reader.join(60)
            if self.process.stdout is not None:
                self.process.stdout.close()
            while not self._queue.empty():
                self.lines.append(self._queue.get() or "")


def ask(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=10) as response:
        return json.load(response)


def wait_for(what: Callable[[], Any], seconds: float = 60.0) -> Any:
    end = time.monotonic() + seconds
    while True:
        try:
            if found := what():
                return found
        except urllib.error.URLError:
            pass
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.2)


@pytest.fixture
def look() -> Iterator[Callable[[str], str]]:
    """``look(address)`` opens a page in Chromium and gives its first heading once that says "NAME is STATE"."""
    if not Path("/usr/bin/chromium").exists():
        pytest.skip("chromium is not installed")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-first-run"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))

    def heading(address: str) -> str:
        driver.get(address)
        script = "return (document.querySelector('#main h1') || {}).innerText || ''"
        return str(wait_for(lambda: (said := driver.execute_script(script)) and " is " in said and said))

    try:
        yield heading
    finally:
        driver.quit()


@pytest.mark.torch
@pytest.mark.browser
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # selenium's own sockets are closed by the garbage collector
def test_make_demo_brings_the_alert_onto_the_page(
    clone: Path, look: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    make demo: server, daemon | load rises ... deadlock | alert: terminal, API, page | restart | resolved; make test
    """
    pytest.importorskip("torch", reason="needs the reproducer extra")
    (tmp_path / "installed").touch()
    env = {
        **os.environ,
        "VENV": sys.prefix,
        "MAKEFLAGS": f" -- STAMP={tmp_path / 'installed'}",
        "PYTHONPATH": str(clone),
        "TMPDIR": str(tmp_path),
        "PYTEST": "--version",  # `make test` in here: only that it starts what it should
    }
    newcomer = Said(f"set -e\n{BLOCKS[0]}", clone, env)
    try:
        page = newcomer.until(r"its page: (http://\S+)")[1]
        newcomer.until(r"^\[FIRING\] trtllm-0: ")
        (alert,) = wait_for(lambda: [a for a in ask(f"{page}/api/v1/alerts") if a["severity"] == "critical"])
        assert (alert["state"], alert["server"]) == ("firing", "trtllm-0")
        assert "trtllm-0 is stuck" in look(page).replace("\n", " ")
    finally:
        status = newcomer.end()
    assert status == 0, "".join(newcomer.lines[-80:])
    said = "".join(newcomer.lines)
    for expected in (
        "slack: accepted",
        "pagerduty: accepted trigger",
        "[RESOLVED] trtllm-0",
        "[6/6] done",
        "\npytest ",
    ):
        assert expected in said, expected


@pytest.mark.peer
def test_ones_own_server_in_three_lines(clone: Path, tmp_path: Path) -> None:
    """``pip install .`` into an environment of its own; what it needs is found in ours. Then ``scan`` and ``run``."""
    install, scan, run = (line for line in BLOCKS[1].splitlines() if line.strip())
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True, timeout=120)
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    (site / "ours.pth").write_text(sysconfig.get_path("purelib") + "\n")
    path = os.pathsep.join([str(tmp_path / "venv" / "bin"), os.environ["PATH"]])
    env = {**os.environ, "PATH": path, "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_INDEX": "1", "HOME": str(tmp_path)}
    env.pop("PYTHONPATH", None)

    def follow(line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["bash", "-c", line], cwd=clone, env=env, capture_output=True, text=True, timeout=180)

    done = follow(install)
    assert done.returncode == 0, done.stdout + done.stderr
    assert follow("command -v wedgewatch").stdout.strip() == str(tmp_path / "venv" / "bin" / "wedgewatch")

    shutil.copy(clone / CASE / "server.log", clone / "yesterday.log")
    shutil.copy(clone / CASE / "metrics.om", clone / "recorded.om")
    done = follow(scan)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "token-budget deadlock" in done.stdout

    (clone / "server.log").write_text("")
    body = b"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 0\nvllm:num_requests_waiting 0\n"
    with serve(answer(body)) as server:
        with socket.create_server(("127.0.0.1", 0)) as free:
            listen = f"127.0.0.1:{free.getsockname()[1]}"
        assert "http://127.0.0.1:8000/metrics" in run
        line = run.partition("   #")[0].replace("127.0.0.1:8000", f"127.0.0.1:{server.port}")
        daemon = Said(f"exec {line} --listen {listen} --state {tmp_path / 'state'}", clone, env)
        try:
            (seen,) = wait_for(lambda: [s for s in ask(f"http://{listen}/api/v1/servers") if s["engine"] == "vllm"])
            assert (seen["name"], seen["scrape_error"]) == ("server", "")
            assert ask(f"http://{listen}/api/v1/alerts") == []
        finally:
            daemon.process.terminate()
            status = daemon.end(60)
    assert status == 0, "".join(daemon.lines)
