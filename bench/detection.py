"""False pages, missed wedges and delay of the progress verdict, in simulation, against the rules people use today.

    python -m bench.detection [--hours 10000] [--wedges 1000] [--months 25] [--workers 2] [--seed 1] [--write FILE]

Healthy server-hours of twelve kinds and wedges of nine kinds are simulated (bench/scenarios.py, bench/wedges.py) and
looked at every 5 s, as the metrics page of vLLM or TensorRT-LLM would show them, by the tracker that the daemon runs.
Everything comes from the seed. Exit 1 when a healthy hour paged or a wedge was missed.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Iterable, Iterator
from multiprocessing import Pool
from pathlib import Path
from typing import Final

from agent.detect.deadline import ProgressLimits
from agent.detect.progress import ProgressTracker
from agent.model import Sample
from bench.baselines import NoCompletions, NoTokens, Rule
from bench.detection_page import page, table
from bench.levels import levels
from bench.outcome import SCRAPE, Healthy, Wedged
from bench.scenarios import HEALTHY, Life
from bench.wedges import WEDGES
from bench.weeks import WORLDS, live, report

__all__ = ["Healthy", "Wedged", "healthy", "run", "wedged"]

PATIENCE: Final = 900.0
"""A wedge that is not found in so many seconds is missed."""
FULL: Final = (10_000.0, 1_000, 25)
"""Hours, wedges and months of a full run."""
PAGE: Final = Path("docs/bench-detection.md")


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


def main(arguments: list[str] | None = None) -> int:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--hours", type=float, default=FULL[0], help="healthy server-hours")
    parser.add_argument("--wedges", type=int, default=FULL[1], help="wedges of each kind")
    parser.add_argument("--months", type=int, default=FULL[2], help="server-months of each world, for early warnings")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", type=Path, help=f"where to write it; a full run writes {PAGE} without being told")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    results = run(options.hours, options.wedges, options.seed, options.workers)
    tables = table(results)
    months = [(world, options.seed * 1000 + number) for world in WORLDS for number in range(options.months)]
    with Pool(options.workers, initializer=os.nice, initargs=(10,)) as pool:
        weeks = report(pool.starmap(live, months, chunksize=1))
    by_level = levels() if options.months >= FULL[2] else []
    print("\n".join([*tables, "", *weeks, "", *by_level]))
    faults = [where for one in results for where in _rest(one).where]
    missed = [f"{one.kind} seed {one.seed}" for one in results if isinstance(one, Wedged) and one.delays[0] is None]
    for line in [f"false page: {where}" for where in faults] + [f"missed: {wedge}" for wedge in missed]:
        print(line)
    command = f"python -m bench.detection --hours {options.hours:g} --wedges {options.wedges} --months {options.months}"
    full = (options.hours, options.wedges, options.months) >= FULL
    target = options.write or (PAGE if full else None)
    if target is not None:
        minutes = (time.monotonic() - began) / 60
        target.write_text(page(command, options.workers, minutes, tables, weeks, by_level), encoding="utf-8")
    return 1 if faults or missed else 0


def _rest(one: Healthy | Wedged) -> Healthy:
    return one if isinstance(one, Healthy) else one.before or Healthy(one.kind)


if __name__ == "__main__":
    sys.exit(main())
