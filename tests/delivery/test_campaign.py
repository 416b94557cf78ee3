"""The fault campaign of bench/delivery.py in small: nothing lost, nothing doubled, order kept."""

from __future__ import annotations

import pytest

from bench.delivery import main


def test_a_small_campaign(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--alerts", "8", "--faults", "0.25", "--seed", "2", "--lag-lines", "0"]) == 0
    said = capsys.readouterr().out
    assert "| PagerDuty (dedup key) |" in said
    assert "went wrong" in said
