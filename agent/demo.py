"""``wedgewatch demo``: a real scheduler deadlocks on this machine, is caught, paged, restarted, resolved.

Four processes: the reproducer's server, its load, the daemon, and a local receiver that speaks Slack's and PagerDuty's
contracts. Nothing is scripted: the load rises until the scheduler wedges by itself; if it does not, or if it is not
noticed, the demo says which and fails.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

__all__ = ["demo"]

USERS: Final = (4, 8, 12, 16, 20, 24, 32, 48)
"""Steps of the rising load."""
STEP: Final = 7.0
WEDGE_BY: Final = 75.0
"""Seconds in which the scheduler must have wedged."""
NOTICED_BY: Final = 40.0
RESOLVED_BY: Final = 60.0

_CONFIG: Final = """\
# Written by `wedgewatch demo`.
global: {{scrape_interval: 1s, scrape_timeout: 1s, external_labels: {{cluster: demo}}}}
state: {{path: {state}}}
web: {{listen_address: "{page}"}}
servers:
  - name: trtllm-0
    engine: auto
    logs: [{{path: {log}, start_at: beginning}}]
    metrics: {{url: "{url}/prometheus/metrics"}}
    labels: {{model: demo}}
route:
  receiver: chat
  group_by: [failure]
  group_wait: 1s
  routes: [{{matchers: ['severity="critical"'], receiver: oncall, group_wait: 1s, continue: true}}, {{receiver: chat}}]
receivers:
  - name: chat
    slack_configs: [{{api_url: "{receiver}/slack"}}]
  - name: oncall
    pagerduty_configs: [{{routing_key: "0123456789abcdef0123456789abcdef", url: "{receiver}/v2/enqueue"}}]
