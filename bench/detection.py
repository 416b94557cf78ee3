"""False pages, missed wedges and delay of the progress verdict, in simulation, against the rules people use today.

    python -m bench.detection [--hours 10000] [--wedges 1000] [--workers 2] [--seed 1] [--write docs/bench-detection.md]

Healthy server-hours of twelve kinds and wedges of nine kinds are simulated (bench/scenarios.py, bench/wedges.py) and
looked at every 5 s, as the metrics page of vLLM or TensorRT-LLM would show them, by the tracker that the daemon runs.
Everything comes from the seed. Exit 1 when a healthy hour paged or a wedge was missed.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing import Pool
from pathlib import Path
from typing import Final

from agent.detect.deadline import GAMMA, ProgressLimits
from agent.detect.progress import ProgressTracker
from agent.model import Sample
from bench.baselines import NoCompletions, NoTokens, Rule
from bench.scenarios import HEALTHY, Life
from bench.wedges import WEDGES

__all__ = ["Healthy", "Wedged", "healthy", "run", "wedged"]

SCRAPE: Final = 5.0
PATIENCE: Final = 900.0
"""A wedge that is not found in so many seconds is missed."""
RULES: Final = ("this", "60 s no token", "no completion in 5 min")


@dataclass(slots=True)
class Healthy:
    """What a healthy stretch came to. ``pages`` per rule; ``where`` names our own false pages, to look into them."""

    kind: str
    hours: float = 0.0
    pages: list[int] = field(default_factory=lambda: [0, 0, 0])
    where: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Wedged:
    """What a wedge came to. ``delays`` per rule, in seconds from the last progress; None: missed."""

    kind: str
    seed: int
    delays: list[float | None]
    rate: float
    source: str = ""
    before: Healthy | None = None


class Watch:
    """The tracker and the two rules on one page."""

    def __init__(self, limits: ProgressLimits | None = None) -> None:
        self.tracker = ProgressTracker(limits)
        self.rules: list[Rule] = [NoTokens(), NoCompletions()]
        self.firing = [False, False, False]

    def look(self, life: Life, now: float) -> list[bool]:
        """Look at ``now``; which of the three fire now and did not before."""
        if not life.live(now):
            self.tracker.observe(Sample(now, "s", "metrics", {}, ok=False, error="connect: refused"))
            return [False, False, False]
        values = life.page()
        self.tracker.observe(Sample(now, "s", "metrics", values))
        fire = [self.tracker.stall is not None, *(rule.look(now, values) for rule in self.rules)]
        new = [a and not b for a, b in zip(fire, self.firing, strict=True)]
        self.firing = fire
        return new


def healthy(kind: str, seed: int, hours: float, limits: ProgressLimits | None = None) -> Healthy:
    """Live through ``hours`` in which nothing is wrong."""
    rng = random.Random(f"healthy {kind} {seed}")
    life = HEALTHY[kind][0](rng)
    watch, out = Watch(limits), Healthy(kind, hours)
    now, end = rng.uniform(0, SCRAPE), hours * 3600
    while now < end:
        _count(out, watch, watch.look(life, now), now, seed)
        now += SCRAPE + rng.gauss(0, 0.05)
    return out


def wedged(kind: str, seed: int, limits: ProgressLimits | None = None) -> Wedged:
    """Live healthily for a while, stop, and wait to be found."""
    rng = random.Random(f"wedge {kind} {seed}")
    wedge = WEDGES[kind]
    lives = [wedge.build(rng) for _ in range(wedge.replicas)]
    watches = [Watch(limits) for _ in lives]
    stop, life, watch = rng.uniform(*wedge.after), lives[0], watches[0]
    before = Healthy(kind)
    now = rng.uniform(0, SCRAPE)
    stopped: float | None = None
    owed: float | None = None
    found: list[float | None] = [None, None, None]
    rate = 0.0
    while True:
        if stopped is None:
            while stop <= now and stopped is None:
                life.live(stop)
                if wedge.ready(life.engine):
                    stopped, rate = stop, life.engine.counts["finished"] / max(stop, 1.0)
                    owed = stop if life.engine.in_flight() else None
                    wedge.stop(life)
                stop += 1.0
        new = watch.look(life, now)
        if stopped is None:
            _count(before, watch, new, now, seed)
        else:
            owed = now if owed is None and life.engine.in_flight() else owed
            for place, fires in enumerate(watch.firing):
                if fires and found[place] is None:
                    found[place] = now
        for other, second in zip(lives[1:], watches[1:], strict=True):
            _count(before, second, second.look(other, now), now, seed)
        if stopped is not None and (now > stopped + PATIENCE or (None not in found)):
            break
        now += SCRAPE + rng.gauss(0, 0.05)
    before.hours = wedge.replicas * now / 3600
    # The last progress, or the moment work came in after it.
    onset = max(life.engine.last_progress, owed or 0.0) if owed != stopped else life.engine.last_progress
    delays = [None if at is None else at - onset for at in found]
    stall = watch.tracker.stall
    return Wedged(kind, seed, delays, rate, f"{stall.kind} {stall.deadline_source}" if stall else "", before)


def _count(out: Healthy, watch: Watch, new: list[bool], now: float, seed: int) -> None:
    for place, fires in enumerate(new):
        out.pages[place] += fires
    if new[0]:
        out.where.append(f"{out.kind} seed {seed} at {now:.0f}: {watch.tracker.stall}")


# -- the run -------------------------------------------------------------------------------------------------

Job = tuple[str, str, int, float]


def _jobs(hours: float, wedges: int, seed: int, stretch: float) -> Iterator[Job]:
    for kind, (_, share) in HEALTHY.items():
        for number in range(max(1, round(hours * share / stretch))):
            yield "healthy", kind, seed * 1_000_000 + number, stretch
    for kind in WEDGES:
        for number in range(wedges):
            yield "wedge", kind, seed * 1_000_000 + number, 0.0


def _do(job: Job) -> Healthy | Wedged:
    what, kind, seed, hours = job
    return healthy(kind, seed, hours) if what == "healthy" else wedged(kind, seed)


def run(hours: float, wedges: int, seed: int = 1, workers: int = 1, stretch: float = 10.0) -> list[Healthy | Wedged]:
    """All of it. ``stretch``: hours that one healthy server lives."""
    jobs = list(_jobs(hours, wedges, seed, stretch))
    if workers <= 1:
        return [_do(job) for job in jobs]
    with Pool(workers, initializer=os.nice, initargs=(10,)) as pool:
        return list(_told(pool.imap_unordered(_do, jobs, chunksize=4), len(jobs)))


def _told(results: Iterable[Healthy | Wedged], total: int) -> Iterator[Healthy | Wedged]:
    began = last = time.monotonic()
    for number, result in enumerate(results, 1):
        if time.monotonic() - last > 20:
            last = time.monotonic()
            print(f"  {number}/{total} after {last - began:.0f} s", file=sys.stderr, flush=True)
        yield result


def _percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else math.nan


def bound(rate: float) -> float:
    """Least mean delay of any test on completions alone for one false alarm in 30 days (Lorden), plus half a look."""
    return math.log(max(GAMMA * rate, math.e)) / rate + SCRAPE / 2 if rate > 0 else math.inf


def table(results: list[Healthy | Wedged]) -> list[str]:
    """Both tables as Markdown."""
    rests = [one for one in results if isinstance(one, Healthy)]
    found = [one for one in results if isinstance(one, Wedged)]
    befores = [one.before for one in found if one.before is not None]
    lines = [
        "| healthy | server-hours | false pages: this | 60 s no token | no completion in 5 min |",
        "|---|---:|---:|---:|---:|",
    ]
    lines += [_healthy_row(kind, [one for one in rests if one.kind == kind]) for kind in HEALTHY]
    lines.append(_healthy_row("before the wedges below", befores))
    lines.append(_healthy_row("**all**", rests + befores))
    lines += [
        "",
        "Delay in seconds from the last progress (or from the moment work came in after it): median / p99 (missed).",
        "",
        "| wedge | n | this | 60 s no token | no completion in 5 min | bound on completions | set by |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for kind in WEDGES:
        lines.append(_wedge_row(kind, [one for one in found if one.kind == kind]))
    lines.append(_wedge_row("**all**", found))
    return lines


def _healthy_row(name: str, ones: list[Healthy]) -> str:
    hours = sum(one.hours for one in ones)
    pages = [sum(one.pages[place] for one in ones) for place in range(3)]
    rates = [f"{count} ({1000 * count / hours:.1f} / 1000 h)" if count else "0" for count in pages]
    return f"| {name} | {hours:,.0f} | {rates[0]} | {rates[1]} | {rates[2]} |"


def _wedge_row(name: str, ones: list[Wedged]) -> str:
    cells = []
    for place in range(3):
        delays = [one.delays[place] for one in ones]
        seen = [delay for delay in delays if delay is not None]
        missed = len(delays) - len(seen)
        text = f"{_percentile(seen, 0.5):.0f} / {_percentile(seen, 0.99):.0f}" if seen else "-"
        cells.append(f"{text} ({missed})")
    least = _percentile([bound(one.rate) for one in ones if one.rate > 0], 0.5)
    causes = Counter(one.source.split()[-1] for one in ones if one.source).most_common(3)
    why = ", ".join(f"{cause} {100 * count / len(ones):.0f} %" for cause, count in causes)
    return f"| {name} | {len(ones):,} | {' | '.join(cells)} | {least:.0f} | {why} |"


def main(arguments: list[str] | None = None) -> int:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--hours", type=float, default=10_000.0, help="healthy server-hours")
    parser.add_argument("--wedges", type=int, default=1_000, help="wedges of each kind")
    parser.add_argument("--weeks", type=int, default=300, help="server-weeks for the precision of early warnings")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", type=Path, help="write the result as Markdown to this file")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    results = run(options.hours, options.wedges, options.seed, options.workers)
    lines = table(results)
    print("\n".join(lines))
    paged = [
        where
        for one in results
        for where in (one.where if isinstance(one, Healthy) else one.before.where if one.before else [])
    ]
    missed = [one for one in results if isinstance(one, Wedged) and one.delays[0] is None]
    for where in paged[:40]:
        print("false page:", where)
    for one in missed[:40]:
        print("missed:", one.kind, one.seed)
    print(f"{time.monotonic() - began:.0f} s")
    return 1 if paged or missed else 0


if __name__ == "__main__":
    sys.exit(main())
