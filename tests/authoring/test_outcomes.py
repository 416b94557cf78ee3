"""What came of a test against what was expected: a readable difference, nothing held against anyone unfairly."""

from __future__ import annotations

from typing import Any

import pytest

from agent.authoring.outcomes import mismatches, outcomes
from agent.model import Alert, StageEvidence
from agent.rules.spec import ExpectSpec


def alert(name: str = "Stall", **changes: Any) -> Alert:
    values: dict[str, Any] = {
        "alertname": name,
        "failure": "silent_stall",
        "state": "firing",
        "confidence": "confirmed",
        "severity": "critical",
        "server": "server",
        "engine": "vllm",
        "fingerprint": name,
        "starts_at": 1000.0,
        "fired_at": 1012.0,
        "labels": {"rank": "3"},
        "stages": (StageEvidence("symptom", 1000.0, "x", fields={"total": "7"}),),
    }
    return Alert(**(values | changes))


PENDING = alert(state="pending", confidence="suspected", fired_at=None)
RESOLVED = alert(state="resolved", ends_at=1100.0)
WARNING = alert("Slow", failure="overload", severity="warning", fingerprint="w")


@pytest.mark.parametrize(
    ("alerts", "expected"),
    [
        ([alert()], [ExpectSpec(alert="Stall")]),
        ([alert()], [ExpectSpec(failure="silent_stall")]),
        ([PENDING, alert()], [ExpectSpec(alert="Stall", confidence="confirmed", severity="critical", within=15.0)]),  # type: ignore[arg-type]
        ([PENDING, alert(), RESOLVED], [ExpectSpec(alert="Stall", state="resolved")]),
        ([PENDING, alert(), RESOLVED], [ExpectSpec(alert="Stall", state="firing")]),
        ([PENDING], [ExpectSpec(alert="Stall", state="pending", confidence="suspected")]),
        ([alert()], [ExpectSpec(alert="Stall", labels={"rank": "3"}, fields={"total": "7"})]),
        ([alert(), WARNING], [ExpectSpec(alert="Stall")]),
        ([PENDING], []),
        ([], []),
        (
            [alert(fingerprint="a", labels={"rank": "1"}), alert(fingerprint="b", labels={"rank": "2"})],
            [ExpectSpec(alert="Stall", labels={"rank": "2"}), ExpectSpec(alert="Stall", labels={"rank": "1"})],
        ),
    ],
)
def test_what_was_expected_came(alerts: list[Alert], expected: list[ExpectSpec]) -> None:
    assert mismatches(expected, outcomes(alerts)) == []


@pytest.mark.parametrize(
    ("alerts", "expected", "words"),
    [
        ([], [ExpectSpec(alert="Stall")], "got       nothing fired"),
        ([alert("Other")], [ExpectSpec(alert="Stall")], "got       Other (silent_stall) firing"),
        (
            [alert()],
            [ExpectSpec(alert="Stall", confidence="probable")],
            "- confidence: expected probable, got confirmed",
        ),
        ([alert()], [ExpectSpec(alert="Stall", severity="warning")], "- severity: expected warning, got critical"),
        ([alert()], [ExpectSpec(alert="Stall", within=10.0)], "- within: expected at most 10s, took 12s"),  # type: ignore[arg-type]
        ([alert()], [ExpectSpec(alert="Stall", labels={"rank": "4"})], "- label rank: expected 4, got 3"),
        ([alert()], [ExpectSpec(alert="Stall", fields={"max": "4"})], "- field max: expected 4, got none"),
        ([alert()], [ExpectSpec(alert="Stall", state="pending")], "- state: expected pending only, but it fired"),
        (
            [alert()],
            [ExpectSpec(alert="Stall", state="resolved")],
            "- state: expected resolved after firing, got firing",
        ),
        ([PENDING], [ExpectSpec(alert="Stall")], "- state: expected firing, got pending"),
        ([alert()], [], "expected  nothing to fire"),
        ([WARNING], [], "expected  nothing to fire"),
        ([WARNING, alert()], [ExpectSpec(alert="Slow")], "expected  no other critical alert"),
        ([alert()], [ExpectSpec(alert="Stall"), ExpectSpec(alert="Stall")], "expected  Stall firing"),
    ],
)
def test_what_was_not_is_said(alerts: list[Alert], expected: list[ExpectSpec], words: str) -> None:
    problems = mismatches(expected, outcomes(alerts))
    assert len(problems) == 1
    assert words in problems[0]


def test_the_numbers_of_the_last_firing_count() -> None:
    # pending suspected -> firing probable -> firing confirmed -> resolved
    (outcome,) = outcomes([PENDING, alert(confidence="probable"), alert(), RESOLVED])
    assert (outcome.state, outcome.confidence, outcome.fired_at) == ("resolved", "confirmed", 1012.0)
    assert str(outcome) == "Stall (silent_stall) resolved, confirmed, critical, fired 12s after 1970-01-01T00:16:40Z"
