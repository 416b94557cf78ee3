"""What follows an alert that fires: evidence first, then actions if configured. One thread, one at a time."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from agent.actions import ActionRunner
from agent.config import Config
from agent.config.servers import ServerConfig
from agent.evidence import EvidenceStore, Limits, Target, eligible
from agent.metrics.fetch import Endpoint, FetchError, fetch
from agent.model import Alert
from agent.processes import local_port
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
        *,
        observe: bool = False,
        context: Mapping[str, Any] | None = None,
    ) -> None:
        settings = config.evidence
        self.evidence = EvidenceStore(
            Path(settings.path).expanduser() if settings.path else state / "incidents",
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
        self.actions = ActionRunner(config.actions, state / "actions.jsonl", observe=observe)
        self._servers = {server.name: server for server in config.servers}
        self._telemetry = telemetry
        self._files = files
        self._context = dict(context or {})
        self._queue: queue.Queue[Alert] = queue.Queue(_WAITING)

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
            try:
                alert = self._queue.get(timeout=1.0)
            except queue.Empty:
                continue
            captured = self.evidence.capture(alert, self._target(alert), alert.context.get("series"))
            if captured is not None:
                self._telemetry.inc("evidence_captures_total", 1.0, result=captured.result)
            for taken in self.actions.consider(alert):
                self._telemetry.inc("actions_total", 1.0, action=taken.action, result=taken.result)

    def _target(self, alert: Alert) -> Target:
        server = self._servers.get(alert.server)
        url = server.metrics.url if server is not None and server.metrics is not None else ""
        return Target(
            server=alert.server,
            logs={name: Target.tail_of(name) for name in self._files(alert.server)},
            page=_page(server) if server is not None and url else None,
            process=server.process if server is not None else "",
            port=local_port(url),
            context=self._context,
        )


def _page(server: ServerConfig) -> Callable[[float], bytes]:
    assert server.metrics is not None, "asked only for servers with metrics"
    url = server.metrics.url

    def read(seconds: float) -> bytes:
        try:
            return fetch(Endpoint(url=url, timeout=seconds)).body
        except FetchError as error:
            raise OSError(f"{error.reason}: {error.text}") from error

    return read
