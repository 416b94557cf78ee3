"""From the YAML shape of a dialect to the model of it."""

from __future__ import annotations

import re
from typing import Final

from agent.model import SIGNALS
from agent.rules.compile import Compiler
from agent.rules.dialect_spec import DialectFile, FormatSpec, MetricSpec, StatsFieldSpec, StatsSpec
from agent.rules.model import (
    Build,
    Dialect,
    Fact,
    Lifecycle,
    LineFormat,
    MetricMap,
    MetricSource,
    StatsField,
    StatsLine,
    ValueTest,
)
from agent.schema import Bound, did_you_mean

__all__ = ["compile_dialect", "parse_value_test"]

TIME_WORDS: Final = ("iso8601", "epoch", "epoch_ms", "uptime")
_DIRECTIVES: Final = frozenset("YmdHMSfzZbByIpjaA%T")
_ENGINE_ID: Final = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)
_METRIC: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*", re.ASCII)
_TEST: Final = re.compile(r"\s*([A-Za-z_]\w*)\s*(==|!=|<=|>=|<|>)\s*(-?\d+(?:\.\d+)?)\s*", re.ASCII)


def compile_dialect(bound: Bound[DialectFile], *, verify: bool = True) -> Dialect | None:
    """The dialect of one file, None when too little of it can be used."""
    spec = bound.value
    if spec is None:
        return None
    compiler = Compiler(bound, verify=verify)
    if not _ENGINE_ID.fullmatch(spec.dialect) or spec.dialect == "auto":
        bound.fault(bound.position(spec, "dialect"), "an engine id is lower-case letters, digits and '_' (not 'auto')")
    for index, prefix in enumerate(spec.detect.metrics):
        if not prefix.strip():
            bound.fault(bound.position(spec.detect, "metrics", index), "an empty prefix fits every metrics page")
    return Dialect(
        engine=spec.dialect,
        title=spec.title or spec.dialect,
        detect_lines=compiler.conditions(spec.detect.lines),
        detect_metrics=spec.detect.metrics,
        formats=tuple(_format(compiler, item) for item in spec.formats),
        untrusted=compiler.conditions(spec.untrusted),
        lifecycle=tuple(Lifecycle(item.state, compiler.condition(item)) for item in spec.lifecycle),
        facts=_facts(compiler, spec),
        stats=tuple(_stats(compiler, item) for item in spec.stats),
        metrics=_metrics(compiler, spec),
        sources=spec.sources,
        builds=_builds(compiler, spec),
        position=bound.position(spec),
    )


def _format(compiler: Compiler, spec: FormatSpec) -> LineFormat:
    bound = compiler.bound
    if spec.regex:
        groups = compiler.regex(spec, "regex", text=spec.regex, needs="message")
        if groups and spec.time and "time" not in groups:
            bound.fault(bound.position(spec, "time"), "the regex has no group 'time' for it: (?P<time>...)")
        if groups and "time" in groups and not spec.time:
            bound.fault(
                bound.position(spec, "regex"), "the regex catches 'time', say how it is written: time: '%H:%M:%S'"
            )
        if groups and spec.severity and "severity" not in groups:
            bound.fault(bound.position(spec, "severity"), "the regex has no group 'severity' for it")
    elif "message" not in spec.json:
        bound.fault(bound.position(spec, "json"), "say which key holds the message: json: {message: KEY}")
    _time(compiler, spec)
    return LineFormat(
        name=spec.name,
        regex=spec.regex,
        time=spec.time,
        severity=dict(spec.severity),
        default_severity=spec.default_severity,
        json=dict(spec.json),
        position=bound.position(spec),
    )


def _time(compiler: Compiler, spec: FormatSpec) -> None:
    bound = compiler.bound
    if not spec.time or spec.time in TIME_WORDS:
        return
    if "%" not in spec.time:
        near = did_you_mean(spec.time, TIME_WORDS) or f", known: {', '.join(TIME_WORDS)}"
        bound.fault(bound.position(spec, "time"), f"'{spec.time[:40]}' is no strptime pattern and no known word{near}")
        return
    for found in re.finditer(r"%(.?)", spec.time):
        if found[1] not in _DIRECTIVES:
            where = bound.inside(spec, "time", offset=found.start())
            bound.fault(where, f"'%{found[1]}' is no directive of strptime that is known here")


