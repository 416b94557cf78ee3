"""What wedgewatch says about itself, in Prometheus's format.

One registry of our own (never the library's global one), one table of metrics, three verbs: :meth:`Telemetry.inc`,
:meth:`Telemetry.set`, :meth:`Telemetry.observe`. Naming follows https://prometheus.io/docs/practices/naming/.

Limits by construction: a metric takes at most :data:`MAX_CHILDREN` label sets, all further ones are added up under
the label value ``other``; labels named ``reason``, ``result`` and the like take only the values of the table. So no
log text, no file inode and no stranger's request can grow the page. Label sets that are known in advance are made
at start (``register_*``), so that a counter's first increment is seen as one
(https://prometheus.io/docs/practices/instrumentation/#avoid-missing-metrics).
"""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

__all__ = ["MAX_CHILDREN", "METRICS", "MetricRow", "Telemetry"]

MAX_CHILDREN: Final = 200
"""Label sets of one metric; what comes later is counted under ``other``."""

PREFIX: Final = "wedgewatch_"

_FAST: Final = (0.00001, 0.00005, 0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0)
_NETWORK: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_DETECTION: Final = (1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One metric: its name without prefix, labels in order, and the values that an enumerated label may take.

    ``mirror`` marks a counter that is copied from the watched server (it may fall when that server restarts).
    """

    kind: Literal["counter", "gauge", "histogram"]
    name: str
    help: str
    labels: tuple[str, ...] = ()
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    buckets: tuple[float, ...] = ()
    mirror: bool = False


_SCRAPE_REASONS: Final = ("timeout", "http", "parse", "refused", "tls", "other")
_SEND_REASONS: Final = ("timeout", "network", "tls", "rate_limited", "client", "server", "auth", "config", "other")

METRICS: Final[tuple[MetricRow, ...]] = (
    # the process and its configuration
    MetricRow("gauge", "build_info", "Version of this process; always 1.", ("version", "python_version")),
    MetricRow("gauge", "config_hash", "Number that changes with the configuration and rules in force."),
    MetricRow("gauge", "config_last_reload_successful", "1 when the last reload was taken, 0 when it was refused."),
    MetricRow("gauge", "config_last_reload_success_timestamp_seconds", "When the configuration in force was read."),
    MetricRow("gauge", "state_db_size_bytes", "Size of the state database on disk."),
    MetricRow("counter", "state_errors_total", "Errors of the state database.", ("op",)),
    MetricRow("gauge", "thread_up", "1 while the thread runs.", ("thread",)),
    MetricRow("counter", "thread_restarts_total", "Times a thread died and was started anew.", ("thread",)),
    MetricRow("gauge", "observe_only", "1 while --observe holds every notification back."),
    # reading logs
    MetricRow("counter", "source_lines_read_total", "Log lines read.", ("source",)),
    MetricRow("counter", "source_bytes_read_total", "Log bytes read.", ("source",)),
    MetricRow("gauge", "source_lag_bytes", "Bytes written to the source and not read yet.", ("source",)),
    MetricRow("gauge", "source_last_line_timestamp_seconds", "When the last line was read.", ("source",)),
    MetricRow("gauge", "source_files", "Files open for the source.", ("source",)),
    MetricRow("gauge", "source_up", "1 while the source can be read.", ("source",)),
    MetricRow("counter", "source_rotations_total", "Rotations followed.", ("source",)),
    MetricRow("counter", "source_truncations_total", "Truncations followed.", ("source",)),
    MetricRow("counter", "source_decode_errors_total", "Records with bytes that are no UTF-8.", ("source",)),
    MetricRow("counter", "source_bytes_lost_total", "Bytes known to be lost before they were read.", ("source",)),
    MetricRow(
        "counter",
        "source_lines_dropped_total",
        "Lines cut or dropped.",
        ("source", "reason"),
        {"reason": ("too_long", "backpressure", "late")},
    ),
    MetricRow(
        "counter",
        "source_timestamps_adjusted_total",
        "Live lines whose own stamp was too far off and was taken as now.",
        ("source",),
    ),
    # rules
    MetricRow("histogram", "line_match_duration_seconds", "Time to match one block of lines.", buckets=_FAST),
    MetricRow("counter", "rule_matches_total", "Records that filled a stage of a rule.", ("rule", "stage")),
    MetricRow("counter", "rule_regex_timeouts_total", "Regular expressions given up for time.", ("rule",)),
    # metrics of the watched servers
    MetricRow("counter", "scrapes_total", "Looks at a server's metrics page.", ("server",)),
    MetricRow(
        "counter",
        "scrape_failures_total",
        "Looks that failed.",
        ("server", "reason"),
        {"reason": _SCRAPE_REASONS},
    ),
    MetricRow("gauge", "scrape_duration_seconds", "How long the last look took.", ("server",)),
    MetricRow("gauge", "scrape_last_success_timestamp_seconds", "When a look last succeeded.", ("server",)),
    MetricRow("gauge", "scrape_samples", "Series used of the last page.", ("server",)),
    MetricRow("gauge", "server_requests_waiting", "Requests waiting, as the server reports.", ("server",)),
    MetricRow("gauge", "server_requests_running", "Requests running, as the server reports.", ("server",)),
    MetricRow("gauge", "server_kv_cache_usage_ratio", "Share of the KV cache in use.", ("server",)),
    MetricRow(
        "counter",
        "server_requests_finished_total",
        "Requests finished, as the server reports; falls when it restarts.",
        ("server",),
        mirror=True,
    ),
    MetricRow(
        "counter",
        "server_generation_tokens_total",
        "Tokens generated, as the server reports; falls when it restarts.",
        ("server",),
        mirror=True,
    ),
    MetricRow("gauge", "server_stalled", "1 while progress says that the server issues no work.", ("server",)),
    MetricRow(
        "gauge",
        "server_progress",
        "1 for the progress state that holds, 0 for the others.",
        ("server", "state"),
        {"state": ("starting", "idle", "serving", "saturated", "stalled", "down", "unknown")},
    ),
    MetricRow("gauge", "server_last_progress_timestamp_seconds", "When work was last seen to advance.", ("server",)),
    # alerts
    MetricRow(
        "counter",
        "incidents_total",
        "Alerts that fired, by the confidence they fired with.",
        ("rule", "confidence"),
        {"confidence": ("suspected", "probable", "confirmed")},
    ),
    MetricRow(
        "gauge",
        "incidents_open",
        "Alerts that are firing.",
        ("rule", "severity"),
        {"severity": ("critical", "error", "warning", "info")},
    ),
    MetricRow("gauge", "incident_stages_filled", "Stages filled of a fingerprint in hand.", ("rule", "server")),
    MetricRow(
        "histogram",
        "incident_detection_delay_seconds",
        "From the onset (last progress or first symptom) to the alert.",
        buckets=_DETECTION,
    ),
    # delivery
    MetricRow("counter", "notifications_total", "Notifications attempted.", ("receiver", "integration")),
    MetricRow(
        "counter",
        "notifications_failed_total",
        "Notifications given up or put off after an error.",
        ("receiver", "integration", "reason"),
        {"reason": _SEND_REASONS},
    ),
    MetricRow("counter", "notification_requests_total", "Requests to receivers.", ("receiver", "integration")),
    MetricRow("counter", "notification_requests_failed_total", "Requests that failed.", ("receiver", "integration")),
    MetricRow("histogram", "notification_latency_seconds", "Time of one request.", ("integration",), buckets=_NETWORK),
    MetricRow(
        "counter",
        "notifications_suppressed_total",
        "Notifications held back.",
        ("reason",),
        {"reason": ("repeat", "silence", "inhibited", "storm", "stale", "observe", "maintenance")},
    ),
    MetricRow(
        "counter",
        "notifications_dead_total",
        "Notifications that will not be tried again.",
        ("receiver", "reason"),
        {"reason": ("too_old", "permanent", "other")},
    ),
    MetricRow("gauge", "outbox_pending", "Notifications not delivered yet.", ("receiver",)),
    MetricRow("gauge", "outbox_oldest_pending_timestamp_seconds", "When the oldest of them was made.", ("receiver",)),
    MetricRow("gauge", "receiver_clock_skew_seconds", "Receiver's clock less ours.", ("receiver",)),
    MetricRow("gauge", "receiver_up", "1 when the last request to the receiver succeeded.", ("receiver",)),
    MetricRow("gauge", "heartbeat_last_success_timestamp_seconds", "When the heartbeat was last accepted."),
    # the operator's side
    MetricRow(
        "counter",
        "probe_requests_total",
        "Answers of the progress endpoint that orchestrators ask.",
        ("server", "result"),
        {"result": ("ok", "idle", "stalled", "held", "unknown")},
    ),
    MetricRow(
        "counter",
        "web_requests_total",
        "HTTP requests answered.",
        ("handler", "code"),
        {
            "handler": ("page", "api", "events", "live", "metrics", "health", "other"),
            "code": ("2xx", "3xx", "4xx", "5xx"),
        },
    ),
    MetricRow("gauge", "web_connections", "Open HTTP connections."),
    MetricRow(
        "counter",
        "evidence_captures_total",
        "Evidence folders written.",
        ("result",),
        {"result": ("complete", "partial", "skipped", "failed")},
    ),
    MetricRow(
        "counter",
        "actions_total",
        "Actions after a capture.",
        ("action", "result"),
        {"result": ("ok", "failed", "dry_run", "rate_limited", "repeated")},
    ),
)


class Telemetry:
    """The registry, made with every metric of :data:`METRICS`. Thread-safe; never call it from a signal handler.

    The library is imported here and not at module level: commands that only read a file need not pay for it.
    """

    def __init__(self, *, version: str, process: bool = True) -> None:
        import prometheus_client as prom

        # The _created series double the page and nothing of ours reads them. (The library does not annotate this call.)
        prom.disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry: CollectorRegistry = prom.CollectorRegistry()
        self._rows = {row.name: row for row in METRICS}
        self._lock = threading.Lock()
        self._children: dict[tuple[str, tuple[str, ...]], Any] = {}
        self._counts: dict[str, int] = dict.fromkeys(self._rows, 0)
        self._before_render: list[Callable[[], None]] = []
        self._mirrors = _Mirrors([row for row in METRICS if row.mirror])
        kinds: dict[str, Any] = {"counter": prom.Counter, "gauge": prom.Gauge, "histogram": prom.Histogram}
        self._families: dict[str, Any] = {}
        for row in METRICS:
            if row.mirror:
                continue
            extra = {"buckets": row.buckets} if row.buckets else {}
            self._families[row.name] = kinds[row.kind](
                PREFIX + row.name, row.help, row.labels, registry=self.registry, **extra
            )
        self.registry.register(self._mirrors)
        if process:
            prom.ProcessCollector(registry=self.registry)
        self.set("build_info", 1, version=version, python_version=platform.python_version())
        for row in METRICS:
            self._precreate(row, {})

    def inc(self, name: str, amount: float = 1.0, **labels: str) -> None:
        """Adds to a counter. Raises KeyError for a metric or label that is not in the table."""
        self._child(name, labels).inc(amount)

    def set(self, name: str, value: float, **labels: str) -> None:
        """Sets a gauge, or a mirrored counter."""
        row = self._rows[name]
        if row.mirror:
            self._mirrors.set(name, self._label_values(row, labels), value)
        else:
            self._child(name, labels).set(value)

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Adds an observation to a histogram."""
        self._child(name, labels).observe(value)

    def register_server(self, server: str) -> None:
        """Makes the label sets of a watched server, so that its series exist at 0."""
        self._register({"server": server}, skip=("incident_stages_filled",))

    def register_source(self, source: str) -> None:
        """Makes the label sets of a log source."""
        self._register({"source": source})

    def register_receiver(self, receiver: str, integration: str) -> None:
        """Makes the label sets of a receiver (and of its kind, the ``integration``)."""
        self._register({"receiver": receiver, "integration": integration})

    def register_rule(self, rule: str, stages: Iterable[str] = ()) -> None:
        """Makes the label sets of a rule and its stages."""
        self._register({"rule": rule}, skip=("incident_stages_filled",))
        for stage in stages:
            self._child("rule_matches_total", {"rule": rule, "stage": stage})

    def before_render(self, update: Callable[[], None]) -> None:
        """``update`` is called before each page, to set the gauges that cost something to know."""
        self._before_render.append(update)

    def render(self, accept: str = "") -> tuple[str, bytes]:
        """The page as ``(content type, body)``: Prometheus's text, or OpenMetrics when ``accept`` asks for it."""
        from prometheus_client.exposition import choose_encoder

        for update in self._before_render:
            update()
        encoder, content_type = choose_encoder(accept)
        return content_type, encoder(self.registry)

    def _register(self, known: Mapping[str, str], skip: Sequence[str] = ()) -> None:
        for row in METRICS:
            if row.name not in skip and any(label in known for label in row.labels):
                self._precreate(row, known)

    def _precreate(self, row: MetricRow, known: Mapping[str, str]) -> None:
        if row.mirror or not all(label in known or label in row.values for label in row.labels):
            return
        sets: list[dict[str, str]] = [{}]
        for label in row.labels:
            values = (known[label],) if label in known else row.values[label]
            sets = [{**labels, label: value} for labels in sets for value in values]
        for labels in sets:
            self._child(row.name, labels)

    def _child(self, name: str, labels: Mapping[str, str]) -> Any:
        row = self._rows[name]
        if not row.labels:
            return self._families[name]
        values = self._label_values(row, labels)
        child = self._children.get((name, values))
        if child is None:
            with self._lock:
                if (name, values) not in self._children:
                    if self._counts[name] >= MAX_CHILDREN:
                        values = tuple(
                            value if label in row.values else "other"
                            for label, value in zip(row.labels, values, strict=True)
                        )
                    else:
                        self._counts[name] += 1
                child = self._children.setdefault((name, values), self._families[name].labels(*values))
        return child

    @staticmethod
    def _label_values(row: MetricRow, labels: Mapping[str, str]) -> tuple[str, ...]:
        if set(labels) != set(row.labels):
            raise KeyError(f"{row.name} has the labels {row.labels}, got {tuple(sorted(labels))}")
        return tuple(
            labels[label] if labels[label] in row.values.get(label, (labels[label],)) else row.values[label][-1]
            for label in row.labels
        )


class _Mirrors:
    """Counters that belong to someone else: they are set, and a restart over there makes them fall."""

    def __init__(self, rows: Sequence[MetricRow]) -> None:
        self._rows = {row.name: row for row in rows}
        self._values: dict[str, dict[tuple[str, ...], float]] = {row.name: {} for row in rows}
        self._lock = threading.Lock()

    def set(self, name: str, labels: tuple[str, ...], value: float) -> None:
        with self._lock:
            values = self._values[name]
            if labels in values or len(values) < MAX_CHILDREN:
                values[labels] = value

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily

        with self._lock:
            copies = {name: dict(values) for name, values in self._values.items()}
        for name, values in copies.items():
            row = self._rows[name]
            family = CounterMetricFamily(PREFIX + name, row.help, labels=row.labels)
            for labels, value in sorted(values.items()):
                family.add_metric(labels, value)
            yield family

    def describe(self) -> Iterator[Metric]:
        return self.collect()
