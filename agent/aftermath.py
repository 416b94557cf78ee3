"""What follows an alert that fires: evidence first, then actions if configured. One thread, one at a time."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

from agent.actions import ActionRunner
from agent.config import Config
from agent.config.servers import MetricsSource, ServerConfig
from agent.edges import metrics_endpoint, zone
from agent.evidence import EvidenceStore, Limits, Target, eligible
from agent.log_window import around, stamp_clock
from agent.metrics.fetch import FetchError, fetch
from agent.model import Alert
from agent.processes import local_port
from agent.rules.model import Dialect
from agent.telemetry import Telemetry

__all__ = ["Aftermath"]

_WAITING: Final = 64
"""Incidents that may wait for their turn; a storm takes evidence of the first ones."""


class Aftermath:
    """Takes evidence of incidents and runs actions. ``files`` gives the files that a server's sources follow now."""

    def __init__(
        self,
        config: Config,
        state: Path,
        telemetry: Telemetry,
        files: Callable[[str], Sequence[str]],
        dialects: Mapping[str, Dialect],
        *,
        observe: bool = False,
        context: Mapping[str, Any] | None = None,
    ) -> None:
        self._state = state
        self._observe = observe
        self._telemetry = telemetry
        self._files = files
        self._context = dict(context or {})
        self._queue: queue.Queue[Alert | None] = queue.Queue(_WAITING)
        self.apply(config, dialects)

    def apply(self, config: Config, dialects: Mapping[str, Dialect]) -> None:
        """Another configuration, from the next incident on."""
        settings = config.evidence
        self.evidence = EvidenceStore(
            Path(settings.path).expanduser() if settings.path else self._state / "incidents",
            Limits(
                timeout=settings.timeout,
                incident_bytes=settings.max_incident_mib << 20,
                total_bytes=settings.max_total_mib << 20,
                max_age=settings.max_age,
                stacks=settings.stacks,
                gpu=settings.gpu,
            ),
            enabled=settings.enabled,
        )
        self.actions = ActionRunner(config.actions, self._state / "actions.jsonl", observe=self._observe)
        self._log_window = settings.log_window
        self._timezone = config.global_.timezone
        self._servers = {server.name: server for server in config.servers}
        self._dialects = dialects

    def take(self, alert: Alert) -> None:
        """This alert changed; never blocks."""
        if eligible(alert):
            try:
                self._queue.put_nowait(alert)
            except queue.Full:
                self._telemetry.inc("evidence_captures_total", 1.0, result="skipped")

    def work(self, stop: threading.Event) -> None:
        """Work until told to stop."""
        while not stop.is_set():
            alert = self._queue.get()
            if alert is None:
                continue
            captured = self.evidence.capture(alert, self._target(alert), alert.context.get("series"))
            if captured is not None:
                self._telemetry.inc("evidence_captures_total", 1.0, result=captured.result)
            for taken in self.actions.consider(alert):
                self._telemetry.inc("actions_total", 1.0, action=taken.action, result=taken.result)

    def wake(self) -> None:
        """End a wait in :meth:`work`; one that has something to do needs no waking."""
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(None)

    def _target(self, alert: Alert) -> Target:
        server = self._servers.get(alert.server)
        page = server.metrics if server is not None else None
        return Target(
            server=alert.server,
            logs=self._logs(alert, server),
            page=self._page(page, server.engine) if server is not None and page is not None else None,
            process=server.process if server is not None else "",
            port=local_port(page.url) if page is not None else None,
            context=self._context,
        )

    def _logs(self, alert: Alert, server: ServerConfig | None) -> dict[str, Callable[[int], bytes]]:
        found: dict[str, Callable[[int], bytes]] = {}
        for name in self._files(alert.server):
            sources = server.logs if server is not None else ()
            source = next((s for s in sources if s.path and fnmatch(name, s.path)), sources[0] if sources else None)
            clock = stamp_clock(
                self._dialects,
                engine=server.engine if server is not None else "auto",
                envelope=source.format if source is not None else "auto",
                timezone=zone((source.timezone if source is not None else None) or self._timezone),
            )
            found[name] = around(name, alert.starts_at, self._log_window, clock)
        return found

    def _page(self, source: MetricsSource, engine: str) -> Callable[[float], bytes]:
        def read(seconds: float) -> bytes:
            try:
                return fetch(metrics_endpoint(source, engine, self._dialects, seconds)).body
            except FetchError as error:
                raise OSError(f"{error.reason}: {error.text}") from error

        return read