def _facts(compiler: Compiler, spec: DialectFile) -> tuple[Fact, ...]:
    facts = []
    for item in spec.facts:
        compiler.regex(item, "regex", text=item.regex, needs="value")
        facts.append(Fact(item.signal, item.regex, item.scale, compiler.bound.position(item)))
    return tuple(facts)


def _builds(compiler: Compiler, spec: DialectFile) -> tuple[Build, ...]:
    builds = []
    for item in spec.builds:
        compiler.regex(item, "regex", text=item.regex, needs="value")
        if item.ignore:
            compiler.regex(item, "ignore", text=item.ignore)
        builds.append(Build(item.name, item.regex, item.ignore, compiler.bound.position(item)))
    return tuple(builds)


def _stats(compiler: Compiler, spec: StatsSpec) -> StatsLine:
    bound = compiler.bound
    if not spec.fields:
        bound.fault(bound.position(spec), "a stats line without 'fields' tells nothing")
    fields = []
    for signal, value in spec.fields.items():
        _known_signal(compiler, spec, "fields", signal)
        if isinstance(value, StatsFieldSpec):
            compiler.regex(value, "regex", text=value.regex, needs="value")
            fields.append(StatsField(signal, value.regex, value.scale, value.default, value.sum))
        else:
            compiler.regex(spec, "fields", signal, text=value, needs="value")
            fields.append(StatsField(signal, value))
    if spec.instance:
        compiler.regex(spec, "instance", text=spec.instance, needs="engine_index")
    tests = []
    for index, text in enumerate(spec.not_progress):
        try:
            test = parse_value_test(text)
        except ValueError as error:
            bound.fault(bound.position(spec, "not_progress", index), str(error))
            continue
        if test.signal not in spec.fields:
            near = did_you_mean(test.signal, spec.fields)
            where = bound.position(spec, "not_progress", index)
            bound.fault(where, f"the line has no field '{test.signal}'{near}")
        tests.append(test)
    return StatsLine(
        name=spec.name,
        condition=compiler.condition(spec),
        fields=tuple(fields),
        instance=spec.instance,
        not_progress=tuple(tests),
        interval=spec.interval,
        silent_when_idle=spec.silent_when_idle,
    )


def parse_value_test(text: str) -> ValueTest:
    """``scheduled_tokens <= 1``. Raises ValueError with a sentence."""
    found = _TEST.fullmatch(text)
    if found is None:
        raise ValueError(f"'{text[:60]}' is no test, write for example \"scheduled_tokens <= 1\"")
    return ValueTest(found[1], found[2], float(found[3]))  # type: ignore[arg-type]  # the regex knows the operators


def _metrics(compiler: Compiler, spec: DialectFile) -> MetricMap:
    bound = compiler.bound
    signals: dict[str, tuple[MetricSource, ...]] = {}
    for signal, value in spec.metrics.signals.items():
        _known_signal(compiler, spec.metrics, "signals", signal)
        items = value if isinstance(value, tuple) else (value,)
        sources = []
        for index, item in enumerate(items):
            source = (
                MetricSource(item.metric, dict(item.where), item.scale, item.agg, item.per, item.plus)
                if isinstance(item, MetricSpec)
                else MetricSource(item)
            )
            for name in (source.metric, source.per, *source.plus):
                if name and not _METRIC.fullmatch(name):
                    path = (index,) if isinstance(value, tuple) else ()
                    where = bound.position(spec.metrics, "signals", signal, *path)
                    bound.fault(where, f"'{name[:60]}' is no metric name; labels belong into 'where'")
            sources.append(source)
        signals[signal] = tuple(sources)
    for name in spec.metrics.builds:
        if not _METRIC.fullmatch(name):
            bound.fault(bound.key_position(spec.metrics, "builds", name), f"'{name[:60]}' is no metric name")
    return MetricMap(spec.metrics.path, spec.metrics.instance_labels, signals, dict(spec.metrics.builds))


def _known_signal(compiler: Compiler, owner: object, path: str, signal: str) -> None:
    if signal not in SIGNALS:
        near = did_you_mean(signal, SIGNALS) or f", known: {', '.join(sorted(SIGNALS))}"
        compiler.bound.fault(compiler.bound.key_position(owner, path, signal), f"unknown signal '{signal[:60]}'{near}")
