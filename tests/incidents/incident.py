"""One incident: what lies in its folder and the answer that is right."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

ADMISSION = ("token_budget_deadlock", "kv_cache_deadlock", "request_never_fits", "silent_stall")
"""Right names for a queue that is no longer admitted, where no line names the cause."""
HANG = ("device_hang", "collective_hang", "silent_stall")
"""Right names for a step that never returns, where no line says which of them it is."""
STALL = (*ADMISSION, "device_hang", "collective_hang")
"""Right names where signals alone say that nothing moves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """Evidence and expectation. Times are epoch seconds; keys as in ``tests/cases/README.md``, and a few more."""

    engine: str
    why: str
    page: bool
    logs: Mapping[str, bytes] = field(default_factory=dict)
    metrics: bytes | None = None
    arguments: tuple[str, ...] = ()
    written: float = 0.0
    """Modification time of the files: what a stamp without a year is dated by."""
    failure_any_of: tuple[str, ...] = ()
    confidence: str | None = None
    fires_by: float | None = None
    not_before: float | None = None
    """A page before the trouble began is a false one, even if trouble follows."""
    may_warn_of: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    alerts: int = 1
    """Distinct pages due: one for each replica that stopped."""
    episodes: int = 1
    """How often one of them fires: again after a restart, if it stopped again."""
    resolved: bool | None = None
    """Whether the last word on it is `resolved`; not asked where None."""


@dataclass(frozen=True, slots=True)
class Plan:
    """An incident before it is built: building all of them just to name them would be slow."""

    name: str
    make: Callable[[], Incident]


def seed(name: str) -> int:
    """The same on every machine and in every process, unlike ``hash``."""
    return zlib.crc32(name.encode())


def at(text: str) -> float:
    """Epoch seconds of a stamp such as ``2026-11-20 09:00:00`` (UTC)."""
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()


def due(onset: float, interval: float, *, patience: float = 120.0) -> float:
    """When a stall must be told at the latest: the cap of busy time without progress, two scrapes, some slack."""
    return onset + patience + 2 * interval + 20.0
