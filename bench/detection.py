"""False pages, missed wedges and delay of the progress verdict, in simulation, against the rules people use today.

    python -m bench.detection [--hours 10000] [--wedges 1000] [--months 12] [--workers 2] [--seed 1]
                              [--keep FILE] [--for MINUTES] [--write FILE]

Healthy server-hours of twelve kinds and wedges of nine kinds are simulated (bench/scenarios.py, bench/wedges.py) and
looked at every 5 s, as the metrics page of vLLM or TensorRT-LLM would show them, by the tracker that the daemon runs.
Everything comes from the seed. Exit 1 when a healthy hour paged or a wedge was missed.

``--keep`` names a file to which each result is appended as it comes. The same command goes on from there, with another
seed it adds to it, and the files of several machines can be put together; the tables are about all that is in it.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
import time
from multiprocessing import Pool
from pathlib import Path
from typing import Final

from agent.detect.deadline import ProgressLimits
from agent.detect.progress import ProgressTracker
from agent.model import Sample
from bench.baselines import NoCompletions, NoTokens, Rule
from bench.detection_page import page, summary, table
from bench.kept import Job, Kept, Outcome
from bench.levels import levels
from bench.outcome import SCRAPE, Healthy, Wedged
from bench.scenarios import HEALTHY, Life
from bench.wedges import WEDGES
from bench.weeks import WORLDS, Weeks, live, report

__all__ = ["Healthy", "Wedged", "faults", "healthy", "run", "wedged"]

PATIENCE: Final = 900.0
"""A wedge that is not found in so many seconds is missed."""
FULL: Final = (10_000.0, 1_000, 12)
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


# -- the run ------------------------------------------------------------------------------------------------------


def _jobs(hours: float, wedges: int, months: int, seed: int, stretch: float) -> list[Job]:
    """In an order that gives a fair share of each kind to a run that is stopped."""
    jobs: list[Job] = []
    for kind, (_, share) in HEALTHY.items():
        jobs += [
            ("healthy", kind, seed * 1_000_000 + number, stretch)
            for number in range(max(1, round(hours * share / stretch)))
        ]
    jobs += [("wedge", kind, seed * 1_000_000 + number, 0.0) for kind in WEDGES for number in range(wedges)]
    jobs += [("weeks", world, seed * 1_000 + number, 4.0) for world in WORLDS for number in range(months)]
    random.Random("order").shuffle(jobs)
    return jobs


def _do(job: Job) -> tuple[Job, Outcome]:
    what, kind, seed, length = job
    if what == "healthy":
        return job, healthy(kind, seed, length)
    return job, wedged(kind, seed) if what == "wedge" else live(kind, seed, length)


def run(jobs: list[Job], done: Kept, workers: int = 1, seconds: float = math.inf) -> None:
    """Do what is not done, for at most so long."""
    left = [job for job in jobs if job not in done]
    began = told = time.monotonic()
    if not left:
        return
    with Pool(workers, initializer=os.nice, initargs=(5,)) as pool:
        for number, (job, outcome) in enumerate(pool.imap_unordered(_do, left, chunksize=1), 1):
            done.add(job, outcome)
            now = time.monotonic()
            if now - told > 20:
                told = now
                print(f"  {number}/{len(left)} after {now - began:.0f} s", file=sys.stderr, flush=True)
            if now - began > seconds:
                break  # what is under way is lost
    done.ran(time.monotonic() - began)


def faults(results: list[Outcome]) -> list[str]:
    """A line for each false page and each wedge that was missed."""
    lines = []
    for one in results:
        rest = one.before if isinstance(one, Wedged) else one
        lines += [f"false page: {where}" for where in rest.where] if isinstance(rest, Healthy) else []
        if isinstance(one, Wedged) and one.delays[0] is None:
            lines.append(f"missed: {one.kind} seed {one.seed}")
    return lines


def main(arguments: list[str] | None = None) -> int:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--hours", type=float, default=FULL[0], help="healthy server-hours")
    parser.add_argument("--wedges", type=int, default=FULL[1], help="wedges of each kind")
    parser.add_argument("--months", type=int, default=FULL[2], help="server-months of each world, for early warnings")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stretch", type=float, default=10.0, help="hours that one healthy server lives")
    parser.add_argument("--keep", type=Path, help="where results are kept, to go on from them")
    parser.add_argument("--for", type=float, default=math.inf, dest="minutes", help="stop after so many minutes")
    parser.add_argument("--write", type=Path, help=f"where to write it; a full run writes {PAGE} without being told")
    options = parser.parse_args(arguments)
    done = Kept(options.keep)
    jobs = _jobs(options.hours, options.wedges, options.months, options.seed, options.stretch)
    run(jobs, done, options.workers, 60 * options.minutes)
    results = list(done)
    tables = table([one for one in results if not isinstance(one, Weeks)])
    weeks = report([one for one in results if isinstance(one, Weeks)])
    by_level = levels() if options.months >= FULL[2] else []
    print("\n".join([*tables, "", *weeks, "", *by_level]))
    wrong = faults(results)
    print("\n".join(wrong))
    command = f"python -m bench.detection --hours {options.hours:g} --wedges {options.wedges} --months {options.months}"
    full = (options.hours, options.wedges, options.months) >= FULL
    target = options.write or (PAGE if full else None)
    if target is not None:
        told = summary([one for one in results if not isinstance(one, Weeks)])
        text = page(command, options.workers, done.seconds / 60, [told, "", *tables], weeks, by_level)
        target.write_text(text, encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
