"""A server without a model: the real loop, scheduler, voice and HTTP, with drawn tokens. Starts in milliseconds."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

import pytest

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
        config: Config, voice: str = "vllm", after_crash: AfterCrash | None = None, stream: TextIO | None = None
    ) -> tuple[Server, TextIO]:
        text = stream or io.StringIO()
        speaker = VOICES[voice](text)
        scheduler = Scheduler(config)
        engine = Engine(scheduler, Guess(scheduler, config.seed, 0.7), speaker, after_crash=after_crash)
        speaker.loading(engine)
        speaker.starting(engine)
        server = Server(engine, speaker)
        server.start()
        servers.append(server)
        return server, text

    yield make
    for server in servers:
        server.stop()
