"""Actions after the evidence: off, then a trial run, then once and not too often."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.actions import ActionRunner
from agent.config.model import ActionConfig
from agent.evidence import incident_id
from agent.model import Duration, Secret
from tests.web.scene import NOW, deadlock_alert

ALERT = deadlock_alert()


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


def restart(tmp_path: Path, **more: Any) -> ActionConfig:
    command = ("/bin/sh", "-c", f"cat > {tmp_path}/stdin; echo $WEDGEWATCH_SERVER >> {tmp_path}/ran")
    return ActionConfig(name="restart", command=command, dry_run=False, **more)


def runs(tmp_path: Path) -> int:
    file = tmp_path / "ran"
    return len(file.read_text().splitlines()) if file.exists() else 0


def test_nothing_is_configured_nothing_is_done(tmp_path: Path) -> None:
    assert ActionRunner([], tmp_path / "journal").consider(ALERT) == []


def test_a_trial_run_says_what_it_would_do(tmp_path: Path) -> None:
    action = ActionConfig(
        name="restart", command=("/usr/local/bin/restart-model", "--token=abcdefgh123456", "trtllm-0")
    )
    taken = ActionRunner([action], tmp_path / "journal", clock=Clock()).consider(ALERT)
    assert [item.result for item in taken] == ["dry_run"]
    assert taken[0].text == "dry run: would run /usr/local/bin/restart-model --token=<secret> trtllm-0"


def test_observing_makes_every_action_a_trial_run(tmp_path: Path) -> None:
    taken = ActionRunner([restart(tmp_path)], tmp_path / "journal", observe=True).consider(ALERT)
    assert taken[0].result == "dry_run"
    assert runs(tmp_path) == 0


def test_the_command_gets_the_alert_and_no_shell_of_ours(tmp_path: Path) -> None:
    runner = ActionRunner([restart(tmp_path)], tmp_path / "journal", clock=Clock())
    taken = runner.consider(ALERT.with_(labels={**ALERT.labels, "x": "$(touch /tmp/never)"}))
    assert [item.result for item in taken] == ["ok"]
    assert json.loads((tmp_path / "stdin").read_bytes())["failure"] == "token_budget_deadlock"
    assert (tmp_path / "ran").read_text() == "trtllm-0\n"
    assert runner.taken(incident_id(ALERT))[0].text.startswith("done: run /bin/sh")


def test_never_twice_for_one_incident(tmp_path: Path) -> None:
    """
    fires -> run | updated -> - | restart of the daemon -> - | cut off in the middle, restart -> - (it may have run)
    """
    runner = ActionRunner([restart(tmp_path)], tmp_path / "journal", clock=Clock())
    runner.consider(ALERT)
    runner.consider(ALERT.with_(severity="critical", confidence="confirmed"))
    assert runs(tmp_path) == 1
    again = ActionRunner([restart(tmp_path)], tmp_path / "journal", clock=Clock())
    assert again.consider(ALERT) == []
    assert [item.result for item in again.taken(incident_id(ALERT))] == ["ok"]
    lines = (tmp_path / "journal").read_bytes().splitlines()
    (tmp_path / "cut").write_bytes(lines[0] + b"\n" + lines[1][:20])
    assert ActionRunner([restart(tmp_path)], tmp_path / "cut", clock=Clock()).consider(ALERT) == []
    assert runs(tmp_path) == 1


def test_not_too_often_for_one_server(tmp_path: Path) -> None:
    clock = Clock()
    runner = ActionRunner([restart(tmp_path, cooldown=Duration(600))], tmp_path / "journal", clock=clock)
    runner.consider(ALERT)
    clock.now += 60
    second = ALERT.with_(fired_at=NOW + 60)
    taken = runner.consider(second)
    assert [item.result for item in taken] == ["rate_limited"]
    assert "again in 540 s" in taken[0].text
    runner.consider(second)
    assert len(runner.taken(incident_id(second))) == 1  # said once, not at every update
    runner.consider(ALERT.with_(server="trtllm-1", fingerprint="b" * 16))
    assert runs(tmp_path) == 2
    clock.now += 600
    assert [item.result for item in runner.consider(second)] == ["ok"]
    assert runs(tmp_path) == 3


@pytest.mark.parametrize(
    ("change", "more", "expected"),
    [
        ({}, {}, 1),
        ({"confidence": "probable"}, {}, 0),
        ({"confidence": "probable"}, {"confidence": "probable"}, 1),
        ({"state": "resolved"}, {}, 0),
        ({"state": "pending"}, {}, 0),
        ({"failure": "overload", "severity": "warning"}, {}, 0),
        ({"failure": "engine_dead"}, {}, 1),
        ({}, {"matchers": ('server="other"',)}, 0),
        ({}, {"matchers": ('server=~"trtllm-.*"', 'cluster="eu1"')}, 1),
    ],
)
def test_for_which_alerts(tmp_path: Path, change: dict[str, str], more: dict[str, Any], expected: int) -> None:
    ActionRunner([restart(tmp_path, **more)], tmp_path / "journal", clock=Clock()).consider(ALERT.with_(**change))
    assert runs(tmp_path) == expected


def test_a_command_that_fails_says_how(tmp_path: Path) -> None:
    action = ActionConfig(name="x", command=("/bin/sh", "-c", "echo no such pod >&2; exit 4"), dry_run=False)
    taken = ActionRunner([action], tmp_path / "journal").consider(ALERT)
    assert taken[0].result == "failed"
    assert taken[0].text.endswith("exit code 4 (no such pod)")


def test_a_hook_is_called_with_the_alert(tmp_path: Path) -> None:
    calls: list[tuple[str, Any, float]] = []

    def post(url: str, value: Any, timeout: float) -> str:
        calls.append((url, value, timeout))
        return ""

    action = ActionConfig(name="hook", url=Secret("https://hook.example/abc"), dry_run=False)
    taken = ActionRunner([action], tmp_path / "journal", post=post).consider(ALERT)
    assert [item.result for item in taken] == ["ok"]
    assert calls[0][0] == "https://hook.example/abc"
    assert calls[0][1]["server"] == "trtllm-0"
    assert "hook.example" not in (tmp_path / "journal").read_text()


def test_a_hook_over_the_wire(tmp_path: Path) -> None:
    import http.server
    import threading

    class Hook(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200 if body["server"] == "trtllm-0" else 500)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with http.server.HTTPServer(("127.0.0.1", 0), Hook) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        action = ActionConfig(name="hook", url=Secret(f"http://127.0.0.1:{server.server_port}/x"), dry_run=False)
        taken = ActionRunner([action], tmp_path / "journal").consider(ALERT)
        thread.join(20)
    assert [item.result for item in taken] == ["ok"]


def test_without_a_journal_nothing_runs(tmp_path: Path) -> None:
    """What cannot be remembered could run twice."""
    (tmp_path / "file").write_text("")
    runner = ActionRunner([restart(tmp_path)], tmp_path / "file" / "journal", clock=Clock())
    assert runner.consider(ALERT) == []
    assert runs(tmp_path) == 0
