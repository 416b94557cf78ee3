"""The early warning: it speaks of what this server went through, and of nothing else."""

from __future__ import annotations

import json

from agent.detect.onset import OnsetLedger
from agent.detect.pressure import WARN_AT, pressure
from tests.detect.watched import T0, Watched


def lived(hours_low: float, hours_high: float, onsets: int, load: float = 80.0) -> OnsetLedger:
    """Hours at ten requests and at ``load``, in which it stopped so often at ``load``."""
    ledger = OnsetLedger()
    now = T0 - 20 * 86_400
    for hours, at in ((hours_low, 10.0), (hours_high, load)):
        for _ in range(int(hours * 120)):
            now += 30
            ledger.look(now, 30.0, at)
    for number in range(onsets):
        ledger.onset(now + 600 * number, load)
    return ledger


def pressed(**what: object) -> Watched:
    """A full pool and a queue that grows, at about 80 requests in flight."""
    usual: dict[str, object] = {"running": 64, "waiting": (8, 30), "kv": (0.93, 0.99)}
    return Watched().serve(60).serve(24, **(usual | what))


def test_load_that_stopped_it_before_with_a_growing_queue_and_a_full_pool_is_worth_a_warning() -> None:
    server = pressed()
    found = pressure(server.tracker, server.now, lived(40, 0.3, onsets=5))
    assert found is not None
    assert found.warn
    assert found.chance is not None
    assert found.chance >= WARN_AT
    assert (found.onset_load, found.onsets) == (80.0, 5)
    assert found.growth > 5
    assert found.full_in is not None
    assert "% chance within half an hour" in found.sentence()
    assert json.loads(json.dumps(found.to_json()))["warn"] is True


def test_one_or_two_onsets_are_not_enough_to_warn() -> None:
    server = pressed()
    for onsets in (1, 2):
        found = pressure(server.tracker, server.now, lived(40, 0.3, onsets=onsets))
        assert found is not None
        assert found.chance is not None
        assert not found.warn


def test_server_that_never_stopped_is_never_warned_of() -> None:
    server = pressed()
    found = pressure(server.tracker, server.now, lived(40, 5, onsets=0))
    assert found is not None
    assert (found.warn, found.chance) == (False, None)
    assert "chance" not in found.sentence()


def test_load_that_it_has_carried_for_hours_is_no_news() -> None:
    server = pressed()
    found = pressure(server.tracker, server.now, lived(40, 30, onsets=1))
    assert found is not None
    assert found.chance is not None
    assert found.chance < 0.1
    assert not found.warn


def test_load_below_the_one_that_stopped_it() -> None:
    server = pressed(running=40, waiting=(2, 9))
    found = pressure(server.tracker, server.now, lived(40, 0.3, onsets=3))
    assert found is not None
    assert found.chance is None


def test_queue_that_shrinks_or_pool_with_room() -> None:
    ledger = lived(40, 0.3, onsets=3)
    for what in ({"waiting": (30, 8)}, {"kv": 0.5}):
        server = pressed(**what)
        found = pressure(server.tracker, server.now, ledger)
        assert found is not None
        assert not found.warn


def test_sequence_slots_are_a_ceiling_too() -> None:
    server = pressed(kv=0.5)
    server.tracker.fact({"max_running_requests": 64.0})
    found = pressure(server.tracker, server.now, lived(40, 0.3, onsets=5))
    assert found is not None
    assert found.slots == 1.0
    assert found.warn


def test_what_a_deployment_brought_is_not_blamed_on_load() -> None:
    ledger = OnsetLedger()
    now = T0 - 20 * 86_400
    for day in range(20):
        if day == 14:
            ledger.change(now)
        for _ in range(288):
            now += 300
            ledger.look(now, 300.0, 80.0)
        if day >= 14:
            for number in range(10):
                ledger.onset(now - 3600 * number, 80.0)
    assert ledger.report().verdict == "deployment"
    server = pressed()
    found = pressure(server.tracker, server.now, ledger)
    assert found is not None
    assert not found.warn


def test_nothing_to_say_while_idle_blind_or_stalled() -> None:
    ledger = lived(40, 0.3, onsets=3)
    idle = Watched().serve(60).look(12, running=0, kv=0.0)
    blind = pressed().lose(60)
    stalled = pressed().stand(12)
    for server in (idle, blind, stalled, Watched()):
        assert pressure(server.tracker, server.now, ledger) is None


def test_without_a_ledger_it_measures_only() -> None:
    server = pressed()
    found = pressure(server.tracker, server.now)
    assert found is not None
    assert (round(found.load), found.warn) == (83, False)
