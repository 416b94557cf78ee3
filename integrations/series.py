"""Short courses of signals for messages: bars in a line of text, with the value before and now."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from integrations.text import duration, number, sparkline

__all__ = ["Course", "Spark", "as_number", "courses", "mapping", "span", "sparks"]


@dataclass(frozen=True, slots=True)
class Spark:
    """A signal's course in bars, with its value before and now."""

    name: str
    bars: str
    text: str


@dataclass(frozen=True, slots=True)
class Course:
    """A signal over time, in the unit it is shown in."""

    name: str
    unit: str
    points: tuple[tuple[float, float], ...]


_COURSES: Final[tuple[tuple[str, str, bool, float, str], ...]] = (
    # signal, name, is a counter, factor, unit; of two of one name the first that is there
    ("requests_waiting", "waiting", False, 1.0, ""),
    ("requests_running", "running", False, 1.0, ""),
    ("finished_per_minute", "finished", False, 1.0, "/min"),
    ("requests_finished_total", "finished", True, 60.0, "/min"),
    ("tokens_per_second", "tokens/s", False, 1.0, ""),
    ("generation_tokens_total", "tokens/s", True, 1.0, ""),
    ("generation_tokens_per_second", "tokens/s", False, 1.0, ""),
    ("kv_cache_usage_ratio", "KV use", False, 100.0, "%"),
)


def courses(series: Any) -> list[Course]:
    """The signals that a message shows, of those that are there: queue, running, completions, tokens, KV use."""
    found: dict[str, Course] = {}
    for signal, name, counter, factor, unit in _COURSES:
        points = _points(mapping(series).get(signal))
        if counter:
            points = _rates(points)
        if len(points) >= 3 and name not in found:
            found[name] = Course(name, unit, tuple((when, value * factor) for when, value in points))
    return list(found.values())


def sparks(series: Any) -> tuple[Spark, ...]:
    """One line a signal."""
    lines = []
    for course in courses(series):
        values = [value for _, value in course.points]
        first = sum(values[: max(1, len(values) // 4)]) / max(1, len(values) // 4)
        text = f"{number(first)}{course.unit} -> {number(values[-1])}{course.unit}"
        lines.append(Spark(course.name, sparkline(values), text))
    return tuple(lines)


def span(series: Any) -> str:
    """What the bars cover: ``-5m .. now``."""
    times = [point[0] for points in mapping(series).values() for point in _points(points)]
    return f"-{duration(max(times) - min(times))} .. now" if times and max(times) > min(times) else ""


def _points(raw: Any) -> list[tuple[float, float]]:
    if not isinstance(raw, list | tuple):
        return []
    points = []
    for item in raw[:240]:
        if isinstance(item, list | tuple) and len(item) == 2:
            when, value = as_number(item[0]), as_number(item[1])
            if when is not None and value is not None:
                points.append((when, value))
    return points


def _rates(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Per second between neighbours; a counter that fell was reset and counts from zero."""
    rates = []
    for (start, low), (end, high) in pairwise(points):
        if end > start:
            rates.append((end, (high - low if high >= low else high) / (end - start)))
    return rates


def mapping(raw: Any) -> Mapping[str, Any]:
    """``raw`` if it is a mapping, else an empty one: context is JSON that may come from an older release."""
    return raw if isinstance(raw, Mapping) else {}


def as_number(raw: Any) -> float | None:
    """``raw`` if it is a finite number."""
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not math.isfinite(raw):
        return None
    return float(raw)
