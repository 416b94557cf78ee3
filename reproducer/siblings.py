"""The other things that look like a wedge, or are feared to be one: each reached, none printed.

Virtual scenarios (:mod:`reproducer.virtual`): the same engine, another load, another accident. What a watcher may say:
one of ``pages`` where there are any and none where there are none, and no warning but those of ``warnings``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from .config import preset
from .lengths import Lengths
from .users import Population, population_for
from .virtual import World

__all__ = ["SCENARIOS", "Scenario"]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A server's ten minutes. ``wedges`` says that its loop must have stopped by the end."""

    build: Callable[[int], World]
    about: str
    pages: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    wedges: bool = False
    minutes: float = 10.0


def _profile(profile: str, before: int, after: int, at: float = 300.0) -> Callable[[int], World]:
    """A few users for some minutes, and from ``at`` seconds on more than the profile can bear."""

    def build(seed: int) -> World:
        config = preset(profile, seed=seed)
        world = World(config, seed=seed)
        people = population_for(profile, config.max_seq_len, seed)
        world.closed(people, range(before), start=25)
        world.closed(people, range(before, after), start=at)
        return world

    return build


def _steady(users: int, profile: str = "preempt", voice: str | None = None) -> Callable[[int], World]:
    def build(seed: int) -> World:
        world = World(preset(profile, seed=seed), seed=seed, voice=voice)
        world.closed(Population(seed=seed), range(users), start=25)
        return world

    return build


def _open(rate: float, profile: str) -> Callable[[int], World]:
    def build(seed: int) -> World:
        world = World(preset(profile, seed=seed), seed=seed)
        world.arrivals(Population(seed=seed), rate, start=25, end=600)
        return world

    return build


def _idle(seed: int) -> World:
    world = World(preset("preempt", seed=seed), seed=seed)
    world.arrivals(Population(seed=seed), 2.0, start=25, end=120)
    return world


def _bursts(seed: int) -> World:
    world = World(preset("preempt", seed=seed), seed=seed)
    for start in (30, 150, 270, 390, 510):
        world.arrivals(Population(seed=seed), 4.0, start=start, end=start + 30)
    return world


def _long_prefill(seed: int) -> World:
    """One prompt of several minutes, alone: no counter moves, only the use of the cache."""
    config = preset("preempt", seed=seed, kv_blocks=4096, max_seq_len=16000, step_tokens=32, hard_tokens=32)
    world = World(config, seed=seed, step_seconds=0.5)
    world.arrivals(Population(seed=seed), 0.2, start=25, end=100)
    giant = Population(Lengths(prompt_scale=1e6, max_prompt=12000, max_output=40), seed)
    world.closed(giant, range(1), start=130)
    return world


def _long_generation(seed: int) -> World:
    """A few answers of minutes each: completions are rare, tokens are not."""
    config = preset("preempt", seed=seed, kv_blocks=8192, max_seq_len=8000)
    world = World(config, seed=seed, step_seconds=0.03)
    world.closed(Population(Lengths(output_scale=1e6, max_output=5000), seed), range(3), start=30)
    return world


def _restart(seed: int) -> World:
    world = _steady(8)(seed)
    world.at(300, world.restart)
    return world


def _scrape_gap(seed: int) -> World:
    def see(blind: bool) -> None:
        world.blind = blind

    world = _steady(8)(seed)
    world.at(240, lambda: see(True))
    world.at(360, lambda: see(False))
    return world


def _disconnects(seed: int) -> World:
    """Clients that give up before their answer comes, again and again, among others who wait."""
    world = _steady(4)(seed)
    world.arrivals(Population(seed=seed), 8.0, start=120, end=500, patience=0.8)
    return world


def _recovered(seed: int) -> World:
    """The same assertion in a release that fails the batch and goes on."""
    config = preset("draft", seed=seed)
    world = World(config, seed=seed, after_crash="batch", print_iterations=True)
    world.closed(population_for("draft", config.max_seq_len, seed), range(19), start=25)
    return world


def _slow_start(seed: int) -> World:
    world = World(preset("preempt", seed=seed), seed=seed, start_seconds=400)
    world.closed(Population(seed=seed), range(4), start=410)
    return world


def _engine_dead(seed: int) -> World:
    def kill() -> None:
        world.doomed = True

    world = _steady(8)(seed)
    world.at(240, kill)
    return world


SCENARIOS: Final[dict[str, Scenario]] = {
    "draft": Scenario(_profile("draft", 6, 24), "assertion", ("token_budget_deadlock",), wedges=True),
    "reuse": Scenario(_profile("reuse", 4, 9, at=120.0), "assertion", ("token_budget_deadlock",), wedges=True),
    "deadlock": Scenario(_profile("deadlock", 6, 18), "hold and wait", ("kv_cache_deadlock",), wedges=True),
    "prefill": Scenario(_profile("prefill", 6, 18), "hold and wait", ("kv_cache_deadlock",), wedges=True),
    "transfer": Scenario(_profile("transfer", 2, 8), "hold and wait", ("transfer_stall",), wedges=True),
    "deadlock-early": Scenario(
        _profile("deadlock", 6, 18, at=40.0), "the same in a server's first minute", ("kv_cache_deadlock",), wedges=True
    ),
    "oversize": Scenario(
        _profile("oversize", 6, 8), "one request", ("request_never_fits",), ("config_risk",), wedges=True
    ),
    "engine-dead": Scenario(_engine_dead, "the engine is gone without a word", ("engine_dead", "crash"), wedges=True),
    "recovered": Scenario(_recovered, "the batch fails, work goes on", (), ("assertion_recovered", "overload")),
    "overload": Scenario(_steady(64), "far more users than room", (), ("overload",)),
    "overload-reserve": Scenario(_open(20.0, "reserve"), "arrivals above capacity", (), ("overload",)),
    "preemption-storm": Scenario(_steady(48), "evicting all the time, and completing", (), ("overload",)),
    "steady": Scenario(_steady(6), "a good day"),
    "steady-trtllm": Scenario(_steady(6, "reserve", "tensorrt_llm"), "a good day"),
    "steady-sglang": Scenario(_steady(6, "preempt", "sglang"), "a good day"),
    "idle": Scenario(_idle, "work, then none"),
    "bursts": Scenario(_bursts, "work, none, work, none"),
    "long-prefill": Scenario(_long_prefill, "minutes of one prompt"),
    "long-generation": Scenario(_long_generation, "minutes without a completion, tokens all the time"),
    "restart": Scenario(_restart, "the process is replaced under load"),
    "scrape-gap": Scenario(_scrape_gap, "two minutes without metrics"),
    "disconnects": Scenario(_disconnects, "clients leave by the dozen"),
    "slow-start": Scenario(_slow_start, "minutes until it listens", (), ("slow_start",)),
}
"""By name. Those that are named for a profile are its failure, the rest must not be taken for one."""
