"""Two-sided headroom replay: every verdict can come out, and each for its own reason."""

from __future__ import annotations

import pytest

from reproducer.advise import advise, runs_needed
from reproducer.config import Config, preset
from reproducer.replay import replay
from reproducer.simulate import Outcome
from reproducer.users import Ask, Recorded


@pytest.mark.parametrize(("profile", "users"), [("draft", 27), ("deadlock", 18), ("transfer", 8)])
def test_contention_survives_a_lower_ceiling_and_not_a_smaller_capacity(profile: str, users: int) -> None:
    result = replay(preset(profile), users, seeds=3, steps=1000)
    assert result.verdict == "contention"
    assert all(row.wedges == 0 for row in result.of("lower ceiling") + result.of("more headroom"))
    assert all(row.wedges == 0 for row in result.of("control"))
    assert all(row.share == 1 for row in result.of("smaller capacity"))
    assert result.answer.startswith("Yes: ")
    assert "| lower ceiling |" in result.table()


def test_a_single_request_is_found_with_one_user() -> None:
    result = replay(preset("oversize"), 8, seeds=6, steps=1500)
    assert result.verdict == "single request"
    assert result.answer.startswith("No: ")


def test_a_load_that_survives_reproduces_nothing() -> None:
    result = replay(preset("deadlock"), 4, seeds=2, steps=300)
    assert result.verdict == "not reproduced"


def test_replays_that_contradict_each_other_are_undecided() -> None:
    def run(config: Config, users: int, seed: int) -> Outcome:
        wedged = users > 1 and config.hard_tokens >= 256  # wedges with more headroom, too
        return Outcome(wedged="assertion" if wedged else "", steps=10, completed=1)

    result = replay(preset("draft"), 27, seeds=2, run=run)
    assert result.verdict == "undecided"
    assert "more headroom" in result.answer


def test_a_recorded_closed_loop_runs_again_exactly() -> None:
    rows = tuple(Ask(user, turn, 100, 60, b"x" * 100) for user in range(18) for turn in range(40))
    first, second = (replay(preset("deadlock"), 18, seeds=1, load=Recorded(rows)).to_json() for _ in range(2))
    assert first == second
    assert first["verdict"] == "contention"


def test_a_recorded_open_loop_is_spread_out_for_one_user() -> None:
    rows = tuple(Ask(n, 0, 100, 60, b"x" * 100, at=n * 0.01) for n in range(200))
    result = replay(preset("deadlock"), 200, seeds=1, load=Recorded(rows), step_ms=10)
    assert result.of("as it was")[0].wedges == 1
    assert result.of("one user")[0].wedges == 0


def test_the_exact_rule_of_three() -> None:
    assert runs_needed(0.05, 0.95) == 59
    assert runs_needed(0.1, 0.9) == 22


def test_advice_names_a_provable_and_a_surviving_ceiling() -> None:
    advices = {a.knob: a for a in advise(preset("draft"), 24, chance=0.3, confidence=0.9, steps=300)}
    assert advices["step_tokens"].provable == 224
    assert advices["max_batch"].provable == 16
    survives = advices["step_tokens"].survives
    assert survives is not None
    assert 224 <= survives < 240
    assert "provably safe up to 224" in advices["step_tokens"].sentence()
