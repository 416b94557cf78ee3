"""``python -m reproducer serve`` as a process of its own: started, asked, stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

__all__ = ["ServeProcess", "StartError"]


class StartError(RuntimeError):
    """The server did not come up; the message holds the end of its log."""


class ServeProcess:
    """A server with its log in ``folder/server.log``. Use as a context manager; leaving it ends the process."""

    def __init__(self, folder: Path, arguments: list[str], *, environment: dict[str, str] | None = None) -> None:
        self.folder, self.arguments = folder, arguments
        self.log = folder / "server.log"
        self.announcement = folder / "serve.json"
        self.environment = environment or {}
        self.process: subprocess.Popen[bytes] | None = None
        self.url = self.metrics_url = ""

    def __enter__(self) -> ServeProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, patience: float = 300.0) -> None:
        """Start, and wait until it listens; the first start on a machine trains the models. Raises StartError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.announcement.unlink(missing_ok=True)
        listen = ["--port", "0", "--log", str(self.log), "--announce", str(self.announcement)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "reproducer", "serve", *listen, *self.arguments],
            stdin=subprocess.DEVNULL,
            env={**os.environ, **self.environment},
        )
        deadline = time.monotonic() + patience
        while not self.announcement.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                tail = self.log.read_text(errors="replace")[-2000:] if self.log.exists() else "(no log)"
                raise StartError(f"the server did not start; its log ends:\n{tail}")
            time.sleep(0.05)
        where = json.loads(self.announcement.read_text())
        self.url, self.metrics_url = where["url"], where["metrics_url"]

    def get(self, path: str, timeout: float = 5.0) -> tuple[int, bytes]:
        """Status and body; status 0 when there is no answer."""
        url = path if path.startswith("http") else self.url + path
        try:
            with urllib.request.urlopen(url, timeout=timeout) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except OSError:
            return 0, b""

    def state(self) -> dict[str, Any]:
        """The inside (:mod:`reproducer.state`); empty when there is no answer."""
        status, body = self.get("/reproducer/state")
        return json.loads(body) if status == 200 else {}

    def page(self) -> str:
        """The metrics page; empty when there is no answer."""
        status, body = self.get(self.metrics_url)
        return body.decode() if status == 200 else ""

    def signal(self, number: signal.Signals) -> None:
        if self.process:
            self.process.send_signal(number)

    def stop(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
