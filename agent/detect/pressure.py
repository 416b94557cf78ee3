"""How near is trouble? Pressure before a wedge, measured against what this very server went through.

A full cache and a queue say nothing by themselves: a saturated server lives with both for hours. What tells is the
load at which it stopped before. With k onsets at or above a load and E healthy seconds there, onsets being Poisson with
a Gamma(1/2, half an hour) prior on their rate, the chance of one within the next half an hour, should the load stay, is
``1 - ((b + E) / (b + E + 1800)) ** (k + 1/2)``. A server that never stopped is never warned of; one that carries the
load of an old onset for hours today gives no warning tomorrow. How often a warning is right: docs/bench-detection.md.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import asdict, dataclass
from typing import Any, Final

from agent.detect.onset import OnsetLedger
from agent.detect.progress import ProgressTracker
from agent.detect.stall import Point

__all__ = ["HORIZON", "Pressure", "pressure"]

HORIZON: Final = 1800.0
"""Seconds ahead for which the chance is given."""
WARN_AT: Final = 0.85
"""Chance from which it is worth a warning; the wrong ones are mostly loads that go away before the trouble comes."""
_PRIOR_SHAPE: Final = 0.5
_PRIOR_SECONDS: Final = 1800.0
_NEAR: Final = 0.9
"""Share of the load of an earlier onset from which the present load counts as near it."""
_FULL: Final = 0.9
"""KV use, or share of the sequence slots, that counts as near the ceiling."""
_WINDOW: Final = 120.0
"""Seconds over which the queue must grow."""


@dataclass(frozen=True, slots=True)
class Pressure:
    """How near the ceiling an engine works. ``warn``: an early warning is due.

    ``kv`` and ``slots`` are shares of the KV pool and of ``max_running_requests`` in use, ``growth`` the requests that
    join the queue in a minute. ``load`` is the mean number of requests in flight over two minutes, ``onset_load`` that
    of the earlier onset it compares with, ``onsets`` how many came at or above it, ``healthy_hours`` how long it was
    carried without one. ``chance`` is that of trouble within half an hour at this load; None: it never stopped.
    ``full_in`` is the seconds until the pool is full at its present pace.
    """

    load: float
    waiting: float
    growth: float
    kv: float | None = None
    slots: float | None = None
    full_in: float | None = None
    onset_load: float | None = None
    onsets: int = 0
    healthy_hours: float = 0.0
    chance: float | None = None
    warn: bool = False

    def to_json(self) -> dict[str, Any]:
        return {k: round(v, 4) if isinstance(v, float) else v for k, v in asdict(self).items()}

    def sentence(self) -> str:
        """One line for people."""
        kv = f", KV cache {100 * self.kv:.0f} % in use" if self.kv is not None else ""
        now = (
            f"{self.load:.0f} requests in flight, {self.waiting:.0f} of them waiting ({self.growth:+.0f} a minute){kv}"
        )
        if self.chance is None:
            return now
        times = "once" if self.onsets == 1 else f"{self.onsets} times"
        return (
            f"{now}; at or above {self.onset_load:.0f} it stopped {times} in {self.healthy_hours:.1f} h: "
            f"{100 * self.chance:.0f} % chance within half an hour"
        )


def pressure(tracker: ProgressTracker, now: float, ledger: OnsetLedger | None = None) -> Pressure | None:
    """How near the ceiling this engine works at ``now``; None while it is idle, blind or stalled.

    ``ledger`` is what the server went through before; without it, and before a first onset, nothing is ever warned of.
    """
    if tracker.stall is not None or tracker.state not in ("serving", "saturated"):
        return None
    recent = []
    for point in reversed(tracker.points):
        if point.timestamp <= now - _WINDOW:
            break
        if point.in_flight is not None:
            recent.append(point)
    if len(recent) < 4:
        return None
    recent.reverse()
    load = sum(p.in_flight or 0.0 for p in recent) / len(recent)
    last = recent[-1]
    slots_all = tracker.facts.get("max_running_requests", 0.0)
    slots = (last.running or 0.0) / slots_all if slots_all > 0 else None
    rise = _slope(recent, "kv")
    found = Pressure(
        load=load,
        waiting=last.waiting or 0.0,
        growth=60 * _slope(recent, "waiting"),
        kv=last.kv,
        slots=slots,
        full_in=(1 - last.kv) / rise if last.kv is not None and rise > 1e-5 else None,
    )
    if ledger is None:
        return found
    seen = _likeliest(ledger, load)
    if seen is None:
        return found
    chance, onset_load, onsets, healthy = seen
    tight = max(last.kv or 0.0, slots or 0.0) >= _FULL or (last.kv is None and slots is None)
    grows = found.waiting > 0 and found.growth > 0
    warn = tight and grows and chance >= WARN_AT and not _a_change_explains(ledger)
    return Pressure(
        load=load,
        waiting=found.waiting,
        growth=found.growth,
        kv=found.kv,
        slots=slots,
        full_in=found.full_in,
        onset_load=onset_load,
        onsets=onsets,
        healthy_hours=healthy / 3600,
        chance=chance,
        warn=warn,
    )


def _a_change_explains(ledger: OnsetLedger) -> bool:
    """Did the trouble come with a deployment, whatever the load?"""
    return ledger.changed and ledger.report().verdict == "deployment"


def _likeliest(ledger: OnsetLedger, load: float) -> tuple[float, float, int, float] | None:
    """Of the loads at which it stopped, and that the present one is near, the one that foretells most: chance, that
    load, onsets and healthy seconds at or above it."""
    near = sorted(x for x in ledger.onset_loads if _NEAR * x <= load)
    if not near:
        return None
    lived = ledger.lived()
    best: tuple[float, float, int, float] | None = None
    healthy, place = 0.0, 0
    everything = sorted(ledger.onset_loads)
    for onset_load in reversed(near):
        while place < len(lived) and lived[place][0] >= _NEAR * onset_load:
            healthy += lived[place][1]
            place += 1
        onsets = len(everything) - bisect_left(everything, _NEAR * onset_load)
        quiet = _PRIOR_SECONDS + healthy
        chance = 1 - (quiet / (quiet + HORIZON)) ** (onsets + _PRIOR_SHAPE)
        if best is None or chance > best[0]:
            best = chance, onset_load, onsets, healthy
    return best


def _slope(points: list[Point], name: str) -> float:
    """Growth a second of a gauge, by least squares; 0 where it is not shown."""
    pairs = [(p.timestamp, float(value)) for p in points if (value := getattr(p, name)) is not None]
    if len(pairs) < 3:
        return 0.0
    middle = sum([t for t, _ in pairs]) / len(pairs)
    spread = sum([(t - middle) ** 2 for t, _ in pairs])
    return sum([(t - middle) * v for t, v in pairs]) / spread if spread > 0 else 0.0
