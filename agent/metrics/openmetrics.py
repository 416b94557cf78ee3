"""Reads a finished series: OpenMetrics text with timestamps, in an engine's own metric names.

The same file that ``promtool tsdb create-blocks-from openmetrics`` reads
(https://prometheus.io/docs/prometheus/latest/storage/#backfilling-from-openmetrics-format), plain or gzip. Series
stand one after the other there, so lines are sorted by time and those of one scrape put together again.
"""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Final

from agent.metrics.mapping import SignalMapper
from agent.metrics.parse import LineFault, Page, Series, parse_page
from agent.model import Sample

__all__ = ["SeriesFileError", "read_samples"]

SAME_SCRAPE: Final = 0.5
"""Lines of different series less than this many seconds apart are of one scrape."""
MAX_BYTES: Final = 1 << 31
"""Most bytes that are read of a file, after unpacking."""
_TARGET_LABELS: Final = ("pod", "kubernetes_pod_name", "instance")
_LAST_SECOND: Final = 95_617_584_000.0
"""The year 5000; a later time is milliseconds taken for seconds."""


class SeriesFileError(ValueError):
    """A file of series that cannot be used; the text is a whole sentence with file and, where it helps, line."""


def read_samples(path: str | PathLike[str], mapper: SignalMapper, server: str) -> list[Sample]:
    """All samples of the file, sorted by time. Raises :class:`SeriesFileError`; a cut last line is left out."""
    data = _read(path)
    if not data.strip():
        raise SeriesFileError(f"{path}: the file is empty, give one with at least one line of metrics and '# EOF'")
    page = parse_page(data, mapper.wanted(data), openmetrics=True)
    _check(path, data, page)
    samples: list[Sample] = []
    for target, series in _targets(page.series).items():
        for timestamp, group in _scrapes(series):
            look = Page(group, page.families, cut=page.cut)
            found = mapper.map(look, server=server, timestamp=timestamp)
            samples += [_of_target(sample, target) for sample in found] if target else found
    samples.sort(key=lambda sample: sample.timestamp)
    if not page.series and data.replace(b"# EOF", b"").strip():
        whose = f"of engine {mapper.engine}" if mapper.engine else "of any engine that is known here"
        raise SeriesFileError(
            f"{path}: none of its lines is a metric {whose}; give --engine, or check that names are the engine's own"
        )
    return samples


def _read(path: str | PathLike[str]) -> bytes:
    try:
        with Path(path).open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            data = gzip.GzipFile(fileobj=raw).read(MAX_BYTES + 1) if packed else raw.read(MAX_BYTES + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise SeriesFileError(f"{path}: cannot be unpacked, the gzip data is damaged or cut ({error})") from error
    except OSError as error:
        raise SeriesFileError(f"{path}: cannot be read ({error.strerror or error})") from error
    if len(data) > MAX_BYTES:
        raise SeriesFileError(f"{path}: more than {MAX_BYTES >> 20} MiB unpacked, cut it to the time of interest")
    return data


def _check(path: str | PathLike[str], data: bytes, page: Page) -> None:
    if page.kind != "metrics":
        what = {"html": "an HTML page", "json": "JSON or a log"}.get(page.kind, "no metrics")
        raise SeriesFileError(f"{path}:1:1: this is {what}, expected OpenMetrics text with timestamps")
    for fault in page.faults:
        if not (page.cut and fault.line == page.lines):
            raise SeriesFileError(f"{path}:{fault.line}:1: {fault.message}")
    if any(series.timestamp is None for series in page.series):
        fault = _first_line(data, page, lambda series: series.timestamp is None)
        raise SeriesFileError(
            f"{path}:{fault.line}:1: {fault.message} has no timestamp; write `name{{labels}} value seconds` "
            "(a page as scraped has none, export the series from Prometheus)"
        )
    if any((series.timestamp or 0.0) > _LAST_SECOND for series in page.series):
        fault = _first_line(data, page, lambda series: (series.timestamp or 0.0) > _LAST_SECOND)
        raise SeriesFileError(
            f"{path}:{fault.line}:1: {fault.message} has a time after the year 5000; OpenMetrics counts seconds, "
            "divide milliseconds by 1000"
        )


def _first_line(data: bytes, page: Page, bad: Callable[[Series], bool]) -> LineFault:
    """The line of the first series that ``bad`` holds for; only walked when there is one."""
    names = frozenset(series.name for series in page.series if bad(series))
    for number, raw in enumerate(data.split(b"\n"), start=1):
        for series in parse_page(raw + b"\n", names, openmetrics=True).series:
            if bad(series):
                return LineFault(number, f"series {series.name!r}")
    return LineFault(1, "a series")


def _targets(series: list[Series]) -> dict[str, list[Series]]:
    """The series of each target that Prometheus scraped, by its name; all under ``""`` where there is one at a time.

    A server's own page has no such labels; an export may hold a whole fleet, and a target that took another's place
    (a pod that was replaced) is the same server going on."""
    for label in _TARGET_LABELS:
        spans: dict[str, tuple[float, float]] = {}
        for one in series:
            name = one.labels.get(label)
            if name and "ReplicaId" not in one.labels:
                low, high = spans.get(name, (math.inf, -math.inf))
                time = one.timestamp or 0.0
                spans[name] = min(low, time), max(high, time)
        ordered = sorted(spans.values())
        if any(later[0] < earlier[1] for earlier, later in pairwise(ordered)):
            found: dict[str, list[Series]] = {}
            for one in series:
                found.setdefault(one.labels.get(label, ""), []).append(one)
            return found
    return {"": series}


def _of_target(sample: Sample, target: str) -> Sample:
    """Replica 0 of a target is known by the target's name."""
    return replace(sample, instance=target if sample.instance in ("", "0") else f"{target}/{sample.instance}")


def _scrapes(series: list[Series]) -> Iterator[tuple[float, list[Series]]]:
    """Series put together by time: a group is closed by a gap, or when it would hold a series twice."""
    ordered = sorted(series, key=lambda one: one.timestamp or 0.0)
    group: list[Series] = []
    began = 0.0
    members: set[tuple[str, frozenset[tuple[str, str]]]] = set()
    for one in ordered:
        time = one.timestamp or 0.0
        key = (one.name, frozenset(one.labels.items()))
        if group and time != group[-1].timestamp and (time - began > SAME_SCRAPE or key in members):
            yield group[-1].timestamp or 0.0, group
            group, members = [], set()
        if not group:
            began = time
        group.append(one)
        members.add(key)
    if group:
        yield group[-1].timestamp or 0.0, group
