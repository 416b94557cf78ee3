"""A server that a test tells what it does, look by look, as its metrics page and its log would show it."""

from __future__ import annotations

from typing import Any

from agent.detect.deadline import ProgressLimits
from agent.detect.progress import ProgressTracker
from agent.model import ProgressState, Sample

T0 = 1_795_165_200.0
_COUNTERS = {
    "tokens": "generation_tokens_total",
    "prompted": "prompt_tokens_total",
    "finished": "requests_finished_total",
    "aborted": "requests_aborted_total",
    "preempted": "preemptions_total",
    "steps": "iterations_total",
}
_GAUGES = {
    "running": "requests_running",
    "waiting": "requests_waiting",
    "kv": "kv_cache_usage_ratio",
    "deferred": "requests_deferred",
    "http": "http_requests_active",
    "sleeping": "sleeping",
    "scheduled": "scheduled_requests",
}


class Watched:
    """Counters are given as what they grow by in each look, gauges as what they show; else both stay as they are."""

    def __init__(self, *, limits: ProgressLimits | None = None, every: float = 5.0, **page: float) -> None:
        self.tracker = ProgressTracker(limits)
        self.now = T0
        self.every = every
        self.values: dict[str, float] = dict.fromkeys(_COUNTERS.values(), 0.0)
        self.values |= {"requests_running": 0.0, "requests_waiting": 0.0, "kv_cache_usage_ratio": 0.0}
        self.values |= {"process_start_time_seconds": T0 - 600} | page
        self.seen: list[tuple[float, ProgressState]] = []

    def look(self, looks: int = 1, *, every: float | None = None, repeats: int = 0, **what: Any) -> Watched:
        """Look so often, the same growing by the same each time. A pair of numbers is a gauge that climbs or falls
        evenly from the first to the second."""
        for number in range(looks):
            self.now += self.every if every is None else every
            for name, value in what.items():
                if name in _COUNTERS:
                    self.values[_COUNTERS[name]] += value
                else:
                    full = _GAUGES[name]
                    if isinstance(value, tuple):
                        share = (number + 1) / looks
                        value = value[0] + share * (value[1] - value[0])
                    self.values[full] = value
            sample = Sample(self.now, "s", "metrics", dict(self.values), repeats=repeats, clocked=repeats > 0)
            self._observe(sample)
        return self

    def serve(self, looks: int = 60, **what: Any) -> Watched:
        """Be busy and well for a while: five minutes unless told otherwise."""
        usual = {
            "running": 8.0,
            "waiting": 0.0,
            "tokens": 1500,
            "finished": 2,
            "prompted": 2000,
            "steps": 40,
            "kv": 0.4,
        }
        return self.look(looks, **(usual | what))

    def stand(self, looks: int = 1, **what: Any) -> Watched:
        """Nothing moves."""
        return self.look(looks, **what)

    def lose(self, seconds: float, every: float | None = None) -> Watched:
        """The page cannot be read for so long."""
        step = self.every if every is None else every
        for _ in range(int(seconds / step)):
            self.now += step
            self._observe(Sample(self.now, "s", "metrics", {}, ok=False, error="timeout: no answer within 3 s"))
        return self

    def line(self, *, after: float = 10.0, probe: bool = False, origin: str = "stats", **values: float) -> Watched:
        """A stats line of the engine: ``running`` and so on as above, ``gen`` and ``prompt`` in tokens a second."""
        self.now += after
        names = _GAUGES | _COUNTERS | {"gen": "generation_tokens_per_second", "prompt": "prompt_tokens_per_second"}
        given = {names.get(name, name): value for name, value in values.items()}
        self._observe(Sample(self.now, "s", "log", given, probe=probe, origin=origin))
        return self

    def mark(self, state: str, after: float = 0.0) -> Watched:
        """A line tells of a phase or an event."""
        self.now += after
        self.tracker.mark(state, self.now)
        self._note()
        return self

    def wait(self, seconds: float, step: float = 1.0) -> Watched:
        """Time goes by, nobody says anything."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + step)
            self.tracker.advance(self.now)
            self._note()
        return self

    def restart(self, down: float = 60.0) -> Watched:
        """The process is replaced; the page is gone meanwhile."""
        self.lose(down)
        for name in _COUNTERS.values():
            self.values[name] = 0.0
        self.values |= {"requests_running": 0.0, "requests_waiting": 0.0, "kv_cache_usage_ratio": 0.0}
        self.values["process_start_time_seconds"] = self.now - 5
        return self.look()

    def _observe(self, sample: Sample) -> None:
        self.tracker.observe(sample)
        self._note()

    def _note(self) -> None:
        if not self.seen or self.seen[-1][1] != self.tracker.state:
            self.seen.append((self.now, self.tracker.state))

    @property
    def state(self) -> ProgressState:
        return self.tracker.state

    @property
    def states(self) -> list[ProgressState]:
        """Every state it went through."""
        return [state for _, state in self.seen]

    @property
    def ever_stalled(self) -> bool:
        return "stalled" in self.states

    def stalled_after(self, since: float) -> float:
        """Seconds from ``since`` to the verdict. Raises when there is none."""
        return next(time for time, state in self.seen if state == "stalled" and time >= since) - since
