"""What docs/rules.md shows is true: every example is accepted, and every test in one passes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent.authoring.lint import check_expression
from agent.authoring.testing import run_files
from agent.model import FAILURE_FAMILY, SIGNALS
from agent.rules.load import load_files
from agent.rules.templates import FILTERS, NAMES, SPACES

GUIDE = (Path(__file__).parents[2] / "docs" / "rules.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_examples_have_no_fault_and_their_tests_pass(number: int, tmp_path: Path) -> None:
    path = tmp_path / "example.yaml"
    path.write_text(EXAMPLES[number], encoding="utf-8")
    loaded = load_files([path], tests=True, check_expr=check_expression)
    assert [str(fault) for fault in loaded.faults] == []
    assert [result.problems for result in run_files(loaded.ruleset, loaded.own_files) if not result.passed] == []


@pytest.mark.parametrize("word", [*FAILURE_FAMILY, *SIGNALS, *NAMES, *FILTERS, *SPACES])
def test_every_word_of_the_language_is_explained(word: str) -> None:
    assert re.search(rf"`[^`]*\b{word}\b[^`]*`", GUIDE), word


def test_links_inside_the_repository_lead_somewhere() -> None:
    root = Path(__file__).parents[2] / "docs"
    targets = [target for target in re.findall(r"\]\(([^)#]+)\)", GUIDE) if "://" not in target]
    assert targets
    assert [target for target in targets if not (root / target).exists()] == []
