"""The live core: one owner of the pipeline and of what must survive a crash.

Everything that is decided goes through here, one thing at a time: bytes of logs with the position they reach to, looks
at metrics, the passing of time. What follows from them (positions, detector state, alerts) is committed in one
transaction, so that after ``kill -9`` either all of it is there or the bytes are read again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from agent.alert_log import AlertLog
from agent.catch_up import CatchUp
from agent.config import Config
from agent.detect.advice import advise
from agent.detect.deadline import ProgressLimits
from agent.detect.server import ServerDetector
from agent.edges import zone
from agent.log_sources import LogBytes
from agent.logs.engine import LogStream, Matched
from agent.logs.skew import LogClock
from agent.logs.timestamps import YearReference
from agent.model import Alert, Sample
from agent.pipeline import Pipeline, ServerSpec
from agent.rules.model import RuleSet
from agent.store import Store

__all__ = ["Core"]

log = logging.getLogger("wedgewatch")

COMMIT_EVERY: Final = 1.0
"""Seconds between commits when nothing changed that must be kept at once."""
QUIET: Final = 0.3
"""Seconds without bytes after which an unfinished record is decided as it is."""
LAG: Final = 1.0
"""Seconds by which the event clock trails the wall clock: lines written now may still be on their way to us."""
AGAIN: Final = 5.0
"""Seconds between two commits while the disk fails, though nothing changed."""
FAR_OFF: Final = 55 * 60.0
"""Seconds from now beyond which the stamp of a line that was written just now is wrong: an unknown zone, mostly."""
CATCH_UP: Final = 60.0
"""Longest time that a server's happenings are held because its logs are not read to their ends yet."""
LEDGER_EVERY: Final = 300.0
"""Seconds between two savings of the history of loads."""
_DAY: Final = 86400.0
_DETECTOR: Final = "detector/"
"""Begins the names under which the state of each server is kept."""


