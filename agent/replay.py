"""Finished logs and recorded series through the same pipeline: ``wedgewatch scan``, rule tests, benchmarks.

Several logs are one server. Their records and the samples are merged by event time, so what came first is judged
first, as it would have been live.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Any

from agent.logs.engine import LogStream, Matched
from agent.logs.sources import open_finished
from agent.logs.timestamps import YearReference
from agent.model import FAILURE_FAMILY, Alert, Sample
from agent.pipeline import Pipeline, ServerSpec
from agent.rules.model import RuleSet

__all__ = ["ScanResult", "replay", "scan"]

_CHUNK = 256 * 1024
_UNDATED = 10_000  # records that are held until the first stamp comes; a log without any is read as it is


@dataclass(slots=True)
class ScanResult:
    """What a scan found: every transition in order, and the counts of the closing summary."""

    alerts: list[Alert] = field(default_factory=list)
    lines: int = 0
    bytes: int = 0
    records: int = 0
    engine: str = "unknown"
    first_time: float | None = None
    last_time: float | None = None
    damaged: list[str] = field(default_factory=list)
    """A sentence for each compressed log that could not be read to its end."""

    @property
    def fired(self) -> dict[str, Alert]:
        """The last firing state of each alert that fired, by fingerprint."""
        return {alert.fingerprint: alert for alert in self.alerts if alert.state == "firing"}

    @property
    def worst(self) -> Alert | None:
        """The worst alert that fired: critical before warning, then confidence, then time."""
        order = {"suspected": 0, "probable": 1, "confirmed": 2}
        return max(
            self.fired.values(),
            key=lambda a: (
                FAILURE_FAMILY.get(a.failure) in ("stalled", "dead"),
                order[a.confidence],
                -(a.fired_at or 0.0),
            ),
            default=None,
        )

    def summary(self) -> dict[str, Any]:
        """The closing object of ``scan --json``."""
        worst = self.worst
        return {
            "kind": "summary",
            "lines": self.lines,
            "bytes": self.bytes,
            "records": self.records,
            "alerts": len(self.fired),
            "worst_failure": worst.failure if worst is not None else None,
            "engine": self.engine,
        }


def scan(
    ruleset: RuleSet,
    logs: Sequence[str],
    *,
    samples: Sequence[Sample] = (),
    samples_engine: str = "",
    engine: str = "auto",
    server: str = "server",
    timezone: tzinfo = UTC,
    until: float | None = None,
    matcher: str = "auto",
    cache_dir: Path | None = None,
    progress: Callable[[str, int], None] | None = None,
    on_alert: Callable[[Alert], None] | None = None,
) -> ScanResult:
    """Read finished logs (plain, ``.gz``, ``.zst``, ``.xz``; ``-`` is stdin) and recorded samples of one server.

    ``progress`` is told the compressed bytes read so far. Raises OSError when a file cannot be read.
    """
    span = (samples[0].timestamp, samples[-1].timestamp) if samples else None
    pipeline = Pipeline(
        ruleset,
        [ServerSpec(name=server, engine=engine)],
        timezone=timezone,
        year_reference=YearReference.for_scan(logs, span),
        matcher=matcher,
        cache_dir=cache_dir,
    )
    streams = [pipeline.stream(server, name) for name in logs]
    damaged: list[str] = []
    events = heapq.merge(
        *(_log_events(stream, name, progress, damaged) for stream, name in zip(streams, logs, strict=True)),
        key=lambda e: e[0],
    )
    result = replay(pipeline, streams, events, samples, samples_engine=samples_engine, until=until, on_alert=on_alert)
    result.damaged = damaged
    return result


_Event = tuple[float, Matched | None, LogStream]


def _log_events(
    stream: LogStream, name: str, progress: Callable[[str, int], None] | None, damaged: list[str]
) -> Iterator[_Event]:
    """Matched records of one log in an order that never goes back, and after each block how far its clock has come."""
    latest = float("-inf")
    undated: list[Matched] = []
    with open_finished(name) as source:
        while True:
            data = source.read(_CHUNK)
            found = undated + (stream.feed(data) if data else stream.flush())
            undated = []
            if data and stream.first_timestamp is None and len(found) < _UNDATED:
                found, undated = [], found  # what comes before the first stamp is as old as that stamp
            for matched in found:
                matched = _dated(matched, stream.first_timestamp)
                latest = max(latest, matched.record.timestamp)
                yield latest, matched, stream
            if stream.clock is not None and stream.clock >= latest:
                latest = stream.clock
                yield latest, None, stream
            if progress is not None:
                progress(name, source.position())
            if not data:
                if source.damaged:
                    damaged.append(source.damaged)
                return


def _dated(matched: Matched, first: float | None) -> Matched:
    """A record from before the first stamp of its log has no time but that of reading, which is later than all of
    them: it takes the first stamp instead."""
    record = matched.record
    if first is None or record.time_source != "observed":
        return matched
    return replace(matched, record=replace(record, timestamp=first, time_source="inherited"))


def replay(
    pipeline: Pipeline,
    streams: Sequence[LogStream],
    events: Iterator[_Event],
    samples: Sequence[Sample],
    *,
    samples_engine: str = "",
    until: float | None = None,
    on_alert: Callable[[Alert], None] | None = None,
) -> ScanResult:
    """Run merged events through a pipeline to the end of input."""
    result = ScanResult()

    def take(alerts: list[Alert]) -> None:
        for alert in alerts:
            result.alerts.append(alert)
            if on_alert is not None:
                on_alert(alert)

    waiting = iter(samples)
    sample = next(waiting, None)
    for timestamp, matched, stream in events:
        while sample is not None and sample.timestamp <= timestamp:
            take(pipeline.on_sample(sample, samples_engine))
            sample = next(waiting, None)
        if matched is not None:
            take(pipeline.on_matched(matched, stream.dialect))
        else:
            take(pipeline.advance(timestamp))
    while sample is not None:
        take(pipeline.on_sample(sample, samples_engine))
        sample = next(waiting, None)
    take(pipeline.finish(until))
    result.lines = sum(stream.lines for stream in streams)
    result.bytes = sum(stream.bytes for stream in streams)
    result.records = sum(stream.records for stream in streams)
    detector = next(iter(pipeline.detectors.values()))
    result.engine = detector.engine
    result.last_time = detector.now or None
    return result