"""


class DemoFailed(Exception):
    """What did not happen."""


def demo(*, keep: bool = False, device: str = "auto", out: str | None = None) -> int:
    """Run it; 0 when the deadlock was reached, caught, paged and resolved, 1 (and which) when not."""
    if importlib.util.find_spec("torch") is None:
        print(
            "wedgewatch demo needs torch for the server that deadlocks: pip install 'wedgewatch[reproducer]'",
            file=sys.stderr,
        )
        return 2
    folder = Path(out) if out else Path(tempfile.mkdtemp(prefix="wedgewatch-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    before = signal.signal(signal.SIGTERM, _interrupt)  # so that no process of ours outlives us
    with contextlib.ExitStack() as stack:
        stack.callback(signal.signal, signal.SIGTERM, before)
        try:
            _Demo(folder, device, stack).run(keep)
        except DemoFailed as failure:
            print(f"\nwedgewatch demo failed: {failure}", file=sys.stderr)
            return 1
    return 0


class _Demo:
    def __init__(self, folder: Path, device: str, stack: contextlib.ExitStack) -> None:
        self.folder = folder
        self.device = device
        self.stack = stack
        self.log = folder / "server.log"
        self.alerts = folder / "alerts.jsonl"
        self.record = folder / "received.jsonl"
        self.url = ""
        self.load: subprocess.Popen[bytes] | None = None

    def run(self, keep: bool) -> None:
        python = sys.executable
        _say("1/6", "a local receiver that speaks Slack's and PagerDuty's contracts")
        port_file = self.folder / "receiver.port"
        self._start(
            [python, "-m", "integrations.local_receiver", "--port-file", str(port_file), "--record", str(self.record)]
        )
        receiver = f"http://127.0.0.1:{_wait_for_text(port_file, 20)}"

        _say("2/6", "a small continuous-batching server (the first time it trains its two models, under a minute)")
        server = self._serve(port=0)
        began = time.monotonic()

        _say("3/6", "wedgewatch beside it, on its log and its metrics")
        config = self.folder / "wedgewatch.yaml"
        page = f"127.0.0.1:{_free_port()}"
        config.write_text(
            _CONFIG.format(page=page, state=self.folder / "state", log=self.log, url=self.url, receiver=receiver),
            encoding="utf-8",
        )
        print(f"      its page: http://{page}", flush=True)
        self._start(
            [python, "-m", "agent", "run", "-c", str(config), "--alert-log", str(self.alerts), "--log-level", "warning"]
        )

        _say("4/6", "raising the load until the scheduler wedges by itself")
        wedged_at = self._raise_load(python)
        print(
            f"      completions stopped with requests in flight; /health still says {_status(self.url + '/health')}",
            flush=True,
        )

        alert = self._wait_for_alert("firing", NOTICED_BY, wanted=lambda a: a["severity"] == "critical")
        if alert is None:
            raise DemoFailed(f"the deadlock was reached but not detected within {NOTICED_BY:.0f} s; see {self.log}")
        print(
            f"      noticed {time.time() - wedged_at:.0f} s after the last completion was seen: {alert['failure']}",
            flush=True,
        )
        self._wait_for_arrivals("trigger", "firing")

        _say("5/6", "restarting the server, as the page says; a light load afterwards")
        _end(server)
        if self.load is not None:
            _end(self.load)  # its users would come back and wedge it again
        port = int(self.url.rsplit(":", 1)[1])
        self._serve(port=port)
        self._start(
            [python, "-m", "reproducer", "load", "--url", self.url, "--users", "2", "--seconds", "120"], quiet=True
        )
        if (
            self._wait_for_alert("resolved", RESOLVED_BY, wanted=lambda a: a["fingerprint"] == alert["fingerprint"])
            is None
        ):
            raise DemoFailed(f"the alert did not resolve within {RESOLVED_BY:.0f} s of the restart")
        self._wait_for_arrivals("resolve", "resolved")

        _say("6/6", f"done in {time.monotonic() - began:.0f} s: reached, caught, paged, restarted, resolved")
        print(f"      kept in {self.folder}: {self.log.name}, {self.alerts.name}, {self.record.name}", flush=True)
        print(f"      the same from the log alone: wedgewatch scan {self.log}", flush=True)
        if keep:
            print(f"      staying up; the page is http://{page}; Ctrl-C ends it", flush=True)
            with contextlib.suppress(KeyboardInterrupt):
                signal.pause()

    # -- steps -----------------------------------------------------------------------------------------------

    def _serve(self, port: int) -> subprocess.Popen[bytes]:
        announce = self.folder / f"serve-{time.monotonic_ns()}.json"
        process = self._start(
            [
                sys.executable, "-m", "reproducer", "serve", "--profile", "draft", "--dialect", "tensorrt_llm",
                "--device", self.device, "--port", str(port), "--log", str(self.log), "--announce", str(announce),
            ],
            quiet=True,
        )  # fmt: skip
        text = _wait_for_text(announce, 300, process)
        self.url = json.loads(text)["url"]
        return process

    def _raise_load(self, python: str) -> float:
        """More and more users until completions stop while they wait. Returns when the last completion was seen."""
        deadline = time.monotonic() + WEDGE_BY
        done, moved_at = self._completed(), time.time()
        for users in USERS:
            print(f"      {users} users", flush=True)
            load = self.load = self._start(
                [python, "-m", "reproducer", "load", "--url", self.url, "--users", str(users), "--seconds", "600"],
                quiet=True,
            )
            until = time.monotonic() + STEP
            while time.monotonic() < until or time.time() - moved_at > 2.0:
                time.sleep(0.5)
                now = self._completed()
                if now > done:
                    done, moved_at = now, time.time()
                elif done and time.time() - moved_at > 5.0:
                    return moved_at
                if time.monotonic() > deadline:
                    break
            if time.monotonic() > deadline:
                break
            _end(load)
        raise DemoFailed(f"the deadlock was not reached within {WEDGE_BY:.0f} s of rising load")

    def _completed(self) -> float:
        """Requests that the server has completed, read off its metrics page."""
        with contextlib.suppress(OSError, urllib.error.URLError):
            page = urllib.request.urlopen(self.url + "/prometheus/metrics", timeout=3).read().decode("utf-8", "replace")
            return sum(
                float(m[1])
                for m in re.finditer(r"^trtllm_request_success_total(?:\{[^}]*\})? (\S+)", page, re.MULTILINE)
            )
        return 0.0

    def _alerts(self) -> Iterator[dict[str, Any]]:
        if self.alerts.exists():
            for line in self.alerts.read_text(encoding="utf-8").splitlines():
                yield json.loads(line)

    def _wait_for_alert(
        self, state: str, seconds: float, wanted: Callable[[dict[str, Any]], bool]
    ) -> dict[str, Any] | None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for alert in self._alerts():
                if alert["state"] == state and wanted(alert):
                    return alert
            time.sleep(0.3)
        return None

    def _wait_for_arrivals(self, pagerduty: str, slack: str) -> None:
        """Both services must have taken a message of this kind."""
        deadline = time.monotonic() + 20
        missing = [f"PagerDuty {pagerduty}", f"Slack {slack}"]
        while time.monotonic() < deadline:
            seen = [json.loads(line) for line in self.record.read_text().splitlines()] if self.record.exists() else []
            taken = [item for item in seen if 200 <= item["status"] < 300]
            missing = []
            if not any(
                item["body"].get("event_action") == pagerduty for item in taken if item["service"] == "pagerduty"
            ):
                missing.append(f"PagerDuty {pagerduty}")
            if not any(
                slack in json.dumps(item["body"]).lower() for item in taken if item["service"].startswith("slack")
            ):
                missing.append(f"Slack {slack}")
            if not missing:
                return
            time.sleep(0.3)
        raise DemoFailed(f"detected, but not delivered within 20 s: {', '.join(missing)}")

    def _start(self, command: Sequence[str], *, quiet: bool = False) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        target = open(self.folder / f"{'-'.join(command[2:4]).replace('.', '-')}.out", "ab") if quiet else None  # noqa: SIM115
        process = subprocess.Popen(command, env=environment, stdout=target, stderr=target)
        self.stack.callback(_end, process)
        return process


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _say(step: str, text: str) -> None:
    bold, plain = ("\x1b[1m", "\x1b[0m") if sys.stdout.isatty() and "NO_COLOR" not in os.environ else ("", "")
    print(f"\n{bold}[{step}] {text}{plain}", flush=True)


def _wait_for_text(path: Path, seconds: float, process: subprocess.Popen[bytes] | None = None) -> str:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if path.exists() and path.read_text().strip():
            return path.read_text().strip()
        if process is not None and process.poll() is not None:
            raise DemoFailed(f"a process ended with status {process.returncode} before it was ready; see {path.parent}")
        time.sleep(0.1)
    raise DemoFailed(f"{path.name} did not appear within {seconds:.0f} s")


def _status(url: str) -> int | str:
    try:
        with urllib.request.urlopen(url, timeout=3) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError as error:
        return f"nothing ({error})"


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(8)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
