"""A closed loop on a clock that counts steps, with the model: the same seed on any device, the same wedge.

Outputs are as long as they were asked to be, whatever the model says, so in a profile without drafts nothing that a
device computes can change the schedule. The step of the wedge must agree between CPU and CUDA, and with the run that
has no model at all.
"""

from __future__ import annotations

import io
from pathlib import Path

from .build import build
from .config import Config
from .request import Request
from .users import population_for

__all__ = ["wedge_step"]


def wedge_step(
    config: Config, users: int, seed: int, device: str, *, steps: int = 3000, cache: Path | None = None
) -> int | None:
    """The step at which the run wedges, None when it does not within ``steps``."""
    built = build(config.with_(seed=seed), io.StringIO(), device=device, cache=cache)
    scheduler, runner = built.engine.scheduler, built.runner
    people = population_for(config.profile, config.max_seq_len, seed)
    streams = [people.asks(user) for user in range(users)]
    owner: dict[int, int] = {}

    def send(user: int) -> None:
        ask = next(streams[user])
        number = len(owner)
        owner[number] = user
        scheduler.add(Request(number, ask.prompt, min(ask.output_tokens, config.max_seq_len - ask.prompt_tokens)))

    for user in range(users):
        send(user)
    for step in range(steps):
        try:
            batch = scheduler.step(runner.forward)
        except AssertionError:
            return step
        for request in list(scheduler.finished):
            send(owner[request.id])
        if not batch.rows and not any(request.loading for request in scheduler.waiting):
            return step
    return None
