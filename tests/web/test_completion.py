"""Completion scripts, asked in the shells themselves where those are here."""

from __future__ import annotations

import argparse
import shutil
import subprocess

import pytest

from agent.cli import parser
from agent.completion import script


def bash(words: list[str]) -> list[str]:
    """What bash offers after ``words``; the last one is what was typed so far."""
    typed = " ".join(repr(word) for word in words)
    ask = (
        f"{script(parser(), 'bash')}\nCOMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; "
        "_wedgewatch; printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    done = subprocess.run(["bash", "--norc", "-c", ask], capture_output=True, text=True, timeout=20, check=True)
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash() -> None:
    assert bash(["wedgewatch", "sc"]) == ["scan"]
    assert {"run", "scan", "check", "--version"} <= set(bash(["wedgewatch", ""]))
    assert bash(["wedgewatch", "run", "--obs"]) == ["--observe"]
    assert bash(["wedgewatch", "run", "--engine", "sgl"]) == ["sglang"]
    assert bash(["wedgewatch", "completion", "z"]) == ["zsh"]
    assert bash(["wedgewatch", "outbox", "re"]) == ["retry"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_command_and_option_is_in_it(shell: str) -> None:
    text = script(parser(), shell)
    top = parser()
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, sub in action.choices.items():
                assert name in text
                for option in sub._actions:
                    for flag in option.option_strings:
                        assert (flag if shell != "fish" else flag.lstrip("-")) in text, (name, flag)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_quotes_in_a_help_text_do_not_end_the_string(shell: str) -> None:
    made = argparse.ArgumentParser(prog="x")
    commands = made.add_subparsers()
    commands.add_parser("do", help="it's [a] test: $(reboot) `id`").add_argument("--it", help="isn't it")
    text = script(made, shell)
    assert "it's" not in text.replace("it\\'s", "").replace("it'\\''s", "")
    if shutil.which(shell):
        flag = "-n" if shell == "zsh" else "--no-execute"
        subprocess.run([shell, flag], input=text, text=True, timeout=20, check=True)


def test_another_shell() -> None:
    with pytest.raises(ValueError, match="bash, zsh or fish"):
        script(parser(), "tcsh")
