"""The three scan engines find the same lines, and those a naive loop finds."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.logs.patterns import Analysis, analyse
from agent.logs.scan import MASK, SHIFT, HyperscanScanner, Scanner, ScannerUnavailable, make_scanner, measure_speed
from agent.rules.model import Matcher

ENGINES = ("hyperscan", "re2", "python")
PATTERNS = [
    Matcher("contains", "CUDA out of memory"),
    Matcher("contains", "größe", ignore_case=True),
    Matcher("regex", r"total_num_tokens (?:\((?P<total>\d+)\) )?should be less"),
    Matcher("regex", r"(?i)watchdog caught \w+ timeout"),
    Matcher("regex", r"Waiting: (?:[5-9]\d|\d{3,}) reqs"),
    Matcher("regex", r"foo.{1,3}bar"),
    Matcher("regex", r"[^x]yz"),
    Matcher("regex", r"\bOOM\b"),
    Matcher("regex", r"red|green \d+"),
    Matcher("regex", r"\d{4}"),
]


def analyses(patterns: list[Matcher] = PATTERNS) -> list[Analysis]:
    return [analyse(pattern) for pattern in patterns]


def lines_found(scanner: Scanner, block: bytes) -> set[tuple[int, int]]:
    return {(block.count(b"\n", 0, hit >> SHIFT), hit & MASK) for hit in scanner.scan(block)}


def lines_expected(block: bytes) -> set[tuple[int, int]]:
    compiled = [re.compile(item.prefilter or b"") for item in analyses()]
    lines = block.split(b"\n")
    return {(n, i) for n, line in enumerate(lines) for i, pattern in enumerate(compiled) if pattern.search(line)}


@pytest.mark.parametrize("name", ENGINES)
def test_finds_each_line_and_names_the_pattern(name: str) -> None:
    block = (
        b"nothing here\n"
        b"CUDA out of memory and WATCHDOG caught collective timeout\n"
        b"total_num_tokens (4097) should be less\ntotal_num_tokens should be less\n"
        b"Waiting: 49 reqs\nWaiting: 50 reqs\nWaiting: 777 reqs\n"
        b"foo\nbar xyz ayz OOM ROOM\n" + "fooéébar GRößE green 7\n".encode()
    )
    scanner = make_scanner(analyses(), name)  # type: ignore[arg-type]
    assert lines_found(scanner, block) == lines_expected(block)


@settings(max_examples=120, deadline=None)
@given(
    st.lists(
        st.lists(
            st.sampled_from(
                ["CUDA out of memory", "GRÖSSE größe", "foo", "bar", "é", " ", "x", "yz", "OOM", "red", "green 1",
                 "1234", "Waiting: 123 reqs", "watchdog CAUGHT x timeout", "\x0b", "\x00"]
            ),
            max_size=5,
        ).map("".join),
        max_size=12,
    ),
    st.binary(max_size=6),
)  # fmt: skip
def test_every_engine_agrees_with_a_naive_loop(lines: list[str], noise: bytes) -> None:
    block = "\n".join(lines).encode() + noise + b"\n"
    expected = lines_expected(block)
    for name in ENGINES:
        assert lines_found(_shared(name), block) == expected, name
        for line in block.split(b"\n"):
            assert _shared(name).ids(line) == {i for _, i in lines_expected(line)}, name


_made: dict[str, Scanner] = {}


def _shared(name: str) -> Scanner:
    if name not in _made:
        _made[name] = make_scanner(analyses(), name)  # type: ignore[arg-type]
    return _made[name]


def test_one_bad_pattern_is_named_and_the_rest_still_work() -> None:
    good = analyses()[0]
    bad = Analysis(b"(unclosed", (), False, 0)
    for scanner in (make_scanner([good, bad], "hyperscan"), make_scanner([good, bad], "re2")):
        assert list(scanner.refused) == [1]
        assert lines_found(scanner, b"CUDA out of memory\n") == {(0, 0)}


def test_no_patterns_find_nothing() -> None:
    for name in ENGINES:
        scanner = make_scanner([], name)  # type: ignore[arg-type]
        assert scanner.scan(b"text\n") == []
        assert scanner.ids(b"text") == set()


def test_the_compiled_database_is_kept_and_loaded(tmp_path: Path) -> None:
    first = HyperscanScanner(analyses(), tmp_path)
    second = HyperscanScanner(analyses(), tmp_path)
    assert (first.from_cache, second.from_cache) == (False, True)
    assert lines_found(second, b"CUDA out of memory\n") == {(0, 0)}
    assert HyperscanScanner(analyses()[:2], tmp_path).from_cache is False


def test_a_damaged_cache_is_compiled_anew(tmp_path: Path) -> None:
    HyperscanScanner(analyses(), tmp_path)
    (stored,) = tmp_path.glob("*.hs")
    stored.write_bytes(stored.read_bytes()[:-1] + b"?")
    again = HyperscanScanner(analyses(), tmp_path)
    assert again.from_cache is False
    assert lines_found(again, b"CUDA out of memory\n") == {(0, 0)}


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("in the way")
    assert lines_found(HyperscanScanner(analyses(), file / "cache"), b"CUDA out of memory\n") == {(0, 0)}


@pytest.mark.parametrize(("name", "module"), [("hyperscan", "hyperscan"), ("re2", "re2")])
def test_a_missing_engine_is_said_when_asked_for(name: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ScannerUnavailable, match=name):
        make_scanner(analyses(), name)  # type: ignore[arg-type]


def test_auto_falls_back_engine_by_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert make_scanner(analyses()).name.startswith("hyperscan")
    monkeypatch.setitem(sys.modules, "hyperscan", None)
    assert make_scanner(analyses()).name == "re2"
    monkeypatch.setitem(sys.modules, "re2", None)
    assert make_scanner(analyses()).name == "python re"


def test_speed_is_measured_in_mib_per_second() -> None:
    assert measure_speed(_shared("hyperscan"), 1 << 18) > 1
