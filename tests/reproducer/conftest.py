"""A server without a model: the real loop, scheduler, voice and HTTP, with drawn tokens. Starts in milliseconds."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

import pytest

from reproducer.batch import Batch, SampleState
from reproducer.config import Config
from reproducer.engine import AfterCrash, Engine
from reproducer.scheduler import Scheduler
from reproducer.server import Server
from reproducer.simulate import Guess
from reproducer.voice import VOICES

CACHE = Path(__file__).parents[2] / ".cache" / "reproducer"


@pytest.fixture(scope="session")
def cache() -> Path:
    """Where trained weights are kept between runs of the tests; the first run trains once, about half a minute."""
    named = os.environ.get("WEDGEWATCH_CACHE")
    return Path(named) if named else CACHE


@pytest.fixture
def light_server() -> Iterator[Callable[..., tuple[Server, TextIO]]]:
    servers: list[Server] = []

    def make(
        config: Config,
        voice: str = "vllm",
        after_crash: AfterCrash | None = None,
        *,
        stream: TextIO | None = None,
        pace: float = 0.0,
    ) -> tuple[Server, TextIO]:
        """``pace`` is the seconds of a step; without it the engine is faster than any client, and never full."""
        text = stream or io.StringIO()
        speaker = VOICES[voice](text)
        scheduler = Scheduler(config)
        guess = Guess(scheduler, config.seed, 0.7)

        def forward(batch: Batch) -> SampleState:
            out = guess(batch)
            if pace:
                time.sleep(pace)  # a model's time, not a wait for anything
            return out

        engine = Engine(scheduler, forward, speaker, after_crash=after_crash)
        speaker.loading(engine)
        speaker.starting(engine)
        server = Server(engine, speaker)
        server.start()
        servers.append(server)
        return server, text

    yield make
    for server in servers:
        server.stop()
