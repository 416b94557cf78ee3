"""What is watched: servers with their logs and metrics."""

# ruff: noqa: RUF009  (the calls in defaults make dataclass fields, nothing is shared between instances)

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from agent.config.fields import MINUTE, items, labels, option, required, seconds, url_faults
from agent.model import Duration
from integrations.http import Authorization, BasicAuth, TlsConfig

__all__ = [
    "CanaryConfig",
    "KubernetesSource",
    "LogSource",
    "LokiSource",
    "MetricsSource",
    "ProgressConfig",
    "ServerConfig",
]


@dataclass(frozen=True, kw_only=True)
class KubernetesSource:
    """Logs of a pod through the Kubernetes API; token, CA and address default to those mounted in a pod."""

    pod: str = option("Name of the pod; default: our own ($POD_NAME).", "")
    namespace: str = option("Default: our own.", "")
    selector: str = option("Label selector instead of a name.", "")
    container: str = option("Container, where the pod has several.", "")
    api_server: str = option("Default: https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT.", "")
    token_file: str = option("Default: the service account's.", "")
    ca_file: str = option("Default: the service account's.", "")

    def check(self) -> Iterator[tuple[str, str]]:
        if self.pod and self.selector:
            yield "selector", "give either 'pod' or 'selector', not both"


@dataclass(frozen=True, kw_only=True)
class LokiSource:
    """A stream selector that is tailed in Loki."""

    url: str = option("Address of Loki.", "", nonempty=True)
    query: str = option('Stream selector, for example {app="vllm"}.', "", nonempty=True)
    tenant: str = option("X-Scope-OrgID.", "")
    basic_auth: BasicAuth | None = None
    authorization: Authorization | None = None
    tls_config: TlsConfig | None = None

    def check(self) -> Iterator[tuple[str, str]]:
        if not self.url or not self.query:
            yield "", "wants 'url' and 'query'"


@dataclass(frozen=True, kw_only=True)
class LogSource:
    """Where log bytes come from: exactly one of ``path``, ``stdin``, ``journald``, ``kubernetes``, ``loki``."""

    path: str | None = option("File or glob; new files that match later are found.", None)
    stdin: bool = option("Read standard input.", False)
    journald: str | None = option("A systemd unit.", None)
    kubernetes: KubernetesSource | None = option("A pod's log through the API.", None)
    loki: LokiSource | None = option("A stream in Loki.", None)
    format: Literal["auto", "raw", "cri", "docker_json", "json", "journald"] = option(
        "What wraps each line; 'auto' sees it by itself.", "auto"
    )
    timezone: str | None = option("Zone of stamps that name none; default: the global one.", None)
    start_at: Literal["end", "beginning"] = option("Where a file is begun that was never seen before.", "end")
    exclude: tuple[str, ...] = items("Globs of files to leave out.")
    rotate_wait: Duration = seconds(5, "How long a renamed file must be quiet before it is let go.", minimum=0)
    poll_interval: Duration = seconds(1, "Longest time between two looks at a file.", minimum=0.01, maximum=MINUTE)

    HINTS: ClassVar[Mapping[str, str]] = {
        "file": "write 'path'",
        "paths": "write one list item for each path",
        "multiline": "tracebacks are joined by themselves",
        "type": "write 'format' for what wraps a line; the engine is the server's 'engine'",
    }

    def check(self) -> Iterator[tuple[str, str]]:
        given = [
            name
            for name, value in (
                ("path", self.path is not None),
                ("stdin", self.stdin),
                ("journald", self.journald is not None),
                ("kubernetes", self.kubernetes is not None),
                ("loki", self.loki is not None),
            )
            if value
        ]
        if not given:
            yield "", "names no source, give 'path', 'stdin', 'journald', 'kubernetes' or 'loki'"
        elif len(given) > 1:
            yield given[1], f"a source is one thing, this gives {' and '.join(given)}; make two list items of it"
        if self.path is not None and not self.path.strip():
            yield "path", "must not be empty"


