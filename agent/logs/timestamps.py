"""Event times: every way engines and envelopes write them, resolved to Unix seconds.

A stamp may lack its year (vLLM, glog), its date (the oldest SGLang), its zone (nearly all) or its epoch (llama.cpp
counts from start). What is missing is filled from what is known, in this order: the time of the envelope around
the line, the range of the metrics beside the log, full stamps in the same input, a reference moment (now, or the
file's modification time). A stamp whose zone is unknown but whose envelope is exact shows its own offset: a
difference of whole quarters of an hour is a zone, not a delay.
"""

from __future__ import annotations

import calendar
import contextlib
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Final

__all__ = ["TIME_KINDS", "TimeContext", "TimeFormat", "TimeFormatError", "YearReference", "parse_rfc3339_prefix"]

TIME_KINDS: Final = ("iso8601", "epoch", "epoch_ms", "uptime")
"""Values of a dialect's ``time`` that are no strptime pattern."""

_DAY: Final = 86_400.0
_QUARTER: Final = 900.0
_FOLD_BACK: Final = 600.0  # lines of several processes are out of order by seconds, a clock is turned by an hour
_ZONE_SLACK: Final = 120.0  # an envelope is written within this of the line, or the difference means nothing
_MONTH_NAMES: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTHS: Final = {name: number for number, name in enumerate(_MONTH_NAMES, 1)}


class TimeFormatError(ValueError):
    """A strptime pattern holds a directive that is not understood here."""


class YearReference:
    """What is known about the time of an input before its stamps are read.

    ``reference`` is a moment near the *end* of the input (now, or the modification time; None: now). ``span`` is
    the range of the metrics beside it. :meth:`observe` adds full stamps met in the input itself. One reference
    serves all logs of a server, so that one with full dates helps one without.
    """

    def __init__(self, reference: float | None = None, span: tuple[float, float] | None = None) -> None:
        self.reference = reference
        self.span = span
        self.full: tuple[float, float] | None = None
        self.version = 0

    @classmethod
    def for_scan(cls, logs: Sequence[str], span: tuple[float, float] | None = None) -> YearReference:
        """For finished logs: their newest modification time, and full stamps found in the head of each.

        A file that cannot be read is left to the reader of the log to complain about.
        """
        moments: list[float] = []
        found = cls(None, span)
        for name in logs:
            if name == "-":
                continue
            try:
                moments.append(os.stat(name).st_mtime)
                head = _head(name)
            except OSError:
                continue
            for match in _FULL_STAMP.finditer(head):
                stamp = _iso(match[1].decode("ascii"), UTC)
                if stamp is not None:
                    found.observe(stamp)
        found.reference = max(moments, default=None)
        return found

    def observe(self, stamp: float) -> None:
        """A full stamp of the same input."""
        low, high = self.full or (stamp, stamp)
        if not low <= stamp <= high or self.full is None:
            self.full = (min(low, stamp), max(high, stamp))
            self.version += 1

    def distance(self, stamp: float, context: TimeContext) -> tuple[float, float]:
        """How far a candidate lies from what is known; of several inside a range the one nearest its end is best."""
        if context.near is not None:
            return abs(stamp - context.near), 0.0
        moment = context.observed if context.observed is not None else self.moment()
        known = self.span or self.full
        if known is not None:
            return max(known[0] - stamp, stamp - known[1], 0.0), abs(stamp - moment)
        return abs(stamp - moment), 0.0

    def moment(self) -> float:
        """A moment near the end of the input."""
        return self.reference if self.reference is not None else time.time()

    def start(self) -> float | None:
        """The earliest moment known to be in the input."""
        known = self.span or self.full
        return None if known is None else known[0]


@dataclass(slots=True)
class TimeContext:
    """Where a stream stands in time: what stamps of its next lines are completed from.

    ``near`` is exact (the envelope's time), ``observed`` the moment of reading (live), ``previous`` the last
    event time of the stream, ``boot`` the moment that a clock of uptime counts from.
    """

    reference: YearReference
    zone: tzinfo = UTC
    near: float | None = None
    observed: float | None = None
    previous: float | None = None
    boot: float | None = None
    zone_number: int = 0
    """Tells zones apart, and is cheaper to hash than they are."""

    def __post_init__(self) -> None:
        self.zone_number = 0 if self.zone is UTC else id(self.zone)


