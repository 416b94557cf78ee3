"""What the signals showed so far: from samples of either source to points, clocks and habits of one engine.

Two sources may speak at once. The metrics page is the truth while it is fresh; the log's stats lines then only count
where they contradict it. Nothing here decides: :mod:`agent.detect.progress` does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from agent.detect.busy import BusyClock, DripClock
from agent.detect.change import Change, SignalMemory, finite
from agent.detect.patience import Patience
from agent.detect.sight import Sight
from agent.detect.sizes import RequestSizes
from agent.detect.stall import CRAWL, Point, merged, speed
from agent.detect.usual import Usual
from agent.detect.work import WorkInFlight
from agent.model import Sample

__all__ = ["ECHO", "Look", "Looks", "tells_of_tokens"]

_RATES: Final = ("generation_tokens_per_second", "prompt_tokens_per_second", "scheduled_tokens")
"""Values of a stats line that are progress when above zero."""
_LIMITS: Final = ("max_batched_tokens", "kv_cache_capacity_tokens", "max_model_len_tokens", "max_running_requests")
"""Limits that some engines put on their page."""
ECHO: Final = 30.0
"""Progress up to so long after a phase began may be from before it: a look shows the past, and a line without a stamp
of its own bears that of the line before."""
_RING: Final = 300
"""Looks that are kept: 25 minutes at 5 s."""
_MERGE: Final = 1.0
"""Stats lines closer together than this are one point."""
_USUAL_LOOKS: Final = 24.0
"""Looks from which a usual speed is known: two busy minutes."""
_CLOCK_SET: Final = 60.0
"""A stamp so far back is no late look: the clock was set."""


@dataclass(frozen=True, slots=True)
class Look:
    """What one look came to.

    ``gap``: a busy gap between signs of progress that ended here, under at least ``lowest`` requests, with ``turned``
    looks that saw the queue grow. ``shift``: the clock of the signals was set by so many seconds. ``sleeping`` is None
    where unknown.
    """

    moved: bool
    page: bool = False
    gap: float | None = None
    lowest: float = 1.0
    turned: int = 0
    restarted: bool = False
    shift: float = 0.0
    sleeping: bool | None = None


def tells_of_tokens(sample: Sample) -> bool:
    """Does this stats line report tokens computed since the one before?"""
    return not sample.probe and any(sample.values.get(name, 0.0) > 0 for name in _RATES)


class Looks:
    """The evidence of one engine's signals."""

    def __init__(self) -> None:
        self.points: deque[Point] = deque(maxlen=_RING)
        self.facts: dict[str, float] = {}
        self.sight = Sight()
        self.work = WorkInFlight()
        self.clock = BusyClock()
        self.drip = DripClock()
        self.patience = Patience()
        self.sizes = RequestSizes()
        self.usual = Usual()
        """Tokens a second for each running request."""
        self.last: float | None = None
        """Time of the last look that a verdict may rest on."""
        self.woke: float | None = None
        """When a sleep ended after which nothing has moved."""
        self.turns = 0
        """Looks since the last progress that saw the queue grow."""
        self.owed = False
        """The log's last stats line left work undone."""
        self.transfer = False
        self.vanished = False
        self.disagreement = ""
        self._page, self._lines = SignalMemory(), SignalMemory()
        self._line_times: dict[str, float] = {}

    @property
    def interval(self) -> float:
        """Seconds between two looks."""
        return (self.sight.metrics if self.sight.last_metrics is not None else self.sight.lines).interval

    @property
    def hole(self) -> float:
        """Seconds between two looks past which we were blind in between."""
        return (self.sight.metrics if self.sight.last_metrics is not None else self.sight.lines).hole

    @property
    def usual_speed(self) -> float:
        """Tokens a second for each running request; 0 while too little is known."""
        return self.usual.median() if self.usual.count >= _USUAL_LOOKS else 0.0

    def page(self, sample: Sample) -> Look | None:
        """The metrics page was read. None when it tells nothing."""
        at, now, last = sample.timestamp, finite(sample.values), self.sight.last_metrics
        if sample.repeats > 0 and sample.clocked:
            self.sight.repeat(at, sample.repeats)
            return None
        shift = 0.0
        if last is not None and at <= last:
            if last - at <= _CLOCK_SET:
                return None  # late, and overtaken
            shift = at - last
            self._shift(shift)
        if self._page.lost_gauges(now):
            self.sight.fail(at, "partial: the gauges of requests in flight are gone from the page")
            return None
        change = self._page.compare(now)
        if change.alternates:
            self.sight.fail(at, "several processes answer at this address in turn, watch each by itself")
            return None
        if change.restarted:
            self.restart()
        step, seen = self.sight.see(at)
        self.facts.update({name: now[name] for name in _LIMITS if name in now})
        load = self.work.look(now, change)
        if not self._page.sees_progress(now):
            load = None  # work without any sign of what comes of it cannot be judged
        self.vanished = bool(change.gone)
        moved = change.counted or change.kv_moved or change.marked
        if moved:
            self.disagreement = ""
        generated = change.of("generation_tokens_total") if "generation_tokens_total" in now else None
        look = self._take(at, step, now, change, load, generated, seen=seen and not shift, moved=moved)
        asleep = now["sleeping"] > 0 if "sleeping" in now else None
        return replace(look, page=True, restarted=change.restarted, shift=shift, sleeping=asleep)

    def line(self, sample: Sample) -> Look | None:
        """A line in which the engine itself reports; its rates are over the interval before it. None when the page has
        said it all."""
        now, at = finite(sample.values), sample.timestamp
        last, since = self.sight.last_stats, self._line_times.get(sample.origin)
        if last is not None and at < last - _CLOCK_SET:
            last = since = None  # the log's clock was set
        step = max(0.0, at - last) if last is not None else 0.0
        seen = 0 < step <= self.sight.lines.hole
        covers = min(max(0.0, at - since), self.sight.lines.hole) if since is not None else step
        change = self._lines.compare(now)
        self.sight.last_stats = self._line_times[sample.origin] = at
        if seen:
            self.sight.lines.follow(step)
        rates = any(now.get(name, 0.0) > 0 for name in _RATES)
        moved = not sample.probe and (rates or change.counted or change.marked or change.kv_moved)
        if self.sight.fresh(at):
            return self._compare(at, covers, moved=moved)
        load = self.work.look(now, change)
        if load is None:
            # What was scheduled is in flight; a loop that turns and schedules nothing turns because somebody waits.
            scheduled = now.get("scheduled_requests", now.get("scheduled_tokens"))
            load = max(1.0, scheduled) if scheduled is not None and (scheduled > 0 or sample.probe) else None
        rate = now.get("generation_tokens_per_second")
        generated = rate * covers if rate is not None else None
        look = self._take(at, step, now, change, load, generated, seen=seen, moved=moved)
        idle_handed = (load or 0.0) > 0 and not moved and any(name in now for name in _RATES)
        self.owed = idle_handed or now.get("requests_waiting", 0.0) > 0
        return look

    def _compare(self, at: float, covers: float, *, moved: bool) -> Look | None:
        """Page and log both speak: a line counts where it tells of tokens in a time in which the page saw none."""
        if not moved or self.clock.seconds <= 0 or self.clock.since is None:
            return None
        if not self.disagreement and at - covers <= self.clock.since + self.sight.metrics.interval:
            return None  # what it tells of, the page saw too
        self.disagreement = "the log's stats lines show tokens, the metrics page shows none"
        self.served()
        return Look(moved=True)

    def _take(
        self,
        at: float,
        step: float,
        now: Mapping[str, float],
        change: Change,
        load: float | None,
        generated: float | None,
        *,
        seen: bool,
        moved: bool,
    ) -> Look:
        """One look, from either source: the clocks run on, habits are learned, the point is kept."""
        lowest = self.clock.lowest or load or 1.0
        gap = self.clock.look(at, step, load or 0.0, seen=seen, moved=moved)
        running, waiting = now.get("requests_running"), now.get("requests_waiting", 0.0)
        grew = bool(self.points) and waiting > (self.points[-1].waiting or 0.0)
        turned, self.turns = self.turns, 0 if moved or not load else self.turns + grew
        deferred = now.get("requests_deferred", 0.0)
        self.transfer = deferred > 0 and not running and waiting <= deferred
        point = Point(
            timestamp=at,
            step=step,
            running=running,
            waiting=now.get("requests_waiting"),
            in_flight=load,
            kv=now.get("kv_cache_usage_ratio"),
            finished=change.of("requests_finished_total") if "requests_finished_total" in now else None,
            generated=generated,
            prompted=change.of("prompt_tokens_total") if "prompt_tokens_total" in now else None,
            preempted=change.of("preemptions_total"),
            aborted=change.of("requests_aborted_total"),
            progress=moved,
        )
        pace = speed(point)
        crawls = pace is not None and pace < CRAWL * self.usual_speed and point.finished == 0 and bool(load)
        self.drip.look(
            at,
            step,
            seen=seen,
            crawls=crawls,
            tokens=generated or 0.0,
            waiting=waiting,
            aborted=point.aborted,
            pool=point.kv,
        )
        if moved:
            self.woke = None if self.woke is None or at > self.woke + ECHO else self.woke
            self.patience.look(point)
        if seen:
            self.sizes.look(point)
            if pace and running and not crawls:
                self.usual.add(pace)
        self.last = at
        self._keep(point)
        return Look(moved=moved, gap=gap, lowest=lowest, turned=turned)

    def _keep(self, point: Point) -> None:
        last = self.points[-1] if self.points else None
        if last is None or last.step + point.step >= _MERGE:
            self.points.append(point)
        else:
            self.points[-1] = merged(last, point)

    def served(self) -> None:
        """Something else than the page tells of work done."""
        self.clock.done()
        self.turns = 0
        self.owed, self.woke = False, None

    def explained(self, *, woke: float | None = None) -> None:
        """The silence up to here has a reason: it is owed to nobody. ``woke``: a sleep is said to end then, but it may
        go on for a while, as lines without a stamp of their own bear that of the line before."""
        self.woke = woke
        self.clock.forget()
        self.drip.forget()
        self.turns = 0
        self.owed = False

    def restart(self) -> None:
        """The process is a new one; what the server is used to is kept."""
        self.points.clear()
        self._lines.forget()
        self._line_times.clear()
        self.work.forget()
        self.patience.restarted()
        self.disagreement = ""
        self.explained()

    def _shift(self, seconds: float) -> None:
        for part in (self.sight, self.clock, self.drip):
            part.shift(seconds)
        self.woke = None if self.woke is None else self.woke + seconds
        moved = [replace(point, timestamp=point.timestamp + seconds) for point in self.points]
        self.points.clear()
        self.points.extend(moved)

    # -- persistence -----------------------------------------------------------------------------------------

    _PLAIN: Final = ("last", "woke", "turns", "owed", "transfer", "vanished", "disagreement")
    _PARTS: Final = ("sight", "work", "clock", "drip", "patience", "sizes", "usual", "_page", "_lines")

    def snapshot(self) -> dict[str, Any]:
        """Everything needed to go on, as plain JSON."""
        return {
            **{name: getattr(self, name) for name in self._PLAIN},
            **{name: getattr(self, name).snapshot() for name in self._PARTS},
            "facts": dict(self.facts),
            "line_times": dict(self._line_times),
            "points": [[getattr(point, f.name) for f in fields(Point)] for point in self.points],
        }

    def restore(self, data: Mapping[str, Any]) -> None:
        """Inverse of :meth:`snapshot`; what is missing keeps its default."""
        for name in self._PLAIN:
            if name in data:
                setattr(self, name, data[name])
        for name in self._PARTS:
            if name in data:
                getattr(self, name).restore(data[name])
        self.facts.update(data.get("facts", {}))
        self._line_times.update(data.get("line_times", {}))
        self.points.extend(Point(*values) for values in data.get("points", ()))
