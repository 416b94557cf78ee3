"""A small run of bench/detection.py with fixed seeds: no healthy hour pages, no wedge is missed, none is late."""

from __future__ import annotations

import random
import statistics
from pathlib import Path

import pytest

from agent.detect.deadline import ProgressLimits
from bench.baselines import NoCompletions, NoTokens
from bench.detection import faults, healthy, wedged
from bench.detection_page import bound, page, summary, table
from bench.kept import Job, Kept
from bench.queueing import Engine, Shape
from bench.scenarios import HEALTHY
from bench.wedges import WEDGES
from bench.weeks import live, report

LATE = {
    "before ten completions": 180.0,  # half of the 60 s rule's is out of reach: it pages for every compiling kernel
    "trickle": 150.0,
    "preemption livelock": 150.0,
}
"""Median delay that is allowed, in seconds; half of what the quicker rule takes where nothing else is said."""


@pytest.mark.parametrize("kind", HEALTHY)
def test_healthy_hours_page_nobody(kind: str) -> None:
    assert healthy(kind, seed=11, hours=1.0).where == []


@pytest.mark.parametrize("kind", WEDGES)
def test_wedges_are_found_in_time(kind: str) -> None:
    found = [wedged(kind, seed) for seed in range(1 if kind.startswith("one replica") else 5)]
    delays = [one.delays[0] for one in found if one.delays[0] is not None]
    assert len(delays) == len(found)
    assert statistics.median(delays) <= LATE.get(kind, 31.5)
    assert not any(one.before.where for one in found if one.before is not None)


def test_same_seed_same_result() -> None:
    assert wedged("trickle", 5) == wedged("trickle", 5)
    assert healthy("restarts", 5, 0.5) == healthy("restarts", 5, 0.5)


def test_a_deadline_without_patience_pages_healthy_hours() -> None:
    # the simulation is no yes-man
    assert healthy("restarts", 11, 3.0, ProgressLimits(floor=5.0, cold=8.0, ceiling=8.0)).pages[0] > 0


def test_page_of_a_small_run() -> None:
    lines = table([healthy("steady", 1, 0.2), wedged("oversize head", 1)])
    assert any(line.startswith("| **all** | 1 |") for line in lines)
    assert 13 < bound(1.0) < 20


def test_summary_says_what_is_not_met() -> None:
    rest, found, late = healthy("steady", 1, 0.2), wedged("oversize head", 1), wedged("before ten completions", 3)
    found.delays, late.delays = [27.0, 62.0, 300.0], [100.0, 62.0, None]
    told = summary([rest, found, late])
    flat = told.replace("\n", " ")
    assert "0 false pages in" in flat
    assert "0 of 2 wedges missed" in flat
    assert "for 1 of 2 kinds (not for: before ten completions 100 s against 62 s)" in flat
    assert told in page("python -m bench.detection", 2, 30.0, [told], [], [])


def test_engine_keeps_its_books() -> None:
    engine = Engine(random.Random(2), Shape(slots=48, pool=40_000.0, longest=8_192.0))
    engine.set_rate(2 * engine.shape.capacity())
    for _ in range(900):
        engine.advance(engine.now + 1.0)
        assert engine.held <= engine.shape.pool * 1.05
        assert len(engine.running) + len(engine.prefilling) <= 48
    assert engine.counts["preempted"] > 0
    assert engine.counts["finished"] > 100
    engine.set_rate(0.0)
    engine.advance(engine.now + 20_000.0)
    assert engine.in_flight() == 0
    assert engine.held == pytest.approx(0, abs=1.0)


def shown(finished: float, tokens: float = 0.0, waiting: float = 3.0) -> dict[str, float]:
    return {
        "requests_running": 2.0,
        "requests_waiting": waiting,
        "requests_finished_total": finished,
        "generation_tokens_total": tokens,
    }


def test_rules_of_today_fire_as_they_are_written() -> None:
    tokens, completions = NoTokens(), NoCompletions()
    fired = [tokens.look(5.0 * n, shown(0, min(n, 10))) for n in range(30)]
    assert fired.index(True) == 22
    fired = [completions.look(5.0 * n, shown(min(n, 10))) for n in range(100)]
    assert fired.index(True) == 69
    assert not completions.look(500.0, shown(10, waiting=0.0))


def test_early_warnings_of_a_server_that_stops_for_any_other_reason_are_none() -> None:
    results = [live("stops at any load", 3, weeks=0.15), live("never stops", 3, weeks=0.15)]
    assert sum(one.warned for one in results) == 0
    assert len(report(results)) == 6


def test_a_run_that_was_stopped_goes_on(tmp_path: Path) -> None:
    done: dict[Job, object] = {
        ("healthy", "bursty", 1, 0.2): healthy("bursty", 1, 0.2),
        ("wedge", "oversize head", 1, 0.0): wedged("oversize head", 1),
        ("weeks", "stops above a load", 1, 0.05): live("stops above a load", 1, 0.05),
    }
    kept = Kept(tmp_path / "one.jsonl")
    for job, outcome in reversed(done.items()):
        kept.add(job, outcome)  # type: ignore[arg-type]  # any of the three
    kept.ran(60.0)
    again = Kept(tmp_path / "one.jsonl")
    assert again.seconds == 60.0
    assert len(again) == 3
    assert list(again) == [done[job] for job in sorted(done)]
    assert ("healthy", "bursty", 1, 0.2) in again
    assert ("healthy", "bursty", 2, 0.2) not in again


def test_faults_are_told_by_seed() -> None:
    paged = healthy("restarts", 11, 3.0, ProgressLimits(floor=5.0, cold=8.0, ceiling=8.0))
    missed = wedged("oversize head", 1)
    missed.delays[0] = None
    lines = faults([paged, missed])
    assert lines[0].startswith("false page: restarts seed 11 at ")
    assert lines[-1] == "missed: oversize head seed 1"
