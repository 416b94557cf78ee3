"""Which series a selector means: label matchers, and what ``absent`` says of itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import promql_parser

from agent.detect.promql_text import ExprError
from agent.detect.series import METRIC_NAME, Labels, Series, SeriesStore

__all__ = ["LabelTest", "label_test", "labels_of_absent", "selected"]


class LabelTest:
    """One matcher; answers for a value are remembered, since labels take few of them."""

    __slots__ = ("_answers", "_pattern", "kind", "name", "value")

    def __init__(self, name: str, kind: str, value: str) -> None:
        self.name, self.kind, self.value = name, kind, value
        self._pattern = _regex(value) if kind in ("=~", "!~") else None
        self._answers: dict[str, bool] = {}

    def accepts(self, value: str) -> bool:
        if self._pattern is None:
            return (value == self.value) is (self.kind == "=")
        answer = self._answers.get(value)
        if answer is None:
            answer = (self._pattern.fullmatch(value) is not None) is (self.kind == "=~")
            if len(self._answers) < 1024:
                self._answers[value] = answer
        return answer


def label_test(matcher: Any) -> LabelTest:
    ops = promql_parser.MatchOp
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", matcher.name):
        raise ExprError(f"label {matcher.name!r} is quoted, which is not supported here")
    for op, kind in ((ops.Equal, "="), (ops.NotEqual, "!="), (ops.Re, "=~"), (ops.NotRe, "!~")):
        if matcher.op == op:
            return LabelTest(matcher.name, kind, matcher.value)
    raise ExprError("a label matcher is none of = != =~ !~")


_PLAIN_REGEX: Final = re.compile(
    r"""(?: [^\\()\[\]{}*+?|]            # a character, . ^ $ among them
          | \\[dDwWsS.\-\\|()\[\]{}+*?^$/]
          | \((?:\?:|\?P<\w+>|(?!\?))
          | \) | \|
          | \[\^?(?:\\[dDwWsS.\-\\|()\[\]{}+*?^$/]|[^\\\[\]])+\]
          | (?:[*+?]|\{\d+(?:,\d*)?\})\??(?![*+?{])
        )*""",
    re.VERBOSE | re.ASCII,
)
"""Regular expressions that mean the same to RE2 and to Python."""


@lru_cache(maxsize=256)
def _regex(pattern: str) -> re.Pattern[str]:
    set_operations = "[" in pattern and re.search(r"&&|--|~~|\|\|", pattern) is not None
    if set_operations or not _PLAIN_REGEX.fullmatch(pattern):
        raise ExprError(
            f"the regular expression {pattern!r} uses more than groups, classes and repetition, "
            "which is not supported here"
        )
    try:
        return re.compile(pattern, re.ASCII)
    except (re.error, OverflowError) as error:
        raise ExprError(f"the regular expression {pattern!r} cannot be read: {error}") from None


def selected(store: SeriesStore, name: str, tests: list[LabelTest]) -> Iterator[Series]:
    for series in store.series(name):
        if not tests:
            yield series
            continue
        labels = dict(series.labels)
        if all(test.accepts(labels.get(test.name, "")) for test in tests):
            yield series


def labels_of_absent(node: Any) -> Labels:
    """What ``absent(x{job="a"})`` says of itself: the labels that were asked for by one equality alone."""
    if not isinstance(node, promql_parser.VectorSelector):
        return ()
    labels: dict[str, str] = {}
    seen: set[str] = set()
    for matcher in node.matchers.matchers:
        if matcher.name == METRIC_NAME:
            continue
        if matcher.op == promql_parser.MatchOp.Equal and matcher.name not in seen:
            labels[matcher.name] = matcher.value
            seen.add(matcher.name)
        else:
            labels.pop(matcher.name, None)
    return tuple(sorted((name, value) for name, value in labels.items() if value))
