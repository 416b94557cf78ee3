"""Does trouble follow load, or a deployment? The ledger on worlds whose answer is known."""

from __future__ import annotations

import json
import math
import random

from agent.detect.onset import OnsetLedger

DAY = 86_400.0


def load_of(rng: random.Random, now: float) -> float:
    """Requests in flight over a day, with bursts."""
    return max(1.0, 30 + 20 * math.sin(2 * math.pi * now / DAY) + rng.gauss(0, 4) + (30 if rng.random() < 0.04 else 0))


def world(seed: int, cause: str, incidents: int, days: int = 14) -> OnsetLedger:
    """Two deployments, and ``incidents`` that are due to the load, to the last deployment, or to nothing."""
    rng, ledger = random.Random(f"{cause} {seed}"), OnsetLedger()
    times = [300.0 * number for number in range(days * 288)]
    loads = [load_of(rng, time) for time in times]
    border = sorted(loads)[int(0.97 * len(loads))]
    late = 2 * days / 3 * DAY
    fit = {
        "load": [n for n, load in enumerate(loads) if load >= border],
        "deployment": [n for n, time in enumerate(times) if time >= late],
        "chance": list(range(len(times))),
    }[cause]
    onsets = set(rng.sample(fit, incidents))
    changes = {int(days / 3 * 288), int(late / 300)}
    for number, (time, load) in enumerate(zip(times, loads, strict=True)):
        if number in changes:
            ledger.change(time)
            ledger.restart(time)
        ledger.look(time + 150, 300.0, load)
        if number in onsets:
            ledger.onset(time + 200, load)
    return ledger


def test_nothing_is_said_before_the_first_onset() -> None:
    ledger = OnsetLedger()
    assert ledger.report().verdict == "unknown"
    for look in range(1000):
        ledger.look(5.0 * look, 5.0, 10.0)
    assert ledger.report().verdict == "unknown"
    assert ledger.report().sentence() == "no earlier onset to compare with"


def test_load_is_found_by_the_third_incident() -> None:
    reports = [world(seed, "load", 3).report() for seed in range(12)]
    assert sum(report.verdict == "load" for report in reports) >= 11
    assert all((report.log10_bayes_factor or 0) > 0 for report in reports)


def test_estimated_threshold_lies_where_the_load_is_high() -> None:
    report = world(3, "load", 5).report()
    assert report.threshold is not None
    assert report.threshold_low is not None
    assert report.threshold_high is not None
    assert 45 <= report.threshold_low <= report.threshold <= report.threshold_high <= 90
    assert report.safe_load is not None
    assert report.safe_load < 90
    assert "onset follows load: above about" in report.sentence()


def test_what_a_deployment_did_is_never_blamed_on_load() -> None:
    reports = [world(seed, "deployment", 4).report() for seed in range(20)]
    assert not any(report.verdict == "load" for report in reports)


def test_deployment_is_found_when_it_is_the_cause() -> None:
    # two before it would be two against it: nine after the last of two deployments
    reports = [world(seed, "deployment", 9).report() for seed in range(6)]
    assert sum(report.verdict == "deployment" for report in reports) >= 5
    assert "onset follows a change" in next(r for r in reports if r.verdict == "deployment").sentence()


def test_chance_is_rarely_called_anything_else() -> None:
    reports = [world(seed, "chance", 3).report() for seed in range(20)]
    assert sum(report.verdict == "undecided" for report in reports) >= 19


def test_one_incident_decides_nothing() -> None:
    assert all(world(seed, "load", 1).report().verdict == "undecided" for seed in range(6))


def test_the_same_stall_is_one_onset() -> None:
    ledger = OnsetLedger()
    ledger.look(300.0, 300.0, 10.0)
    for second in (400.0, 410.0, 455.0):
        ledger.onset(second, 12.0)
    assert ledger.report().onsets == 1
    ledger.onset(600.0, 14.0)
    assert ledger.onset_loads == [12.0, 14.0]


def test_thirty_days_are_remembered_and_no_more() -> None:
    ledger = OnsetLedger()
    ledger.onset(0.0, 50.0)
    for number in range(40 * 288):
        ledger.look(300.0 * number + 200, 300.0, 10.0)
    assert 29.9 < ledger.report().healthy_days < 30.1
    assert ledger.onset_loads == []


def test_time_lived_by_load_is_sorted_and_complete() -> None:
    ledger = OnsetLedger()
    for number in range(100):
        ledger.look(300.0 * number + 10, 60.0, float(number % 7))
    lived = ledger.lived()
    assert lived == sorted(lived, reverse=True)
    assert sum(seconds for _, seconds in lived) == 6000


def test_survives_being_written_down() -> None:
    ledger, again = world(1, "load", 3), OnsetLedger()
    again.restore(json.loads(json.dumps(ledger.snapshot())))
    assert again.report() == ledger.report()
    assert again.points() == ledger.points()
    assert (again.changed, again.lived()) == (True, ledger.lived())


def test_rates_of_onsets_and_of_healthy_time_are_told() -> None:
    ledger = OnsetLedger()
    assert ledger.report().onset_rates is None
    for minute in range(120):
        busy = 1 + (minute // 5) % 3
        ledger.look(60.0 * minute, 60.0, 10.0 * busy, finished=60.0 * busy, tokens=6000.0 * busy)
    for number, rates in enumerate([(2.0, 200.0), (0.0, 0.0), (4.0, 400.0), (3.0, 300.0)]):
        ledger.onset(7200.0 + 600 * number, 30.0, rates)
    report = ledger.report()
    assert report.onset_rates == (3.0, 300.0)
    assert report.healthy_rates == (3.0, 300.0)
    again = OnsetLedger()
    again.restore(json.loads(json.dumps(ledger.snapshot())))
    assert again.report() == report


def test_history_of_a_release_that_kept_no_rates_is_taken_over() -> None:
    ledger = OnsetLedger()
    ledger.look(100.0, 300.0, 5.0)
    ledger.onset(200.0, 5.0)
    old = json.loads(json.dumps(ledger.snapshot()))
    del old["rates"]
    old["bins"] = [values[:6] for values in old["bins"]]
    again = OnsetLedger()
    again.restore(old)
    assert again.report() == ledger.report()
    again.onset(9000.0, 6.0, (1.0, 2.0))
    assert again.report().onset_rates == (1.0, 2.0)
