"""Our conditions as a Prometheus rule file: a second line of defence that does not need wedgewatch to run.

Recording rules make the signals out of an engine's own metrics, under the same names and with the engine's id as a
label; then a rule's ``when`` moves over unchanged. ``progress`` becomes an expression that says nearly the same: a
fixed time instead of a learned one. What only log lines prove stays here: the rules that name the cause of a stall by
its lines become one alert that says that work stands still.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from agent.rules.dialect_spec import ENGINES
from agent.rules.expressions import names_in
from agent.rules.model import Dialect, MetricSource, Rule, RuleSet
from agent.schema import format_duration

__all__ = ["PrometheusResult", "to_prometheus"]

_STALLED_FOR: Final = 120.0
"""Least ``for`` of a stall without history or lines: the cold deadline of the daemon."""
_ENGINE: Final = "wedgewatch_engine"
_QUEUE: Final = "(requests_running + requests_waiting or requests_running)"
_PROGRESS: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    # state: (signals that it needs, expression)
    "stalled": (
        ("requests_running", "generation_tokens_total"),
        f"{_QUEUE} > 0 and changes(generation_tokens_total[2m]) == 0 unless changes(prompt_tokens_total[2m]) > 0",
    ),
    "saturated": (
        ("requests_waiting", "generation_tokens_total"),
        "min_over_time(requests_waiting[1m]) > 0 and changes(generation_tokens_total[2m]) > 0",
    ),
    "down": (("up",), "up == 0"),
    "idle": (("requests_running",), f"{_QUEUE} == 0"),
}
_FILTERS: Final = {"duration": "humanizeDuration", "humanize": "humanize", "percent": "humanizePercentage"}
_TAG: Final = re.compile(r"\{\{\s*([A-Za-z_][\w.]*)\s*((?:\|\s*\w+(?:\([^)]*\))?\s*)*)\}\}")


@dataclass(slots=True)
class PrometheusResult:
    """A rule file's content, and what could not be carried over, one sentence each."""

    groups: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def to_prometheus(rules: Iterable[Rule], ruleset: RuleSet) -> PrometheusResult:
    """Recording rules for the engines that are concerned, then the alerts over them."""
    result = PrometheusResult()
    alerts: list[dict[str, Any]] = []
    concerned: dict[str, None] = {}
    stalls: list[Rule] = []
    for rule in rules:
        if rule.fingerprint is not None:
            if rule.progress == "stalled":
                stalls.append(rule)
            result.notes.append(f"{rule.alert}: log lines prove it, which Prometheus does not see")
            continue
        try:
            engines = _engines(rule, ruleset)
            alerts.append(_alert(rule))
        except ValueError as reason:
            result.notes.append(f"{rule.alert}: not carried over: {reason}")
            continue
        concerned |= dict.fromkeys(engines)
    if stalls and not any(alert["labels"]["failure"] == "silent_stall" for alert in alerts):
        merged = _merged(stalls, ruleset)
        concerned |= dict.fromkeys(_engines(merged, ruleset))
        alerts.append(_alert(merged))
    taken: set[tuple[str, str]] = set()
    for engine in sorted(concerned, key=_own_metrics_first):
        records = list(_records(ruleset.dialects[engine], taken))
        if records:
            result.groups.append({"name": f"wedgewatch-signals-{engine}", "rules": records})
    if alerts:
        result.groups.append({"name": "wedgewatch-alerts", "rules": _distinct(alerts)})
    return result


def _own_metrics_first(engine: str) -> tuple[int, str]:
    """Engines before those that pass another engine's metrics on (Ray, Dynamo, NIM stand last in the list of ids)."""
    return (ENGINES.index(engine) if engine in ENGINES else -1, engine)


def _merged(stalls: list[Rule], ruleset: RuleSet) -> Rule:
    """One alert for all the stalls that only their lines tell apart."""
    engines = (
        ()
        if any(not rule.engines for rule in stalls)
        else tuple(name for name in ruleset.dialects if any(name in rule.engines for rule in stalls))
    )
    names = ", ".join(dict.fromkeys(rule.alert for rule in stalls))
    return Rule(
        alert="SilentStall",
        failure="silent_stall",
        severity="critical",
        engines=engines,
        progress="stalled",
        annotations={
            "summary": "{{ server }}: no work issued, although there is some",
            "description": f"The log tells which it is: {names}.",
        },
    )


