"""Real Alertmanagers on loopback, from the Debian package prometheus-alertmanager."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["AMTOOL", "BINARY", "RealAlertmanager", "until"]

BINARY = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
AMTOOL = shutil.which("amtool")


def until(condition: Callable[[], Any], what: str, seconds: float = 20.0) -> Any:
    """Waits for another process to get there. The time is only a bound on failure."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"{what} did not happen within {seconds} s")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


class RealAlertmanager:
    """One process. ``restart`` begins it anew with the same storage, ``pause`` lets it hang."""

    def __init__(
        self, folder: Path, hook: str, *, resolve_timeout: str = "5m", peers: tuple[int, ...] = (), cluster: int = 0
    ) -> None:
        assert BINARY is not None
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        folder.mkdir(parents=True, exist_ok=True)
        config = folder / "am.yml"
        config.write_text(
            f"global: {{resolve_timeout: {resolve_timeout}}}\n"
            "route: {receiver: hook, group_by: ['...'], group_wait: 50ms, group_interval: 200ms, repeat_interval: 1h}\n"
            f"receivers: [{{name: hook, webhook_configs: [{{url: '{hook}'}}]}}]\n"
        )
        self._command = [
            BINARY,
            f"--config.file={config}",
            f"--storage.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            f"--cluster.listen-address={f'127.0.0.1:{cluster}' if cluster else ''}",
            "--cluster.settle-timeout=1s",
            "--cluster.gossip-interval=50ms",
            "--cluster.peer-timeout=300ms",
            "--log.level=error",
            *(f"--cluster.peer=127.0.0.1:{peer}" for peer in peers),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(self.ready, "Alertmanager's start")

    def ready(self) -> bool:
        try:
            return self.get("/-/ready") is not None
        except OSError:
            return False

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=5) as answer:
            data = answer.read()
        return json.loads(data) if data.startswith((b"[", b"{")) else data

    def alerts(self) -> list[Any]:
        return list(self.get("/api/v2/alerts"))

    def restart(self) -> None:
        self.stop()
        self.start()

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()  # kill would lose its log of notifications, which is not what is tested
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(10)
            self._process = None

    def amtool(self, *arguments: str) -> str:
        assert AMTOOL is not None
        done = subprocess.run(
            [AMTOOL, f"--alertmanager.url={self.url}", *arguments],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
        return done.stdout

    def __enter__(self) -> RealAlertmanager:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
