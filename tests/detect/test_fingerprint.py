"""Ordered stages inside a window. Above each test stands its timeline; ``|`` is one second."""

from __future__ import annotations

import json

import pytest

from agent.detect.fingerprint import FingerprintMatcher, Match
from agent.model import LogRecord
from agent.rules.model import Condition, Fingerprint, Matcher, Rule, Stage

START, PRESSURE, SYMPTOM, LOOP_END = range(4)


def rule(*, within: float = 900, by: tuple[str, ...] = ("server", "rank"), absent_after: float = 0.0) -> Rule:
    def stage(name: str, *, optional: bool = False, terminal: bool = False) -> Stage:
        return Stage(name, Condition(any=(Matcher("contains", name),)), optional=optional, terminal=terminal)

    return Rule(
        alert="TokenBudgetDeadlock",
        failure="token_budget_deadlock",
        severity="critical",
        fingerprint=Fingerprint(
            stages=(
                stage("start", optional=True),
                stage("pressure"),
                stage("symptom"),
                stage("loop_end", optional=True, terminal=True),
            ),
            within=within,
            by=by,
            absent=(Condition(any=(Matcher("contains", "out of memory"),)),),
            absent_after=absent_after,
        ),
    )


def record(at: float, text: str = "x", **attributes: str) -> LogRecord:
    return LogRecord(timestamp=at, body=text, file="server.log", line=int(at) + 1, attributes=attributes)


def feed(matcher: FingerprintMatcher, at: float, stage: int, **attributes: str) -> Match | None:
    return matcher.observe(record(at, f"line {stage}", **attributes), {stage: {}})


def test_stages_in_order_inside_the_window_match() -> None:
    # start   pressure   symptom
    # 0       10         20
    matcher = FingerprintMatcher(rule())
    assert feed(matcher, 0, START) is None
    assert feed(matcher, 10, PRESSURE) is None
    match = feed(matcher, 20, SYMPTOM)
    assert match is not None
    assert [stage.stage for stage in match.stages] == ["start", "pressure", "symptom"]
    assert (match.started, match.completed, match.terminal) == (10, 20, False)


def test_a_required_stage_that_comes_after_its_successor_does_not_count() -> None:
    # symptom ..... pressure (too late to be its cause)
    matcher = FingerprintMatcher(rule())
    feed(matcher, 0, SYMPTOM)
    assert feed(matcher, 10, PRESSURE) is None


@pytest.mark.parametrize("early", [0.0, 1.0])
def test_equal_times_and_streams_that_overtake_each_other_match(early: float) -> None:
    # stderr's traceback is read up to a second before stdout's warning
    matcher = FingerprintMatcher(rule())
    feed(matcher, 10 - early, SYMPTOM)
    assert feed(matcher, 10, PRESSURE) is not None


def test_stages_further_apart_than_the_window_do_not_match() -> None:
    matcher = FingerprintMatcher(rule(within=60))
    feed(matcher, 0, PRESSURE)
    assert feed(matcher, 61, SYMPTOM) is None
    assert feed(matcher, 70, PRESSURE) is None
    assert feed(matcher, 130, SYMPTOM) is not None


def test_the_start_of_the_server_is_evidence_however_long_ago() -> None:
    # start ............ (hours) ............ pressure symptom
    matcher = FingerprintMatcher(rule(within=60))
    feed(matcher, 0, START)
    feed(matcher, 9000, PRESSURE)
    match = feed(matcher, 9001, SYMPTOM)
    assert match is not None
    assert match.stages[0].stage == "start"
    assert match.started == 9000


def test_ranks_are_kept_apart_and_a_bare_line_goes_with_each() -> None:
    # rank 0: pressure          rank 1: pressure
    #            symptom without a rank (a bare traceback)
    matcher = FingerprintMatcher(rule())
    feed(matcher, 0, PRESSURE, rank="0")
    assert feed(matcher, 1, SYMPTOM, rank="1") is None
    match = feed(matcher, 2, SYMPTOM)
    assert match is not None
    assert match.rank == "0"


def test_repeats_are_counted_not_matched_again() -> None:
    matcher = FingerprintMatcher(rule())
    feed(matcher, 0, PRESSURE)
    feed(matcher, 1, SYMPTOM)
    match = None
    for at in range(2, 62):
        match = feed(matcher, at, SYMPTOM)
    assert match is not None
    assert [stage.count for stage in match.stages] == [1, 61]
    assert match.completed == 1


