"""From a simulated world and an engine's voice to an incident: files, series, and when it must be told."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC
from typing import Any, Protocol

from tests.incidents.envelopes import Line, join
from tests.incidents.incident import Incident, Plan, due
from tests.incidents.openmetrics import Page, write
from tests.incidents.world import History, World


class Voice(Protocol):
    """An engine's way of saying things."""

    def log(self, *histories: History) -> list[Line]:
        """All lines of a log."""


Extra = Callable[[Sequence[History]], list[Line]]
Verdict = Callable[[Sequence[History], float], Mapping[str, Any]]
"""What is right, from what happened and the scrape interval: fields of an `Incident`."""


def healthy(*may_warn_of: str) -> Verdict:
    """No page is due."""
    return lambda _histories, _interval: {"page": False, "may_warn_of": may_warn_of}


def stalled(
    *names: str,
    replica: int = 0,
    fault: int = 0,
    seen_from: float | None = None,
    patience: float = 120.0,
    early: float = 1.0,
    **more: Any,
) -> Verdict:
    """A page is due when the stall has lasted `patience` seconds that could be seen, never before it began."""

    def verdict(histories: Sequence[History], interval: float) -> Mapping[str, Any]:
        history = histories[replica]
        onset = history.onset(fault)
        visible = onset if seen_from is None else max(onset, history.start + seen_from)
        return {
            "page": True,
            "failure_any_of": names,
            "fires_by": due(visible, interval, patience=patience),
            "not_before": onset - early,
            **more,
        }

    return verdict


def dead(*names: str, fault: int = 0, patience: float = 60.0, early: float = 1.0, **more: Any) -> Verdict:
    """A page is due as soon as the lines are there."""

    def verdict(histories: Sequence[History], interval: float) -> Mapping[str, Any]:
        begun = histories[0].start + histories[0].faults[fault].at
        return {
            "page": True,
            "failure_any_of": names,
            "fires_by": begun + patience + 2 * interval,
            "not_before": begun - early,
            **more,
        }

    return verdict


def plan(
    name: str,
    engine: str,
    why: str,
    verdict: Verdict,
    worlds: World | Sequence[World],
    voice: Voice,
    page: Callable[[World, int], Page] | None = None,
    *,
    interval: float = 5.0,
    log: bool = True,
    extra: Extra | None = None,
    envelope: str = "plain",
    cut: float | None = None,
    until: float | None = None,
    scrapes_end: float | None = None,
    skip: Callable[[str, float], bool] | None = None,
    arguments: tuple[str, ...] = (),
    names: tuple[str, ...] = ("server.log",),
    written: float | None = None,
    split: Callable[[Line], int] | None = None,
) -> Plan:
    """An incident to be built later.

    `cut`, `until` and `scrapes_end` are seconds since the traffic began: where the log ends, up to when it is said to
    be whole, and the last scrape. `split` spreads the lines over several files.
    """

    def make() -> Incident:
        chosen = [worlds] if isinstance(worlds, World) else list(worlds)
        histories = [replace(world).run() for world in chosen]
        start = histories[0].start
        lines = voice.log(*histories) if log else []
        if extra is not None:
            lines += extra(histories)
        lines = [line for line in lines if not histories[0].at(line.t).silent or line.t < start]
        if cut is not None:
            lines = [line for line in lines if line.t <= start + cut]
        files: dict[str, bytes] = {}
        for number, file in enumerate(names if lines else ()):
            chosen_lines = lines if split is None else [line for line in lines if split(line) == number]
            data = join(chosen_lines, envelope)
            files[file] = gzip.compress(data, mtime=0) if file.endswith(".gz") else data
        metrics = None
        if page is not None:
            pairs = [
                (history, page(world, index))
                for index, (world, history) in enumerate(zip(chosen, histories, strict=True))
            ]
            last = None if scrapes_end is None else start + scrapes_end
            metrics = write(pairs, interval=interval, first=start + 1.0, last=last, skip=skip)
        more = ("--until", _rfc3339(start + until)) if until is not None else ()
        return Incident(
            engine=engine,
            why=why,
            logs=files,
            metrics=metrics,
            arguments=(*arguments, *more),
            written=written if written is not None else start + (cut if cut is not None else len(histories[0].seconds)),
            **verdict(histories, interval if page is not None else 10.0),
        )

    return Plan(name, make)


def _rfc3339(t: float) -> str:
    from datetime import datetime

    return datetime.fromtimestamp(t, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
