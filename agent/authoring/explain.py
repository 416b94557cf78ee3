"""Why an alert came, or did not: which stages of which rules matched, which came close, what ruled a rule out.

The library behind ``wedgewatch scan --explain`` and the timeline of a failed rule test. It reads the log a second time,
beside the detection and without any influence on it, and also looks for lines that hold a stage's text but not its
severity or attributes.
"""

from __future__ import annotations

import bisect
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from agent.model import SEVERITY_NUMBER, Alert, LogRecord, rfc3339
from agent.rules.model import Condition, Rule, RuleSet, Stage
from agent.schema import format_duration

if TYPE_CHECKING:
    from agent.logs.engine import LogEngine, Matched
    from agent.replay import ScanResult

__all__ = ["Trace"]

KEEP: Final = 200
"""Hits of one stage that are remembered; of the others only the count and the last."""
_SHOWN: Final = 3
_BLOCK: Final = 256 * 1024
_ABSENT: Final = "absent"
_EVERY_ENGINE: Final = frozenset({"unknown", "auto", "ray_serve", "dynamo", "nim", "triton"})
"""Nothing recognised, or an engine in whose log another one speaks: rules of all engines are worth a word."""


@dataclass(frozen=True, slots=True)
class _Role:
    """What a condition stands for: stage ``stage`` of rule ``rule`` (or its ``absent``), ``near``: text alone."""

    rule: int
    stage: str
    near: bool = False


@dataclass(frozen=True, slots=True)
class _Hit:
    timestamp: float
    file: str
    line: int
    severity: str
    severity_number: int
    attributes: dict[str, str]
    body: str

    @classmethod
    def of(cls, record: LogRecord) -> _Hit:
        lines = record.body.strip().split("\n")
        body = lines[-1 if lines[0].startswith("Traceback ") else 0]  # of a traceback its last line says what it was
        return cls(
            record.timestamp,
            record.file,
            record.line,
            record.severity_text or "no severity",
            record.severity_number,
            dict(record.attributes),
            body if len(body) <= 120 else body[:119] + "…",
        )

    def __str__(self) -> str:
        return f"{self.file}:{self.line} [{self.severity}] {self.body}"


@dataclass(slots=True)
class _Seen:
    """The hits of one role in order of coming."""

    count: int = 0
    hits: list[_Hit] = field(default_factory=list)
    last: _Hit | None = None

    def add(self, hit: _Hit) -> None:
        self.count += 1
        self.last = hit
        if len(self.hits) < KEEP:
            self.hits.append(hit)


