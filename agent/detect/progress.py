"""Is work being issued? One tracker per server, or per data-parallel replica behind one page.

A tracker sees samples of signals (from a metrics page, from the engine's own stats lines, from our canary) and
phases of the server's life (from log lines), and answers with a progress state and, when nothing moves, with a
:class:`Stall`. It keeps no clock: every answer is about the event time it is asked for.

What counts as progress, as work in flight, and why gauges cannot be trusted: docs/how-it-works.md.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, Final

from agent.detect.deadline import GapHistory, ProgressLimits
from agent.detect.stall import Point, Stall, StallKind, livelock, trickle
from agent.model import ProgressState, ProgressSummary, Sample

__all__ = ["ProgressTracker"]

_COUNTERS: Final = (
    "generation_tokens_total",
    "prompt_tokens_total",
    "requests_finished_total",
    "iterations_total",
    "training_step",
)
"""Counters whose growth is progress by itself."""
_RESTART_COUNTERS: Final = (
    *_COUNTERS,
    "requests_aborted_total",
    "request_errors_total",
    "requests_received_total",
    "preemptions_total",
)
_RATES: Final = ("generation_tokens_per_second", "prompt_tokens_per_second", "scheduled_tokens")
"""Values of a stats line that are progress when above zero."""
_RING: Final = 1500
"""Looks that are kept: about two hours at 5 s."""
_DEFAULT_INTERVAL: Final = 5.0


class ProgressTracker:
    """The progress of one engine. All times are event time; calls may repeat a time but never go back far."""

    def __init__(self, limits: ProgressLimits | None = None) -> None:
        self.limits = limits or ProgressLimits()
        self.history = GapHistory()
        self.points: deque[Point] = deque(maxlen=_RING)
        self.facts: dict[str, float] = {}
        self.phase: str = ""  # starting, ready, draining, stopped, sleeping: what the log said last
        self.phase_since: float | None = None
        self.started_at: float | None = None
        self.restarts = 0
        self.last_progress: float | None = None
        self.busy_since: float | None = None
        self.last_metrics: float | None = None
        self.last_stats: float | None = None
        self.failed_since: float | None = None
        self.failure = ""
        self.waiting_since: float | None = None
        self._interval = _DEFAULT_INTERVAL
        self._stalled_for = 0.0
        self._observed: float | None = None
        self._progressed_since_start = False
        self._progress_looks = 0
        self._values: dict[str, dict[str, float]] = {"metrics": {}, "log": {}, "canary": {}}
        self._gauge_key: tuple[float | None, float | None] = (None, None)
        self._aborted_at_gauge = 0.0
        self._aborted_last = 0.0
        self._log_aborted = 0.0
        self._zero_line = False
        self._canary_failed_since: float | None = None
        self._state: ProgressState = "unknown"
        self._state_since: float | None = None
        self.stall: Stall | None = None

    # -- what we are told ------------------------------------------------------------------------------------

    def observe(self, sample: Sample) -> None:
        """Take in one look at the signals."""
        if sample.source == "canary":
            self._observe_canary(sample)
        elif not sample.ok:
            if self.failed_since is None:
                self.failed_since = sample.timestamp
            self.failure = sample.error
        elif sample.source == "metrics":
            self._observe_metrics(sample)
        else:
            self._observe_stats(sample)
        self._judge(sample.timestamp)

    def fact(self, values: Mapping[str, float]) -> None:
        """Numbers that the start block printed."""
        self.facts.update(values)

    def mark(self, state: str, timestamp: float) -> None:
        """A line told of a phase (``starting``, ``loading``, ``ready``, ``draining``, ``stopped``, ``sleeping``,
        ``awake``) or of one event (``progress``, ``aborted``, ``received``)."""
        if state == "progress":
            self._progress(timestamp, seen=False)
        elif state == "aborted":
            self._log_aborted += 1
        elif state == "starting":
            if self.phase not in ("starting", ""):
                self._restart(timestamp)
            self._set_phase("starting", timestamp)
            self.started_at = timestamp
        elif state == "loading":
            if self.phase == "starting":
                self.phase_since = timestamp
        elif state in ("ready", "awake"):
            if self.phase == "starting":
                self._forget_stall()
            self._set_phase("ready", timestamp)
        elif state in ("draining", "stopped", "sleeping"):
            self._set_phase(state, timestamp)
        self._judge(timestamp)

    def _set_phase(self, phase: str, timestamp: float) -> None:
        if phase != self.phase:
            self.phase, self.phase_since = phase, timestamp

    def _observe_metrics(self, sample: Sample) -> None:
        now, before = sample.values, self._values["metrics"]
        last = self.last_metrics
        if last is not None and sample.timestamp <= last:
            return
        step = sample.timestamp - last if last is not None else 0.0
        if step > 0 and self.failed_since is None:
            # The pace of looks, slowly followed; a gap does not set it.
            self._interval += 0.2 * (min(step, 3 * self._interval) - self._interval)
        gap_limit = max(3 * self._interval, 15.0)
        self.failed_since, self.failure = None, ""
        self.last_metrics = sample.timestamp
        self._values["metrics"] = dict(now)
        self.fact({name: now[name] for name in ("max_batched_tokens", "kv_cache_capacity_tokens") if name in now})

        if before and self._restarted(before, now):
            self._restart(sample.timestamp)
            before = {}
        moved = any(_delta(before, now, name) > 0 for name in _COUNTERS) if before else False
        aborted, preempted = _delta(before, now, "requests_aborted_total"), _delta(before, now, "preemptions_total")
        if before and not moved:
            moved = self._kv_moved(before, now, aborted, preempted) or self._mark_moved(before, now)

        in_flight = self._in_flight(now, aborted_total=now.get("requests_aborted_total", self._log_aborted))
        self._account(sample.timestamp, in_flight, moved, gap_limit)
        if moved:
            self._progress(sample.timestamp)
        if now.get("sleeping", 0.0) > 0:
            self._set_phase("sleeping", sample.timestamp)
        elif self.phase == "sleeping" and "sleeping" in now:
            self._set_phase("ready", sample.timestamp)
        self._follow_queue(now.get("requests_waiting"), sample.timestamp)
        self.points.append(
            Point(
                timestamp=sample.timestamp,
                step=step,
                running=now.get("requests_running"),
                waiting=now.get("requests_waiting"),
                in_flight=in_flight,
                kv=now.get("kv_cache_usage_ratio"),
                finished=_delta(before, now, "requests_finished_total") if "requests_finished_total" in now else None,
                generated=_delta(before, now, "generation_tokens_total") if "generation_tokens_total" in now else None,
                prompted=_delta(before, now, "prompt_tokens_total") if "prompt_tokens_total" in now else None,
                preempted=preempted,
                aborted=aborted,
                progress=moved,
            )
        )

    def _observe_stats(self, sample: Sample) -> None:
        """A line in which the engine itself reports; its rates are over the interval before it."""
        now, before = sample.values, self._values["log"]
        if self.last_stats is not None and sample.timestamp < self.last_stats:
            return
        step = sample.timestamp - self.last_stats if self.last_stats is not None else 0.0
        moved = not sample.probe and (
            any(now.get(name, 0.0) > 0 for name in _RATES)
            or (bool(before) and any(_delta(before, now, name) > 0 for name in _COUNTERS))
            or (bool(before) and self._mark_moved(before, now))
        )
        self._values["log"] = {**before, **now}
        self.last_stats = sample.timestamp
        if self._metrics_fresh(sample.timestamp):
            # The page is the truth for what is in flight; the line only adds a sign of life.
            if moved:
                self._progress(sample.timestamp)
            return
        if before and not moved and not sample.probe:
            moved = self._kv_moved(before, now, 0.0, _delta(before, now, "preemptions_total"))
        in_flight = self._in_flight(now, aborted_total=self._log_aborted)
        busy = in_flight is not None and in_flight > 0
        self._zero_line = busy and not moved and any(name in now for name in _RATES)
        self._account(sample.timestamp, in_flight, moved, gap_limit=max(60.0, 3 * step if step < 60 else 60.0))
        if moved:
            self._progress(sample.timestamp)
        self._follow_queue(now.get("requests_waiting"), sample.timestamp)
        rate = now.get("generation_tokens_per_second")
        self.points.append(
            Point(
                timestamp=sample.timestamp,
                step=step,
                running=now.get("requests_running"),
                waiting=now.get("requests_waiting"),
                in_flight=in_flight,
                kv=now.get("kv_cache_usage_ratio"),
                finished=_delta(before, now, "requests_finished_total") if "requests_finished_total" in now else None,
                generated=rate * step if rate is not None else None,
                preempted=_delta(before, now, "preemptions_total"),
                progress=moved,
            )
        )

    def _observe_canary(self, sample: Sample) -> None:
        if sample.ok and sample.values.get("canary_success", 0.0) > 0:
            self._canary_failed_since = None
            self._progress(sample.timestamp)
        elif self._canary_failed_since is None:
            self._canary_failed_since = sample.timestamp

    # -- what it means ---------------------------------------------------------------------------------------

    @staticmethod
    def _restarted(before: Mapping[str, float], now: Mapping[str, float]) -> bool:
        start, start_before = now.get("process_start_time_seconds"), before.get("process_start_time_seconds")
        if start is not None and start_before is not None and abs(start - start_before) > 1.0:
            return True
        return any(now[name] < before[name] - 1e-9 for name in _RESTART_COUNTERS if name in now and name in before)

    @staticmethod
    def _kv_moved(before: Mapping[str, float], now: Mapping[str, float], aborted: float, preempted: float) -> bool:
        """vLLM's token counters stand still in a chunked prefill while the KV pool fills. But a pool that moves because
        requests are thrown out (preempted, given up by clients) says nothing about work done."""
        old, new = before.get("kv_cache_usage_ratio"), now.get("kv_cache_usage_ratio")
        runs = max(before.get("requests_running", 0.0), now.get("requests_running", 0.0)) > 0
        return (
            old is not None and new is not None and runs and abs(new - old) > 1e-9 and aborted <= 0 and preempted <= 0
        )

    @staticmethod
    def _mark_moved(before: Mapping[str, float], now: Mapping[str, float]) -> bool:
        old, new = before.get("progress_mark"), now.get("progress_mark")
        if old is not None and new is not None and new != old:
            return True
        old, new = before.get("prompt_tokens_pending"), now.get("prompt_tokens_pending")
        return old is not None and new is not None and new < old

    def _in_flight(self, values: Mapping[str, float], aborted_total: float) -> float | None:
        """Requests that somebody waits for: the gauges, less what was given up since the gauges last changed."""
        running, waiting = values.get("requests_running"), values.get("requests_waiting")
        if running is None and waiting is None:
            return values.get("http_requests_active")
        key = (running, waiting)
        if key != self._gauge_key:
            # The gauges changed since the look before; what was given up in the same interval may have come after that.
            first = self._gauge_key == (None, None)
            self._gauge_key, self._aborted_at_gauge = key, aborted_total if first else self._aborted_last
        self._aborted_last = aborted_total
        gone = max(0.0, aborted_total - self._aborted_at_gauge)
        work = max(0.0, (running or 0.0) + (waiting or 0.0) - gone)
        # Replies can be lost between engine and client: then only the front end knows of the request.
        return work if work > 0 else values.get("http_requests_active", 0.0)

    def _account(self, timestamp: float, in_flight: float | None, moved: bool, gap_limit: float) -> None:
        """Advance the busy clock over the time since the look before."""
        busy = in_flight is not None and in_flight > 0
        was_busy = self.busy_since is not None
        if not busy:
            self.busy_since = None
            self._stalled_for = 0.0
        elif not was_busy:
            self.busy_since = timestamp
            self._stalled_for = 0.0
        elif not moved and self._observed is not None:
            start = max(self._observed, self.last_progress or 0.0)
            self._stalled_for += min(max(0.0, timestamp - start), gap_limit)
        self._observed = timestamp

    def _progress(self, timestamp: float, *, seen: bool = True) -> None:
        if self.last_progress is not None and timestamp <= self.last_progress:
            return
        if self.busy_since is not None and self.last_progress is not None and self._progressed_since_start:
            gap = timestamp - max(self.last_progress, self.busy_since)
            # A gap over a hole in our sight is no gap of the server's; a stall that was called is not "normal" either.
            if gap > 0 and seen and self.stall is None:
                self.history.add(min(gap, self._stalled_for + 2 * self._interval))
        self.last_progress = timestamp
        self._progressed_since_start = True
        self._stalled_for = 0.0
        self._zero_line = False
        self._progress_looks += 1
        if self.phase == "starting":
            self._set_phase("ready", timestamp)

    def _restart(self, timestamp: float) -> None:
        self.restarts += 1
        self.started_at = timestamp
        self._progressed_since_start = False
        self.points.clear()
        self._values = {"metrics": self._values["metrics"], "log": {}, "canary": {}}
        self._log_aborted = 0.0
        self._forget_stall()
        if self.phase in ("draining", "stopped", "sleeping"):
            self._set_phase("ready", timestamp)

    def _forget_stall(self) -> None:
        self.busy_since = None
        self._stalled_for = 0.0
        self._zero_line = False
        self._canary_failed_since = None
        self.waiting_since = None
        self.stall = None
        self.last_progress = None
        self._gauge_key = (None, None)

    def _follow_queue(self, waiting: float | None, timestamp: float) -> None:
        if waiting is None or waiting <= 0:
            self.waiting_since = None
        elif self.waiting_since is None:
            self.waiting_since = timestamp

    def _metrics_fresh(self, timestamp: float) -> bool:
        return self.last_metrics is not None and timestamp - self.last_metrics <= max(4 * self._interval, 20.0)

    # -- verdict ---------------------------------------------------------------------------------------------

    def deadline(self, *, evidence: bool = False) -> tuple[float, str]:
        """Seconds without progress that are called a stall now, and what set them."""
        if evidence:
            return max(
                self.limits.with_evidence, 2 * self._interval if self.last_metrics is not None else 0.0
            ), "evidence"
        if not self._progressed_since_start:
            return self.limits.cold, "cold"
        return self.history.deadline(self.limits, self._interval)

    def advance(self, timestamp: float) -> None:
        """Event time has reached ``timestamp``: silence may have become evidence."""
        self._judge(timestamp)

    def _judge(self, timestamp: float) -> None:
        if self.stall is not None:
            if self._recovered():
                self.stall = None
        elif self.phase not in ("starting", "draining", "stopped", "sleeping"):
            hole = max(3 * self._interval, 15.0)
            self.stall = (
                self._full(timestamp)
                or livelock(self.points, timestamp, self.limits, hole)
                or trickle(self.points, timestamp, self.limits, hole)
                or self._silence(timestamp)
            )
        state = self._name_state(timestamp)
        if state != self._state:
            self._state, self._state_since = state, timestamp

    def _recovered(self) -> bool:
        """A stall is over when work is issued again; for a trickle or a livelock that means completions, and for the
        others any progress. A queue that is empty by live gauges is over too: nobody waits any more."""
        stall = self.stall
        assert stall is not None, "asked for the end of a stall that is none"
        if stall.kind in ("trickle", "livelock"):
            recent = [point for point in self.points if point.timestamp > stall.declared]
            return any((point.finished or 0.0) > 0 for point in recent) or self._emptied(stall)
        return (self.last_progress is not None and self.last_progress > stall.since) or self._emptied(stall)

    def _emptied(self, stall: Stall) -> bool:
        if not self.points or self.points[-1].timestamp <= stall.declared:
            return False
        point = self.points[-1]
        return (
            (point.running or 0.0) + (point.waiting or 0.0) == 0 and point.in_flight == 0 and point.running is not None
        )

    def onset(self) -> float:
        """When the present stretch without progress began."""
        return max(self.last_progress or 0.0, self.busy_since or 0.0)

    def stalled_seconds(self) -> float:
        """Busy seconds without progress up to the last look."""
        return self._stalled_for

    def _full(self, timestamp: float) -> Stall | None:
        if self.busy_since is None or self._observed != timestamp:
            return None  # only a look can say that nothing moved up to now
        wait, source = self.deadline()
        if self._stalled_for + 1e-6 < wait:
            return None
        kind: StallKind = "full"
        if self.points and (self.points[-1].running or 0) + (self.points[-1].waiting or 0) == 0:
            if self._stalled_for < self.limits.cold:
                return None
            kind = "lost_replies"
        return Stall(self.onset(), timestamp, kind, wait, source)

    def with_evidence(self, symptom_at: float) -> Stall | None:
        """A line named a stall at ``symptom_at``: is it confirmed by looks since then?"""
        if self.stall is not None:
            return self.stall
        if self.busy_since is None or self._observed is None or self.phase in ("starting", "stopped", "sleeping"):
            return None
        wait, source = self.deadline(evidence=True)
        if self.last_progress is not None and self.last_progress > symptom_at + self._interval:
            return None
        looks = [
            p for p in list(self.points)[-4:] if p.timestamp >= symptom_at and not p.progress and (p.in_flight or 0) > 0
        ]
        if self._stalled_for + 1e-6 >= wait and len(looks) >= 2:
            return Stall(self.onset(), self._observed, "full", wait, source)
        return None

    def _silence(self, timestamp: float) -> Stall | None:
        """No metrics; the engine's last word was "no tokens, work waits", and it has said nothing else since."""
        if (
            self._zero_line
            and self.last_metrics is None
            and self.last_stats is not None
            and self.busy_since is not None
        ):
            due = self.last_stats + max(0.0, self.limits.silence - self._stalled_for)
            if timestamp >= due:
                return Stall(self.onset(), due, "silence", self.limits.silence, "silence", certain=False)
        if self._canary_failed_since is not None and not self._metrics_fresh(timestamp):
            return Stall(self._canary_failed_since, timestamp, "canary", 0.0, "canary", certain=False)
        return None

    def next_deadline(self) -> float | None:
        """The event time at which silence alone would change the verdict, if it ever does."""
        if self._zero_line and self.last_metrics is None and self.stall is None and self.last_stats is not None:
            return self.last_stats + max(0.0, self.limits.silence - self._stalled_for)
        return None

    def _name_state(self, timestamp: float) -> ProgressState:
        if self.phase == "stopped":
            return "down"
        if self.stall is not None:
            return "stalled"
        if self.phase == "starting":
            return "starting"
        if self.phase == "sleeping":
            return "idle"
        if not self._sees(timestamp):
            return "unknown"
        if self.busy_since is None:
            # No gauge tells what is in flight (old TensorRT-LLM has none): progress is all there is to see.
            if self.points and self.points[-1].in_flight is None:
                return "serving" if self.points[-1].progress else "unknown"
            return "idle"
        queued = self.waiting_since is not None and timestamp - self.waiting_since >= self.limits.saturated_after
        return "saturated" if queued else "serving"

    def state_at(self, timestamp: float) -> ProgressState:
        """The state as it would be named at ``timestamp``, for a view between events; changes nothing."""
        return self._name_state(timestamp)

    def _sees(self, timestamp: float) -> bool:
        if self.failed_since is not None and timestamp - (self.last_metrics or 0.0) > max(4 * self._interval, 20.0):
            return False
        if self._metrics_fresh(timestamp):
            return True
        return self.last_metrics is None and self.last_stats is not None and timestamp - self.last_stats <= 90.0

    @property
    def ever_seen(self) -> bool:
        """Did any signal of this engine ever reach us?"""
        return self.last_metrics is not None or self.last_stats is not None

    def sees(self, timestamp: float) -> bool:
        """Do we see the signals now? Blindness is never read as health, and never as a stall."""
        return self._sees(timestamp)

    def progress_after(self, timestamp: float) -> int:
        """How many looks showed progress after ``timestamp``."""
        seen = sum(1 for point in self.points if point.progress and point.timestamp > timestamp + 1e-9)
        later = self.last_progress is not None and self.last_progress > timestamp
        return max(seen, 1 if later else 0)

    @property
    def state(self) -> ProgressState:
        return self._state

    @property
    def state_since(self) -> float | None:
        return self._state_since

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
        "phase", "phase_since", "started_at", "restarts", "last_progress", "busy_since", "last_metrics", "last_stats",
        "failed_since", "failure", "waiting_since", "_interval", "_stalled_for", "_observed", "_progressed_since_start",
        "_progress_looks", "_aborted_at_gauge", "_aborted_last", "_log_aborted", "_zero_line", "_canary_failed_since",
        "_state", "_state_since",
    )  # fmt: skip

    def snapshot(self) -> dict[str, Any]:
        """Everything needed to go on after a restart of the daemon, as plain JSON."""
        return {
            **{name: getattr(self, name) for name in self._PLAIN},
            "values": self._values,
            "gauge_key": list(self._gauge_key),
            "facts": self.facts,
            "history": self.history.snapshot(),
            "points": [[getattr(point, f.name) for f in fields(Point)] for point in list(self.points)[-360:]],
            "stall": asdict(self.stall) if self.stall is not None else None,
        }

    def restore(self, data: Mapping[str, Any]) -> None:
        """Inverse of :meth:`snapshot`; unknown keys are ignored, missing ones keep their defaults."""
        for name in self._PLAIN:
            if name in data:
                setattr(self, name, data[name])
        self._values.update(data.get("values", {}))
        key = data.get("gauge_key", [None, None])
        self._gauge_key = (key[0], key[1])
        self.facts.update(data.get("facts", {}))
        self.history.restore(data.get("history", {}))
        self.points.extend(Point(*values) for values in data.get("points", []))
        stall = data.get("stall")
        self.stall = Stall(**stall) if stall else None


def _delta(before: Mapping[str, float], now: Mapping[str, float], name: str) -> float:
    """Growth of a counter between two looks; a counter that is new to us has not grown."""
    old, new = before.get(name), now.get(name)
    if old is None or new is None or math.isnan(new) or math.isnan(old):
        return 0.0
    return max(0.0, new - old)
