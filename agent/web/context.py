"""The log lines around the evidence of an alert, found again in what was captured of the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from agent.model import StageEvidence
from agent.web.view import ContextLine

__all__ = ["lines_around"]

_MOST: Final = 240
"""Lines that are shown at most."""
_LONGEST: Final = 2000
"""Characters of a line that are shown."""
_COMPARED: Final = 40
"""Lines of a record that are compared with the log."""


def lines_around(
    stages: Iterable[StageEvidence], read: Callable[[str], str], *, before: int = 12, after: int = 12
) -> tuple[ContextLine, ...]:
    """Each stage's line with its neighbours, in the order of the log; ``read`` gives the captured text of a file.

    Lines that filled a stage carry its name, time and severity; the others have no time of their own. Between pieces
    that are not next to each other stands a line ``...``. A stage that is older than what was captured is left out.
    A record of many lines is shown to its end, for a traceback says what is wrong in its last one.
    """
    by_file: dict[str, list[StageEvidence]] = {}
    for stage in stages:
        by_file.setdefault(stage.file, []).append(stage)
    out: list[ContextLine] = []
    for file, found in by_file.items():
        lines = read(file).splitlines()
        hits = {}
        end = len(lines)
        for stage in sorted(found, key=lambda item: (item.timestamp, item.line), reverse=True):
            index = _last(lines, stage.body, end)
            if index is not None:
                hits[index] = stage
                end = index + 1
        out += _pieces(file, lines, hits, before, after)
        if len(out) >= _MOST:
            break
    return tuple(out[:_MOST])


def _last(lines: list[str], body: str, end: int) -> int | None:
    """The index before ``end`` where ``body`` stands; of several, where most of its lines follow, then the last:
    many tracebacks begin alike."""
    wanted = [line.strip()[:200] for line in body.strip().split("\n")[:_COMPARED]]
    if not wanted[0]:
        return None
    found, most = None, 0
    for index in range(end - 1, -1, -1):
        if wanted[0] in lines[index]:
            here = zip(wanted, lines[index : index + len(wanted)], strict=False)
            score = sum(part in line for part, line in here)
            if score > most:
                found, most = index, score
            if most == len(wanted):
                break
    return found


def _pieces(
    file: str, lines: list[str], hits: dict[int, StageEvidence], before: int, after: int
) -> Iterable[ContextLine]:
    shown = -1
    for index in sorted(hits):
        start = max(shown + 1, index - before)
        if 0 <= shown < start - 1:
            yield ContextLine(None, "...", file)
        record = min(hits[index].body.strip().count("\n"), _COMPARED)
        stop = min(len(lines), index + record + after + 1)
        for at in range(start, stop):
            stage = hits.get(at)
            text = lines[at][:_LONGEST]
            number = hits[index].line + at - index if hits[index].line else 0
            if stage is None:
                yield ContextLine(None, text, file, max(0, number))
            else:
                yield ContextLine(stage.timestamp, text, file, max(0, number), stage.severity, stage.stage)
        shown = max(shown, stop - 1)
