"""Nothing in the scheduler makes it fail: its source has no clock, no dice, no request number, no magic count."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import reproducer
from reproducer.matrix import _PROGRAM

FOLDER = Path(reproducer.__file__).parent
CORE = ("scheduler.py", "packer.py", "kv_cache.py", "transfer.py", "batch.py", "request.py", "config.py")
ALLOWED_IMPORTS = {"__future__", "array", "collections", "collections.abc", "dataclasses", "typing"}


def conditions(tree: ast.AST) -> list[ast.expr]:
    """Everything that decides what happens: tests of if, while, assert, conditional expressions, comprehensions, match,
    and both sides of ``and`` and ``or``."""
    found: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
            found.append(node.test)
        elif isinstance(node, ast.comprehension):
            found += node.ifs
        elif isinstance(node, ast.BoolOp):
            found += node.values
        elif isinstance(node, ast.Match):
            found.append(node.subject)
    return found


def tricks(source: str, *, numbers: bool = True) -> list[str]:
    """What this source does that a scheduler which merely fails would not have to do. ``numbers``: constants, too."""
    found: list[str] = []
    tree = ast.parse(source)
    for node in ast.walk(tree):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level:
            modules.append(node.module or "")
        found += [f"imports {name}" for name in modules if name not in ALLOWED_IMPORTS]
        if isinstance(node, ast.Name) and node.id in ("__import__", "eval", "exec", "open", "globals", "getattr"):
            found.append(f"calls {node.id}")
    for condition in conditions(tree):
        text = ast.unparse(condition)
        for part in ast.walk(condition):
            if numbers and isinstance(part, ast.Constant) and isinstance(part.value, int | float):
                if part.value not in (0, 1, 2):  # none, one, and "at least half of them"
                    found.append(f"{part.value} in {text}")
            elif isinstance(part, ast.Attribute) and part.attr in ("id", "seed", "profile"):
                found.append(f".{part.attr} in {text}")
            elif isinstance(part, ast.Name) and part.id in ("step", "steps", "now", "time", "seed"):
                found.append(f"{part.id} in {text}")
    return found


@pytest.mark.parametrize("name", CORE)
def test_the_core_has_no_clock_no_dice_no_chosen_number_and_knows_nobody(name: str) -> None:
    source = (FOLDER / name).read_text()
    if name == "config.py":  # numbers that are refused, and names of profiles: what is configured, not what happens
        assert [trick for trick in tricks(source, numbers=False) if "import" in trick] == []
    else:
        assert tricks(source) == []


@pytest.mark.parametrize(
    ("planted", "found"),
    [
        ("import time", "imports time"),
        ("from random import random", "imports random"),
        ("import torch", "imports torch"),
        ("assert len(self.running) < 17", "17 in len(self.running) < 17"),
        ("self.stop = True if len(self.waiting) > 40 else False", "40 in len(self.waiting) > 40"),
        ("if request.id == 1: raise AssertionError", ".id in request.id == 1"),
        ("while self.config.seed: pass", ".seed in self.config.seed"),
        ("if self.config.profile == 'draft': pass", ".profile in self.config.profile == 'draft'"),
        ("rows = [row for row in rows if row.request.id]", ".id in row.request.id"),
        ("late = now > 0 and self.fail()", "now in now > 0"),
        ("match request.id:\n    case 1: pass", ".id in request.id"),
        ("__import__('time')", "calls __import__"),
    ],
)
def test_what_reads_the_source_finds_a_trick(planted: str, found: str) -> None:
    """The scheduler as it is, with one line more."""
    assert found in tricks((FOLDER / "scheduler.py").read_text() + "\n\n" + planted + "\n")


def test_every_profile_runs_the_same_lines() -> None:
    """The scheduler asks for rules (what is reserved, who may be evicted), never for the name of a profile."""
    source = (FOLDER / "scheduler.py").read_text() + (FOLDER / "packer.py").read_text()
    for word in ("draft", "reuse", "deadlock", "prefill", "oversize", "transfer"):
        assert f'"{word}"' not in source


@pytest.mark.parametrize("name", ["scheduler.py", "packer.py"])
def test_the_core_is_small_enough_to_be_read(name: str) -> None:
    """A hundred lines of code each; imports, docstrings and comments beside."""
    lines = (FOLDER / name).read_text().splitlines()
    told: set[int] = set()
    for node in ast.walk(ast.parse("\n".join(lines))):
        if isinstance(node, ast.Import | ast.ImportFrom):
            told.add(node.lineno)
        elif isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                told |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    code = [n for n, line in enumerate(lines, 1) if line.strip() and not line.strip().startswith("#") and n not in told]
    assert len(code) <= 100
    assert len(lines) <= 150


def test_a_simulation_needs_neither_torch_nor_numpy() -> None:
    program = (
        "import sys, reproducer.simulate, reproducer.threshold, reproducer.replay, reproducer.virtual, reproducer.cli\n"
        "assert not {'torch', 'numpy', 'agent'} & set(sys.modules), set(sys.modules) & {'torch', 'numpy', 'agent'}"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_without_assertions_it_fails_at_the_same_step_in_another_way() -> None:
    plain, optimised = (
        subprocess.run([sys.executable, *flag, "-c", _PROGRAM], check=True, capture_output=True, text=True).stdout
        for flag in ((), ("-O",))
    )
    assert '"how_draft": ["AssertionError"]' in plain
    assert '"how_draft": ["ValueError"]' in optimised
    assert plain.replace("AssertionError", "ValueError") == optimised
