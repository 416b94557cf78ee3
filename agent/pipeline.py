"""Bytes and samples in, transitions out: the one path that live runs, replays and tests share.

No clock, no thread, no file. A pipeline knows the rules and dialects, compiles every pattern they hold into one
scan (:class:`agent.logs.engine.LogEngine`), and hands each matched record and each sample to the detector of its
server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Any, Final

from agent.detect.deadline import ProgressLimits
from agent.detect.server import ServerDetector
from agent.logs.engine import Hit, LogEngine, LogStream, Matched
from agent.logs.timestamps import YearReference
from agent.metrics.stats_lines import StatsReader
from agent.model import Alert, LogRecord, Sample
from agent.rules.model import Condition, Matcher, RuleSet, StatsLine

__all__ = ["Pipeline", "ServerSpec"]

PACE: Final = 3
"""Stats lines of one kind and replica that are read in a second of event time."""
MOST_WRITERS: Final = 64
_WRITERS: Final = ("host", "pod", "container", "unit")
HOSTS: Final = frozenset({"unknown", "ray_serve", "dynamo", "nim", "triton"})
"""Engines in whose log another engine speaks: its lifecycle lines count too."""


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """A watched server as the pipeline needs to know it."""

    name: str = "server"
    engine: str = "auto"
    labels: Mapping[str, str] = field(default_factory=dict)
    limits: ProgressLimits = field(default_factory=ProgressLimits)


@dataclass(frozen=True, slots=True)
class _Role:
    """What a condition is for."""

    kind: str  # stage, absent, lifecycle, stats, fact, build, detect
    engine: str = ""
    rule: int = 0
    stage: int = 0
    state: str = ""
    number: int = 0


class Pipeline:
    """Detection for any number of servers over one set of rules. Not thread-safe: one owner at a time."""

    def __init__(
        self,
        ruleset: RuleSet,
        servers: Sequence[ServerSpec],
        *,
        external_labels: Mapping[str, str] | None = None,
        timezone: tzinfo = UTC,
        year_reference: YearReference | None = None,
        matcher: str = "auto",
        cache_dir: Path | None = None,
    ) -> None:
        self.ruleset = ruleset
        self._roles: list[list[_Role]] = []
        self._conditions: list[Condition] = []
        self._index: dict[str, int] = {}
        self._collect()
        self.engine = LogEngine(
            self._conditions,
            ruleset.dialects,
            timezone=timezone,
            year_reference=year_reference or YearReference(),
            matcher=matcher,  # type: ignore[arg-type]  # checked by LogEngine
            cache_dir=cache_dir,
        )
        self._stats = StatsReader(ruleset.dialects)
        self.detectors: dict[str, ServerDetector] = {
            spec.name: ServerDetector(
                spec.name,
                ruleset.rules,
                engine=spec.engine,
                labels=spec.labels,
                external_labels=external_labels,
                limits=spec.limits,
            )
            for spec in servers
        }
        self._pace: dict[tuple[str, str, str], tuple[int, int]] = {}
        self._writers: dict[str, list[str]] = {}
        self.rule_matches: dict[tuple[str, str], int] = {}
        self.rule_last_match: dict[str, float] = {}

    # -- patterns --------------------------------------------------------------------------------------------

    def _collect(self) -> None:
        for index, rule in enumerate(self.ruleset.rules):
            if rule.fingerprint is None:
                continue
            for number, stage in enumerate(rule.fingerprint.stages):
                self._register(stage.condition, _Role("stage", rule=index, stage=number))
            for condition in rule.fingerprint.absent:
                self._register(condition, _Role("absent", rule=index))
        for name, dialect in self.ruleset.dialects.items():
            for lifecycle in dialect.lifecycle:
                if lifecycle.state == "received":
                    continue  # one line in ten of a busy log, and no verdict rests on it
                self._register(lifecycle.condition, _Role("lifecycle", engine=name, state=lifecycle.state))
            for number, stats in enumerate(dialect.stats):
                self._register(stats.condition, _Role("stats", engine=name, number=number))
            for number, fact in enumerate(dialect.facts):
                condition = Condition(any=(Matcher("regex", fact.regex),))
                self._register(condition, _Role("fact", engine=name, number=number))
            for number, build in enumerate(dialect.builds):
                condition = Condition(any=(Matcher("regex", build.regex),))
                self._register(condition, _Role("build", engine=name, number=number))
            for condition in dialect.detect_lines:
                self._register(condition, _Role("detect", engine=name))

    def _register(self, condition: Condition, role: _Role) -> None:
        key = repr(condition)
        if key not in self._index:
            self._index[key] = len(self._conditions)
            self._conditions.append(condition)
            self._roles.append([])
        self._roles[self._index[key]].append(role)

    def stream(self, server: str, file: str, **options: Any) -> LogStream:
        """A reader of one log of ``server``; feed it bytes and pass what it gives to :meth:`on_matched`."""
        return self.engine.stream(server=server, file=file, engine=self.detectors[server].configured_engine, **options)

    # -- events ----------------------------------------------------------------------------------------------

    def on_matched(self, matched: Matched, dialect: str | None = None) -> list[Alert]:
        """A record satisfied conditions. ``dialect``: the engine that its stream was recognised as."""
        record = matched.record
        detector = self.detectors[record.server]
        detector.recognise(dialect)
        stages: dict[int, dict[int, Mapping[str, str]]] = {}
        absent: set[int] = set()
        numbers: list[_Role] = []
        phases: dict[str, str] = {}
        for hit, role in self._roles_of(matched.hits):
            if role.kind == "stage":
                stages.setdefault(role.rule, {})[role.stage] = hit.fields
            elif role.kind == "absent":
                absent.add(role.rule)
            elif role.kind == "detect":
                detector.recognise(role.engine)
            elif role.kind == "build":
                if role.engine == detector.engine or detector.engine in HOSTS:
                    build = self.ruleset.dialects[role.engine].builds[role.number]
                    text = hit.fields.get("value", "")
                    text = re.sub(build.ignore, "", text) if build.ignore else text
                    detector.on_build(f"{role.engine} {build.name}", text, record.timestamp)
            elif role.kind == "lifecycle":
                if (role.engine == detector.engine or detector.engine in HOSTS) and role.state not in phases:
                    phases[role.state] = hit.fields.get("task", "")
            else:
                numbers.append(role)
        instance = _instance(record.attributes.get("engine_index", ""))
        out: list[Alert] = []
        for state, task in phases.items():
            out += detector.on_lifecycle(state, record.timestamp, instance, task)
        if numbers:
            out += self._on_numbers(detector, record, numbers)
        if stages or absent:
            self._count(stages, record.timestamp)
            out += detector.on_stages(record, stages, frozenset(absent))
        return out

    def _on_numbers(self, detector: ServerDetector, record: LogRecord, roles: Sequence[_Role]) -> list[Alert]:
        """A line in which the engine states numbers: read as its own engine's, else as the first's that knows it."""
        engines = [role.engine for role in roles]
        engine = detector.engine if detector.engine in engines else engines[0]
        dialect = self.ruleset.dialects[engine]
        out: list[Alert] = []
        for role in roles:
            if role.kind == "stats" and role.engine == engine:
                sample = self._paced(dialect.stats[role.number], record)
                if sample is not None:
                    out += detector.on_sample(sample)
        facts = [dialect.facts[role.number] for role in roles if role.kind == "fact" and role.engine == engine]
        stated = self._stats.facts(facts, record) if facts else None
        if stated is not None:
            out += detector.on_facts(stated.values, stated.timestamp, stated.instance)
        return out

    def _paced(self, stats: StatsLine, record: LogRecord) -> Sample | None:
        """Engines print up to hundreds of such lines a second; the first few of a second say what all of them say."""
        instance = self._stats.speaker(stats, record) if stats.instance else record.attributes.get("rank", "")
        key = (
            record.server,
            stats.name,
            f"{instance}/{record.attributes.get('container', '')}/{record.attributes.get('pid', '')}",
        )
        second = int(record.timestamp)
        last, count = self._pace.get(key, (0, 0))
        if second == last and count >= PACE:
            return None
        self._pace[key] = (second, count + 1 if second == last else 1)
        sample = self._stats.stats(stats, record)
        return None if sample is None else self._told_apart(sample, record)

    def _told_apart(self, sample: Sample, record: LogRecord) -> Sample:
        """Two containers (or replicas of Ray Serve) behind one file both call themselves engine 0: the second is known
        by its writer's name."""
        names = _WRITERS if self.detectors[record.server].engine != "ray_serve" else (*_WRITERS, "process", "pid")
        writer = "/".join(record.attributes[name] for name in names if name in record.attributes)
        if not writer:
            return sample
        writers = self._writers.setdefault(record.server, [])
        if writer not in writers and len(writers) < MOST_WRITERS:
            writers.append(writer)
        if writers[0] == writer or writer not in writers:
            return sample
        return replace(sample, instance=f"{writer}/{sample.instance}" if sample.instance not in ("", "0") else writer)

    def _roles_of(self, hits: Iterable[Hit]) -> Iterable[tuple[Hit, _Role]]:
        for hit in hits:
            for role in self._roles[hit.condition]:
                yield hit, role

    def _count(self, stages: Mapping[int, Mapping[int, Mapping[str, str]]], timestamp: float) -> None:
        for index, numbers in stages.items():
            rule = self.ruleset.rules[index]
            assert rule.fingerprint is not None, "only rules with a fingerprint have stages"
            self.rule_last_match[rule.alert] = max(timestamp, self.rule_last_match.get(rule.alert, 0.0))
            for number in numbers:
                key = (rule.alert, rule.fingerprint.stages[number].name)
                self.rule_matches[key] = self.rule_matches.get(key, 0) + 1

    def on_sample(self, sample: Sample, engine: str = "") -> list[Alert]:
        """A look at the signals of a server. ``engine``: what the page was recognised as."""
        detector = self.detectors[sample.server]
        detector.recognise(engine)
        return detector.on_sample(sample)

    def clock_set(self) -> None:
        """The clock was set, or the host stood still: that nobody said anything in that time is no evidence."""
        for detector in self.detectors.values():
            for tracker in detector.trackers.values():
                tracker.ended()

    def advance(self, timestamp: float, server: str | None = None) -> list[Alert]:
        """Event time has reached ``timestamp`` (for one server or all)."""
        out: list[Alert] = []
        for name, detector in self.detectors.items():
            if server is None or name == server:
                out += detector.advance(timestamp)
        return out

    def finish(self, until: float | None = None) -> list[Alert]:
        """End of input; see :meth:`ServerDetector.finish`."""
        out: list[Alert] = []
        for detector in self.detectors.values():
            out += detector.finish(until)
        return out

    def next_time(self) -> float | None:
        """The next event time at which waiting alone changes a verdict."""
        times = [t for t in (detector.next_time() for detector in self.detectors.values()) if t is not None]
        return min(times, default=None)

    # -- persistence -----------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """State of all servers as JSON-able values."""
        return {name: detector.snapshot() for name, detector in self.detectors.items()}

    def restore(self, data: Mapping[str, Any]) -> None:
        """Inverse of :meth:`snapshot`; servers that are no longer configured are left out."""
        for name, value in data.items():
            if name in self.detectors:
                self.detectors[name].restore(value)

    def take_over(self, old: Pipeline) -> None:
        """Go on where ``old``, a pipeline of another configuration, stands: servers and rules of the same name keep
        their state, their history and their counts."""
        self.restore(old.snapshot())
        for name, detector in self.detectors.items():
            if name in old.detectors:
                detector.ledger = old.detectors[name].ledger
                detector.signals = old.detectors[name].signals
        rules = {rule.alert for rule in self.ruleset.rules}
        self.rule_matches = {key: count for key, count in old.rule_matches.items() if key[0] in rules}
        self.rule_last_match = {name: t for name, t in old.rule_last_match.items() if name in rules}


def _instance(text: str) -> str:
    return str(int(text)) if text.isascii() and text.isdecimal() else text