class TimeFormat:
    """One way to write a time, compiled. :meth:`parse` gives Unix seconds, or None for what is no such time."""

    def __init__(self, pattern: str) -> None:
        """``pattern`` is a strptime pattern or one of TIME_KINDS. Raises TimeFormatError."""
        self.pattern = pattern
        self.has_year = self.has_date = self.has_zone = True
        self._cache: dict[tuple[str, int, int, int], float] = {}
        self._regex: re.Pattern[str] | None = None
        if pattern not in TIME_KINDS:
            expression, fields = _compile(pattern)
            self._regex = re.compile(expression)
            self.has_year = bool(fields & {"Y", "y", "s"})
            self.has_date = bool(fields & {"d", "e", "j", "s"})
            self.has_zone = bool(fields & {"z", "s"})

    @property
    def is_full(self) -> bool:
        """Whether a stamp of this format tells year and date by itself."""
        return self.has_year and self.has_date and self.pattern != "uptime"

    def parse(self, text: str, context: TimeContext) -> float | None:
        """Unix seconds of ``text``. Of the context only ``boot`` may change, when an uptime clock is first seen."""
        if self.pattern == "uptime":
            return _uptime(text, context)
        if not self.has_date:
            return self._parse(text, context)
        # What a missing year resolves to changes with the reference by days at most: a day is fine enough for a key.
        around = context.near if context.near is not None else context.observed
        day = 0 if self.has_year or around is None else int(around // _DAY)
        key = (text, day, context.reference.version, context.zone_number)
        found = self._cache.get(key)
        if found is None:
            found = self._parse(text, context)
            if found is None:
                return None
            if len(self._cache) >= 4096:
                self._cache.clear()
            self._cache[key] = found
        if context.near is not None:
            return found if self._zoned(text) else _in_envelope_zone(found, context.near)
        if context.zone_number and context.previous is not None and found < context.previous - _FOLD_BACK:
            return found if self._zoned(text) else _second_time(found, context)
        return found

    def _zoned(self, text: str) -> bool:
        if self.pattern == "iso8601":
            return text[-1:] in "Zz" or text[-6:-5] in ("+", "-") or text[-5:-4] in ("+", "-")
        return self.pattern in ("epoch", "epoch_ms") or self.has_zone

    def _parse(self, text: str, context: TimeContext) -> float | None:
        if self.pattern == "iso8601":
            return _iso(text, context.zone)
        if self.pattern in ("epoch", "epoch_ms"):
            return _epoch(text, 0.001 if self.pattern == "epoch_ms" else 1.0)
        assert self._regex is not None, "every other pattern is compiled"
        match = self._regex.fullmatch(text.strip())
        return None if match is None else _assemble(match.groupdict(), context)


# --- strptime -----------------------------------------------------------------------------------------------

_DIRECTIVES: Final = {
    "Y": r"\d{4}",
    "y": r"\d\d",
    "m": r"\d{1,2}",
    "d": r"\d{1,2}",
    "e": r" ?\d{1,2}",
    "j": r"\d{3}",
    "H": r"\d{1,2}",
    "I": r"\d{1,2}",
    "M": r"\d{1,2}",
    "S": r"\d{1,2}",
    "f": r"\d{1,9}",
    "p": r"[AaPp]\.?[Mm]\.?",
    "b": r"[A-Za-z]{3}",
    "B": r"[A-Za-z]{3,9}",
    "a": r"[A-Za-z]{3}",
    "A": r"[A-Za-z]{6,9}",
    "z": r"Z|[+-]\d\d:?\d\d",
    "Z": r"[A-Za-z/_]{1,40}",
    "s": r"\d{9,11}",
}
_COMPOSED: Final = {"T": "%H:%M:%S", "D": "%m/%d/%y", "F": "%Y-%m-%d", "R": "%H:%M"}
# Two digits are fixed where the next directive follows without a separator (glog's %m%d).
_FIXED: Final = {"m": r"\d\d", "d": r"\d\d", "H": r"\d\d", "M": r"\d\d", "S": r"\d\d"}


def _compile(pattern: str) -> tuple[str, set[str]]:
    for letter, meaning in _COMPOSED.items():
        pattern = pattern.replace(f"%{letter}", meaning)
    parts = re.findall(r"%.|[^%]+|%$", pattern)
    out: list[str] = []
    fields: set[str] = set()
    for index, part in enumerate(parts):
        if part == "%%":
            out.append("%")
        elif part[0] != "%":
            # A fraction is written with a point by some and a comma by others, whatever the pattern says; one space
            # stands for any, as in strptime (syslog pads the day).
            following = parts[index + 1] if index + 1 < len(parts) else ""
            end = "[.,]" if following == "%f" and part[-1] in ".," else ""
            literal = re.escape(part[:-1] if end else part)
            out.append(re.sub(r"(?:\\\s)+", r"\\s+", literal) + end)
        elif part[1:] in _DIRECTIVES:
            letter = part[1]
            if letter in fields:
                raise TimeFormatError(f"time format {pattern!r}: %{letter} stands in it twice")
            fields.add(letter)
            glued = (index and parts[index - 1][0] == "%") or (index + 1 < len(parts) and parts[index + 1][0] == "%")
            expression = _FIXED.get(letter, _DIRECTIVES[letter]) if glued else _DIRECTIVES[letter]
            out.append(f"(?P<{letter}>{expression})")
        else:
            raise TimeFormatError(
                f"time format {pattern!r}: {part} is not understood, use %{' %'.join(sorted(_DIRECTIVES))}"
            )
    if not fields & {"H", "I", "s"}:
        raise TimeFormatError(f"time format {pattern!r}: no hour in it (%H, %I, %T or %s)")
    return "".join(out), fields


def _assemble(part: dict[str, str | None], context: TimeContext) -> float | None:
    if (epoch := part.get("s")) is not None:
        return float(epoch) + _fraction(part.get("f"))
    hour = int(part.get("H") or part.get("I") or 0)
    if half := part.get("p"):
        hour = hour % 12 + (12 if half[0] in "Pp" else 0)
    minute, second = int(part.get("M") or 0), int(part.get("S") or 0)
    fraction = _fraction(part.get("f"))
    month, day = _month(part), int(part.get("d") or part.get("e") or 0)
    year = _year(part)
    offset = _zone(part.get("z"))
    clock = (hour, minute, second)
    if julian := part.get("j"):
        if year is None:
            return None
        base = _seconds(year, 1, 1, clock, offset, context.zone)
        return None if base is None else base + (int(julian) - 1) * _DAY + fraction
    if day and month and year is not None:
        base = _seconds(year, month, day, clock, offset, context.zone)
        return None if base is None else base + fraction
    if day and month:
        base = _nearest_year(month, day, clock, offset, context)
    else:
        base = None if day or month else _nearest_day(clock, offset, context)
    return None if base is None else base + fraction


def _month(part: dict[str, str | None]) -> int:
    name = part.get("b") or part.get("B")
    return _MONTHS.get(name[:3].lower(), 0) if name else int(part.get("m") or 0)


def _year(part: dict[str, str | None]) -> int | None:
    if (full := part.get("Y")) is not None:
        return int(full)
    if (short := part.get("y")) is not None:
        return int(short) + (1900 if int(short) >= 69 else 2000)
    return None


def _zone(text: str | None) -> int | None:
    if text is None:
        return None
    if text in ("Z", "z"):
        return 0
    seconds = int(text[1:3]) * 3600 + int(text[-2:]) * 60
    return -seconds if text[0] == "-" else seconds


def _fraction(text: str | None) -> float:
    return int(text) / 10 ** len(text) if text else 0.0


def _seconds(
    year: int, month: int, day: int, clock: tuple[int, int, int], offset: int | None, zone: tzinfo
) -> float | None:
    """Unix seconds of a civil time; None when there is no such day or hour. A leap second is the next second."""
    hour, minute, second = clock
    if not (1 <= month <= 12 and 1 <= day <= calendar.monthrange(max(year, 1), month)[1] and 1 <= year <= 9998):
        return None
    if hour > 23 or minute > 59 or second > 60:
        return None
    if offset is not None or zone is UTC:
        return calendar.timegm((year, month, day, hour, minute, second)) - float(offset or 0)
    moment = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=zone)
    return moment.timestamp() + (second - min(second, 59))


