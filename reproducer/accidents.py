"""Accidents that need a real process: slow start, out of memory, a killed or stopped server, clients that leave.

Each leaves ``server.log`` and ``metrics.om`` as :mod:`reproducer.fingerprint` does. What needs no process are the
virtual scenarios of :mod:`reproducer.siblings`.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from .config import preset
from .fingerprint import Watch
from .lengths import Lengths
from .live import arguments_for
from .load import Load
from .process import ServeProcess, StartError
from .users import Population

__all__ = ["ACCIDENTS", "accident"]

ACCIDENTS: Final[dict[str, str]] = {
    "overload": "three times as many users as the pool bears, under a scheduler that evicts: slow, and alive",
    "idle": "some work, then none",
    "slow-start": "no trained weights in the cache: the server listens only when training is over",
    "oom": "the process may allocate little more than it has, and a long prompt comes: a step fails for memory",
    "oom-start": "the KV pool asked for is larger than the memory allowed: it does not start",
    "disconnects": "clients that give up before their answer comes, among others who wait",
    "stopped": "the whole process is stopped (SIGSTOP): nothing answers, not even the metrics page",
    "engine-dead": "the loop is ended from outside (SIGUSR1) as a killed engine process is: the front end stays",
    "killed": "the process is killed (SIGKILL): nothing listens any more",
    "preemption-storm": "many users, small pool, eviction all the time",
}


def accident(
    name: str,
    folder: Path,
    *,
    seconds: float = 60.0,
    voice: str = "vllm",
    extra: tuple[str, ...] = (),
    tell: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Make it happen; returns the state of the server at the end, as far as it still tells."""
    roomy = {"kv_blocks": 8192, "max_seq_len": 8000, "step_tokens": 8192, "hard_tokens": 8192}
    knobs = {"oom": roomy, "oom-start": {"kv_blocks": 1 << 20}}.get(name, {})
    config = preset("preempt", **knobs)
    words = [*arguments_for(config), "--dialect", voice, *extra]
    if name == "slow-start":
        words += ["--cache", str(folder / "no-weights-here")]
    if name == "oom":
        words += ["--memory-margin", "64"]
    if name == "oom-start":
        words += ["--memory-limit", "6000"]
    server = ServeProcess(folder, words, environment={"MALLOC_ARENA_MAX": "1"} if name == "oom" else None)
    people = Population()
    try:
        server.start()
    except StartError as error:
        return {"started": False, "reason": str(error)[-500:]}
    try:
        load = Load(server.url, max_total=config.max_seq_len)
        watch = Watch(server, load, 1.0)
        load.closed(people, {"overload": 64, "preemption-storm": 48, "stopped": 8, "oom": 2}.get(name, 4))
        watch.until(seconds / 3, stop_at_wedge=False, tell=tell)
        _happen(name, server, load, people)
        watch.until(2 * seconds / 3, stop_at_wedge=False, tell=tell)
        load.stop()
        (folder / "metrics.om").write_text(watch.recording.text())
        return {"started": True, "health": server.get("/health", 2.0)[0], **watch.last}
    finally:
        server.signal(signal.SIGCONT)
        server.stop()


def _happen(name: str, server: ServeProcess, load: Load, people: Population) -> None:
    if name == "idle":
        load.stop()
    elif name == "disconnects":
        hasty = Load(load.url, timeout=0.3, max_total=load.max_total)
        hasty.closed(Population(seed=people.seed + 1), 24)
    elif name == "oom":
        load.closed(Population(Lengths(prompt_scale=1e6, max_prompt=7000), people.seed), 6)
    elif name in ("stopped", "engine-dead", "killed"):
        number = {"stopped": signal.SIGSTOP, "engine-dead": signal.SIGUSR1, "killed": signal.SIGKILL}[name]
        server.signal(number)
        time.sleep(0.1)
