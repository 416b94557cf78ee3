"""When a training run's next step is overdue."""

from __future__ import annotations

from agent.detect.steps import FLOOR, PAUSES, Steps


def test_nothing_is_due_before_the_first_step() -> None:
    assert Steps().overdue is None


#  0    60   120                       120 + half an hour
#  step step step .................... overdue
def test_a_quick_run_is_given_half_an_hour() -> None:
    steps = Steps()
    for at in (0.0, 60.0, 120.0):
        steps.report(at)
    assert steps.overdue == 120.0 + FLOOR


def test_a_run_with_long_pauses_is_given_a_multiple_of_the_longest() -> None:
    steps = Steps()
    for at in (0.0, 3000.0, 3060.0):
        steps.report(at)
    assert steps.overdue == 3060.0 + PAUSES * 3000.0


def test_an_end_leaves_nothing_due() -> None:
    steps = Steps()
    steps.report(0.0)
    steps.forget()
    assert steps.overdue is None


def test_it_survives_a_restart_and_a_clock_that_is_set() -> None:
    steps, after = Steps(), Steps()
    steps.report(0.0)
    steps.report(600.0)
    after.restore(steps.snapshot())
    after.shift(-100.0)
    assert after.overdue == 500.0 + 3000.0
