"""Series as ``promtool tsdb create-blocks-from openmetrics`` reads them: families in one piece, all samples stamped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from tests.incidents.world import History, Second

Type = Literal["gauge", "counter", "histogram", "info", "unknown"]


@dataclass(frozen=True, slots=True)
class Point:
    """One line of a page: the family's name (a counter's without ``_total``), and what the sample adds to it."""

    family: str
    kind: Type
    help: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)
    suffix: str = ""


Page = Callable[[Second], Iterable[Point]]
"""What an engine's page says at one second."""


def gauge(family: str, value: float, labels: Mapping[str, str], help: str = "") -> Point:
    return Point(family, "gauge", help, value, labels)


def counter(family: str, value: float, labels: Mapping[str, str], help: str = "") -> Point:
    return Point(family, "counter", help, value, labels, "_total")


def bare_counter(family: str, value: float, labels: Mapping[str, str], help: str = "") -> Point:
    """A counter of an exporter that does not append ``_total``."""
    return Point(family, "counter", help, value, labels)


def histogram(
    family: str, count: float, mean: float, labels: Mapping[str, str], bounds: tuple[float, ...], help: str = ""
) -> list[Point]:
    """A histogram whose observations all equal their mean: enough for anyone who reads sum, count and buckets."""
    points = [
        Point(family, "histogram", help, count if mean <= bound else 0, {**labels, "le": f"{bound:g}"}, "_bucket")
        for bound in bounds
    ]
    points.append(Point(family, "histogram", help, count, {**labels, "le": "+Inf"}, "_bucket"))
    points.append(Point(family, "histogram", help, count, labels, "_count"))
    points.append(Point(family, "histogram", help, round(count * mean, 3), labels, "_sum"))
    return points


def process(second: Second) -> list[Point]:
    """What every Python exporter says of its process; its clock and its own scrapes never stand still."""
    return [
        gauge(
            "process_start_time_seconds", second.started, {}, "Start time of the process since unix epoch in seconds."
        ),
        counter(
            "process_cpu_seconds",
            round(second.scraped * 0.37, 2),
            {},
            "Total user and system CPU time spent in seconds.",
        ),
    ]


def write(
    histories: Iterable[tuple[History, Page]],
    *,
    interval: float,
    first: float | None = None,
    last: float | None = None,
    skip: Callable[[str, float], bool] | None = None,
) -> bytes:
    """Scrape every history each `interval` seconds; `skip` drops a family from a time on (it vanished)."""
    families: dict[str, tuple[Type, str, dict[tuple[str, ...], list[str]]]] = {}
    for history, page in histories:
        t = history.start if first is None else first
        while t <= (history.end if last is None else last):
            second = history.page(t)
            if second.readable and second.up:
                for point in page(second):
                    if skip is not None and skip(point.family, t):
                        continue
                    _, _, series = families.setdefault(point.family, (point.kind, point.help, {}))
                    text = ",".join(f'{key}="{value}"' for key, value in point.labels.items())
                    name = f"{point.family}{point.suffix}" + (f"{{{text}}}" if text else "")
                    series.setdefault((point.suffix, text), []).append(f"{name} {_number(point.value)} {t:.3f}")
            t += interval
    out = []
    for family, (kind, help, series) in families.items():
        if help:
            out.append(f"# HELP {family} {help}")
        out.append(f"# TYPE {family} {kind}")
        for lines in series.values():
            out += lines
    out.append("# EOF\n")
    return "\n".join(out).encode()


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))
