"""Two-sided headroom replay: the third check of the checklist, made so that it can come out either way.

"Reduce the budget and replay; if it survives, it was contention" is only right when the thing reduced is a ceiling on
*claims*. Lowering a hard capacity makes contention worse, and lowering a knob that is both at once proves nothing: in
the published TensorRT-LLM matrix the server died at ``max_num_tokens`` 4096 and lived at 8192. So the same load is run
again

1. with a lower admission ceiling (A with H fixed, or K): must survive,
2. with a smaller hard capacity (H and A together, or N): must wedge at least as readily,
3. with more headroom (H with A fixed, or N): must survive,

and with one user, where only a request that never fits can wedge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from .config import Config
from .predict import bracket
from .simulate import Outcome, simulate
from .users import Population, Recorded, population_for

__all__ = ["Replay", "Row", "replay", "variants"]

Role = Literal["as it was", "one user", "lower ceiling", "smaller capacity", "more headroom", "control"]
Runner = Callable[[Config, int, int], Outcome]
"""Runs a configuration with so many users and a seed."""


@dataclass
class Row:
    """One configuration under the load. Survivors alone have a throughput that means anything."""

    role: Role
    change: str
    config: Config
    users: int
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def wedges(self) -> int:
        return sum(1 for outcome in self.outcomes if outcome.wedged)

    @property
    def share(self) -> float:
        return self.wedges / len(self.outcomes)

    @property
    def throughput(self) -> float | None:
        """Completions per thousand steps over the runs that survived."""
        alive = [outcome.throughput for outcome in self.outcomes if not outcome.wedged]
        return sum(alive) / len(alive) if alive else None

    @property
    def p99(self) -> float | None:
        waits = sorted(wait for outcome in self.outcomes if not outcome.wedged for wait in outcome.latencies)
        return waits[int(0.99 * (len(waits) - 1))] if waits else None

    @property
    def first(self) -> int | None:
        """Median step of the wedge."""
        steps = sorted(outcome.step for outcome in self.outcomes if outcome.wedged)
        return steps[len(steps) // 2] if steps else None

    def to_json(self) -> dict[str, Any]:
        return {
            "role": self.role,
            "change": self.change,
            "users": self.users,
            "wedges": self.wedges,
            "runs": len(self.outcomes),
            "median_wedge_step": self.first,
            "throughput": None if self.throughput is None else round(self.throughput, 1),
            "p99": self.p99,
        }


@dataclass
class Replay:
    """``unit`` is what the outcomes count time in: ``steps``, or ``ms`` for runs against live servers."""

    rows: list[Row]
    unit: str = "steps"

    def of(self, role: Role) -> list[Row]:
        return [row for row in self.rows if row.role == role]

    @property
    def verdict(self) -> Literal["contention", "not reproduced", "single request", "undecided"]:
        base, single = self.of("as it was")[0], self.of("one user")[0]
        if single.share > 0:
            return "single request"
        if base.share <= 0.5:
            return "not reproduced"
        lower = min(row.share for row in self.of("lower ceiling"))
        smaller = max(row.share for row in self.of("smaller capacity"))
        more = min(row.share for row in self.of("more headroom"))
        return "contention" if lower == 0 and more == 0 and smaller >= base.share - 0.1 else "undecided"

    @property
    def answer(self) -> str:
        """Checklist 3 in one sentence."""
        base = self.of("as it was")[0]
        if self.verdict == "single request":
            return "No: it wedges with one user too, so a single request is at fault and no lower ceiling is a cure."
        if self.verdict == "not reproduced":
            return f"Not reproduced: {base.wedges} of {len(base.outcomes)} runs wedge at this load; raise the load."
        if self.verdict == "contention":
            cure = min(self.of("lower ceiling"), key=lambda row: (row.wedges, -(row.throughput or 0)))
            return (
                f"Yes: with {cure.change} the same load survives, with a smaller capacity it wedges all the same, "
                "with more headroom it survives: claims contend for a budget, no single request is at fault."
            )
        said = "; ".join(f"{row.role} ({row.change}) {row.wedges} of {len(row.outcomes)}" for row in self.rows[2:-2])
        return f"Undecided: the replays do not agree (wedged: {said}); a window of load, or too few seeds."

    def table(self) -> str:
        """The paired table as Markdown."""
        lines = [
            f"| replay | change | wedged | after, median {self.unit} | completions / 1000 {self.unit} "
            f"| p99 latency, {self.unit} |",
            "|---|---|---|---|---|---|",
        ]
        for row in self.rows:
            rate = "-" if row.throughput is None else f"{row.throughput:.0f}"
            tail = "-" if row.p99 is None else f"{row.p99:.0f}"
            first = "-" if row.first is None else str(row.first)
            lines.append(
                f"| {row.role} | {row.change} | {row.wedges} of {len(row.outcomes)} | {first} | {rate} | {tail} |"
            )
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        return {
            "unit": self.unit,
            "verdict": self.verdict,
            "answer": self.answer,
            "rows": [row.to_json() for row in self.rows],
        }


def variants(config: Config, users: int) -> list[Row]:
    """What to run: the load as it was, and the same load with one quantity changed."""
    c, n = config, min(users, config.max_batch)
    rows = [Row("as it was", "-", c, users), Row("one user", "users = 1", c, 1)]

    def add(role: Role, change: str, **knobs: Any) -> None:
        rows.append(Row(role, change, c.with_(**knobs), users))

    half = max(c.hard_tokens // 2, c.block_tokens)
    if c.rules.speculate or c.rules.prefix_cache:
        growth = n if c.rules.speculate else c.hard_tokens // 2
        room = max(c.block_tokens, c.hard_tokens - growth)
        add("lower ceiling", f"A = {room}, H = {c.hard_tokens}", step_tokens=room)
        if c.rules.speculate and (slack := c.hard_tokens - c.step_tokens):
            add("lower ceiling", f"max_batch = {min(slack, c.max_batch)}", max_batch=min(slack, c.max_batch))
        add("smaller capacity", f"A = H = {half}", hard_tokens=half, step_tokens=half)
        more = c.step_tokens + (n * c.max_draft if c.rules.speculate else c.max_batch * c.max_seq_len)
        add("more headroom", f"H = {more}, A = {c.step_tokens}", hard_tokens=more)
    else:
        predicted = bracket(c, population_for(c.profile, c.max_seq_len, 0)).get("low", 1.5 * (c.safe_concurrency or 4))
        safe = max(1, min(c.max_batch, int(0.7 * predicted)))
        add("lower ceiling", f"max_batch = {safe}", max_batch=safe)
        add("smaller capacity", f"N = {c.kv_blocks // 2}", **_pool(c, c.kv_blocks // 2))
        add("more headroom", f"N = {c.kv_blocks * 4}", kv_blocks=c.kv_blocks * 4)
    for control in ("reserve", "preempt"):
        shape = c.with_(profile=control, max_seq_len=min(c.max_seq_len, c.kv_pool_tokens - c.max_draft))
        rows.append(Row("control", f"scheduler that can {_CAN[control]}", shape, users))
    return rows


_CAN = {"reserve": "reserve", "preempt": "preempt"}


def replay(
    config: Config,
    users: int,
    *,
    seeds: int = 10,
    steps: int = 3000,
    load: Recorded | None = None,
    step_ms: float = 10.0,
    run: Runner | None = None,
    tell: Callable[[str], None] = lambda _: None,
    rows: Sequence[Row] | None = None,
) -> Replay:
    """Run every variant with every seed, by default without a model. The times of a recorded ``load`` become steps."""

    def simulated(changed: Config, count: int, seed: int) -> Outcome:
        if load and load.timed:
            asks = load.at_steps(step_ms / 1000, only_first=count == 1)
            return simulate(changed.with_(seed=seed), load, asks=asks, steps=steps)
        population: Population | Recorded = load or population_for(config.profile, config.max_seq_len, seed)
        return simulate(changed.with_(seed=seed), population, users=count, steps=steps)

    table = list(rows or variants(config, users))
    for row in table:
        for seed in range(seeds):
            tell(f"{row.role}: {row.change}, run {seed + 1} of {seeds}")
            row.outcomes.append((run or simulated)(row.config, row.users, seed))
    return Replay(table)


def _pool(config: Config, blocks: int) -> dict[str, Any]:
    """A smaller pool, and requests cut to what can still fit one at a time: nothing may become oversize by it."""
    return {"kv_blocks": blocks, "max_seq_len": min(config.max_seq_len, blocks * config.block_tokens)}
