"""Faults that show only when rules and dialects stand together: signals an engine does not have, stages that no line
of an engine can fill, templates that name what is never there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from agent.model import FAILURE_FAMILY, SEVERITY_NUMBER, SIGNALS, severity_number
from agent.rules.compile import named_groups
from agent.rules.dialect_spec import ENGINES
from agent.rules.digest import canonical
from agent.rules.expressions import names_in
from agent.rules.model import Condition, Dialect, Matcher, Rule, Stage
from agent.rules.regexes import inspect_regex, texts_of_group
from agent.rules.spec import RuleFile, RuleSpec, StageSpec
from agent.rules.templates import check_template
from agent.schema import Bound, did_you_mean

__all__ = ["CheckExpr", "LoadedRule", "check_rules"]

CheckExpr = Callable[[str], Iterable[str | tuple[int, str]]]
"""Gives the faults of a PromQL expression as sentences, with their offset in it where that is known."""

ALWAYS: Final = frozenset({"up", "canary_success", "process_start_time_seconds"})
"""Signals that wedgewatch makes itself, whatever the engine."""
STREAM_ATTRIBUTES: Final = frozenset(
    {"stream", "pod", "container", "namespace", "node", "unit", "format", "file", "logger", "process", "pid", "rank"}
    | {"engine_index", "severity", "thread", "tid"}
)
"""Attributes that envelopes (CRI, docker, journald) and decoders add, whatever the engine."""
GROUP_KEYS: Final = frozenset({"server", "file", "instance"})


@dataclass(frozen=True, slots=True)
class LoadedRule:
    """A rule with the file that it stands in."""

    rule: Rule
    spec: RuleSpec
    bound: Bound[RuleFile]


def check_rules(
    loaded: list[LoadedRule], dialects: Mapping[str, Dialect], check_expr: CheckExpr | None, *, known: Iterable[str]
) -> None:
    """Adds faults to the files of the rules. ``known``: names of all alerts, for ``inhibits``."""
    alerts = frozenset(known)
    for item in loaded:
        _engines(item, dialects)
        chosen = [dialects[name] for name in item.rule.engines if name in dialects] or list(dialects.values())
        _when(item, chosen, check_expr)
        _by(item, chosen)
        _stages(item, chosen)
        _templates(item, chosen)
        _inhibits(item, alerts)
    _duplicates(loaded)


def _engines(item: LoadedRule, dialects: Mapping[str, Dialect]) -> None:
    for index, engine in enumerate(item.spec.engines):
        known = {*dialects, *ENGINES}
        if engine not in known:
            near = did_you_mean(engine, known) or f", known: {', '.join(sorted(known))}"
            position = item.bound.position(item.spec, "engines", index)
            item.bound.fault(position, f"unknown engine '{engine[:40]}'{near}")


def signals_of(dialect: Dialect) -> frozenset[str]:
    """Signals that an engine can give, from metrics, stats lines or its start block."""
    return (
        frozenset(dialect.metrics.signals)
        | {fact.signal for fact in dialect.facts}
        | {field.signal for line in dialect.stats for field in line.fields}
        | ALWAYS
    )


def _when(item: LoadedRule, dialects: list[Dialect], check_expr: CheckExpr | None) -> None:
    text = item.rule.when
    if not text:
        return
    bound, spec = item.bound, item.spec
    faults = list(check_expr(text)) if check_expr is not None else []
    for fault in faults:
        offset, message = (0, fault) if isinstance(fault, str) else fault
        bound.fault(bound.inside(spec, "when", offset=offset), f"when: {message}")
    if faults:
        return
    fields = named_groups(item.rule)
    for offset, name in names_in(text):
        where = bound.inside(spec, "when", offset=offset)
        if name in fields:
            continue
        if name not in SIGNALS:
            bound.fault(where, f"unknown signal '{name[:60]}'{_signal_hint(name, dialects)}")
            continue
        without = [dialect.engine for dialect in dialects if name not in signals_of(dialect)]
        if dialects and len(without) == len(dialects):
            which = " and ".join(without) if len(without) <= 3 else "any of its engines"
            bound.fault(where, f"signal '{name}' is not to be had from {which}, so this can never hold")
        elif without and item.rule.engines:
            message = f"signal '{name}' is not to be had from {', '.join(without)}, where this can never hold"
            bound.fault(where, message, "warning")


def _signal_hint(name: str, dialects: list[Dialect]) -> str:
    plain = name.replace(":", "_").removeprefix("ray_")
    for dialect in dialects:
        for signal, sources in dialect.metrics.signals.items():
            if any(source.metric.replace(":", "_") == plain for source in sources):
                return f", that is {dialect.engine}'s name for '{signal}'"
    return did_you_mean(name, SIGNALS) or "; conditions are over signals, see docs/rules.md"


def _attributes_of(dialect: Dialect) -> frozenset[str]:
    groups = {group for line in dialect.formats if line.regex for group in inspect_regex(line.regex).groups} | {
        name for line in dialect.formats for name in line.json
    }
    return frozenset(groups) - {"message", "time"} | STREAM_ATTRIBUTES


def _by(item: LoadedRule, dialects: list[Dialect]) -> None:
    fingerprint = item.rule.fingerprint
    if fingerprint is None:
        return
    known = GROUP_KEYS.union(*(_attributes_of(dialect) for dialect in dialects)) | STREAM_ATTRIBUTES
    for index, name in enumerate(fingerprint.by):
        if name not in known:
            near = did_you_mean(name, known) or f", known: {', '.join(sorted(known))}"
            position = item.bound.position(item.spec.fingerprint, "by", index)
            item.bound.fault(position, f"no line has an attribute '{name[:40]}'{near}")


def _stages(item: LoadedRule, dialects: list[Dialect]) -> None:
    fingerprint, spec = item.rule.fingerprint, item.spec.fingerprint
    if fingerprint is None or spec is None:
        return
    for stage, stage_spec in zip(fingerprint.stages, spec.stages, strict=True):
        _severity_reachable(item, stage, stage_spec, dialects)
        for place, message in _unreachable(stage, stage_spec, fingerprint.absent, dialects):
            item.bound.fault(
                item.bound.position(stage_spec, *place), f"no line can fill stage '{stage.name}': {message}"
            )


def _severity_reachable(item: LoadedRule, stage: Stage, spec: StageSpec, dialects: list[Dialect]) -> None:
    """A line without a severity passes no bound, and some engines print none."""
    low, high = stage.condition.severity_min, stage.condition.severity_max
    if not low and not high:
        return
    without = []
    for dialect in dialects:
        possible = severities_of(dialect)
        if possible is not None and not any(low <= number <= (high or number) for number in possible):
            without.append(dialect.engine)
    if not without:
        return
    where = item.bound.position(spec, "severity")
    if len(without) == len(dialects):
        message = f"no line of {' or '.join(without)} has such a severity"
        item.bound.fault(where, f"no line can fill stage '{stage.name}': {message}; leave 'severity' out")
    elif item.rule.engines:
        message = (
            f"no line of {' or '.join(without)} has such a severity, so there stage '{stage.name}' is never filled"
        )
        item.bound.fault(where, message, "warning")


def severities_of(dialect: Dialect) -> frozenset[int] | None:
    """OpenTelemetry numbers that lines of an engine can have; None when its formats leave that open."""
    if not dialect.formats:
        return None
    found = {SEVERITY_NUMBER["ERROR"]}  # tracebacks and bare `SomeError:` lines, whatever the format
    for line in dialect.formats:
        found.add(severity_number(line.default_severity))
        if line.json and "severity" in line.json:
            return None
        if line.regex and "severity" in inspect_regex(line.regex).groups:
            texts = texts_of_group(line.regex, "severity")
            if texts is None:
                return None
            found |= {severity_number(line.severity.get(text, text)) for text in texts}
    return frozenset(found)


def _unreachable(
    stage: Stage, spec: StageSpec, absent: tuple[Condition, ...], dialects: list[Dialect]
) -> Iterable[tuple[tuple[str | int, ...], str]]:
    condition = stage.condition
    # What a line certainly holds when it fills the stage: every literal of `all`, and a lone literal of `any`.
    certain = [matcher for matcher in condition.all if matcher.kind == "contains"]
    if len(condition.any) == 1 and condition.any[0].kind == "contains":
        certain.append(condition.any[0])
    forbidden: list[tuple[tuple[str | int, ...], Matcher, str]]
    forbidden = [(("not",), matcher, "'not' forbids") for matcher in condition.none]
    if not stage.optional:
        for other in absent:
            lone = len(other.any) == 1 and not other.all and not other.none and not other.severity_min
            if lone and not other.attributes:
                forbidden.append(((), other.any[0], "'absent' forbids"))
    for place, matcher, words in forbidden:
        for held in certain:
            if matcher.kind == "contains" and matcher.pattern in held.pattern:
                yield place, f"{words} '{matcher.pattern[:60]}', which every such line holds"
    for dialect in dialects if len(dialects) == 1 else ():
        for other in dialect.untrusted:
            lone = len(other.any) == 1 and not other.all and not other.none
            for held in certain:
                if lone and other.any[0].kind == "contains" and other.any[0].pattern in held.pattern:
                    yield (), f"{dialect.engine} quotes users' text in lines with '{other.any[0].pattern[:60]}'"
    if dialects:
        known = frozenset().union(*(_attributes_of(dialect) for dialect in dialects))
        for name in condition.attributes:
            if name not in known:
                near = did_you_mean(name, known)
                yield ("attributes", name), f"lines have no attribute '{name[:40]}'{near}"


def _templates(item: LoadedRule, dialects: list[Dialect]) -> None:
    fields = named_groups(item.rule)
    signals = frozenset(SIGNALS)
    for kind, texts in (("labels", item.rule.labels), ("annotations", item.rule.annotations)):
        for name, text in texts.items():
            for offset, message in check_template(text, fields=fields, signals=signals):
                item.bound.fault(item.bound.inside(item.spec, kind, name, offset=offset), f"{name}: {message}")


def _inhibits(item: LoadedRule, alerts: frozenset[str]) -> None:
    for index, name in enumerate(item.spec.inhibits):
        position = item.bound.position(item.spec, "inhibits", index)
        if name == item.rule.alert:
            item.bound.fault(position, "an alert cannot inhibit itself")
        elif name not in alerts and name not in FAILURE_FAMILY:
            near = did_you_mean(name, [*alerts, *FAILURE_FAMILY])
            item.bound.fault(position, f"no alert or failure is named '{name[:60]}'{near}")


def _duplicates(loaded: list[LoadedRule]) -> None:
    """The same definition twice; variants of one alert (other stages, other engines) are fine."""
    seen: dict[str, LoadedRule] = {}
    for item in loaded:
        first = seen.setdefault(canonical(item.rule), item)
        if first is not item:
            message = f"alert '{item.rule.alert}' is defined twice in the same way, first at {first.rule.position}"
            item.bound.fault(item.bound.position(item.spec), message)
