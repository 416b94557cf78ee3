"""Numbers that an engine prints into its own log: periodic stats lines and the facts of the start block.

Where no metrics page is configured these lines are the only signals there are. Which lines they are and where the
numbers stand is data of the dialect; a line is read as loose ``key: value`` segments, since every version adds some.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final

import regex

from agent.model import LogRecord, Sample
from agent.rules.model import Condition, Dialect, Fact, Matcher, StatsLine, ValueTest

__all__ = ["StatsReader"]

MAX_TEXT: Final = 8192
"""Characters of a record that are looked at; no engine's stats line comes near it."""
MAX_SECONDS: Final = 0.1
"""Time one pattern may take on one line before it counts as not found (patterns of users may backtrack)."""

_OPERATORS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "==": eq,
    "!=": ne,
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
}


class StatsReader:
    """Turns records that carry an engine's own numbers into samples; holds no state of any server."""

    def __init__(self, dialects: Mapping[str, Dialect]) -> None:
        self._dialects = dict(dialects)

    def read(self, record: LogRecord, engine: str) -> list[Sample]:
        """Samples of one record, read in the dialect ``engine`` (an unknown one gives none).

        Several lines of a dialect may fit one record; each gives a sample. All facts of a record are one sample.
        """
        dialect = self._dialects.get(engine)
        if dialect is None:
            return []
        body = record.body[:MAX_TEXT]
        spoken = [stats for stats in dialect.stats if _holds(stats.condition, record, body)]
        samples = [sample for stats in spoken if (sample := self.stats(stats, record)) is not None]
        facts = self.facts(dialect.facts, record)
        return [*samples, facts] if facts is not None else samples

    @staticmethod
    def stats(stats: StatsLine, record: LogRecord) -> Sample | None:
        """What one stats line says; None when its numbers are not there (another line that quotes its words)."""
        return _read_stats(stats, record, record.body[:MAX_TEXT])

    @staticmethod
    def facts(facts: Sequence[Fact], record: LogRecord) -> Sample | None:
        """The numbers of the start block that a record prints, as one sample."""
        body = record.body[:MAX_TEXT]
        values = {fact.signal: value for fact in facts if (value := _value(fact.regex, body, fact.scale)) is not None}
        if not values:
            return None
        return Sample(record.timestamp, record.server, "log", values, _instance("", record, body))

    @staticmethod
    def speaker(stats: StatsLine, record: LogRecord) -> str:
        """Which replica a stats line speaks of, without reading the rest of it."""
        return _instance(stats.instance, record, record.body[:MAX_TEXT])


def _read_stats(stats: StatsLine, record: LogRecord, body: str) -> Sample | None:
    values: dict[str, float] = {}
    seen = False
    for field in stats.fields:
        found = _numbers(field.regex, body)
        if found:
            seen = True
            values[field.signal] = (sum(found) if field.sum else found[0]) * field.scale
        elif field.default is not None:
            values[field.signal] = field.default
    if not seen and stats.fields:
        return None  # the words are there, the numbers are not: another line that quotes it
    return Sample(
        record.timestamp,
        record.server,
        "log",
        values,
        _instance(stats.instance, record, body),
        probe=_proves_nothing(stats.not_progress, values),
        origin=stats.name,
    )


def _proves_nothing(tests: tuple[ValueTest, ...], values: Mapping[str, float]) -> bool:
    return bool(tests) and all(
        test.signal in values and _OPERATORS[test.op](values[test.signal], test.number) for test in tests
    )


def _instance(pattern: str, record: LogRecord, body: str) -> str:
    """Which replica speaks: from the line, else from the line's header; without leading zeros."""
    text = ""
    if pattern:
        match = _search(pattern, body)
        if match is not None:
            text = match.group("engine_index") or ""
    text = text or record.attributes.get("engine_index", "")
    return str(int(text)) if text.isascii() and text.isdecimal() else text


def _value(pattern: str, body: str, scale: float) -> float | None:
    found = _numbers(pattern, body)
    return found[0] * scale if found else None


def _numbers(pattern: str, body: str) -> list[float]:
    """All numbers that the group ``value`` finds; what is no number is left out."""
    out = []
    try:
        for match in _compiled(pattern).finditer(body, timeout=MAX_SECONDS):
            number = _number(match.group("value"))
            if number is not None:
                out.append(number)
    except TimeoutError:
        return []
    return out


def _number(text: str | None) -> float | None:
    if text is None or not text.isascii():
        return None
    try:
        value = float(text.replace(",", "").replace("_", "").rstrip("%"))
    except ValueError:
        return None
    return value if value - value == 0 else None  # inf and nan are no measurement


@lru_cache(maxsize=2048)
def _compiled(pattern: str, ignore_case: bool = False) -> Any:
    return regex.compile(pattern, regex.IGNORECASE if ignore_case else 0)


def _search(pattern: str, text: str, ignore_case: bool = False) -> Any:
    try:
        return _compiled(pattern, ignore_case).search(text, timeout=MAX_SECONDS)
    except TimeoutError:
        return None


def _found(matcher: Matcher, body: str, text: str) -> bool:
    return any(_find(matcher, where) for where in (body, text) if where)


def _find(matcher: Matcher, where: str) -> bool:
    if matcher.kind == "regex":
        return _search(matcher.pattern, where, matcher.ignore_case) is not None
    if matcher.ignore_case:
        return matcher.pattern.casefold() in where.casefold()
    return matcher.pattern in where


def _holds(condition: Condition, record: LogRecord, body: str) -> bool:
    number = record.severity_number
    if condition.severity_min and number < condition.severity_min:
        return False
    if condition.severity_max and number > condition.severity_max:
        return False
    for name, accepted in condition.attributes.items():
        if record.attributes.get(name) not in accepted:
            return False
    text = record.text[:MAX_TEXT]
    if condition.any and not any(_found(matcher, body, text) for matcher in condition.any):
        return False
    return all(_found(matcher, body, text) for matcher in condition.all) and not any(
        _found(matcher, body, text) for matcher in condition.none
    )
