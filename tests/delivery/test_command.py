"""The command hook: no shell, JSON on standard input, a time limit that holds for children too."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from integrations.command import CommandConfig, CommandReceiver
from tests.delivery.build import alert, notification


def run(code: str, *arguments: str, timeout: float = 10.0):  # type: ignore[no-untyped-def]
    config = CommandConfig(command=(sys.executable, "-c", code, *arguments), timeout=timeout)  # type: ignore[arg-type]
    return CommandReceiver(config).notify(notification(alert("$(touch /tmp/x); `id`")))


def test_the_alert_is_json_on_standard_input(tmp_path: Path) -> None:
    file = tmp_path / "out"
    outcome = run("import sys; open(sys.argv[1], 'w').write(sys.stdin.read())", str(file))
    assert outcome.kind == "success"
    body = json.loads(file.read_text())
    assert body["version"] == "4"
    assert body["incident"]["title"].startswith("$(touch /tmp/x); `id`")
    assert not os.path.exists("/tmp/x") or time.time() - os.path.getmtime("/tmp/x") > 5


@pytest.mark.parametrize(("status", "kind"), [(0, "success"), (1, "retry"), (75, "retry"), (78, "permanent")])
def test_exit_status(status: int, kind: str) -> None:
    outcome = run(f"import sys; print('token=abc123 why\\x1b[31m'); sys.exit({status})")
    assert outcome.kind == kind
    if status:
        assert f"exit status {status}: token=<secret> why" in outcome.detail


def test_what_cannot_be_run_is_a_fault_of_configuration() -> None:
    for command in (("/no/such/program",), ("/etc/passwd",), ("a\0b",)):
        outcome = CommandReceiver(CommandConfig(command=command)).notify(notification())
        assert (outcome.kind, outcome.reason) == ("permanent", "config")
    assert list(CommandConfig(command=("",)).check())


def test_the_time_limit_ends_the_command_and_its_children(tmp_path: Path) -> None:
    """The child would keep a pipe open for a minute; it dies with its parent."""
    file = tmp_path / "pid"
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "open(sys.argv[1], 'w').write(str(child.pid))\n"
        "time.sleep(60)"
    )
    outcome = run(code, str(file), timeout=1.5)
    assert (outcome.kind, outcome.reason, outcome.uncertain) == ("retry", "timeout", True)
    child = int(file.read_text())
    for _ in range(200):
        try:
            state = Path(f"/proc/{child}/stat").read_text().split()[2]
        except FileNotFoundError:
            return
        if state == "Z":
            return
        time.sleep(0.02)  # the kernel ends it in its own time
    raise AssertionError("the grandchild outlived the time limit")


def test_a_flood_of_output_is_cut() -> None:
    outcome = run("import sys; sys.stdout.write('x' * 5_000_000); sys.exit(3)")
    assert len(outcome.detail) < 300
