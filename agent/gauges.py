"""Our own metrics that are read off the daemon's state when somebody asks for the page, and cost nothing until then.

What happens in between (alerts, deliveries, requests) is counted where it happens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, get_args

from agent.detect.server import ServerDetector
from agent.model import Alert, ProgressState
from agent.telemetry import Telemetry

if TYPE_CHECKING:
    from agent.daemon import Daemon
    from agent.edges import ScrapeEdge
    from agent.log_sources import Source

__all__ = ["Gauges", "config_number", "worst_state"]

STATE_ORDER: Final[Mapping[ProgressState, int]] = {
    "stalled": 0,
    "down": 1,
    "unknown": 2,
    "saturated": 3,
    "starting": 4,
    "serving": 5,
    "idle": 6,
}
"""Of several replicas the first in this order speaks for the server."""
_REASONS: Final[Mapping[str, str]] = {"html": "parse", "redirect": "http", "too_large": "parse"}
_ON_TIME: Final = 120.0
"""An alert found so long after it was due comes from a backlog, and its delay says nothing about us."""


def worst_state(detector: ServerDetector, now: float) -> ProgressState:
    """The state of a server: that of its worst replica."""
    states = [tracker.state_at(now) for tracker in list(detector.trackers.values())]
    return min(states, key=STATE_ORDER.__getitem__, default="unknown")


def config_number(*parts: object) -> float:
    """A number that changes with the configuration in force; 48 bits, which a float holds exactly."""
    text = "\0".join(repr(part) for part in parts)
    return float(int.from_bytes(hashlib.blake2b(text.encode(errors="replace"), digest_size=6).digest(), "big"))


class Gauges:
    """Fills the telemetry from a daemon."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._seen: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        self._firing: dict[str, tuple[str, str]] = {}
        daemon.telemetry.before_render(self.update)

    @property
    def _telemetry(self) -> Telemetry:
        return self._daemon.telemetry

    def configured(self) -> None:
        """A configuration is in force: series that are known in advance exist from now on."""
        daemon, telemetry = self._daemon, self._telemetry
        for server in daemon.config.servers:
            telemetry.register_server(server.name)
        stages: dict[str, list[str]] = {}
        for rule in daemon.core.pipeline.ruleset.rules:
            known = stages.setdefault(rule.alert, [])
            known += [stage.name for stage in rule.fingerprint.stages] if rule.fingerprint is not None else []
        for name, filled in stages.items():
            telemetry.register_rule(name, filled)
        for target in daemon.dispatcher.status():
            telemetry.register_receiver(str(target["target"]), str(target["integration"]))
        telemetry.set("config_hash", config_number(daemon.config, daemon.core.pipeline.ruleset.digest))
        telemetry.set("config_last_reload_successful", 0.0 if daemon.reloader.problem else 1.0)
        telemetry.set("config_last_reload_success_timestamp_seconds", daemon.reloader.loaded_at)
        telemetry.set("observe_only", 1.0 if daemon.options.observe else 0.0)

    def alerts(self, changed: Sequence[Alert]) -> None:
        """These alerts changed."""
        for alert in changed:
            rule, severity = alert.alertname, alert.severity
            if alert.state == "firing":
                if alert.fingerprint not in self._firing:
                    self._telemetry.inc("incidents_total", 1.0, rule=rule, confidence=alert.confidence)
                    late = (alert.detected_at or 0.0) - (alert.fired_at or 0.0)
                    if alert.detected_at is not None and late < _ON_TIME:
                        self._telemetry.observe(
                            "incident_detection_delay_seconds", max(0.0, alert.detected_at - alert.starts_at)
                        )
                else:
                    self._opened(self._firing[alert.fingerprint], -1.0)
                self._firing[alert.fingerprint] = (rule, severity)
                self._opened((rule, severity), 1.0)
            elif alert.fingerprint in self._firing:
                self._opened(self._firing.pop(alert.fingerprint), -1.0)

    def restored(self, alerts: Sequence[Alert]) -> None:
        """These fired already when we started."""
        for alert in alerts:
            if alert.state == "firing":
                self._firing[alert.fingerprint] = (alert.alertname, alert.severity)
                self._opened((alert.alertname, alert.severity), 1.0)

    def _opened(self, which: tuple[str, str], by: float) -> None:
        self._telemetry.inc("incidents_open", by, rule=which[0], severity=which[1])

    # -- read off --------------------------------------------------------------------------------------------

    def update(self) -> None:
        """Bring everything up to date."""
        daemon, telemetry = self._daemon, self._telemetry
        telemetry.set("state_db_size_bytes", float(daemon.store.size_bytes()))
        self._count("state_errors_total", daemon.store.errors, op="disk")
        for thread in daemon.threads:
            telemetry.set("thread_up", 1.0 if thread.alive else 0.0, thread=thread.name)
            self._count("thread_restarts_total", thread.deaths, thread=thread.name)
        for source in daemon.watchers.logs.sources:
            self._source(source)
        for scrape in list(daemon.watchers.scrapes.values()):
            self._scrape(scrape)
        now = daemon.clock()
        with daemon.lock:
            pipeline = daemon.core.pipeline
            for name, detector in pipeline.detectors.items():
                self._server(name, detector, now)
            for (rule, stage), count in pipeline.rule_matches.items():
                self._count("rule_matches_total", count, rule=rule, stage=stage)

    def _source(self, source: Source) -> None:
        name, telemetry = source.name, self._telemetry
        self._count("source_lines_read_total", source.lines, source=name)
        self._count("source_bytes_read_total", source.bytes, source=name)
        self._count("source_decode_errors_total", source.decode_errors, source=name)
        self._count("source_timestamps_adjusted_total", source.adjusted, source=name)
        self._count("source_lines_dropped_total", source.cut_lines, source=name, reason="too_long")
        telemetry.set("source_lag_bytes", float(source.lag()), source=name)
        telemetry.set("source_files", float(len(source.files())), source=name)
        telemetry.set("source_up", 0.0 if source.error else 1.0, source=name)
        if source.last_line is not None:
            telemetry.set("source_last_line_timestamp_seconds", source.last_line, source=name)

    def _scrape(self, edge: ScrapeEdge) -> None:
        name, telemetry, last = edge.server, self._telemetry, edge.scraper.last
        self._count("scrapes_total", edge.scrapes, server=name)
        for reason, count in list(edge.failures.items()):
            self._count(f"scrape_failures_total/{reason}", count, server=name, reason=_REASONS.get(reason, reason))
        if last is not None:
            telemetry.set("scrape_duration_seconds", last.seconds, server=name)
            telemetry.set("scrape_samples", float(last.series), server=name)
        if edge.last_success is not None:
            telemetry.set("scrape_last_success_timestamp_seconds", edge.last_success, server=name)

    def _server(self, name: str, detector: ServerDetector, now: float) -> None:
        telemetry = self._telemetry
        state = worst_state(detector, now)
        for each in get_args(ProgressState):
            telemetry.set("server_progress", 1.0 if each == state else 0.0, server=name, state=each)
        telemetry.set("server_stalled", 1.0 if state == "stalled" else 0.0, server=name)
        moved = [t.last_progress for t in detector.trackers.values() if t.last_progress is not None]
        if moved:
            telemetry.set("server_last_progress_timestamp_seconds", max(moved), server=name)
        looks = list(self._daemon.core.latest.get(name, {}).values())
        for signal in ("requests_waiting", "requests_running", "requests_finished_total", "generation_tokens_total"):
            found = [values[signal] for values in looks if signal in values]
            if found:
                telemetry.set(f"server_{signal}", sum(found), server=name)
        use = [values["kv_cache_usage_ratio"] for values in looks if "kv_cache_usage_ratio" in values]
        if use:
            telemetry.set("server_kv_cache_usage_ratio", max(use), server=name)

    def _count(self, name: str, total: float, **labels: str) -> None:
        """A counter that somebody else keeps; where that began anew it goes on from here.

        What follows a ``/`` in the name tells counts apart that are summed."""
        key = (name, tuple(labels.items()))
        before = self._seen.get(key, 0.0)
        self._seen[key] = total
        step = total - before if total >= before else total
        if step or before == 0.0:
            self._telemetry.inc(name.partition("/")[0], step, **labels)
