"""The search finds an onset that is there, says how sure it is, and does not call a window a threshold."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from reproducer.config import preset
from reproducer.predict import bracket
from reproducer.threshold import Curve, fit, onset, plot, sprt
from reproducer.users import population_for


def test_two_agreeing_runs_decide() -> None:
    assert sprt(lambda _: True) == (True, 2, 2)
    assert sprt(lambda _: False) == (False, 0, 2)


def test_a_split_level_is_given_up_undecided() -> None:
    above, wedges, runs = sprt(lambda run: run % 2 == 0, most=10)
    assert (above, wedges, runs) == (False, 5, 10)


def test_a_known_onset_is_found_within_its_interval() -> None:
    """Chance of a wedge: logistic around 19, as measured for a pool of 2048 blocks."""

    def trial(users: int, seed: int) -> bool:
        return random.Random(f"{users}/{seed}").random() < 1 / (1 + 2.718281828 ** (-(users - 19) * 1.8))

    curve = onset(preset("deadlock"), trial=trial, runs=16)
    assert curve.low <= 19 <= curve.high
    assert abs(curve.c50 - 19) < 1.5
    assert not curve.falls
    assert curve.chance(curve.c50) == pytest.approx(0.5)
    assert "half of the runs wedge" in curve.sentence()


def test_separated_data_gives_a_finite_width() -> None:
    centre, width = fit({8: (0, 10), 9: (10, 10)})
    assert 8 < centre < 9
    assert 0 < width < 1


def test_a_window_is_reported_as_one() -> None:
    curve = onset(preset("reuse"), trial=lambda users, seed: 8 <= users <= 14, runs=6)
    assert "more load is not worse here" in curve.falls
    assert "NOT A THRESHOLD" in curve.sentence()


def test_no_wedge_at_any_load() -> None:
    curve = onset(preset("preempt"), trial=lambda users, seed: False, largest=16)
    assert "no wedge at any load" in curve.sentence()
    assert curve.to_json()["c50"] is None


def test_the_bracket_holds_what_is_measured() -> None:
    """Measured with 3000 steps and 16 runs a level (docs/reproducer.md): 11.8 users."""
    config = preset("deadlock")
    predicted = bracket(config, population_for("deadlock", config.max_seq_len, 0))
    assert predicted["low"] * 0.85 <= 11.8 <= predicted["high"] * 1.15
    assert predicted["mean_field"] > predicted["high"], "the mean alone is too hopeful"


def test_the_curve_is_drawn(tmp_path: Path) -> None:
    curve = Curve(
        "draft", {16: (0, 10), 17: (2, 10), 18: (10, 10)}, 17.4, 16.9, 17.8, 0.8, "", {"low": 17, "high": 19}, 16
    )
    plot([curve], tmp_path / "curve.png", subtitle="a test")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
