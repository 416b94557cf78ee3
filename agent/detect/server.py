"""One watched server: its log evidence, its progress, its alerts. The pure heart of wedgewatch.

A :class:`ServerDetector` is told what happened, with event times, and returns the alerts that changed. It never reads
a clock: :meth:`advance` says how far event time has come, and waiting alone changes verdicts only at times that
:meth:`next_time` names, so a live run, a replay and a test see the same transitions at the same event times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from agent.detect.alerts import Finding, LiveAlert
from agent.detect.builds import Builds
from agent.detect.context import Explainer
from agent.detect.deadline import ProgressLimits
from agent.detect.fingerprint import FingerprintMatcher, Match
from agent.detect.identity import Identity
from agent.detect.onset import OnsetLedger
from agent.detect.progress import ProgressTracker
from agent.detect.signals import SignalStore
from agent.detect.verdict import NAMELESS, Verdict, contradicted, critical_verdict, name_rank
from agent.detect.warnings import WarningBook
from agent.model import CRITICAL_FAMILIES, FAILURE_FAMILY, Alert, LogRecord, Sample
from agent.rules.model import Rule

__all__ = ["ServerDetector"]

_LONGEST_LOOK: Final = 60.0
"""Seconds between two looks beyond which the time between them is a hole, not healthy time."""
_AFTER_RESTART: Final = 15.0
"""Seconds of health after a restart that end an alert: the process that was stuck is gone."""


class ServerDetector:
    """Detection for one server. Not thread-safe; owned by the pipeline."""

    def __init__(
        self,
        name: str,
        rules: Iterable[Rule],
        *,
        engine: str = "auto",
        labels: Mapping[str, str] | None = None,
        external_labels: Mapping[str, str] | None = None,
        limits: ProgressLimits | None = None,
    ) -> None:
        self.name = name
        self.configured_engine = engine
        self.recognised_engine = ""
        self.labels = dict(labels or {})
        self.identity = Identity(name, self.labels, dict(external_labels or {}))
        self.limits = limits or ProgressLimits()
        self.now = 0.0
        self.trackers: dict[str, ProgressTracker] = {}
        self.signals = SignalStore(name)
        self.ledger = OnsetLedger()
        self._builds = Builds()
        self.skews: dict[str, float] = {}
        """Seconds that were added to the stamps of a log, by the log."""
        self.explainer = Explainer(self._load_report, self.skews)
        self._rules = tuple(rules)
        self._matchers = {
            index: FingerprintMatcher(r) for index, r in enumerate(self._rules) if r.fingerprint is not None
        }
        self._incidents: dict[str, LiveAlert] = {}
        self._incident_restarts: dict[str, int] = {}
        self._warnings = WarningBook(self._finding, lambda rule, instance: self._holds(rule, instance)())
        self._due: dict[str, float] = {}
        self._judged_second = -1
        self._ended = False
        self._sort_rules()

    # -- what happened ---------------------------------------------------------------------------------------

    @property
    def engine(self) -> str:
        """The engine as configured, else as recognised, else ``unknown``."""
        if self.configured_engine != "auto":
            return self.configured_engine
        return self.recognised_engine or "unknown"

    def recognise(self, engine: str | None) -> None:
        """Lines or metrics gave the engine away; the first word counts."""
        if engine and not self.recognised_engine:
            self.recognised_engine = engine
            self._sort_rules()

    def applies(self, rule: Rule) -> bool:
        """Is this rule for this engine? While the engine is unknown, every rule is."""
        return not rule.engines or self.engine == "unknown" or self.engine in rule.engines

    def _sort_rules(self) -> None:
        """Which rules are in play for the engine as it is known now; asked at every event, so it is kept."""
        chosen = [(index, rule) for index, rule in enumerate(self._rules) if self.applies(rule)]
        paging = [FAILURE_FAMILY.get(rule.failure, "degraded") in CRITICAL_FAMILIES for _, rule in chosen]
        self._paging = [rule for (_, rule), pages in zip(chosen, paging, strict=True) if pages]
        self._warning = [item for item, pages in zip(chosen, paging, strict=True) if not pages]
        self._matching = [self._matchers[index] for index, _ in chosen if index in self._matchers]

    def on_stages(
        self,
        record: LogRecord,
        hits: Mapping[int, Mapping[int, Mapping[str, str]]],
        absent: frozenset[int] = frozenset(),
    ) -> list[Alert]:
        """``record`` satisfies stages of rules (rule -> stage -> fields) and ``absent`` conditions of rules."""
        out = self._reach(record.timestamp)
        for index in sorted(set(hits) | absent):
            matcher = self._matchers.get(index)
            if matcher is not None and self.applies(self._rules[index]):
                matcher.observe(record, hits.get(index, {}), absent=index in absent)
        return out + self._judge(self.now)

    def on_sample(self, sample: Sample) -> list[Alert]:
        """A look at the signals."""
        if sample.source == "log" and sample.instance in self.trackers:
            self.trackers[sample.instance].bridge(sample)
        out = self._reach(sample.timestamp)
        tracker = self._tracker(sample.instance)
        restarts, stall = tracker.restarts, tracker.stall
        tracker.observe(sample)
        quiet = tracker.restarts == restarts and tracker.stall is stall
        if sample.source == "log" and quiet and int(sample.timestamp) == self._judged_second:
            return out  # engines print up to hundreds of stats lines a second: one of them is judged
        self.signals.append(sample, tracker.facts)
        if tracker.restarts != restarts:
            self._restarted()
            self.ledger.restart(sample.timestamp)
        for name, text in sample.builds.items():
            self.on_build(name, text, sample.timestamp)
        self._note_load(sample, tracker)
        return out + self._judge(self.now)

    def on_facts(self, values: Mapping[str, float], timestamp: float, instance: str = "") -> list[Alert]:
        """The start block printed numbers."""
        out = self._reach(timestamp)
        for tracker in self._chosen(instance):
            if any(tracker.facts.get(name, value) != value for name, value in values.items()):
                self.ledger.change(timestamp)  # started with other limits than before
            tracker.fact(values)
        self.signals.facts(values, timestamp)
        return out + self._judge(self.now)

    def on_build(self, name: str, text: str, timestamp: float) -> None:
        """A line or a metric says which version or flags run; ``name`` tells which of them."""
        if text and self._builds.see(name, text, timestamp):
            self.ledger.change(timestamp)

    def on_lifecycle(self, state: str, timestamp: float, instance: str = "", task: str = "") -> list[Alert]:
        """A line told of a phase of the server's life, or of ``task``."""
        out = self._reach(timestamp)
        if state == "received":
            return out
        before = {key: tracker.restarts for key, tracker in self.trackers.items()}
        for tracker in self._chosen(instance):
            tracker.mark(state, timestamp, task)
        if any(tracker.restarts != before.get(key, 0) for key, tracker in self.trackers.items()):
            self._restarted()
            self.ledger.restart(timestamp)
        elif state in ("begun", "aborted", "progress") and int(timestamp) == self._judged_second:
            return out  # one of many such lines in a second is judged
        return out + self._judge(self.now)

    def advance(self, timestamp: float) -> list[Alert]:
        """Event time has come to ``timestamp``: everything that falls due on the way happens at its own time.

        Our own clock only follows what happened: a live daemon asks often and a replay rarely, and both must see the
        next line at the same moment."""
        out: list[Alert] = []
        while not self._ended:
            due = self.next_time()
            if due is None or due > timestamp:
                break
            step = self._at(due)
            out += step
            if not step and self.next_time() == due:
                break  # a timer that changes nothing is not asked twice
        return out

    def _reach(self, timestamp: float) -> list[Alert]:
        """Something happened at ``timestamp``."""
        out = self.advance(timestamp)
        self.now = max(self.now, timestamp)
        return out

    def finish(self, until: float | None = None) -> list[Alert]:
        """End of input. With ``until`` the log is known to be whole up to then, and silence counts. Without, only the
        windows of lines already seen run on: a log that was cut is no stall."""
        out: list[Alert] = []
        if until is not None:
            out += self._reach(until)
        self._ended = True
        for tracker in self.trackers.values():
            tracker.ended()
        for _ in range(64):
            times = [t for t in (*self._due.values(), *self._warnings.line_times(self._rules)) if t > self.now]
            if not times:
                break
            out += self._at(min(times))
        return out

    def next_time(self) -> float | None:
        """The next event time at which waiting alone changes something, if any."""
        times: list[float] = []
        times += self._due.values()
        for key, live in self._incidents.items():
            if live.healthy_since is not None:
                times.append(live.healthy_since + self._hold_for(key, live))
        times += self._warnings.times(self._rules)
        times += [t for t in (tracker.next_deadline() for tracker in self.trackers.values()) if t is not None]
        later = [t for t in times if t > self.now]
        return min(later, default=None)

    # -- judging ---------------------------------------------------------------------------------------------

    def _at(self, timestamp: float) -> list[Alert]:
        self.now = max(self.now, timestamp)
        for tracker in self.trackers.values():
            tracker.advance(self.now)
        return self._judge(self.now)

    def _tracker(self, instance: str) -> ProgressTracker:
        if instance in self.trackers:
            return self.trackers[instance]
        if len(self.trackers) == 1:
            only = next(iter(self.trackers))
            if instance == "":
                return self.trackers[only]
            if only == "":
                # The one engine has given its number: what the server as a whole did so far was its doing.
                self.trackers[instance] = self.trackers.pop("")
                _rename(self._incidents, instance)
                _rename(self._incident_restarts, instance)
                return self.trackers[instance]
        tracker = ProgressTracker(self.limits)
        if self.trackers:
            elder = next(iter(self.trackers.values()))
            tracker.phase, tracker.phase_since = elder.phase, elder.phase_since
            tracker.facts = dict(elder.facts)
        self.trackers[instance] = tracker
        return tracker

    def _chosen(self, instance: str) -> list[ProgressTracker]:
        if instance and instance in self.trackers:
            return [self.trackers[instance]]
        if not self.trackers:
            self._tracker("")
        return list(self.trackers.values())

    def _matches(self, instance: str) -> list[Match]:
        """Complete fingerprints that may speak of this engine, still inside their window."""
        several = len(self.trackers) > 1
        return [
            match
            for matcher in self._matching
            for match in matcher.matches()
            if not (several and match.engine_index and match.engine_index != instance)
        ]

    def _holds(self, rule: Rule, instance: str) -> Callable[[], bool]:
        def holds() -> bool:
            if not rule.when:
                return True
            caught: Mapping[str, str] = {}
            if rule.fingerprint is not None:
                caught = next((match.fields for match in self._matches(instance) if match.rule is rule), {})
            return self.signals.holds(rule.when, self.now, instance, caught)

        return holds

    def _judge(self, now: float) -> list[Alert]:
        self._judged_second = int(now)
        out: list[Alert] = []
        for instance in sorted(self.trackers) or [""]:
            tracker = self._tracker(instance)
            matches = self._matches(instance)
            out += self._judge_critical(instance, tracker, matches, now)
            out += self._warnings.judge(
                self._warning, instance, tracker, matches, now, paged=self._paged(instance), inhibited=self._inhibited
            )
        return out

    def _judge_critical(self, instance: str, tracker: ProgressTracker, matches: list[Match], now: float) -> list[Alert]:
        live = self._incidents.setdefault(instance, LiveAlert())
        fresh = [m for m in matches if live.firing or now - m.completed <= self._window(m)]
        verdict = critical_verdict(self._paging, fresh, tracker, now, lambda rule, _: self._holds(rule, instance)())
        self._due.pop(instance, None)
        if verdict is not None and not self._cooling(live, verdict, now):
            verdict = self._keep_name(live, verdict)
            self._incident_restarts.setdefault(instance, tracker.restarts)
            if not live.open:
                self._incident_restarts[instance] = tracker.restarts
            out = live.hold(self._finding(verdict, tracker, instance, now, live), now)
            if not live.firing and verdict.due is not None:
                self._due[instance] = verdict.due
            if any(alert.state == "firing" and alert.fired_at == now for alert in out):
                self._note_onset(verdict, tracker)
            return out
        if not live.open:
            return []
        healthy = tracker.state in ("idle", "serving", "saturated") or self._restarted_since(instance, tracker)
        if not live.firing:
            # What was only suspected is dropped as soon as work demonstrably goes on, or its window is over.
            self._spend(matches, tracker)
            return live.clear(now)
        if not healthy:
            live.blind()
            return []
        done = live.clear(now, hold_for=self._hold_for(instance, live))
        if done:
            self._spend(matches, tracker, all_of_them=True)
            self._incident_restarts.pop(instance, None)
        return done

    def _note_load(self, sample: Sample, tracker: ProgressTracker) -> None:
        """Healthy time at its load, for the question whether trouble follows load."""
        point = tracker.points[-1] if tracker.points else None
        if point is None or not sample.ok or point.timestamp != sample.timestamp:
            return
        healthy = tracker.stall is None and tracker.state in ("serving", "saturated", "idle")
        if healthy and 0 < point.step <= _LONGEST_LOOK:
            tokens = (point.generated or 0.0) + (point.prompted or 0.0)
            load, finished = point.in_flight or 0.0, point.finished or 0.0
            self.ledger.look(sample.timestamp, point.step, load, finished=finished, tokens=tokens)

    def _note_onset(self, verdict: Verdict, tracker: ProgressTracker) -> None:
        before = [p for p in tracker.points if p.timestamp <= verdict.starts_at and p.in_flight is not None][-60:]
        if before:
            load = sum(p.in_flight or 0.0 for p in before) / len(before)
            seconds = max(sum(p.step for p in before), 1.0)
            finished = sum(p.finished or 0.0 for p in before)
            tokens = sum((p.generated or 0.0) + (p.prompted or 0.0) for p in before)
            self.ledger.onset(verdict.starts_at, load, (round(finished / seconds, 4), round(tokens / seconds, 3)))

    def _load_report(self, _server: str, _onset: float) -> dict[str, Any]:
        report = self.ledger.report()
        verdict = {"load": "yes", "deployment": "no"}.get(report.verdict, "unknown")
        return {"verdict": verdict, "sentence": report.sentence(), **report.to_json(), "explains": report.verdict}

    def _cooling(self, live: LiveAlert, verdict: Verdict, now: float) -> bool:
        return (
            not live.open
            and live.resolved_at is not None
            and verdict.rule.cooldown > 0
            and now < live.resolved_at + verdict.rule.cooldown
        )

    def _keep_name(self, live: LiveAlert, verdict: Verdict) -> Verdict:
        """A page that went out keeps its name, unless it had none, or lines now tell the cause where only the shape of
        the signals spoke before: renaming is news only when it names one."""
        if not live.firing or live.current is None or live.current.alertname == verdict.rule.alert:
            return verdict
        name, by_lines = live.current.alertname, bool(live.current.stages)
        known = [rule for rule in self._rules if rule.alert == name and self.applies(rule)]
        if not known:
            return verdict
        current = next((rule for rule in known if (rule.fingerprint is not None) == by_lines), known[0])
        rank = name_rank(verdict.rule, matched=verdict.match is not None)
        if (current.failure in NAMELESS or not by_lines) and rank > name_rank(current, matched=by_lines):
            return verdict
        return replace(verdict, rule=current)

    def _window(self, match: Match) -> float:
        fingerprint = match.rule.fingerprint
        return fingerprint.within if fingerprint is not None else 0.0

    def _hold_for(self, instance: str, live: LiveAlert) -> float:
        tracker = self.trackers.get(instance)
        if tracker is not None and self._restarted_since(instance, tracker):
            return min(_AFTER_RESTART, live.keep_firing_for)
        return live.keep_firing_for

    def _restarted_since(self, instance: str, tracker: ProgressTracker) -> bool:
        return (
            tracker.restarts > self._incident_restarts.get(instance, tracker.restarts) and tracker.phase != "starting"
        )

    def _restarted(self) -> None:
        for matcher in self._matchers.values():
            matcher.restart()

    def _spend(self, matches: list[Match], tracker: ProgressTracker, *, all_of_them: bool = False) -> None:
        for index, matcher in self._matchers.items():
            for match in matches:
                if (
                    match.rule is self._rules[index]
                    and match.rule.progress != "serving"
                    and (all_of_them or contradicted(match, tracker))
                ):
                    matcher.spend(match.key, match.completed)

    def _inhibited(self, rule: Rule) -> bool:
        """Does the rule of another firing alert say that this one is to be silent, by its name or its failure?"""
        firing = {alert.alertname for alert in self.open_alerts() if alert.state == "firing"}
        return any(
            other.alert in firing and (rule.alert in other.inhibits or rule.failure in other.inhibits)
            for other in self._rules
            if other.inhibits
        )

    def _paged(self, instance: str) -> bool:
        incident = self._incidents.get(instance)
        return incident is not None and incident.current is not None and incident.current.confidence != "suspected"

    # -- what an alert says ----------------------------------------------------------------------------------

    def _finding(
        self, verdict: Verdict, tracker: ProgressTracker, instance: str, now: float, live: LiveAlert
    ) -> Finding:
        rule = verdict.rule
        # An open alert keeps its identity, whatever else shows up behind the same page meanwhile.
        which = instance if len(self.trackers) > 1 else ""
        alert = Alert(
            alertname=rule.alert,
            failure=rule.failure,
            state="pending",
            confidence=verdict.confidence,
            severity=rule.severity,
            server=self.name,
            engine=self.engine,
            fingerprint=live.current.fingerprint if live.current else self.identity.fingerprint(verdict, which),
            starts_at=verdict.starts_at,
            stages=verdict.match.stages if verdict.match is not None else (),
            progress=tracker.summary(now),
            labels=self.identity.label(verdict, self.engine, which, live.current),
        )
        due = verdict.due if verdict.due is not None else float("inf")
        return Finding(
            alert,
            lambda settled: self.explainer.explain(settled, verdict, tracker, now),
            verdict.confidence,
            due,
            rule.keep_firing_for,
        )

    def open_alerts(self) -> list[Alert]:
        """Every alert that is pending or firing."""
        incidents = [live.current for live in self._incidents.values() if live.current is not None]
        return [*incidents, *self._warnings.open_alerts()]

    # -- persistence -----------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """The whole state as JSON-able values; keyed by rule name so that unchanged rules survive a reload."""
        names = _names(self._rules)
        return {
            "now": self.now,
            "engine": self.recognised_engine,
            "trackers": {key: tracker.snapshot() for key, tracker in self.trackers.items()},
            "matchers": {names[index]: matcher.snapshot() for index, matcher in self._matchers.items()},
            "incidents": {key: live.snapshot() for key, live in self._incidents.items()},
            "incident_restarts": dict(self._incident_restarts),
            "warnings": self._warnings.snapshot(names),
            "builds": self._builds.snapshot(),
        }

    def restore(self, data: Mapping[str, Any]) -> None:
        """Inverse of :meth:`snapshot`; state of rules that are gone is dropped."""
        self.now = data.get("now", 0.0)
        self.recognised_engine = data.get("engine", "")
        self._sort_rules()
        for key, value in data.get("trackers", {}).items():
            tracker = self.trackers[key] = ProgressTracker(self.limits)
            tracker.restore(value)
        by_name = {name: index for index, name in enumerate(_names(self._rules))}
        for name, value in data.get("matchers", {}).items():
            if name in by_name and by_name[name] in self._matchers:
                self._matchers[by_name[name]].restore(value)
        for key, value in data.get("incidents", {}).items():
            live = self._incidents[key] = LiveAlert()
            live.restore(value)
        self._incident_restarts.update(data.get("incident_restarts", {}))
        self._warnings.restore(data.get("warnings", []), by_name)
        self._builds.restore(data.get("builds", {}))


_V = TypeVar("_V")


def _names(rules: Sequence[Rule]) -> list[str]:
    """A name for each rule that no other has: packs of several engines may call their alerts the same."""
    seen: Counter[str] = Counter()
    out = []
    for rule in rules:
        name = " ".join((rule.alert, *rule.engines))
        seen[name] += 1
        out.append(name if seen[name] == 1 else f"{name} #{seen[name]}")
    return out


def _rename(table: dict[str, _V], instance: str) -> None:
    if "" in table:
        table[instance] = table.pop("")
