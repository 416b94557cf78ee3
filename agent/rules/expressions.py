"""What a ``when`` expression speaks of: the names in it, with their places.

Whether it is PromQL that can be evaluated is for the evaluator to say (the loader is given a function for that);
here only the metric names are picked out, so that a name that no signal has is found where it stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

__all__ = ["names_in"]

_TOKEN: Final = re.compile(
    r"""
    (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`)
  | (?P<comment>\#[^\n]*)
  | (?P<braces>\{[^}]*\}?)
  | (?P<range>\[[^\]]*\]?)
  | (?P<number>\d[\w.]*)
  | (?P<name>[A-Za-z_:][\w:]*)(?P<call>\s*\(|\s*\b(?:by|without)\s*\()?
    """,
    re.VERBOSE | re.ASCII,
)
_LABEL_LISTS: Final = frozenset({"by", "without", "on", "ignoring", "group_left", "group_right"})
_WORDS: Final = _LABEL_LISTS | {"and", "or", "unless", "bool", "offset", "atan2", "start", "end", "inf", "nan"}


def names_in(expression: str) -> Iterator[tuple[int, str]]:
    """Metric names of a PromQL expression as (offset, name)."""
    position = 0
    while True:
        found = _TOKEN.search(expression, position)
        if found is None:
            return
        position = found.end()
        name = found["name"]
        if name is None:
            continue
        if name.lower() in _LABEL_LISTS:
            if found["call"]:
                close = expression.find(")", position)
                position = len(expression) if close < 0 else close + 1
        elif name.lower() not in _WORDS and found["call"] is None:
            yield found.start("name"), name
        elif found["call"]:
            position = found.end("name")  # what follows a function or an aggregation is looked at in its turn
