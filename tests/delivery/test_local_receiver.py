"""The receiver that the demonstration sends to: as a process, by its contracts, and what it prints."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.model import Secret
from integrations.contracts import pagerduty_change_faults, pagerduty_faults, slack_fault
from integrations.http import HttpClient
from integrations.pagerduty import PagerDutyConfig, PagerDutyReceiver
from integrations.slack import SlackConfig, SlackReceiver
from tests.delivery.build import T, alert, notification, resolved
from tests.fakes.alertmanager import until
from tests.fakes.pagerduty import KEY


@contextlib.contextmanager
def process(module: str, folder: Path, *arguments: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    port_file = folder / "port"
    running = subprocess.Popen(
        [sys.executable, "-m", module, "--port", "0", "--port-file", str(port_file), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        until(port_file.exists, "the port file")
        yield int(port_file.read_text()), running
    finally:
        running.kill()
        running.wait(10)
        if running.stdout is not None:
            running.stdout.close()


@pytest.mark.parametrize("module", ["integrations.local_receiver", "tests.fakes.receiver"])
def test_as_a_process_it_prints_what_arrived_and_ends_on_a_signal(module: str, tmp_path: Path) -> None:
    record = tmp_path / "record"
    with process(module, tmp_path, "--record", str(record)) as (port, running):
        url = f"http://127.0.0.1:{port}"
        slack = SlackReceiver(SlackConfig(api_url=Secret(f"{url}/slack")), HttpClient())
        pager = PagerDutyReceiver(PagerDutyConfig(routing_key=Secret(KEY), url=f"{url}/v2/enqueue"), HttpClient())
        assert slack.notify(notification()).kind == "success"
        assert pager.notify(notification()).kind == "success"
        assert pager.notify(notification(resolved(alert(), T + 9), action="resolve")).kind == "success"
        running.send_signal(signal.SIGTERM)
        said, _ = running.communicate(timeout=20)
        assert running.returncode == 0
    assert "--> slack: accepted" in said
    assert "[FIRING] trtllm-0: scheduler deadlocked, no completions for 2m10s (214 waiting)" in said
    assert "01:37:48 ERROR AssertionError: total_num_tokens (9001)" in said
    assert "--> pagerduty: accepted trigger wedgewatch/prod-eu1/trtllm-0/fp" in said
    assert "--> pagerduty: accepted resolve" in said
    kept = [json.loads(line) for line in record.read_text().splitlines()]
    assert [item["service"] for item in kept] == ["slack", "pagerduty", "pagerduty"]


def test_a_port_in_use_is_said(tmp_path: Path) -> None:
    with process("integrations.local_receiver", tmp_path, "--quiet") as (port, _):
        again = subprocess.run(
            [sys.executable, "-m", "integrations.local_receiver", "--port", str(port)],
            capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
        assert again.returncode == 1
        assert "in use" in again.stderr.lower()


LONG, NAME = "u" * 3001, {"type": "plain_text", "text": "x"}


def block(kind: str, **content: object) -> dict[str, object]:
    return {"type": kind, **content}


def text(length: int, kind: str = "mrkdwn") -> dict[str, str]:
    return {"type": kind, "text": "x" * length}


@pytest.mark.parametrize(
    ("payload", "fault"),
    [
        ({"text": "x"}, ""),
        ({"text": "x" * 40_001}, "msg_too_long"),
        ([], "invalid_payload"),
        ({}, "no_text"),
        ({"text": 3}, "invalid_payload"),
        ({"blocks": "x"}, "invalid_blocks_format"),
        ({"blocks": [block("header", text=text(150, "plain_text"))]}, ""),
        ({"blocks": [block("header", text=text(151, "plain_text"))]}, "invalid_blocks"),
        ({"blocks": [block("header", text=text(5))]}, "invalid_blocks"),
        ({"blocks": [block("section", text=text(3000))]}, ""),
        ({"blocks": [block("section", text=text(3001))]}, "invalid_blocks"),
        ({"blocks": [block("section", text=text(0))]}, "invalid_blocks"),
        ({"blocks": [block("section")]}, "invalid_blocks"),
        ({"blocks": [block("section", fields=[text(2000)] * 6)]}, ""),
        ({"blocks": [block("section", fields=[text(2001)])]}, "invalid_blocks"),
        ({"blocks": [block("section", fields=[text(1)] * 11)]}, "invalid_blocks"),
        ({"blocks": [block("context", elements=[text(1)] * 11)]}, "invalid_blocks"),
        ({"blocks": [block("actions", elements=[])]}, "invalid_blocks"),
        ({"blocks": [block("actions", elements=[block("button", text=text(76, "plain_text"))])]}, "invalid_blocks"),
        ({"blocks": [block("actions", elements=[{"type": "button", "text": NAME, "url": LONG}])]}, "invalid_blocks"),
        ({"blocks": [block("divider")] * 51}, "invalid_blocks"),
        ({"blocks": [block("table")]}, "invalid_blocks"),
        ({"blocks": [3]}, "invalid_blocks"),
        ({"blocks": [block("image", image_url="https://x", alt_text="y")]}, ""),
        ({"blocks": [block("section", text=text(2900))] * 5}, "msg_blocks_too_long"),
    ],
)  # fmt: skip
def test_slacks_contract(payload: object, fault: str) -> None:
    assert slack_fault(payload) == fault


def event(**changes: object) -> dict[str, object]:
    payload = {"summary": "s", "source": "h", "severity": "critical"}
    return {"routing_key": KEY, "event_action": "trigger", "payload": payload, **changes}


@pytest.mark.parametrize(
    ("given", "faults"),
    [
        (event(), 0),
        (event(routing_key="short"), 1),
        (event(routing_key=None), 1),
        (event(event_action="open"), 1),
        (event(dedup_key="k" * 256), 1),
        (event(event_action="resolve"), 1),
        (event(event_action="resolve", dedup_key="k"), 0),
        (event(payload=None), 1),
        (event(payload={}), 3),
        (event(payload={"summary": "x" * 1025, "source": "h", "severity": "info"}), 1),
        (event(payload={"summary": "x", "source": "h", "severity": "page"}), 1),
        (event(payload={"summary": "x", "source": "h", "severity": "info", "timestamp": "soon"}), 1),
        (event(payload={"summary": "x", "source": "h", "severity": "info", "custom_details": 3}), 1),
        (event(payload={"summary": "x", "source": "h", "severity": "info", "custom_details": {"a": "y" * 600_000}}), 1),
        (event(links=[{}]), 1),
        (event(images=[{"src": "http://x"}]), 1),
        ([], 1),
    ],
)
def test_pagerdutys_contract(given: object, faults: int) -> None:
    assert len(pagerduty_faults(given)) == faults


def test_pagerdutys_contract_for_changes() -> None:
    assert pagerduty_change_faults({"routing_key": KEY, "payload": {"summary": "x"}}) == []
    assert len(pagerduty_change_faults({"routing_key": KEY, "payload": {}})) == 1
    assert len(pagerduty_change_faults({"payload": {"summary": "x" * 1025}})) == 2
    assert pagerduty_change_faults(3) == ["Event object is invalid"]