class Trace:
    """Collects what stages saw: name the logs with :meth:`read`, then ask."""

    def __init__(self, ruleset: RuleSet, *, engine: str = "auto", timezone: str = "UTC") -> None:
        self.ruleset = ruleset
        self.engine = "auto" if engine == "unknown" else engine
        self.timezone = timezone
        self._rules: Sequence[Rule] = ruleset.rules
        self._roles: list[_Role] = []
        self._seen: dict[_Role, _Seen] = {}
        self._logs: list[tuple[str, bytes | None, tuple[float, float] | None]] = []

    # -- input ------------------------------------------------------------------------------------------------

    def read(self, path: str, *, span: tuple[float, float] | None = None, keep: bool = False) -> None:
        """A finished log to look at when asked. ``span``: range of the metrics beside it. ``keep``: hold its bytes, for
        a file that will be gone by then."""
        data = None
        if keep:
            with open(path, "rb") as handle:
                data = handle.read()
        self._logs.append((path, data, span))

    def _look(self, rules: Sequence[Rule]) -> None:
        """Reads the logs for these rules."""
        from agent.logs.sources import open_finished

        self._rules, self._seen = rules, {}
        for path, data, span in self._logs:
            name = path if data is None else os.path.basename(path)
            stream = self._compile(span, path).stream(server="server", file=name, engine=self.engine)
            if data is not None:
                self._take(stream.feed(data))
            else:
                with open_finished(path) as source:
                    while block := source.read(_BLOCK):
                        self._take(stream.feed(block))
            self._take(stream.flush())

    def _compile(self, span: tuple[float, float] | None, file: str = "") -> LogEngine:
        from zoneinfo import ZoneInfo

        from agent.logs.engine import LogEngine
        from agent.logs.timestamps import YearReference

        conditions: list[Condition] = []
        self._roles = []
        for role, condition in _roles(self._rules):
            self._roles.append(role)
            conditions.append(condition)
        return LogEngine(
            conditions,
            self.ruleset.dialects,
            timezone=ZoneInfo(self.timezone),
            year_reference=YearReference.for_scan([file] if file else [], span),
        )

    def _take(self, matched: Iterable[Matched]) -> None:
        for item in matched:
            hit = _Hit.of(item.record)
            roles = {self._roles[found.condition] for found in item.hits}
            for role in roles:
                if not (role.near and replace(role, near=False) in roles):
                    self._seen.setdefault(role, _Seen()).add(hit)

    # -- output -----------------------------------------------------------------------------------------------

    def timeline(self, rules: Sequence[Rule], alerts: Sequence[Alert]) -> str:
        """What the stages of ``rules`` saw in the logs that were read, and what became of it, in order of time."""
        self._look(rules)
        rows: list[tuple[float, int, str]] = []
        for role, seen in self._seen.items():
            words = f"{self._rules[role.rule].alert}/{role.stage}"
            why = f" (not enough: {self._shortfall(role, seen.hits[0])})" if role.near else ""
            rows.extend((hit.timestamp, 0, f"{words:<34} {hit}{why}") for hit in seen.hits[:_SHOWN])
            if seen.count > _SHOWN and seen.last is not None:
                rows.append((seen.last.timestamp, 0, f"{words:<34} {seen.last} (the last of {seen.count})"))
        names = {rule.alert for rule in rules}
        rows.extend(
            (
                _moment(alert),
                1,
                f"{alert.alertname:<34} -> {alert.state}, {alert.confidence}, work: {alert.progress.state}",
            )
            for alert in alerts
            if alert.alertname in names
        )
        if not rows:
            return "no stage of these rules saw a line, and no alert of theirs began"
        rows.sort(key=lambda row: row[:2])
        return "\n".join(f"{rfc3339(timestamp)}  {text}" for timestamp, _, text in rows)

    def render(self, result: ScanResult) -> str:
        """For each rule that saw anything: its stages, and why it fired or did not; the rest in one line."""
        self._look(self.ruleset.rules)
        alerts = _last_by_name(result.alerts)
        shown, silent = [], 0
        for index, rule in enumerate(self._rules):
            if not _concerns(rule, result.engine):
                continue
            lines = list(self._about(index, rule, alerts.get(rule.alert)))
            if lines:
                shown.append("\n".join([f"{rule.alert} ({rule.failure})", *(f"  {line}" for line in lines)]))
            else:
                silent += 1
        shown.append(f"{silent} more rules for {result.engine} saw nothing of theirs in {result.lines} lines.")
        return "\n".join(shown)

    def _about(self, index: int, rule: Rule, alert: Alert | None) -> Iterator[str]:
        if rule.fingerprint is None:
            if alert is not None:
                yield f"-> {alert.state}, {alert.confidence}: {_progress(alert)}"
            return
        seen = {stage.name: self._seen.get(_Role(index, stage.name)) for stage in rule.fingerprint.stages}
        near = {stage.name: self._seen.get(_Role(index, stage.name, near=True)) for stage in rule.fingerprint.stages}
        ruled_out = self._seen.get(_Role(index, _ABSENT))
        if not any(seen.values()) and not any(near.values()) and alert is None:
            return
        for stage in rule.fingerprint.stages:
            found, close = seen[stage.name], near[stage.name]
            optional = " (optional)" if stage.optional else ""
            if found is not None:
                times = "once" if found.count == 1 else f"{found.count} times"
                yield f"[x] {stage.name}{optional}: {times}, first {rfc3339(found.hits[0].timestamp)} {found.hits[0]}"
            elif close is not None:
                why = self._shortfall(_Role(index, stage.name, near=True), close.hits[0])
                yield f"[~] {stage.name}{optional}: came close, {why}: {close.hits[0]}"
            else:
                yield f"[ ] {stage.name}{optional}: no line"
        yield "-> " + self._verdict(index, rule, alert, seen, ruled_out)

    def _verdict(
        self, index: int, rule: Rule, alert: Alert | None, seen: dict[str, _Seen | None], ruled_out: _Seen | None
    ) -> str:
        if alert is not None and alert.state != "pending":
            return f"{alert.state}, {alert.confidence}"
        assert rule.fingerprint is not None
        required = [stage for stage in rule.fingerprint.stages if not stage.optional]
        missing = [stage.name for stage in required if seen[stage.name] is None]
        if missing:
            return f"no alert: {' and '.join(missing)} never came"
        few = [stage for stage in required if not _often_enough(stage, seen[stage.name])]
        if few:
            within = format_duration(few[0].count_within)
            return f"no alert: {few[0].name} wants {few[0].count} lines within {within}"
        if not _in_order([seen[stage.name] for stage in required], rule.fingerprint.within):
            return f"no alert: the stages never came in this order within {format_duration(rule.fingerprint.within)}"
        if ruled_out is not None and alert is None:
            return f"no alert: ruled out by {ruled_out.hits[0]}"
        if alert is not None:
            wants = f"progress: {rule.progress}" if rule.progress else f"for: {format_duration(rule.for_seconds)}"
            return f"pending: the lines are there, waiting for {wants}; {_progress(alert)}"
        conditions = [
            text
            for text in (f"progress: {rule.progress}" * bool(rule.progress), f"when: {rule.when}" * bool(rule.when))
            if text
        ]
        if conditions:
            return f"no alert: the lines are there, but not {' and '.join(conditions)}"
        return "no alert of its own: another rule explains the same trouble better"

    def _shortfall(self, role: _Role, hit: _Hit) -> str:
        """Why a line that holds the text did not count."""
        stage = _stage(self._rules[role.rule], role.stage)
        if stage is None:
            return "other conditions do not hold"
        low, high = stage.condition.severity_min, stage.condition.severity_max
        if low and hit.severity_number < low:
            return f"its severity is below {_severity_name(low)}"
        if high and hit.severity_number > high:
            return f"its severity is above {_severity_name(low or high)}"
        for name, accepted in stage.condition.attributes.items():
            if hit.attributes.get(name) not in accepted:
                return f"its {name} is {hit.attributes.get(name, 'not there')}, not {' or '.join(accepted)}"
        return "other conditions do not hold"


