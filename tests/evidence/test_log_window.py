"""The lines around an onset, in logs larger than what may be kept."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from agent.log_window import around, stamp_clock
from agent.rules.load import load_rules

START = datetime(2026, 11, 20, 9, 0, tzinfo=UTC)
DIALECTS = load_rules([], bundled=True)[0].dialects
LINE = "(EngineCore_DP0 pid=912) INFO {stamp} [core.py:7] line of {at:05}\n"


def write(path: Path, seconds: int, line: str = LINE, stamp: str = "%m-%d %H:%M:%S", a_second: int = 4) -> Path:
    """A log of so many seconds from START on, ``a_second`` lines in each."""
    with path.open("w") as handle:
        for at in range(seconds):
            text = line.format(stamp=(START + timedelta(seconds=at)).strftime(stamp), at=at)
            handle.write(text + text.replace("line", "more") * (a_second - 1))
    return path


def kept(path: Path, at: float, window: float, size: int = 100_000, **more: Any) -> list[int]:
    """The seconds of the first and the last line kept around second ``at``."""
    data = around(str(path), START.timestamp() + at, window, stamp_clock(DIALECTS, **more))(size)
    assert len(data) <= size
    assert data.endswith(b"\n")
    lines = data.decode().splitlines()
    assert {lines[0], lines[-1]} <= set(path.read_text().splitlines()), "whole lines"
    return [int(lines[0][-5:]), int(lines[-1][-5:])]


def test_a_window_in_the_middle_of_a_large_log(tmp_path: Path) -> None:
    first, last = kept(write(tmp_path / "log", 6_000), 3_000, 60, engine="vllm")
    # a look ends within 8 KiB, half a minute of this log
    assert 2_900 < first <= 2_940
    assert 3_060 <= last < 3_140


def test_the_end_of_the_log_when_the_onset_is_now(tmp_path: Path) -> None:
    first, last = kept(write(tmp_path / "log", 6_000), 5_990, 60, engine="vllm")
    assert 5_890 < first <= 5_930
    assert last == 5_999


def test_a_busy_log_keeps_what_is_nearest_to_the_onset(tmp_path: Path) -> None:
    first, last = kept(write(tmp_path / "log", 6_000), 3_000, 2_000, size=40_000, engine="vllm")
    assert first < 3_000 - 30
    assert last > 3_000 + 30
    assert last - first < 200


def test_a_log_that_is_small_enough_is_kept_whole(tmp_path: Path) -> None:
    assert kept(write(tmp_path / "log", 50), 10, 1, engine="vllm") == [0, 49]


@pytest.mark.parametrize(
    ("line", "stamp"),
    [
        ("[{stamp} TP0] Decode batch. #running-req: 2, line of {at:05}\n", "%Y-%m-%d %H:%M:%S"),
        ("{stamp}.5Z stderr F anything, line of {at:05}\n", "%Y-%m-%dT%H:%M:%S"),
    ],
)
def test_stamps_of_other_loggers(tmp_path: Path, line: str, stamp: str) -> None:
    first, last = kept(write(tmp_path / "log", 6_000, line, stamp), 3_000, 60)
    assert 2_850 < first <= 2_940
    assert 3_060 <= last < 3_200


def test_stamps_in_the_zone_of_the_source(tmp_path: Path) -> None:
    first, _ = kept(
        write(tmp_path / "log", 6_000), 3_000 - 3600, 60, engine="vllm", timezone=timezone(timedelta(hours=1))
    )
    assert 2_850 < first <= 2_940


@pytest.mark.parametrize("line", ["no stamp at all, line of {at:05}\n", "{stamp} pm o'clock, line of {at:05}\n"])
def test_a_log_without_stamps_gives_its_end(tmp_path: Path, line: str) -> None:
    assert kept(write(tmp_path / "log", 6_000, line), 3_000, 60)[1] == 5_999


def test_a_window_of_nothing_is_the_end(tmp_path: Path) -> None:
    assert kept(write(tmp_path / "log", 6_000), 3_000, 0, engine="vllm")[1] == 5_999


def test_a_long_stretch_without_stamps_is_looked_past(tmp_path: Path) -> None:
    path = write(tmp_path / "log", 6_000)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:11_000], "(nothing) 02750\n" * 12_000, *lines[11_000:]]))
    first, last = kept(path, 3_000, 60, engine="vllm")
    assert 2_850 < first <= 2_940
    assert 3_060 <= last < 3_200


def test_a_line_longer_than_what_may_be_read(tmp_path: Path) -> None:
    path = write(tmp_path / "log", 1_000)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:2_000], lines[2_000][:60] + "x" * 3_000_000 + "\n", *lines[2_000:]]))
    data = around(str(path), START.timestamp() + 500, 60, stamp_clock(DIALECTS, engine="vllm"))(100_000)
    assert 0 < len(data) <= 100_000


def test_a_log_that_vanished_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        around(str(tmp_path / "gone"), START.timestamp(), 60, stamp_clock(DIALECTS))(100_000)


def test_an_empty_log_gives_nothing(tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    assert around(str(tmp_path / "log"), START.timestamp(), 60, stamp_clock(DIALECTS))(100_000) == b""
