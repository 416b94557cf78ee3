"""A regex is called slow because counted steps show it, not because of its looks."""

from __future__ import annotations

import pytest

from agent.rules.load import load_rules
from agent.rules.slowness import slowness


@pytest.mark.parametrize(
    "pattern",
    [
        r"(a+)+$",
        r"(\w+\s?)*$",
        r"(?:\d+,?)+;",
        r"(x+x+)+y",
        r"([a-z]+)*[0-9]",
        r"(?:a*)*b",
        r"(a{1,30}){1,30}b",
        r"^(?:\s*\w+\s*)+=",
        r"(.*)(.*)(.*)=",
        r"\d+\d+\d+x",
        r"\s*\s*\s*x",
        r"error (?:[\w.]+\.?)+: lost",
        r"(?i)(A+)+$",
    ],
)
def test_exponential_and_cubic_patterns_are_slow(pattern: str) -> None:
    assert "as on a line with" in slowness(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?P<waiting>\d+) waiting",
        r"foo.*bar",
        r"Running: (\d+).*Waiting: (\d+).*usage: ([\d.]+)",
        r"(\d+)\.(\d+)\.(\d+)\.(\d+)",
        r"^(\S+ )+x",
        r'(?:[^"\\]|\\.)*"',
        r"(?:\[[\d;]{1,6}m)?\((?:APIServer|EngineCore)[^)]{0,60}\)",
        r"(?:ab|cd)+;",
        r"(?>a+)+b",
        r"(?:a++)+b",
        r"a.*b.*c.*d",
        r"(",
        r"",
    ],
)
def test_others_are_not(pattern: str) -> None:
    assert slowness(pattern) == ""


def test_the_text_that_shows_it_is_named() -> None:
    assert slowness(r"id=(\d+)+;") == "its time explodes, as on a line with 'id=000' and so on"


def test_no_bundled_matcher_is_slow() -> None:
    ruleset, _ = load_rules()
    stages = [stage for rule in ruleset.rules if rule.fingerprint for stage in rule.fingerprint.stages]
    matchers = [m for stage in stages for m in (*stage.condition.any, *stage.condition.all) if m.kind == "regex"]
    assert [m.pattern for m in matchers if slowness(m.pattern, m.ignore_case)] == []
