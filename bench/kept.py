"""Results of jobs on disk, a line each: a run that was stopped goes on, and runs of several seeds or machines add up.

The file is appended to as jobs end. Two files put together (``cat``) are one run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.outcome import Healthy, Wedged
from bench.weeks import Weeks

__all__ = ["Job", "Kept", "Outcome"]

Job = tuple[str, str, int, float]
"""What is simulated (``healthy``, ``wedge``, ``weeks``), its kind, its seed, and how long it lives."""
Outcome = Healthy | Wedged | Weeks


class Kept:
    """Outcomes by job, those of earlier runs among them. ``path`` None: kept in memory only."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._done: dict[Job, Outcome] = {}
        self.seconds = 0.0
        """Time that the runs took of which these are the results."""
        if path is not None and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                job, outcome = _read(line)
                if outcome is None:
                    self.seconds += job[3]
                else:
                    self._done[job] = outcome

    def __contains__(self, job: Job) -> bool:
        return job in self._done

    def __iter__(self) -> Iterator[Outcome]:
        """In the order of the jobs, however they ended."""
        return (self._done[job] for job in sorted(self._done))

    def __len__(self) -> int:
        return len(self._done)

    def add(self, job: Job, outcome: Outcome) -> None:
        """A job ended."""
        self._done[job] = outcome
        self._write(job, asdict(outcome))

    def ran(self, seconds: float) -> None:
        """A run of so many seconds ended."""
        self.seconds += seconds
        self._write(("run", "", 0, seconds), {})

    def _write(self, job: Job, data: dict[str, Any]) -> None:
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps([job, data]) + "\n")


def _read(line: str) -> tuple[Job, Outcome | None]:
    """Raises ValueError when the line is cut or is none of ours."""
    (what, kind, seed, length), data = json.loads(line)
    return (what, kind, seed, length), _outcome(what, data)


def _outcome(what: str, data: dict[str, Any]) -> Outcome | None:
    if what == "run":
        return None
    if what == "healthy":
        return Healthy(**data)
    if what == "weeks":
        return Weeks(**{**data, "leads": tuple(data["leads"])})
    before = data.pop("before")
    return Wedged(**data, before=None if before is None else Healthy(**before))
