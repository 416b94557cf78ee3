"""One input on its way through the engine: where its bytes, lines and open records stand."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from agent.logs.framing import MAX_LINE, Framer
from agent.logs.lines import Inherited, LineReader, Split, Unwrapped
from agent.logs.patterns import NEWLINE
from agent.logs.records import Group, Grouper, Line, starts_group
from agent.logs.scan import MASK, SHIFT
from agent.logs.shipped import Shipped
from agent.logs.unwrap import MARK, normalise
from agent.model import LogRecord, severity_number

if TYPE_CHECKING:
    from agent.logs.conditions import CompiledCondition
    from agent.logs.engine import LogEngine, Plan

__all__ = ["Hit", "LogStream", "Matched"]

LEARNING_LINES: Final = 64
"""Lines at the start of a stream that are all decoded, to learn what it speaks."""
_ERROR: Final = severity_number("ERROR")
_VT: Final = NEWLINE.decode()
_MARK: Final = MARK.encode()


@dataclass(frozen=True, slots=True)
class Hit:
    """A condition that a record satisfies: its index in the engine's list, and the named groups of its patterns."""

    condition: int
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Matched:
    """A record that satisfies at least one condition."""

    record: LogRecord
    hits: tuple[Hit, ...]


_condition_of: Final = attrgetter("condition")

# A whole traceback without headers, up to and with its last line, and nothing after it that could belong to it.
_BARE_TRACEBACK: Final = re.compile(
    rb"Traceback \(most recent call last\):[\t ]*\n(?:[\t ][^\n]*\n)+"
    rb"(?!(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL|Note|Hint|Warning|Error)\b)"
    rb"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?::[\t ][^\n]*)?\n(?=[^\s\"'#])(?!During |The above |\[0x|ray::|\d+\s+0x)"
)


