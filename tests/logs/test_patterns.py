"""A prefilter matches wherever its pattern does: nothing may be missed before the verifier looks."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent.logs.patterns import NEWLINE, analyse, first_characters
from agent.rules.model import Matcher


def prefilter(pattern: str, **options: bool) -> bytes | None:
    return analyse(Matcher("regex", pattern, **options)).prefilter


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r"^AssertionError$", b"AssertionError"),
        (r"total \((?P<n>\d+)\)", rb"total \x28[0-9]+\x29"),
        (r"Waiting: \d+", rb"Waiting\x3a [0-9]"),  # one end is enough
        (r".*boom.*", b"boom"),
        (r"(?<!un)able(?!s)", b"able"),
        (r"(?i)oom", b"[Oo][Oo][Mm]"),
        (r"a\nb", rb"a\x0bb"),
        (r"ax{2,}y", b"ax{2,}y"),
        (r"a|b|", None),  # matches the empty text
        (r"\d*", None),
        (r"\p{Lu}", None),  # regex's own syntax
    ],
)
def test_a_prefilter_keeps_what_every_match_has(pattern: str, expected: bytes | None) -> None:
    assert prefilter(pattern) == expected


def test_a_wildcard_takes_a_character_of_several_bytes() -> None:
    expression = prefilter("a.b")
    assert expression is not None
    assert re.search(expression, "aéb".encode())
    assert re.search(expression, "a日b".encode())


def test_a_wide_bound_becomes_none_since_only_the_cost_would_differ() -> None:
    assert prefilter("a.{1,2000}b") == rb"a[\x00-\x09\x0b-\xff]+b"


@pytest.mark.parametrize(
    ("pattern", "literals", "fold"),
    [
        ("Sequence group \\S+ is preempted by (?:RECOMPUTE|SWAP)", (b" is preempted by ",), False),
        ("(?i)Out Of Memory", (b"out of memory",), True),
        ("red|green", (b"green", b"red"), False),
        (r"\d+", (), False),
        ("Größe", ("Größe".encode(),), False),
    ],
)
def test_literals_that_every_match_holds(pattern: str, literals: tuple[bytes, ...], fold: bool) -> None:
    found = analyse(Matcher("regex", pattern))
    assert (found.literals, found.fold) == (literals, fold)


@pytest.mark.parametrize(
    ("pattern", "at_least", "below"),
    [("plain", 1 << 20, None), (r"n=\d+ x", 4096, None), (r"a.*b.*c", 1, 4096), ("(a+)+$", 0, 1), ("(?:a|ab)*c", 0, 1)],
)
def test_what_may_backtrack_is_trusted_on_short_text_only(pattern: str, at_least: int, below: int | None) -> None:
    safe = analyse(Matcher("regex", pattern)).safe_length
    assert safe >= at_least
    assert below is None or safe < below


def test_first_characters_of_a_header() -> None:
    assert first_characters(r"\((?P<p>\w+)\)") == {"("}
    assert first_characters(r"(?:\[x\] )?(?:INFO|WARN)") == {"[", "I", "W"}
    assert first_characters(r".*") is None


_ATOMS = st.sampled_from(
    [
        "a",
        "b",
        "Z",
        "é",
        "1",
        " ",
        r"\d",
        r"\s",
        r"\S",
        r"\w",
        ".",
        "[ab]",
        "[^a]",
        r"\b",
        "(?:a|b1)",
        "(?i:a)",
        r"\.",
        "^",
        "$",
    ]
)
_REPEATS = st.sampled_from(["", "", "", "?", "+", "*", "{2}", "{1,3}", "+?"])


def _pattern(parts: list[tuple[str, str]]) -> str:
    return "".join(atom if atom in ("^", "$", r"\b") else atom + repeat for atom, repeat in parts)


@settings(max_examples=400)
@given(st.lists(st.tuples(_ATOMS, _REPEATS), min_size=1, max_size=6), st.text("abZ1é. \n", max_size=12))
@example([(".", "{2}")], "éé")
@example([("[^a]", "{1,3}"), ("b", "")], "ééb")
def test_wherever_a_pattern_matches_its_prefilter_does(parts: list[tuple[str, str]], text: str) -> None:
    pattern = _pattern(parts)
    expression = prefilter(pattern)
    if expression is not None and re.search(pattern, text, re.MULTILINE | re.ASCII):
        assert re.search(expression, text.encode().replace(b"\n", NEWLINE)), (pattern, expression)
