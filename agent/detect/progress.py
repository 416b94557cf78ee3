"""Is work being issued? One tracker per server, or per data-parallel replica behind one page.

A tracker sees samples of signals (from a metrics page, from the engine's own stats lines, from our canary) and
phases of the server's life (from log lines), and answers with a progress state and, when nothing moves, with a
:class:`Stall`. It keeps no clock: every answer is about the event time it is asked for.

What counts as progress, as work in flight, and why gauges cannot be trusted: docs/how-it-works.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from agent.detect import judge
from agent.detect.looks import ECHO, Look, tells_of_tokens
from agent.detect.stall import Stall
from agent.detect.standing import Standing
from agent.model import Sample

__all__ = ["ProgressTracker"]

_QUIET: Final = frozenset({"starting", "draining", "stopped", "sleeping"})
"""Phases in which silence is explained."""
_LEAVING: Final = frozenset({"draining", "stopped"})
"""Phases after a request to stop."""
_SAME_START: Final = 1800.0
"""The page tells of a restart up to so long after the log did: it is the same one."""
_DRAINED: Final = 600.0
"""A server that still works so long after it was told to drain does not drain."""
_CANARIES: Final = 2
"""Canaries in a row without an answer that speak of a stall: one may be bad luck."""


class ProgressTracker(Standing):
    """The progress of one engine. All times are event time; calls may repeat a time."""

    # -- what we are told ------------------------------------------------------------------------------------

    def observe(self, sample: Sample) -> None:
        """Take in one look at the signals."""
        look = None
        if sample.source == "canary":
            self._hear_canary(sample)
        elif not sample.ok:
            self.sight.fail(sample.timestamp, sample.error)
        else:
            look = self.looks.page(sample) if sample.source == "metrics" else self.looks.line(sample)
            if sample.source == "log" and ("training_step" in sample.values or self.steps.last is not None):
                self.steps.report(sample.timestamp)
            if sample.source == "log" and self.tasks.last is not None:
                self.tasks.hear(sample.timestamp)
        if look is not None:
            self._follow(look, sample.timestamp)
        self._judge(sample.timestamp, looked=self.looks.last == sample.timestamp)

    def bridge(self, sample: Sample) -> None:
        """A stats line is about to be observed. Tokens before a silence of the log and tokens in the line that ends it:
        the clock was set, the host stood still or lines were lost, and the server worked on."""
        last = self.points[-1] if self.points else None
        if last is not None and last.progress and self.stall is None and tells_of_tokens(sample):
            self.looks.owed = False

    def advance(self, timestamp: float) -> None:
        """Event time has reached ``timestamp``: silence may have become evidence."""
        self._judge(timestamp)

    def ended(self) -> None:
        """The input ends here: silence after it says nothing."""
        self.looks.owed = False
        self.steps.forget()
        self.tasks.forget()

    def fact(self, values: Mapping[str, float]) -> None:
        """Numbers that the start block printed."""
        self.looks.facts.update(values)

    def mark(self, state: str, timestamp: float, task: str = "") -> None:
        """A line told of a phase (``starting``, ``loading``, ``ready``, ``draining``, ``stopped``, ``sleeping``,
        ``awake``) or of one event (``begun``, ``progress``, ``aborted``), of ``task`` where it names one."""
        if state == "begun":
            self.tasks.begin(task, timestamp)
        elif state == "progress":
            self.tasks.end(task, timestamp)
            self._alive(timestamp)
        elif state == "aborted":
            self.tasks.end(task, timestamp)
            self.looks.work.logged_aborts += 1
        elif state == "starting":
            if self.phase not in ("starting", ""):
                self.looks.restart()
                self._restarted(timestamp)
            self._set_phase("starting", timestamp)
            self.started_at = timestamp
        elif state == "loading":
            if self.phase == "starting":
                self.phase_since = timestamp
        elif state in ("ready", "awake"):
            self._set_phase("ready", timestamp)
        elif state in ("draining", "stopped", "sleeping"):
            self._set_phase(state, timestamp)
        self._judge(timestamp)

    def _set_phase(self, phase: str, timestamp: float) -> None:
        if phase == self.phase:
            return
        if phase == "sleeping" or self.phase in _QUIET:
            self.looks.explained(woke=timestamp if self.phase == "sleeping" else None)
            self.stall = None
        if phase in ("starting", "stopped"):
            self.steps.forget()
            self.tasks.forget()
        if phase not in _LEAVING:
            self.stopping_since = None
        elif self.phase not in _LEAVING:
            self.stopping_since = timestamp
        self.phase, self.phase_since = phase, timestamp

    def _follow(self, look: Look, timestamp: float) -> None:
        if look.shift:
            self._shift(look.shift)
        if look.restarted:
            self._restarted(timestamp)
        if look.gap is not None:
            self._learn(look.gap, look)
        if look.moved:
            self._progressed(timestamp)
        if look.sleeping:
            self._set_phase("sleeping", timestamp)
        elif self.phase == "sleeping" and look.sleeping is False:
            self._set_phase("ready", timestamp)
        if self.phase == "stopped" and look.page and timestamp - (self.phase_since or 0.0) > ECHO:
            # It answers: that line came later than its stamp says, or was not its. The silence is not explained by it.
            self.phase, self.phase_since, self.stopping_since = "ready", timestamp, None
        if self.looks.last == timestamp:
            waiting = self.points[-1].waiting
            self.waiting_since = (self.waiting_since or timestamp) if waiting else None

    def _hear_canary(self, sample: Sample) -> None:
        if not sample.ok:
            return  # it could not be asked: that is blindness
        if sample.values.get("canary_success", 0.0) > 0:
            self._alive(sample.timestamp)
        else:
            self._canary_failures += 1
            self._canary_since = sample.timestamp if self._canary_since is None else self._canary_since

    def _learn(self, gap: float, look: Look) -> None:
        if self.stall is None:
            self.looks.patience.learn(gap, look.lowest, turned=look.turned >= judge.TURNS)
        elif self.stall.kind == "full" and self.stall.deadline_source != "evidence":
            since = self.stall.since
            if not any(point.aborted for point in self.points if point.timestamp > since):
                self.looks.patience.forgive(gap, look.lowest, self.limits)

    def _alive(self, timestamp: float) -> None:
        """Something else than a look tells of a completion."""
        self.looks.served()
        self._progressed(timestamp)

    def _progressed(self, timestamp: float) -> None:
        self.last_progress = max(timestamp, self.last_progress or timestamp)
        self._canary_failures, self._canary_since = 0, None
        late = timestamp - (self.phase_since or 0.0)
        over = self.phase in ("starting", "sleeping", "stopped") and late > max(ECHO, 2 * self.looks.interval)
        if over or (self.phase == "draining" and late > _DRAINED):
            self._set_phase("ready", timestamp)

    def _restarted(self, timestamp: float) -> None:
        told = self.started_at is not None and timestamp - self.started_at < _SAME_START
        if not told or self.last_progress is not None or self.stall is not None:
            self.restarts += 1
            self.started_at = timestamp
        self._canary_failures, self._canary_since = 0, None
        self.tasks.forget()
        self.last_progress = self.waiting_since = self.stall = None
        if self.phase in ("draining", "stopped", "sleeping"):
            self._set_phase("ready", timestamp)

    def _shift(self, seconds: float) -> None:
        """The clock of the signals was set: the past is told in the new time."""
        for name in (
            "phase_since",
            "stopping_since",
            "started_at",
            "last_progress",
            "waiting_since",
            "_canary_since",
            "_state_since",
        ):
            value = getattr(self, name)
            if value is not None:
                setattr(self, name, value + seconds)
        self.steps.shift(seconds)
        self.tasks.shift(seconds)
        if self.stall is not None:
            stall = self.stall
            self.stall = replace(stall, since=stall.since + seconds, declared=stall.declared + seconds)

    # -- verdict ---------------------------------------------------------------------------------------------

    def _judge(self, timestamp: float, *, looked: bool = False) -> None:
        if self.stall is not None:
            if judge.recovered(self.stall, self.looks, self.last_progress):
                self.stall = None
        elif self.phase not in _QUIET:
            if looked:
                self.stall = judge.full(self.looks, self.limits, self.last_progress) or judge.moving(
                    self.looks, self.limits
                )
            if self.stall is None:
                self.stall = self._silence(timestamp)
        state = self._name_state(timestamp)
        if state != self._state:
            self._state, self._state_since = state, timestamp

    def with_evidence(self, symptom_at: float) -> Stall | None:
        """A line named a stall at ``symptom_at``: is it confirmed by looks since then?"""
        if self.stall is not None:
            return self.stall
        if self.phase in ("starting", "stopped", "sleeping"):
            return None
        return judge.evident(self.looks, self.limits, self.last_progress, symptom_at)

    def _silence(self, timestamp: float) -> Stall | None:
        """No metrics; the engine's last word was "work waits", and it has said nothing else since."""
        due = self.next_deadline()
        if due is not None and timestamp >= due:
            if due == self.steps.overdue:
                return Stall(due - self.steps.patience, due, "silence", self.steps.patience, "silence", certain=False)
            if due == self._tasks_overdue() and self.tasks.last is not None:
                wait = self.tasks.patience(self.limits.silence)
                since = max(self.tasks.last, self.last_progress or 0.0)
                return Stall(since, due, "silence", wait, "silence", certain=False)
            return Stall(self.onset(), due, "silence", self._silence_limit(), "silence", certain=False)
        if self._canary_failures >= _CANARIES and self._canary_since is not None:
            return Stall(self._canary_since, timestamp, "canary", 0.0, "canary", certain=False)
        return None

    def next_deadline(self) -> float | None:
        """The event time at which silence alone would change the verdict, if it ever does."""
        if self.stall is not None:
            return None
        if self.steps.overdue is not None and self.phase not in _QUIET:
            return self.steps.overdue
        tasks = self._tasks_overdue()
        if tasks is not None:
            return tasks
        if not self.looks.owed or self.last_metrics is not None or self.last_stats is None:
            return None
        return self.last_stats + max(0.0, self._silence_limit() - self.looks.clock.seconds)

    def _tasks_overdue(self) -> float | None:
        """When a word of the tasks in work is overdue, and the page does not tell of them either."""
        due = self.tasks.overdue(self.limits.silence)
        if due is None or self.phase in _QUIET:
            return None
        blind = self.last_metrics + self.sight.freshness + 1.0 if self.last_metrics is not None else due
        return max(due, blind)

    def _silence_limit(self) -> float:
        """A long prefill may be silent for minutes; where nothing runs, or the lines told of tokens, there is none."""
        last = self.points[-1] if self.points else None
        prefill = last is not None and not last.progress and last.running != 0
        return self.limits.silence if prefill else self.limits.cold
