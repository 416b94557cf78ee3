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
CORE = ("scheduler.py", "kv_cache.py", "transfer.py", "batch.py", "request.py", "config.py")
ALLOWED_IMPORTS = {"__future__", "array", "collections", "collections.abc", "dataclasses", "typing"}


def conditions(tree: ast.AST) -> list[ast.expr]:
    """Everything that decides what happens: tests of if, while, assert, conditional expressions, comprehensions."""
    found: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
            found.append(node.test)
        elif isinstance(node, ast.comprehension):
            found += node.ifs
    return found


@pytest.mark.parametrize("name", CORE)
def test_the_core_imports_no_clock_no_dice_and_no_torch(name: str) -> None:
    for node in ast.walk(ast.parse((FOLDER / name).read_text())):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level:
            modules.append(node.module or "")
        assert set(modules) <= ALLOWED_IMPORTS, modules


@pytest.mark.parametrize("name", CORE[:-1])
def test_no_branch_looks_at_a_number_chosen_in_advance_or_at_whose_request_it_is(name: str) -> None:
    for condition in conditions(ast.parse((FOLDER / name).read_text())):
        for node in ast.walk(condition):
            text = ast.unparse(condition)
            if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
                assert node.value in (0, 1, 2), text  # none, one, and "at least half of them"
            if isinstance(node, ast.Attribute):
                assert node.attr not in ("id", "seed", "profile"), text
            if isinstance(node, ast.Name):
                assert node.id not in ("step", "steps", "now", "time", "seed"), text


def test_every_profile_runs_the_same_lines() -> None:
    """The scheduler asks for rules (what is reserved, who may be evicted), never for the name of a profile."""
    source = (FOLDER / "scheduler.py").read_text()
    for word in ("draft", "reuse", "deadlock", "prefill", "oversize", "transfer"):
        assert f'"{word}"' not in source


def test_the_core_is_small_enough_to_be_read() -> None:
    lines = (FOLDER / "scheduler.py").read_text().splitlines()
    tree = ast.parse("\n".join(lines))
    told: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                told |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    code = [n for n, line in enumerate(lines, 1) if line.strip() and not line.strip().startswith("#") and n not in told]
    assert len(code) <= 160


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
