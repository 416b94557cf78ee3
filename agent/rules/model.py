"""What a rule and a dialect are, as immutable values.

The YAML of both is described in docs/rules.md; this module is what the loader makes of it and what
``logs``, ``metrics`` and ``detect`` work with. Nothing here reads a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from agent.model import Position

__all__ = [
    "Build",
    "Condition",
    "Dialect",
    "Fact",
    "Fingerprint",
    "Lifecycle",
    "LineFormat",
    "Matcher",
    "MetricMap",
    "MetricSource",
    "Position",
    "Rule",
    "RuleSet",
    "Stage",
    "StatsField",
    "StatsLine",
    "ValueTest",
]


@dataclass(frozen=True, slots=True)
class Matcher:
    """One test of a record's text: a literal that it ``contains`` or a ``regex`` that is found in it.

    The text is the record's body; a pattern that is not found there is looked for in the whole unwrapped text
    (so users may paste a header). Named groups of a regex become fields. Case matters unless ``ignore_case``.
    """

    kind: Literal["contains", "regex"]
    pattern: str
    ignore_case: bool = False
    position: Position = field(default=Position(), compare=False)


@dataclass(frozen=True, slots=True)
class Condition:
    """Holds for a record when one of ``any`` (if given), every one of ``all`` and none of ``none`` is found in it,
    its severity lies in the range, and its attributes match.

    ``severity_min``/``severity_max`` are OpenTelemetry numbers, 0 = no bound. A record without a severity never
    passes a lower bound. ``attributes`` maps a name to the texts that are accepted.
    """

    any: tuple[Matcher, ...] = ()
    all: tuple[Matcher, ...] = ()
    none: tuple[Matcher, ...] = ()
    severity_min: int = 0
    severity_max: int = 0
    attributes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stage:
    """A step of a fingerprint. ``count`` records within ``count_within`` seconds fill it (1: the first does).

    ``terminal``: this line by itself says that no work follows (the loop's thread is gone), so no signal is
    needed to page, unless signals contradict it.
    """

    name: str
    condition: Condition
    optional: bool = False
    count: int = 1
    count_within: float = 0.0
    terminal: bool = False
    position: Position = field(default=Position(), compare=False)


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Ordered stages of one server (and of each value of ``by``) inside ``within`` seconds.

    A record of ``absent``, before the last stage inside the window or within ``absent_after`` seconds after it,
    rules the failure out.
    """

    stages: tuple[Stage, ...]
    within: float = 900.0
    by: tuple[str, ...] = ("server",)
    absent: tuple[Condition, ...] = ()
    absent_after: float = 0.0


@dataclass(frozen=True, slots=True)
class Rule:
    """An alert and what proves it; see docs/rules.md.

    ``progress`` names the progress state that must hold (``stalled``, ``serving``, ``saturated``, ``starting``,
    ``idle``, ``down``) or is empty: the lines alone decide. A rule without ``fingerprint`` is decided by
    ``progress`` and ``when`` alone. Among rules that explain one stall the one with the highest ``priority`` names
    it; the loader derives priority from how specific the rule is unless the file states one.
    """

    alert: str
    failure: str
    severity: str
    engines: tuple[str, ...] = ()
    fingerprint: Fingerprint | None = None
    progress: str = ""
    when: str = ""
    for_seconds: float = 0.0
    keep_firing_for: float = 60.0
    cooldown: float = 0.0
    priority: int = 0
    inhibits: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    position: Position = field(default=Position(), compare=False)


@dataclass(frozen=True, slots=True)
class LineFormat:
    """How one era of an engine writes a line.

    ``regex`` is matched at the start of the unwrapped line; named groups ``time``, ``severity``, ``message`` are
    special, all others become attributes. ``time`` is a strptime pattern or one of ``iso8601``, ``epoch``,
    ``epoch_ms``, ``uptime``; empty when the line has none. ``severity`` maps the text in the line to a severity
    name. With ``json`` the line is one JSON object and ``json`` maps our names to its keys.
    """

    name: str
    regex: str = ""
    time: str = ""
    severity: Mapping[str, str] = field(default_factory=dict)
    default_severity: str = ""
    json: Mapping[str, str] = field(default_factory=dict)
    position: Position = field(default=Position(), compare=False)


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """Lines that tell what phase the server is in.

    ``state``: ``starting``, ``loading`` (progress of a start), ``ready``, ``draining``, ``stopped``, ``sleeping``,
    ``awake``, ``aborted`` (one client gave up), ``begun`` (a request was taken up), ``progress`` (work was done),
    ``received`` (a request came in). A group ``task`` may name the request.
    """

    state: str
    condition: Condition


@dataclass(frozen=True, slots=True)
class Fact:
    """A number that the start block prints; ``signal`` names the signal it becomes, ``regex`` holds ``(?P<value>)``.

    Thousands separators are allowed; ``scale`` multiplies."""

    signal: str
    regex: str
    scale: float = 1.0
    position: Position = field(default=Position(), compare=False)


@dataclass(frozen=True, slots=True)
class Build:
    """A line that says which version or flags run: another text in ``(?P<value>)`` than at the start before it is a
    change. What ``ignore`` finds in it (a random seed, a port) is left out."""

    name: str
    regex: str
    ignore: str = ""
    position: Position = field(default=Position(), compare=False)


@dataclass(frozen=True, slots=True)
class ValueTest:
    """``signal op number``, for example ``scheduled_tokens <= 1``."""

    signal: str
    op: Literal["==", "!=", "<", "<=", ">", ">="]
    number: float


@dataclass(frozen=True, slots=True)
class StatsField:
    """Where a stats line holds a signal: ``regex`` with group ``value``; ``default`` when it is not in the line.

    Several matches in a line are added up when ``sum``."""

    signal: str
    regex: str
    scale: float = 1.0
    default: float | None = None
    sum: bool = False


@dataclass(frozen=True, slots=True)
class StatsLine:
    """A line by which the engine itself reports its queue and throughput.

    ``instance``: regex with a group ``engine_index`` that says which replica speaks (leading zeros are dropped).
    ``not_progress``: tests that all hold for a line which proves nothing (a health probe's one-token prefill).
    ``interval``: seconds between two of them while the engine works, 0 when it has no period.
    ``silent_when_idle``: the engine stops printing it when nothing moves (vLLM demotes it to DEBUG).
    """

    name: str
    condition: Condition
    fields: tuple[StatsField, ...]
    instance: str = ""
    not_progress: tuple[ValueTest, ...] = ()
    interval: float = 0.0
    silent_when_idle: bool = False


@dataclass(frozen=True, slots=True)
class MetricSource:
    """One way to read a signal off a page: the sum (or ``agg``) of ``metric`` over the series that match ``where``,
    times ``scale``, divided by ``per`` when given. ``where`` values: text, ``!text`` (not), ``a|b`` (one of).
    ``plus``: further metrics (``name`` or ``name{label=text}``) that are added, those of them that the page has."""

    metric: str
    where: Mapping[str, str] = field(default_factory=dict)
    scale: float = 1.0
    agg: Literal["sum", "max", "min", "avg"] = "sum"
    per: str = ""
    plus: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MetricMap:
    """Metric names -> signals. Each signal has sources in order of preference: the first that the page has is read.

    Names match with ``:`` and ``_`` taken as equal and with an optional ``ray_`` in front. ``instance_labels`` tell
    replicas behind one page apart. ``path``: the usual path of the page. ``builds``: metrics whose labels say which
    version or flags run, and the labels of each that do not.
    """

    path: str = "/metrics"
    instance_labels: tuple[str, ...] = ()
    signals: Mapping[str, tuple[MetricSource, ...]] = field(default_factory=dict)
    builds: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one engine speaks: its lines and its metrics."""

    engine: str
    title: str = ""
    detect_lines: tuple[Condition, ...] = ()
    detect_metrics: tuple[str, ...] = ()
    formats: tuple[LineFormat, ...] = ()
    untrusted: tuple[Condition, ...] = ()
    lifecycle: tuple[Lifecycle, ...] = ()
    facts: tuple[Fact, ...] = ()
    stats: tuple[StatsLine, ...] = ()
    metrics: MetricMap = field(default_factory=MetricMap)
    sources: tuple[str, ...] = ()
    builds: tuple[Build, ...] = ()
    position: Position = field(default=Position(), compare=False)


@dataclass(frozen=True, slots=True)
class RuleSet:
    """Everything that was loaded, checked as a whole. ``digest`` changes exactly when the meaning does."""

    rules: tuple[Rule, ...] = ()
    dialects: Mapping[str, Dialect] = field(default_factory=dict)
    digest: str = ""
