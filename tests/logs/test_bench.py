"""The benchmark of the log engine measures what it says: the same bytes, the same rules, the same matches."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from bench.logdata import patterns, write_log
from bench.logs import measure, run
from bench.logs_page import page
from bench.logs_peers import PEERS, RG


@pytest.mark.skipif(shutil.which("rg") is None, reason="ripgrep is not installed")
def test_rows_for_every_program_that_agree_on_the_matches(tmp_path: Path) -> None:
    rows, faults = run(0.3, [10], 1, tmp_path, [], kinds=["dense"])
    assert faults == []
    assert {row.name for row in rows} >= {RG.name, "scan", "engine", "engine, re2", "block scanner"}
    assert all(row.nanoseconds > 0 for row in rows)
    text = page("python -m bench.logs", rows, {"start": 0.2, "start of the interpreter": 0.01}, ["rg 13"], None)
    assert "| rg -c -j1 | 1.00 (1.00-1.00) |" in text


@pytest.mark.skipif(shutil.which("rg") is None, reason="ripgrep is not installed")
def test_planted_lines_are_those_that_ripgrep_finds(tmp_path: Path) -> None:
    _, planted = write_log(tmp_path / "dense.log", 300_000, "dense")
    assert planted > 20
    assert int(measure(RG.command(tmp_path, 100, tmp_path / "dense.log")).said) == planted


def test_every_peer_gets_as_many_rules_as_the_others(tmp_path: Path) -> None:
    for peer in PEERS:
        assert peer.command(tmp_path, 12, tmp_path / "x.log")[0] == peer.program
    for name in ("mtail-12/rules.mtail", "sec-12.conf", "fail2ban-12.conf", "swatch-12.conf", "syslog-ng-12.conf"):
        assert (tmp_path / name).read_text().count(patterns(12)[4].split()[0]) == 1


def test_program_that_fails_ends_the_run_with_its_words() -> None:
    with pytest.raises(SystemExit, match="exit 3: no such rule"):
        measure([sys.executable, "-c", "import sys; sys.stderr.write('no such rule'); sys.exit(3)"])
