"""How one engine stands: what is known of it, and the questions that alerts, the page and the status command ask.

Nothing here changes anything; :mod:`agent.detect.progress` does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from agent.detect import judge
from agent.detect.deadline import GapHistory, ProgressLimits
from agent.detect.looks import Looks
from agent.detect.sight import Sight
from agent.detect.sizes import RequestSizes
from agent.detect.stall import Point, Stall
from agent.detect.steps import Steps
from agent.detect.tasks import Tasks
from agent.model import ProgressState, ProgressSummary

__all__ = ["Standing"]


class Standing:
    """What is known of one engine's progress. All times are event time."""

    def __init__(self, limits: ProgressLimits | None = None) -> None:
        self.limits = limits or ProgressLimits()
        self.looks = Looks()
        self.phase = ""  # starting, ready, draining, stopped, sleeping: what the log said last
        self.phase_since: float | None = None
        self.stopping_since: float | None = None
        self.started_at: float | None = None
        self.restarts = 0
        self.last_progress: float | None = None
        self.waiting_since: float | None = None
        self.stall: Stall | None = None
        self.steps = Steps()
        self.tasks = Tasks()
        self._canary_failures = 0
        self._canary_since: float | None = None
        self._state: ProgressState = "unknown"
        self._state_since: float | None = None

    def deadline(self, *, evidence: bool = False) -> tuple[float, str]:
        """Seconds without progress that are called a stall now, and what set them."""
        return judge.deadline(self.looks, self.limits, evidence=evidence)

    def onset(self) -> float:
        """When the present stretch without progress began."""
        return judge.onset(self.looks, self.last_progress)

    def stalled_seconds(self) -> float:
        """Busy seconds without progress up to the last look."""
        return self.looks.clock.seconds

    def _name_state(self, timestamp: float) -> ProgressState:
        if self.phase == "stopped":
            return "down"
        if self.stall is not None:
            return "stalled"
        if self.phase == "starting":
            return "starting"
        if self.phase == "sleeping":
            return "idle"
        if not self.sight.sees(timestamp):
            return "unknown"
        if not self.looks.clock.busy:
            # No gauge tells what is in flight (old TensorRT-LLM has none): progress is all there is to see.
            if self.points and self.points[-1].in_flight is None:
                return "serving" if self.points[-1].progress else "unknown"
            return "idle"
        queued = self.waiting_since is not None and timestamp - self.waiting_since >= self.limits.saturated_after
        return "saturated" if queued else "serving"

    def state_at(self, timestamp: float) -> ProgressState:
        """The state as it would be named at ``timestamp``, for a view between events; changes nothing."""
        return self._name_state(timestamp)

    @property
    def state(self) -> ProgressState:
        return self._state

    @property
    def state_since(self) -> float | None:
        return self._state_since

    @property
    def points(self) -> deque[Point]:
        """The latest looks."""
        return self.looks.points

    @property
    def facts(self) -> dict[str, float]:
        """Limits that the start block or the page told."""
        return self.looks.facts

    @facts.setter
    def facts(self, values: dict[str, float]) -> None:
        self.looks.facts = values

    @property
    def history(self) -> GapHistory:
        """Gaps between signs of progress over the life of the server."""
        return self.looks.patience.history

    @property
    def sizes(self) -> RequestSizes:
        """How large requests are, and what is delivered at which concurrency."""
        return self.looks.sizes

    @property
    def sight(self) -> Sight:
        return self.looks.sight

    @property
    def last_metrics(self) -> float | None:
        return self.sight.last_metrics

    @property
    def last_stats(self) -> float | None:
        return self.sight.last_stats

    @property
    def failed_since(self) -> float | None:
        """Since when the page cannot be read, or cannot be trusted; :attr:`failure` says why."""
        return self.sight.failed_since

    @property
    def failure(self) -> str:
        return self.sight.failure

    @property
    def disagreement(self) -> str:
        """How the log's stats lines and the metrics page contradict each other; empty while they agree."""
        return self.looks.disagreement

    def sees(self, timestamp: float) -> bool:
        """Do we see the signals now? Blindness is never read as health, and never as a stall."""
        return self.sight.sees(timestamp)

    def summary(self, timestamp: float) -> ProgressSummary:
        """The numbers an alert prints: what is in flight, and what was done since the onset (or in the last minute)."""
        since = self.stall.since if self.stall is not None else self._state_since
        start = self.stall.since if self.stall is not None else timestamp - 60.0
        window = [point for point in self.points if point.timestamp > start]
        last = self.points[-1] if self.points else None
        finished = [point.finished for point in window if point.finished is not None]
        tokens = [point.generated for point in window if point.generated is not None]
        return ProgressSummary(
            state=self._state,
            since=since,
            requests_waiting=last.waiting if last else None,
            requests_running=last.running if last else None,
            finished_in_window=sum(finished) if finished else None,
            tokens_in_window=sum(tokens) if tokens else None,
        )

    # -- persistence -----------------------------------------------------------------------------------------

    _PLAIN: Final = (
        "phase", "phase_since", "stopping_since", "started_at", "restarts", "last_progress", "waiting_since",
        "_canary_failures", "_canary_since", "_state", "_state_since",
    )  # fmt: skip

    def snapshot(self) -> dict[str, Any]:
        """Everything needed to go on after a restart of the daemon, as plain JSON."""
        plain = {name: getattr(self, name) for name in self._PLAIN}
        stall = asdict(self.stall) if self.stall is not None else None
        parts = {name: getattr(self, name).snapshot() for name in ("looks", "steps", "tasks")}
        return {**plain, **parts, "stall": stall}

    def restore(self, data: Mapping[str, Any]) -> None:
        """Inverse of :meth:`snapshot`; unknown keys are ignored, missing ones keep their defaults."""
        for name in self._PLAIN:
            if name in data:
                setattr(self, name, data[name])
        self.looks.restore(data.get("looks", {}))
        self.steps.restore(data.get("steps", {}))
        self.tasks.restore(data.get("tasks", {}))
        stall = data.get("stall")
        self.stall = Stall(**stall) if stall else None
