"""The same log fed live and through ``scan`` gives the same alerts, to the byte, except ``detected_at``.

Live means: the daemon's own core and store, bytes as they come (cut anywhere), looks at metrics between them, and a
wall clock that ticks along. The clock is given, so nothing here waits.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agent.config import default_config
from agent.core import LAG, Core
from agent.log_edge import LogBytes
from agent.logs.timestamps import YearReference
from agent.metrics.mapping import SignalMapper
from agent.metrics.openmetrics import read_samples
from agent.model import Alert, Sample
from agent.pipeline import Pipeline, ServerSpec
from agent.replay import scan
from agent.rules.load import load_rules
from agent.rules.model import RuleSet
from agent.store import Store

CASES = sorted(path.parent for path in (Path(__file__).parent / "cases").glob("*/server.log"))


@pytest.fixture(scope="module")
def ruleset() -> RuleSet:
    return load_rules([])[0]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


class LiveRun:
    """The core with a clock that the test turns."""

    def __init__(self, ruleset: RuleSet, folder: Path, cache: Path, log: Path, start: float) -> None:
        self.now = start
        self.alerts: list[Alert] = []
        self.log = str(log)
        self.store = Store(folder)
        config = default_config((str(log),), "http://127.0.0.1:9/metrics", from_start=True)
        self.core = Core(config, ruleset, self.store, clock=lambda: self.now, emit=self.alerts.extend, cache_dir=cache)

    def to(self, event_time: float) -> None:
        """The wall clock reaches this time, a tick each second on the way."""
        target = max(self.now, event_time + LAG)
        while self.now < target:
            self.now = min(target, self.now + 1.0)
            self.core.tick()

    def bytes(self, data: bytes, position: int) -> None:
        self.core.on_log(LogBytes("k", "server", self.log, data, position))
        self.core.tick()

    def samples(self, samples: Sequence[Sample], engine: str) -> None:
        self.core.on_samples(samples, engine)
        self.core.tick()


def as_json(alerts: Sequence[Alert]) -> list[dict[str, Any]]:
    """Without the wall time, and a suspicion without the numbers of the latest look: whether that look came before or
    after a line that bears no stamp is not known to the second. What fires is compared whole."""
    out = []
    for alert in alerts:
        item = {**alert.to_json(), "detected_at": None}
        if alert.confidence == "suspected":
            item["progress"] = item["annotations"] = None
        out.append(item)
    return out


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_live_and_scan_agree(
    case: Path, ruleset: RuleSet, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The lines of one record come without a pause here, whatever else happens between them.
    monkeypatch.setattr("agent.core.QUIET", 1e9)
    log = case / "server.log"
    samples: list[Sample] = []
    engine = ""
    if (case / "metrics.om").exists():
        mapper = SignalMapper(ruleset.dialects)
        samples = read_samples(case / "metrics.om", mapper, "server")
        engine = mapper.engine
    finished = scan(ruleset, [str(log)], samples=samples, samples_engine=engine, cache_dir=cache)

    chance = random.Random(case.name)
    data = log.read_bytes()
    pieces = _pieces(data, chance)
    clocks = _clocks(ruleset, cache, log, pieces)
    begin = min([clocks[0], *(s.timestamp for s in samples[:1])]) - 10
    live = LiveRun(ruleset, tmp_path / "state", cache, log, begin)
    position, waiting = 0, list(samples)
    for piece, clock in zip(pieces, clocks, strict=True):
        while waiting and waiting[0].timestamp <= clock:
            at = waiting[0].timestamp
            live.to(at - 2 * LAG)
            group = [s for s in waiting if s.timestamp == at]
            del waiting[: len(group)]
            live.samples(group, engine)
        position += len(piece)
        live.bytes(piece, position)
    while waiting:
        live.samples([waiting.pop(0)], engine)
    live.core.on_log(LogBytes("k", "server", str(log), b"", position, ended=True))
    last = max(
        [clocks[-1], *(s.timestamp for s in samples[-1:]), *(a.fired_at or a.starts_at for a in finished.alerts)]
    )
    live.to(last + 20)
    live.core.commit()
    live.store.close()

    assert json.dumps(as_json(live.alerts)) == json.dumps(as_json(finished.alerts))


def _pieces(data: bytes, chance: random.Random) -> list[bytes]:
    """Whole lines mostly, some cut in the middle."""
    out: list[bytes] = []
    for line in data.splitlines(keepends=True):
        if chance.random() < 0.2 and len(line) > 2:
            cut = chance.randrange(1, len(line) - 1)
            out += [line[:cut], line[cut:]]
        else:
            out.append(line)
    return out


def _clocks(ruleset: RuleSet, cache: Path, log: Path, pieces: Sequence[bytes]) -> list[float]:
    """Event time of what each piece decides: a look at the metrics belongs before it when it is not later.

    A line without a stamp (a bare traceback) has the time of the line before it, and is known only at its end.
    """
    pipeline = Pipeline(ruleset, [ServerSpec()], year_reference=YearReference.for_scan([str(log)]), cache_dir=cache)
    stream = pipeline.stream("server", str(log))
    latest = 0.0
    out: list[float] = []
    for piece in pieces:
        latest = max([latest, *(found.record.timestamp for found in stream.feed(piece))])
        out.append(latest)
    first = next(clock for clock in out if clock)
    return [clock or first for clock in out]
