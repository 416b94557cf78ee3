"""One line, understood: envelopes off, header read, and what it lacks inherited from the line before."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, Final

from agent.logs.decode import Decoder, Header, severity_name
from agent.logs.frames import Frames, stamp_time
from agent.logs.patterns import NEWLINE
from agent.logs.records import Line, holds_traceback, is_exception_line
from agent.logs.shipped import Shipped
from agent.logs.timestamps import TimeContext, TimeFormat, YearReference, parse_rfc3339_prefix
from agent.logs.unwrap import MARK, WEAK, Peeled, peel
from agent.model import severity_number

__all__ = ["Inherited", "LineReader", "Split", "Unwrapped"]

MAX_LAYERS: Final = 4
SPLITTING: Final = frozenset({"cri", "docker"})
"""Envelopes that cut long lines into pieces."""
_FOREIGN_TO_ENGINES: Final = SPLITTING | {"journald", "kubectl", "cloud", "mpirun"}
"""Envelopes that begin like no engine's line."""
_NEWLINE: Final = NEWLINE.decode()
_SYSLOG: Final = (TimeFormat("%b %d %H:%M:%S"), TimeFormat("%b %d %H:%M:%S.%f"), TimeFormat("iso8601"))
_ERROR: Final = severity_number("ERROR")


_NOTHING: Final[Mapping[str, str]] = {}


class Unwrapped:
    """A line with its envelopes off. ``stream`` names the writer as the envelopes do."""

    __slots__ = ("attributes", "header", "is_piece", "partial", "severity", "stream", "text", "time", "weak")

    def __init__(self, text: str, header: Header | None = None) -> None:
        self.text = text
        self.header = header
        self.time: float | None = None
        self.stream = self.severity = ""
        self.is_piece = self.partial = False
        self.attributes: Mapping[str, str] = _NOTHING
        self.weak: Sequence[str] = ()


class Inherited:
    """What a line without its own header takes over: time and writer of the last stamped line before it."""

    __slots__ = ("attributes", "stream", "time")

    def __init__(self, time: float | None = None, stream: str = "", attributes: Mapping[str, str] = _NOTHING) -> None:
        self.time = time
        self.stream = stream
        self.attributes = attributes

    @property
    def writer(self) -> tuple[str, ...]:
        """(envelope stream, process, pid, rank)."""
        return _writer(self.stream, self.attributes)


@dataclass(slots=True)
class Split:
    """A line whose pieces have not all come."""

    first: Unwrapped
    number: int
    parts: list[str]
    size: int
    pieces: int


def _writer(stream: str, attributes: Mapping[str, str]) -> tuple[str, ...]:
    get = attributes.get
    return (stream, get("process", ""), get("pid", ""), get("rank", ""))


