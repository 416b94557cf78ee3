"""A newcomer with the README alone: from a clone to the first alert on the page, following it to the letter.

    make test PYTEST="-m campaign tests/deploy/test_newcomer.py -s"

A campaign, because it installs everything anew, torch included.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.conftest import ROOT

FIVE_MINUTES = 300.0


def first_commands(readme: str) -> list[str]:
    """The lines of the first ``sh`` block, without their comments."""
    block = re.search(r"^```sh\n(.*?)^```", readme, re.M | re.S)
    assert block is not None
    return [line.partition("#")[0].strip() for line in block[1].splitlines()]


def firing(page: str) -> list[dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"{page}/api/v1/alerts", timeout=5) as response:
            alerts: list[dict[str, Any]] = json.load(response)
    except urllib.error.URLError:
        return []
    return [alert for alert in alerts if alert["state"] == "firing" and alert["severity"] == "critical"]


def test_the_first_block_is_the_demo_and_the_tests() -> None:
    assert first_commands((ROOT / "README.md").read_text()) == ["make demo", "make test"]


@pytest.mark.campaign
def test_from_a_clone_to_the_first_alert_on_the_page(tmp_path: Path) -> None:
    began = time.monotonic()
    clone = tmp_path / "wedgewatch"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    command = first_commands((clone / "README.md").read_text())[0]
    page, alert, said = "", None, []
    with subprocess.Popen(
        ["bash", "-c", command], cwd=clone, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
    ) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            said.append(line)
            if found := re.search(r"its page: (http://\S+)", line):
                page = found[1]
            if "noticed" in line:
                shown = firing(page)
                alert = shown[0] if shown else None
                seconds = time.monotonic() - began
                with urllib.request.urlopen(page, timeout=5) as response:
                    html = response.read().decode()
        assert demo.wait() == 0, "".join(said)
    assert alert is not None, "the alert stood in the terminal and not on the page"
    assert alert["failure"] in {"token_budget_deadlock", "kv_cache_deadlock"}
    assert "<title>" in html
    print(f"\n{seconds:.0f} s from the clone to {alert['failure']} on the page")
    assert seconds < FIVE_MINUTES
