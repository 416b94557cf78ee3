"""The live core: one owner of the pipeline and of what must survive a crash.

Everything that is decided goes through here, one thing at a time: bytes of logs with the position they reach to, looks
at metrics, the passing of time. What follows from them (positions, detector state, alerts) is committed in one
transaction, so that after ``kill -9`` either all of it is there or the bytes are read again.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from agent.config import Config
from agent.detect.deadline import ProgressLimits
from agent.edges import zone
from agent.log_edge import LogBytes
from agent.logs.engine import LogStream, Matched
from agent.logs.timestamps import YearReference
from agent.model import CRITICAL_FAMILIES, FAILURE_FAMILY, Alert, Sample
from agent.pipeline import Pipeline, ServerSpec
from agent.rules.model import RuleSet
from agent.store import Store

__all__ = ["AlertLog", "Core"]

log = logging.getLogger(__name__)

COMMIT_EVERY: Final = 1.0
"""Seconds between commits when nothing changed that must be kept at once."""
QUIET: Final = 0.3
"""Seconds without bytes after which an unfinished record is decided as it is."""
LAG: Final = 1.0
"""Seconds by which the event clock trails the wall clock: lines written now may still be on their way to us."""


class AlertLog:
    """Appends every transition to a file as one JSON object a line; each exactly once, also over crashes.

    Lines are written after the transaction that decided them; those of the last transaction are kept in it, and after
    a crash the missing ones are appended.
    """

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self._handle = open(self.path, "a", encoding="utf-8")  # noqa: SIM115 - open for the life of the daemon
        self._problem = False

    def recover(self, last: Sequence[str]) -> None:
        """Append those of ``last`` (the lines of the last transaction) that are not at the end of the file."""
        if not last:
            return
        try:
            with open(self.path, "rb") as handle:
                handle.seek(max(0, os.path.getsize(self.path) - (1 << 20)))
                tail = handle.read().decode("utf-8", "replace").splitlines()
        except OSError:
            tail = []
        present = set(tail[-max(200, 2 * len(last)) :])
        self.write([line for line in last if line not in present])

    def write(self, lines: Sequence[str]) -> None:
        """Append lines; a full disk is said once and does not stop the watching."""
        try:
            for line in lines:
                self._handle.write(line + "\n")
            self._handle.flush()
            self._problem = False
        except OSError as error:
            if not self._problem:
                log.error(
                    "alert log %s cannot be written (%s); alerts still go to the receivers", self.path, error.strerror
                )
            self._problem = True

    def close(self) -> None:
        self._handle.close()


@dataclass(slots=True)
class Counters:
    """What the core has done, for our own metrics."""

    lines: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)
    last_line: dict[str, float] = field(default_factory=dict)
    commits: int = 0


class Core:
    """Owns pipeline, streams and store; called from one thread only."""

    def __init__(
        self,
        config: Config,
        ruleset: RuleSet,
        store: Store,
        *,
        clock: Callable[[], float],
        emit: Callable[[Sequence[Alert]], None],
        alert_log: AlertLog | None = None,
        cache_dir: Path | None = None,
        matcher: str = "auto",
    ) -> None:
        self.config = config
        self.store = store
        self.started = clock()
        self.counters = Counters()
        self.streams: dict[str, LogStream] = {}
        self._clock = clock
        self._emit = emit
        self._alert_log = alert_log
        self._cache_dir = cache_dir
        self._matcher = matcher
        self._offsets: dict[str, Any] = store.load_offsets()
        self._dirty: set[str] = set()
        self._fed: dict[str, float] = {}
        self._gone: set[str] = set()
        self._changed: list[Alert] = []
        self._state_dirty = False
        self._last_commit = 0.0
        first_run = not self._offsets and store.load_state() is None
        # What is older than the very first start never pages; what happened while we were away does.
        self._history_until = self.started if first_run else 0.0
        self._silent: set[str] = set((store.load_state("silent") or {}).get("fingerprints", []))
        self._last_lines: list[str] = []
        self.pipeline = self._build(config, ruleset)
        state = store.load_state()
        if state:
            self.pipeline.restore(state)
        if alert_log is not None:
            alert_log.recover((store.load_state("alert_log") or {}).get("lines", []))

    def _build(self, config: Config, ruleset: RuleSet) -> Pipeline:
        specs = [
            ServerSpec(
                name=server.name,
                engine=server.engine,
                labels=server.labels,
                limits=ProgressLimits(
                    floor=server.progress.floor,
                    cold=server.progress.cold,
                    ceiling=server.progress.ceiling,
                    with_evidence=server.progress.with_evidence,
                    silence=server.progress.silence,
                    trickle=server.progress.trickle,
                    livelock=server.progress.livelock,
                    saturated_after=server.progress.saturated_after,
                ),
            )
            for server in config.servers
        ]
        pipeline = Pipeline(
            ruleset,
            specs,
            external_labels=config.global_.external_labels,
            timezone=zone(config.global_.timezone),
            year_reference=YearReference(self.started),
            matcher=self._matcher,
            cache_dir=self._cache_dir,
        )
        log.info("matcher: %s", pipeline.engine.describe())
        return pipeline

    # -- events ----------------------------------------------------------------------------------------------

    def on_log(self, item: LogBytes) -> None:
        """Bytes of a log, or its silence, or its end."""
        stream = self._stream(item)
        if item.new_file:
            stream.restart_lines(item.file, item.first_line)
        found = stream.feed(item.data, self._clock()) if item.data else []
        if item.ended:
            found = [*found, *stream.flush(self._clock())]
        self._decide(stream, found)
        if item.data:
            self.counters.bytes[item.server] = self.counters.bytes.get(item.server, 0) + len(item.data)
            self.counters.last_line[item.server] = self._clock()
            self._fed[item.key] = self._clock()
        if item.position is not None:
            self._offsets[item.key] = {"position": item.position, "file": item.file, "server": item.server}
            self._dirty.add(item.key)
        if item.ended:
            self.streams.pop(item.key, None)
            self._offsets.pop(item.key, None)
            self._dirty.discard(item.key)
            self._gone.add(item.key)
        self._state_dirty = True

    def _decide(self, stream: LogStream, found: Sequence[Matched]) -> None:
        for matched in found:
            self._take(self.pipeline.on_matched(matched, stream.dialect))

    def _flush_quiet(self, now: float) -> None:
        """A record that waits for its end (a traceback) waits no longer than a short silence: a wedged server's last
        words are followed by nothing."""
        for key, fed in list(self._fed.items()):
            if now - fed >= QUIET:
                del self._fed[key]
                stream = self.streams.get(key)
                if stream is not None and stream.is_open:
                    self._decide(stream, stream.flush(now))
                    self._dirty.add(key)
                    self._state_dirty = True

    def _stream(self, item: LogBytes) -> LogStream:
        stream = self.streams.get(item.key)
        if stream is None:
            stream = self.pipeline.stream(item.server, item.file, first_line=item.first_line, envelope=item.envelope)
            kept = self._offsets.get(item.key, {}).get("stream")
            if kept is not None:
                stream.restore(kept)
            self.streams[item.key] = stream
            self._gone.discard(item.key)
        return stream

    def on_samples(self, samples: Sequence[Sample], engine: str) -> None:
        """A look at a metrics page, or the canary's answer."""
        for sample in samples:
            if sample.server in self.pipeline.detectors:
                self._take(self.pipeline.on_sample(sample, engine))
        self._state_dirty = True

    def tick(self) -> None:
        """Time has passed."""
        self._flush_quiet(self._clock())
        self._take(self.pipeline.advance(self._clock() - LAG))
        if self._changed or (self._state_dirty and self._clock() - self._last_commit >= COMMIT_EVERY):
            self.commit()

    def wait(self) -> float:
        """Seconds until something falls due by waiting alone; at most five."""
        now = self._clock()
        due = self.pipeline.next_time()
        wait = 5.0 if due is None else max(0.01, due + LAG - now)
        if self._fed:
            wait = min(wait, max(0.01, min(self._fed.values()) + QUIET - now))
        if self._state_dirty:
            wait = min(wait, max(0.01, self._last_commit + COMMIT_EVERY - now))
        return min(wait, 5.0)

    def _take(self, alerts: Sequence[Alert]) -> None:
        now = self._clock()
        self._changed += [alert.with_(detected_at=round(now, 3)) for alert in alerts]

    # -- the one transaction ---------------------------------------------------------------------------------

    def commit(self) -> None:
        """Make everything up to here durable, then tell the world of what changed."""
        changed, self._changed = self._changed, []
        for key in self._dirty:
            stream = self.streams.get(key)
            if stream is not None and key in self._offsets:
                self._offsets[key]["stream"] = stream.snapshot()
        to_send = [alert for alert in changed if self._pages(alert)]
        lines = [json.dumps(alert.to_json(), ensure_ascii=False) for alert in changed]
        named: dict[str, Any] = {"silent": {"fingerprints": sorted(self._silent)}} if changed else {}
        if lines:
            named["alert_log"] = {"lines": lines[-200:]}
        self.store.commit(
            offsets={key: self._offsets[key] for key in self._dirty if key in self._offsets},
            forget_offsets=sorted(self._gone),
            state=self.pipeline.snapshot(),
            named_state=named,
            alerts=to_send,
        )
        self._dirty.clear()
        self._gone.clear()
        self._state_dirty = False
        self._last_commit = self._clock()
        self.counters.commits += 1
        if changed:
            if self._alert_log is not None:
                self._alert_log.write(lines)
            self._emit(changed)

    def _pages(self, alert: Alert) -> bool:
        """Is this alert delivered? Not when it is history: fired before the first start, read with --from-start."""
        if alert.state == "firing" and alert.fired_at is not None and alert.fired_at < self._history_until:
            self._silent.add(alert.fingerprint)
        elif alert.state == "pending":
            self._silent.discard(alert.fingerprint)
        if alert.fingerprint in self._silent:
            if alert.state == "resolved":
                self._silent.discard(alert.fingerprint)
            return False
        return True

    # -- reload ----------------------------------------------------------------------------------------------

    def reload(self, config: Config, ruleset: RuleSet) -> None:
        """Another configuration: a new pipeline that takes over the state of servers and rules that are still there."""
        self.commit()
        state = self.pipeline.snapshot()
        streams = {key: (stream, stream.snapshot()) for key, stream in self.streams.items()}
        pipeline = self._build(config, ruleset)
        pipeline.restore(state)
        self.config, self.pipeline = config, pipeline
        self.streams = {}
        for key, (old, snapshot) in streams.items():
            if old.server in pipeline.detectors:
                stream = pipeline.stream(old.server, old.file)
                stream.restore(snapshot)
                self.streams[key] = stream

    def positions(self) -> Mapping[str, Any]:
        """Committed positions by stream key, for the followers."""
        return {key: value.get("position") for key, value in self._offsets.items()}

    def last_completion(self, server: str) -> float | None:
        """Event time of the last progress of a server, for the canary."""
        detector = self.pipeline.detectors.get(server)
        if detector is None:
            return None
        times = [
            tracker.last_progress for tracker in list(detector.trackers.values()) if tracker.last_progress is not None
        ]
        return max(times, default=None)


def is_critical(alert: Alert) -> bool:
    """Does this alert page?"""
    return FAILURE_FAMILY.get(alert.failure) in CRITICAL_FAMILIES
