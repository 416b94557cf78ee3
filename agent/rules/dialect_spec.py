"""The shape of dialect files, as the schema reads it; :mod:`agent.rules.compile_dialect` makes the model of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from agent.model import SIGNALS, Duration
from agent.rules.conditions import SEVERITIES, ItemSpec, key

__all__ = [
    "ENGINES",
    "BuildSpec",
    "DetectSpec",
    "DialectFile",
    "FactSpec",
    "FormatSpec",
    "LifecycleSpec",
    "MetricSpec",
    "MetricsSpec",
    "StatsFieldSpec",
    "StatsSpec",
]

ENGINES: Final[tuple[str, ...]] = (
    "tensorrt_llm",
    "triton",
    "vllm",
    "sglang",
    "tgi",
    "lmdeploy",
    "llama_cpp",
    "ray_serve",
    "dynamo",
    "nim",
    "lightning",
    "hf_trainer",
    "deepspeed",
    "megatron",
)
"""Engine ids that the bundled dialects have. A user's dialect file may add others."""


@dataclass(frozen=True, slots=True)
class DetectSpec:
    """What tells that this engine speaks."""

    lines: tuple[ItemSpec, ...] = field(default=(), metadata=key(doc="Each one alone recognises the engine."))
    metrics: tuple[str, ...] = field(default=(), metadata=key(doc="Prefixes of metric names."))


@dataclass(frozen=True, slots=True)
class FormatSpec:
    """How one era of the engine writes a line."""

    name: str = field(metadata=key(doc="A name for people.", nonempty=True))
    regex: str = field(default="", metadata=key(doc="Matched at the line's start; groups time, severity, message."))
    time: str = field(default="", metadata=key(doc="strptime pattern, or iso8601, epoch, epoch_ms, uptime."))
    severity: Mapping[str, str] = field(
        default_factory=dict, metadata=key(doc="Text in the line -> severity.", choices=SEVERITIES, noun="severity")
    )
    default_severity: str = field(
        default="", metadata=key(doc="When the line has none.", choices=SEVERITIES | {""}, noun="severity")
    )
    json: Mapping[str, str] = field(
        default_factory=dict, metadata=key(doc="The line is a JSON object: our names -> its keys.")
    )

    def check(self) -> Iterator[tuple[str, str]]:
        if bool(self.regex) == bool(self.json):
            yield "", "give either 'regex' or 'json'"


@dataclass(frozen=True, slots=True)
class LifecycleSpec(ItemSpec):
    """Lines that tell what phase the server is in."""

    state: Literal[
        "starting",
        "loading",
        "ready",
        "draining",
        "stopped",
        "sleeping",
        "awake",
        "aborted",
        "begun",
        "progress",
        "received",
    ] = field(default="progress", metadata=key(doc="What the line says.", required=True))


_SIGNALS: Final = frozenset(SIGNALS)


@dataclass(frozen=True, slots=True)
class FactSpec:
    """A number of the start block that becomes a signal."""

    signal: str = field(metadata=key(choices=_SIGNALS, noun="signal"))
    regex: str = field(metadata=key(doc="With a group 'value'.", nonempty=True))
    scale: float = field(default=1.0, metadata=key(doc="Multiplies the number."))


@dataclass(frozen=True, slots=True)
class BuildSpec:
    """A line that says which version or flags run."""

    name: str = field(metadata=key(doc="What it tells: version, flags.", nonempty=True))
    regex: str = field(metadata=key(doc="With a group 'value'.", nonempty=True))
    ignore: str = field(default="", metadata=key(doc="Regex of what differs at each start and says nothing."))


@dataclass(frozen=True, slots=True)
class StatsFieldSpec:
    """Where a stats line holds a signal."""

    regex: str = field(metadata=key(doc="With a group 'value'.", nonempty=True))
    scale: float = field(default=1.0, metadata=key(doc="Multiplies the number."))
    default: float | None = field(default=None, metadata=key(doc="When the line does not hold it."))
    sum: bool = field(default=False, metadata=key(doc="Several matches in a line are added up."))


@dataclass(frozen=True, slots=True)
class StatsSpec(ItemSpec):
    """A line by which the engine itself reports queue and throughput."""

    name: str = field(default="", metadata=key(doc="A name for people.", required=True))
    fields: Mapping[str, str | StatsFieldSpec] = field(
        default_factory=dict, metadata=key(doc="Signal -> regex with a group 'value'.")
    )
    instance: str = field(default="", metadata=key(doc="Regex with a group 'engine_index'."))
    not_progress: tuple[str, ...] = field(
        default=(), metadata=key(doc="Tests ('scheduled_tokens <= 1') that all hold for a line that proves nothing.")
    )
    interval: Duration = field(default=Duration(0.0), metadata=key(doc="Between two such lines while it works."))
    silent_when_idle: bool = field(default=False, metadata=key(doc="Not printed while nothing moves."))


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One way to read a signal off a page."""

    metric: str = field(metadata=key(nonempty=True, doc="Name of the metric."))
    where: Mapping[str, str] = field(
        default_factory=dict, metadata=key(doc="Label -> text, '!text' for not, 'a|b' for one of.")
    )
    scale: float = field(default=1.0, metadata=key(doc="Multiplies the number."))
    agg: Literal["sum", "max", "min", "avg"] = field(default="sum", metadata=key(doc="How series are put together."))
    per: str = field(default="", metadata=key(doc="Metric that it is divided by."))
    plus: tuple[str, ...] = field(default=(), metadata=key(doc="Metrics added to it, where the page has them."))


@dataclass(frozen=True, slots=True)
class MetricsSpec:
    """Metric names -> signals."""

    path: str = field(default="/metrics", metadata=key(doc="Usual path of the page."))
    instance_labels: tuple[str, ...] = field(default=(), metadata=key(doc="Labels that tell replicas apart."))
    signals: Mapping[str, str | MetricSpec | tuple[str | MetricSpec, ...]] = field(
        default_factory=dict, metadata=key(doc="Signal -> metric, or several in order of preference.")
    )
    builds: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict,
        metadata=key(doc="Metric whose labels say which version or flags run -> labels of it that do not."),
    )


@dataclass(frozen=True, slots=True)
class DialectFile:
    """How one engine speaks."""

    dialect: str = field(metadata=key(doc="The engine's id.", nonempty=True))
    title: str = field(default="", metadata=key(doc="The engine's name for people."))
    sources: tuple[str, ...] = field(default=(), metadata=key(doc="Where the facts are from (URLs)."))
    detect: DetectSpec = field(default_factory=DetectSpec, metadata=key(doc="What recognises the engine."))
    formats: tuple[FormatSpec, ...] = field(default=(), metadata=key(doc="Tried in order, the first match wins."))
    untrusted: tuple[ItemSpec, ...] = field(default=(), metadata=key(doc="Lines that quote users' text."))
    lifecycle: tuple[LifecycleSpec, ...] = field(default=(), metadata=key(doc="Lines that tell the phase."))
    facts: tuple[FactSpec, ...] = field(default=(), metadata=key(doc="Numbers of the start block."))
    builds: tuple[BuildSpec, ...] = field(default=(), metadata=key(doc="Lines that tell version and flags."))
    stats: tuple[StatsSpec, ...] = field(default=(), metadata=key(doc="The engine's own periodic reports."))
    metrics: MetricsSpec = field(default_factory=MetricsSpec, metadata=key(doc="Metric names -> signals."))
