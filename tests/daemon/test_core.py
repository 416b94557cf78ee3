"""The core with a clock that the test turns: what is held, in which order things are told, what is kept."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from agent.catch_up import HELD, CatchUp
from agent.config import default_config
from agent.core import LAG, Core
from agent.detect.onset import OnsetLedger
from agent.log_edge import LogBytes
from agent.model import Alert, Sample
from agent.rules.cached import load_rules_cached
from agent.rules.model import RuleSet
from agent.store import Store
from tests.daemon.live import RULES, line

NOW = 1_800_000_000.0


@pytest.fixture(scope="session")
def ruleset(shared_cache: Path) -> RuleSet:
    own = shared_cache / "core-rules.yaml"
    own.write_text(RULES)
    return load_rules_cached([own], cache_dir=shared_cache)[0]


class Bench:
    """A core over a store of its own; ``told`` are the alerts that somebody is to hear of."""

    def __init__(self, ruleset: RuleSet, folder: Path, cache: Path) -> None:
        self.now = NOW
        self.alerts: list[Alert] = []
        self.told: list[Alert] = []
        self._made = (ruleset, folder, cache)
        self.log = "server.log"
        self.core = self._core()

    def _core(self) -> Core:
        ruleset, folder, cache = self._made
        self.store = Store(folder, clock=lambda: self.now)
        config = default_config((self.log,), "http://127.0.0.1:9/metrics")
        return Core(
            config, ruleset, self.store, clock=lambda: self.now, emit=self.alerts.extend, deliver=self.told.extend,
            cache_dir=cache,
        )  # fmt: skip

    def restart(self, *, killed: bool = False) -> None:
        if not killed:
            self.core.commit(last=True)
        self.store.close()
        self.core = self._core()

    def write(self, *lines: str, key: str = "k", live: bool = False, position: int = 1) -> None:
        data = "".join(lines).encode()
        self.core.on_log(LogBytes(key, "server", self.log, data, position, live=live))

    def look(self, **values: float) -> None:
        self.core.on_samples([Sample(self.now, "server", "metrics", values)], "vllm")

    def turn(self, seconds: float) -> None:
        """Time passes, a tick each second."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + 1.0)
            self.core.tick()

    def names(self, alerts: Sequence[Alert] | None = None) -> list[tuple[str, str]]:
        return [(alert.alertname, alert.state) for alert in (self.alerts if alerts is None else alerts)]


@pytest.fixture
def bench(ruleset: RuleSet, tmp_path: Path, shared_cache: Path) -> Iterator[Bench]:
    made = Bench(ruleset, tmp_path / "state", shared_cache)
    yield made
    made.store.close()


DIES = ("I", "engine is set up"), ("W", "queue holds 5 requests"), ("E", "engine loop died: x")


def test_two_logs_are_told_in_order_once_both_are_read(bench: Bench) -> None:
    """::

    a   E at +3            read first
    b   I at 0, W at +1    read later: nothing is told before
    """
    bench.core.catch_up({"server": ["a", "b"]})
    bench.write(line("E", "engine loop died: x", NOW - 60), key="a")
    bench.core.read_to_end("server", "a")
    bench.turn(5)
    assert not bench.alerts
    bench.write(line("I", "engine is set up", NOW - 70), line("W", "queue holds 5 requests", NOW - 65), key="b")
    bench.core.read_to_end("server", "b")
    bench.turn(2)
    assert bench.names()[-1] == ("EngineGone", "firing")
    assert [stage.stage for stage in bench.alerts[-1].stages] == ["start", "pressure", "symptom"]


def test_a_log_that_never_ends_is_waited_for_a_minute(bench: Bench) -> None:
    bench.core.catch_up({"server": ["a"]}, 60.0)
    bench.write(*(line(severity, text, NOW + 1) for severity, text in DIES))
    bench.turn(59)
    assert not bench.alerts
    bench.turn(3)
    assert bench.names()[-1] == ("EngineGone", "firing")


def test_killed_while_held_it_reads_again(bench: Bench) -> None:
    """What is held has decided nothing, so its position is not kept."""
    bench.turn(2)
    bench.core.catch_up({"server": ["a"]})
    bench.write(*(line(severity, text, NOW + 2) for severity, text in DIES), position=77)
    bench.turn(3)
    assert bench.core.commits
    bench.restart(killed=True)
    assert "k" not in bench.core.positions()
    bench.write(*(line(severity, text, NOW + 2) for severity, text in DIES), position=77)
    bench.turn(3)
    assert bench.names() == [("EngineGone", "firing")]
    assert bench.core.positions() == {"k": 77}


@pytest.mark.parametrize("holds", [True, False])
def test_unread_log_is_no_silence(bench: Bench, holds: bool) -> None:
    """The engine's last word before we went down was "work waits"; what it said since is not read yet. Without
    holding, the clock alone would call that a stall::

        stats: work waits | we are away for ten minutes | reading ...  stats: all done
    """
    stats = (
        "INFO {} [loggers.py:123] Engine 000: Avg prompt throughput: {} tokens/s, Avg generation throughput: {} "
        "tokens/s, Running: {} reqs, Waiting: {} reqs, GPU KV cache usage: 40.0%, Prefix cache hit rate: 0.0%\n"
    )

    def said(moment: float, tokens: float, running: int, waiting: int) -> str:
        when = time.strftime("%m-%d %H:%M:%S", time.gmtime(moment))
        return stats.format(when, tokens, tokens, running, waiting)

    bench.write(said(NOW, 0.0, 2, 5))
    bench.turn(12)
    bench.restart()
    bench.now += 900
    if holds:
        bench.core.catch_up({"server": ["k"]})
    bench.turn(10)
    assert [alert.severity for alert in bench.alerts] == ([] if holds else ["critical"])
    lines = [said(NOW + at, 50.0, 2, 5) for at in range(20, 890, 10)]
    bench.write(*lines, said(bench.now - 1, 0.0, 0, 0))
    bench.core.read_to_end("server", "k")
    bench.turn(30)
    assert any(alert.severity == "critical" for alert in bench.alerts) is not holds


