"""`wedgewatch check` finds every planted fault, at its line and column, and says nothing else.

The files in ``faults/`` are read by people too: a comment ``# fault: ...`` holds what must be said, and the section
sign in the next line that has one marks where. The marks are taken out before the file is checked.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from agent.authoring.lint import inspect
from agent.rules.load import load_files
from agent.schema import Fault

FOLDER = Path(__file__).parent / "faults"
FILES = ("rules.yaml", "together.yaml", "dialect.yaml", "config.yaml")


@dataclass(frozen=True)
class Planted:
    line: int
    column: int
    words: str

    def is_said_by(self, fault: Fault) -> bool:
        where = fault.position
        return (where.line, where.column) == (self.line, self.column) and self.words in fault.message


def unmark(text: str) -> tuple[str, list[Planted]]:
    """The file without its marks, and what was planted where."""
    waiting: list[str] = []
    planted: list[Planted] = []
    lines: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        comment = re.match(r"\s*# fault: (.*)", line)
        if comment:
            waiting.append(comment[1])
        while "§" in line:
            column = line.index("§")
            line = line[:column] + line[column + 1 :]
            planted.append(Planted(number, column + 1, waiting.pop(0)))
        lines.append(line)
    assert not waiting, f"comments without a mark: {waiting}"
    return "\n".join(lines), planted


@cache
def check(name: str) -> tuple[list[Planted], list[Fault]]:
    text, planted = unmark((FOLDER / name).read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_text(text, encoding="utf-8")
        result = inspect(path, env={}) if name == "config.yaml" else inspect(rules=[path])
    return planted, result.faults


@pytest.mark.parametrize("name", FILES)
def test_every_planted_fault_is_found_where_it_stands_and_nothing_else_is_said(name: str) -> None:
    planted, faults = check(name)
    unsaid = list(planted)
    uncalled = []
    for fault in faults:
        match = next((item for item in unsaid if item.is_said_by(fault)), None)
        if match is None:
            uncalled.append(str(fault))
        else:
            unsaid.remove(match)
    assert (unsaid, uncalled) == ([], [])


def test_there_are_at_least_sixty_of_them() -> None:
    assert sum(len(check(name)[0]) for name in FILES) >= 60


def test_faults_come_in_the_order_of_the_file() -> None:
    _, faults = check("rules.yaml")
    places = [(fault.position.line, fault.position.column) for fault in faults]
    assert places == sorted(places)


def syntax_cases() -> Iterator[tuple[str, str]]:
    yield "rules:\n§\t- alert: X\n", "a tab indents this line"
    yield "rules: §[\n  {alert: X}\n", "a '[' is not closed"
    yield 'rules:\n- alert: §"Open\n  failure: overload\n', "a quote is opened and never closed"
    yield "rules:\n- alert: a§: b\n", "a second ': ' in one line"
    yield "rules:\n- alert: §@home\n", "a value cannot begin with '@', put it in quotes"
    yield "rules: []\n§---\nrules: []\n", "a second document begins here"
    yield "rules:\n- alert: §*nobody\n", "this alias names no anchor above it"
    yield 'rules:\n- alert: "bad §\\d"\n', "unknown escape in a double-quoted text"
    yield "rules: §!!python/object:os.system []\n", "tags are not used here"
    yield "rules: §&a [*a]\n", "an alias refers to a value that contains it"
    yield "rules:\n- alert: a\x07§\n".replace("\x07§", "§\x07"), "control character"
    yield "§", "the file is empty"
    yield "§- alert: X\n", "expected a mapping (key: value), got a list"
    yield "rules: {alert: §${NAME}}\n", "needs quotes around it"


@pytest.mark.parametrize(("text", "words"), list(syntax_cases()))
def test_a_file_that_is_no_yaml_says_where_and_why(text: str, words: str, tmp_path: Path) -> None:
    before, _, _ = text.partition("§")
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    path = tmp_path / "broken.yaml"
    path.write_text(text.replace("§", ""), encoding="utf-8")
    faults = load_files([path], bundled=False).faults
    assert [(f.position.line, words in f.message) for f in faults] == [(line, True)], [str(f) for f in faults]
    assert faults[0].position.column == column


def test_bytes_that_are_no_text_are_a_fault_with_a_place(tmp_path: Path) -> None:
    path = tmp_path / "latin1.yaml"
    path.write_bytes("rules:\n# gr\u00fc\u00dfe\n".encode("latin-1"))
    assert [str(fault) for fault in load_files([path], bundled=False).faults] == [
        f"{path}:2:5: byte 0xfc is not UTF-8, save the file as UTF-8"
    ]


def test_the_bundled_files_have_no_fault() -> None:
    result = inspect()
    assert [str(fault) for fault in result.faults] == []
    assert result.ok
    assert result.rules > 50
