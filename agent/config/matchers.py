"""Label matchers in Alertmanager's syntax: ``severity="critical"``, ``model=~"llama.*"``, ``{a="b", c!="d"}``.

https://prometheus.io/docs/alerting/latest/configuration/#label-matchers
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

__all__ = ["LabelMatcher", "all_match", "parse_matchers"]

_MATCHER: Final = re.compile(
    r"""\s*(?P<name>[a-zA-Z_][a-zA-Z0-9_]*)\s*(?P<op>=~|!~|!=|=)\s*
        (?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^\s{}!=~,\\"'`]*))\s*""",
    re.VERBOSE | re.ASCII,
)
_ESCAPES: Final = {"n": "\n", '"': '"', "\\": "\\"}


@dataclass(frozen=True, slots=True)
class LabelMatcher:
    """One comparison of a label; a label that an alert does not have counts as empty. Regexes match the whole value."""

    name: str
    op: Literal["=", "!=", "=~", "!~"]
    value: str

    def matches(self, labels: Mapping[str, str]) -> bool:
        given = labels.get(self.name, "")
        if self.op == "=":
            return given == self.value
        if self.op == "!=":
            return given != self.value
        return (_compiled(self.value).fullmatch(given) is not None) == (self.op == "=~")

    def __str__(self) -> str:
        escaped = self.value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'{self.name}{self.op}"{escaped}"'


def all_match(matchers: Iterable[LabelMatcher], labels: Mapping[str, str]) -> bool:
    """Whether every matcher holds; no matcher at all holds for everything."""
    return all(matcher.matches(labels) for matcher in matchers)


@lru_cache(maxsize=512)
def parse_matchers(text: str) -> tuple[LabelMatcher, ...]:
    """The matchers of ``a="b"`` or ``{a="b", c!~"d"}``. Raises ValueError with a sentence that says where and what."""
    inside = text.strip()
    if inside.startswith("{"):
        if not inside.endswith("}"):
            raise ValueError("'{' is never closed")
        inside = inside[1:-1]
    found: list[LabelMatcher] = []
    end = 0
    while end < len(inside):
        match = _MATCHER.match(inside, end)
        if match is None:
            raise ValueError(f"'{inside[end:][:60].strip()}' is no matcher, write for example severity=\"critical\"")
        found.append(_matcher(match))
        end = match.end()
        if end < len(inside):
            rest = inside[end:][:60]
            if rest.startswith('"'):
                raise ValueError(f"the quote in '{found[-1].name}{found[-1].op}{rest}' is never closed")
            if not rest.startswith(","):
                raise ValueError(f"'{rest}' is not expected after {found[-1]}, put a comma between matchers")
            end += 1
    if not found:
        raise ValueError('is empty, write for example severity="critical"')
    return tuple(found)


def _matcher(match: re.Match[str]) -> LabelMatcher:
    value = match["plain"]
    if value is None:
        value = re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[0]), match["quoted"])
    op = match["op"]
    if op in ("=~", "!~"):
        try:
            _compiled(value)
        except re.error as error:
            raise ValueError(f"bad regex '{value[:60]}' at character {(error.pos or 0) + 1}: {error.msg}") from None
    return LabelMatcher(match["name"], op, value)  # type: ignore[arg-type]  # the regex knows the operators


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