def _nearest_year(
    month: int, day: int, clock: tuple[int, int, int], offset: int | None, context: TimeContext
) -> float | None:
    reference = context.reference
    if context.near is not None:
        around = [context.near]
    else:
        around = [*(reference.span or reference.full or ()), context.observed or reference.moment()]
    # 29 February needs up to eight years to come round again.
    reach = 8 if (month, day) == (2, 29) else 1
    middles = {time.gmtime(moment).tm_year for moment in around}
    years = sorted({middle + shift for middle in middles for shift in range(-reach, reach + 1)})
    candidates = [
        stamp
        for candidate in years
        if (stamp := _seconds(candidate, month, day, clock, offset, context.zone)) is not None
    ]
    return min(candidates, key=lambda stamp: reference.distance(stamp, context), default=None)


def _nearest_day(clock: tuple[int, int, int], offset: int | None, context: TimeContext) -> float | None:
    # The stream's own last time is the best guess: a clock that falls by hours has passed midnight.
    around = context.near if context.near is not None else context.previous
    if around is None:
        around = context.reference.start() or context.observed or context.reference.moment()
    today = time.gmtime(around)
    base = _seconds(today.tm_year, today.tm_mon, today.tm_mday, clock, offset, context.zone)
    if base is None:
        return None
    return min((base + shift for shift in (-_DAY, 0.0, _DAY)), key=lambda stamp: abs(stamp - around))


