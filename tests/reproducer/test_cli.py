"""The command line as a newcomer types it: what is wrong is said in a sentence, and help teaches by example."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from reproducer.cli import main
from reproducer.usage import TEACHING
from reproducer.users import Ask, write_load

NOWHERE = "http://127.0.0.1:1"  # nothing listens there


@pytest.fixture
def load_file(tmp_path: Path) -> str:
    path = tmp_path / "load.jsonl"
    write_load(path, [Ask(0, turn, 3, 2, b"abc") for turn in range(3)])
    return str(path)


@pytest.mark.parametrize("command", list(TEACHING))
def test_the_help_of_every_command_has_an_example_that_parses(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    text = capsys.readouterr().out
    assert f"\n  python -m reproducer {command} " in text
    options = set(re.findall(r"--[a-z][a-z-]+", text))
    for example in re.findall(rf"\n  python -m reproducer {command} (.*)", text):
        assert set(re.findall(r"--[a-z][a-z-]+", example)) <= options, example


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("load", "--url", "foo"), "'foo' is no URL of a server; write it as http://127.0.0.1:8000"),
        (("load", "--url", "http://h:x"), "is no URL of a server"),
        (("load", "--url", NOWHERE, "--rate", "-5"), "-5 is not above 0"),
        (("load", "--url", NOWHERE, "--rate", "x"), "'x' is no number"),
        (("load", "--url", NOWHERE, "--users", "2", "--table", "nope"), "azure-conv"),
        (("advise", "--chance", "2"), "2 is not between 0 and 1, as 0.05 is"),
        (("advise", "--confidence", "1"), "1 is not between 0 and 1"),
        (("replay", "--seeds", "0"), "0 is below 1"),
        (("replay", "--users", "many"), "'many' is no whole number"),
        (("serve", "--port", "99999"), "99999 is no port; the largest is 65535"),
        (("threshold", "--kv-ceiling", "0"), "0 is not above 0"),
    ],
)
def test_what_cannot_be_meant_is_refused(words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("load", "--url", NOWHERE), "say what to send: --users N, --rate R or --trace FILE"),
        (("load", "--url", NOWHERE, "--trace", "/no/such"), "/no/such: No such file or directory"),
        (("replay", "--load", "/no/such"), "/no/such: No such file or directory"),
        (("record", "/no/such", "--out", "x"), "/no/such: No such file or directory"),
        (("threshold", "--plot", "/no/such/curve.png"), "--plot /no/such/curve.png: there is no such folder"),
        (("threshold", "--step-tokens", "400"), "lower A or raise H"),
        (("matrix", "nonsense"), "no section 'nonsense'; there are bounds, "),
    ],
)
def test_what_does_not_work_is_said(words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"reproducer {words[0]}: ")
    assert said in error


def test_a_load_that_reaches_nobody_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(("load", "--url", NOWHERE, "--users", "1", "--seconds", "0.3")) == 1
    assert re.search(r"0 completed, \d+ failed, .*: \[Errno \d+\] Connection refused", capsys.readouterr().err)


def test_a_verification_that_reaches_nobody_says_why(load_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(("verify", "--url", NOWHERE, "--load", load_file, "--yes")) == 1
    assert re.search(r"unclear: \d requests failed, the last with: .*refused", capsys.readouterr().out)


def test_a_verification_that_nobody_can_allow_does_not_start(
    load_file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert main(("verify", "--url", NOWHERE, "--load", load_file)) == 2
    assert "--yes starts without asking" in capsys.readouterr().err


def test_one_word_is_enough_to_start_or_not(
    load_file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("no\n"))
    assert main(("verify", "--url", NOWHERE, "--load", load_file)) == 1
    assert "not started" in capsys.readouterr().out