def _roles(rules: Sequence[Rule]) -> Iterator[tuple[_Role, Condition]]:
    for index, rule in enumerate(rules):
        if rule.fingerprint is None:
            continue
        for stage in rule.fingerprint.stages:
            condition = stage.condition
            yield _Role(index, stage.name), condition
            if (condition.any or condition.all) and (
                condition.severity_min or condition.severity_max or condition.attributes
            ):
                bare = replace(condition, severity_min=0, severity_max=0, attributes={})
                yield _Role(index, stage.name, near=True), bare
        for condition in rule.fingerprint.absent:
            yield _Role(index, _ABSENT), condition


def _stage(rule: Rule, name: str) -> Stage | None:
    stages = rule.fingerprint.stages if rule.fingerprint is not None else ()
    return next((stage for stage in stages if stage.name == name), None)


def _often_enough(stage: Stage, seen: _Seen | None) -> bool:
    times = [hit.timestamp for hit in seen.hits] if seen is not None else []
    last = stage.count - 1
    return any(times[at + last] - times[at] <= stage.count_within for at in range(len(times) - last)) or last == 0


def _in_order(stages: Sequence[_Seen | None], within: float) -> bool:
    """Whether one hit of each can be chosen, none earlier than the one before, all inside the window."""
    lists = [[hit.timestamp for hit in seen.hits] for seen in stages if seen is not None]
    if not lists:
        return True
    for first in lists[0]:
        now: float | None = first
        for times in lists[1:]:
            at = bisect.bisect_left(times, now) if now is not None else len(times)
            now = times[at] if at < len(times) else None
        if now is not None and now - first <= within:
            return True
    return False


def _concerns(rule: Rule, engine: str) -> bool:
    return not rule.engines or engine in rule.engines or engine in _EVERY_ENGINE


def _last_by_name(alerts: Sequence[Alert]) -> dict[str, Alert]:
    """Of each alert name the one that came furthest."""
    order: dict[str, int] = {"pending": 0, "resolved": 1, "firing": 2}
    found: dict[str, Alert] = {}
    for alert in alerts:
        if alert.alertname not in found or order[alert.state] >= order[found[alert.alertname].state]:
            found[alert.alertname] = alert
    return found


def _progress(alert: Alert) -> str:
    summary = alert.progress
    numbers = [
        f"{name} {value:g}"
        for name, value in (("waiting", summary.requests_waiting), ("running", summary.requests_running))
        if value is not None
    ]
    return f"the signals say {summary.state}" + (f" ({', '.join(numbers)})" if numbers else "")


def _moment(alert: Alert) -> float:
    times: dict[str, Callable[[], float | None]] = {
        "firing": lambda: alert.fired_at,
        "resolved": lambda: alert.ends_at,
        "pending": lambda: alert.starts_at,
    }
    moment = times[alert.state]()
    return alert.starts_at if moment is None else moment


def _severity_name(number: int) -> str:
    return next((name for name, value in SEVERITY_NUMBER.items() if value == number), str(number))
