"""Where the onset should be, before anything is run: a bracket from the traffic and the pool alone.

A user who is always asking holds, averaged over the life of a request, ``mu`` blocks with spread ``sigma``. With C of
them the sum is near C * mu. *Exhaustion* is the C at which the sum reaches N about once in the time of a run, drawn at
random; being exhausted is not yet being deadlocked, for a holder may finish inside its block, so it is the lower end.
The *Gaussian* is the same question with a normal distribution for the sum, which forgets that it cannot exceed N: the
upper end. For ``draft`` no traffic is needed: n decodes, each one token longer than charged, pass H at n = H - A + 1.
"""

from __future__ import annotations

import math
import random
from statistics import fmean, pstdev
from typing import Any

from .config import Config
from .users import Population

__all__ = ["bracket"]

_DRAWS = 4000


def bracket(config: Config, population: Population, *, steps: int = 3000, seed: int = 1) -> dict[str, Any]:
    """``low`` and ``high`` end of the bracket and what they come from; empty where no prediction is made."""
    if config.rules.speculate:
        onset = config.hard_tokens - config.step_tokens + 1
        return {"low": onset, "high": onset + 2, "mean_field": onset}
    if config.profile not in ("deadlock", "prefill"):
        return {}
    prompts, outputs = _lengths(config, population, seed)
    holds, cycle = _holds(config, prompts, outputs, seed)
    mu, sigma = fmean(holds), pstdev(holds)
    looks = steps / cycle
    gaussian = _solve(lambda c: looks * 0.5 * math.erfc((config.kv_blocks - c * mu) / (sigma * math.sqrt(2 * c))))
    draw = random.Random(seed)
    exhaustion = _solve(lambda c: looks * _exceeds(holds, c, config.kv_blocks, draw))
    low, high = sorted((exhaustion, gaussian))
    return {
        "low": round(low, 1),
        "high": round(high, 1),
        "exhaustion": round(exhaustion, 1),
        "gaussian": round(gaussian, 1),
        "mean_field": round(config.kv_blocks / mu, 1),
        "mean_blocks": round(mu, 2),
        "cycle_steps": round(cycle, 1),
    }


def _lengths(config: Config, population: Population, seed: int) -> tuple[list[int], list[int]]:
    draw = random.Random(seed)
    lengths = population.lengths
    prompts = [lengths.prompt(draw.random()) for _ in range(_DRAWS)]
    return prompts, [max(1, min(lengths.output(draw.random()), config.max_seq_len - prompt)) for prompt in prompts]


def _holds(config: Config, prompts: list[int], outputs: list[int], seed: int) -> tuple[list[float], float]:
    """Blocks held by a user at a random moment, and the steps of a mean request."""
    draw = random.Random(seed + 1)
    pairs = list(zip(prompts, outputs, strict=True))
    chosen = draw.choices(pairs, weights=[1 + output for _, output in pairs], k=_DRAWS)
    holds = [float(config.blocks_for(prompt + draw.randint(0, output))) for prompt, output in chosen]
    return holds, fmean(1 + output for output in outputs)


def _exceeds(holds: list[float], users: float, blocks: int, draw: random.Random) -> float:
    """Share of random moments at which ``users`` of them need more than the pool has."""
    whole, part = int(users), users - int(users)
    over = 0
    for _ in range(600):
        total = sum(draw.choices(holds, k=whole)) + part * draw.choice(holds)
        over += total > blocks
    return over / 600


def _solve(expected: Any) -> float:
    """The C at which a wedge is as likely as not, given the expected number of moments that lead to one."""
    low, high = 1.0, 2.0
    while expected(high) < math.log(2):
        low, high = high, high * 2
    for _ in range(24):
        middle = (low + high) / 2
        low, high = (middle, high) if expected(middle) < math.log(2) else (low, middle)
    return (low + high) / 2
