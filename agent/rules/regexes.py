"""Is a regular expression sound? Syntax with the place of the mistake, and what its groups are."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from functools import lru_cache

__all__ = ["RegexInfo", "inspect_regex"]


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
        return RegexInfo(error=f"{warning}: put a backslash before the bracket", offset=_place(str(warning)))
    except (OverflowError, RecursionError, ValueError) as error:
        return RegexInfo(error=str(error) or type(error).__name__)
    return RegexInfo(groups=tuple(compiled.groupindex), matches_empty=compiled.search("") is not None)


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
