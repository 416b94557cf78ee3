"""Is a regular expression sound? Syntax with the place of the mistake, and what its groups are."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from functools import lru_cache
from re import _constants as _c  # type: ignore[attr-defined]  # private, and the only parser of re's syntax there is
from re import _parser  # type: ignore[attr-defined]
from typing import Any

__all__ = ["RegexInfo", "inspect_regex", "texts_of_group"]


@dataclass(frozen=True, slots=True)
class RegexInfo:
    """``groups``: its named groups. ``error`` with ``offset``: why it is none. ``matches_empty``: it is found in
    every line."""

    groups: tuple[str, ...] = ()
    error: str = ""
    offset: int = 0
    matches_empty: bool = False


@lru_cache(maxsize=4096)
def inspect_regex(pattern: str, ignore_case: bool = False) -> RegexInfo:
    """Compiles the pattern as Python does; never raises."""
    flags = re.IGNORECASE if ignore_case else 0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            compiled = re.compile(pattern, flags)
    except re.error as error:
        return RegexInfo(error=_advice(error.msg, pattern), offset=error.pos or 0)
    except Warning as warning:
        problem = re.sub(r" at position \d+", "", str(warning))
        return RegexInfo(error=f"{problem}: put a backslash before the bracket", offset=_place(str(warning)))
    except (OverflowError, RecursionError, ValueError) as error:
        return RegexInfo(error=str(error) or type(error).__name__)
    return RegexInfo(groups=tuple(compiled.groupindex), matches_empty=compiled.search("") is not None)


@lru_cache(maxsize=512)
def texts_of_group(pattern: str, group: str) -> frozenset[str] | None:
    """All texts that a named group can take, as with ``(?P<severity>INFO|WARN)`` or ``(?P<severity>[IWE])``; None when
    they are no short list."""
    try:
        parsed = _parser.parse(pattern)
    except (re.error, OverflowError, RecursionError):
        return None
    number = parsed.state.groupdict.get(group)
    body = _group_body(parsed, number)
    texts = None if body is None else _texts(body)
    return None if texts is None else frozenset(texts)


def _group_body(nodes: Any, number: int | None) -> Any:
    for op, value in nodes:
        if op is _c.SUBPATTERN and value[0] == number:
            return value[3]
        parts: list[Any] = []
        if op is _c.SUBPATTERN:
            parts = [value[3]]
        elif op is _c.BRANCH:
            parts = value[1]
        elif op in (_c.MAX_REPEAT, _c.MIN_REPEAT):
            parts = [value[2]]
        for part in parts:
            found = _group_body(part, number)
            if found is not None:
                return found
    return None


def _texts(nodes: Any) -> set[str] | None:
    texts = {""}
    for op, value in nodes:
        options = _options(op, value)
        if options is None or len(texts) * len(options) > 100:
            return None
        texts = {text + option for text in texts for option in options}
    return texts


def _options(op: Any, value: Any) -> set[str] | None:
    if op is _c.LITERAL:
        return {chr(value)}
    if op is _c.IN and all(inner is _c.LITERAL for inner, _ in value):
        return {chr(detail) for _, detail in value}
    if op is _c.SUBPATTERN:
        return _texts(value[3])
    if op is _c.BRANCH:
        branches = [_texts(branch) for branch in value[1]]
        return None if None in branches else set().union(*(branch for branch in branches if branch is not None))
    if op in (_c.MAX_REPEAT, _c.MIN_REPEAT) and tuple(map(int, value[:2])) == (0, 1):
        texts = _texts(value[2])
        return None if texts is None else texts | {""}
    return None


def _place(text: str) -> int:
    found = re.search(r"at position (\d+)", text)
    return int(found[1]) if found else 0


def _advice(message: str, pattern: str) -> str:
    if "missing ), unterminated subpattern" in message:
        return "this '(' is never closed; for the character write \\("
    if "unbalanced parenthesis" in message:
        return "this ')' closes nothing; for the character write \\)"
    if "nothing to repeat" in message or "multiple repeat" in message:
        return f"{message}; for the character itself put a backslash before it"
    if "unterminated character set" in message:
        return "this '[' is never closed; for the character write \\["
    if "unknown extension ?<" in message and "(?<" in pattern:
        return f"{message}; a named group is written (?P<name>...)"
    if "missing <" in message or "unknown extension ?P" in message:
        return f"{message}; a named group is written (?P<name>...)"
    return message