def _engines(rule: Rule, ruleset: RuleSet) -> list[str]:
    """Engines whose metrics pages hold all that the rule speaks of. Raises ValueError when there is none."""
    needed = {name for _, name in names_in(rule.when)} | set(_PROGRESS.get(rule.progress, ((), ""))[0])
    if rule.progress and rule.progress not in _PROGRESS:
        raise ValueError(f"progress '{rule.progress}' has no expression over metrics alone")
    chosen = rule.engines or tuple(ruleset.dialects)
    pages = {
        name: frozenset(ruleset.dialects[name].metrics.signals) | {"up"} for name in chosen if name in ruleset.dialects
    }
    able = [name for name, page in pages.items() if needed <= page]
    if not able:
        missing = min((sorted(needed - page) for page in pages.values()), key=len, default=sorted(needed))
        raise ValueError(f"{', '.join(missing)} is on no metrics page of its engines")
    return able


def _distinct(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Variants that differ in nothing that Prometheus sees are one here."""
    seen: dict[tuple[str, str], dict[str, Any]] = {}
    for item in items:
        seen.setdefault((item["alert"], item["expr"]), item)
    return list(seen.values())


# -- signals --------------------------------------------------------------------------------------------------


def _records(dialect: Dialect, taken: set[tuple[str, str]]) -> Iterable[dict[str, Any]]:
    """``taken``: sources that another engine's rules record already (Dynamo and Ray pass an engine's metrics on)."""
    for signal, sources in dialect.metrics.signals.items():
        own = [source for source in sources if (signal, _source(source, None)) not in taken]
        taken |= {(signal, _source(source, None)) for source in own}
        if not own or any(source.metric == signal for source in own):
            continue  # it has that name already
        expression = " or ".join(_source(source, dialect) for source in own)
        yield {"record": signal, "expr": expression, "labels": {_ENGINE: dialect.engine}}


def _source(source: MetricSource, dialect: Dialect | None) -> str:
    by = ", ".join(["job", "instance", *(dialect.metrics.instance_labels if dialect is not None else ())])
    chosen = f"{source.metric}{_where(source.where)}"
    if source.plus:
        # Which of them a page has differs by version, and with one missing "+" would give nothing. "or" adds what is
        # there, but does not look at names, so a label has to tell them apart.
        parts = [f'label_replace({part}, "part", "{n}", "", "")' for n, part in enumerate([chosen, *source.plus])]
        chosen = " or ".join(parts)
    expression = f"{source.agg} by ({by}) ({chosen})"
    if source.per:
        expression += f" / {source.agg} by ({by}) ({source.per})"
    return expression if source.scale == 1 else f"({expression}) * {source.scale:g}"


def _where(where: Mapping[str, str]) -> str:
    if not where:
        return ""
    parts = []
    for label, text in where.items():
        negative, value = text.startswith("!"), text.removeprefix("!")
        if "|" in value:
            value = "|".join(re.escape(choice) for choice in value.split("|"))
            operator = "!~" if negative else "=~"
        else:
            operator = "!=" if negative else "="
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        parts.append(f'{label}{operator}"{escaped}"')
    return "{" + ",".join(parts) + "}"


# -- alerts ---------------------------------------------------------------------------------------------------


def _alert(rule: Rule) -> dict[str, Any]:
    parts = []
    if rule.progress:
        parts.append(_PROGRESS[rule.progress][1])
    if rule.when:
        parts.append(rule.when.strip())
    expression = parts[0] if len(parts) == 1 else " and ".join(f"({part})" for part in parts)
    if rule.engines:
        only = " or ".join(f'label_replace(vector(1), "{_ENGINE}", "{engine}", "", "")' for engine in rule.engines)
        expression = f"({expression}) and on ({_ENGINE}) ({only})"
    lasting = max(rule.for_seconds, _STALLED_FOR) if rule.progress == "stalled" else rule.for_seconds
    alert: dict[str, Any] = {"alert": rule.alert, "expr": expression}
    if lasting:
        alert["for"] = format_duration(lasting)
    if rule.keep_firing_for:
        alert["keep_firing_for"] = format_duration(rule.keep_firing_for)
    alert["labels"] = {"severity": rule.severity, "failure": rule.failure} | {
        name: _text(text) for name, text in rule.labels.items() if name != "severity"
    }
    if rule.annotations:
        alert["annotations"] = {name: _text(text) for name, text in rule.annotations.items()}
    return alert


def _text(text: str) -> str:
    """Our templates in Prometheus's language; what has no counterpart there keeps its name in brackets."""

    def replace(found: re.Match[str]) -> str:
        path, filters = found[1], re.findall(r"\|\s*(\w+)", found[2])
        if path == "server":
            inside = "$labels.instance"
        elif path.startswith("labels."):
            inside = f"$labels.{path.removeprefix('labels.')}"
        else:
            return f"({path})"
        pipes = "".join(f" | {_FILTERS[name]}" for name in filters if name in _FILTERS)
        return f"{{{{ {inside}{pipes} }}}}"

    return _TAG.sub(replace, text)
