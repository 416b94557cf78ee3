"""Words for people: durations, numbers, sparklines, and the cutting and cleaning of text that others wrote."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Final

__all__ = [
    "clean",
    "clip",
    "clip_bytes",
    "clip_middle",
    "duration",
    "escaped",
    "head_and_tail",
    "number",
    "one_line",
    "sparkline",
    "utf16",
]

ELLIPSIS: Final = "…"
_BARS: Final = "▁▂▃▄▅▆▇█"
_ANSI: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
# C0 and C1 controls but newline and tab, and what reorders or hides text: a log line must not rewrite its neighbours.
_UNSAFE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\U000e0001]"
)
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """``text`` without escape codes, controls and bidirectional overrides, always encodable as UTF-8."""
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _LONE_SURROGATE.sub("\ufffd", _UNSAFE.sub("", text))


def one_line(text: str) -> str:
    """``text`` cleaned, with every run of white space as one space."""
    return " ".join(clean(text).split())


def utf16(text: str) -> int:
    """Length in UTF-16 code units."""
    return len(text) + sum(1 for char in text if char > "\uffff")


def _boundary(text: str, end: int) -> int:
    """The largest cut at or before ``end`` that does not part what is read as one character."""
    while 0 < end < len(text):
        after, before = text[end], text[end - 1]
        joined = (
            after in "\u200d\ufe0e\ufe0f\u20e3"
            or before == "\u200d"
            or unicodedata.category(after) in {"Mn", "Mc", "Me"}
            or "\U0001f3fb" <= after <= "\U0001f3ff"
            or "\U000e0020" <= after <= "\U000e007f"
            or (_is_flag(after) and _is_flag(before) and _flags_before(text, end) % 2 == 1)
        )
        if not joined:
            break
        end -= 1
    return end


def _is_flag(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def _flags_before(text: str, end: int) -> int:
    count = 0
    while end - count > 0 and count < 64 and _is_flag(text[end - count - 1]):
        count += 1
    return count


def escaped(text: str, limit: int, escape: Callable[[str], str], size: Callable[[str], int] = utf16) -> str:
    """``escape`` of the longest prefix whose escaped form has at most ``limit`` units; an ellipsis marks a cut.

    ``escape`` must grow with its input. An escape sequence is never cut through."""
    if limit <= 0:
        return ""
    text = text[: limit + 1]  # no escape makes text shorter
    whole = escape(text)
    if len(text) <= limit and size(whole) <= limit:
        return whole
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if size(escape(text[:middle])) + 1 <= limit:
            low = middle
        else:
            high = middle - 1
    return escape(text[: _boundary(text, low)].rstrip()) + ELLIPSIS


def clip(text: str, limit: int, size: Callable[[str], int] = len) -> str:
    """``text`` in at most ``limit`` units, cut between characters as people see them; an ellipsis marks a cut."""
    return escaped(text, limit, lambda part: part, size)


def clip_bytes(text: str, limit: int) -> str:
    """``text`` in at most ``limit`` bytes of UTF-8, ellipsis included."""
    return (
        text
        if len(text.encode("utf-8", "replace")) <= limit
        else escaped(text, limit - 2, lambda part: part, lambda s: len(s.encode("utf-8", "replace")))
    )


def clip_middle(text: str, limit: int) -> str:
    """``text`` in at most ``limit`` characters with its middle cut out: names differ at both ends."""
    if len(text) <= limit:
        return text
    if limit < 5:
        return clip(text, limit)
    tail = (limit - 1) // 2
    head = _boundary(text, limit - 1 - tail)
    start = len(text) - tail
    while start < len(text) and _boundary(text, start) != start:
        start += 1
    return text[:head] + ELLIPSIS + text[start:]


def head_and_tail(text: str, limit: int) -> str:
    """A long record (a traceback) by its first and last lines; the error stands at the end, so that gets more."""
    if len(text) <= limit:
        return text
    room = max(0, limit - 24)
    head = _boundary(text, room // 3)
    tail = len(text) - (room - head)
    while tail < len(text) and _boundary(text, tail) != tail:
        tail += 1
    cut = tail - head
    return f"{text[:head]} … {cut} characters … {text[tail:]}"[: limit + 1] if limit >= 60 else clip(text, limit)


def duration(seconds: float) -> str:
    """``130`` -> ``2m10s``; two units at most, whole seconds from ten on: ``850ms 4.2s 59s 2m10s 1h52m 3d4h``."""
    if not math.isfinite(seconds):
        return "?"
    seconds = max(0.0, seconds)
    if seconds < 1:
        return f"{round(seconds * 1000)}ms" if round(seconds * 1000) < 1000 else "1s"
    if seconds < 9.95:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    whole = round(seconds)
    for unit, size, small, small_size in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // small_size
            return f"{whole // size}{unit}" + (f"{rest}{small}" if rest else "")
    return f"{whole}s"


def number(value: float) -> str:
    """``4120`` -> ``4.1k``; small numbers keep a decimal, large ones lose digits nobody reads."""
    if not math.isfinite(value):
        return "?"
    sign, size = ("-" if value < 0 else ""), abs(value)
    if size >= 1e15:
        return f"{value:.2g}"
    for unit, factor in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if size >= factor * 0.9995:
            scaled = size / factor
            return f"{sign}{scaled:.1f}".removesuffix(".0") + unit if scaled < 99.95 else f"{sign}{scaled:.0f}{unit}"
    if size >= 99.5 or float(size).is_integer():
        return f"{sign}{size:.0f}"
    return f"{sign}{size:.1f}".removesuffix(".0") if size >= 1 else f"{sign}{size:.2g}"


def sparkline(values: Sequence[float], width: int = 12) -> str:
    """Bars of the values, averaged into ``width`` columns; the lowest bar is zero or the least value below it."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return ""
    columns = min(width, len(finite))
    averaged = []
    for column in range(columns):
        part = finite[column * len(finite) // columns : (column + 1) * len(finite) // columns]
        averaged.append(sum(part) / len(part))
    low, high = min(0.0, *averaged, 0.0), max(averaged)
    if high <= low:
        return _BARS[0] * columns
    return "".join(_BARS[min(7, int((value - low) / (high - low) * 7.999))] for value in averaged)