class Core:
    """Owns pipeline, streams and store; called from one thread only.

    After each transaction ``deliver`` gets the alerts that somebody is to be told of, ``emit`` all that changed.
    """

    def __init__(
        self,
        config: Config,
        ruleset: RuleSet,
        store: Store,
        *,
        clock: Callable[[], float],
        emit: Callable[[Sequence[Alert]], None],
        deliver: Callable[[Sequence[Alert]], None] | None = None,
        alert_log: AlertLog | None = None,
        cache_dir: Path | None = None,
        matcher: str = "auto",
    ) -> None:
        self.config = config
        self.store = store
        self.started = clock()
        self._cache_dir = cache_dir
        self._matcher = matcher
        self._clock = clock
        self.pipeline = pipeline = self.build(config, ruleset)
        self.commits = 0
        self.streams: dict[str, LogStream] = {}
        self.last_line: dict[str, float] = {}
        self.latest: dict[str, dict[str, Mapping[str, float]]] = {}
        self._emit = emit
        self._deliver = deliver
        self._alert_log = alert_log
        self._offsets: dict[str, Any] = store.load_offsets()
        self._options: dict[str, tuple[str, str]] = {}
        self._dirty: dict[str, str] = {}  # key -> server
        self._gone: dict[str, str] = {}
        self._begun: dict[str, Any] = {}
        self._fed: dict[str, float] = {}
        self._told_off: dict[str, float] = {}
        self._clocks: dict[str, LogClock] = {}
        self._changed: list[tuple[Alert, bool]] = []
        self._touched: set[str] = set()
        self._state_dirty = False
        self._last_commit = 0.0
        self._last_ledger = self.started
        self._catch_up = CatchUp()
        state = store.load_states(_DETECTOR)
        self._history_until: dict[str, float] = store.load_state("first_start") or {}
        self._begin(pipeline)
        self._silent: set[str] = set((store.load_state("silent") or {}).get("fingerprints", []))
        pipeline.restore(state)
        for name, ledger in (store.load_state("onset") or {}).items():
            if name in pipeline.detectors:
                pipeline.detectors[name].ledger.restore(ledger)
        if alert_log is not None:
            alert_log.recover((store.load_state("alert_log") or {}).get("lines", []))

    def _begin(self, pipeline: Pipeline) -> None:
        """What is older than a server's very first start never pages; what happened while we were away does.

        Kept before anything is read: a daemon that is killed in its first second must not take what that second
        brought for history when it comes back.
        """
        # Most stamps are whole seconds: a line of this second may have been written after us.
        begun = float(int(self._clock()))
        new = [name for name in pipeline.detectors if name not in self._history_until]
        if new:
            self._history_until |= dict.fromkeys(new, begun)
            self.store.commit(named_state={"first_start": self._history_until})

    def build(self, config: Config, ruleset: RuleSet) -> Pipeline:
        """The pipeline of a configuration; may be called from any thread."""
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
        return Pipeline(
            ruleset,
            specs,
            external_labels=config.global_.external_labels,
            timezone=zone(config.global_.timezone),
            year_reference=YearReference(self._clock()),
            matcher=self._matcher,
            cache_dir=self._cache_dir,
        )

    # -- events ----------------------------------------------------------------------------------------------

    def catch_up(self, sources: Mapping[str, Sequence[str]], seconds: float = CATCH_UP) -> None:
        """Hold what happens to servers until each of their ``sources`` was read to its end (:meth:`read_to_end`)."""
        for server, names in sources.items():
            if server in self.pipeline.detectors:
                self._catch_up.begin(server, names, self._clock() + seconds)

    def read_to_end(self, server: str, source: str) -> None:
        """A source was read to its end."""
        self._catch_up.read(server, source)

    def on_log(self, item: LogBytes) -> None:
        """Bytes of a log, or its end."""
        if item.server not in self.pipeline.detectors or (item.source is not None and item.source.retired):
            return
        now = self._clock()
        stream = self._stream(item)
        before = (stream.lines, stream.cut_lines, stream.decode_errors)
        if item.new_file:
            stream.restart_lines(item.file, item.first_line)
        found = stream.feed(item.data, now) if item.data else []
        if item.ended:
            found = [*found, *stream.flush(now)]
        if item.live:
            found = [self._believable(item, matched, now) for matched in found]
        self._decide(stream, found)
        if item.data:
            self.last_line[item.server] = now
            self._fed[item.key] = now
        if item.source is not None:
            item.source.last_line = now if item.data else item.source.last_line
            item.source.lines += stream.lines - before[0]
            item.source.cut_lines += stream.cut_lines - before[1]
            item.source.decode_errors += stream.decode_errors - before[2]
        if item.position is not None:
            place = {"position": item.position, "file": item.file, "server": item.server}
            if item.key not in self._offsets and not item.data:
                self._begun[item.key] = {**place, "stream": stream.snapshot()}
            self._offsets[item.key] = place
            self._dirty[item.key] = item.server
        if item.ended:
            self.streams.pop(item.key, None)
            self._offsets.pop(item.key, None)
            self._fed.pop(item.key, None)
            self._dirty.pop(item.key, None)
            self._begun.pop(item.key, None)
            self._gone[item.key] = item.server
            self._clocks.pop(item.key, None)
        self._state_dirty = True

    def _stream(self, item: LogBytes) -> LogStream:
        stream = self.streams.get(item.key)
        options = (item.envelope, item.timezone)
        if stream is not None and self._options.get(item.key) == options:
            return stream
        kept = stream.snapshot() if stream is not None else self._offsets.get(item.key, {}).get("stream")
        stream = self._open(item.server, item.file, item.first_line, options)
        if kept is not None:
            stream.restore(kept)
        self.streams[item.key], self._options[item.key] = stream, options
        self._gone.pop(item.key, None)
        return stream

    def _open(self, server: str, file: str, first_line: int, options: tuple[str, str]) -> LogStream:
        envelope, timezone = options
        more = {"timezone": zone(timezone)} if timezone else {}
        return self.pipeline.stream(server, file, first_line=first_line, envelope=envelope, **more)

    def _believable(self, item: LogBytes, matched: Matched, now: float) -> Matched:
        """A line that was written just now happened now, whatever its stamp says; said once a day. A clock that is
        minutes off is put right by what its lines differ from ours at the least."""
        record = matched.record
        off = record.timestamp - now
        if abs(off) <= FAR_OFF:
            return self._aligned(item, matched, now)
        if item.source is not None:
            item.source.adjusted += 1
        if now - self._told_off.get(item.key, float("-inf")) >= _DAY:
            self._told_off[item.key] = now
            log.warning(
                "%s: stamps are %.1f hours %s the clock; lines count as written when they are read. "
                "Set the log's 'timezone', or the clock",
                item.file, abs(off) / 3600, "ahead of" if off > 0 else "behind",
            )  # fmt: skip
        return replace(matched, record=replace(record, timestamp=now, time_source="observed"))

    def _aligned(self, item: LogBytes, matched: Matched, now: float) -> Matched:
        record = matched.record
        if record.time_source == "observed":
            return matched
        clock = self._clocks.setdefault(item.key, LogClock())
        if clock.see(record.timestamp, now):
            log.info("%s: its clock differs from ours, %+.1f s are added to its times", item.file, clock.skew)
        skews = self.pipeline.detectors[item.server].skews
        if not clock.skew:
            skews.pop(item.key, None)
            return matched
        skews[item.key] = clock.skew
        return replace(matched, record=replace(record, timestamp=min(now, record.timestamp + clock.skew)))

    def _decide(self, stream: LogStream, found: Sequence[Matched]) -> None:
        for matched in found:
            self._happened(stream.server, matched.record.timestamp, matched, stream.dialect or "")

    def on_samples(self, samples: Sequence[Sample], engine: str) -> None:
        """A look at a metrics page, or the canary's answer."""
        for sample in samples:
            if sample.server in self.pipeline.detectors:
                if sample.ok and sample.source == "metrics":
                    self.latest.setdefault(sample.server, {})[sample.instance] = sample.values
                self._happened(sample.server, sample.timestamp, sample, engine)

    def _happened(self, server: str, timestamp: float, what: Matched | Sample, engine: str) -> None:
        if not self._catch_up.holds(server):
            self._tell(what, engine)
            return
        for _, old, spoken in self._catch_up.add(server, (timestamp, what, engine)):
            self._tell(old, spoken)

    def _tell(self, what: Matched | Sample, engine: str) -> None:
        self._state_dirty = True
        self._touched.add(what.server if isinstance(what, Sample) else what.record.server)
        if isinstance(what, Sample):
            self._take(self.pipeline.on_sample(what, engine), seen_live=what.source != "log")
        else:
            self._take(self.pipeline.on_matched(what, engine or None))

    def _flush_quiet(self, now: float) -> None:
        """A record that waits for its end (a traceback) waits no longer than a short silence: a wedged server's last
        words are followed by nothing."""
        for key, fed in list(self._fed.items()):
            if now - fed >= QUIET:
                del self._fed[key]
                stream = self.streams.get(key)
                if stream is not None and stream.is_open:
                    self._decide(stream, stream.flush(now))
                    self._dirty[key] = stream.server
                    self._state_dirty = True

    def tick(self) -> None:
        """Time has passed."""
        now = self._clock()
        self._keep_beginnings()
        self._flush_quiet(now)
        for server in self._catch_up.due(now):
            # The last words of a log (a traceback, half a line) belong to what is told in order.
            if not any(self._is_open(key, server) for key in self._fed):
                self._end_catch_up(server)
        for server in self.pipeline.detectors:
            if not self._catch_up.holds(server):
                self._take(self.pipeline.advance(now - LAG, server))
        since = now - self._last_commit
        if self._changed or (self._state_dirty and since >= COMMIT_EVERY) or (self._disk_fails() and since >= AGAIN):
            self.commit()

    def _keep_beginnings(self) -> None:
        """Where logs that were never seen before begin is kept before anything is read of them: killed in their first
        moments, with the log rotated meanwhile, we know which of the rotated files are new."""
        if self._begun:
            begun, self._begun = self._begun, {}
            self.store.commit(offsets=begun)

    def _disk_fails(self) -> bool:
        """Something waits for a disk: it is only tried again when we write."""
        return bool(self.store.problem) or (self._alert_log is not None and self._alert_log.behind)

    def _is_open(self, key: str, server: str) -> bool:
        stream = self.streams.get(key)
        return stream is not None and stream.server == server and stream.is_open

    def _end_catch_up(self, server: str) -> None:
        for _, what, engine in self._catch_up.end(server):
            self._tell(what, engine)

    def wait(self) -> float:
        """Seconds until something falls due by waiting alone; at most five."""
        now = self._clock()
        due = self.pipeline.next_time()
        times = [now + 5.0]
        if due is not None:
            times.append(due + LAG)
        if self._fed:
            times.append(min(self._fed.values()) + QUIET)
        if self._state_dirty:
            times.append(self._last_commit + COMMIT_EVERY)
        held = self._catch_up.next_due()
        if held is not None:
            times.append(held)
        return max(0.01, min(times) - now)

    def _take(self, alerts: Sequence[Alert], *, seen_live: bool = False) -> None:
        now = round(self._clock(), 3)
        self._touched.update(alert.server for alert in alerts)
        self._changed += [(alert.with_(detected_at=now), seen_live) for alert in alerts]

    # -- the one transaction ---------------------------------------------------------------------------------

    def commit(self, *, last: bool = False) -> None:
        """Make everything up to here durable, then tell the world of what changed. ``last``: we shut down."""
        changed, self._changed = self._changed, []
        # What is held was not decided yet: after a crash its bytes are read again.
        dirty = [key for key, server in self._dirty.items() if not self._catch_up.holds(server)]
        gone = [key for key, server in self._gone.items() if not self._catch_up.holds(server)]
        for key in dirty:
            stream = self.streams.get(key)
            if stream is not None and key in self._offsets:
                self._offsets[key]["stream"] = stream.snapshot()
        to_send = [alert for alert, seen_live in changed if self._pages(alert, seen_live)]
        lines = [json.dumps(alert.to_json(), ensure_ascii=False) for alert, _ in changed]
        self.store.commit(
            offsets={key: self._offsets[key] for key in dirty if key in self._offsets},
            forget_offsets=sorted(gone),
            named_state=self._named_state([alert for alert, _ in changed], lines, last=last),
            alerts=to_send,
        )
        for key in dirty:
            del self._dirty[key]
            self._begun.pop(key, None)
        for key in gone:
            del self._gone[key]
        self._touched.clear()
        self._state_dirty = False
        self._last_commit = self._clock()
        self.commits += 1
        if self._alert_log is not None and (lines or self._alert_log.behind):
            self._alert_log.write(lines)
        if to_send and self._deliver is not None:
            self._deliver(to_send)
        if changed:
            self._emit([alert for alert, _ in changed])

    def _named_state(self, changed: Sequence[Alert], lines: Sequence[str], *, last: bool) -> dict[str, Any]:
        detectors = self.pipeline.detectors
        # Of many servers few have changed since the last time.
        touched = detectors if last else [name for name in detectors if name in self._touched]
        named: dict[str, Any] = {f"{_DETECTOR}{name}": detectors[name].snapshot() for name in touched}
        if changed:
            named["silent"] = {"fingerprints": sorted(self._silent)}
        if lines and self._alert_log is not None:
            named["alert_log"] = {"lines": self._alert_log.pending(lines)}
        now = self._clock()
        onset = any(alert.state == "firing" for alert in changed)
        if last or onset or now - self._last_ledger >= LEDGER_EVERY:
            self._last_ledger = now
            named["onset"] = {name: d.ledger.snapshot() for name, d in detectors.items()}
            named["advice"] = {name: _advice(d) for name, d in detectors.items()}
        return named

    def _pages(self, alert: Alert, seen_live: bool) -> bool:
        """Is this alert delivered? Not when it is history (it fired before the first start, as its log tells), unless
        a look of ours finds the server in that state still."""
        history = alert.fired_at is not None and alert.fired_at < self._history_until.get(alert.server, 0.0)
        if alert.state == "firing" and history and not (seen_live and alert.confidence == "confirmed"):
            self._silent.add(alert.fingerprint)
        elif alert.state != "resolved":
            self._silent.discard(alert.fingerprint)
        if alert.fingerprint in self._silent:
            if alert.state == "resolved":
                self._silent.discard(alert.fingerprint)
            return False
        return True

    # -- reload ----------------------------------------------------------------------------------------------

    def reload(self, config: Config, pipeline: Pipeline) -> None:
        """Another configuration: ``pipeline`` takes over the state of servers and rules that are still there."""
        for server in self._catch_up.servers:
            self._end_catch_up(server)
        self.commit()
        old = self.pipeline
        pipeline.take_over(old)
        streams = {key: (stream, stream.snapshot()) for key, stream in self.streams.items()}
        self.config, self.pipeline, self.streams = config, pipeline, {}
        for key, (stream, snapshot) in streams.items():
            if stream.server in pipeline.detectors:
                fresh = self._open(stream.server, stream.file, 1, self._options[key])
                fresh.restore(snapshot)
                self.streams[key] = fresh
        self._begin(pipeline)

    def positions(self) -> Mapping[str, Any]:
        """Positions by stream key up to which everything was processed, for the followers."""
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


def _advice(detector: ServerDetector) -> dict[str, Any]:
    """What to admit at most, for each engine of a server that enough is known of."""
    found = {key: advise(tracker, detector.ledger) for key, tracker in detector.trackers.items()}
    return {key: {**item.to_json(), "sentences": item.sentences()} for key, item in found.items() if item is not None}
