"""Prefixes that no list foresees: what a launcher, shipper or terminal put before each line, learned from the lines.

A line that is nobody's may still hold an engine's header a few characters further on. What stands before it is then
a frame, and its *shape* (words and numbers are any word, blanks any blanks, signs are themselves) takes it off every
line that follows: of a traceback too, whose lines have no header by which they could be told.

A frame of mere words is believed at its second line, any other at once, and only as long as more lines were framed than
stood bare: a request that quotes a header is one line among many of the engine's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from agent.logs.timestamps import TimeContext, TimeFormat
from agent.logs.unwrap import Peeled

__all__ = ["Frames"]

REACH: Final = 240
"""Characters from the start of a line in which the engine's header must begin."""
MOST_SHAPES: Final = 8
_SEPARATOR: Final = re.compile(r"[\s|:>\])}›│]+(?=\S)")
_TOKEN: Final = re.compile(r"\w+|[^\S\n]+|[^\w\s]", re.ASCII)
_STAMP: Final = re.compile(
    r"(?P<iso>\d{4}-\d\d-\d\d(?:[T_ ]|, )\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d)\b)?)"
    r"|(?P<syslog>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,6})?)"
    r"|(?<![\w.])(?P<epoch>1\d{9}(?:\.\d{1,9}|\d{3}(?:\d{3}(?:\d{3})?)?)?)(?![\w.])",
    re.ASCII,
)
_FORMATS: Final = {
    "iso": (TimeFormat("iso8601"),),
    "syslog": (TimeFormat("%b %d %H:%M:%S"), TimeFormat("%b %d %H:%M:%S.%f")),
    "epoch": (TimeFormat("epoch"),),
}

Reads = Callable[[str], bool]
"""Whether a text begins with a header of an engine."""


class Frames:
    """What is known of the frames of one stream."""

    def __init__(self) -> None:
        self.shapes: list[str] = []
        """Believed, as regular expressions."""
        self._compiled: list[re.Pattern[str]] = []
        self._seen: dict[str, int] = {}
        self._framed = self._bare = 0

    def bare(self) -> None:
        """A line that begins with an engine's header."""
        self._bare += 1

    def learn(self, text: str, reads: Reads) -> bool:
        """Look for a header inside a line that has none at its start; whether a frame is believed since."""
        if self._framed < self._bare:
            return False
        for start in _starts(text[:REACH]):
            if reads(text[start:]):
                return self._saw(text[:start])
        return False

    def peel(self, text: str) -> Peeled | None:
        """``text`` without its frame; None where no shape that is believed fits."""
        for pattern in self._compiled:
            match = pattern.match(text)
            if match is not None:
                frame = match[0]
                stamp = _STAMP.search(frame)
                time = stamp[0] if stamp else ""
                stream = " ".join(frame.replace(time, "").split()) if time else frame.strip()
                return Peeled("prefix", text[match.end() :], time, stream if re.search(r"[^\W\d]", stream) else "")
        return None

    def _saw(self, frame: str) -> bool:
        stamped = _STAMP.search(frame) is not None
        if not stamped and re.fullmatch(r"\w+\s+", frame):
            return False  # one word and a blank: any sentence begins so
        self._framed += 1
        shape = _shape(frame)
        seen = self._seen[shape] = self._seen.get(shape, 0) + 1
        worded = not stamped and re.fullmatch(r"[\w\s]+", frame) is not None
        if shape in self.shapes or (worded and seen < 2) or len(self.shapes) >= MOST_SHAPES:
            return shape in self.shapes
        self._believe(shape)
        return True

    def _believe(self, shape: str) -> None:
        self.shapes.append(shape)
        self._compiled.append(re.compile(shape, re.ASCII))

    def snapshot(self) -> list[str]:
        """The shapes that are believed, JSON-able."""
        return list(self.shapes)

    def restore(self, shapes: Any) -> None:
        """Inverse of :meth:`snapshot`. Raises re.error or TypeError for what is none."""
        self.shapes, self._compiled = [], []
        for shape in shapes:
            self._believe(shape)


def stamp_time(text: str, context: TimeContext) -> float | None:
    """Unix seconds of the stamp in a frame."""
    match = _STAMP.fullmatch(text)
    if match is None or match.lastgroup is None:
        return None
    plain = text.replace(", ", " ")
    return next((t for item in _FORMATS[match.lastgroup] if (t := item.parse(plain, context)) is not None), None)


def _starts(text: str) -> Iterator[int]:
    if text[:1].isspace():
        yield len(text) - len(text.lstrip())
    for match in _SEPARATOR.finditer(text):
        if match.start():
            yield match.end()


def _shape(frame: str) -> str:
    parts = []
    body = frame.rstrip()
    for token in _TOKEN.findall(body):
        if re.match(r"\w", token, re.ASCII):
            parts.append(r"\w+")
        else:
            parts.append(r"[^\S\n]+" if token.isspace() else re.escape(token))
    # The blanks at its end are exact: those after them are the indentation of what follows.
    return "".join(parts) + re.escape(frame[len(body) :])
