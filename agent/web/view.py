"""What the page, the API and the probes ask of the daemon, and the values it answers with.

:class:`View` is the only thing that this package knows of the rest: the daemon implements it over its live state, a
test over a few objects. Every value is frozen; every method may be called from any thread, at any moment, and must
answer at once from memory (a page must not wait for a disk that hangs).

In JSON a :data:`Time` is RFC 3339, a span is a number of seconds whose name ends in ``_s``, a number that is not
finite is ``null``. See :mod:`agent.web.jsonable`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal, Protocol

from agent.model import Alert, ProgressState

__all__ = [
    "PLOT_SIGNALS",
    "CanaryView",
    "Change",
    "ContextLine",
    "Delivery",
    "EvidenceFile",
    "Health",
    "Incident",
    "MuteView",
    "Observed",
    "ObservedAlert",
    "OnsetPoint",
    "OnsetView",
    "OutboxItem",
    "Replica",
    "RuleView",
    "SeriesView",
    "ServerView",
    "SourceView",
    "StageMatch",
    "ThreadView",
    "Time",
    "Transition",
    "View",
]

Time = Annotated[float, "time"]
"""Unix seconds; RFC 3339 in JSON."""

PLOT_SIGNALS: Final[Mapping[str, str]] = {
    "requests_waiting": "requests",
    "requests_running": "requests",
    "finished_per_minute": "requests/min",
    "generation_tokens_per_second": "tokens/s",
    "prompt_tokens_per_second": "tokens/s",
    "kv_cache_usage_ratio": "ratio",
}
"""The series that :meth:`View.series` serves, with their units. ``finished_per_minute`` and the token rates are
made by the daemon from counters (or taken as the engine prints them)."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One engine behind a server's front end; a server with a single engine has one, named ``""``."""

    engine_index: str
    state: ProgressState
    since: Time | None = None
    last_progress: Time | None = None
    values: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CanaryView:
    """The canary of a server: what it asked and what that cost, since the start."""

    requests: int = 0
    answered: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    last_error: str = ""


@dataclass(frozen=True, slots=True)
class ServerView:
    """A watched server now. ``why`` is one sentence that a tired reader understands ("214 requests wait, but nothing
    finishes"), without a span of time: the page counts that on from ``since``.

    ``values`` holds the newest signals by name and the series of :data:`PLOT_SIGNALS`; ``deadline_s`` is how long a
    silence must last here before it is called a stall, and ``deadline_source`` where that number comes from.
    ``pressure`` says how near the ceiling it works, ``pressure_chance`` how likely trouble is within half an hour at
    this load; ``advice`` is what to admit at most, in sentences.
    """

    name: str
    engine: str
    state: ProgressState
    since: Time | None = None
    why: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, float] = field(default_factory=dict)
    replicas: tuple[Replica, ...] = ()
    last_progress: Time | None = None
    last_line: Time | None = None
    last_scrape: Time | None = None
    scrape_error: str = ""
    started: Time | None = None
    deadline_s: float | None = None
    deadline_source: str = ""
    facts: Mapping[str, float] = field(default_factory=dict)
    canary: CanaryView | None = None
    pressure: str = ""
    pressure_chance: float | None = None
    advice: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SeriesView:
    """Points ``(time, value)`` of one signal, oldest first; a value of None is a gap."""

    server: str
    signal: str
    points: Sequence[tuple[float, float | None]]
    engine_index: str = ""
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Transition:
    """A change of an incident's state, confidence or name."""

    timestamp: Time
    state: str
    confidence: str
    failure: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Delivery:
    """What was sent to whom, when, and what came of it (``delivered``, ``pending``, ``dead``, ``suppressed``)."""

    timestamp: Time
    receiver: str
    integration: str
    action: str
    outcome: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class EvidenceFile:
    """One file of an incident's evidence folder. ``note`` says why it is missing or short."""

    name: str
    size: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class ContextLine:
    """A log line near the evidence; ``stage`` is set on the lines that filled one. ``timestamp``: where it is known."""

    timestamp: Time | None
    text: str
    file: str = ""
    line: int = 0
    severity: str = ""
    stage: str = ""


@dataclass(frozen=True, slots=True)
class Incident:
    """An alert with all that is known of it. ``id`` names it in addresses: letters, digits, ``-`` and ``_``."""

    id: str
    alert: Alert
    history: tuple[Transition, ...] = ()
    deliveries: tuple[Delivery, ...] = ()
    evidence: tuple[EvidenceFile, ...] = ()
    context: tuple[ContextLine, ...] = ()
    actions_taken: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StageMatch:
    """How often a stage was filled, and when last."""

    stage: str
    count: int = 0
    last: Time | None = None
    optional: bool = False


@dataclass(frozen=True, slots=True)
class RuleView:
    """A rule in force and when it last matched."""

    name: str
    failure: str
    family: str
    severity: str
    engines: tuple[str, ...] = ()
    stages: tuple[StageMatch, ...] = ()
    progress: str = ""
    when: str = ""
    for_s: float = 0.0
    summary: str = ""
    file: str = ""
    fired: int = 0
    last_match: Time | None = None
    last_fired: Time | None = None


