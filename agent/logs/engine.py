"""The log engine: bytes in, matched records out.

::

    bytes -> whole lines -> normalise -> scan ----> lines with a hit -> unwrap, decode -> verify -> Matched
                                          |  \\
                                          |   `--> nothing: no Python runs for the line
                                          `-----> a traceback or a partial line opens: every line is read until
                                                  all are closed

A :class:`LogEngine` holds everything that is compiled; a :class:`LogStream` is one input and holds only where it
stands. Neither reads a file or a clock. What comes out does not depend on how the bytes were cut into feeds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Any, Final

import regex

from agent.logs import pattern_cache
from agent.logs.conditions import CompiledCondition, CompiledMatcher, MatcherFault, Matchers, Untrusted
from agent.logs.decode import Decoder, FormatFault
from agent.logs.patterns import Analysis
from agent.logs.records import TRACEBACK_MARKS
from agent.logs.scan import MatcherName, Scanner, make_scanner, measure_speed
from agent.logs.stream import Hit, LogStream, Matched
from agent.logs.timestamps import YearReference
from agent.logs.unwrap import ALIASES, ENVELOPES, PARTIAL_MARKS
from agent.rules.model import Condition, Dialect

__all__ = ["Hit", "LogEngine", "LogStream", "Matched"]

_JSON_ESCAPES: Final = rb"\x7b[\x09 ]*\x22[^\n]*\x5c"
"""An object with an escape in it: what it says cannot be seen before it is decoded."""


# Where a time may stand in a line; searched from the end of a block backwards. An access line's ":34567" is none.
_STAMP_SHAPES: Final = {"epoch": rb"\d{10}", "epoch_ms": rb"\d{13}", "uptime": rb"\d\.\d\d\.\d{3}\.\d{3}|\d\.\d{2,}"}
_OTHER_SHAPES: Final = (rb"\d:[0-5]\d:[0-6]\d", rb"^\x02\d{16}")
_NO_SECONDS: Final = rb"\d:[0-5]\d"


@dataclass(slots=True)
class Plan:
    """One compiled scan and what its ids mean.

    ``conditions[id]`` are those that a hit of the pattern may satisfy; ``always`` those that no pattern leads to,
    so that every line has to be tried.
    """

    scanner: Scanner
    conditions: list[tuple[CompiledCondition, ...]]
    always: tuple[CompiledCondition, ...]
    opens: frozenset[int]
    escapes: int


class LogEngine:
    """Conditions and dialects, compiled. Safe to share between threads; each stream belongs to one.

    ``faults`` names what was left out and why; the rest works. Raises ScannerUnavailable when ``matcher`` asks for
    an engine that is not installed, ValueError for an unknown one.
    """

    def __init__(
        self,
        conditions: Sequence[Condition],
        dialects: Mapping[str, Dialect],
        *,
        timezone: tzinfo = UTC,
        year_reference: YearReference | None = None,
        matcher: MatcherName = "auto",
        cache_dir: Path | None = None,
    ) -> None:
        self.timezone = timezone
        self.year_reference = year_reference or YearReference()
        self.dialects = dict(dialects)
        pattern_cache.preload(cache_dir)
        self.decoder = Decoder(dialects)
        self._matchers = Matchers()
        places: dict[str, list[int]] = {}
        distinct: dict[str, Condition] = {}
        for index, condition in enumerate(conditions):
            key = _key(condition)
            distinct[key] = condition
            places.setdefault(key, []).append(index)
        detectors = {_key(condition) for dialect in dialects.values() for condition in dialect.detect_lines}
        # A line that recognises an engine may be every line: it is looked for only until the engine is known.
        self.conditions = [
            self._matchers.condition(condition, places[key], detects=key in detectors)
            for key, condition in distinct.items()
        ]
        self.detectors = {
            name: tuple(self._matchers.condition(condition, ()) for condition in dialect.detect_lines)
            for name, dialect in dialects.items()
        }
        untrusted = {
            name: tuple(self._matchers.condition(condition, ()) for condition in dialect.untrusted)
            for name, dialect in dialects.items()
        }
        self._untrusted = {name: Untrusted(items) for name, items in untrusted.items()}
        self._all_untrusted = Untrusted(item for items in untrusted.values() for item in items)
        self._stamp_searches: dict[tuple[str, ...], Any] = {}
        self._refused: list[MatcherFault] = []
        self.recognised_plan = self._plan([item for item in self.conditions if not item.detects], matcher, cache_dir)
        every = [*self.conditions, *(item for part in self.detectors.values() for item in part)]
        self.open_plan = self._plan(every, matcher, cache_dir) if self.detectors else self.recognised_plan
        pattern_cache.keep(cache_dir)

    @property
    def faults(self) -> list[MatcherFault | FormatFault]:
        """Patterns and formats that are not used; patterns set aside for taking too long are among them."""
        slow = [
            MatcherFault(
                item.matcher, f"pattern {item.matcher.pattern!r} is set aside: it took too long {item.timeouts} times"
            )
            for item in self._matchers.compiled
            if item.set_aside
        ]
        return [*self._matchers.faults, *self.decoder.faults, *self._refused, *slow]

    @property
    def timeouts(self) -> int:
        """How often a pattern ran out of time on a record."""
        return sum(item.timeouts for item in self._matchers.compiled)

    @property
    def matcher(self) -> str:
        """The scan engine that runs, with its version."""
        return self.recognised_plan.scanner.name

    @property
    def tried_on_every_line(self) -> int:
        """Conditions that hold no text to look for: each costs time on every line."""
        return len(self.recognised_plan.always)

    def describe(self) -> str:
        """One sentence for the start of a run: which engine scans how much, how fast (measured now)."""
        plan = self.recognised_plan
        speed = measure_speed(plan.scanner)
        slow = f", {len(plan.always)} conditions without text are tried on every line" if plan.always else ""
        return f"{plan.scanner.name}: {len(plan.conditions)} patterns, {speed:.0f} MiB/s of CPU{slow}"

    def stream(
        self,
        *,
        server: str,
        file: str,
        engine: str = "auto",
        first_line: int = 1,
        envelope: str = "auto",
        timezone: tzinfo | None = None,
    ) -> LogStream:
        """A new input. ``engine`` is a dialect or ``auto``; ``envelope`` one of ENVELOPES or ALIASES; ``timezone`` the
        zone of its stamps when it is not that of the others. Raises ValueError for an envelope that is neither.
        """
        envelope = ALIASES.get(envelope, envelope)
        if envelope not in ENVELOPES:
            raise ValueError(f"envelope {envelope!r} is unknown, use one of {', '.join((*ENVELOPES, *ALIASES))}")
        return LogStream(
            self,
            server=server,
            file=file,
            engine_name=engine,
            first_line=first_line,
            envelope=envelope,
            timezone=self.timezone if timezone is None else timezone,
        )

    def stamp_search(self, engines: tuple[str, ...]) -> Any:
        """Finds, from its end backwards, where a line of a block may tell its time in one of those dialects."""
        found = self._stamp_searches.get(engines)
        if found is None:
            found = self._stamp_searches[engines] = _stamp_search(self.decoder.time_patterns(engines))
        return found

    def untrusted_of(self, engine: str) -> Untrusted:
        """What quotes users' text in a line of that dialect (``""``: unknown)."""
        return self._untrusted.get(engine, self._all_untrusted)

    def _plan(self, conditions: Iterable[CompiledCondition], matcher: MatcherName, cache_dir: Path | None) -> Plan:
        expressions: dict[bytes, int] = {}
        patterns: list[Analysis] = []
        leads: list[dict[int, CompiledCondition]] = []
        always: list[CompiledCondition] = []

        def pattern_id(analysis: Analysis) -> int:
            assert analysis.prefilter is not None, "patterns without a prefilter are never scanned for"
            number = expressions.setdefault(analysis.prefilter, len(expressions))
            if number == len(patterns):
                patterns.append(analysis)
                leads.append({})
            return number

        opens = [pattern_id(_mark(mark)) for mark in TRACEBACK_MARKS]
        opens += [pattern_id(_mark(_escape(mark), mark)) for mark in PARTIAL_MARKS]
        escapes = pattern_id(_mark(_JSON_ESCAPES)) if self.decoder.has_json() else -1
        sought: list[tuple[CompiledCondition, Sequence[CompiledMatcher]]] = []
        for condition in conditions:
            if condition.broken:
                continue
            chosen = _chosen(condition)
            if chosen is None:
                always.append(condition)
                continue
            sought.append((condition, chosen))
            for item in chosen:
                leads[pattern_id(item.analysis)][id(condition)] = condition
        scanner = make_scanner(patterns, matcher, cache_dir)
        for condition, chosen in sought:
            for item in chosen:
                reason = scanner.refused.get(pattern_id(item.analysis))
                if reason is not None and condition not in always:
                    always.append(condition)
                    self._refused.append(
                        MatcherFault(item.matcher, f"pattern {item.matcher.pattern!r} is tried on every line: {reason}")
                    )
        return Plan(scanner, [tuple(lead.values()) for lead in leads], tuple(always), frozenset(opens), escapes)


