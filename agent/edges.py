"""The looks at watched servers that run live: scrapers and canaries, each in a thread of its own.

A look that hangs delays nothing but the next look at the same server.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, tzinfo
from zoneinfo import ZoneInfo

from agent.config import Config
from agent.config.servers import CanaryConfig, MetricsSource, ServerConfig
from agent.metrics.canary import Canary
from agent.metrics.fetch import Endpoint, Tls
from agent.metrics.mapping import SignalMapper
from agent.metrics.scrape import Scraper
from agent.model import Sample
from agent.rules.model import Dialect
from integrations.http import Authorization, BasicAuth, TlsConfig

__all__ = ["CanaryEdge", "ScrapeEdge", "endpoint", "metrics_endpoint", "metrics_url", "zone"]

log = logging.getLogger("wedgewatch.metrics")

Put = Callable[[Sequence[Sample], str], None]
"""Hands samples, and the engine that the page was recognised as, to the core."""


def zone(name: str) -> tzinfo:
    """A time zone by name; the configuration has checked that it exists."""
    return UTC if name.upper() == "UTC" else ZoneInfo(name)


def metrics_url(url: str, engine: str, dialects: Mapping[str, Dialect]) -> str:
    """The page's address: ``http://host:8000`` alone gets the engine's usual path."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "http", url
    host, slash, path = rest.partition("/")
    if slash and path:
        return f"{scheme}://{rest}"
    usual = dialects[engine].metrics.path if engine in dialects else "/metrics"
    return f"{scheme}://{host}{usual}"


def endpoint(
    url: str,
    timeout: float,
    *,
    basic_auth: BasicAuth | None = None,
    authorization: Authorization | None = None,
    tls: TlsConfig | None = None,
    headers: Mapping[str, str] | None = None,
    proxy_url: str = "",
    max_bytes: int = 32 << 20,
) -> Endpoint:
    return Endpoint(
        url=url,
        timeout=timeout,
        max_bytes=max_bytes,
        tls=Tls(tls.ca_file, tls.cert_file, tls.key_file, tls.server_name, tls.insecure_skip_verify) if tls else Tls(),
        username=basic_auth.username if basic_auth else "",
        password=basic_auth.password if basic_auth else None,
        bearer=authorization.credentials if authorization else None,
        headers=dict(headers or {}),
        proxy_url=proxy_url,
    )


def metrics_endpoint(source: MetricsSource, engine: str, dialects: Mapping[str, Dialect], timeout: float) -> Endpoint:
    """How a server's metrics page is asked, with its credentials."""
    return endpoint(
        metrics_url(source.url, engine, dialects),
        timeout,
        basic_auth=source.basic_auth,
        authorization=source.authorization,
        tls=source.tls_config,
        headers=source.http_headers,
        proxy_url=source.proxy_url,
        max_bytes=source.max_bytes,
    )


class ScrapeEdge:
    """Looks at one metrics page at its interval, on a steady grid so that the looks of two servers do not bunch."""

    def __init__(
        self, config: Config, server: ServerConfig, source: MetricsSource, dialects: Mapping[str, Dialect], put: Put
    ) -> None:
        self.server = server.name
        self.interval = source.interval or config.global_.scrape_interval
        self._put = put
        engine = server.engine if server.engine in dialects else "auto"
        timeout = min(source.timeout or config.global_.scrape_timeout, self.interval)
        asked = metrics_endpoint(source, server.engine, dialects, timeout)
        self.url = asked.url
        self.scraper = Scraper(
            asked,
            SignalMapper(dialects, engine),
            server=server.name,
            format="trtllm_json" if source.format == "trtllm_json" else "prometheus",
        )
        self.scrapes = 0
        self.failures: Counter[str] = Counter()
        self.last_success: float | None = None
        self.last_beat: float | None = None

    def work(self, stop: threading.Event) -> None:
        """Scrape until told to stop."""
        due = time.monotonic()
        told = ""
        while not stop.is_set():
            samples = self.scraper.scrape(time.time())
            told = self._count(told)
            self._put(samples, self.scraper.mapper.engine)
            due = max(due + self.interval, time.monotonic() + 0.1 * self.interval)
            stop.wait(max(0.0, due - time.monotonic()))

    def _count(self, told: str) -> str:
        """Count the last look; a failure of another kind than ``told`` is said once. Returns what is wrong now."""
        last = self.scraper.last
        assert last is not None, "there was a look"
        self.scrapes += 1
        self.last_beat = time.time()
        if last.ok:
            self.last_success = last.timestamp
            if told:
                log.info("%s: %s can be read again", self.server, self.url)
            return ""
        self.failures[last.reason] += 1
        if last.reason != told:
            log.warning("%s: %s cannot be read (%s: %s)", self.server, self.url, last.reason, last.error)
        return last.reason


class CanaryEdge:
    """Asks the canary now and then, when nothing has completed lately."""

    def __init__(
        self, server: ServerConfig, source: CanaryConfig, last_completion: Callable[[str], float | None], put: Put
    ) -> None:
        self.server = server.name
        self._put = put
        self._last_completion = last_completion
        self.canary = Canary(
            endpoint(source.url, source.timeout, authorization=source.authorization, tls=source.tls_config),
            server=server.name,
            model=source.model,
            prompt=source.prompt,
            interval=source.interval,
            quiet=source.quiet,
        )
        self.last_beat: float | None = None
        self.last_error = ""

    def work(self, stop: threading.Event) -> None:
        """Ask until told to stop."""
        while not stop.is_set():
            now = time.time()
            self.last_beat = now
            if self.canary.due(now, self._last_completion(self.server)):
                sample = self.canary.ask(now)
                if sample is not None:
                    self.last_error = sample.error
                    self._put([sample], "")
            stop.wait(1.0)
