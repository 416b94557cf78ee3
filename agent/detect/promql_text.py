"""The text of an expression before and after the parser: what it cannot bear, and what its messages mean."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from typing import Final

__all__ = ["MAX_DEPTH", "ExprError", "check_text", "did_you_mean", "syntax_error"]

MAX_LENGTH: Final = 2000
"""Characters of an expression; the parser recurses, and far beyond this its stack ends."""
MAX_DEPTH: Final = 60
"""Levels of nesting, for the same reason here."""


class ExprError(ValueError):
    """An expression that cannot be used; the text is a sentence. ``offset``: where in the text, None if unknown."""

    def __init__(self, message: str, offset: int | None = None) -> None:
        super().__init__(message if offset is None else f"{message} (at character {offset + 1})")
        self.offset = offset


_DURATION: Final = re.compile(r"(?:\d+y)?(?:\d+w)?(?:\d+d)?(?:\d+h)?(?:\d+m)?(?:\d+s)?(?:\d+ms)?")
_TOKEN: Final = re.compile(
    r"""(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`)
      | (?P<comment>\#[^\n]*)
      | \[(?P<range>[^\]\[]*)\]
      | \boffset\s*-?\s*(?P<offset>[\w.]+)
      | (?P<number>(?<![\w.:])\d[\w.]*)
      | (?P<name>[A-Za-z_:][\w:]*)
    """,
    re.VERBOSE | re.ASCII | re.DOTALL,
)


def check_text(text: str) -> None:
    """Refuses what the parser cannot bear or takes although Prometheus 2.42 does not."""
    if len(text) > MAX_LENGTH:
        raise ExprError(f"is longer than {MAX_LENGTH} characters; put parts of it into rules of their own")
    depth = 0
    for offset, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
        if depth > MAX_DEPTH:
            raise ExprError(f"is nested more than {MAX_DEPTH} levels deep", offset)
    for match in _TOKEN.finditer(text):
        number, after = match["number"], match["offset"]
        if match["range"] is not None and ":" not in match["range"]:
            _check_duration(match["range"].strip(), match.start("range"))
        elif after is not None:
            _check_duration(after, match.start("offset"))
        elif number is not None and _DURATION.fullmatch(number) and not number.isdecimal():
            raise ExprError(f"{number} is a duration; a number of seconds is written without unit", match.start())


def _check_duration(text: str, offset: int) -> None:
    if not text or not _DURATION.fullmatch(text):
        raise ExprError(f"{text!r} is no duration; write one as 30s, 5m or 1h30m", offset)


def syntax_error(text: str, message: str, functions: Collection[str]) -> ExprError:
    """What the parser's ``message`` says of ``text``; ``functions`` are those that there are."""
    named = re.search(r"(?:name|function|label|identifier|for) '([\w:]+)'", message)
    offset = None
    if named is not None:
        place = re.search(rf"(?<![\w:]){re.escape(named[1])}(?![\w:])", text)
        offset = place.start() if place else None
    hint = ""
    if "unknown function" in message and named is not None:
        hint = did_you_mean(named[1], functions)
    elif message == "invalid promql query":
        message = "is no PromQL: operators, operands and brackets do not fit together"
        assignment = re.search(r"(?<![=!<>])=(?![=~])", re.sub(r"\{[^}]*\}", lambda m: " " * len(m[0]), text))
        if assignment is not None:
            offset, hint = assignment.start(), ", to compare write =="
    return ExprError(f"{message}{hint}", offset)


def did_you_mean(word: str, known: Collection[str]) -> str:
    """``, did you mean x?`` or nothing."""
    close = difflib.get_close_matches(word, sorted(known), n=1)
    return f", did you mean {close[0]}?" if close else ""
