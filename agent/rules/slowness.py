"""Is a regular expression provably slow? A small backtracking matcher that counts its steps on texts made to hurt it.

A pattern such as ``(a+)+$`` needs a number of steps that doubles with each character of a line that does not match.
Whether that happens is not guessed from the look of the pattern: for each repetition in it, a text is made that repeats
what the repetition takes and then fails, and the steps are counted at two lengths. Counting steps instead of time gives
the same answer on every machine. Linear engines (Vectorscan, RE2) do not mind, but fields are taken out of a matched
line by a backtracking one, and not every machine has the others.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from re import _constants as _c  # type: ignore[attr-defined]  # private, and the only parser of re's syntax there is
from re import _parser  # type: ignore[attr-defined]
from typing import Any, Final

__all__ = ["slowness"]

_SHORT, _LONG = 20, 40
"""Repetitions of the part that hurts, in the two texts that are compared."""
_BUDGET: Final = 40_000
"""Steps after which a text of at most some hundred characters has shown enough."""
_CUBIC: Final = 5.5
"""Twice the text, so many times the steps: more than a square (4), less than a cube (8) leaves room for lower terms."""
_WORTH_A_LOOK: Final = 2_000
_HARMLESS: Final = 300
"""Fewer steps than this on the shorter text: a cube would have taken a thousand."""
_UNBOUNDED: Final = 16
_CHARACTERS: Final = "a0 _-.A:/=,\t\"'([{<x1\n"

_Node = tuple[Any, Any]
_Next = Callable[[int], bool]


class _Enough(Exception):
    """The budget of steps is used up."""


@lru_cache(maxsize=4096)
def slowness(pattern: str, ignore_case: bool = False) -> str:
    """Why the pattern is slow, as a clause with a text that shows it; empty when it is not, or is no pattern."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parsed = list(_parser.parse(pattern, re.IGNORECASE if ignore_case else 0))
    except (re.error, OverflowError, RecursionError):
        return ""
    if not _suspicious(parsed):
        return ""
    for attack in dict.fromkeys(_attacks(parsed)):
        few = _steps(parsed, attack.text(_SHORT))
        if few < _HARMLESS:
            continue
        many = _steps(parsed, attack.text(_LONG))
        if many >= _BUDGET:
            return f"its time explodes, as on a line with {attack.shown()}"
        if many >= _WORTH_A_LOOK and many / max(few, 1) >= _CUBIC:
            return f"its time grows with the cube of the line's length, as on a line with {attack.shown()}"
    return ""


# -- which texts to try -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Attack:
    prefix: str
    pump: str

    def text(self, times: int) -> str:
        return f"{self.prefix}{self.pump * times}\x00"

    def shown(self) -> str:
        return f"{(self.prefix + self.pump * 3)[:40]!r} and so on"


def _is_repeat(op: Any) -> bool:
    return op in (_c.MAX_REPEAT, _c.MIN_REPEAT)


def _parts(op: Any, value: Any) -> list[list[_Node]]:
    """The sequences inside a node."""
    if op in (_c.MAX_REPEAT, _c.MIN_REPEAT, _c.POSSESSIVE_REPEAT):
        return [list(value[2])]
    if op is _c.SUBPATTERN:
        return [list(value[3])]
    if op is _c.ATOMIC_GROUP:
        return [list(value)]
    if op is _c.BRANCH:
        return [list(branch) for branch in value[1]]
    return []


def _unbounded(op: Any, value: Any) -> bool:
    return _is_repeat(op) and int(value[1]) >= _UNBOUNDED


def _suspicious(nodes: list[_Node], depth: int = 0) -> bool:
    """Repetition inside repetition, or three repetitions in one pattern: less cannot be worse than a square."""
    return _nested(nodes, depth) or _count(nodes) >= 3


def _nested(nodes: list[_Node], depth: int) -> bool:
    for op, value in nodes:
        deeper = depth + (1 if _unbounded(op, value) else 0)
        if deeper >= 2 or any(_nested(part, deeper) for part in _parts(op, value)):
            return True
    return False


def _count(nodes: list[_Node]) -> int:
    return sum(_unbounded(op, value) + sum(_count(part) for part in _parts(op, value)) for op, value in nodes)


def _attacks(nodes: list[_Node], prefix: str = "") -> Iterator[_Attack]:
    """For each unbounded repetition: what leads to it, and several texts that it takes."""
    for index, (op, value) in enumerate(nodes):
        if _unbounded(op, value):
            body = list(value[2])
            following = _sample(nodes[index + 1 :])[:1]
            for choice in (0, 1, 2):
                pump = _sample(body, choice)
                if pump:
                    yield _Attack(prefix, pump)
            if following and _sample(body, prefer=following):
                yield _Attack(prefix, _sample(body, prefer=following))
        for part in _parts(op, value):
            yield from _attacks(part, prefix)
        prefix += _sample([(op, value)])


