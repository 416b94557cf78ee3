"""The published matrix in kind: one knob for H and A, multi-round chat, four request rates, reuse on and off.

The reporter of TensorRT-LLM #13318 replayed multi-turn chat in twelve rounds and saw 4096 die at 7 requests per second,
8192 live at 40, and both die without partial reuse. Numbers cannot agree (another model, another trace, one pool
instead of a pool with host offload, and this engine knows no partial blocks); what can be shown in kind is that with
one knob for both quantities no setting is safe and none is certain to fail, and that room between them is.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from .config import Config
from .lengths import Lengths
from .simulate import Outcome, simulate
from .users import Ask, Population

__all__ = ["RATES", "REPORTED", "Cell", "published_matrix"]

RATES: Final = (5.2, 6.0, 7.0, 40.0)
REPORTED: Final[dict[tuple[int, str, float], str]] = {
    (4096, "on", 5.2): "clean",
    (4096, "on", 7.0): "6986 > 4096, hang",
    (8192, "on", 6.0): "clean",
    (8192, "on", 40.0): "clean",
    (4096, "off", 5.2): "4118 > 4096, hang",
    (8192, "off", 6.0): "8196 > 8192, hang",
}
"""https://github.com/NVIDIA/TensorRT-LLM/issues/13318; "off" there is partial reuse off, here reuse off."""

_STEP_SECONDS: Final = 0.05
_CONVERSATIONS: Final = 48
_ROUNDS: Final = 12


@dataclass
class Cell:
    """One setting at one rate: H, A, reuse, and how the runs went."""

    hard: int
    packed: int
    reuse: bool
    rate: float
    outcomes: list[Outcome]

    @property
    def wedges(self) -> int:
        return sum(1 for outcome in self.outcomes if outcome.wedged)

    @property
    def example(self) -> str:
        totals = [outcome.total_num_tokens for outcome in self.outcomes if outcome.wedged]
        return f"{max(totals)} > {self.hard}" if totals else "clean"


def rounds(rate: float, seed: int) -> list[Ask]:
    """Every conversation's first turn, then every second turn, and so on, at ``rate`` per second; times in steps."""
    lengths = Lengths(prompt_scale=1 / 4, output_scale=1 / 2, max_prompt=12000, max_output=400)
    people = Population(lengths, seed, turns=_ROUNDS, system_tokens=512)
    streams = [people.asks(user) for user in range(_CONVERSATIONS)]
    draw = random.Random(seed)
    asks: list[Ask] = []
    now = 0.0
    for _ in range(_ROUNDS):
        for stream in streams:
            now += draw.expovariate(rate)
            asks.append(replace(next(stream), at=now / _STEP_SECONDS))
    return asks


def published_matrix(*, seeds: int = 10, tell: Callable[[str], None] = lambda _: None) -> list[Cell]:
    """Every setting at every rate, and below them the same loads with A lowered and H as it was."""
    cells = []
    for hard, packed, reuse in (
        *((h, h, on) for h in (4096, 8192) for on in (True, False)),
        *((h, h // 4, True) for h in (4096, 8192)),
    ):
        for rate in RATES:
            tell(f"H = {hard}, A = {packed}, reuse {'on' if reuse else 'off'}, {rate} per second")
            outcomes = [_run(hard, packed, reuse, rate, seed) for seed in range(seeds)]
            cells.append(Cell(hard, packed, reuse, rate, outcomes))
    return cells


def _run(hard: int, packed: int, reuse: bool, rate: float, seed: int) -> Outcome:
    config = Config(
        profile="reuse" if reuse else "reserve",
        hard_tokens=hard,
        step_tokens=packed,
        kv_blocks=6000,
        block_tokens=32,
        max_batch=256,
        max_seq_len=12512,
        seed=seed,
    )
    asks = rounds(rate, seed)
    return simulate(config, Population(seed=seed), asks=asks, steps=int(asks[-1].at or 0) + 2000)