class LineReader:
    """Reads the lines of one stream. It learns (a dialect, a weak envelope) only where it is told to.

    ``engine`` is the dialect the stream speaks, ``""`` while unknown; ``engines`` that and all others that were met
    in it, in whose formats a line is tried before anything else. ``split`` holds the envelope streams in which
    a line has begun and not ended.
    """

    def __init__(self, decoder: Decoder, reference: YearReference, zone: tzinfo, envelope: str) -> None:
        self.decoder = decoder
        self.context = TimeContext(reference, zone)
        self.envelope = envelope
        self.engine = ""
        self.engines: tuple[str, ...] = ()
        self.believed: set[str] = set()
        self.frames = Frames()
        self.split: dict[str, Split] = {}
        self.saw_json = False

    def unwrap(self, raw: bytes, *, learning: bool = False) -> Unwrapped:
        """Envelopes off, and the header when the line has one.

        ``learning``: a weak prefix is taken off when an engine's own line follows it.
        """
        text = raw.decode("utf-8", "replace")
        context, engines = self.context, self.engines
        context.near = None
        if engines and _NEWLINE not in text and not text.startswith(MARK):
            # The commonest line by far: the engine's own, in no envelope.
            header = self.decoder.decode(text, engines, context, own=True)
            if header is not None:
                if learning:
                    self.frames.bare()
                return Unwrapped(text, header)
        out = self._unwrap(text, WEAK if learning and self.envelope == "auto" else self.believed)
        if out.header is None and not self.believed.issuperset(out.weak) and self.envelope == "auto":
            out = self._unwrap(text, self.believed)
        if learning and self.envelope == "auto" and not out.is_piece:
            if out.header is not None and not self.frames.shapes:
                self.frames.bare()
            elif out.header is None and self.frames.learn(out.text, self._is_header):
                out = self._unwrap(text, WEAK)
        return out

    def shipped(self, raw: bytes) -> Shipped | None:
        """The keys of a JSON envelope around an engine's line, if this line is one."""
        try:
            item = json.loads(raw)
        except (ValueError, RecursionError):
            return None
        return Shipped.learn(item, self._is_line) if isinstance(item, dict) else None

    def _is_line(self, text: str) -> bool:
        """As :meth:`_is_header`; of llama.cpp, whose lines had neither time nor level, the columns will do."""
        if self._is_header(text):
            return True
        header = None if text[:1] in ("", "{") else self.decoder.decode(text, self.engines, self.context)
        return header is not None and {"logger", "module"} <= header.attributes.keys()

    def _is_header(self, text: str) -> bool:
        """Whether an engine's own header begins here, beyond doubt: one that has a time, or a level in brackets."""
        if not text or text[0] == "{":
            return False
        header = self.decoder.decode(text, self.engines, self.context, own=bool(self.engine))
        return header is not None and (header.time is not None or (bool(header.severity_text) and text[0] == "["))

    def join(self, first: Unwrapped, text: str) -> Unwrapped:
        """The whole line, from the envelope of its first piece and the text of all."""
        out = Unwrapped(text)
        out.time, out.stream, out.severity, out.attributes = first.time, first.stream, first.severity, first.attributes
        self.context.near = first.time
        return self._finish(out, text, self.believed)

    def _unwrap(self, text: str, believed: Collection[str]) -> Unwrapped:
        self.context.near = None
        return self._finish(Unwrapped(text), text, believed)

    def _finish(self, out: Unwrapped, text: str, believed: Collection[str]) -> Unwrapped:
        context, engines, decode = self.context, self.engines, self.decoder.decode
        outer: list[str] = []
        framed = False
        for _ in range(MAX_LAYERS):
            # A marked line is an envelope; any other is the engine's own line before it is an envelope.
            if not text.startswith(MARK):
                out.header = decode(text, engines, context, own=bool(engines))
                if out.header is not None:
                    break
            layer = peel(text, believed, self.envelope)
            if layer is None and not framed:
                # One frame to a line: "AssertionError: " has the shape of "host7: ".
                layer = self.frames.peel(text)
                framed = layer is not None
            if layer is None:
                break
            if layer.kind not in _FOREIGN_TO_ENGINES:
                outer.append(text)
            text = self._apply(layer, out)
            if layer.kind in SPLITTING and (layer.partial or out.stream in self.split):
                # A piece of a line: what is inside can only be read when all of it is there.
                out.is_piece, out.partial, out.text = True, layer.partial, text
                return out
        several = _NEWLINE in text
        if several:
            text = text.replace(_NEWLINE, "\n")
        if several or out.header is None:
            # Lines of another engine: what looked like an envelope may be the start of its header.
            for candidate in (*outer, text):
                out.header = decode(candidate, engines, context)
                if out.header is not None:
                    text = candidate
                    break
        out.text = text
        return out

    def _apply(self, layer: Peeled, out: Unwrapped) -> str:
        if layer.time:
            found = self._envelope_time(layer)
            if found is not None:
                out.time = found
                # A syslog stamp lacks its year and its zone: no yardstick for the stamp inside.
                vague = layer.kind == "prefix" or (layer.kind == "syslog" and not layer.time[0].isdigit())
                self.context.near = None if vague else found
        if layer.stream:
            out.stream = f"{out.stream}|{layer.stream}" if out.stream else layer.stream
        out.severity = layer.severity or out.severity
        if layer.attributes:
            out.attributes = {**out.attributes, **layer.attributes}
        if layer.kind in WEAK:
            out.weak = (*out.weak, layer.kind)
        return layer.text

    def _envelope_time(self, layer: Peeled) -> float | None:
        if layer.kind == "journald":
            return int(layer.time) / 1e6 if layer.time.isdecimal() else None
        if layer.kind == "prefix":
            self.context.near = None
            return stamp_time(layer.time, self.context)
        if layer.kind == "syslog":
            self.context.near = None
            return next((t for item in _SYSLOG if (t := item.parse(layer.time, self.context)) is not None), None)
        return parse_rfc3339_prefix(layer.time)

    def line(self, unwrapped: Unwrapped, number: int, inherited: Inherited) -> Line:
        """The unwrapped line as a record would hold it."""
        header = unwrapped.header
        attributes: Mapping[str, str]
        time: float | None
        if header is None:
            attributes = unwrapped.attributes
            same = unwrapped.stream == inherited.stream
            if same and inherited.attributes:
                attributes = {**inherited.attributes, **attributes}
            severity = severity_number(unwrapped.severity)
            if severity < _ERROR and (is_exception_line(unwrapped.text) or holds_traceback(unwrapped.text)):
                severity = _ERROR
            time, source = unwrapped.time, "envelope"
            if time is None:
                time, source = inherited.time, "inherited"
            writer = inherited.writer if same else _writer(unwrapped.stream, attributes)
            return Line(
                number, unwrapped.text, unwrapped.text, time, source, severity_name(severity), severity, attributes,
                writer, False,
            )  # fmt: skip
        attributes = header.attributes
        if unwrapped.attributes:
            attributes = {**unwrapped.attributes, **attributes}
        time, source = header.time, "line"
        if time is None:
            time, source = unwrapped.time, "envelope"
            if time is None:
                time, source = inherited.time, "inherited"
        text, severity = header.severity_text, header.severity_number
        if not severity and unwrapped.severity:
            severity = severity_number(unwrapped.severity)
            text = severity_name(severity)
        if severity < _ERROR and holds_traceback(header.body):
            text, severity = "ERROR", _ERROR
        return Line(
            number, unwrapped.text, header.body, time, source, text, severity, attributes,
            _writer(unwrapped.stream, attributes), True, header.engine,
        )  # fmt: skip

    def learn(self, unwrapped: Unwrapped) -> None:
        """Take from a line what helps with the next: prefixes it confirms, a full date."""
        header = unwrapped.header
        if header is None:
            return
        self.believed.update(unwrapped.weak)
        self.saw_json = self.saw_json or header.is_json
        if header.engine not in self.engines and (self.engine or header.time is not None):
            self.engines = (*self.engines, header.engine)
        if header.full_time and header.time is not None:
            self.context.reference.observe(header.time)

    def speaks(self, engine: str) -> None:
        """The dialect of the stream is known."""
        self.engine = engine
        self.engines = (engine, *(name for name in self.engines if name != engine))

    def snapshot(self) -> dict[str, Any]:
        """What was learned, as JSON-able values."""
        context = self.context
        return {
            "engine": self.engine,
            "engines": list(self.engines),
            "believed": sorted(self.believed),
            "frames": self.frames.snapshot(),
            "saw_json": self.saw_json,
            "boot": context.boot,
            "previous": context.previous,
        }

    def restore(self, data: Mapping[str, Any]) -> None:
        """Inverse of :meth:`snapshot`."""
        self.engine, self.engines = data["engine"], tuple(data["engines"])
        self.believed = set(data["believed"])
        self.frames.restore(data.get("frames", ()))
        self.saw_json = data["saw_json"]
        self.context.boot, self.context.previous = data["boot"], data["previous"]
