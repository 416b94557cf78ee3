"""Deciding whether a record satisfies a condition: the exact half of matching.

The scanner has said which patterns may be in a line; here each is looked for in the record's body, then in its
whole text, by Python's ``re``. A pattern that could backtrack for long on a text of that length runs under a time
limit of the ``regex`` module instead (it counts CPU time of the process), and is set aside after it ran out of
time :data:`MAX_TIMEOUTS` times: one bad rule must not stop the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from agent.logs.patterns import Analysis, analyse
from agent.rules.model import Condition, Matcher, Position

__all__ = [
    "MAX_TIMEOUTS",
    "TIMEOUT",
    "CompiledCondition",
    "CompiledMatcher",
    "MatcherFault",
    "Matchers",
    "Untrusted",
]

TIMEOUT: Final = 0.05
"""Seconds of CPU one pattern may take on one record."""
MAX_TIMEOUTS: Final = 3
_FLAGS: Final = re.MULTILINE | re.ASCII


@dataclass(frozen=True, slots=True)
class MatcherFault:
    """A matcher that is not used, and why: it cannot be compiled, or it took too long too often."""

    matcher: Matcher
    message: str

    @property
    def position(self) -> Position:
        return self.matcher.position


class CompiledMatcher:
    """A matcher ready to be looked for in a text."""

    __slots__ = (
        *("analysis", "fold", "groups", "literals", "matcher", "needle", "number", "safe_length"),
        *("_regex", "scan_id", "set_aside", "timed", "timed_regex", "timeouts"),
    )

    def __init__(self, matcher: Matcher, number: int) -> None:
        """Raises ValueError when the pattern is none."""
        self.matcher = matcher
        self.number = number
        self.analysis: Analysis = analyse(matcher)
        self.scan_id = -1
        self.timeouts = 0
        self.set_aside = False
        self.safe_length = self.analysis.safe_length
        self.needle = matcher.pattern if matcher.kind == "contains" and not matcher.ignore_case else ""
        self.fold = self.analysis.fold
        # A newline is another character for the scanner, and only ASCII folds: then there is no quick no.
        literals = self.analysis.literals
        usable = all(b"\x0b" not in literal and (literal.isascii() or not self.fold) for literal in literals)
        self.literals = tuple(literal.decode("utf-8", "replace") for literal in literals) if usable else ()
        self.timed_regex: Any = None
        self.groups = self.analysis.groups
        self.timed = False
        self._regex: Any = None
        if not self.needle and not self.analysis.plain:
            self._regex = self._compile_timed()
            self.timed = True
            self.groups = bool(self._regex.groupindex)

    @property
    def regex(self) -> Any:
        """The compiled pattern; made when it is first needed, since most of hundreds never are."""
        if self._regex is None:
            pattern = re.escape(self.matcher.pattern) if self.matcher.kind == "contains" else self.matcher.pattern
            self._regex = re.compile(pattern, _FLAGS | (re.IGNORECASE if self.matcher.ignore_case else 0))
        return self._regex

    def _compile_timed(self) -> Any:
        import regex

        if self.timed_regex is None:
            flags = regex.MULTILINE | regex.ASCII | regex.VERSION0
            if self.matcher.ignore_case:
                flags |= regex.IGNORECASE
            pattern = re.escape(self.matcher.pattern) if self.matcher.kind == "contains" else self.matcher.pattern
            try:
                self.timed_regex = regex.compile(pattern, flags)
            except (regex.error, OverflowError, RecursionError) as error:
                raise ValueError(str(error)) from error
        return self.timed_regex

    @property
    def words(self) -> tuple[str, ...]:
        """Texts of which one is in every record that this matches; empty when there is no such quick check."""
        if self.needle:
            return (self.needle,)
        return () if self.fold else self.literals

    def find(self, body: str, text: str) -> Mapping[str, str] | None:
        """Named groups of the first match in ``body``, else in ``text``; None when there is none."""
        if self.needle:
            return _NO_FIELDS if self.needle in body or self.needle in text else None
        if self.timed or len(text) > self.safe_length:
            return self._find_timed(body, text)
        match = self.regex.search(body)
        if match is None:
            # The body is part of the text unless it was decoded from JSON, so a second look is rarely of use.
            if len(text) == len(body):
                return None
            match = self.regex.search(text)
            if match is None:
                return None
        if not self.groups:
            return _NO_FIELDS
        return {name: value for name, value in match.groupdict().items() if value is not None}

    def _find_timed(self, body: str, text: str) -> Mapping[str, str] | None:
        if self.set_aside or not (self._may_be_in(body) or self._may_be_in(text)):
            return None
        match = self._search(body)
        if match is None and text != body:
            match = self._search(text)
        if match is None:
            return None
        return {name: value for name, value in match.groupdict().items() if value is not None}

    def _may_be_in(self, text: str) -> bool:
        if not self.literals:
            return True
        lowered = text.lower() if self.fold else text
        return any(literal in lowered for literal in self.literals)

    def end(self, body: str) -> int:
        """Where the first match in ``body`` ends; -1 when there is none."""
        if self.set_aside:
            return -1
        if self.needle:
            position = body.find(self.needle)
            return -1 if position < 0 else position + len(self.needle)
        if not self._may_be_in(body):
            return -1
        match = self._search(body)
        return -1 if match is None else int(match.end())

    def _search(self, text: str) -> Any:
        if not self.timed and len(text) <= self.safe_length:
            return self.regex.search(text)
        try:
            return self._compile_timed().search(text, timeout=TIMEOUT)
        except TimeoutError:
            self.timeouts += 1
            self.set_aside = self.timeouts >= MAX_TIMEOUTS
            return None


_NO_FIELDS: Final[Mapping[str, str]] = {}


@dataclass(slots=True)
class CompiledCondition:
    """A condition over compiled matchers. ``indexes`` are its places in the caller's list."""

    condition: Condition
    indexes: tuple[int, ...]
    any: tuple[CompiledMatcher, ...]
    all: tuple[CompiledMatcher, ...]
    none: tuple[CompiledMatcher, ...]
    detects: bool = False
    broken: bool = False
    only: tuple[CompiledMatcher, ...] = ()

    def holds(
        self, body: str, text: str, severity: int, attributes: Mapping[str, str], found: dict[int, Any]
    ) -> Mapping[str, str] | None:
        """Fields when a record satisfies the condition, else None. ``found`` remembers matchers over one record."""
        condition = self.condition
        if severity < condition.severity_min or (condition.severity_max and severity > condition.severity_max):
            return None
        if self.only:
            # The commonest shape by far: one pattern and nothing else.
            return _remember(self.only[0], body, text, found)
        if self.broken:
            return None
        for name, accepted in condition.attributes.items():
            if attributes.get(name) not in accepted:
                return None
        fields: dict[str, str] = {}
        for matcher in self.all:
            groups = _remember(matcher, body, text, found)
            if groups is None:
                return None
            if groups:
                fields = {**groups, **fields}
        if self.any:
            satisfied = False
            for matcher in self.any:
                if satisfied and not matcher.groups:
                    continue
                groups = _remember(matcher, body, text, found)
                if groups is not None:
                    satisfied = True
                    if groups:
                        fields = {**groups, **fields}
            if not satisfied:
                return None
        for matcher in self.none:
            if _remember(matcher, body, text, found) is not None:
                return None
        return fields


