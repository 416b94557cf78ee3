"""What a matcher means to the two who look for it: the scanner and the verifier.

The *verifier* decides. It runs the pattern on the text of a record as Python's ``re`` would, with two
settings that never change: ``^`` and ``$`` are line anchors, and classes and case are ASCII.

The *scanner* only has to say which lines are worth decoding, so it gets a **prefilter**: an expression in the
syntax that Vectorscan, RE2 and ``re`` share, made from the parsed pattern, that matches at least wherever the
pattern does. It works on raw bytes: a wildcard takes up to four bytes of UTF-8, anchors and look-arounds are
dropped (a header or an envelope may stand before the text), open ends are cut short (a scanner reports every end
of ``\\d+``), and nothing crosses a line: a newline *inside* a record is a vertical tab for the scanner
(:data:`NEWLINE`). What is left over is verified, so a wider prefilter costs time and never truth.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from re import _constants as _c  # type: ignore[attr-defined]  # private, and the only parser of re's syntax there is
from re import _parser  # type: ignore[attr-defined]
from typing import Any, Final

from agent.rules.model import Matcher

__all__ = ["NEWLINE", "Analysis", "analyse", "first_characters"]

NEWLINE: Final = b"\x0b"
"""What stands for a newline inside a record when the scanner reads it."""

_UNBOUNDED: Final = 1 << 30
_WIDE_REPEAT: Final = 64  # a larger bound is as good as none in a prefilter, and far cheaper to compile
_EXPRESSION_LIMIT: Final = 16_000  # Vectorscan refuses longer ones; no alert rule needs them


@dataclass(frozen=True, slots=True)
class _Set:
    """One character: the ASCII codes it may be, and whether it may be beyond ASCII.

    ``exact`` holds the UTF-8 of a character beyond ASCII that is the only one possible.
    """

    codes: frozenset[int]
    wide: bool = False
    exact: bytes = b""


@dataclass(frozen=True, slots=True)
class _Sequence:
    items: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Choice:
    options: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Repeat:
    item: _Node
    low: int
    high: int  # _UNBOUNDED for none


@dataclass(frozen=True, slots=True)
class _Boundary:
    pass


_Node = _Set | _Sequence | _Choice | _Repeat | _Boundary

_ASCII: Final = frozenset(range(128))
_ANY: Final = _Set(_ASCII, wide=True)
_EMPTY: Final = _Sequence(())
_DIGIT: Final = frozenset(range(48, 58))
_SPACE: Final = frozenset(b" \t\n\r\f\v")
_WORD: Final = frozenset(ord(char) for char in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_CATEGORIES: Final = {
    _c.CATEGORY_DIGIT: _Set(_DIGIT),
    _c.CATEGORY_SPACE: _Set(_SPACE),
    _c.CATEGORY_WORD: _Set(_WORD),
    _c.CATEGORY_NOT_DIGIT: _Set(_ASCII - _DIGIT, wide=True),
    _c.CATEGORY_NOT_SPACE: _Set(_ASCII - _SPACE, wide=True),
    _c.CATEGORY_NOT_WORD: _Set(_ASCII - _WORD, wide=True),
}


@dataclass(frozen=True, slots=True)
class Analysis:
    """What is known of a pattern before any text is seen.

    ``prefilter`` is None when nothing can be looked for: the pattern may match the empty text, or only the
    ``regex`` module understands it. Then every line has to be tried. ``literals``: every match holds one of
    them (empty: unknown), compared in lower case when ``fold``. ``safe_length``: up to this many characters a
    backtracking engine is fast enough without a time limit. ``plain``: Python's ``re`` compiles it; ``groups``: it
    names some.
    """

    prefilter: bytes | None
    literals: tuple[bytes, ...]
    fold: bool
    safe_length: int
    plain: bool = True
    groups: bool = False


known_analyses: Final[dict[tuple[str, str, bool], Analysis]] = {}
"""Kind, pattern, ``ignore_case`` -> what is known. Reloads and rule tests make engines of the same patterns again."""
MOST_KNOWN: Final = 20_000
known_firsts: Final[dict[str, frozenset[str] | None]] = {}
news: Final[set[str]] = set()
"""Not empty when something was found out since it was last written down (:mod:`agent.logs.pattern_cache`)."""


def analyse(matcher: Matcher) -> Analysis:
    """Prefilter, literals and cost of a matcher. A pattern that ``re`` cannot parse gives an empty analysis."""
    key = (matcher.kind, matcher.pattern, matcher.ignore_case)
    found = known_analyses.get(key)
    if found is None:
        if len(known_analyses) >= MOST_KNOWN:
            known_analyses.clear()
        found = known_analyses[key] = _analyse(matcher)
        news.add("analysis")
    return found


def _analyse(matcher: Matcher) -> Analysis:
    groups = False
    if matcher.kind == "contains":
        tree: _Node = _literal(matcher.pattern, fold=matcher.ignore_case)
    else:
        flags = re.MULTILINE | re.ASCII | (re.IGNORECASE if matcher.ignore_case else 0)
        try:
            parsed = _parser.parse(matcher.pattern, flags)
            tree = _convert(parsed, parsed.state.flags)
            groups = bool(re.compile(matcher.pattern, flags).groupindex)
        except (re.error, OverflowError, RecursionError):
            return Analysis(None, (), False, 0, plain=False)
    hazard = 0 if matcher.kind == "contains" else _hazard(tree)
    trimmed = _trim(_trim(tree, last=True), last=False)
    expression = _emit(trimmed) if _shortest(trimmed) > 0 else None
    if expression is not None and len(expression) > _EXPRESSION_LIMIT:
        expression = None
    literals, fold = _best_literals(trimmed) if expression is not None else ((), False)
    return Analysis(expression, literals, fold, _SAFE_LENGTH.get(hazard, 0), True, groups)


def first_characters(pattern: str) -> frozenset[str] | None:
    """The ASCII characters a match of ``pattern`` may begin with; None when that cannot be told."""
    if pattern not in known_firsts:
        known_firsts[pattern] = _first_characters(pattern)
        news.add("first characters")
    return known_firsts[pattern]


def _first_characters(pattern: str) -> frozenset[str] | None:
    try:
        parsed = _parser.parse(pattern, re.ASCII)
    except (re.error, OverflowError, RecursionError):
        return None
    first = _first(_convert(parsed, parsed.state.flags))
    return None if first is None or first.wide else frozenset(map(chr, first.codes))


# --- from re's parse tree to ours ---------------------------------------------------------------------------


def _convert(parsed: Iterable[tuple[Any, Any]], flags: int) -> _Node:
    return _Sequence(tuple(node for op, value in parsed if (node := _convert_item(op, value, flags)) is not None))


def _convert_item(op: Any, value: Any, flags: int) -> _Node | None:
    fold = bool(flags & re.IGNORECASE)
    if op is _c.LITERAL:
        return _character(value, fold)
    if op is _c.NOT_LITERAL:
        return _Set(_ASCII - _character(value, fold).codes, wide=True)
    if op is _c.ANY:
        return _ANY if flags & re.DOTALL else _Set(_ASCII - {10}, wide=True)
    if op is _c.IN:
        return _convert_class(value, fold)
    if op is _c.BRANCH:
        return _Choice(tuple(_convert(option, flags) for option in value[1]))
    if op is _c.SUBPATTERN:
        _, added, removed, inner = value
        return _convert(inner, (flags | added) & ~removed)
    if op in (_c.MAX_REPEAT, _c.MIN_REPEAT, _c.POSSESSIVE_REPEAT):
        low, high, inner = value
        return _Repeat(_convert(inner, flags), int(low), _UNBOUNDED if high is _c.MAXREPEAT else int(high))
    if op is _c.ATOMIC_GROUP:
        return _convert(value, flags)
    if op is _c.AT:
        return _Boundary() if value is _c.AT_BOUNDARY else None
    if op is _c.GROUPREF_EXISTS:
        _, yes, no = value
        return _Choice((_convert(yes, flags), _EMPTY if no is None else _convert(no, flags)))
    if op is _c.GROUPREF:
        return _Repeat(_ANY, 0, _UNBOUNDED)
    return None  # look-arounds: whatever they demand is left to the verifier


def _convert_class(items: Sequence[tuple[Any, Any]], fold: bool) -> _Set:
    codes: set[int] = set()
    wide = negated = False
    for op, value in items:
        if op is _c.NEGATE:
            negated = True
        elif op is _c.LITERAL:
            found = _character(value, fold)
            codes |= found.codes
            wide |= found.wide
        elif op is _c.RANGE:
            low, high = value
            for code in range(low, min(high, 127) + 1):
                codes |= _character(code, fold).codes
            wide |= high > 127
        elif op is _c.CATEGORY:
            category = _CATEGORIES[value]
            codes |= category.codes
            wide |= category.wide
    # A negated class takes everything beyond ASCII unless it names it all, which no rule does.
    if negated:
        return _Set(_ASCII - codes, wide=True)
    return found if len(items) == 1 and items[0][0] is _c.LITERAL else _Set(frozenset(codes), wide=wide)


def _character(code: int, fold: bool) -> _Set:
    if code > 127:
        # Beyond ASCII case does not fold (re.ASCII), so the character is exactly its bytes.
        return _Set(frozenset(), wide=True, exact=b"" if 0xD800 <= code < 0xE000 else chr(code).encode())
    if fold and chr(code).isalpha():
        return _Set(frozenset({ord(chr(code).lower()), ord(chr(code).upper())}))
    return _Set(frozenset({code}))


def _literal(text: str, *, fold: bool) -> _Sequence:
    return _Sequence(tuple(_character(ord(char), fold) for char in text))


# --- what can be said of a tree -----------------------------------------------------------------------------


def _shortest(node: _Node) -> int:
    if isinstance(node, _Set):
        return 1
    if isinstance(node, _Sequence):
        return sum(_shortest(item) for item in node.items)
    if isinstance(node, _Choice):
        return min((_shortest(option) for option in node.options), default=0)
    if isinstance(node, _Repeat):
        return _shortest(node.item) * node.low
    return 0


def _trim(node: _Node, *, last: bool) -> _Node:
    """Drop what is optional at one end: whether a match exists does not depend on it."""
    if isinstance(node, _Sequence):
        items = list(node.items)
        while items:
            index = -1 if last else 0
            items[index] = _trim(items[index], last=last)
            if items[index] != _EMPTY:
                break
            del items[index]
        return _Sequence(tuple(items)) if items else _EMPTY
    if isinstance(node, _Choice):
        options = tuple(_trim(option, last=last) for option in node.options)
        return _EMPTY if _EMPTY in options else _Choice(options)
    if isinstance(node, _Repeat):
        if node.low == 0:
            return _EMPTY
        if node.low == 1:
            return _trim(node.item, last=last)
        return _Repeat(node.item, node.low, node.low)
    return node


def _first(node: _Node) -> _Set | None:
    """Every character a match of ``node`` may begin with; None when it may be empty."""
    if isinstance(node, _Set):
        return node
    if isinstance(node, _Sequence):
        codes: frozenset[int] = frozenset()
        wide = False
        for item in node.items:
            found = _first(item)
            inner = found or _openings(item)
            codes, wide = codes | inner.codes, wide or inner.wide
            if found is not None:
                return _Set(codes, wide)
        return None
    if isinstance(node, _Choice):
        parts = [_first(option) for option in node.options]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        return _Set(frozenset().union(*(part.codes for part in known)), any(part.wide for part in known))
    if isinstance(node, _Repeat):
        return _first(node.item) if node.low else None
    return None


def _openings(node: _Node) -> _Set:
    if isinstance(node, _Repeat):
        return _first(node.item) or _ANY
    return _Set(frozenset()) if isinstance(node, _Boundary) or node == _EMPTY else _ANY


_SAFE_LENGTH: Final = {0: 1 << 20, 1: 4096, 2: 1024, 3: 256}


def _hazard(node: _Node) -> int:
    """How fast a backtracking engine can get slow: 0 linear, n about length**n, 9 exponential for all we know."""
    worst = 0

    def walk(node: _Node, follow: _Set | None, inside: bool) -> None:
        nonlocal worst
        if isinstance(node, _Sequence):
            for index, item in enumerate(node.items):
                rest = _Sequence(node.items[index + 1 :])
                walk(item, _first(rest) or (follow if _shortest(rest) == 0 and not rest.items else None), inside)
        elif isinstance(node, _Choice):
            for option in node.options:
                walk(option, follow, inside)
        elif isinstance(node, _Repeat):
            variable = node.high - node.low > _WIDE_REPEAT
            if inside and node.high > node.low:
                worst = max(worst, 9)
            if variable:
                worst = max(worst, 1)
                if inside or not isinstance(node.item, _Set | _Sequence) or _has_choice(node.item):
                    worst = 9
                one = _first(node.item)
                if follow is None or one is None or one.codes & follow.codes or (one.wide and follow.wide):
                    worst += 1
            walk(node.item, None, inside or variable)

    walk(node, _Set(frozenset()), False)
    return min(worst, 9)


def _has_choice(node: _Node) -> bool:
    if isinstance(node, _Sequence):
        return any(_has_choice(item) for item in node.items)
    return isinstance(node, _Choice) or (isinstance(node, _Repeat) and _has_choice(node.item))


def _best_literals(node: _Node) -> tuple[tuple[bytes, ...], bool]:
    found = _literals(node)
    if not found:
        return (), False
    fold = any(folded for _, folded in found)
    return tuple(sorted({text.lower() if fold else text for text, _ in found})), fold


def _literals(node: _Node) -> list[tuple[bytes, bool]]:
    """Alternatives of which every match holds one, each with "this part ignores case"; empty when unknown."""
    if isinstance(node, _Set):
        return _literals(_Sequence((node,)))
    if isinstance(node, _Choice):
        parts = [_literals(option) for option in node.options]
        return [item for part in parts for item in part] if all(parts) else []
    if isinstance(node, _Repeat):
        return _literals(node.item) if node.low else []
    if isinstance(node, _Sequence):
        candidates: list[list[tuple[bytes, bool]]] = []
        run = bytearray()
        folded = False
        for item in (*node.items, _Boundary()):
            if isinstance(item, _Set) and (text := _single(item)):
                run += text
                folded = folded or len(item.codes) > 1
                continue
            if run:
                candidates.append([(bytes(run), folded)])
                run, folded = bytearray(), False
            if not isinstance(item, _Set) and (inner := _literals(item)):
                candidates.append(inner)
        # The best candidate is the one whose shortest alternative is longest.
        return max(candidates, key=lambda alternatives: min(len(text) for text, _ in alternatives), default=[])
    return []


def _single(node: _Set) -> bytes:
    """The one character a set stands for, in lower case when it is a letter in both cases; else nothing."""
    if node.wide or not 1 <= len(node.codes) <= 2:
        return node.exact
    low, high = min(node.codes), max(node.codes)
    if low != high and (high != low + 32 or not chr(low).isalpha()):
        return b""
    return NEWLINE if high == 10 else bytes((high,))


# --- from our tree to an expression -------------------------------------------------------------------------


def _emit(node: _Node) -> bytes:
    if isinstance(node, _Set):
        if node.exact:
            return b"".join(b"\\x%02x" % byte for byte in node.exact)
        return b"(?:%s{1,4})" % _emit_set(node) if node.wide else _emit_set(node)
    if isinstance(node, _Sequence):
        return b"".join(b"(?:%s)" % _emit(item) if isinstance(item, _Choice) else _emit(item) for item in node.items)
    if isinstance(node, _Choice):
        return b"|".join(_emit(option) for option in node.options)
    if isinstance(node, _Repeat):
        return _emit_repeat(node)
    return rb"\b"


def _emit_repeat(node: _Repeat) -> bytes:
    item, low, high = node.item, min(node.low, _WIDE_REPEAT), node.high
    if isinstance(item, _Sequence) and len(item.items) == 1:
        item = item.items[0]
    if isinstance(item, _Set) and not item.exact:
        body = _emit_set(item)
        high = min(high * 4, _UNBOUNDED) if item.wide else high
    else:
        body = b"(?:%s)" % _emit(item)
    if not _shortest(item):
        low = 0
    if high > _WIDE_REPEAT:
        return body + (b"*" if low == 0 else b"+" if low == 1 else b"{%d,}" % low)
    if (low, high) == (1, 1):
        return body
    return body + (b"?" if (low, high) == (0, 1) else b"{%d,%d}" % (low, high))


def _emit_set(node: _Set) -> bytes:
    codes = set(node.codes)
    if 10 in codes:
        codes.remove(10)
        codes.add(NEWLINE[0])
    if node.wide:
        codes.update(range(128, 256))
    if len(codes) == 1:
        return _escape(codes.pop())
    if not codes:
        return b"[^\\x00-\\xff]"
    ranges: list[list[int]] = []
    for code in sorted(codes):
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    parts = (_escape(low) if low == high else _escape(low) + b"-" + _escape(high) for low, high in ranges)
    return b"[%s]" % b"".join(parts)


def _escape(code: int) -> bytes:
    char = chr(code)
    return char.encode() if code < 128 and (char.isalnum() or char in " _") else b"\\x%02x" % code