def _sample(nodes: list[_Node], choice: int = 0, prefer: str = "") -> str:
    """A text that the nodes take; other ``choice``, other text. ``prefer``: a character to use where it fits."""
    text = ""
    for op, value in nodes:
        if op is _c.LITERAL:
            text += chr(value)
        elif op in (_c.NOT_LITERAL, _c.ANY, _c.IN):
            fitting = [char for char in prefer + _CHARACTERS if _takes(op, value, char, False)]
            text += fitting[min(choice, len(fitting) - 1)] if fitting else _first_of(op, value)
        elif op in (_c.MAX_REPEAT, _c.MIN_REPEAT, _c.POSSESSIVE_REPEAT):
            times = max(int(value[0]), 1 if int(value[0]) == 0 and choice else int(value[0]))
            text += _sample(list(value[2]), choice, prefer) * min(times, 40)
        elif op is _c.BRANCH:
            branches = value[1]
            text += _sample(list(branches[min(choice, len(branches) - 1)]), choice, prefer)
        elif op in (_c.SUBPATTERN, _c.ATOMIC_GROUP):
            text += _sample(_parts(op, value)[0], choice, prefer)
    return text


def _first_of(op: Any, value: Any) -> str:
    """A character of a set that holds none of the usual ones."""
    if op is _c.IN:
        for inner, detail in value:
            if inner is _c.LITERAL:
                return chr(detail)
            if inner is _c.RANGE:
                return chr(detail[0])
    return "a"


# -- counting -----------------------------------------------------------------------------------------------------


def _steps(nodes: list[_Node], text: str) -> int:
    """Steps of a backtracking matcher that starts at the first character."""
    count = 0

    def spend() -> None:
        nonlocal count
        count += 1
        if count >= _BUDGET:
            raise _Enough

    def sequence(items: list[_Node], index: int, at: int, after: _Next) -> bool:
        if index == len(items):
            return after(at)
        spend()
        op, value = items[index]

        def rest(position: int) -> bool:
            return sequence(items, index + 1, position, after)

        if op in (_c.LITERAL, _c.NOT_LITERAL, _c.ANY, _c.IN):
            return at < len(text) and _takes(op, value, text[at], True) and rest(at + 1)
        if op is _c.BRANCH:
            return any(sequence(list(branch), 0, at, rest) for branch in value[1])
        if op is _c.SUBPATTERN:
            return sequence(list(value[3]), 0, at, rest)
        if op in (_c.MAX_REPEAT, _c.MIN_REPEAT):
            low, high, body = int(value[0]), int(value[1]), list(value[2])
            if len(body) == 1 and body[0][0] in (_c.LITERAL, _c.NOT_LITERAL, _c.ANY, _c.IN):
                return run(body[0], low, high, at, rest, lazy=op is _c.MIN_REPEAT)
            return repeat(body, low, high, at, rest, lazy=op is _c.MIN_REPEAT, done=0)
        if op in (_c.POSSESSIVE_REPEAT, _c.ATOMIC_GROUP):
            return atomic(op, value, at, rest)
        if op is _c.AT and value in (_c.AT_END, _c.AT_END_STRING):
            return at == len(text) and rest(at)
        if op is _c.AT and value in (_c.AT_BEGINNING, _c.AT_BEGINNING_STRING):
            return at == 0 and rest(at)
        return rest(at)  # word boundaries, look-around, back-references: taken as holding

    def run(one: _Node, low: int, high: int, at: int, after: _Next, *, lazy: bool) -> bool:
        """Repetition of a single character, which is most of them: the same steps without a call for each."""
        end = at
        while end < len(text) and end - at < high and _takes(*one, text[end], True):
            spend()
            end += 1
        if end - at < low:
            return False
        lengths = range(low, end - at + 1)
        for length in lengths if lazy else reversed(lengths):
            spend()
            if after(at + length):
                return True
        return False

    def repeat(body: list[_Node], low: int, high: int, at: int, after: _Next, *, lazy: bool, done: int) -> bool:
        spend()

        def once_more(position: int) -> bool:
            if position == at and done >= low:
                return False  # an empty turn changes nothing
            return repeat(body, low, high, position, after, lazy=lazy, done=done + 1)

        if done < low:
            return sequence(body, 0, at, once_more)
        if lazy:
            return after(at) or (done < high and sequence(body, 0, at, once_more))
        return (done < high and sequence(body, 0, at, once_more)) or after(at)

    def atomic(op: Any, value: Any, at: int, after: _Next) -> bool:
        end = at
        inside = list(value) if op is _c.ATOMIC_GROUP else [(_c.MAX_REPEAT, value)]

        def keep(position: int) -> bool:
            nonlocal end
            end = position
            return True

        return sequence(inside, 0, at, keep) and after(end)

    try:
        sequence(nodes, 0, 0, lambda _: True)
    except (_Enough, RecursionError):
        return _BUDGET
    return count


def _takes(op: Any, value: Any, char: str, any_line: bool) -> bool:
    if op is _c.LITERAL:
        return bool(ord(char) == value)
    if op is _c.NOT_LITERAL:
        return bool(ord(char) != value)
    if op is _c.ANY:
        return any_line or char != "\n"
    negate, found = False, False
    for inner, detail in value:
        if inner is _c.NEGATE:
            negate = True
        elif inner is _c.LITERAL:
            found = found or ord(char) == detail
        elif inner is _c.RANGE:
            found = found or detail[0] <= ord(char) <= detail[1]
        elif inner is _c.CATEGORY:
            found = found or _in_category(detail, char)
    return found != negate


def _in_category(category: Any, char: str) -> bool:
    name = str(category)
    inside = char.isdigit() if "DIGIT" in name else char.isspace() if "SPACE" in name else char.isalnum() or char == "_"
    return inside != ("NOT" in name)
