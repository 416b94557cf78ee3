"""What can be configured, as immutable values; the same classes give the reader, the JSON Schema and the printed form.

Names are Prometheus's and Alertmanager's wherever they have one. Durations are seconds. Where another room has limits
or options of its own (progress, web, receivers), the fields here have the same names.
"""

# ruff: noqa: RUF009  (the calls in defaults make dataclass fields, nothing is shared between instances)

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from agent.config.fields import DAY, HOUR, MINUTE, items, labels, matcher_faults, option, required, seconds
from agent.config.routing import (
    HeartbeatConfig,
    InhibitRule,
    Maintenance,
    NotificationsConfig,
    ReceiverConfig,
    Route,
    TimeInterval,
)
from agent.config.servers import ServerConfig
from agent.model import Duration, Secret
from integrations.http import HttpConfig

__all__ = [
    "ActionConfig",
    "Config",
    "EvidenceConfig",
    "GlobalConfig",
    "LogConfig",
    "StateConfig",
    "WebConfig",
    "WebTls",
]


@dataclass(frozen=True, kw_only=True)
class GlobalConfig:
    """Defaults for all servers and receivers."""

    scrape_interval: Duration = seconds(5, "Between two looks at a metrics page.", minimum=0.5, maximum=10 * MINUTE)
    scrape_timeout: Duration = seconds(3, "Total time of one look.", minimum=0.05)
    external_labels: Mapping[str, str] = labels("Labels that every alert carries (cluster, region ...).")
    external_url: str = option("Address under which people reach the page; links in messages begin with it.", "")
    timezone: str = option("Zone of log stamps that name none.", "UTC")
    http_config: HttpConfig | None = option("HTTP settings of all receivers that have none of their own.", None)

    HINTS: ClassVar[Mapping[str, str]] = {
        "evaluation_interval": "rules are evaluated at each event, there is no interval",
        "resolve_timeout": "a rule's 'keep_firing_for' says when it resolves",
    }

    def check(self) -> Iterator[tuple[str, str]]:
        if self.scrape_timeout > self.scrape_interval:
            yield "scrape_timeout", "is longer than scrape_interval, make it shorter"


@dataclass(frozen=True, kw_only=True)
class StateConfig:
    """Where offsets, open alerts and undelivered messages survive a restart."""

    path: str = option(
        "Folder; default: $STATE_DIRECTORY, else /var/lib/wedgewatch, else ~/.local/state/wedgewatch.", ""
    )
    retention: Duration = seconds(30 * DAY, "How long resolved alerts are kept.", minimum=HOUR)
    max_size_mib: int = option("Bound of the store.", 256, minimum=8)


@dataclass(frozen=True, kw_only=True)
class WebTls:
    """Certificate of our own page; the files are read again when they change."""

    cert_file: str = option("Certificate chain (PEM).", "", nonempty=True)
    key_file: str = option("Its key (PEM).", "", nonempty=True)
    client_ca_file: str = option("Only clients with a certificate of this CA get in.", "")

    def check(self) -> Iterator[tuple[str, str]]:
        if not (self.cert_file and self.key_file):
            yield "", "wants both 'cert_file' and 'key_file'"


@dataclass(frozen=True, kw_only=True)
class WebConfig:
    """The page, the API, the probes and our own metrics."""

    enabled: bool = option("Whether anything listens.", True)
    listen_address: str = option("host:port; loopback by default.", "127.0.0.1:9464")
    token: Secret | None = option("Needed for every change through the API, and for reading from other hosts.", None)
    tls: WebTls | None = option("Serve HTTPS.", None)
    hosts: tuple[str, ...] = items("Host names under which the page may be asked for, besides loopback's.")
    probe_confidences: tuple[Literal["probable", "confirmed"], ...] = option(
        "Which alerts turn a server's live probe to 503.", ("confirmed",)
    )
    max_connections: int = option("Connections at a time.", 64, minimum=4, maximum=4096)

    def check(self) -> Iterator[tuple[str, str]]:
        host, colon, port = self.listen_address.rpartition(":")
        if not colon or not port.isdigit() or int(port) > 65535:
            yield (
                "listen_address",
                f"'{self.listen_address[:60]}' is no address, write host:port, for example 127.0.0.1:9464",
            )
        elif ":" in host and not host.startswith("["):
            yield "listen_address", f"put an IPv6 address in brackets: [{host}]:{port}"


