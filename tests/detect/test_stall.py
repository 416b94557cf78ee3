"""The tests that are no mere deadline: livelock and trickle, look by look."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.detect.busy import BusyClock, DripClock, Pace
from agent.detect.deadline import ProgressLimits
from agent.detect.stall import Point, livelock, merged, preempts, speed
from agent.detect.usual import Usual

LIMITS = ProgressLimits()
LOOK = Point(0.0, 5.0, running=4.0, waiting=9.0, in_flight=13.0, kv=0.97, finished=0.0, generated=0.0, preempted=8.0)


def looks(count: int = 30, **what: float) -> list[Point]:
    made = [replace(LOOK, timestamp=5.0 * number, **what) for number in range(count)]
    return [replace(made[0], finished=1.0), *made[1:]]


def test_preemptions_all_along_and_nothing_delivered() -> None:
    found = livelock(looks(), 145.0, 30.0, LIMITS, 15.0)
    assert found is not None
    assert (found.since, found.declared, found.kind) == (0.0, 145.0, "livelock")


@pytest.mark.parametrize(
    ("points", "why"),
    [
        (looks(20), "the window is not yet covered"),
        (looks(preempted=0.0), "nobody is preempted"),
        (looks(preempted=0.2), "hardly anybody is preempted"),
        (looks(generated=100.0), "tokens come at a fair pace"),
        (looks(in_flight=0.0), "nobody waits"),
        ([*looks()[:20], replace(looks()[20], finished=1.0), *looks()[21:]], "a request completes"),
        ([*looks()[:20], replace(looks()[20], step=60.0), *looks()[21:]], "there is a hole in our sight"),
        ([replace(point, finished=None) for point in looks()], "completions are not counted"),
        ([], "there is nothing"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_no_livelock_when(points: list[Point], why: str) -> None:
    assert livelock(points, 145.0, 30.0, LIMITS, 15.0) is None, why


def test_few_preemptions_are_no_storm() -> None:
    assert not preempts([replace(LOOK, preempted=0.0)] * 9 + [replace(LOOK, preempted=50.0)])
    assert preempts([LOOK] * 3)


def test_speed_is_that_of_one_request() -> None:
    assert speed(replace(LOOK, generated=100.0)) == 5.0
    assert speed(replace(LOOK, generated=None)) is None
    assert speed(replace(LOOK, step=0.0)) is None
    assert speed(replace(LOOK, generated=100.0, running=0.0)) == 20.0


def test_two_looks_as_one() -> None:
    first = replace(LOOK, timestamp=10.0, step=0.25, generated=5.0, progress=True, kv=0.5)
    both = merged(first, replace(LOOK, timestamp=10.5, step=0.5, generated=7.0, finished=None))
    assert (both.timestamp, both.step, both.generated, both.preempted) == (10.5, 0.75, 12.0, 16.0)
    assert (both.progress, both.finished, both.kv) == (True, None, 0.97)


def drip(clock: DripClock, looks: int, **what: float) -> float:
    known = {"crawls": True, "tokens": 1.0, "waiting": 5.0, "aborted": 0.0, "pool": 0.5} | what
    for number in range(looks):
        clock.look(5.0 * number, 5.0, seen=True, **known)  # type: ignore[arg-type]  # booleans among them
    return clock.seconds


def test_drip_clock_runs_while_it_drips_over_a_queue() -> None:
    assert drip(DripClock(), 12) == 60.0


@pytest.mark.parametrize(
    "what", [{"crawls": False}, {"waiting": 0.0}, {"waiting": 4.0}, {"pool": 0.51}], ids=lambda what: next(iter(what))
)
def test_drip_clock_is_turned_back(what: dict[str, float]) -> None:
    clock = DripClock()
    drip(clock, 12)
    assert drip(clock, 1, **what) <= 5.0


def test_drip_clock_goes_on_when_the_queue_shrinks_by_those_who_give_up() -> None:
    clock = DripClock()
    drip(clock, 12)
    assert drip(clock, 1, waiting=3.0, aborted=2.0) == 65.0


def test_busy_clock_counts_only_between_looks_that_saw_work() -> None:
    #  load    4  4  0  4  4 | gap of 60 s | 4  4(moved)
    #  seconds 0  5  5  5  10      10       10+5
    clock = BusyClock()
    seconds, gaps, now = [], [], 0.0
    for step, load, moved in ((5, 4, 0), (5, 4, 0), (5, 0, 0), (5, 4, 0), (5, 4, 0), (60, 4, 0), (5, 4, 1)):
        now += step
        gaps.append(clock.look(now, step, load, seen=step < 15, moved=bool(moved)))
        seconds.append(clock.seconds)
    assert seconds == [0, 5, 5, 5, 10, 10, 0]
    assert gaps == [None] * 6 + [15]
    assert clock.since == now


def test_busy_clock_starts_afresh_after_ten_idle_minutes() -> None:
    clock = BusyClock()
    for now in range(0, 25, 5):
        clock.look(now, 5, 4, seen=True, moved=False)
    for now in range(25, 700, 5):
        clock.look(now, 5, 0, seen=True, moved=False)
    assert (clock.seconds, clock.since, clock.busy) == (0.0, None, False)


def test_pace_follows_the_looks_and_not_their_gaps() -> None:
    pace = Pace()
    for step in (15, 15, 15, 600, 15, 15):
        pace.follow(step)
    assert pace.interval == 15
    assert pace.hole == 45


def test_usual_is_the_median_within_a_tenth_and_moves_with_the_times() -> None:
    usual = Usual()
    for value in (0, -1, 10, 10, 10, 500):
        usual.add(value)
    assert usual.median() == pytest.approx(10, rel=0.1)
    for _ in range(40_000):
        usual.add(80)
    assert usual.median() == pytest.approx(80, rel=0.1)
    assert usual.count <= 10_000
    assert Usual().median() == 0.0
