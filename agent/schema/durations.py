"""Spans of time the way Prometheus writes them: ``1h30m``, ``10s``, ``500ms``."""

from __future__ import annotations

import re
from typing import Final

from agent.model import Duration

__all__ = ["DURATION_PATTERN", "format_duration", "parse_duration"]

DURATION_PATTERN: Final = r"^(?:(\d+)y)?(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?$"
"""Units fall in size and each comes once; https://prometheus.io/docs/prometheus/latest/querying/basics/ ."""

_UNITS: Final[tuple[tuple[str, float], ...]] = (
    ("y", 365 * 86400.0),
    ("w", 7 * 86400.0),
    ("d", 86400.0),
    ("h", 3600.0),
    ("m", 60.0),
    ("s", 1.0),
    ("ms", 0.001),
)
_SHAPE: Final = re.compile(DURATION_PATTERN, re.ASCII)


def parse_duration(text: str) -> Duration:
    """Seconds of ``1h30m``; ``0`` needs no unit. Raises ValueError with a sentence that says what to write."""
    stripped = text.strip()
    if stripped == "0":
        return Duration(0.0)
    found = _SHAPE.match(stripped)
    if found is None or not stripped:
        raise ValueError(_advice(stripped))
    total = 0.0
    for number, (_, size) in zip(found.groups(), _UNITS, strict=True):
        if number is not None:
            if len(number) > 12:
                raise ValueError(f"{stripped[:40]!r} is longer than any duration that makes sense")
            total += int(number) * size
    return Duration(round(total, 3))


def _advice(text: str) -> str:
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return f"{text!r} has no unit, write for example {text.split('.')[0]}s"
    if re.fullmatch(r"\d+(:\d+)+", text):
        return f"{text!r} is no duration, write it with units, for example 1m30s"
    fraction = re.fullmatch(r"(\d*\.\d+)(ms|s|m|h|d|w|y)", text)
    if fraction:
        size = dict(_UNITS)[fraction[2]]
        return f"{text!r} has a fraction, write {format_duration(float(fraction[1]) * size)}"
    word = re.fullmatch(r"(\d+)\s*([a-zA-Z]+)", text)
    if word and word[2].lower()[:3] in {"sec", "min", "hou", "day", "wee", "mil"}:
        unit = {"mil": "ms"}.get(word[2].lower()[:3], word[2][0].lower())
        return f"{text!r} is no duration, write {word[1]}{unit}"
    return f"{text[:40]!r} is no duration, write for example 10s, 5m or 1h30m"


def format_duration(seconds: float) -> str:
    """The shortest text that :func:`parse_duration` reads as the same span; weeks and years stay days."""
    millis = round(abs(seconds) * 1000)
    if millis == 0:
        return "0s"
    parts = []
    for unit, size in _UNITS[2:]:
        count, millis = divmod(millis, round(size * 1000))
        if count:
            parts.append(f"{count}{unit}")
    return ("-" if seconds < 0 else "") + "".join(parts)
