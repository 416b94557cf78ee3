"""Server-weeks for the early warning: how often is it right, how long before the stop, how many stops had one?

A fluid model, looked at twice a minute: demand follows day and week with bursts of hours, what is over capacity queues,
the cache fills with what runs. Three worlds: one in which the server stops some time after its load passes a threshold
(the failure this project is about), one in which it stops at any load (a device hangs), one in which it never does.
A server that stopped is restarted within the hour.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Final

from agent.detect.onset import OnsetLedger
from agent.detect.pressure import HORIZON, pressure
from agent.detect.progress import ProgressTracker
from agent.model import Sample

__all__ = ["Weeks", "World", "live", "report"]

World = str
WORLDS: Final = ("stops above a load", "stops at any load", "never stops")
LOOK: Final = 30.0
DAY: Final = 86_400.0


@dataclass(slots=True)
class Weeks:
    """What one server's weeks came to. ``leads``: seconds from a right warning to the stop."""

    world: World
    weeks: float
    stops: int = 0
    known: int = 0
    """Stops of a server that had stopped before: only those can be foreseen."""
    warned: int = 0
    right: int = 0
    leads: tuple[float, ...] = ()


class _Demand:
    """Requests that users hold open, as a share of what the server can run at once."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.base = rng.uniform(0.3, 0.7)
        self.swing = rng.uniform(0.1, 0.4)
        self.burst, self.until = 0.0, 0.0

    def at(self, now: float) -> float:
        if now >= self.until:
            calm = self.burst > 0 or self.rng.random() < 0.8
            self.burst = 0.0 if calm else self.rng.uniform(0.2, 1.2)
            self.until = now + (self.rng.expovariate(1 / 7200) if calm else self.rng.uniform(600, 7200))
        day = math.sin(2 * math.pi * (now % DAY) / DAY)
        week = 0.8 if (now // DAY) % 7 >= 5 else 1.0
        return max(0.0, week * (self.base + self.swing * day) + self.burst)


def live(world: World, seed: int, weeks: float = 4.0) -> Weeks:
    """One server over ``weeks``, and the warnings it gave."""
    rng = random.Random(f"{world} {seed}")
    slots = rng.choice([32, 64, 128, 256])
    demand, tracker, ledger, out = _Demand(rng), ProgressTracker(), OnsetLedger(), Weeks(world, weeks)
    tracker.fact({"max_running_requests": float(slots)})
    threshold = rng.uniform(1.05, 1.5) * slots
    soon = rng.choice([180.0, 600.0, 1800.0])  # mean seconds above the threshold before it stops
    rare = 1 / rng.uniform(3 * DAY, 14 * DAY)
    held = dict.fromkeys(("finished", "generated"), 0.0)
    now, start, in_flight = 0.0, 0.0, 0.0
    last_warning, open_warnings, leads = -1e9, [], []
    recent: list[float] = []
    while now < weeks * 7 * DAY:
        now += LOOK
        in_flight += 0.2 * (demand.at(now) * slots - in_flight) + rng.gauss(0, 0.02 * slots)
        in_flight = max(0.0, in_flight)
        running = min(in_flight, slots)
        held["generated"] += running * 25 * LOOK
        held["finished"] += running * 25 * LOOK / 200
        load = round(in_flight)
        values = {
            "requests_running": float(round(running)),
            "requests_waiting": float(max(0, load - round(running))),
            "kv_cache_usage_ratio": min(1.0, running / slots * 0.97 + rng.gauss(0, 0.005)),
            "requests_finished_total": float(int(held["finished"])),
            "generation_tokens_total": float(int(held["generated"])),
            "process_start_time_seconds": start,
        }
        tracker.observe(Sample(now, "s", "metrics", values))
        ledger.look(now, LOOK, float(load))
        recent = [*recent, in_flight][-10:]
        found = pressure(tracker, now, ledger)
        if found is not None and found.warn and now - last_warning > HORIZON:
            last_warning = now
            open_warnings.append(now)
            out.warned += 1
        hazard = {
            "stops above a load": 1 / soon if in_flight >= threshold else 0.0,
            "stops at any load": rare,
            "never stops": 0.0,
        }[world]
        if rng.random() < hazard * LOOK:
            out.stops += 1
            out.known += bool(ledger.onset_loads)
            right = [at for at in open_warnings if now - at <= HORIZON]
            out.right += len(right)
            leads += [now - right[0]] if right else []
            ledger.onset(now, sum(recent) / len(recent))
            down = rng.uniform(300, 3600)
            now += down
            start, in_flight, open_warnings = now, 0.0, []
            held = dict.fromkeys(held, 0.0)
    out.leads = tuple(leads)
    return out


def report(results: list[Weeks]) -> list[str]:
    """A table as Markdown."""
    lines = [
        "| world | server-weeks | stops (of servers that had stopped before) | of these warned of | lead, median "
        "| warnings | right | precision |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for world in (*WORLDS, "**all**"):
        ones = [one for one in results if one.world == world or world == "**all**"]
        leads = sorted(lead for one in ones for lead in one.leads)
        known, warned, right = (sum(getattr(one, name) for one in ones) for name in ("known", "warned", "right"))
        share = f"{100 * len(leads) / known:.0f} %" if known else "-"
        lead = f"{leads[len(leads) // 2] / 60:.0f} min" if leads else "-"
        precision = f"{100 * right / warned:.0f} %" if warned else "-"
        weeks, stops = sum(one.weeks for one in ones), sum(one.stops for one in ones)
        lines.append(
            f"| {world} | {weeks:,.0f} | {stops} ({known}) | {share} | {lead} | {warned} | {right} | {precision} |"
        )
    return lines
