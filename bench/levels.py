"""What load levels buy: a deadline for each, against one for all, on an engine that shows completions only.

Neither vLLM nor TensorRT-LLM is such an engine, their pages move with every step. Where only ends of requests are
counted, the gap between two of them is minutes at night and seconds at noon.
"""

from __future__ import annotations

import dataclasses
import random
import statistics
from collections.abc import Iterator
from typing import Any, Final

from agent.detect.deadline import GapHistory
from agent.detect.progress import ProgressTracker
from agent.model import Sample
from bench.scenarios import Life, shape_of
from bench.wedges import FOREVER

__all__ = ["levels"]

SCRAPE: Final = 5.0
_SHOWN: Final = ("requests_running", "requests_waiting", "requests_finished_total", "process_start_time_seconds")


class _OneForAll(GapHistory):
    """A history that does not tell loads apart."""

    def add(self, gap: float, load: float = 1.0) -> None:
        super().add(gap, 1.0)


def _life(seed: int) -> Life:
    rng = random.Random(f"levels {seed}")
    answer = (rng.choice([150.0, 300.0]), 0.6)
    shape = dataclasses.replace(shape_of(rng, "trtllm"), slots=rng.choice([8, 32, 64]), answer=answer)
    top = shape.capacity()
    return Life(rng, shape, lambda: top * rng.choice([0.003, 0.01, 0.03, 0.1, 0.3, 0.6, 0.9, 1.1]), changes=1200.0)


def _looks(life: Life, tracker: ProgressTracker, now: float) -> Iterator[float]:
    while True:
        now += SCRAPE
        life.live(now)
        page = life.page()
        tracker.observe(Sample(now, "s", "metrics", {name: page[name] for name in _SHOWN}))
        yield now


def _run(seed: int, hours: float, history: Any) -> tuple[int, float | None]:
    """False pages in ``hours``, and the delay of a wedge under load after them."""
    life, tracker = _life(seed), ProgressTracker()
    tracker.looks.patience.history = history
    pages, was, stopped = 0, False, 0.0
    for now in _looks(life, tracker, 0.0):
        stall = tracker.stall is not None
        if stopped:
            if stall or now > stopped + 900:
                return pages, now - stopped if stall else None
            continue
        pages += stall and not was
        was = stall
        if now > hours * 3600 and not stall and life.engine.gauges[0] >= 0.5 * life.engine.shape.slots:
            life.engine.blocked_until, stopped = FOREVER, life.engine.last_progress
    raise AssertionError("looks never end")


def levels(servers: int = 40, hours: float = 12.0) -> list[str]:
    """A table as Markdown."""
    lines = [
        "| deadline | server-hours | false pages | wedges under load | missed | delay, median | p99 |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, history in (("by load level", GapHistory), ("one for all loads", _OneForAll)):
        results = [_run(seed, hours, history()) for seed in range(servers)]
        delays = sorted(delay for _, delay in results if delay is not None)
        pages, missed = sum(count for count, _ in results), servers - len(delays)
        middle, worst = statistics.median(delays), delays[min(len(delays) - 1, int(0.99 * len(delays)))]
        lines.append(
            f"| {name} | {servers * hours:,.0f} | {pages} | {servers} | {missed} | {middle:.0f} s | {worst:.0f} s |"
        )
    return lines
