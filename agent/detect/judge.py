"""Is this a stall? Pure questions to what the looks showed."""

from __future__ import annotations

from typing import Final

from agent.detect.deadline import ProgressLimits
from agent.detect.looks import Looks
from agent.detect.stall import CLOCKS, Stall, livelock, preempts

__all__ = ["TURNS", "deadline", "evident", "full", "moving", "onset", "recovered"]

TURNS: Final = 3
"""Looks that saw the queue grow while nothing moved: gauges come from the loop, so it turns."""
_SLACK: Final = 0.1
"""Share of the time between two looks by which they may come early: they are never quite on time."""


def deadline(looks: Looks, limits: ProgressLimits, *, evidence: bool = False) -> tuple[float, str]:
    """Seconds without progress that are called a stall now, and what set them."""
    if evidence:
        seen = 2 * looks.interval if looks.sight.last_metrics is not None else 0.0
        return max(limits.with_evidence, seen), "evidence"
    return looks.patience.deadline(
        limits,
        looks.interval,
        looks.clock.lowest,
        budget=looks.facts.get("max_batched_tokens", 0.0),
        turns=looks.turns >= TURNS,
        waking=looks.woke is not None,
        transfer=looks.transfer,
        vanished=looks.vanished,
    )


def onset(looks: Looks, last_progress: float | None) -> float:
    """When the present stretch without progress began: the last progress, or the moment work came in after it."""
    return max(last_progress or 0.0, looks.clock.since or 0.0)


def full(looks: Looks, limits: ProgressLimits, last_progress: float | None) -> Stall | None:
    """Nothing at all came of the work in flight until the deadline. To be asked at a look: only that can say that
    nothing moved up to now."""
    waited = looks.clock.seconds + _SLACK * looks.interval
    if not looks.clock.busy or waited < min(limits.floor, limits.cold) or not looks.points:
        return None
    wait, source = deadline(looks, limits)
    since, last = onset(looks, last_progress), looks.points[-1]
    if last.running is not None and last.running + (last.waiting or 0.0) == 0:
        # Only the front end knows of these requests.
        late = waited >= max(wait, limits.cold)
        return Stall(since, last.timestamp, "lost_replies", wait, source, certain=False) if late else None
    if waited < wait:
        return None
    thrown_out = preempts([point for point in looks.points if point.timestamp > since])
    return Stall(since, last.timestamp, "livelock" if thrown_out else "full", wait, source)


def moving(looks: Looks, limits: ProgressLimits) -> Stall | None:
    """Something moves, and nobody gets anything."""
    if not looks.points:
        return None
    at = looks.points[-1].timestamp
    found = livelock(looks.points, at, looks.usual_speed, limits, looks.hole)
    drip = looks.drip
    dripped = drip.drops >= 2 and drip.seconds + _SLACK * looks.interval >= limits.trickle
    if found is None and dripped and drip.since is not None:
        found = Stall(drip.since, at, "trickle", limits.trickle, "trickle")
    return found


def evident(looks: Looks, limits: ProgressLimits, last_progress: float | None, symptom_at: float) -> Stall | None:
    """A line named a stall at ``symptom_at``: do the looks since then confirm it?"""
    if not looks.clock.busy or looks.last is None:
        return None
    if last_progress is not None and last_progress > symptom_at + looks.interval + CLOCKS:
        return None
    wait, source = deadline(looks, limits, evidence=True)
    idle = [p for p in list(looks.points)[-4:] if p.timestamp >= symptom_at and not p.progress and p.in_flight]
    if looks.clock.seconds + _SLACK * looks.interval >= wait and len(idle) >= 2:
        return Stall(onset(looks, last_progress), looks.last, "full", wait, source)
    return None


def recovered(stall: Stall, looks: Looks, last_progress: float | None) -> bool:
    """A stall is over when work is issued again: completions or a decent speed where something moved all along, any
    progress for the others. A queue that is empty by live gauges is over too: nobody waits any more."""
    last = looks.points[-1] if looks.points else None
    if last is not None and last.timestamp > stall.declared and stall.kind != "canary":
        if last.running is not None and last.running + (last.waiting or 0.0) == 0 and last.in_flight == 0:
            return True
        if stall.kind in ("trickle", "livelock"):
            delivers = any((p.finished or 0.0) > 0 for p in looks.points if p.timestamp > stall.declared)
            return delivers or (stall.kind == "trickle" and looks.drip.since is None and bool(last.generated))
    if stall.kind in ("trickle", "livelock"):
        return False
    return last_progress is not None and last_progress > stall.since