@dataclass(frozen=True, slots=True)
class SourceView:
    """A source of log bytes. ``error`` is a sentence while it cannot be read."""

    server: str
    name: str
    kind: str = "file"
    files: int = 0
    lines: int = 0
    bytes: int = 0
    lag_bytes: int = 0
    last_line: Time | None = None
    rotations: int = 0
    bytes_lost: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class OutboxItem:
    """A notification that is not delivered: ``pending`` or ``dead``."""

    id: int
    fingerprint: str
    receiver: str
    integration: str
    action: str
    state: str
    created: Time
    attempts: int = 0
    next_attempt: Time | None = None
    last_error: str = ""


@dataclass(frozen=True, slots=True)
class OnsetPoint:
    """One onset: when, and the load (in the unit of its :class:`OnsetView`) at that moment."""

    timestamp: Time
    load: float
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """A restart, version or flag change of the watched server."""

    timestamp: Time
    what: str


@dataclass(frozen=True, slots=True)
class OnsetView:
    """Load at each onset against load in healthy time: checklist 2.

    ``healthy`` is a histogram ``(load from, load to, seconds)``; ``threshold`` the estimated onset load with its
    interval ``low``..``high``; ``bayes_factor`` > 1 speaks for load, < 1 for a change; ``verdict`` is the sentence.
    """

    server: str
    unit: str = "requests running"
    onsets: tuple[OnsetPoint, ...] = ()
    healthy: tuple[tuple[float, float, float], ...] = ()
    changes: tuple[Change, ...] = ()
    threshold: float | None = None
    low: float | None = None
    high: float | None = None
    safe_ceiling: float | None = None
    bayes_factor: float | None = None
    verdict: str = ""


@dataclass(frozen=True, slots=True)
class MuteView:
    """A silence of our own, with an end."""

    id: str
    matchers: tuple[str, ...]
    starts: Time
    ends: Time
    comment: str = ""


@dataclass(frozen=True, slots=True)
class ThreadView:
    """A thread of the daemon; ``last_beat`` is when it last did a round of its work."""

    name: str
    alive: bool
    last_beat: Time | None = None
    restarts: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Health:
    """The daemon's own health. ``problems`` are sentences that say what is wrong and what to do; empty: all is well.

    ``ready`` is true once configuration, state and sources are in hand: it never depends on a watched server.
    """

    version: str
    ready: bool
    started: Time
    problems: tuple[str, ...] = ()
    threads: tuple[ThreadView, ...] = ()
    observe: bool = False
    config_file: str = ""
    config_loaded: Time | None = None
    config_error: str = ""
    rss_bytes: int = 0
    cpu_seconds: float = 0.0
    state_bytes: int = 0
    lines_per_second: float = 0.0
    matcher: str = ""
    external_url: str = ""


@dataclass(frozen=True, slots=True)
class ObservedAlert:
    """An alert that fired, and the receivers that the routes lead it to."""

    alertname: str
    failure: str
    severity: str
    confidence: str
    server: str
    fired: Time
    ended: Time | None = None
    receivers: tuple[str, ...] = ()
    summary: str = ""


@dataclass(frozen=True, slots=True)
class Observed:
    """What would have paged while ``observe`` holds everything back (else: what did page), newest first."""

    observe: bool
    since: Time
    until: Time
    pages: int = 0
    warnings: int = 0
    by_failure: Mapping[str, int] = field(default_factory=dict)
    alerts: tuple[ObservedAlert, ...] = ()


class View(Protocol):
    """The daemon as the web room sees it."""

    def now(self) -> float: ...

    def servers(self) -> Sequence[ServerView]: ...

    def series(
        self, server: str, engine_index: str, signal: str, since: float, until: float, points: int
    ) -> Sequence[SeriesView]:
        """At most ``points`` points of each matching series; empty ``engine_index`` or ``signal``: all of them."""

    def alerts(self) -> Sequence[Alert]:
        """Alerts that are pending or firing."""

    def incidents(self, limit: int, server: str = "") -> Sequence[Incident]:
        """Alerts that fired, newest first, open ones included; without the heavy parts (context, evidence)."""

    def incident(self, incident_id: str) -> Incident | None: ...

    def incident_tar(self, incident_id: str) -> tuple[int, Iterator[bytes]] | None:
        """The evidence as one tar: its size and its blocks; None when there is none."""

    def rules(self) -> Sequence[RuleView]: ...

    def sources(self) -> Sequence[SourceView]: ...

    def outbox(self) -> Sequence[OutboxItem]: ...

    def onset(self, server: str) -> OnsetView | None: ...

    def self_health(self) -> Health: ...

    def observed(self) -> Observed | None:
        """The report of what would have paged; None when notifications are sent."""

    def evidence_pending(self, alert: Alert) -> bool:
        """True while the capture for this alert still runs (or waits to): a probe must not turn 503 before."""

    def mutes(self) -> Sequence[MuteView]: ...

    # What follows changes something; the web room calls it only for a caller who proved to hold the token.

    def mute(self, matchers: Sequence[str], seconds: float, comment: str) -> MuteView:
        """Raises ValueError with a sentence when a matcher cannot be read."""

    def unmute(self, mute_id: str) -> bool: ...

    def retry_outbox(self, item_id: int) -> bool: ...

    def reload(self) -> str:
        """Reads the configuration anew; returns "" or the sentence that says why the old one stays."""


LiveStatus = Literal["ok", "idle", "stalled", "held", "unknown"]