class Untrusted:
    """Lines that quote users' text: where in them the engine stops speaking."""

    __slots__ = ("_conditions", "_words")

    def __init__(self, conditions: Iterable[CompiledCondition]) -> None:
        self._conditions = tuple(item for item in conditions if not item.broken)
        # Nearly every line is told to be none of them by a few searches for literals.
        sought = [item.all[:1] or item.any for item in self._conditions]
        known = all(matcher.words for matchers in sought for matcher in matchers) and all(sought)
        self._words = tuple(dict.fromkeys(w for ms in sought for m in ms for w in m.words)) if known else ("",)

    def quoted_after(self, body: str, text: str, severity: int, attributes: Mapping[str, str]) -> int:
        """Where in ``body`` users' text begins; -1 when it quotes none."""
        for word in self._words:
            if word in text:
                break
        else:
            # The body is the end of the text, except where it was written in JSON.
            if text.endswith(body) or not any(word in body for word in self._words):
                return -1
        first = -1
        for condition in self._conditions:
            if condition.holds(body, text, severity, attributes, {}) is None:
                continue
            ends = [end for matcher in (*condition.any, *condition.all) if (end := matcher.end(body)) >= 0]
            end = min(ends, default=0)
            first = end if first < 0 else min(first, end)
        return first


def _remember(matcher: CompiledMatcher, body: str, text: str, found: dict[int, Any]) -> Mapping[str, str] | None:
    number = matcher.number
    if number in found:
        known: Mapping[str, str] | None = found[number]
        return known
    groups = found[number] = matcher.find(body, text)
    return groups


@dataclass(slots=True)
class Matchers:
    """Every distinct matcher of a set of conditions, compiled once. ``faults`` names those that cannot be."""

    faults: list[MatcherFault] = field(default_factory=list)
    compiled: list[CompiledMatcher] = field(default_factory=list)
    _known: dict[Matcher, CompiledMatcher | None] = field(default_factory=dict)

    def condition(self, condition: Condition, indexes: Sequence[int], *, detects: bool = False) -> CompiledCondition:
        """``condition`` over compiled matchers. One whose demands cannot all be compiled never holds."""
        parts = [self._compile(matchers) for matchers in (condition.any, condition.all, condition.none)]
        some, every, no = (tuple(item for item in part if item is not None) for part in parts)
        broken = (
            (bool(condition.any) and not some)
            or len(every) < len(condition.all)
            or len(no) < len(condition.none)
            or not (condition.any or condition.all or condition.none or condition.severity_min or condition.attributes)
        )
        single = not broken and len(some) == 1 and not (every or no or condition.attributes)
        only = some if single else ()
        return CompiledCondition(condition, tuple(indexes), some, every, no, detects, broken, only)

    def _compile(self, matchers: Iterable[Matcher]) -> list[CompiledMatcher | None]:
        out: list[CompiledMatcher | None] = []
        for matcher in matchers:
            if matcher not in self._known:
                self._known[matcher] = None
                try:
                    compiled = CompiledMatcher(matcher, len(self.compiled))
                except ValueError as error:
                    self.faults.append(MatcherFault(matcher, f"pattern {matcher.pattern!r} is not used: {error}"))
                else:
                    self.compiled.append(compiled)
                    self._known[matcher] = compiled
            out.append(self._known[matcher])
        return out