def test_a_live_stamp_that_is_hours_off_is_now(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.turn(3)
    bench.write(*(line(severity, text, bench.now - 5 * 3600) for severity, text in DIES), live=True)
    bench.turn(3)
    (alert,) = bench.alerts
    assert abs((alert.fired_at or 0) - NOW) < 5
    assert len([record for record in caplog.records if "5.0 hours behind" in record.message]) == 1


@pytest.mark.parametrize("behind", [40.0, -40.0])
def test_a_clock_that_is_some_seconds_off_is_put_right_and_it_is_said(bench: Bench, behind: float) -> None:
    #  a note each 10 s, stamped 40 s early or late; the engine dies at 90 s
    for _ in range(9):
        bench.turn(10)
        bench.write(line("I", "take note of it", bench.now - behind), live=True)
    died = bench.now
    bench.write(*(line(severity, text, died - behind) for severity, text in DIES), live=True)
    bench.turn(3)
    (alert,) = [alert for alert in bench.alerts if alert.severity == "critical"]
    assert alert.starts_at == pytest.approx(died, abs=1.5)
    assert alert.context["clock_skew_s"] == pytest.approx(behind, abs=1.0)


def test_backlog_keeps_its_stamps(bench: Bench) -> None:
    bench.turn(3)
    bench.write(*(line(severity, text, bench.now - 5 * 3600) for severity, text in DIES))
    bench.turn(3)
    assert bench.alerts[0].fired_at == int(bench.now - 3 - 5 * 3600)
    assert not bench.told  # that was before we ever started


def test_what_is_history_is_so_for_each_server(bench: Bench) -> None:
    """A daemon that has watched a server before pages for what happened while it was away."""
    bench.write(line("I", "nothing", NOW))
    bench.turn(3)
    bench.restart()
    bench.now += 600
    bench.write(*(line(severity, text, NOW + 300) for severity, text in DIES), position=2)
    bench.turn(3)
    assert bench.names(bench.told) == [("EngineGone", "firing")]


def test_the_history_of_loads_survives(bench: Bench) -> None:
    ledger = bench.core.pipeline.detectors["server"].ledger
    for step in range(100):
        ledger.look(NOW + step, 1.0, 12.0)
    ledger.onset(NOW + 100, 14.0)
    bench.restart()
    kept = bench.core.pipeline.detectors["server"].ledger
    assert kept.snapshot() == ledger.snapshot()
    fresh = OnsetLedger()
    fresh.restore((bench.store.load_state("onset") or {})["server"])
    assert fresh.points()["onsets"] == [[NOW + 100, 14.0]]


def test_a_reload_takes_over_streams_and_fingerprints(bench: Bench, ruleset: RuleSet) -> None:
    """Half a fingerprint and half a line before, the rest after."""
    bench.turn(3)
    whole = line("E", "engine loop died: x", NOW + 3)
    bench.write(line("I", "engine is set up", NOW + 1), line("W", "queue holds 5 requests", NOW + 2), whole[:30])
    bench.core.reload(bench.core.config, bench.core.build(bench.core.config, ruleset))
    bench.write(whole[30:], position=2)
    bench.turn(LAG + 2)
    assert bench.names() == [("EngineGone", "firing")]
    assert bench.alerts[0].stages[-1].line == 3


def test_too_much_is_told_from_its_oldest() -> None:
    held = CatchUp()
    held.begin("s", ["a"], 10.0)
    sample = Sample(0.0, "s", "metrics", {})
    told = []
    for number in range(HELD + 1):
        told += held.add("s", (float(HELD - number), sample, ""))
    assert [when for when, _, _ in told] == [float(number) for number in range(HELD // 2)]
    assert len(held.end("s")) == HELD + 1 - len(told)
    assert not held.holds("s")


def test_what_its_first_second_brought_is_no_history_after_a_kill(bench: Bench) -> None:
    """::

    first start | log found | wedge | kill -9 (nothing was committed)      | started again: it pages
    """
    bench.write(position=0)
    bench.turn(0.5)
    bench.write(*(line(severity, text, bench.now) for severity, text in DIES), live=True)
    bench.now += 30
    bench.restart(killed=True)
    assert bench.core.positions() == {"k": 0}
    bench.write(*(line(severity, text, NOW + 1) for severity, text in DIES))
    bench.turn(2)
    assert bench.names(bench.told)[-1] == ("EngineGone", "firing")


def test_the_beginning_of_a_log_does_not_overtake_what_was_read_of_it(bench: Bench) -> None:
    """The beginning is kept at once, its lines only with what they led to."""
    bench.write(position=0)
    bench.write(line("I", "take note of this", NOW), position=40, live=True)
    bench.core.commit()
    bench.core.tick()
    bench.restart(killed=True)
    assert bench.core.positions() == {"k": 40}
