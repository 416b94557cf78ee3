"""The skew of a log's clock, from lines that are read some time after they were written."""

from __future__ import annotations

import random

import pytest

from agent.logs.skew import LogClock


def read(
    clock: LogClock, lines: int, skew: float, *, every: float = 5.0, delay: float = 0.4, now: float = 0.0
) -> float:
    """Lines of a clock that is ``skew`` behind ours, read up to ``delay`` later."""
    rng = random.Random(5)
    for _ in range(lines):
        now += 5.0
        clock.see(now - skew - rng.uniform(0, delay), now)
    return now


@pytest.mark.parametrize("skew", [40.0, -40.0, 600.0, -3.5])
def test_it_is_what_lines_differ_by_at_the_least(skew: float) -> None:
    clock = LogClock()
    read(clock, 40, skew)
    assert clock.skew == pytest.approx(skew, abs=0.5)


def test_lines_that_are_held_back_in_blocks_are_no_skew() -> None:
    #  written each second, read each half minute
    clock = LogClock()
    for block in range(10):
        for second in range(30):
            clock.see(30.0 * block + second, 30.0 * block + 30)
    assert clock.skew == 0.0


def test_whole_seconds_and_slow_readers_are_no_skew() -> None:
    clock = LogClock()
    read(clock, 200, 0.5, delay=20.0)
    assert clock.skew == 0.0


def test_a_burst_says_nothing() -> None:
    clock = LogClock()
    assert not any(clock.see(100.0 + n, 400.0) for n in range(100))
    assert clock.skew == 0.0


def test_a_clock_that_is_put_right_is_followed() -> None:
    clock = LogClock()
    now = read(clock, 40, 40.0)
    read(clock, 3, 0.0, now=now)
    assert clock.skew == 0.0


def test_our_own_clock_is_set_back() -> None:
    clock = LogClock()
    read(clock, 40, 0.0, now=10_000.0)
    now = read(clock, 40, 0.0, now=5_000.0)
    assert clock.skew == 0.0
    assert not clock.see(now, now)
