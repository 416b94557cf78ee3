"""The same log, fed to a real daemon line by line and read by ``wedgewatch scan``, gives the same alerts to the byte,
but for ``detected_at``. The stamps are of now, as a live log's are."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.daemon.live import Live, line

TRACEBACK = """\
Traceback (most recent call last):
  File "py_executor.py", line 1120, in _forward_step
    outputs = forward(scheduled_requests, self.resource_manager)
AssertionError: total_num_tokens (4123) should be less than or equal to max_num_tokens (4096)
"""


def incident() -> list[str]:
    """A start, pressure, the assertion with its traceback, and the end of the loop, as TensorRT-LLM writes them."""
    return [
        line("I", "max_seq_len=32768, max_num_requests=64, max_num_tokens=4096, max_batch_size=64"),
        "INFO:     Application startup complete.\n",
        line("W", "queue holds 7 requests"),
        line("I", "take note of this"),
        line("E", "Encountered an error in forward function: total_num_tokens (4123) should be less than or equal to "
                  "max_num_tokens (4096)"),
        TRACEBACK,
        line("E", "Error in event loop: total_num_tokens (4123) should be less than or equal to max_num_tokens (4096)"),
        TRACEBACK,
        line("E", "engine loop died: budget"),
    ]  # fmt: skip


def without_wall_time(alerts: list[dict[str, Any]]) -> str:
    return "\n".join(json.dumps({**alert, "detected_at": None}, sort_keys=True) for alert in alerts)


@pytest.mark.parametrize("pace", [0.0, 0.05])
def test_live_and_scan_agree(live: Live, pace: float) -> None:
    live.configure()
    live.log.touch()
    live.start()
    for text in incident():
        live.write(text)
        time.sleep(pace)  # the writer's pace: a traceback comes in one go, or piece by piece
    live.fires("Noted")
    expected: list[dict[str, Any]] = []

    def agrees() -> bool:
        nonlocal expected
        expected = scanned(live)
        return without_wall_time(live.alerts()) == without_wall_time(expected)

    # What waits for its `for` fires live when the time has come, in a scan at the end of the input.
    live.until("both have said the same", agrees, 40)
    assert {alert["alertname"] for alert in expected} > {"Noted"}
    assert any(alert["severity"] == "critical" for alert in expected)
    assert all(alert["detected_at"] for alert in live.alerts())
    assert live.stop() == 0


def scanned(live: Live) -> list[dict[str, Any]]:
    """What ``wedgewatch scan --json`` says of the log as it is now."""
    output = live.run("scan", "--json", "--server", "llama", "--rules", str(live.rules_file), str(live.log))
    found = [json.loads(row) for row in output.splitlines()]
    assert found[-1]["kind"] == "summary", output
    return found[:-1]
