"""Label matchers mean what they mean in Alertmanager."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.config.matchers import LabelMatcher, all_match, parse_matchers


@pytest.mark.parametrize(
    ("text", "matchers"),
    [
        ('severity="critical"', [LabelMatcher("severity", "=", "critical")]),
        ("severity=critical", [LabelMatcher("severity", "=", "critical")]),
        ('a != "b"', [LabelMatcher("a", "!=", "b")]),
        ('a=~"x|y"', [LabelMatcher("a", "=~", "x|y")]),
        ('{a="b", c!~"d.*"}', [LabelMatcher("a", "=", "b"), LabelMatcher("c", "!~", "d.*")]),
        ('a="b",', [LabelMatcher("a", "=", "b")]),
        ('a=""', [LabelMatcher("a", "=", "")]),
        ('a="say \\"hi\\" \\\\ \\n"', [LabelMatcher("a", "=", 'say "hi" \\ \n')]),
    ],
)
def test_forms(text: str, matchers: list[LabelMatcher]) -> None:
    assert list(parse_matchers(text)) == matchers


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("severity", "is no matcher"),
        ('a="b', "is never closed"),
        ('{a="b"', "'{' is never closed"),
        ('a="b" c="d"', "put a comma between"),
        ('a=~"("', "bad regex"),
        ("7a=b", "is no matcher"),
        ("a==b", "is not expected"),
    ],
)
def test_what_is_none_says_why(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse_matchers(text)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ('a="x"', True), ('a!="x"', False), ('a=~"x|y"', True), ('a=~"x"', True), ('a=~"."', True), ('a=~"xx"', False),
        ('a!~"x.*"', False), ('b=""', True), ('b!=""', False), ('b=~".*"', True), ('b=~".+"', False),
        ('a="x",b=""', True),
    ],
)  # fmt: skip
def test_a_label_that_is_not_there_is_empty_and_regexes_take_the_whole(text: str, holds: bool) -> None:
    assert all_match(parse_matchers(text), {"a": "x"}) is holds


@given(st.sampled_from(["=", "!="]), st.text(max_size=20))
def test_printed_matchers_read_back(op: str, value: str) -> None:
    matcher = LabelMatcher("name", op, value)  # type: ignore[arg-type]  # drawn from the operators
    assert parse_matchers(str(matcher)) == (matcher,)
