"""The ground floor: the values that flow through wedgewatch.

Everything here is an immutable value without behaviour that needs a clock, a file or a socket.
Times are Unix seconds (UTC) as floats; durations are seconds. Names follow OpenTelemetry's log data
model (https://opentelemetry.io/docs/specs/otel/logs/data-model/) for records and
Prometheus/Alertmanager for alerts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal, NewType

__all__ = [
    "CONFIDENCES",
    "CRITICAL_FAMILIES",
    "FAILURE_FAMILY",
    "SEVERITY_NUMBER",
    "SIGNALS",
    "Alert",
    "AlertState",
    "Checklist",
    "Confidence",
    "Duration",
    "LogRecord",
    "Position",
    "ProgressState",
    "ProgressSummary",
    "Sample",
    "Secret",
    "StageEvidence",
    "Tick",
    "alert_fingerprint",
    "parse_rfc3339",
    "rfc3339",
    "severity_number",
]

Duration = NewType("Duration", float)
"""A span of time in seconds, written in configuration the way Prometheus writes it (``1h30m``)."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where something stands in a YAML file; line and column count from 1."""

    file: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


# OpenTelemetry severity numbers: the first of each range.
SEVERITY_NUMBER: Final[Mapping[str, int]] = {
    "UNSPECIFIED": 0,
    "TRACE": 1,
    "DEBUG": 5,
    "INFO": 9,
    "WARN": 13,
    "ERROR": 17,
    "FATAL": 21,
}
_SEVERITY_ALIASES: Final[Mapping[str, str]] = {
    "WARNING": "WARN",
    "CRITICAL": "FATAL",
    "ERR": "ERROR",
    "NOTICE": "INFO",
    "VERBOSE": "DEBUG",
    "PANIC": "FATAL",
}


