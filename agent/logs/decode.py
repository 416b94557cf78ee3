"""A line's own header: which format it follows, and what that says of time, severity and writer.

Formats are data (rules/dialects/*.yaml). A line is tried against the formats of the stream's own dialect, in
their order; a stream whose dialect is not known yet, or a line that is none of its own, against all others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final

from agent.logs.patterns import first_characters
from agent.logs.timestamps import TimeContext, TimeFormat, TimeFormatError
from agent.model import SEVERITY_NUMBER, severity_number
from agent.rules.model import Dialect, LineFormat, Position

__all__ = ["Decoder", "FormatFault", "Header", "severity_name"]

HEADER_LIMIT: Final = 4096
"""Characters of a line in which its header must end; bounds what a pattern can cost on a line of megabytes."""

_LETTERS: Final = {
    "F": "FATAL",
    "C": "FATAL",
    "E": "ERROR",
    "W": "WARN",
    "I": "INFO",
    "D": "DEBUG",
    "V": "DEBUG",
    "T": "TRACE",
}
_JSON_TIMES: Final = (TimeFormat("iso8601"), TimeFormat("epoch"))
_NAMES: Final = {number: name for name, number in SEVERITY_NUMBER.items() if number}


@dataclass(frozen=True, slots=True)
class FormatFault:
    """A line format that cannot be used, and why."""

    position: Position
    message: str


@dataclass(slots=True)
class Header:
    """What a line says about itself. ``time`` is None where the format has none or it does not parse."""

    engine: str
    format: str
    body: str
    time: float | None
    full_time: bool
    severity_text: str
    severity_number: int
    attributes: dict[str, str]
    is_json: bool = False


def severity_name(number: int) -> str:
    """``13`` -> ``WARN``; the empty text for 0."""
    return _NAMES.get(number, "")


@dataclass(slots=True)
class _Format:
    engine: str
    name: str
    regex: re.Pattern[str] | None
    time: TimeFormat | None
    severity: Mapping[str, tuple[str, int]]
    default: tuple[str, int]
    fields: tuple[str, ...]
    json: Mapping[str, str]
    time_group: int
    message_group: int
    said: Callable[[tuple[str | None, ...]], Any]
    cache: dict[Any, tuple[str, int, dict[str, str]]] = field(default_factory=dict)


class Decoder:
    """All formats of all dialects, compiled. ``faults`` names those that cannot be."""

    def __init__(self, dialects: Mapping[str, Dialect]) -> None:
        self.faults: list[FormatFault] = []
        self._own: dict[str, list[_Format]] = {}
        for engine, dialect in dialects.items():
            self._own[engine] = [
                compiled for item in dialect.formats if (compiled := self._compile(engine, item)) is not None
            ]
        self._everything = [compiled for formats in self._own.values() for compiled in formats]
        self._tables: dict[tuple[str, ...], _Table] = {}

    def time_patterns(self, engines: tuple[str, ...]) -> frozenset[str]:
        """How stamps are written in the lines of those dialects; in all where none of them is known."""
        known = [compiled for compiled in self._everything if compiled.engine in engines] or self._everything
        return frozenset(compiled.time.pattern for compiled in known if compiled.time is not None)

    def has_json(self) -> bool:
        """Whether lines may be JSON objects."""
        return any(compiled.json for compiled in self._everything)

    def decode(self, text: str, engines: tuple[str, ...], context: TimeContext, *, own: bool = False) -> Header | None:
        """The header of ``text`` or None. ``own``: only formats of the dialects ``engines``, not all others."""
        table = self._tables.get(engines)
        if table is None:
            table = self._tables[engines] = self._table(engines)
        first = text[:1]
        if first == "{":
            formats = table.json if own else (*table.json, *table.other_json)
            item = _json_object(text) if formats else None
            if item is not None:
                headers = (_decode_json(compiled, item, context) for compiled in formats)
                untimed = None
                for header in headers:
                    # Most formats know a key "message"; the one that also finds the time is the right one.
                    if header is not None and header.time is not None:
                        return header
                    untimed = untimed or header
                if untimed is not None:
                    return untimed
        for compiled in table.own.get(first) or table.own[""]:
            header = _decode_text(compiled, text, context)
            if header is not None:
                return header
        if not own:
            for compiled in table.others.get(first) or table.others[""]:
                header = _decode_text(compiled, text, context)
                if header is not None:
                    return header
        return None

    def _table(self, engines: tuple[str, ...]) -> _Table:
        known = [name for name in engines if name in self._own]
        if not known:
            return _Table(self._everything)
        own = [compiled for name in known for compiled in self._own[name]]
        return _Table(own, [compiled for compiled in self._everything if compiled.engine not in known])

    def _compile(self, engine: str, item: LineFormat) -> _Format | None:
        try:
            regex = re.compile(item.regex, re.ASCII) if item.regex else None
        except re.error as error:
            self.faults.append(FormatFault(item.position, f"format {item.name}: {error}"))
            return None
        try:
            time = TimeFormat(item.time) if item.time else None
        except TimeFormatError as error:
            self.faults.append(FormatFault(item.position, f"format {item.name}: {error}"))
            return None
        if regex is None and not item.json:
            self.faults.append(FormatFault(item.position, f"format {item.name}: neither regex nor json"))
            return None
        names = dict(_LETTERS) | {key: value.upper() for key, value in item.severity.items()}
        default = item.default_severity.upper()
        groups = dict(regex.groupindex) if regex is not None else {}
        fields = tuple(name for name in groups if name not in ("time", "severity", "message"))
        return _Format(
            engine,
            item.name,
            regex,
            time,
            {key: (severity_name(severity_number(value)), severity_number(value)) for key, value in names.items()},
            (severity_name(severity_number(default)), severity_number(default)),
            fields,
            item.json,
            groups.get("time", 0) - 1,
            groups.get("message", 0),
            itemgetter(*(groups[name] - 1 for name in ("severity", *fields) if name in groups))
            if len(fields) + ("severity" in groups) > 1
            else _first_of(groups[name] - 1 for name in ("severity", *fields) if name in groups),
        )


def _first_of(indexes: Iterable[int]) -> Callable[[tuple[str | None, ...]], tuple[str | None, ...]]:
    chosen = tuple(indexes)
    return lambda values: tuple(values[index] for index in chosen)


class _Table:
    """Formats in order, and for each first character those that can match a line beginning with it."""

    def __init__(self, own: Sequence[_Format], others: Sequence[_Format] = ()) -> None:
        self.json = [compiled for compiled in own if compiled.json]
        self.other_json = [compiled for compiled in others if compiled.json]
        self.own = _by_first(own)
        self.others = _by_first(others)


def _by_first(formats: Sequence[_Format]) -> dict[str, list[_Format]]:
    known = [(item, first_characters(item.regex.pattern)) for item in formats if item.regex is not None]
    table = {"": [item for item, first in known if first is None]}
    for code in range(128):
        able = [item for item, first in known if first is None or chr(code) in first]
        if len(able) > len(table[""]):
            table[chr(code)] = able
    return table


def _decode_text(compiled: _Format, text: str, context: TimeContext) -> Header | None:
    assert compiled.regex is not None, "formats of JSON lines are tried apart"
    head = text
    if len(text) > HEADER_LIMIT or "\n" in text:
        head = text[:HEADER_LIMIT].partition("\n")[0]
    match = compiled.regex.match(head)
    if match is None:
        return None
    if compiled.message_group:
        start, end = match.span(compiled.message_group)
        # What the format leaves out at the end (a closing quote) stays out, unless the line went on past the limit.
        body = text[start:end] if end < len(head) or head is text else text[start:]
    else:
        body = text[match.end() :]
    groups = match.groups()
    time = None
    if compiled.time_group >= 0 and compiled.time is not None and (stamp := groups[compiled.time_group]):
        time = compiled.time.parse(stamp, context)
    key = compiled.said(groups)
    known = compiled.cache.get(key)
    if known is None:
        named = match.groupdict()
        known = _describe(compiled, named.get("severity"), {name: named[name] for name in compiled.fields})
        if len(compiled.cache) >= 1024:
            compiled.cache.clear()
        compiled.cache[key] = known
    severity_text, number, attributes = known
    full = time is not None and compiled.time is not None and compiled.time.is_full
    return Header(compiled.engine, compiled.name, body, time, full, severity_text, number, attributes)


def _describe(
    compiled: _Format, severity: str | None, groups: Mapping[str, str | None]
) -> tuple[str, int, dict[str, str]]:
    attributes = {name: value for name, value in groups.items() if value}
    attributes["format"] = compiled.name
    return (*_severity(compiled, severity), attributes)


def _severity(compiled: _Format, text: str | None) -> tuple[str, int]:
    if not text:
        return compiled.default
    found = compiled.severity.get(text)
    if found is None:
        number = severity_number(text)
        found = (severity_name(number), number) if number else compiled.default
    return found


def _json_object(text: str) -> Mapping[str, Any] | None:
    try:
        item = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return item if isinstance(item, dict) else None


def _decode_json(compiled: _Format, item: Mapping[str, Any], context: TimeContext) -> Header | None:
    message = _member(item, compiled.json.get("message", "message"))
    if message is None:
        return None
    values = {name: _member(item, key) for name, key in compiled.json.items()}
    stamp = values.pop("time", None)
    severity = values.pop("severity", None)
    values.pop("message", None)
    # A traceback logged beside the message is part of the record; some write the text "None" where there is none.
    trace = values.pop("exception", None)
    body = f"{message}\n{trace}" if trace and trace != "None" else message
    time, full = _json_time(compiled, stamp, context)
    name, number, attributes = _describe(compiled, severity, values)
    return Header(compiled.engine, compiled.name, body, time, full, name, number, attributes, is_json=True)


def _json_time(compiled: _Format, stamp: str | None, context: TimeContext) -> tuple[float | None, bool]:
    """The time, and whether it tells year and date. Logging libraries choose how to write it, whatever the engine."""
    if not stamp or compiled.time is None:
        return None, False
    for known in (compiled.time, *_JSON_TIMES):
        time = known.parse(stamp, context)
        if time is not None:
            return time, known.is_full
    return None, False


def _member(item: Mapping[str, Any], path: str) -> str | None:
    """The value under a key or a dotted path of keys, as text; of several (``a|b``) the first that is there."""
    for key in path.split("|"):
        value: Any = item.get(key)
        if value is None and "." in key:
            value = item
            for part in key.split("."):
                value = value.get(part) if isinstance(value, dict) else None
        if value is not None:
            return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return None
