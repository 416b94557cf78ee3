"""The scheduler without a model: the same ``step()``, driven as fast as Python goes, on a clock that counts steps.

What the model would decide is drawn instead: tokens are blanks, and how much of a draft is accepted follows from a
chance per token. Everything else is the real thing, so thousands of runs say how often a shape wedges under a load.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .batch import Batch, Claim, SampleState
from .config import Config
from .request import Request
from .scheduler import Scheduler
from .users import Ask, Users

__all__ = ["Outcome", "simulate"]

BLANK = 32


@dataclass(slots=True)
class Outcome:
    """What a run came to. ``wedged`` is ``assertion``, ``deadlock`` or empty; times are in steps."""

    wedged: str = ""
    error: str = ""  # the exception that ended the loop
    step: int = 0
    steps: int = 0
    completed: int = 0
    accepted: int = 0
    tokens: int = 0
    charged: int = 0
    total_num_tokens: int = 0
    preemptions: int = 0
    first_shortage: int | None = None
    waiting: int = 0
    running: int = 0
    largest_silence: int = 0  # steps between two completions
    latencies: list[int] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)

    @property
    def throughput(self) -> float:
        """Completions per thousand steps."""
        return 1000 * self.completed / self.steps if self.steps else 0.0

    def to_json(self) -> dict[str, Any]:
        ordered = sorted(self.latencies)
        return {
            "wedged": self.wedged,
            "step": self.step,
            "completed": self.completed,
            "throughput_per_1000_steps": round(self.throughput, 2),
            "latency_steps_p99": ordered[int(0.99 * (len(ordered) - 1))] if ordered else None,
            "total_num_tokens": self.total_num_tokens,
            "waiting": self.waiting,
            "running": self.running,
            "preemptions": self.preemptions,
            "first_shortage": self.first_shortage,
        }


class Guess:
    """Stands where the model stands: prepares the real inputs, then draws what comes out."""

    def __init__(self, scheduler: Scheduler, seed: int, acceptance: float) -> None:
        self.scheduler, self.draw, self.acceptance = scheduler, random.Random(seed), acceptance

    def __call__(self, batch: Batch) -> SampleState:
        self.scheduler.prepare(batch)
        out: SampleState = []
        for row in batch.rows:
            tokens = [BLANK] if row.request.computed + row.appended - row.draft == row.request.length else []
            for _ in range(row.draft):
                if self.draw.random() >= self.acceptance:
                    break
                tokens.append(BLANK)
            out.append(tokens)
        return out


def simulate(
    config: Config,
    population: Users,
    *,
    users: int = 0,
    arrivals_per_step: float = 0.0,
    asks: list[Ask] | None = None,
    steps: int = 3000,
    acceptance: float = 0.7,
) -> Outcome:
    """Run until a wedge or for ``steps``.

    ``users`` who each wait for their answer make a closed loop; ``arrivals_per_step`` makes an open one (Poisson);
    ``asks`` is a recorded load whose ``at`` counts steps. They add up. A deadlock is a step that schedules nothing
    while requests run or wait and no transfer is under way: with nobody to finish, no later step can differ except by
    more arrivals, and those free no block.
    """
    scheduler = Scheduler(config)
    guess = Guess(scheduler, config.seed, acceptance)
    outcome = Outcome()
    streams = {user: population.asks(user) for user in range(users)}
    owner: dict[int, int] = {}
    born: dict[int, int] = {}
    limit = config.max_seq_len
    numbers = iter(range(1 << 62))

    def send(ask: Ask, now: int, user: int = -1) -> None:
        request = Request(next(numbers), ask.prompt, max(1, min(ask.output_tokens, limit - ask.prompt_tokens)))
        owner[request.id], born[request.id] = user, now
        outcome.accepted += 1
        scheduler.add(request)

    for user, stream in streams.items():
        if ask := next(stream, None):
            send(ask, 0, user)
    later = _arrivals(population, users, arrivals_per_step, asks or [], config.seed)
    due = next(later, None)
    last = 0
    for now in range(steps):
        while due and due[0] <= now:
            send(due[1], now)
            due = next(later, None)
        outcome.steps = now + 1
        preempted = scheduler.preemptions
        try:
            batch = scheduler.step(guess)
        except (AssertionError, ValueError) as error:  # ValueError: the buffers of H themselves, with assertions off
            outcome.error = type(error).__name__
            outcome.wedged, outcome.step, outcome.total_num_tokens = "assertion", now, scheduler.total_num_tokens
            break
        outcome.tokens += scheduler.total_num_tokens if batch.rows else 0
        outcome.charged += batch.charged
        if scheduler.claims and outcome.first_shortage is None:
            outcome.first_shortage = now
        for request in scheduler.finished:
            outcome.completed += 1
            outcome.latencies.append(now - born.pop(request.id))
            outcome.largest_silence, last = max(outcome.largest_silence, now - last), now
            if (user := owner.pop(request.id)) >= 0 and (ask := next(streams[user], None)):
                send(ask, now, user)
        moving = scheduler.connector and any(request.loading for request in scheduler.waiting)
        still = not batch.rows and not moving and scheduler.preemptions == preempted
        if still and any(scheduler.requests()):
            outcome.wedged, outcome.step, outcome.claims = "deadlock", now, list(scheduler.claims)
            break
    outcome.preemptions = scheduler.preemptions
    outcome.waiting, outcome.running = len(scheduler.waiting), len(scheduler.running)
    scheduler.kv.audit(scheduler.requests())
    return outcome


def _arrivals(population: Users, first: int, rate: float, asks: list[Ask], seed: int) -> Iterator[tuple[float, Ask]]:
    recorded = ((ask.at or 0.0, ask) for ask in asks)
    yield from heapq.merge(recorded, _poisson(population, first, rate, seed), key=lambda pair: pair[0])


def _poisson(population: Users, first: int, rate: float, seed: int) -> Iterator[tuple[float, Ask]]:
    if rate <= 0:
        return
    draw = random.Random(f"{seed}/arrivals")
    now, user = 0.0, first
    while True:
        now += draw.expovariate(rate)
        yield now, next(population.asks(user))
        user += 1
