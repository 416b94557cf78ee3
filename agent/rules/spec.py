"""The shape of rule files, as the schema reads it; :mod:`agent.rules.compile` makes the model of it.

These classes say which keys there are and what each may hold. The JSON Schema that editors use comes from them too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from agent.model import FAILURE_FAMILY, Duration
from agent.rules.conditions import OTHER_TOOLS, ConditionFields, CountSpec, ItemSpec, key, parse_count

__all__ = ["ExpectSpec", "FingerprintSpec", "RuleFile", "RuleSpec", "SeriesSpec", "StageSpec", "TestSpec"]


@dataclass(frozen=True, slots=True)
class StageSpec(ConditionFields):
    """A step of a fingerprint."""

    stage: str = field(default="", metadata=key(doc="Its name; pressure, symptom ...", nonempty=True, required=True))
    optional: bool = field(default=False, metadata=key(doc="Evidence when it is there, no condition."))
    count: int | str | CountSpec = field(
        default=1, metadata=key(doc='How many records fill it: "2 within 3m" or {n: 2, within: 3m}.', minimum=1)
    )
    terminal: bool = field(
        default=False, metadata=key(doc="This line alone says that no work follows (the loop's thread is gone).")
    )

    def check(self) -> Iterator[tuple[str, str]]:
        if isinstance(self.count, str):
            try:
                parse_count(self.count)
            except ValueError as error:
                yield "count", str(error)
        if not (self.any or self.all or self.severity or self.attributes):
            yield "", "says nothing to look for, give 'any' or 'all'"


@dataclass(frozen=True, slots=True)
class FingerprintSpec:
    """Ordered stages inside a window."""

    stages: tuple[StageSpec, ...] = field(metadata=key(nonempty=True, doc="In the order in which they come."))
    within: Duration = field(default=Duration(900.0), metadata=key(minimum=0.001, doc="From first to last stage."))
    by: tuple[str, ...] = field(
        default=("server",), metadata=key(doc="What the stages must agree in: server, rank, pid ...", nonempty=True)
    )
    absent: tuple[ItemSpec, ...] = field(
        default=(), metadata=key(doc="Records that rule this failure out: a sibling's own lines.")
    )
    absent_after: Duration = field(
        default=Duration(0.0), metadata=key(doc="How long after the last stage 'absent' still rules it out.")
    )

    HINTS: ClassVar[Mapping[str, str]] = {
        **OTHER_TOOLS,
        "window": "write 'within'",
        "timespan": "write 'within'",
        "maxspan": "write 'within'",
        "group-by": "write 'by'",
        "group_by": "write 'by'",
        "negate": "write 'absent'",
        "without": "write 'absent'",
        "not": "write 'absent'",
        "order": "write 'stages'",
        "steps": "write 'stages'",
    }


@dataclass(frozen=True, slots=True)
class RuleSpec:
    """One alert and what proves it."""

    alert: str = field(metadata=key(doc="Name of the alert, in CamelCase.", nonempty=True, stand_in=""))
    failure: str = field(
        metadata=key(
            doc="What kind of trouble it proves.", choices=frozenset(FAILURE_FAMILY), noun="failure", stand_in=""
        )
    )
    engines: tuple[str, ...] = field(default=(), metadata=key(doc="Engines it is for; all when left out."))
    fingerprint: FingerprintSpec | None = field(default=None, metadata=key(doc="What the log must show."))
    progress: Literal["stalled", "serving", "saturated", "starting", "idle", "down"] | None = field(
        default=None, metadata=key(doc="What the signals must say of the server's work.")
    )
    when: str | None = field(
        default=None, metadata=key(doc="A PromQL condition over signals that must hold too.", nonempty=True)
    )
    for_seconds: Duration = field(default=Duration(0.0), metadata=key("for", "How long it must hold."))
    keep_firing_for: Duration = field(
        default=Duration(60.0), metadata=key(doc="How long the condition must be gone before it resolves.")
    )
    cooldown: Duration = field(
        default=Duration(0.0), metadata=key(doc="Least time between the end of one alert and the next.")
    )
    priority: int | None = field(
        default=None, metadata=key(doc="Which rule names a stall that several explain; derived when left out.")
    )
    inhibits: tuple[str, ...] = field(
        default=(), metadata=key(doc="Alerts or failures that are silent while this one fires.")
    )
    labels: Mapping[str, str] = field(
        default_factory=dict, metadata=key(doc="Labels of the alert; 'severity' is one of them.")
    )
    annotations: Mapping[str, str] = field(
        default_factory=dict, metadata=key(doc="summary, description, runbook_url ...; {{ templates }} work here.")
    )
    sources: tuple[str, ...] = field(default=(), metadata=key(doc="Where the facts are from (URLs)."))

    HINTS: ClassVar[Mapping[str, str]] = {
        **OTHER_TOOLS,
        "severity": "write labels: {severity: ...}",
        "stages": "put it inside 'fingerprint'",
        "within": "put it inside 'fingerprint'",
        "by": "put it inside 'fingerprint'",
        "absent": "put it inside 'fingerprint'",
        "engine": "write 'engines' with a list",
        "metric": "write 'when' with a condition over signals",
        "for_seconds": "write 'for'",
        "summary": "put it inside 'annotations'",
        "description": "put it inside 'annotations'",
        "runbook_url": "put it inside 'annotations'",
    }


@dataclass(frozen=True, slots=True)
class SeriesSpec:
    """One input series, as promtool writes it."""

    series: str = field(metadata=key(doc="Name and labels as the engine exports them.", nonempty=True))
    values: str = field(metadata=key(doc="promtool's notation: '0+5x10 _x3 7'.", nonempty=True))


@dataclass(frozen=True, slots=True)
class ExpectSpec:
    """An alert that must come."""

    alert: str | None = field(default=None, metadata=key(doc="Its name."))
    failure: str | None = field(
        default=None, metadata=key(doc="Its failure.", choices=frozenset(FAILURE_FAMILY), noun="failure")
    )
    state: Literal["pending", "firing", "resolved"] = field(
        default="firing", metadata=key(doc="The state that it must have reached.")
    )
    confidence: Literal["suspected", "probable", "confirmed"] | None = field(
        default=None, metadata=key(doc="How sure it must have become.")
    )
    severity: str | None = field(default=None, metadata=key(doc="Its severity."))
    within: Duration | None = field(default=None, metadata=key(doc="From onset (starts_at) to firing, at most."))
    labels: Mapping[str, str] = field(default_factory=dict, metadata=key(doc="Labels it must carry."))
    fields: Mapping[str, str] = field(default_factory=dict, metadata=key(doc="Fields its stages must have caught."))

    HINTS: ClassVar[Mapping[str, str]] = {"alertname": "write 'alert'", "exp_alerts": "write 'expect'"}

    def check(self) -> Iterator[tuple[str, str]]:
        if self.alert is None and self.failure is None:
            yield "", "name the alert: give 'alert' or 'failure'"


@dataclass(frozen=True, slots=True)
class TestSpec:
    """A log and metrics, and the alerts that must come of them."""

    __test__: ClassVar[bool] = False  # no test of ours, whatever its name

    name: str = field(metadata=key(doc="What the case shows.", nonempty=True))
    expect: tuple[ExpectSpec, ...] = field(metadata=key(doc="The alerts that must come; [] for none at all."))
    log: str | None = field(default=None, metadata=key(doc="Path of a log, or its text (several lines)."))
    metrics: str | Mapping[str, str] | tuple[SeriesSpec, ...] | None = field(
        default=None, metadata=key(doc="Path of an OpenMetrics file, or series in promtool's notation.")
    )
    interval: Duration = field(
        default=Duration(5.0), metadata=key(doc="Between two values of an inline series.", minimum=0.001)
    )
    start: str | None = field(
        default=None, metadata=key(doc="Time of the first value of inline series; default: the log's first stamp.")
    )
    engine: str = field(default="auto", metadata=key(doc="Engine id, or auto."))
    timezone: str = field(default="UTC", metadata=key(doc="Zone of stamps that have none."))
    until: str | None = field(default=None, metadata=key(doc="The log is known to be whole up to this time."))

    HINTS: ClassVar[Mapping[str, str]] = {
        "input_series": "write 'metrics' with series: values",
        "series": "write 'metrics'",
        "logs": "write 'log'",
        "exp_alerts": "write 'expect'",
        "expected": "write 'expect'",
    }

    def check(self) -> Iterator[tuple[str, str]]:
        if self.log is None and self.metrics is None:
            yield "", "has no input, give 'log', 'metrics' or both"


@dataclass(frozen=True, slots=True)
class RuleFile:
    """A file of rules and their tests."""

    rules: tuple[RuleSpec, ...] = field(default=(), metadata=key(doc="The rules."))
    tests: tuple[TestSpec, ...] = field(default=(), metadata=key(doc="What they must do; wedgewatch test runs it."))

    HINTS: ClassVar[Mapping[str, str]] = {
        "groups": "Prometheus's 'groups' have no meaning here, write 'rules' at the top",
        "alert": "put it into the list 'rules'",
    }
