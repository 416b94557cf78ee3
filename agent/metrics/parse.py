"""Reads a page of metrics: Prometheus text format 0.0.4 or OpenMetrics 1.0, line by line.

Why a parser of our own: a page of an inference server holds thousands of lines (histograms, mostly) of which a dozen
matter, the parser of ``prometheus_client`` costs about 70 us a sample and gives up the whole page at the first bad
line. Here one regular expression over the raw bytes picks out the wanted names; only those lines become text; a bad
line is counted and costs nothing but itself.

Formats: https://prometheus.io/docs/instrumenting/exposition_formats/ and
https://github.com/prometheus/OpenMetrics/blob/main/specification/OpenMetrics.md
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from agent.metrics.names import any_of, plain_name

__all__ = ["LineFault", "Page", "Series", "parse_page"]

PageKind = Literal["metrics", "html", "json", "empty", "other"]

FAULTS_KEPT: Final = 5
"""How many bad lines of one page are described; all are counted."""
_SHOWN: Final = 80
"""How much of a bad line is quoted."""
_HEADS_KEPT: Final = 4096
"""How many distinct ``name{labels}`` are remembered while one page is read."""
_PROBED: Final = 50
"""How many lines are looked at to tell a page of metrics without wanted names from something else."""


class Series(NamedTuple):
    """One line: a name, its labels, a value and, where the line has one, its time in Unix seconds."""

    name: str
    labels: Mapping[str, str]
    value: float
    timestamp: float | None = None


class LineFault(NamedTuple):
    """A line that could not be read; ``line`` counts from 1."""

    line: int
    message: str


@dataclass(frozen=True, slots=True)
class Page:
    """What a page holds of the wanted names.

    ``families`` maps declared names (:func:`plain_name` form) to their type, also where no series follows.
    ``lines`` and ``bad_lines`` count; with a set of wanted names only those are looked at, so only they can be bad.
    ``suspect``: names (plain form) of which a line was lost: a sum over their series would be wrong.
    ``cut``: the page ends in the middle, so a name that is absent may only have been cut off.
    """

    series: list[Series]
    families: Mapping[str, str] = field(default_factory=dict)
    lines: int = 0
    bad_lines: int = 0
    faults: tuple[LineFault, ...] = ()
    suspect: frozenset[str] = frozenset()
    kind: PageKind = "metrics"
    cut: bool = False

    @property
    def looks_like_html(self) -> bool:
        return self.kind == "html"


def parse_page(
    data: bytes,
    wanted: frozenset[str] | None,
    *,
    openmetrics: bool = False,
    partial: bool = False,
    limit: int | None = None,
) -> Page:
    """Reads the lines of ``data`` whose names are ``wanted`` (any spelling; None: all of them). Never raises.

    ``openmetrics``: timestamps are seconds, not milliseconds. ``partial``: the transfer is known to have broken off,
    so an unfinished last line is not trusted even where it can be read (``12`` may have been ``1234``). ``limit``:
    reading stops once more series than that were found.
    """
    if data.startswith(b"\xef\xbb\xbf"):
        data = data[3:]
    kind = _kind(data)
    if kind != "metrics":
        return Page([], lines=_lines(data), kind=kind)
    partial = partial or (openmetrics and not data.rstrip().endswith(b"# EOF"))
    reader = _Reader(openmetrics)
    names = None if wanted is None else frozenset(map(plain_name, wanted))
    body_end = data.rfind(b"\n") + 1
    for start, raw in _every_line(data, body_end) if names is None else _wanted_lines(data, body_end, names):
        reader.line(start, raw)
        if limit is not None and len(reader.series) > limit:
            break
    tail = data[body_end:]
    cut = reader.tail(body_end, tail, names, partial=partial) or partial
    if partial:
        reader.suspect |= _suspects(data[:body_end].rstrip(b"\r\n").rpartition(b"\n")[2], names)
    if not reader.series and not reader.families and not _any_sample(data):
        kind = "other"
    return Page(
        reader.series,
        reader.families,
        _lines(data),
        reader.bad_lines,
        tuple(LineFault(_line_number(data, start), message) for start, message in reader.faults),
        frozenset(reader.suspect),
        kind,
        cut,
    )


# --- which lines -----------------------------------------------------------------------------------------------------


def _kind(data: bytes) -> PageKind:
    head = data[:512].lstrip()
    if not head:
        return "empty" if not data.strip() else "metrics"
    if head[:1] == b"<":  # no line of metrics starts so, every HTML and XML page does
        return "html"
    if head[:1] == b"[" or re.match(rb'\{\s*(?:"[^"]*"\s*:|\})', head):
        return "json"
    return "metrics"


def _lines(data: bytes) -> int:
    return data.count(b"\n") + (not data.endswith(b"\n") and bool(data))


def _line_number(data: bytes, start: int) -> int:
    return data.count(b"\n", 0, start) + 1


def _every_line(data: bytes, end: int) -> Iterator[tuple[int, bytes]]:
    start = 0
    while start < end:
        stop = data.index(b"\n", start, end)
        yield start, data[start:stop]
        start = stop + 1


def _wanted_lines(data: bytes, end: int, names: frozenset[str]) -> Iterator[tuple[int, bytes]]:
    if not names or not end:
        return
    pattern = _name_pattern(names)
    first = data[: data.index(b"\n", 0, end)]
    if pattern.match(b"\n" + first):
        yield 0, first
    for match in pattern.finditer(data, 0, end):
        yield match.start() + 1, match.group()[1:]


@lru_cache(maxsize=64)
def _name_pattern(names: frozenset[str]) -> re.Pattern[bytes]:
    """Finds ``newline, wanted line`` in raw bytes without making an object of any other line."""
    spelled = b"(?:ray_)?" + any_of(names)
    bases = {re.sub("_(total|count|sum|bucket)$", "", name) for name in names} | names
    declared = b"(?:ray_)?" + any_of(bases)
    return re.compile(
        rb"\n[ \t]*(?:"
        + spelled
        + rb"[ \t{]|#[ \t]+TYPE[ \t]+"
        + declared
        + rb'[ \t]|\{[ \t]*"'
        + spelled
        + rb'")[^\n]*'
    )


def _suspects(tail: bytes, names: frozenset[str] | None) -> set[str]:
    """The names that a cut line may have belonged to."""
    match = re.match(rb'[ \t]*(?:\{[ \t]*")?([A-Za-z0-9_:]*)(.?)', tail)
    if match is None or not match.group(1):
        return set()
    name = plain_name(match.group(1).decode("ascii"))
    if match.group(2) or names is None:
        return {name}
    return {other for other in names if other.startswith(name)}


def _any_sample(data: bytes) -> bool:
    """Whether at least one of the first lines is a line of metrics (a comment is not enough)."""
    probed = 0
    for _, raw in _every_line(data, data.rfind(b"\n") + 1):
        text = raw.strip()
        if not text:
            continue
        if text[:1] == b"#":
            if re.match(rb"#[ \t]+(?:TYPE|HELP|UNIT|EOF)\b", text):
                return True
            continue
        try:
            _parse_line(text.decode("utf-8", "backslashreplace"), openmetrics=True)
        except ValueError:
            probed += 1
            if probed >= _PROBED:
                return False
        else:
            return True
    return False


# --- one line --------------------------------------------------------------------------------------------------------

_LINE: Final = re.compile(
    r"[ \t]*([A-Za-z_:][A-Za-z0-9_:]*+)?[ \t]*+"
    r'(\{(?:[^"{}]++|"(?:[^"\\]++|\\.)*+")*+\})?'
    r"[ \t]*+([^ \t#]++)(?:[ \t]++([^ \t#]++))?[ \t]*+(?:#.*)?\Z"
)
"""Name, label block, value, timestamp; what follows `#` is an exemplar and not for us."""
_LABEL: Final = re.compile(
    r'[ \t]*+(?:([A-Za-z_][A-Za-z0-9_]*+)|"((?:[^"\\]++|\\.)*+)")[ \t]*+'
    r'(=[ \t]*+"((?:[^"\\]++|\\.)*+)")?[ \t]*+(,|\Z)',
    re.ASCII,
)
_ESCAPE: Final = re.compile(r'\\([\\n"])')
_QUOTED_FIRST: Final = re.compile(r'[ \t]*+"((?:[^"\\]++|\\.)*+)"')


def _parse_line(text: str, *, openmetrics: bool) -> Series:
    """One sample line without its newline. Raises ValueError with what is wrong."""
    match = _LINE.match(text)
    if match is None:
        raise ValueError("not `name{labels} value [timestamp]`")
    name, block, value, stamp = match.groups()
    if block:
        quoted, labels = _parse_labels(block[1:-1])
        if quoted is not None:
            if name is not None:
                raise ValueError("two metric names")
            name = quoted
    else:
        labels = {}
    if name is None:
        raise ValueError("no metric name")
    return Series(name, labels, _number(value), None if stamp is None else _timestamp(stamp, openmetrics))


def _parse_labels(inner: str) -> tuple[str | None, dict[str, str]]:
    """``a="b",c="d"`` -> labels, and the metric name where it stands quoted in front of them."""
    labels: dict[str, str] = {}
    metric: str | None = None
    position, end = 0, len(inner.rstrip(" \t"))
    while position < end:
        match = _LABEL.match(inner, position, end)
        if match is None:
            raise ValueError("labels cannot be read")
        bare, quoted, assigned, value, _ = match.groups()
        if not assigned:
            if quoted is None or position:
                raise ValueError(f"label {bare or quoted!r} has no value")
            metric = _unescape(quoted)
        else:
            name = bare if bare is not None else _unescape(quoted)
            if name in labels:
                raise ValueError(f"label {name!r} twice")
            labels[name] = _unescape(value)
        position = match.end()
    return metric, labels


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda match: "\n" if match.group(1) == "n" else match.group(1), text)


def _number(text: str) -> float:
    # float() also takes 1_000 and digits of every script; no exporter means those
    if "_" in text or not text.isascii():
        raise ValueError(f"value {text[:_SHOWN]!r} is no number")
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"value {text[:_SHOWN]!r} is no number") from None


def _timestamp(text: str, openmetrics: bool) -> float:
    if openmetrics:
        seconds = _number(text)
        if seconds - seconds != 0:
            raise ValueError(f"timestamp {text[:_SHOWN]!r} is no time")
        return seconds
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        raise ValueError(f"timestamp {text[:_SHOWN]!r} is no whole number of milliseconds")
    return int(text) / 1000


class _Reader:
    """Collects series, declarations and faults; parses each distinct ``name{labels}`` once."""

    def __init__(self, openmetrics: bool) -> None:
        self.series: list[Series] = []
        self.families: dict[str, str] = {}
        self.suspect: set[str] = set()
        self.bad_lines = 0
        self.faults: list[tuple[int, str]] = []
        self._openmetrics = openmetrics
        self._heads: dict[bytes, tuple[str, Mapping[str, str]]] = {}

    def line(self, start: int, raw: bytes) -> None:
        try:
            series = self._read(raw)
        except ValueError as error:
            self.bad_lines += 1
            if len(self.faults) < FAULTS_KEPT:
                self.faults.append((start, f"{error}: {raw[:_SHOWN].decode('utf-8', 'backslashreplace')!r}"))
            self.suspect |= _suspects(raw, None)
        else:
            if series is not None:
                self.series.append(series)

    def tail(self, start: int, raw: bytes, names: frozenset[str] | None, *, partial: bool) -> bool:
        """The last line where no newline ends it; true when it was cut."""
        if not raw.strip():
            return False
        wanted = names is None or _name_pattern(names).match(b"\n" + raw) is not None
        if not partial:
            try:
                series = self._read(raw)
            except ValueError:
                pass
            else:
                if series is not None and wanted:
                    self.series.append(series)
                return False
        self.bad_lines += 1
        if len(self.faults) < FAULTS_KEPT:
            shown = raw[:_SHOWN].decode("utf-8", "backslashreplace")
            self.faults.append((start, f"the page ends in the middle of this line: {shown!r}"))
        self.suspect |= _suspects(raw, names)
        return True

    def _read(self, raw: bytes) -> Series | None:
        # Short cut for the usual line: a label block (or name) already seen, one space, a number. A file of one day
        # repeats each head 17,000 times.
        cut = raw.rfind(b"}") + 1 or raw.find(b" ")
        head = self._heads.get(raw[:cut]) if cut > 0 else None
        if head is not None:
            rest = raw[cut:].split()
            if 0 < len(rest) <= 2 and b"#" not in raw[cut:]:
                name, labels = head
                stamp = None if len(rest) == 1 else _timestamp(rest[1].decode("ascii", "replace"), self._openmetrics)
                return Series(name, labels, _number(rest[0].decode("ascii", "replace")), stamp)
        text = raw.decode("utf-8", "backslashreplace").strip(" \t\r")
        if not text:
            return None
        if text[0] == "#":
            self._comment(text)
            return None
        series = _parse_line(text, openmetrics=self._openmetrics)
        if cut > 0 and len(self._heads) < _HEADS_KEPT and text.rfind("}") + 1 == _head_length(text):
            self._heads[raw[:cut]] = (series.name, series.labels)
        return series

    def _comment(self, text: str) -> None:
        parts = text.split(None, 3)
        if len(parts) == 4 and parts[0] == "#" and parts[1] == "TYPE":
            quoted = _QUOTED_FIRST.match(text.split(None, 2)[2])
            name = _unescape(quoted.group(1)) if quoted else parts[2]
            self.families[plain_name(name)] = parts[3].split()[-1].lower()


def _head_length(text: str) -> int:
    """Where the label block of a readable line ends; 0 when it has none."""
    match = _LINE.match(text)
    return 0 if match is None or match.group(2) is None else match.end(2)