@dataclass(frozen=True, kw_only=True)
class MetricsSource:
    """The engine's metrics page."""

    url: str = required("Address of the page.", nonempty=True)
    interval: Duration | None = option("Default: global.scrape_interval.", None, minimum=0.5, maximum=10 * MINUTE)
    timeout: Duration | None = option("Default: global.scrape_timeout.", None, minimum=0.05)
    format: Literal["auto", "prometheus", "trtllm_json"] = option(
        "trtllm_json drains TensorRT-LLM's iteration statistics for everyone else who reads them.", "auto"
    )
    basic_auth: BasicAuth | None = None
    authorization: Authorization | None = None
    tls_config: TlsConfig | None = None
    http_headers: Mapping[str, str] = labels("Extra request headers.")
    proxy_url: str = option("An http proxy; never used for loopback.", "")
    max_bytes: int = option("A larger page is refused.", 32 * 1024 * 1024, minimum=1024)

    HINTS: ClassVar[Mapping[str, str]] = {
        "scrape_interval": "write 'interval'",
        "scrape_timeout": "write 'timeout'",
        "bearer_token": "write authorization: {credentials: ...}",
        "bearer_token_file": "write authorization: {credentials_file: ...}",
        "metrics_path": "write the whole address in 'url'",
        "targets": "write 'url', and one server for each target",
        "static_configs": "write 'url', and one server for each target",
    }

    def check(self) -> Iterator[tuple[str, str]]:
        yield from url_faults("url", self.url)
        if self.basic_auth is not None and self.authorization is not None:
            yield "authorization", "give either basic_auth or authorization, not both"
        if self.authorization is not None and self.authorization.type.lower() != "bearer":
            yield "authorization.type", "only Bearer is known for metrics pages; for a user name write basic_auth"


@dataclass(frozen=True, kw_only=True)
class CanaryConfig:
    """A tiny request of our own, asked only when nothing else completed lately; off unless configured."""

    url: str = required("The server's base address.", nonempty=True)
    model: str = option("Model to ask for; default: the first that the server lists.", "")
    prompt: str = option("What is asked; one token is generated.", "ping")
    interval: Duration = seconds(60, "Least time between two requests.", minimum=5)
    quiet: Duration = seconds(30, "Asked only when nothing completed for so long.", minimum=0)
    timeout: Duration = seconds(20, "Without an answer by then it counts as failed.", minimum=1)
    authorization: Authorization | None = None
    tls_config: TlsConfig | None = None

    def check(self) -> Iterator[tuple[str, str]]:
        yield from url_faults("url", self.url)


@dataclass(frozen=True, kw_only=True)
class ProgressConfig:
    """Bounds on how long work may stand still; between them the server's own history decides."""

    floor: Duration = seconds(25, "No stall sooner without a line that proves one.", minimum=1)
    cold: Duration = seconds(120, "Deadline before there is history.", minimum=1)
    ceiling: Duration = seconds(300, "Never longer than this.", minimum=1)
    with_evidence: Duration = seconds(10, "Deadline after a line that names the stall.", minimum=0)
    silence: Duration = seconds(300, "Without metrics: a log that ends in '0 tokens/s, work waiting'.", minimum=1)
    trickle: Duration = seconds(90, "So long tokens drip and nothing completes while requests queue.", minimum=1)
    livelock: Duration = seconds(120, "Window of preemption without delivery.", minimum=1)
    saturated_after: Duration = seconds(60, "A queue that is never empty for so long is called saturated.", minimum=1)

    def check(self) -> Iterator[tuple[str, str]]:
        if self.floor > self.ceiling:
            yield "floor", "is longer than 'ceiling'"
        if self.cold > self.ceiling:
            yield "cold", "is longer than 'ceiling'"


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """One watched server: its logs together with its metrics."""

    name: str = required("Its name in alerts.", nonempty=True)
    engine: str = option("Engine id; 'auto' recognises it.", "auto")
    logs: tuple[LogSource, ...] = items("Its log sources.")
    metrics: MetricsSource | None = option("Its metrics page.", None)
    canary: CanaryConfig | None = option("A tiny request of our own; off unless given.", None)
    progress: ProgressConfig = field(default_factory=ProgressConfig, metadata={"doc": "How long work may stand still."})
    labels: Mapping[str, str] = labels("Labels of its alerts (model, team ...).")
    process: str = option("PID file or command line to look at when evidence is gathered.", "")

    HINTS: ClassVar[Mapping[str, str]] = {
        "log": "write 'logs' with a list",
        "url": "write metrics: {url: ...}",
        "type": "write 'engine'",
        "dialect": "write 'engine'",
    }

    def check(self) -> Iterator[tuple[str, str]]:
        if not self.logs and self.metrics is None:
            yield "", "watches nothing, give 'logs', 'metrics' or both"
        if sum(source.stdin for source in self.logs) > 1:
            yield "logs", "standard input can be read only once"
