"""Servers whose logs are still being caught up with: what happened to them waits, and is then told in order.

After a start there may be minutes of log that nobody has read yet, in several files, while looks at the metrics are of
now. Judged as they come, an old ERROR would look late and the unread log would look like silence::

    log a      ....A1....A2......|            read in one go at the start
    log b      ......B1......B2..|            read after it
    metrics                      |M1          of now
    told       ....A1.B1.A2..B2..|M1          sorted by event time, once both logs are read to their ends
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

from agent.logs.engine import Matched
from agent.model import Sample

__all__ = ["CatchUp", "Happening"]

HELD: Final = 20_000
"""Happenings of one server that are held; with more, the oldest are told."""

Happening = tuple[float, Matched | Sample, str]
"""Event time, what happened, and the engine it gave away (or ``""``)."""

_when = itemgetter(0)


@dataclass(slots=True)
class _Server:
    waits_for: set[str]
    until: float
    held: list[Happening] = field(default_factory=list)


class CatchUp:
    """Times are of the caller's clock. Belongs to one thread."""

    def __init__(self) -> None:
        self._servers: dict[str, _Server] = {}

    def begin(self, server: str, sources: Collection[str], until: float) -> None:
        """What happens to ``server`` is held until each of ``sources`` was read to its end, or until a time."""
        if sources:
            known = self._servers.setdefault(server, _Server(set(), until))
            known.waits_for.update(sources)
            known.until = max(known.until, until)

    def read(self, server: str, source: str) -> None:
        """A source was read to its end."""
        if server in self._servers:
            self._servers[server].waits_for.discard(source)

    def holds(self, server: str) -> bool:
        """Whether what happens to this server waits."""
        return server in self._servers

    def add(self, server: str, happening: Happening) -> list[Happening]:
        """Hold it. Gives the oldest half of what is held when that has become too much."""
        held = self._servers[server].held
        held.append(happening)
        if len(held) <= HELD:
            return []
        held.sort(key=_when)
        oldest = held[: HELD // 2]
        del held[: HELD // 2]
        return oldest

    def due(self, now: float) -> list[str]:
        """Servers that are held no longer: all was read, or it took too long."""
        return [name for name, server in self._servers.items() if not server.waits_for or now >= server.until]

    def next_due(self) -> float | None:
        """When the first of them has taken too long."""
        return min((server.until for server in self._servers.values()), default=None)

    def end(self, server: str) -> list[Happening]:
        """What was held, in order; nothing of this server is held from now on."""
        held = self._servers.pop(server).held
        held.sort(key=_when)
        return held

    @property
    def servers(self) -> list[str]:
        """Servers that are held."""
        return list(self._servers)
