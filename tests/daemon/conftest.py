"""A daemon for each test; what is compiled once serves all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.live import Live, MetricsServer


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def live(tmp_path: Path, shared_cache: Path) -> Iterator[Live]:
    daemon = Live(tmp_path, shared_cache)
    yield daemon
    daemon.close()


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    with MetricsServer() as running:
        yield running
