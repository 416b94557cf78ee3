"""Every incident through ``wedgewatch scan --json``, as a user runs it, against the answer that is right.

All of them take about a minute and a half; by default every third one runs, and those in `KNOWN` besides. With
``WEDGEWATCH_ALL_INCIDENTS=1`` all run. ``python -m tests.incidents.build FOLDER NAME`` writes one out to look at.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from agent.rules import load
from tests.incidents.build import all_plans
from tests.incidents.check import faults
from tests.incidents.incident import Plan, seed

PLANS = all_plans()
KNOWN: dict[str, str] = {}
"""Incidents that are answered wrongly today, and what the right answer is."""
_ALL = bool(os.environ.get("WEDGEWATCH_ALL_INCIDENTS"))


def _chosen() -> Iterator[Any]:
    for plan in PLANS:
        if plan.name in KNOWN:
            yield pytest.param(plan, id=plan.name, marks=pytest.mark.xfail(reason=KNOWN[plan.name], strict=False))
        elif _ALL or seed(plan.name) % 3 == 0:
            yield pytest.param(plan, id=plan.name)


@pytest.fixture(autouse=True)
def _rules_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading the bundled rules takes longer than most incidents; the rules themselves do not change."""
    monkeypatch.setattr(load, "load_rules", _load)


_read = load.load_rules


@cache
def _loaded(check_expr: Any) -> Any:
    return _read([], check_expr=check_expr)


def _load(paths: list[str], bundled: bool = True, *, check_expr: Any, disabled: Any = ()) -> Any:
    assert not paths
    assert bundled
    assert not disabled
    return _loaded(check_expr)


@pytest.mark.parametrize("plan", list(_chosen()))
def test_incident_gets_the_answer_that_is_right(plan: Plan, tmp_path: Path) -> None:
    incident = plan.make()

    wrong = faults(incident, tmp_path, engine_given=bool(seed(plan.name) & 2))

    assert wrong == [], incident.why


def test_there_are_enough_of_them_and_half_are_healthy() -> None:
    names = [plan.name for plan in PLANS]
    assert len(names) == len(set(names))
    assert len(names) >= 250
    assert KNOWN.keys() <= set(names)


def test_the_same_incident_is_built_twice_the_same() -> None:
    for plan in PLANS[::40]:
        assert plan.make() == plan.make()
