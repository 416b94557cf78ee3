"""Ways to stop: each takes a server that lives and makes it stand, at a time of its own."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bench.queueing import Engine, Request
from bench.scenarios import Life, freeze, shape_of, steady

__all__ = ["WEDGES", "Wedge"]

FOREVER: Final = 1e12


@dataclass(frozen=True, slots=True)
class Wedge:
    """A kind of wedge. ``after`` bounds the healthy seconds before it; ``ready`` says whether it can begin now."""

    build: Callable[[random.Random], Life]
    stop: Callable[[Life], None]
    after: tuple[float, float] = (600.0, 2400.0)
    ready: Callable[[Engine], bool] = lambda engine: engine.gauges[0] + engine.gauges[1] > 0
    """A loop that stands before its page ever showed the work cannot be seen there: see the limits in docs."""
    replicas: int = 1


def _block(life: Life) -> None:
    """A step that never returns: gauges keep their last values."""
    life.engine.blocked_until = FOREVER


def _spin(life: Life) -> None:
    """The loop turns and schedules nothing."""
    life.engine.spins = True


def _either(life: Life) -> None:
    (_block if life.rng.random() < 0.5 else _spin)(life)


def _trickle(life: Life) -> None:
    """A fraction of a token a second in all, nothing completes, new requests queue."""
    engine = life.engine
    engine.admits = False
    engine.lengthen()
    speed = life.rng.uniform(0.2, 1.0)

    def drip() -> None:
        engine.counts["generated"] += speed
        life.at(engine.now + 1.0, drip)

    engine.spins = True
    drip()


def _livelock(life: Life) -> None:
    """Requests are thrown out and taken back for ever: preemptions climb, the pool flaps, next to nothing comes out."""
    engine, rng = life.engine, life.rng
    engine.spins = True
    engine.held = 0.97 * engine.shape.pool

    def thrash() -> None:
        engine.counts["preempted"] += rng.randint(2, 12)
        engine.held = engine.shape.pool * rng.uniform(0.93, 1.0)
        if rng.random() < 0.05:
            engine.counts["generated"] += 1
        life.at(engine.now + 1.0, thrash)

    thrash()


def _oversize(life: Life) -> None:
    """The head of the queue can never be admitted; what runs completes, nothing follows."""
    engine = life.engine
    engine.waiting.appendleft(Request(engine.now, 2 * engine.shape.pool, 100.0))


def _frozen(life: Life) -> None:
    """The executor's thread is dead: every series stands still, only clients that give up are still counted."""
    life.engine.patience = life.rng.choice([20.0, 60.0, 300.0])
    for request in (*life.engine.waiting, *life.engine.prefilling, *(r for _, _, r in life.engine.running)):
        request.patience = request.patience if request.patience < FOREVER else life.engine.patience
    life.engine.blocked_until = FOREVER


def _vllm(rng: random.Random, low: float, high: float) -> Life:
    shape = shape_of(rng, "vllm")
    load = shape.capacity() * rng.uniform(low, high)
    return Life(rng, shape, lambda: load * rng.uniform(0.8, 1.2))


def _cold(rng: random.Random) -> Life:
    life = steady(rng, 0.5, 3.0)
    freeze(life.engine, rng.uniform(0, 20))
    return life


WEDGES: Final[dict[str, Wedge]] = {
    "full stop, light load": Wedge(lambda rng: steady(rng, 0.02, 0.15), _either),
    "full stop, usual load": Wedge(lambda rng: steady(rng, 0.3, 0.7), _either),
    "full stop, overload": Wedge(lambda rng: steady(rng, 1.0, 1.6), _either),
    "before ten completions": Wedge(_cold, _either, after=(2.0, 30.0)),
    "one replica of eight": Wedge(lambda rng: steady(rng, 0.3, 0.8), _either, after=(300.0, 900.0), replicas=8),
    "trickle": Wedge(lambda rng: _vllm(rng, 0.3, 1.2), _trickle),
    "preemption livelock": Wedge(lambda rng: _vllm(rng, 0.7, 1.3), _livelock),
    "oversize head": Wedge(lambda rng: steady(rng, 0.2, 0.9), _oversize),
    "gauges frozen": Wedge(lambda rng: steady(rng, 0.2, 1.2), _frozen),
}
"""Kinds of wedges."""
