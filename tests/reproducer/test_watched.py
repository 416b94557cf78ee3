"""wedgewatch against the reproducer, in virtual time: each failure by its name, and nothing else by that name.

Campaigns run twenty seeds of every scenario (python -m reproducer matrix watched); here it is one of each.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("agent.cli", reason="the daemon is not here")

from reproducer.matrix import BEGIN, END, _after, _scan, matrix
from reproducer.siblings import SCENARIOS

PROFILES = ("draft", "reuse", "deadlock", "prefill", "transfer", "oversize")
SCRAPE = 5.0  # seconds between two looks
OTHERS = ("recovered", "idle", "disconnects", "engine-dead", "long-prefill")


@pytest.mark.parametrize("name", [*PROFILES, *OTHERS])
def test_it_is_named_rightly(name: str) -> None:
    scenario = SCENARIOS[name]
    fired, last_step = _scan(name, 3, minutes=7.0 if scenario.wedges else 5.5)
    pages = [alert for alert in fired if alert["severity"] == "critical"]
    assert {alert["failure"] for alert in fired} - set(scenario.pages) <= set(scenario.warnings)
    assert bool(pages) == bool(scenario.pages)
    for alert in pages:
        assert alert["failure"] in scenario.pages
        if name in PROFILES:
            assert alert["confidence"] == "confirmed"
            # One request that never fits comes in the first minute, before there is much to learn a deadline from.
            assert _after(alert, last_step) <= (120 + SCRAPE if name == "oversize" else 30)


def test_one_row_is_measured_alone_and_the_others_are_kept(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\n{END}\nafter\n")
    matrix(["watched:idle"], quick=True, write=page, plot_to=None)
    before = page.read_text()
    page.write_text(before.replace("| idle |", "| draft |"))
    matrix(["watched:idle"], quick=True, write=page, plot_to=None)
    rows = [line for line in page.read_text().splitlines() if line.startswith(("| draft |", "| idle |"))]
    assert [row.split("|")[1].strip() for row in rows] == ["draft", "idle"], "in the order of the scenarios"
    assert "| 5 of 5 | - | - |" in rows[1]
    assert page.read_text().startswith("before\n")
    assert page.read_text().endswith("\nafter\n")
