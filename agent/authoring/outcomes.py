"""What alerts came of a test, against what was expected of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from agent.model import CRITICAL_FAMILIES, FAILURE_FAMILY, Alert, rfc3339
from agent.rules.spec import ExpectSpec
from agent.schema import format_duration

__all__ = ["Outcome", "mismatches", "outcomes"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One alert over its whole life: its last state, and how it stood when it last fired."""

    alertname: str
    failure: str
    state: str
    confidence: str
    severity: str
    starts_at: float
    fired_at: float | None
    labels: dict[str, str] = field(default_factory=dict)
    fields: dict[str, str] = field(default_factory=dict)

    @property
    def critical(self) -> bool:
        return FAILURE_FAMILY.get(self.failure) in CRITICAL_FAMILIES

    def __str__(self) -> str:
        text = f"{self.alertname} ({self.failure}) {self.state}, {self.confidence}, {self.severity}"
        if self.fired_at is None:
            return f"{text}, began {rfc3339(self.starts_at)}, never fired"
        return f"{text}, fired {format_duration(self.fired_at - self.starts_at)} after {rfc3339(self.starts_at)}"


def outcomes(alerts: Sequence[Alert]) -> list[Outcome]:
    """Transitions put together by alert, in order of appearance."""
    lives: dict[str, list[Alert]] = {}
    for alert in alerts:
        lives.setdefault(alert.fingerprint, []).append(alert)
    found = []
    for life in lives.values():
        fired = [alert for alert in life if alert.state == "firing"]
        shown = fired[-1] if fired else life[-1]
        fields: dict[str, str] = {}
        for stage in shown.stages:
            fields.update(stage.fields)
        found.append(
            Outcome(
                alertname=shown.alertname,
                failure=shown.failure,
                state=life[-1].state,
                confidence=shown.confidence,
                severity=shown.severity,
                starts_at=shown.starts_at,
                fired_at=shown.fired_at if fired else None,
                labels=dict(shown.labels),
                fields=fields,
            )
        )
    return found


def mismatches(expected: Sequence[ExpectSpec], came: Sequence[Outcome]) -> list[str]:
    """What is wrong, one text for each; empty when all is as expected.

    Each expected alert takes one that came. With ``expect: []`` nothing may fire; otherwise a warning more is allowed
    and a critical alert more is not. What stayed pending is held against nobody.
    """
    left = list(came)
    problems = []
    shown = False  # whether everything that fired was named already, in place of an alert that did not come
    for want in expected:
        candidates = [outcome for outcome in left if _same_name(want, outcome)]
        good = next((outcome for outcome in candidates if not _differences(want, outcome)), None)
        if good is not None:
            left.remove(good)
        elif candidates:
            # Several of the name: the one that fired is what the writer meant.
            near = max(candidates, key=lambda outcome: outcome.fired_at is not None)
            left.remove(near)
            problems.append(
                "\n".join([f"expected  {_described(want)}", f"got       {near}", *_differences(want, near)])
            )
        else:
            shown = True
            fired = [str(outcome) for outcome in came if outcome.fired_at is not None]
            instead = "\n          ".join(fired or [*(str(outcome) for outcome in came), "nothing fired"])
            problems.append(f"expected  {_described(want)}\ngot       {instead}")
    problems.extend(
        f"expected  {'nothing to fire' if not expected else 'no other critical alert'}\ngot       {outcome}"
        for outcome in left
        if outcome.fired_at is not None and (outcome.critical or not expected) and not shown
    )
    return problems


def _same_name(want: ExpectSpec, outcome: Outcome) -> bool:
    return want.alert in (None, outcome.alertname) and want.failure in (None, outcome.failure)


def _differences(want: ExpectSpec, outcome: Outcome) -> list[str]:
    """``- name: expected this, got that``."""
    pairs: list[tuple[str, str | None, str]] = [
        ("confidence", want.confidence, outcome.confidence),
        ("severity", want.severity, outcome.severity),
        *((f"label {name}", value, outcome.labels.get(name, "none")) for name, value in want.labels.items()),
        *((f"field {name}", value, outcome.fields.get(name, "none")) for name, value in want.fields.items()),
    ]
    found = [f"- {name}: expected {value}, got {got}" for name, value, got in pairs if value not in (None, got)]
    reached = outcome.fired_at is not None
    if want.state == "firing" and not reached:
        found.append(f"- state: expected firing, got {outcome.state}")
    if want.state == "resolved" and not (reached and outcome.state == "resolved"):
        found.append(f"- state: expected resolved after firing, got {outcome.state}")
    if want.state == "pending" and reached:
        found.append("- state: expected pending only, but it fired")
    if want.within is not None and outcome.fired_at is not None:
        took = outcome.fired_at - outcome.starts_at
        if took > want.within:
            found.append(f"- within: expected at most {format_duration(want.within)}, took {format_duration(took)}")
    return found


def _described(want: ExpectSpec) -> str:
    name = want.alert or ""
    failure = f"({want.failure})" if want.failure else ""
    parts = [want.state, want.confidence, want.severity]
    text = f"{name} {failure}".strip() + " " + ", ".join(part for part in parts if part)
    return text + (f", within {format_duration(want.within)}" if want.within is not None else "")
