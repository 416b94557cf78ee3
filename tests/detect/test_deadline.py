"""The learned deadline: what sets it, and that it keeps what it promises."""

from __future__ import annotations

import json
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.detect.deadline import GAMMA, GapHistory, ProgressLimits
from agent.detect.patience import Patience
from agent.detect.stall import Point

LIMITS = ProgressLimits()


def history(*gaps: float, load: float = 1.0) -> GapHistory:
    made = GapHistory()
    for gap in gaps:
        made.add(gap, load)
    return made


def test_before_any_gap_the_cold_deadline_holds() -> None:
    assert history().deadline(LIMITS, 5.0) == (120.0, "cold")


def test_steady_progress_comes_down_to_the_floor_within_minutes() -> None:
    made, taken = GapHistory(), []
    for _ in range(60):
        made.add(5.0)
        taken.append(made.deadline(LIMITS, 5.0))
    waits = [wait for wait, _ in taken]
    assert taken[0] == (120.0, "learned")
    assert waits == sorted(waits, reverse=True)
    assert 35 < waits[11] < 45
    assert taken[-1] == (25.0, "floor")


def test_longest_gap_sets_it_and_no_gap_pushes_it_past_the_ceiling() -> None:
    assert history(*[5.0] * 5000, 40.0).deadline(LIMITS, 5.0)[1] == "learned"
    assert history(*[5.0] * 5000, 40.0).deadline(LIMITS, 5.0)[0] >= 85
    assert history(*[5.0] * 5000, 250.0).deadline(LIMITS, 5.0) == (300.0, "ceiling")


def test_never_less_than_twice_the_longest_gap_and_a_look() -> None:
    made = history(*[5.0] * 150_000, 30.0)
    assert made.deadline(LIMITS, 5.0)[0] >= 65.0


def test_long_gap_is_forgotten_in_the_end() -> None:
    made = history(60.0)
    for _ in range(650_000):
        made.add(5.0)
    assert made.largest == 5.0
    assert made.count <= 200_000


@pytest.mark.parametrize("mean", [2.0, 6.0, 15.0])
def test_exponential_gaps_pass_it_no_oftener_than_stated(mean: float) -> None:
    # 200 servers, each judged by 500 gaps of its own: the chance that a gap passes, against one in GAMMA seconds
    rng = random.Random(7)
    limits = ProgressLimits(floor=0.1, ceiling=1e9)
    rates = []
    for _ in range(200):
        made = history(*[rng.expovariate(1 / mean) for _ in range(500)])
        wait, _ = made.deadline(limits, 0.1)
        rates.append(math.exp(-wait / mean) / mean)
    assert sum(rates) / len(rates) <= 1 / GAMMA


def test_load_levels_keep_the_quiet_hours_out_of_the_busy_ones() -> None:
    # completions only: one request at a time ends each half a minute, forty end all the time
    made = history(*[30.0] * 400, load=1.0)
    for _ in range(400):
        made.add(5.0, load=40.0)
    assert made.deadline(LIMITS, 5.0, load=1.0)[0] >= 65
    assert made.deadline(LIMITS, 5.0, load=40.0) == (25.0, "floor")
    assert made.deadline(LIMITS, 5.0)[0] >= 65


def test_level_without_history_borrows_from_the_next_below() -> None:
    made = history(*[30.0] * 400, load=1.0)
    assert made.deadline(LIMITS, 5.0, load=100.0)[0] >= 65


@given(st.lists(st.tuples(st.floats(0, 1000), st.floats(0, 5000)), max_size=60), st.floats(0, 5000))
def test_survives_being_written_down(gaps: list[tuple[float, float]], load: float) -> None:
    made, again = GapHistory(), GapHistory()
    for gap, under in gaps:
        made.add(gap, under)
    again.restore(json.loads(json.dumps(made.snapshot())))
    assert again.deadline(LIMITS, 5.0, load) == made.deadline(LIMITS, 5.0, load)
    assert (again.count, again.largest) == (made.count, made.largest)


@given(st.lists(st.floats(0, 2000), max_size=50), st.floats(0.5, 60))
def test_stays_within_its_bounds(gaps: list[float], interval: float) -> None:
    wait, source = history(*gaps).deadline(LIMITS, interval)
    assert LIMITS.floor <= wait <= LIMITS.ceiling
    assert source in ("cold", "floor", "learned", "ceiling")


def patient(gaps: int = 400) -> Patience:
    made = Patience()
    for _ in range(gaps):
        made.learn(5.0, 8.0)
    return made


def test_new_process_is_trusted_step_by_step() -> None:
    made = patient()
    assert made.deadline(LIMITS, 5.0, 8.0) == (25.0, "floor")
    made.restarted()
    assert made.deadline(LIMITS, 5.0, 8.0) == (120.0, "cold")
    for _ in range(10):
        made.learn(5.0, 8.0)
    assert 30 < made.deadline(LIMITS, 5.0, 8.0)[0] < 60


def test_step_that_may_hold_a_whole_long_prompt_is_waited_for() -> None:
    made = patient()
    assert made.deadline(LIMITS, 5.0, 8.0, budget=8_192) == (25.0, "floor")
    assert made.deadline(LIMITS, 5.0, 8.0, budget=65_536) == (pytest.approx(65.5, abs=0.1), "prefill")
    made.look(Point(0.0, step=5.0, prompted=60_000.0))
    assert made.deadline(LIMITS, 5.0, 8.0, budget=65_536) == (25.0, "floor")
    assert made.deadline(LIMITS, 5.0, 8.0, budget=1e9) == (120.0, "prefill")


def test_reasons_to_wait_longer() -> None:
    made = patient()
    assert made.deadline(LIMITS, 5.0, 8.0, transfer=True) == (120.0, "transfer")
    assert made.deadline(LIMITS, 5.0, 8.0, vanished=True) == (300.0, "vanished")
    assert made.deadline(LIMITS, 5.0, 8.0, waking=True) == (300.0, "waking")


def test_loop_that_turns_does_not_compile_unless_its_queue_grew_before_without_meaning_anything() -> None:
    made = Patience()
    assert made.deadline(LIMITS, 5.0, 8.0, turns=True) == (50.0, "turning")
    made.learn(40.0, 8.0, turned=True)
    assert made.deadline(LIMITS, 5.0, 8.0, turns=True)[0] >= 85


def test_what_ended_by_itself_is_learned_the_second_time() -> None:
    made = patient()
    made.forgive(80.0, 8.0, LIMITS)
    assert made.deadline(LIMITS, 5.0, 8.0) == (25.0, "floor")
    made.forgive(80.0, 8.0, LIMITS)
    assert 65 <= made.deadline(LIMITS, 5.0, 8.0)[0] <= 120
