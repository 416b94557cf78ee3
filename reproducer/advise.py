"""How low must the ceiling be? The largest that is provably safe, the largest that survives, and what each costs.

Provable means for every traffic that is legal. Surviving means: in so many runs of this traffic none wedged, so that
with the stated confidence the chance per run is below the stated one (the rule of three, made exact: 59 runs without a
wedge exclude 5 % at 95 %). The first holds when the traffic changes, the second does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .config import Config
from .simulate import Outcome, simulate
from .threshold import sprt
from .users import population_for

__all__ = ["Advice", "advise", "runs_needed"]


@dataclass(frozen=True, slots=True)
class Advice:
    """One knob. ``cost`` is the throughput given up at the same load, against buffers without end (assertion profiles)
    or a scheduler that evicts."""

    knob: str
    now: float
    provable: float | None
    survives: float | None
    runs: int
    throughput: float | None
    cost: float | None

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    def sentence(self) -> str:
        provable = "no setting is provably safe" if self.provable is None else f"provably safe up to {self.provable:g}"
        if self.survives is None:
            return f"{self.knob} (now {self.now:g}): {provable}; no setting survives this load"
        cost = "" if self.cost is None else f", at a cost of {max(0.0, self.cost):.0%} of throughput"
        return (
            f"{self.knob} (now {self.now:g}): {provable}; up to {self.survives:g} none of {self.runs} runs wedged{cost}"
        )


def runs_needed(chance: float, confidence: float) -> int:
    """Runs without a wedge that exclude a wedge in more than ``chance`` of runs at this confidence."""
    return math.ceil(math.log(1 - confidence) / math.log(1 - chance))


def advise(
    config: Config,
    users: int,
    *,
    chance: float = 0.05,
    confidence: float = 0.95,
    steps: int = 2000,
    tell: Callable[[str], None] = lambda _: None,
) -> list[Advice]:
    """Advice for each ceiling on claims that the profile's mechanism leaves."""
    need = runs_needed(chance, confidence)
    reference = _mean(_run(_roomy(config), users, seed, steps, config.profile) for seed in range(5))
    out = []
    for knob, candidates, provable in _ceilings(config, users):
        best = _largest(config, knob, candidates, users, need, steps, tell)
        rate = None
        if best is not None:
            rate = _mean(_run(config.with_(**{knob: best}), users, seed, steps) for seed in range(5))
        cost = 1 - rate / reference if rate and reference else None
        out.append(Advice(knob, getattr(config, knob), provable, best, need, rate, cost))
    return out


def _ceilings(config: Config, users: int) -> list[tuple[str, list[float], float | None]]:
    """Knob, settings from low to high, and the largest that is provably safe at any load."""
    batches: list[float] = [float(k) for k in range(1, min(config.max_batch, users) + 1)]
    if config.rules.speculate:
        budgets = [float(a) for a in range(max(config.block_tokens, config.hard_tokens // 2), config.hard_tokens + 1)]
        provable = config.hard_tokens - config.max_batch
        slack = config.hard_tokens - config.step_tokens
        return [
            ("step_tokens", budgets, float(provable) if provable >= config.block_tokens else None),
            ("max_batch", batches, float(slack) if slack else None),
        ]
    if config.rules.prefix_cache:
        return [("step_tokens", [config.hard_tokens * k / 16 for k in range(4, 17)], None)]
    shares = [k / 20 for k in range(4, 21)]
    safe = float(config.safe_concurrency) or None
    return [("max_batch", batches, safe), ("kv_ceiling", shares, None)]


def _largest(
    config: Config,
    knob: str,
    settings: list[float],
    users: int,
    need: int,
    steps: int,
    tell: Callable[[str], None],
) -> float | None:
    """Bisect for the highest setting that mostly survives, then go down until ``need`` runs in a row do."""

    def wedges(setting: float, seed: int) -> bool:
        return bool(_run(config.with_(**{knob: _typed(config, knob, setting)}), users, seed, steps).wedged)

    low, high = -1, len(settings)
    while high - low > 1:
        middle = (low + high) // 2
        tell(f"{knob} = {settings[middle]:g}")
        above, _, _ = sprt(lambda run, m=middle: wedges(settings[m], 1000 + run))  # type: ignore[misc]  # default binds m
        low, high = (low, middle) if above else (middle, high)
    while low >= 0:
        tell(f"{knob} = {settings[low]:g}: {need} runs")
        if not any(wedges(settings[low], seed) for seed in range(need)):
            best: float = _typed(config, knob, settings[low])
            return best
        low -= max(1, len(settings) // 40)
    return None


def _typed(config: Config, knob: str, setting: float) -> Any:
    return type(getattr(config, knob))(setting)


def _roomy(config: Config) -> Config:
    """What the same hardware gives when claims may grow: buffers without end, or a scheduler that evicts."""
    if config.rules.speculate or config.rules.prefix_cache:
        return config.with_(hard_tokens=config.hard_tokens + config.max_batch * config.max_seq_len)
    return config.with_(profile="preempt")


def _run(config: Config, users: int, seed: int, steps: int, traffic: str = "") -> Outcome:
    population = population_for(traffic or config.profile, config.max_seq_len, seed)
    return simulate(config.with_(seed=seed), population, users=users, steps=steps)


def _mean(outcomes: Any) -> float | None:
    rates = [outcome.throughput for outcome in outcomes if not outcome.wedged]
    return sum(rates) / len(rates) if rates else None