def _second_time(stamp: float, context: TimeContext) -> float:
    """In the hour that clocks show twice, a stamp that falls back is of the second time round."""
    civil = datetime.fromtimestamp(stamp, context.zone)
    later = civil.replace(fold=1).timestamp()
    assert context.previous is not None, "asked only where time fell back"
    return later if later > stamp and later >= context.previous - _FOLD_BACK else stamp


def _in_envelope_zone(stamp: float, near: float | None) -> float:
    """The stamp moved by the zone that its exact envelope shows it to be written in."""
    if near is None:
        return stamp
    difference = stamp - near
    offset = round(difference / _QUARTER) * _QUARTER
    if offset and abs(offset) <= 14 * 3600 and abs(difference - offset) <= _ZONE_SLACK:
        return stamp - offset
    return stamp


# --- ISO 8601, epoch, uptime --------------------------------------------------------------------------------

_ISO: Final = re.compile(
    r"\s*(\d{4})-(\d\d)-(\d\d)[T _](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?\s?(Z|z|UTC|[+-]\d\d(?::?\d\d)?)?\s*"
)
# Only near the start of a line: a date inside a prompt says nothing about the log.
_FULL_STAMP: Final = re.compile(
    rb"(?m)^[^\n]{0,80}?\b((?:19|20)\d\d-[01]\d-[0-3]\d[T ][012]\d:[0-5]\d:[0-5]\d(?:[.,]\d{1,9})?Z?)"
)
_minutes: dict[tuple[str, object], float] = {}


def _iso(text: str, zone: tzinfo) -> float | None:
    match = _ISO.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, suffix = match.groups()
    offset: int | None = None
    if suffix:
        offset = 0 if suffix in ("Z", "z", "UTC") else _zone(suffix if len(suffix) > 3 else f"{suffix}00")
    base: float | None
    if offset == 0 or (offset is None and zone is UTC):
        key = (text[:16], None)
        base = _minutes.get(key)
        if base is None:
            base = _seconds(int(year), int(month), int(day), (int(hour), int(minute), 0), 0, UTC)
            if base is None:
                return None
            if len(_minutes) > 4096:
                _minutes.clear()
            _minutes[key] = base
        if second and int(second) > 60:
            return None
        return base + int(second or 0) + _fraction(fraction)
    base = _seconds(int(year), int(month), int(day), (int(hour), int(minute), int(second or 0)), offset, zone)
    return None if base is None else base + _fraction(fraction)


def parse_rfc3339_prefix(text: str) -> float | None:
    """Unix seconds of an envelope's RFC 3339 time (``2025-11-20T09:00:00.123456789Z``), None when it is none."""
    return _iso(text, UTC)


def _epoch(text: str, scale: float) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    if value != value or abs(value) > 1e20:
        return None
    # Whatever the dialect says, a number of this size is in milli-, micro- or nanoseconds.
    for limit, unit in ((1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3)):
        if abs(value) >= limit:
            return value * unit
    return value if abs(value) >= 1e8 else value * scale


_UPTIME: Final = re.compile(r"\s*(\d+)\.(\d\d)\.(\d{3})\.(\d{3})\s*")


def _uptime(text: str, context: TimeContext) -> float | None:
    """llama.cpp's ``minutes.seconds.millis.micros`` since start, or plain seconds."""
    match = _UPTIME.fullmatch(text)
    if match is not None:
        minutes, seconds, millis, micros = (int(part) for part in match.groups())
        elapsed = minutes * 60 + seconds + millis / 1e3 + micros / 1e6
    else:
        try:
            elapsed = float(text)
        except ValueError:
            return None
        if not 0 <= elapsed < 1e9:
            return None
    if context.near is not None:
        return context.near
    if context.boot is None or (context.previous is not None and context.boot + elapsed < context.previous - 1.0):
        # The first stamp, or a clock that fell back: a new start, right after the last thing seen.
        around = context.observed
        if around is None:
            around = context.previous if context.boot is not None else context.reference.start()
        if around is None:
            around = context.reference.moment()
        context.boot = around - elapsed
    return context.boot + elapsed


def _head(name: str, size: int = 1 << 20) -> bytes:
    """The first bytes of a log, decompressed; nothing of one that is damaged. Raises OSError."""
    ending = os.path.splitext(name)[1]
    with open(name, "rb") as handle:
        data = handle.read(size)
    if ending == ".gz":
        import zlib

        with contextlib.suppress(zlib.error):
            return zlib.decompressobj(31).decompress(data, size)
    elif ending == ".xz":
        import lzma

        with contextlib.suppress(lzma.LZMAError):
            return lzma.LZMADecompressor().decompress(data, size)
    return data
