"""The logs of watched servers, live: all sources of a configuration, kept over a reload where nothing changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from agent.config import Config
from agent.config.servers import LogSource
from agent.log_sources import LogBytes, Post, ReadToEnd, Source, make_source
from agent.telemetry import Telemetry
from agent.web.view import SourceView

__all__ = ["LogBytes", "LogEdge", "ReadToEnd", "Source"]


class LogEdge:
    """Makes the sources; whoever owns it runs each :meth:`Source.work` in a thread."""

    def __init__(self, post: Post, telemetry: Telemetry) -> None:
        self.sources: list[Source] = []
        self._post = post
        self._telemetry = telemetry

    def apply(self, config: Config, positions: Mapping[str, Any]) -> tuple[list[Source], list[Source]]:
        """Take a configuration: gives the sources to start and those to stop. ``positions`` are the committed ones.

        The ones to stop are retired at once: from now on whatever they still hand over is not looked at.
        """
        wanted = [
            (server.name, name, source)
            for server in config.servers
            for name, source in _named(server.name, server.logs)
        ]
        kept = [source for source in self.sources if (source.server, source.name, source.config) in wanted]
        ended = [source for source in self.sources if source not in kept]
        for source in ended:
            source.retire()
        have = [(source.server, source.name, source.config) for source in kept]
        begun = []
        for server, name, settings in wanted:
            if (server, name, settings) not in have:
                begun.append(make_source(server, name, settings, positions, self._post, self._telemetry))
                self._telemetry.register_source(name)
        self.sources = [*kept, *begun]
        return begun, ended

    def files(self, server: str) -> list[str]:
        """Files that are followed for a server now."""
        return [name for source in self.sources if source.server == server for name in source.files()]

    def views(self) -> list[SourceView]:
        """Each source for the page."""
        return [source.view() for source in self.sources]


def _named(server: str, sources: tuple[LogSource, ...]) -> list[tuple[str, LogSource]]:
    """A name for each source: the server's when it has one, else with what tells it apart."""
    if len(sources) == 1:
        return [(server, sources[0])]
    words = [source.path or source.journald or (source.stdin and "stdin") or "pods" for source in sources]
    twice = Counter(words)
    return [
        (f"{server}/{word}" if twice[word] == 1 else f"{server}/{word}/{number}", source)
        for number, (word, source) in enumerate(zip(words, sources, strict=True))
    ]