def test_a_terminal_stage_marks_the_match() -> None:
    matcher = FingerprintMatcher(rule())
    feed(matcher, 0, PRESSURE)
    feed(matcher, 1, SYMPTOM)
    match = feed(matcher, 2, LOOP_END)
    assert match is not None
    assert match.terminal
    assert (match.completed, match.last) == (1, 2)


def test_a_siblings_own_line_rules_the_failure_out() -> None:
    # pressure   out of memory   symptom
    matcher = FingerprintMatcher(rule())
    feed(matcher, 0, PRESSURE)
    matcher.observe(record(1, "out of memory"), {}, absent=True)
    assert feed(matcher, 2, SYMPTOM) is None


def test_a_negative_condition_after_the_last_stage_is_decided_when_its_window_is_past() -> None:
    # pressure symptom ... (30 s in which "out of memory" would rule it out)
    matcher = FingerprintMatcher(rule(absent_after=30))
    feed(matcher, 0, PRESSURE)
    match = feed(matcher, 1, SYMPTOM)
    assert match is not None
    assert match.decided == 31
    matcher.observe(record(20, "out of memory"), {}, absent=True)
    assert matcher.matches() == []


def test_one_line_fills_one_stage() -> None:
    matcher = FingerprintMatcher(rule())
    assert matcher.observe(record(0), {PRESSURE: {}, SYMPTOM: {}}) is None
    assert matcher.observe(record(1), {PRESSURE: {}, SYMPTOM: {}}) is not None


def test_count_within_needs_that_many_that_close() -> None:
    base = rule()
    assert base.fingerprint is not None
    stage = Stage("wait", Condition(any=(Matcher("contains", "wait"),)), count=3, count_within=10)
    counted = Rule(base.alert, base.failure, "critical", fingerprint=Fingerprint((stage,)))
    matcher = FingerprintMatcher(counted)
    # 0   4   20  24  28
    assert [matcher.observe(record(at), {0: {}}) is not None for at in (0, 4, 20, 24, 28)] == [False] * 4 + [True]


def test_evidence_of_a_match_is_spent_but_the_start_stays() -> None:
    matcher = FingerprintMatcher(rule())
    feed(matcher, 0, START)
    feed(matcher, 1, PRESSURE)
    match = feed(matcher, 2, SYMPTOM)
    assert match is not None
    matcher.spend(match.key, 2)
    assert feed(matcher, 3, SYMPTOM) is None
    feed(matcher, 4, PRESSURE)
    again = feed(matcher, 5, SYMPTOM)
    assert again is not None
    assert [stage.stage for stage in again.stages] == ["start", "pressure", "symptom"]


def test_a_restart_forgets_what_the_predecessor_said() -> None:
    matcher = FingerprintMatcher(rule())
    feed(matcher, 0, PRESSURE)
    matcher.restart()
    assert feed(matcher, 1, SYMPTOM) is None


def test_captured_fields_are_kept() -> None:
    matcher = FingerprintMatcher(rule())
    matcher.observe(record(0), {PRESSURE: {"waiting": "7"}})
    match = matcher.observe(record(1), {SYMPTOM: {"total": "4100", "max": "4096"}})
    assert match is not None
    assert match.fields == {"waiting": "7", "total": "4100", "max": "4096"}


def test_state_survives_a_restart_of_the_daemon() -> None:
    # INFO and WARN before, ERROR after
    matcher = FingerprintMatcher(rule())
    feed(matcher, 0, START)
    feed(matcher, 1, PRESSURE, rank="3")
    heir = FingerprintMatcher(rule())
    heir.restore(json.loads(json.dumps(matcher.snapshot())))
    match = feed(heir, 2, SYMPTOM, rank="3")
    assert match is not None
    assert match.rank == "3"
    assert [stage.stage for stage in match.stages] == ["start", "pressure", "symptom"]


def test_keys_are_bounded() -> None:
    matcher = FingerprintMatcher(rule())
    for number in range(2000):
        feed(matcher, number, PRESSURE, rank=str(number))
    assert len(matcher.snapshot()["buckets"]) == 256