@dataclass(frozen=True, kw_only=True)
class LogConfig:
    """wedgewatch's own log, on standard error."""

    level: Literal["debug", "info", "warning", "error"] = option("From which level on.", "info")
    format: Literal["logfmt", "json"] = option("How a line looks.", "logfmt")


@dataclass(frozen=True, kw_only=True)
class EvidenceConfig:
    """What is captured once when an alert is confirmed, before anybody restarts the server."""

    enabled: bool = option("Whether anything is captured.", True)
    path: str = option("Folder; default: 'incidents' in the state folder.", "")
    log_window: Duration = seconds(300, "Log before and after the onset; 0: the end of the log.", minimum=0)
    timeout: Duration = seconds(20, "Total time of one capture.", minimum=1)
    max_incident_mib: int = option("Bound of one incident.", 32, minimum=1)
    max_total_mib: int = option("Bound of all; the oldest go first.", 512, minimum=1)
    max_age: Duration = seconds(30 * DAY, "Older ones are removed.", minimum=HOUR)
    stacks: bool = option("Python stacks by py-spy, when it is installed and permitted.", True)
    gpu: bool = option("GPU state by nvidia-smi, when it is there.", True)


@dataclass(frozen=True, kw_only=True)
class ActionConfig:
    """Something that is done when an alert fires, after evidence was captured; a trial until ``dry_run`` is false."""

    name: str = required("Its name in the record.", nonempty=True)
    command: tuple[str, ...] = items("Program and arguments; no shell. The alert is JSON on its standard input.")
    url: Secret | None = option("Or an address that gets the alert as JSON by POST.", None)
    matchers: tuple[str, ...] = items("Which alerts; default: critical ones.")
    confidence: Literal["probable", "confirmed"] = option("From which confidence on.", "confirmed")
    dry_run: bool = option("Say what would be done, and do nothing.", True)
    timeout: Duration = seconds(60, "Total time.", minimum=1)
    cooldown: Duration = seconds(30 * MINUTE, "Least time between two runs for one server.", minimum=0)

    def check(self) -> Iterator[tuple[str, str]]:
        yield from matcher_faults("matchers", self.matchers)
        if bool(self.command) == (self.url is not None):
            yield "", "give either 'command' or 'url'"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything."""

    global_: GlobalConfig = field(
        default_factory=GlobalConfig, metadata={"name": "global", "doc": "Defaults for all servers and receivers."}
    )
    state: StateConfig = field(default_factory=StateConfig, metadata={"doc": "What survives a restart."})
    web: WebConfig = field(default_factory=WebConfig, metadata={"doc": "Page, API, probes, our own metrics."})
    log: LogConfig = field(default_factory=LogConfig, metadata={"doc": "wedgewatch's own log."})
    rule_files: tuple[str, ...] = items("Rule and dialect files, folders or globs; relative to this file.")
    bundled_rules: bool = option("Whether the bundled packs are used too.", True)
    disabled_rules: tuple[str, ...] = items("Names of alerts to leave out.")
    servers: tuple[ServerConfig, ...] = items("The watched servers.")
    route: Route | None = option("Which alerts go where.", None)
    receivers: tuple[ReceiverConfig, ...] = items("The destinations.")
    inhibit_rules: tuple[InhibitRule, ...] = items("Which alerts silence which.")
    time_intervals: tuple[TimeInterval, ...] = items("Named times for routes.")
    maintenance: tuple[Maintenance, ...] = items("Planned work: recorded, not sent.")
    notifications: NotificationsConfig = field(
        default_factory=NotificationsConfig, metadata={"doc": "Limits on what is sent."}
    )
    heartbeat: HeartbeatConfig | None = option("A ping that stops when we do.", None)
    evidence: EvidenceConfig = field(default_factory=EvidenceConfig, metadata={"doc": "Captured before a restart."})
    actions: tuple[ActionConfig, ...] = items("Done when an alert fires.")

    HINTS: ClassVar[Mapping[str, str]] = {
        "scrape_configs": "write 'servers', which ties a server's logs to its metrics",
        "alerting": "write 'receivers' with alertmanager_configs",
        "mute_time_intervals": "write 'time_intervals'",
        "templates": "texts are given with each receiver ('title', 'text')",
        "rules": "rules stand in files of their own, named in 'rule_files'",
    }
