"""What is known of patterns outlives the process, and only that of the same code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.logs import pattern_cache, patterns
from agent.logs.patterns import analyse, first_characters
from agent.rules.model import Matcher

PATTERNS = [
    Matcher("contains", "out of memory"),
    Matcher("contains", "Traceback", ignore_case=True),
    Matcher("regex", r"queue (?P<waiting>\d+) of \d+"),
    Matcher("regex", r"(?:a+)+b"),
    Matcher("regex", r"(?P<x>\p{L}+) only the other module reads this"),
]


@pytest.fixture(autouse=True)
def forgetful() -> Iterator[None]:
    """Each test begins knowing nothing, and leaves what was known before."""
    before = dict(patterns.known_analyses), dict(patterns.known_firsts), set(patterns.news)
    forget()
    yield
    forget()
    patterns.known_analyses.update(before[0])
    patterns.known_firsts.update(before[1])
    patterns.news.update(before[2])


def forget() -> None:
    patterns.known_analyses.clear()
    patterns.known_firsts.clear()
    patterns.news.clear()


def test_it_comes_back_as_it_was(tmp_path: Path) -> None:
    found = [analyse(item) for item in PATTERNS]
    first = first_characters(r"\d\d:\d\d")
    pattern_cache.keep(tmp_path)
    forget()
    pattern_cache.preload(tmp_path)
    assert [analyse(item) for item in PATTERNS] == found
    assert first_characters(r"\d\d:\d\d") == first
    assert not patterns.news  # nothing had to be found out again


def test_nothing_new_is_not_written(tmp_path: Path) -> None:
    analyse(PATTERNS[0])
    pattern_cache.keep(tmp_path)
    (place,) = tmp_path.iterdir()
    place.unlink()
    analyse(PATTERNS[0])
    pattern_cache.keep(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("damage", [b"", b"nonsense", b"\xff" * 2000])
def test_a_damaged_file_is_no_trouble(tmp_path: Path, damage: bytes) -> None:
    analyse(PATTERNS[0])
    pattern_cache.keep(tmp_path)
    (place,) = tmp_path.iterdir()
    place.write_bytes(damage)
    forget()
    pattern_cache.preload(tmp_path)
    assert not patterns.known_analyses


def test_there_need_be_no_folder() -> None:
    analyse(PATTERNS[0])
    pattern_cache.keep(None)
    pattern_cache.preload(None)
