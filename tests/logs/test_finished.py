"""Logs that grow no more: compressed ones that were cut short or damaged give what they hold."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.logs.sources.finished import open_finished

TEXT = b"".join(b"line %d of a log that is long enough to be cut in its middle\n" % number for number in range(40_000))


def read(path: Path) -> tuple[bytes, str]:
    with open_finished(str(path)) as source:
        data = b"".join(iter(lambda: source.read(300_000), b""))
        return data, source.damaged


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress], ids=["gz", "bz2", "xz"])
def test_compressed(compress: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "server.log.packed"
    path.write_bytes(compress(TEXT))
    assert read(path) == (TEXT, "")


def test_one_that_was_cut_gives_what_is_there_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "server.log.gz"
    packed = gzip.compress(TEXT)
    path.write_bytes(packed[: len(packed) // 2])
    data, damaged = read(path)
    assert len(data) > len(TEXT) // 4
    assert TEXT.startswith(data)
    assert damaged == f"{path}: the compressed file ends early, what is there was read"


def test_one_that_is_damaged_gives_what_comes_before(tmp_path: Path) -> None:
    path = tmp_path / "server.log.gz"
    packed = gzip.compress(TEXT)
    path.write_bytes(packed[: len(packed) // 2] + b"\xff" * 1000 + packed[len(packed) // 2 + 1000 :])
    data, damaged = read(path)
    assert len(data) > len(TEXT) // 4
    assert "damaged" in damaged
