"""What changed between two looks at the signals of one source.

Counters may start anew (a restart), appear late (a series is born with its first event) and vanish for a while; gauges
may be missing or not a number. :class:`SignalMemory` keeps the last known value of each and says what grew.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["COUNTERS", "Change", "SignalMemory", "finite"]

COUNTERS: Final = (
    "generation_tokens_total",
    "prompt_tokens_total",
    "requests_finished_total",
    "iterations_total",
    "training_step",
)
"""Counters whose growth is progress by itself."""
_ALL_COUNTERS: Final = (
    *COUNTERS,
    "requests_aborted_total",
    "request_errors_total",
    "requests_received_total",
    "preemptions_total",
)
_SIGNS: Final = frozenset({*COUNTERS, "kv_cache_usage_ratio", "progress_mark", "prompt_tokens_pending"})
_FLAPS: Final = 3
"""Falls of KV use from which its rises mean nothing, until something is counted again."""
_WORK: Final = ("requests_running", "requests_waiting")
_START: Final = "process_start_time_seconds"
_STARTS_KEPT: Final = 8


@dataclass(frozen=True, slots=True)
class Change:
    """From one look to the next. ``grown`` holds counters that grew and by how much; ``kv`` is the signed change of KV
    use; ``unmarked`` the progress signals that had been seen to move and are gone from this look."""

    first: bool = False
    restarted: bool = False
    alternates: bool = False
    """An earlier process answers again: several share the address, and no change can be told."""
    grown: Mapping[str, float] = field(default_factory=dict)
    counted: bool = False
    """A progress counter grew."""
    marked: bool = False
    """A progress mark moved, or pending prompt tokens fell."""
    kv: float = 0.0
    ran: bool = False
    """Something ran at one end or the other."""
    left: bool = False
    """Fewer run than before."""
    falls: int = 0
    """How often KV use has fallen since something was counted."""
    gone: frozenset[str] = frozenset()
    """Progress signals that moved before and are not on this page."""

    def of(self, name: str) -> float:
        """Growth of a counter."""
        return self.grown.get(name, 0.0)

    @property
    def kv_moved(self) -> bool:
        """vLLM's token counters stand still in a chunked prefill while the KV pool fills. But a pool that moves because
        requests are thrown out (preempted, given up by clients) says nothing about work done; not every engine counts
        what clients give up, so a pool that falls with the number of running requests says nothing either. A prefill
        climbs: what only goes up and down is taken and given back."""
        if abs(self.kv) <= 1e-9 or not self.ran or (self.kv < 0 and self.left) or self.falls >= _FLAPS:
            return False
        return self.of("requests_aborted_total") <= 0 and self.of("preemptions_total") <= 0


class SignalMemory:
    """The last known values of one source."""

    __slots__ = ("_falls", "_moved", "_starts", "_values")

    def __init__(self) -> None:
        self._values: dict[str, float] = {}
        self._moved: set[str] = set()
        self._starts: list[float] = []
        self._falls = 0

    @property
    def values(self) -> Mapping[str, float]:
        """Last known value of every signal."""
        return self._values

    def compare(self, values: Mapping[str, float]) -> Change:
        """Take in the values of a look (finite numbers) and say what changed since the one before."""
        before = self._values
        process = self._process(values.get(_START))
        if process == "earlier":
            return Change(alternates=True)
        if not before:
            self._values = dict(values)
            return Change(first=True)
        fell = any(values[name] < before.get(name, 0.0) - 1e-9 for name in _ALL_COUNTERS if name in values)
        restarted = process == "new" or (fell and process != "same")
        if restarted:
            # What the new process counts, it has counted since its start.
            before = {}
            self._moved.clear()
        grown: dict[str, float] = {}
        for name in _ALL_COUNTERS:
            growth = values.get(name, 0.0) - before.get(name, 0.0)
            if growth > 1e-9:
                grown[name] = growth
        if values.get("scheduled_requests", 1.0) + before.get("scheduled_requests", 0.0) <= 0:
            grown.pop("iterations_total", None)  # passes that schedule nothing are no work
        change = self._change(before, values, grown, restarted)
        # A signal that is missing today keeps its value: when it comes back, only what is new has grown.
        self._values = {**before, **values}
        return change

    def _change(
        self, before: Mapping[str, float], values: Mapping[str, float], grown: dict[str, float], restarted: bool
    ) -> Change:
        def moved(name: str) -> float:
            return values[name] - before[name] if name in values and name in before else 0.0

        kv = moved("kv_cache_usage_ratio")
        marked = abs(moved("progress_mark")) > 0 or moved("prompt_tokens_pending") < 0
        signs = {name for name in COUNTERS if name in grown}
        self._moved |= signs
        # Where nothing is counted at all, the pool is the only sign there is, and it rises and falls in health too.
        counts = any(name in values for name in COUNTERS) or "progress_mark" in values
        self._falls = 0 if signs or marked or not counts else self._falls + (kv < -1e-9)
        if abs(kv) > 1e-9:
            self._moved.add("kv_cache_usage_ratio")
        return Change(
            restarted=restarted,
            grown=grown,
            counted=bool(signs),
            marked=marked,
            kv=kv,
            ran=max(values.get("requests_running", 0.0), before.get("requests_running", 0.0)) > 0,
            left=moved("requests_running") < 0,
            falls=self._falls,
            gone=frozenset(name for name in self._moved if name not in values) if self._moved else frozenset(),
        )

    def _process(self, start: float | None) -> str:
        """Which process answers, by its start: the ``same`` as at the look before, a ``new`` one, an ``earlier`` one
        (then several share the address), or ``unknown``."""
        if start is None:
            return "unknown"
        if self._starts and abs(start - self._starts[-1]) <= 1.0:
            return "same"
        if any(abs(start - known) <= 1.0 for known in self._starts):
            return "earlier"
        self._starts = [*self._starts, start][-_STARTS_KEPT:]
        return "new" if len(self._starts) > 1 else "unknown"

    def lost_gauges(self, values: Mapping[str, float]) -> bool:
        """Had the page gauges of work, and has none now, and the same process answers? Then part of it is missing."""
        if any(name in values for name in _WORK) or not any(name in self._values for name in _WORK):
            return False
        start = values.get(_START)
        return start is None or not self._starts or abs(start - self._starts[-1]) <= 1.0

    def sees_progress(self, values: Mapping[str, float]) -> bool:
        """Does this page carry any sign of progress at all?"""
        return not _SIGNS.isdisjoint(values)

    def forget(self) -> None:
        """The process is gone, and with it what its counters meant."""
        self._values = {}
        self._moved.clear()

    def snapshot(self) -> dict[str, Any]:
        return {"values": self._values, "moved": sorted(self._moved), "starts": self._starts, "falls": self._falls}

    def restore(self, data: Mapping[str, Any]) -> None:
        self._values = {name: float(value) for name, value in data.get("values", {}).items()}
        self._moved = set(data.get("moved", ()))
        self._starts = [float(start) for start in data.get("starts", ())]
        self._falls = int(data.get("falls", 0))


def finite(values: Mapping[str, float]) -> Mapping[str, float]:
    """The values without those that are no number."""
    if all(map(math.isfinite, values.values())):
        return values
    return {name: value for name, value in values.items() if math.isfinite(value)}