def _chosen(condition: CompiledCondition) -> Sequence[CompiledMatcher] | None:
    """Matchers of which one is found wherever the condition holds; None when there are no such."""
    if condition.any and all(item.analysis.prefilter is not None for item in condition.any):
        return condition.any
    able = [item for item in condition.all if item.analysis.prefilter is not None]
    if able:
        # Any one of them will do: the one with the longest literal is the rarest.
        return (max(able, key=lambda item: max(map(len, item.analysis.literals), default=0)),)
    return None


def _key(condition: Condition) -> str:
    """Equal for equal conditions, wherever they stand (a mapping in it makes it unhashable)."""
    matchers = (
        (item.kind, item.pattern, item.ignore_case) for item in (*condition.any, *condition.all, *condition.none)
    )
    counts = (len(condition.any), len(condition.all), condition.severity_min, condition.severity_max)
    return repr((counts, tuple(matchers), sorted(condition.attributes.items())))


def _mark(expression: bytes, literal: bytes = b"") -> Analysis:
    return Analysis(expression, (literal,) if literal else (), False, 0)


def _escape(literal: bytes) -> bytes:
    return re.sub(rb"[^A-Za-z0-9_ ]", lambda match: b"\\x%02x" % match[0][0], literal)


def _stamp_search(time_patterns: Iterable[str]) -> Any:
    shapes = set(_OTHER_SHAPES)
    for pattern in time_patterns:
        if pattern in _STAMP_SHAPES:
            shapes.add(_STAMP_SHAPES[pattern])
        elif "%" in pattern and not any(part in pattern for part in ("%S", "%T", "%s")):
            shapes.add(_NO_SECONDS)
    return regex.compile(rb"(?rm)" + b"|".join(sorted(shapes)))
