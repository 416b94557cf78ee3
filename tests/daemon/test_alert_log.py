"""Each line stands in the file once, whatever happens between the transaction and the file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.alert_log import AlertLog


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "alerts.jsonl"


def opened(path: Path) -> AlertLog:
    return AlertLog(str(path))


def test_lines_that_did_not_reach_the_file_are_appended(path: Path) -> None:
    log = opened(path)
    log.write(['{"a": 1}', '{"a": 2}'])
    log.close()
    again = opened(path)
    again.recover(['{"a": 2}', '{"a": 3}'])
    assert path.read_text() == '{"a": 1}\n{"a": 2}\n{"a": 3}\n'
    again.close()


@pytest.mark.parametrize("kept", range(1, 9))
def test_a_line_that_was_cut_is_written_whole(path: Path, kept: int) -> None:
    path.write_text('{"a": 1}\n' + '{"a": 2}'[:kept])
    log = opened(path)
    log.recover(['{"a": 2}'])
    assert path.read_text() == '{"a": 1}\n{"a": 2}\n'
    log.close()


def test_what_is_none_of_ours_stays(path: Path) -> None:
    path.write_text("somebody's words")
    log = opened(path)
    log.recover(["{}"])
    assert path.read_text() == "somebody's words\n{}\n"
    log.close()


def test_a_refused_line_waits_and_goes_first(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The file cannot be written (its descriptor is read-only here), then it can."""
    log = opened(path)
    good, log._fd = log._fd, os.open(path, os.O_RDONLY)
    log.write(["1"])
    log.write(["2"])
    assert log.behind
    assert log.pending(["3"]) == ["1", "2", "3"]  # what the next transaction keeps
    assert len([r for r in caplog.records if "cannot be written" in r.message]) == 1
    os.close(log._fd)
    log._fd = good
    log.write(["3"])
    assert path.read_text() == "1\n2\n3\n"
    assert not log.behind
    assert not log.problem
    log.close()


def test_a_renamed_file_is_begun_anew_when_asked(path: Path) -> None:
    log = opened(path)
    log.write(["1"])
    path.rename(path.with_suffix(".1"))
    log.reopen()
    log.write(["2"])
    assert path.read_text() == "2\n"
    log.close()


def test_a_pipe_will_do(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    log = opened(pipe)
    log.recover(["1"])
    log.write(["2"])
    assert os.read(reader, 100) == b"2\n"
    log.close()
    os.close(reader)
