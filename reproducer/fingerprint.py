"""Raise the load until the scheduler wedges, go on watching, and leave the evidence: log, metrics, result.

The load is what a morning is: few users, more, and more. Nobody tells the engine when to fail. Whether it is wedged is
read from outside, as a person would: requests are open, and neither a step nor a completion has come since.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from .config import Config
from .load import Load, arrivals
from .openmetrics import Recording
from .predict import bracket
from .process import ServeProcess
from .users import Population, population_for, write_load

__all__ = ["LEVELS", "Watch", "fingerprint"]

LEVELS: Final[dict[str, tuple[int, ...]]] = {
    "reuse": (4, 8, 12, 14, 12, 14, 12, 14, 12, 14, 12, 14, 12, 14),
    "oversize": (2, 4, 6, 8, 8, 8, 8, 8, 8),
}
_RAMP: Final = (4, 8, 12, 16, 20, 24, 32, 40, 48, 64)
SILENCE: Final = 3.0  # seconds without a step while requests are open


@dataclass
class Watch:
    """Reads a server once per ``interval``: its page for the recording, its inside for the queue."""

    server: ServeProcess
    load: Load
    interval: float = 1.0
    recording: Recording = field(default_factory=Recording)
    queue: list[dict[str, Any]] = field(default_factory=list)
    last: dict[str, Any] = field(default_factory=dict)
    moved: float = field(default_factory=time.time)

    def look(self) -> bool:
        """One reading. True when the server is wedged: open requests, no step for :data:`SILENCE` seconds."""
        began = time.time()
        if page := self.server.page():
            self.recording.add(page, began)
        state = self.server.state()
        if not state or state["steps"] != self.last.get("steps") or not self.load.in_flight:
            self.moved = began
        self.last = state or self.last
        keys = ("accepted", "completed", "running", "waiting", "unanswered")
        self.queue.append({"t": round(began - self.load.began, 2), **{key: self.last.get(key) for key in keys}})
        return began - self.moved >= SILENCE

    def until(self, seconds: float, *, stop_at_wedge: bool, tell: Callable[[str], None]) -> bool:
        """Go on reading; True as soon as it is wedged when that is to end the watch."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            wedged = self.look()
            tell(
                f"{self.load.users:3d} users, {self.last.get('completed', 0):4d} completed, "
                f"{self.last.get('running', 0):3d} running, "
                f"{self.last.get('waiting', 0) + self.last.get('unanswered', 0):3d} waiting"
            )
            if wedged and stop_at_wedge:
                return True
            time.sleep(min(self.interval, max(0.0, left)))
        return False


def fingerprint(
    config: Config,
    folder: Path,
    *,
    serve_arguments: list[str],
    population: Population | None = None,
    levels: tuple[int, ...] = (),
    level_seconds: float = 6.0,
    after_seconds: float = 45.0,
    interval: float = 1.0,
    tell: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Run one server under rising load. Returns the result, which is also in ``folder/result.json``."""
    population = population or population_for(config.profile, config.max_seq_len, config.seed)
    with ServeProcess(folder, serve_arguments) as server:
        load = Load(server.url, max_total=config.max_seq_len)
        watch = Watch(server, load, interval)
        wedged = False
        for users in levels or LEVELS.get(config.profile, _RAMP):
            load.closed(population, users)
            if wedged := watch.until(level_seconds, stop_at_wedge=True, tell=tell):
                break
        at, onset = watch.moved, load.users
        before = dict(watch.last)
        if wedged:
            load.open(arrivals(population, 1.0, after_seconds, seed=config.seed))  # clients that know nothing of it
            watch.until(after_seconds, stop_at_wedge=False, tell=tell)
        load.stop()
        result = _result(config, watch, before, wedged, at, onset, server)
    result["predicted"] = bracket(config, population)
    (folder / "metrics.om").write_text(watch.recording.text())
    (folder / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    write_load(folder / "load.jsonl", [ask for ask in load.asked if ask.at is None])
    return result


def _result(
    config: Config, watch: Watch, before: dict[str, Any], wedged: bool, at: float, onset: int, server: ServeProcess
) -> dict[str, Any]:
    last, load = watch.last, watch.load
    busy = max(at - load.began, 1e-9)
    answers = sorted(answer.latency for answer in load.answers if answer.status == 200)
    crash = last.get("crash")
    wedge = None
    if wedged:
        wedge = {
            "mode": "assertion" if crash else "deadlock",
            "at": at,
            "seconds": round(at - load.began, 2),
            "users": onset,
            "step": last["steps"],
            "total_num_tokens": crash["total_num_tokens"] if crash else None,
            "overshoot": crash["total_num_tokens"] - crash["max_num_tokens"] if crash else None,
            "rows": crash["rows"] if crash else None,
            "claims": last["claims"],
            "wait_for": last["wait_for"],
            "http_after": {path: server.get(path)[0] for path in ("/health", "/v1/models")},
            "accepted_since": last["accepted"] - before["accepted"],
            "completed_since": last["completed"] - before["completed"],
        }
    return {
        "config": config.to_json(),
        "voice": last["voice"],
        "after_crash": last["after_crash"],
        "device": last["device"],
        "tokens_per_second": {
            "prompt": round(last["prompt_tokens"] / busy, 1),
            "generation": round(last["generation_tokens"] / busy, 1),
        },
        "steps": last["steps"],
        "step_ms": last["step_ms"],
        "offered": len(load.asked),
        "accepted": last["accepted"],
        "completed": last["completed"],
        "errors": last["errors"],
        "latency_p99": round(answers[int(0.99 * (len(answers) - 1))], 3) if answers else None,
        "queue": watch.queue,
        "wedge": wedge,
        "safe_concurrency": config.safe_concurrency,
    }
