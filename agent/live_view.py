"""The daemon as the page, the API and the probes see it. Answers from memory, under the core's lock, at once."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from agent import __version__
from agent.detect.advice import advise
from agent.detect.pressure import pressure
from agent.detect.progress import ProgressTracker
from agent.detect.server import ServerDetector
from agent.detect.stall import Point
from agent.evidence import incident_id as id_of
from agent.gauges import STATE_ORDER
from agent.model import Alert
from agent.rule_views import rule_views
from agent.store import StoredAlert
from agent.web.context import lines_around
from agent.web.view import (
    PLOT_SIGNALS,
    CanaryView,
    Change,
    Delivery,
    EvidenceFile,
    Health,
    Incident,
    MuteView,
    Observed,
    OnsetPoint,
    OnsetView,
    OutboxItem,
    Replica,
    RuleView,
    SeriesView,
    ServerView,
    SourceView,
    ThreadView,
    Transition,
)

if TYPE_CHECKING:
    from agent.daemon import Daemon
    from agent.edges import CanaryEdge

__all__ = ["LiveView"]

_RELOAD: Final = 20.0
"""Seconds that a request for a reload waits for its outcome."""


class LiveView:
    """Implements :class:`agent.web.view.View` over a running daemon."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._fired: tuple[int, dict[str, tuple[int, float]]] = (-1, {})
        self._observed: tuple[int, Observed] | None = None

    def now(self) -> float:
        return self._daemon.clock()

    # -- servers ---------------------------------------------------------------------------------------------

    def servers(self) -> Sequence[ServerView]:
        with self._daemon.lock:
            return [self._server(name, d) for name, d in self._daemon.core.pipeline.detectors.items()]

    def _server(self, name: str, detector: ServerDetector) -> ServerView:
        now = self.now()
        replicas = tuple(self._replica(key, tracker, now) for key, tracker in sorted(detector.trackers.items()))
        worst = min(replicas, key=lambda r: STATE_ORDER[r.state], default=Replica("", "unknown"))
        tracker = detector.trackers.get(worst.engine_index)
        scrape = self._daemon.watchers.scrapes.get(name)
        canary = self._daemon.watchers.canaries.get(name)
        last = scrape.scraper.last if scrape is not None else None
        deadline, source = tracker.deadline() if tracker is not None else (None, "")
        values = _summed([dict(r.values) for r in replicas])
        near = pressure(tracker, now, detector.ledger) if tracker is not None else None
        advised = advise(tracker, detector.ledger) if tracker is not None else None
        return ServerView(
            name=name,
            engine=detector.engine,
            state=worst.state,
            since=worst.since,
            why=_why(worst, tracker, values, now),
            labels=detector.labels,
            values=values,
            replicas=replicas,
            last_progress=max((r.last_progress for r in replicas if r.last_progress), default=None),
            last_line=self._daemon.core.last_line.get(name),
            last_scrape=tracker.last_metrics if tracker is not None else None,
            scrape_error=last.error if last is not None else "",
            started=tracker.started_at if tracker is not None else None,
            deadline_s=deadline,
            deadline_source=source,
            facts=dict(tracker.facts) if tracker is not None else {},
            canary=_canary(canary) if canary is not None else None,
            pressure=near.sentence() if near is not None else "",
            pressure_chance=near.chance if near is not None else None,
            advice=tuple(advised.sentences()) if advised is not None else (),
        )

    def _replica(self, key: str, tracker: ProgressTracker, now: float) -> Replica:
        return Replica(
            engine_index=key,
            state=tracker.state_at(now),
            since=tracker.state_since,
            last_progress=tracker.last_progress,
            values={
                name: points[-1][1] for name, points in _series(tracker.points).items() if points[-1][1] is not None
            },
        )

    def series(
        self, server: str, engine_index: str, signal: str, since: float, until: float, points: int
    ) -> Sequence[SeriesView]:
        out: list[SeriesView] = []
        with self._daemon.lock:
            detector = self._daemon.core.pipeline.detectors.get(server)
            if detector is None:
                return []
            for key, tracker in sorted(detector.trackers.items()):
                if engine_index and key != engine_index:
                    continue
                chosen = [p for p in tracker.points if since <= p.timestamp <= until]
                for name, found in _series(chosen).items():
                    if not signal or name == signal:
                        step = max(1, -(-len(found) // max(1, points)))
                        out.append(SeriesView(server, name, found[::-step][::-1], key, PLOT_SIGNALS[name]))
        return out

    # -- alerts ----------------------------------------------------------------------------------------------

    def alerts(self) -> Sequence[Alert]:
        with self._daemon.lock:
            detectors = self._daemon.core.pipeline.detectors.values()
            return [alert for detector in detectors for alert in detector.open_alerts()]

    def incidents(self, limit: int, server: str = "") -> Sequence[Incident]:
        stored = [s for s in self._daemon.store.alerts(limit=4 * limit) if s.alert.fired_at is not None]
        return [self._incident(s) for s in stored if not server or s.alert.server == server][:limit]

    def incident(self, incident_id: str) -> Incident | None:
        fingerprint = incident_id.rpartition("-")[0]
        for stored in self._daemon.store.alerts(fingerprint=fingerprint):
            if stored.alert.fired_at is not None and id_of(stored.alert) == incident_id:
                return self._incident(stored, whole=True)
        return None

    def _incident(self, stored: StoredAlert, *, whole: bool = False) -> Incident:
        alert = stored.alert
        history = [Transition(alert.starts_at, "pending", "suspected", alert.failure, "onset")]
        if alert.fired_at is not None:
            history.append(Transition(alert.fired_at, "firing", alert.confidence, alert.failure))
        if alert.ends_at is not None:
            history.append(Transition(alert.ends_at, "resolved", alert.confidence, alert.failure))
        name, aftermath = id_of(alert), self._daemon.aftermath
        evidence = aftermath.evidence.pieces(name) if whole and aftermath is not None else ()
        actions = aftermath.actions.taken(name) if aftermath is not None else ()
        return Incident(
            id=name,
            alert=alert,
            history=tuple(history),
            deliveries=tuple(self._deliveries(alert)),
            evidence=tuple(EvidenceFile(piece.name, piece.size, piece.note) for piece in evidence),
            context=lines_around(alert.stages, partial(aftermath.evidence.context_text, name))
            if whole and aftermath is not None
            else (),
            actions_taken=tuple(taken.text for taken in actions),
        )

    def _deliveries(self, alert: Alert) -> Iterator[Delivery]:
        for row in self._daemon.store.outbox(states=("sent", "pending", "sending", "dead"), limit=5000):
            members = {str(item.get("fingerprint", "")) for item in row.body.get("alerts", ())}
            if alert.fingerprint not in members or row.created < alert.starts_at - 60:
                continue
            receiver, _, integration = row.receiver.partition("/")
            outcome = "delivered" if row.state == "sent" else "dead" if row.state == "dead" else "pending"
            yield Delivery(row.finished or row.created, receiver, integration, row.action, outcome, row.last_error)

    def incident_tar(self, incident_id: str) -> tuple[int, Iterator[bytes]] | None:
        aftermath = self._daemon.aftermath
        return aftermath.evidence.tar(incident_id) if aftermath is not None else None

    def evidence_pending(self, alert: Alert) -> bool:
        aftermath = self._daemon.aftermath
        return aftermath is not None and aftermath.evidence.pending(alert)

    # -- rules, sources, outbox ------------------------------------------------------------------------------

    def rules(self) -> Sequence[RuleView]:
        pipeline = self._daemon.core.pipeline
        with self._daemon.lock:
            return rule_views(pipeline, self._fired_rules())

    def _fired_rules(self) -> dict[str, tuple[int, float]]:
        """How often each alert fired, and when last; read again when an alert has changed."""
        changes = self._daemon.alert_changes
        if self._fired[0] != changes:
            fired: dict[str, tuple[int, float]] = {}
            for stored in self._daemon.store.alerts(limit=5000):
                if stored.alert.fired_at is not None:
                    count, last = fired.get(stored.alert.alertname, (0, 0.0))
                    fired[stored.alert.alertname] = (count + 1, max(last, stored.alert.fired_at))
            self._fired = (changes, fired)
        return self._fired[1]

    def sources(self) -> Sequence[SourceView]:
        return self._daemon.watchers.logs.views()

    def outbox(self) -> Sequence[OutboxItem]:
        return [
            OutboxItem(
                id=row.id,
                fingerprint=str(row.body.get("fingerprint", "")),
                receiver=row.receiver.split("/", 1)[0],
                integration=row.receiver.split("/", 1)[-1],
                action=row.action,
                state=row.state,
                created=row.created,
                attempts=row.attempts,
                next_attempt=row.next_at,
                last_error=row.last_error,
            )
            for row in self._daemon.store.outbox(states=("pending", "sending", "dead"))
        ]

    def onset(self, server: str) -> OnsetView | None:
        with self._daemon.lock:
            detector = self._daemon.core.pipeline.detectors.get(server)
            if detector is None:
                return None
            ledger = detector.ledger
            report, points = ledger.report(), ledger.points()
        factor = report.log10_bayes_factor
        return OnsetView(
            server=server,
            onsets=tuple(OnsetPoint(t, load) for t, load in points["onsets"]),
            healthy=tuple(_histogram(points["healthy"])),
            changes=tuple(
                [Change(t, "restart") for (t,) in points["restarts"]]
                + [Change(t, "configuration") for (t,) in points["changes"]]
            ),
            threshold=report.threshold,
            low=report.threshold_low,
            high=report.threshold_high,
            safe_ceiling=report.safe_load,
            bayes_factor=10**factor if factor is not None and abs(factor) < 300 else None,
            verdict=report.sentence(),
        )

    # -- ourselves -------------------------------------------------------------------------------------------

    def self_health(self) -> Health:
        daemon = self._daemon
        problems = []
        if daemon.reloader.problem:
            problems.append(f"configuration: {daemon.reloader.problem}")
        if daemon.store.problem:
            problems.append(f"state: {daemon.store.problem}")
        if daemon.alert_log is not None and daemon.alert_log.problem:
            problems.append(daemon.alert_log.problem)
        problems += [view.error for view in self.sources() if view.error]
        problems += [
            f"thread {t.name} is not running; its last error: {t.last_error or 'none'}"
            for t in daemon.threads
            if not t.alive
        ]
        problems += [
            alert.annotations.get("summary", alert.alertname) for alert in daemon.dispatcher.self_alerts.open()
        ]
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return Health(
            version=__version__,
            ready=True,
            started=daemon.started,
            problems=tuple(problems),
            threads=tuple(ThreadView(t.name, t.alive, None, t.deaths, t.last_error) for t in daemon.threads),
            observe=daemon.options.observe,
            config_file=daemon.options.config_file,
            config_loaded=daemon.reloader.loaded_at,
            config_error=daemon.reloader.problem,
            rss_bytes=_rss(),
            cpu_seconds=round(usage.ru_utime + usage.ru_stime, 3),
            state_bytes=daemon.store.size_bytes(),
            matcher=daemon.core.pipeline.engine.matcher,
            external_url=daemon.config.global_.external_url,
            lines_per_second=round(daemon.line_rate(), 1),
        )

    def observed(self) -> Observed | None:
        daemon = self._daemon
        if not daemon.options.observe:
            return None
        if self._observed is None or self._observed[0] != daemon.alert_changes:
            self._observed = (daemon.alert_changes, daemon.observed())
        return replace(self._observed[1], until=self.now())

    def mutes(self) -> Sequence[MuteView]:
        return [
            MuteView(s.id, tuple(s.matchers), s.starts_at, s.ends_at, s.comment)
            for s in self._daemon.store.silences(active_at=self.now())
        ]

    def mute(self, matchers: Sequence[str], seconds: float, comment: str) -> MuteView:
        s = self._daemon.dispatcher.mute(matchers, seconds, comment=comment)
        return MuteView(s.id, tuple(s.matchers), s.starts_at, s.ends_at, s.comment)

    def unmute(self, mute_id: str) -> bool:
        return self._daemon.dispatcher.unmute(mute_id)

    def retry_outbox(self, item_id: int) -> bool:
        return self._daemon.store.revive([item_id]) > 0

    def reload(self) -> str:
        return self._daemon.reloader.request(wait=_RELOAD)


def _canary(edge: CanaryEdge) -> CanaryView:
    cost = edge.canary.cost
    return CanaryView(cost.requests, cost.answered, cost.prompt_tokens, cost.completion_tokens, edge.last_error)


def _why(replica: Replica, tracker: ProgressTracker | None, values: dict[str, float], now: float) -> str:
    """One sentence that a tired reader understands."""
    waiting, running = values.get("requests_waiting"), values.get("requests_running")
    queue = f"{waiting or 0:.0f} requests wait, {running or 0:.0f} run"
    quiet = f"{now - replica.last_progress:.0f} s" if replica.last_progress else "as long as we have looked"
    which = f"engine {replica.engine_index}: " if replica.engine_index else ""
    if replica.state == "stalled":
        return f"{which}{queue}, and nothing has moved for {quiet}"
    if replica.state == "unknown":
        reason = f": {tracker.failure}" if tracker is not None and tracker.failure else ""
        return f"{which}we see no signals{reason}; neither healthy nor stalled is claimed"
    if replica.state == "saturated":
        return f"{which}{queue}; requests still complete"
    if replica.state == "serving":
        return f"{which}{queue}; last progress {quiet} ago"
    return {
        "idle": "nothing to do",
        "starting": "starting: loading, compiling or capturing",
        "down": "stopped: its log says that it shut down",
    }.get(replica.state, "")


def _series(points: Sequence[Point] | Any) -> dict[str, list[tuple[float, float | None]]]:
    out: dict[str, list[tuple[float, float | None]]] = {}
    for p in points:
        rows = {
            "requests_waiting": p.waiting,
            "requests_running": p.running,
            "kv_cache_usage_ratio": p.kv,
            "finished_per_minute": 60 * p.finished / p.step if p.finished is not None and p.step > 0 else None,
            "generation_tokens_per_second": p.generated / p.step if p.generated is not None and p.step > 0 else None,
            "prompt_tokens_per_second": p.prompted / p.step if p.prompted is not None and p.step > 0 else None,
        }
        for name, value in rows.items():
            if value is not None:
                out.setdefault(name, []).append((p.timestamp, round(value, 4)))
    return out


def _summed(parts: Sequence[dict[str, float]]) -> dict[str, float]:
    out: dict[str, float] = {}
    for part in parts:
        for name, value in part.items():
            out[name] = max(out.get(name, 0.0), value) if name == "kv_cache_usage_ratio" else out.get(name, 0.0) + value
    return out


def _histogram(healthy: Sequence[Sequence[float]], bins: int = 24) -> Iterator[tuple[float, float, float]]:
    """(load from, load to, seconds) over equal bins."""
    if not healthy:
        return
    top = max(load for load, _ in healthy) or 1.0
    seconds = [0.0] * bins
    for load, span in healthy:
        seconds[min(bins - 1, int(bins * load / top))] += span
    for index, span in enumerate(seconds):
        yield round(index * top / bins, 3), round((index + 1) * top / bins, 3), round(span, 1)


def _rss() -> int:
    try:
        with open("/proc/self/statm") as handle:
            return int(handle.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
