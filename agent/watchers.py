"""The threads at the edges: one for each log source, each metrics page, each canary.

Another configuration stops what it no longer asks for and starts what is new; what did not change goes on untouched.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agent.config import Config
from agent.config.servers import CanaryConfig, MetricsSource, ServerConfig
from agent.edges import CanaryEdge, Put, ScrapeEdge
from agent.log_edge import LogEdge, Source
from agent.log_sources import Post
from agent.rules.model import Dialect
from agent.telemetry import Telemetry
from agent.threads import Supervised

__all__ = ["Watchers"]

log = logging.getLogger("wedgewatch")


class Watchers:
    """``post`` takes bytes of logs, ``put`` takes samples; ``last_completion`` is for canaries."""

    def __init__(
        self, post: Post, put: Put, last_completion: Callable[[str], float | None], telemetry: Telemetry
    ) -> None:
        self.logs = LogEdge(post, telemetry)
        self.scrapes: dict[str, ScrapeEdge] = {}
        self.canaries: dict[str, CanaryEdge] = {}
        self._put = put
        self._last_completion = last_completion
        self._known: dict[str, Any] = {}
        self._source_threads: dict[Source, Supervised] = {}
        self._threads: dict[str, Supervised] = {}
        self._ended: list[Supervised] = []

    def apply(self, config: Config, positions: Mapping[str, Any], dialects: Mapping[str, Dialect]) -> list[Source]:
        """Make what a configuration asks for; gives the log sources that are new. :meth:`start` runs them."""
        begun, ended = self.logs.apply(config, positions)
        for source in ended:
            self._end(self._source_threads.pop(source, None))
            source.wake()
        wanted: dict[str, tuple[ServerConfig, MetricsSource | CanaryConfig, object]] = {}
        for server in config.servers:
            if server.metrics is not None:
                timing = (config.global_.scrape_interval, config.global_.scrape_timeout)
                wanted[f"scrape {server.name}"] = (server, server.metrics, (server.engine, timing, dialects))
            if server.canary is not None:
                wanted[f"canary {server.name}"] = (server, server.canary, None)
        settings = {name: (about, more) for name, (_, about, more) in wanted.items()}
        for name in [name for name in self._known if settings.get(name) != self._known[name]]:
            del self._known[name]
            self._end(self._threads.pop(name, None))
            self.scrapes.pop(name.removeprefix("scrape "), None)
            self.canaries.pop(name.removeprefix("canary "), None)
        for name, (server, about, _) in wanted.items():
            if name not in self._known:
                self._known[name] = settings[name]
                if isinstance(about, MetricsSource):
                    self.scrapes[server.name] = ScrapeEdge(config, server, about, dialects, self._put)
                else:
                    self.canaries[server.name] = CanaryEdge(server, about, self._last_completion, self._put)
        return begun

    def start(self) -> None:
        """Run what does not run yet."""
        for source in self.logs.sources:
            if source not in self._source_threads:
                self._source_threads[source] = Supervised(f"log {source.name}", source.work)
                self._source_threads[source].start()
        edges: list[ScrapeEdge | CanaryEdge] = [*self.scrapes.values(), *self.canaries.values()]
        for edge in edges:
            name = f"{'scrape' if isinstance(edge, ScrapeEdge) else 'canary'} {edge.server}"
            if name not in self._threads:
                self._threads[name] = Supervised(name, edge.work)
                self._threads[name].start()

    def tell_ends(self, turn: int) -> dict[str, list[str]]:
        """Ask every log source that can to say when it was read to its end; their names by server."""
        asked: dict[str, list[str]] = {}
        for source in self.logs.sources:
            if source.tells_its_end:
                source.tell_end(turn)
                asked.setdefault(source.server, []).append(source.name)
        return asked

    def threads(self) -> Sequence[Supervised]:
        """Those that should run."""
        return [*self._source_threads.values(), *self._threads.values()]

    def stop(self) -> None:
        """Ask all to end; :meth:`join` waits."""
        for source, thread in self._source_threads.items():
            self._end(thread)
            source.wake()
        for thread in self._threads.values():
            self._end(thread)
        self._source_threads.clear()
        self._threads.clear()

    def join(self, seconds: float) -> None:
        """Wait for those that were asked to end; one that hangs is left behind."""
        for thread in self._ended:
            thread.join(seconds / max(1, len(self._ended)))

    def _end(self, thread: Supervised | None) -> None:
        if thread is not None:
            thread.stop()
            self._ended = [old for old in self._ended if old.alive]
            self._ended.append(thread)