def severity_number(text: str) -> int:
    """OpenTelemetry number of a severity name, any case (``warning`` -> 13); 0 when the name is unknown."""
    name = text.strip().upper()
    return SEVERITY_NUMBER.get(_SEVERITY_ALIASES.get(name, name), 0)


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One log record; a multi-line traceback is one record.

    ``timestamp`` is event time, resolved to UTC. ``time_source`` says where it came from: the ``line``
    itself, ``envelope`` (CRI, docker, journald), ``inherited`` from the line before, or ``observed`` (the
    moment of reading, when nothing better is known). ``severity_number`` 0 means that the line carries none.
    ``body`` is the message without the logger's header; ``text`` the whole unwrapped text with header.
    ``attributes`` holds what the header says (``rank``, ``pid``, ``process``, ``logger``, ``stream``,
    ``engine_index``, ``format``, ...), values as text. ``line`` counts from 1 in ``file``.
    """

    timestamp: float
    body: str
    server: str = "server"
    file: str = ""
    line: int = 0
    severity_text: str = ""
    severity_number: int = 0
    attributes: Mapping[str, str] = field(default_factory=dict)
    observed_timestamp: float | None = None
    time_source: Literal["line", "envelope", "inherited", "observed"] = "line"
    text: str = ""


SIGNALS: Final[Mapping[str, str]] = {
    # gauges
    "requests_running": "gauge: requests admitted and not finished",
    "requests_waiting": "gauge: requests queued for capacity (deferred ones included where the engine adds them)",
    "requests_deferred": "gauge: requests held back for another reason than capacity (transfers, grammar)",
    "kv_cache_usage_ratio": "gauge: share of the KV pool in use, 0..1",
    "prompt_tokens_pending": "gauge: prompt tokens not yet computed",
    "max_batched_tokens": "gauge: token budget of one step",
    "max_running_requests": "gauge: ceiling on running requests",
    "max_model_len_tokens": "gauge: longest legal request",
    "kv_cache_capacity_tokens": "gauge: size of the KV pool in tokens",
    "http_requests_active": "gauge: HTTP requests accepted and not answered",
    "sleeping": "gauge: 1 while the engine sleeps or is paused on purpose",
    "up": "gauge: 1 when the page was read",
    "process_start_time_seconds": "gauge: start of the server process, Unix seconds",
    "canary_success": "gauge: 1 when our own request was answered, 0 when it timed out",
    # counters
    "requests_finished_total": "counter: requests completed, aborts not counted",
    "requests_aborted_total": "counter: requests given up by their clients",
    "request_errors_total": "counter: requests that failed",
    "requests_received_total": "counter: requests accepted",
    "generation_tokens_total": "counter: tokens generated",
    "prompt_tokens_total": "counter: prompt tokens computed",
    "iterations_total": "counter: scheduler steps that did work",
    "preemptions_total": "counter: requests preempted or retracted",
    "transfer_failures_total": "counter: KV transfers that failed",
    # rates and amounts printed by an engine's own stats lines
    "generation_tokens_per_second": "gauge: as the engine prints it",
    "prompt_tokens_per_second": "gauge: as the engine prints it",
    "scheduled_tokens": "gauge: tokens (or sequences) that the step just printed had scheduled",
    "scheduled_requests": "gauge: requests in the step just printed",
    "cached_tokens": "gauge: prompt tokens of that step served from the prefix cache",
    "progress_mark": "gauge: a number that only changes when work is done (n_tokens, step, percent)",
    "training_step": "counter: optimizer steps of a training run",
}
"""Every signal by name, with its kind and unit. A dialect maps an engine's own names to these."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What one look at a server's signals gave, at one instant.

    ``instance`` tells data-parallel replicas behind one page apart (``""``: the whole server, or the only
    engine). ``values`` maps names of :data:`SIGNALS` to numbers; a signal that is absent was not seen.
    A failed look has ``ok`` false, no values and a reason in ``error``; it is evidence of blindness, not of health.
    ``probe``: what this line tells proves no work (a health probe's batch). ``origin`` names the stats line it came
    from. ``repeats`` counts how many looks before this one brought the very same page, byte for byte. ``clocked``: the
    page also counts the CPU time of its process, or bears stamps, and so moves on with every read; then a row of
    repeats means a frozen exporter or a cache in between, and is no evidence of a stall. ``builds``: what the page says
    of version and flags, by the name of the metric.
    """

    timestamp: float
    server: str
    source: Literal["metrics", "log", "canary"]
    values: Mapping[str, float]
    instance: str = ""
    ok: bool = True
    error: str = ""
    probe: bool = False
    origin: str = ""
    repeats: int = 0
    clocked: bool = False
    builds: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tick:
    """Event time has reached ``timestamp`` and nothing else happened."""

    timestamp: float


ProgressState = Literal["starting", "idle", "serving", "saturated", "stalled", "down", "unknown"]
Confidence = Literal["suspected", "probable", "confirmed"]
AlertState = Literal["pending", "firing", "resolved"]
CONFIDENCES: Final[tuple[Confidence, ...]] = ("suspected", "probable", "confirmed")

FAILURE_FAMILY: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            "token_budget_deadlock",
            "kv_cache_deadlock",
            "request_never_fits",
            "preemption_livelock",
            "transfer_stall",
            "collective_hang",
            "device_hang",
            "lost_replies",
            "silent_stall",
        ),
        "stalled",
    ),
    **dict.fromkeys(("engine_dead", "out_of_memory", "crash", "startup_failure"), "dead"),
    **dict.fromkeys(
        ("overload", "assertion_recovered", "slow_start", "config_risk", "early_warning", "training_fault"),
        "degraded",
    ),
}
"""Failure -> family (``stalled``, ``dead``, ``degraded``)."""
CRITICAL_FAMILIES: Final = frozenset({"stalled", "dead"})


@dataclass(frozen=True, slots=True)
class StageEvidence:
    """A line that filled a stage of a fingerprint. ``count`` is how often the same line came."""

    stage: str
    timestamp: float
    body: str
    file: str = ""
    line: int = 0
    severity: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    count: int = 1

    def to_json(self) -> dict[str, Any]:
        return {
            "stage": self.stage,
            "timestamp": rfc3339(self.timestamp),
            "file": self.file,
            "line": self.line,
            "body": self.body,
            "fields": dict(self.fields),
            "severity": self.severity,
            "count": self.count,
        }


@dataclass(frozen=True, slots=True)
class ProgressSummary:
    """What the signals said of the server (or replica) when the alert changed."""

    state: ProgressState = "unknown"
    since: float | None = None
    requests_waiting: float | None = None
    requests_running: float | None = None
    finished_in_window: float | None = None
    tokens_in_window: float | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "since": rfc3339(self.since),
            "requests_waiting": _number(self.requests_waiting),
            "requests_running": _number(self.requests_running),
            "finished_in_window": _number(self.finished_in_window),
            "tokens_in_window": _number(self.tokens_in_window),
        }


@dataclass(frozen=True, slots=True)
class Checklist:
    """The three checks that tell this failure from its siblings; see docs/concepts.md."""

    stopped_with_queue: Literal["yes", "no", "unknown"] = "unknown"
    follows_load: str = "unknown"
    smaller_budget_survives: str = "not run"

    def to_json(self) -> dict[str, str]:
        return {
            "stopped_with_queue": self.stopped_with_queue,
            "follows_load": self.follows_load,
            "smaller_budget_survives": self.smaller_budget_survives,
        }


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert as it stands after a change of state, confidence or name.

    The same ``fingerprint`` names the same alert for its whole life (Alertmanager's sense of the word).
    ``labels`` identify, ``annotations`` explain. ``context`` is what messages and the page need beyond the
    contract (numbers before and now, series for sparklines, config numbers, sibling exclusions); it is not
    printed by ``--json``.
    """

    alertname: str
    failure: str
    state: AlertState
    confidence: Confidence
    severity: str
    server: str
    engine: str
    fingerprint: str
    starts_at: float
    fired_at: float | None = None
    ends_at: float | None = None
    detected_at: float | None = None
    stages: tuple[StageEvidence, ...] = ()
    progress: ProgressSummary = field(default_factory=ProgressSummary)
    checklist: Checklist = field(default_factory=Checklist)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    context: Mapping[str, Any] = field(default_factory=dict)

    @property
    def family(self) -> str:
        return FAILURE_FAMILY.get(self.failure, "degraded")

    def to_json(self, *, context: bool = False) -> dict[str, Any]:
        """The object of the command-line contract, keys in its order; ``context`` adds that key at the end."""
        out: dict[str, Any] = {
            "kind": "alert",
            "alertname": self.alertname,
            "failure": self.failure,
            "state": self.state,
            "confidence": self.confidence,
            "severity": self.severity,
            "server": self.server,
            "engine": self.engine,
            "fingerprint": self.fingerprint,
            "starts_at": rfc3339(self.starts_at),
            "fired_at": rfc3339(self.fired_at),
            "ends_at": rfc3339(self.ends_at),
            "detected_at": rfc3339(self.detected_at),
            "stages": [stage.to_json() for stage in self.stages],
            "progress": self.progress.to_json(),
            "checklist": self.checklist.to_json(),
            "labels": dict(self.labels),
            "annotations": dict(self.annotations),
        }
        if context:
            out["context"] = dict(self.context)
        return out

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Alert:
        """Inverse of :meth:`to_json`. Raises KeyError or ValueError when the object is not an alert."""
        progress = data["progress"]
        return cls(
            alertname=data["alertname"],
            failure=data["failure"],
            state=data["state"],
            confidence=data["confidence"],
            severity=data["severity"],
            server=data["server"],
            engine=data["engine"],
            fingerprint=data["fingerprint"],
            starts_at=parse_rfc3339(data["starts_at"]),
            fired_at=_optional_time(data["fired_at"]),
            ends_at=_optional_time(data["ends_at"]),
            detected_at=_optional_time(data["detected_at"]),
            stages=tuple(
                StageEvidence(
                    stage=item["stage"],
                    timestamp=parse_rfc3339(item["timestamp"]),
                    body=item["body"],
                    file=item["file"],
                    line=item["line"],
                    severity=item.get("severity", ""),
                    fields=item["fields"],
                    count=item.get("count", 1),
                )
                for item in data["stages"]
            ),
            progress=ProgressSummary(**{**progress, "since": _optional_time(progress["since"])}),
            checklist=Checklist(**data["checklist"]),
            labels=data["labels"],
            annotations=data["annotations"],
            context=data.get("context", {}),
        )

    def with_(self, **changes: Any) -> Alert:
        """A copy with some fields changed."""
        return replace(self, **changes)


def alert_fingerprint(**identity: str) -> str:
    """16 hex digits that name an alert by what identifies it; stable over restarts, reloads and releases."""
    text = "\x00".join(f"{key}={identity[key]}" for key in sorted(identity))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def rfc3339(timestamp: float | None) -> str | None:
    """``1795165265.5`` -> ``2026-11-20T09:01:05.500Z``; whole seconds without a fraction; None stays None."""
    if timestamp is None:
        return None
    millis = round(timestamp * 1000)
    moment = datetime.fromtimestamp(millis // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{moment}.{millis % 1000:03d}Z" if millis % 1000 else f"{moment}Z"


def parse_rfc3339(text: str) -> float:
    """Unix seconds of an RFC 3339 time; a time without zone is UTC. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.timestamp()


def _optional_time(text: str | None) -> float | None:
    return None if text is None else parse_rfc3339(text)


def _number(value: float | None) -> float | int | None:
    if value is None:
        return None
    return int(value) if float(value).is_integer() else round(value, 3)


class Secret:
    """A credential: prints as ``<secret>`` everywhere; :meth:`reveal` is the only way to its text.

    Holds the text itself or the path of a file that is read anew at each use, so a rotated secret needs no
    restart; one trailing newline is not part of it.
    """

    __slots__ = ("_path", "_text")

    def __init__(self, text: str | None = None, *, path: str | None = None) -> None:
        if (text is None) == (path is None):
            raise ValueError("a secret is either a text or a file")
        self._text, self._path = text, path

    def reveal(self) -> str:
        """The credential. Raises OSError when its file cannot be read, UnicodeDecodeError when it is no text."""
        if self._path is None:
            return self._text or ""
        with open(self._path, encoding="utf-8") as handle:
            return handle.read().rstrip("\r\n")

    def __repr__(self) -> str:
        return "<secret>"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and (self._text, self._path) == (other._text, other._path)

    def __hash__(self) -> int:
        return hash((self._text, self._path))

    def __reduce__(self) -> Any:
        raise TypeError("a secret is never pickled or copied out of the process")
