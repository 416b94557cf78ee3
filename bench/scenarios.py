"""Server-hours as they are lived: what happens to an engine and to our view of it, from a seed.

Every life is a :class:`Life`: an engine, an agenda of events, and whether our looks get through.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Final

from bench.queueing import Engine, Shape

__all__ = ["HEALTHY", "Life", "freeze", "shape_of", "steady"]

HOUR: Final = 3600.0
Act = Callable[[], None]


class Life:
    """One server under a load that takes a new ``rate`` at random times, ``changes`` seconds apart on average.

    Every server freezes now and then for up to 15 s: an adapter is loaded, storage hiccups, a neighbour is noisy.
    """

    def __init__(
        self,
        rng: random.Random,
        shape: Shape,
        rate: Callable[[], float],
        *,
        changes: float = 300.0,
        patience: float = float("inf"),
    ) -> None:
        self.rng, self.rate = rng, rate
        self.engine = Engine(rng, shape)
        self.engine.patience = patience
        self.lost_until = 0.0
        self.asleep: bool | None = None
        """What the page says of sleep; None: nothing."""
        self._agenda: list[tuple[float, int, Act]] = []
        self._entries = 0
        self.stopped = False
        """No load changes any more."""
        self.at(0.0, lambda: self._change(changes))
        self.every(2 * HOUR, lambda: freeze(self.engine, rng.uniform(2.0, 15.0)))

    def _change(self, changes: float) -> None:
        if not self.stopped:
            self.engine.set_rate(self.rate())
        self.at(self.engine.now + self.rng.expovariate(1 / changes), lambda: self._change(changes))

    def at(self, time: float, act: Act) -> None:
        """Do ``act`` at ``time``."""
        self._entries += 1
        heapq.heappush(self._agenda, (time, self._entries, act))

    def every(self, mean: float, act: Act) -> None:
        """Do ``act`` at random times, ``mean`` seconds apart on average."""

        def once() -> None:
            act()
            self.at(self.engine.now + self.rng.expovariate(1 / mean), once)

        self.at(self.rng.expovariate(1 / mean), once)

    def lose(self, seconds: float) -> None:
        """No look gets through for so long."""
        self.lost_until = max(self.lost_until, self.engine.now + seconds)

    def live(self, until: float) -> bool:
        """Let time pass up to a look. False: the look fails."""
        while self._agenda and self._agenda[0][0] <= until:
            time, _, act = heapq.heappop(self._agenda)
            self.engine.advance(time)
            act()
        self.engine.advance(until)
        return until >= self.lost_until

    def page(self) -> dict[str, float]:
        """What the look shows."""
        values = self.engine.page()
        if self.asleep is not None:
            values["sleeping"] = float(self.asleep)
        return values


def shape_of(rng: random.Random, style: str = "") -> Shape:
    """A GPU server: a small model on one card, a large one on four, a huge one on eight."""
    style = style or rng.choices(["vllm", "trtllm"], [0.65, 0.35])[0]
    slots, pool, prefill, step, per = {
        "small": (32, 60_000.0, 6_000.0, 0.02, 0.0006),
        "large": (128, 400_000.0, 12_000.0, 0.03, 0.0003),
        "huge": (256, 1_200_000.0, 20_000.0, 0.04, 0.0002),
    }[rng.choice(["small", "large", "huge"])]
    return Shape(
        style="vllm" if style == "vllm" else "trtllm",
        slots=slots,
        pool=pool,
        prefill=prefill,
        step=step,
        step_per_request=per,
        reserve=style == "trtllm",
    )


def freeze(engine: Engine, seconds: float) -> None:
    """The loop stands for a while."""
    engine.blocked_until = max(engine.blocked_until, engine.now + seconds)


def steady(rng: random.Random, low: float = 0.1, high: float = 0.85) -> Life:
    """A load that the server carries."""
    shape = shape_of(rng)
    load = shape.capacity() * rng.uniform(low, high)
    return Life(rng, shape, lambda: load * rng.uniform(0.8, 1.2))


def bursty(rng: random.Random) -> Life:
    """From nearly nothing to more than it can carry and back, within minutes."""
    shape = shape_of(rng)
    top = shape.capacity()
    return Life(rng, shape, lambda: top * rng.choice([0.01, 0.05, 0.5, 1.5, 2.5]), changes=rng.uniform(60, 600))


def saturated(rng: random.Random) -> Life:
    """More than it can carry for hours; clients give up after a minute or two, tight pools preempt."""
    shape = shape_of(rng)
    top = shape.capacity()
    patience, changes = rng.uniform(60, 180), rng.uniform(300, HOUR)
    return Life(rng, shape, lambda: top * rng.uniform(1.05, 1.8), patience=patience, changes=changes)


def long_prefill(rng: random.Random) -> Life:
    """Prompts of 200 thousand to a million tokens among others: counters stand still for minutes."""
    style = rng.choices(["vllm", "trtllm"], [0.7, 0.3])[0]
    shape = Shape(
        style="vllm" if style == "vllm" else "trtllm",
        slots=32,
        pool=2_500_000.0,
        prefill=rng.uniform(2_500, 12_000),
        longest=1_048_576.0,
        reserve=style == "trtllm",
    )
    few = rng.choice([0.0, 0.002, 0.02, 0.2])
    life = Life(rng, shape, lambda: few)
    life.every(900.0, lambda: life.engine.arrive(round(rng.uniform(2e5, 1e6)), 500.0))
    return life


def long_answers(rng: random.Random) -> Life:
    """A few requests that generate for a quarter of an hour each: no completion for minutes, tokens flow."""
    life = Life(rng, shape_of(rng), lambda: 0.0)
    life.every(240.0, lambda: life.engine.arrive(2000.0, round(rng.uniform(6_000, 30_000))))
    return life


def restarts(rng: random.Random) -> Life:
    """A rollout every half hour: the page is gone for minutes, counters start anew, first requests compile kernels."""
    life = steady(rng)
    engine = life.engine

    def stop() -> None:
        if life.stopped:
            return
        back = engine.now + rng.uniform(40, 300)
        life.lost_until, life.stopped = back, True
        engine.set_rate(0.0)
        engine.reset(back)
        life.at(back + rng.uniform(1, 60), begin)

    def begin() -> None:
        life.stopped = False
        engine.set_rate(life.rate())
        freeze(engine, rng.uniform(5, 90))  # graphs and kernels for the first request, more of them soon after
        if rng.random() < 0.5:
            life.at(engine.blocked_until + rng.uniform(30, 160), lambda: freeze(engine, rng.uniform(3, 30)))

    life.every(0.5 * HOUR, stop)
    return life


def night(rng: random.Random) -> Life:
    """A request every few minutes."""
    load = rng.choice([0.0005, 0.002, 0.01, 0.03])
    return Life(rng, shape_of(rng), lambda: load, changes=HOUR)


def slow_cpu(rng: random.Random) -> Life:
    """A CPU server: a token every few seconds, a chunk of a prompt in half a minute."""
    shape = Shape(
        slots=rng.choice([1, 2, 4]),
        pool=32_768.0,
        prefill=rng.uniform(25, 120),
        step=rng.uniform(0.3, 3.0),
        step_per_request=0.2,
        prompt=(600.0, 0.8),
        answer=(80.0, 0.8),
        longest=8_192.0,
        jitter=0.4,
    )
    load = shape.capacity() * rng.uniform(0.1, 1.3)
    return Life(rng, shape, lambda: load, patience=1800.0)


def weight_updates(rng: random.Random) -> Life:
    """New weights every few minutes, as in reinforcement learning. The engine says that it sleeps, or is drained first,
    or stands for up to 15 s without a word."""
    life = steady(rng)
    engine = life.engine
    manner = rng.choice(["sleep", "drain", "short"])
    life.asleep = False if manner == "sleep" else None

    def update() -> None:
        if life.stopped:
            return
        if manner == "short":
            freeze(engine, rng.uniform(2, 15))
            return
        life.stopped = True
        engine.set_rate(0.0)
        swap()

    def swap() -> None:
        if manner == "drain" and engine.in_flight():
            life.at(engine.now + 1.0, swap)
            return
        pause = rng.uniform(20, 120)
        freeze(engine, pause)
        if manner == "sleep":
            life.asleep = True
        life.at(engine.now + pause, resume)

    def resume() -> None:
        life.stopped = False
        engine.set_rate(life.rate())
        if manner == "sleep":
            life.asleep = False

    life.every(600.0, update)
    return life


def scrape_gaps(rng: random.Random) -> Life:
    """The page is lost now and then, for seconds or minutes; or the whole host is paused and resumed."""
    life = steady(rng)

    def lose() -> None:
        life.lose(rng.choice([6.0, 12.0, 30.0, 120.0, 300.0]))

    def pause_host() -> None:
        seconds = rng.choice([20.0, 60.0, 600.0])
        freeze(life.engine, seconds)
        life.lose(seconds)

    life.every(600.0, lose)
    life.every(1800.0, pause_host)
    return life


def disconnects(rng: random.Random) -> Life:
    """All clients go away at once; the engine has nothing left to do and does not push its gauges again."""
    life = steady(rng)
    engine = life.engine

    def leave() -> None:
        if life.stopped:
            return
        life.stopped = True
        engine.set_rate(0.0)
        engine.counts["aborted"] += engine.in_flight()
        engine.drop_all()
        quiet = rng.uniform(30, 900)
        freeze(engine, quiet)
        life.at(engine.now + quiet, come_back)

    def come_back() -> None:
        life.stopped = False
        engine.set_rate(life.rate())

    life.every(0.5 * HOUR, leave)
    return life


def transfers(rng: random.Random) -> Life:
    """A decode node: prompts are computed elsewhere, their KV comes over the network in seconds."""
    life = steady(rng)
    life.engine.transfer = rng.uniform(0.5, 6.0)
    return life


HEALTHY: Final[dict[str, tuple[Callable[[random.Random], Life], float]]] = {
    "steady": (steady, 0.15),
    "bursty": (bursty, 0.13),
    "saturated": (saturated, 0.12),
    "long prefill": (long_prefill, 0.10),
    "long answers": (long_answers, 0.05),
    "restarts": (restarts, 0.08),
    "idle, night": (night, 0.10),
    "slow CPU": (slow_cpu, 0.08),
    "weight updates": (weight_updates, 0.06),
    "scrape gaps, paused hosts": (scrape_gaps, 0.06),
    "mass disconnects": (disconnects, 0.04),
    "KV transfers": (transfers, 0.03),
}
"""Kinds of healthy hours and their share of all."""