class LogStream:
    """One input. Made by :meth:`agent.logs.engine.LogEngine.stream`; belongs to one thread.

    ``lines``, ``bytes``, ``records`` count what was read (a traceback or a line in pieces is one record),
    ``cut_lines`` the lines that were too long, ``decode_errors`` the lines that were no UTF-8. ``clock`` is the
    newest event time seen on any line, ``first_timestamp`` that of the first stamped line, ``dialect`` the engine
    that was given or recognised.
    """

    def __init__(
        self,
        engine: LogEngine,
        *,
        server: str,
        file: str,
        engine_name: str,
        first_line: int,
        envelope: str,
        timezone: tzinfo,
    ) -> None:
        self.server = server
        self.file = file
        self.lines = self.bytes = self.decode_errors = 0
        self.clock: float | None = None
        self.first_timestamp: float | None = None
        self._engine = engine
        self._auto = engine_name == "auto"
        self._reader = LineReader(engine.decoder, engine.year_reference, timezone, envelope)
        if not self._auto:
            self._reader.speaks(engine_name)
        self._plan: Plan = self._choose_plan()
        self._number = first_line
        self._framer = Framer()
        self._cut_records = 0
        self._merged = 0
        self._learning = LEARNING_LINES
        self._json_envelope = envelope in ("docker", "journald")
        self._any_envelope = envelope == "auto"
        self._shipped: Shipped | None = None
        self._grouper = Grouper()
        self._inherited = Inherited()
        self._known_upto = 0

    @property
    def dialect(self) -> str | None:
        """The engine this stream speaks, None while unknown."""
        return self._reader.engine or None

    @property
    def records(self) -> int:
        """Records read so far; a line that is not whole yet is none."""
        return self.lines - self._merged

    @property
    def cut_lines(self) -> int:
        """Lines and records that were too long and lost their end."""
        return self._framer.cut_lines + self._cut_records

    @property
    def is_open(self) -> bool:
        """Whether something waits for its end: a half-written line, a line in pieces, a traceback."""
        return self._framer.is_open or bool(self._grouper.groups or self._reader.split)

    # -- bytes -----------------------------------------------------------------------------------------------

    def feed(self, data: bytes | bytearray | memoryview, observed: float | None = None) -> list[Matched]:
        """Take the next bytes; give the records that are complete and satisfy a condition.

        ``observed`` is the moment of reading when it is now (live); a record without any time gets it.
        """
        out: list[Matched] = []
        self._reader.context.observed = observed
        for block in self._framer.blocks(data):
            self._block(block, out)
        self.bytes += len(data)
        return out

    def flush(self, observed: float | None = None) -> list[Matched]:
        """End of input, or silence: a half-written line, pieces and open tracebacks are decided as they are."""
        out: list[Matched] = []
        self._reader.context.observed = observed
        if rest := self._framer.rest():
            self._block(rest, out)
        for stream in list(self._reader.split):
            self._end_split(stream, out)
        for group in self._grouper.flush():
            self._emit_group(group, out)
        return out

    def restart_lines(self, file: str | None = None, first_line: int = 1) -> None:
        """The input goes on in a new file (a rotation): lines count from ``first_line`` again."""
        self.file = self.file if file is None else file
        self._number = first_line

    # -- blocks of whole lines -------------------------------------------------------------------------------

    def _block(self, block: bytes, out: list[Matched]) -> None:
        if not self.lines:
            block = block.removeprefix(b"\xef\xbb\xbf")
        if self._learning:
            end = 0
            while self._learning and end < len(block):
                begin, end = end, block.index(b"\n", end) + 1
                self._learning -= 1
                self._learn(block[begin:end], out)
            block = block[end:]
        if block:
            block = normalise(block, unwrap_json=self._json_envelope, shipped=self._shipped)
            if not block.isascii():
                self._check_text(block)
            self._scan(block, out)

    def _learn(self, line: bytes, out: list[Matched]) -> None:
        plain = normalise(line, shipped=self._shipped)
        if self._shipped is None and self._any_envelope and plain[:1] == b"{":
            self._shipped = self._reader.shipped(plain)
            plain = normalise(line, shipped=self._shipped)
        self._json_envelope = self._json_envelope or plain.startswith(_MARK)
        if not plain.isascii():
            self._check_text(plain)
        self._plan = self._choose_plan()
        self._read(plain[:-1], None, out, learning=True)

    def _scan(self, block: bytes, out: list[Matched]) -> None:
        # Ids mean something only together with the plan that found them: it changes between scans, never inside one.
        plan = self._plan = self._choose_plan()
        hits = plan.scanner.scan(block)
        position = index = self._known_upto = 0
        count = len(hits)
        reader, grouper, always = self._reader, self._grouper, plan.always
        while True:
            every = bool(always or grouper.groups or reader.split)
            if every:
                if position >= len(block):
                    break
                start = position
                end = block.index(b"\n", position)
            else:
                if index >= count:
                    break
                offset = hits[index] >> SHIFT
                start = block.rfind(b"\n", position, offset) + 1 or position
                end = block.find(b"\n", offset)
                self._skip(_count_lines(block, position, start))
            ids: set[int] = set()
            limit = (end + 1) << SHIFT
            while index < count and hits[index] < limit:
                ids.add(hits[index] & MASK)
                index += 1
            position = end + 1
            if every or not plan.opens.isdisjoint(ids):
                skipped = 0 if every else self._skip_traceback(block, start, hits, index, plan)
                if skipped:
                    position = skipped
                    continue
                self._inherit(block, start)
                self._read(block[start:end], ids, out)
                self._known_upto = position
            else:
                self._single(block, start, end, ids, out)
        self._skip(_count_lines(block, position, len(block)))
        self._inherit(block, len(block))

    def _skip(self, lines: int) -> None:
        self.lines += lines
        self._number += lines

    def _check_text(self, block: bytes) -> None:
        try:
            block.decode()
        except UnicodeDecodeError:
            for line in block.split(b"\n"):
                try:
                    line.decode()
                except UnicodeDecodeError:
                    self.decode_errors += 1

    def _skip_traceback(self, block: bytes, start: int, hits: Sequence[int], index: int, plan: Plan) -> int:
        """Where the block goes on after a bare traceback that nothing is looked for in; 0 when it must be read.

        It may only be passed over when reading it would have ended it at the very next line.
        """
        match = _BARE_TRACEBACK.match(block, start)
        if match is None:
            return 0
        end = match.end()
        if index < len(hits) and hits[index] >> SHIFT < end:
            return 0
        if not plan.opens.issuperset(plan.scanner.ids(block[start : end - 1].replace(b"\n", NEWLINE))):
            return 0
        following = self._reader.unwrap(block[end : block.find(b"\n", end)])
        if following.is_piece or following.stream:
            return 0
        lines = block.count(b"\n", start, end)
        self._skip(lines)
        self._merged += lines - 1
        return end

    # -- time and identity -----------------------------------------------------------------------------------

    def _inherit(self, block: bytes, upto: int) -> None:
        """Learn time and writer of the last stamped line before ``upto``."""
        low, high = self._known_upto, upto
        stamps = self._engine.stamp_search(self._reader.engines)
        self._known_upto = max(low, upto)
        while low < high:
            match = stamps.search(block, low, high)
            if match is None:
                return
            position = match.start()
            start = block.rfind(b"\n", low, position) + 1 or low
            unwrapped = self._reader.unwrap(block[start : block.find(b"\n", position)])
            if self._see(unwrapped):
                return
            high = start

    def _see(self, unwrapped: Unwrapped) -> bool:
        """Take over the time and the writer of a line that is stamped."""
        header = unwrapped.header
        time = header.time if header is not None and header.time is not None else unwrapped.time
        if time is None:
            return False
        if self.clock is None or time > self.clock:
            self.clock = time
        if self.first_timestamp is None:
            self.first_timestamp = time
        self._reader.context.previous = time
        attributes = header.attributes if header is not None else {}
        if unwrapped.attributes:
            attributes = {**unwrapped.attributes, **attributes}
        self._inherited = Inherited(time, unwrapped.stream, attributes)
        return True

    # -- lines -----------------------------------------------------------------------------------------------

    def _single(self, block: bytes, start: int, end: int, ids: set[int], out: list[Matched]) -> None:
        """A line with hits, when nothing is open."""
        self.lines += 1
        number = self._number
        self._number += 1
        plan = self._plan
        if len(ids) == 1 and plan.escapes in ids and not self._reader.saw_json:
            return
        unwrapped = self._reader.unwrap(block[start:end])
        if self._see(unwrapped):
            self._known_upto = end + 1
        else:
            self._inherit(block, start)
        self._emit_line(self._reader.line(unwrapped, number, self._inherited), unwrapped, ids, out)

    def _read(self, raw: bytes, ids: set[int] | None, out: list[Matched], *, learning: bool = False) -> None:
        """A line while something is open, or may be opened by it. ``ids`` None: not scanned."""
        self.lines += 1
        number = self._number
        self._number += 1
        unwrapped = self._reader.unwrap(raw, learning=learning)
        if unwrapped.is_piece:
            self._piece(unwrapped, number, out, learning=learning)
            return
        self._whole(unwrapped, number, ids, out, learning=learning)

    def _whole(
        self, unwrapped: Unwrapped, number: int, ids: set[int] | None, out: list[Matched], *, learning: bool = False
    ) -> None:
        self._see(unwrapped)
        if learning:
            self._reader.learn(unwrapped)
        line = self._reader.line(unwrapped, number, self._inherited)
        taken = False
        if self._grouper.groups or starts_group(line.body):
            taken, ended = self._grouper.take(line)
            for group in ended:
                self._emit_group(group, out, line)
        if not taken:
            self._emit_line(line, unwrapped, self._ids(line.text, line.body) if ids is None else ids, out)
        if learning and self._auto and not self._reader.engine:
            self._recognise(line)

    def _piece(self, unwrapped: Unwrapped, number: int, out: list[Matched], *, learning: bool) -> None:
        split = self._reader.split.get(unwrapped.stream)
        if split is None:
            split = self._reader.split[unwrapped.stream] = Split(unwrapped, number, [], 0, 0)
        room = MAX_LINE - split.size
        split.parts.append(unwrapped.text[:room])
        split.size += len(unwrapped.text)
        split.pieces += 1
        if not unwrapped.partial:
            self._end_split(unwrapped.stream, out, learning=learning)

    def _end_split(self, stream: str, out: list[Matched], *, learning: bool = False) -> None:
        split = self._reader.split.pop(stream)
        self._merged += split.pieces - 1
        self._cut_records += split.size > MAX_LINE
        self._whole(self._reader.join(split.first, "".join(split.parts)), split.number, None, out, learning=learning)

    # -- records ---------------------------------------------------------------------------------------------

    def _emit_line(self, line: Line, unwrapped: Unwrapped, ids: set[int], out: list[Matched]) -> None:
        plan = self._plan
        header = unwrapped.header
        if plan.escapes in ids and header is not None and header.is_json:
            ids = ids | self._ids(line.body)
        hits = self._hits(line, line.body, line.text, line.severity_number, ids)
        if hits:
            self._reader.learn(unwrapped)
            out.append(self._matched(line, line.body, line.text, line.severity_text, line.severity_number, hits))

    def _emit_group(self, group: Group, out: list[Matched], closing: Line | None = None) -> None:
        line = group.first
        if closing is not None and line.time_source == "inherited" and closing.time_source in ("line", "envelope"):
            # A bare traceback is printed just before the logger's own line about it: that stamp is nearer to the truth
            # than the one before, which may be minutes old where only the access log speaks in between.
            line = replace(line, time=closing.time)
        self._merged += group.lines - 1 + group.blanks
        self._cut_records += group.dropped > 0
        body, text = "\n".join(group.bodies), "\n".join(group.texts)
        severity_text, severity = line.severity_text, line.severity_number
        if severity < _ERROR:
            severity_text, severity = "ERROR", _ERROR
        hits = self._hits(line, body, text, severity, self._ids(text, body))
        if hits:
            out.append(self._matched(line, body, text, severity_text, severity, hits))

    def _ids(self, *texts: str) -> set[int]:
        found: set[int] = set()
        for text in dict.fromkeys(texts):
            found |= self._plan.scanner.ids(text.replace("\n", _VT).encode("utf-8", "replace"))
        return found

    def _hits(self, line: Line, body: str, text: str, severity: int, ids: Iterable[int]) -> tuple[Hit, ...]:
        plan = self._plan
        candidates: Iterable[CompiledCondition] = plan.always
        for number in ids:
            leads = plan.conditions[number]
            if leads:
                candidates = leads if not candidates else {id(item): item for item in (*candidates, *leads)}.values()
        if not candidates:
            return ()
        hits = self._holding(candidates, line, body, text, severity)
        if not hits:
            return ()
        untrusted = self._engine.untrusted_of(line.engine or self._reader.engine)
        end = untrusted.quoted_after(body, text, severity, line.attributes)
        if end >= 0:
            # What follows the words by which the engine announces a user's text is not the engine speaking.
            head = text.find(body)
            hits = self._holding(candidates, line, body[:end], text[: head + end] if head >= 0 else "", severity)
        if self._auto and hits and not self._reader.engine:
            self._recognise(line)
        if len(hits) == 1 and len(hits[0][0].indexes) == 1:
            return (Hit(hits[0][0].indexes[0], hits[0][1]),)
        return tuple(sorted((Hit(i, fields) for item, fields in hits for i in item.indexes), key=_condition_of))

    def _holding(
        self, candidates: Iterable[CompiledCondition], line: Line, body: str, text: str, severity: int
    ) -> list[tuple[CompiledCondition, Mapping[str, str]]]:
        found: dict[int, Any] = {}
        known = bool(self._reader.engine)
        out = []
        for condition in candidates:
            if condition.detects and known:
                continue
            fields = condition.holds(body, text, severity, line.attributes, found)
            if fields is not None:
                out.append((condition, fields))
        return out

    def _matched(
        self, line: Line, body: str, text: str, severity_text: str, severity: int, hits: tuple[Hit, ...]
    ) -> Matched:
        context = self._reader.context
        time, source = line.time, line.time_source
        if time is None:
            time, source = context.observed, "observed"
            if time is None:
                time = context.reference.moment()
        record = LogRecord(
            time, body, self.server, self.file, line.number, severity_text, severity, line.attributes,
            context.observed, source, text,  # type: ignore[arg-type]  # Line.time_source is one of the literals
        )  # fmt: skip
        return Matched(record, hits)

    # -- recognition -----------------------------------------------------------------------------------------

    def _choose_plan(self) -> Plan:
        return self._engine.recognised_plan if self._reader.engine else self._engine.open_plan

    def _recognise(self, line: Line) -> None:
        found: dict[int, Any] = {}
        for name, conditions in self._engine.detectors.items():
            for condition in conditions:
                if condition.holds(line.body, line.text, line.severity_number, line.attributes, found) is not None:
                    self._reader.speaks(name)
                    return

    # -- persistence -----------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Where the stream stands, as JSON-able values; with it :meth:`restore` goes on as if never stopped."""
        inherited = self._inherited
        return {
            "file": self.file,
            "number": self._number,
            "counts": [self.lines, self.bytes, self._cut_records, self.decode_errors, self._merged],
            "clock": self.clock,
            "first_timestamp": self.first_timestamp,
            "framer": self._framer.snapshot(),
            "learning": self._learning,
            "json_envelope": self._json_envelope,
            "shipped": None if self._shipped is None else self._shipped.to_json(),
            "reader": self._reader.snapshot(),
            "inherited": [inherited.time, inherited.stream, dict(inherited.attributes)],
            "groups": self._grouper.snapshot(),
            "split": [
                [stream, split.first.time, split.first.severity, split.first.attributes, split.number, split.parts,
                 split.size, split.pieces]
                for stream, split in self._reader.split.items()
            ],
        }  # fmt: skip

    def restore(self, data: Mapping[str, Any]) -> None:
        """Inverse of :meth:`snapshot`. Raises KeyError, ValueError or TypeError for what is no snapshot."""
        self.file, self._number = data["file"], data["number"]
        self.lines, self.bytes, self._cut_records, self.decode_errors, self._merged = data["counts"]
        self.clock, self.first_timestamp = data["clock"], data["first_timestamp"]
        self._framer.restore(data["framer"])
        self._learning, self._json_envelope = data["learning"], data["json_envelope"]
        self._shipped = Shipped.from_json(data.get("shipped"))
        self._reader.restore(data["reader"])
        time, stream, attributes = data["inherited"]
        self._inherited = Inherited(time, stream, attributes)
        self._grouper = Grouper.restore(data["groups"])
        self._reader.split.clear()
        for stream, time, severity, attributes, number, parts, size, pieces in data["split"]:
            first = Unwrapped("")
            first.time, first.stream, first.severity, first.attributes = time, stream, severity, attributes
            self._reader.split[stream] = Split(first, number, list(parts), size, pieces)


def _count_lines(block: bytes, start: int, end: int) -> int:
    if end - start < 512:
        return block.count(b"\n", start, end)
    # Three times the speed of bytes.count before Python 3.13: readlines looks for newlines with memchr.
    return len(io.BytesIO(block[start:end]).readlines())
