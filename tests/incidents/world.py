"""A simulated inference server, second by second: what really happened, before any engine's words are put to it.

The model is that of every continuous-batching engine: a first-come queue, a pool of cache tokens, chunked prefill, one
token a step for each running request, preemption when the pool overflows. A `Fault` bends it from one second to
another. Nothing here knows how an engine logs or which metrics it has.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

Kind = Literal[
    "admission",  # nothing more is admitted; what runs finishes, gauges live
    "spin",  # the loop turns and schedules nothing; gauges live
    "evict",  # as spin, and what ran is back in the queue: running 0, cache empty
    "blocked",  # a step never returns: nothing moves, gauges keep their last values
    "dead",  # the loop's thread is gone: in flight failed, gauges keep their last values, later requests hang
    "refusing",  # the engine is gone and the front end says so: every request gets a 500
    "mute",  # the engine idles and answers reach nobody: running and waiting 0, connections stay open
    "livelock",  # preempted and recomputed for ever: cache use flaps, nothing is delivered
    "trickle",  # a few tokens, no completion, no admission
    "abort_all",  # every client disconnects at this second
    "abort_frozen",  # the same, and the gauges keep their last values until the next request
    "restart",  # down from `at` to `until`, then a new process with counters at zero
    "scrape_gap",  # the page cannot be read; the server works
    "exporter",  # the page repeats a copy of its past; the server works
    "asleep",  # the host stands still: no line, no page, no work
    "hold",  # asked to pause: requests stay where they are, nothing is computed
]


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong, from second `at` of the traffic up to `until`; what `level` means differs by kind."""

    kind: Kind
    at: float
    until: float = math.inf
    level: float = 0.0

    def active(self, second: int) -> bool:
        return self.at <= second < self.until


@dataclass(slots=True)
class Request:
    """One request: sizes in tokens, times in seconds since the traffic began."""

    number: int
    arrived: float
    prompt: int
    output: int
    prefilled: float = 0.0
    produced: float = 0.0
    reported: bool = False

    @property
    def held(self) -> float:
        """Tokens of cache it occupies."""
        return self.prefilled + self.produced if self.prefilled else 0.0


@dataclass(slots=True)
class Second:
    """The server at the end of one second; counters count since the process started."""

    t: float
    started: float
    up: bool = True
    readable: bool = True
    silent: bool = False
    running: int = 0
    waiting: int = 0
    held: float = 0.0
    stop: int = 0
    length: int = 0
    abort: int = 0
    error: int = 0
    """Failed inside the engine, in flight."""
    refused: int = 0
    """Answered with an error by the front end alone."""
    gen: int = 0
    gen_done: int = 0
    """As `gen`, counted when a request ends."""
    prompt: int = 0
    prompt_done: int = 0
    computed: int = 0
    pending: int = 0
    steps: int = 0
    """Forward passes that carried at least one token."""
    passes: int = 0
    """Turns of the loop, the empty ones too."""
    preempted: int = 0
    accepted: int = 0
    connections: int = 0
    scheduled: int = 0
    scraped: float = 0.0
    holding: bool = False

    @property
    def finished(self) -> int:
        """Completions that a client received whole."""
        return self.stop + self.length


@dataclass(frozen=True, slots=True)
class Event:
    """Something that an engine may log: `t` in epoch seconds."""

    t: float
    kind: Literal["accepted", "first", "finished", "aborted", "failed", "refused", "preempted", "down", "up"]
    request: Request | None = None


@dataclass(slots=True)
class History:
    """What happened, to be told by a voice."""

    start: float
    pool: int
    seconds: list[Second]
    pages: list[Second]
    """What the metrics page says at each second: the same, but for an exporter that repeats its past."""
    events: list[Event]
    faults: tuple[Fault, ...]

    @property
    def end(self) -> float:
        return self.seconds[-1].t

    def at(self, t: float) -> Second:
        """The second that ended at or before this time."""
        return self.seconds[self._index(t)]

    def page(self, t: float) -> Second:
        """What a scrape at this time reads."""
        return self.pages[self._index(t)]

    def _index(self, t: float) -> int:
        return max(0, min(len(self.seconds) - 1, int(t - self.start)))

    def onset(self, fault: int = 0) -> float:
        """When work last moved, or when there last was none, before or within a fault: where the stall truly begins."""
        chosen = self.faults[fault]
        if chosen.kind in ("livelock", "trickle"):
            return self.start + chosen.at
        last = self.start
        before = None
        for second in self.seconds:
            if second.t >= self.start + chosen.until:
                break
            mark = (second.gen, second.computed, second.finished)
            if mark != before or second.connections == 0:
                before, last = mark, second.t
        return last


@dataclass(slots=True)
class World:
    """The server and its load. `rate` is arrivals a second, a number or a function of the second."""

    seed: int
    start: float
    seconds: int
    rate: float | Callable[[int], float] = 1.0
    prompt: tuple[int, int] = (200, 1500)
    output: tuple[int, int] = (50, 400)
    max_running: int = 32
    pool: int = 200_000
    prefill_rate: float = 10_000.0
    decode_rate: float = 40.0
    decode_total: float = 1500.0
    step_rate: float = 30.0
    requests: Sequence[tuple[int, int, int]] = ()
    faults: Sequence[Fault] = ()
    abort_rate: float = 0.0
    patience: float = math.inf
    cut_off: int | None = None
    pace: tuple[int, int] | None = None
    """Seconds that one step takes, drawn between these, on a server so slow that nothing moves in between."""
    _waiting: deque[Request] = field(default_factory=deque, init=False)
    _running: list[Request] = field(default_factory=list, init=False)
    _inbox: list[Request] = field(default_factory=list, init=False)
    _lost: int = field(default=0, init=False)
    _events: list[Event] = field(default_factory=list, init=False)
    _number: int = field(default=0, init=False)
    _next_step: int = field(default=0, init=False)
    _last_step: int = field(default=0, init=False)

    def run(self) -> History:
        """Live through it once."""
        rng = random.Random(self.seed)
        explicit = sorted(self.requests)
        now = Second(t=self.start, started=self.start - 40.0)
        shown = now
        copy: Second | None = None
        out: list[Second] = []
        pages: list[Second] = []
        for second in range(self.seconds):
            t = self.start + second
            active = {fault.kind: fault for fault in self.faults if fault.active(second)}
            if "asleep" in active:
                out.append(replace(shown, t=t, readable=False, silent=True))
                pages.append(out[-1])
                continue
            if "restart" in active:
                now = self._down(now, t)
                shown, copy = now, None
                out.append(now)
                pages.append(now)
                continue
            if not now.up:
                now = Second(t=t, started=t)
                self._events.append(Event(t, "up"))
            arrivals = self._arrivals(rng, second, explicit)
            now = replace(now, t=t, scheduled=0, scraped=now.scraped + 1.0, holding="hold" in active)
            now.accepted += len(arrivals)
            frozen = self._step(rng, second, now, arrivals, active)
            now.connections = len(self._waiting) + len(self._running) + len(self._inbox) + self._lost
            gauges = shown if frozen else now
            shown = replace(
                now,
                running=gauges.running,
                waiting=gauges.waiting,
                held=gauges.held,
                pending=gauges.pending,
                readable="scrape_gap" not in active,
            )
            out.append(shown)
            copy = (copy or shown) if "exporter" in active else None
            pages.append(replace(copy, t=t) if copy else shown)
        return History(self.start, self.pool, out, pages, self._events, tuple(self.faults))

    def _arrivals(self, rng: random.Random, second: int, explicit: list[tuple[int, int, int]]) -> list[Request]:
        rate = self.rate(second) if callable(self.rate) else self.rate
        if self.cut_off is not None and second >= self.cut_off:
            rate = 0.0
        arrivals = [
            self._request(second, rng.randint(*self.prompt), rng.randint(*self.output))
            for _ in range(_poisson(rng, rate))
        ]
        while explicit and explicit[0][0] <= second:
            _, prompt, output = explicit.pop(0)
            arrivals.append(self._request(second, prompt, output))
        return arrivals

    def _request(self, second: int, prompt: int, output: int) -> Request:
        self._number += 1
        request = Request(self._number, second, prompt, output)
        self._events.append(Event(self.start + second, "accepted", request))
        return request

    def _down(self, now: Second, t: float) -> Second:
        if now.up:
            self._events.append(Event(t, "down"))
            self._waiting.clear()
            self._running.clear()
            self._inbox.clear()
            self._lost = 0
        return Second(t=t, started=t, up=False, readable=False)

    def _step(
        self, rng: random.Random, second: int, now: Second, arrivals: list[Request], active: dict[Kind, Fault]
    ) -> bool:
        """One second of work; true where the gauges keep what they showed before."""
        if "refusing" in active:
            self._fail_all(now)
            for request in arrivals:
                self._events.append(Event(now.t, "refused", request))
            now.refused += len(arrivals)
            return True
        if "dead" in active:
            self._fail_all(now)
            self._lost += len(arrivals)
            return True
        if "blocked" in active:
            self._inbox += arrivals
            return True
        if "mute" in active:
            self._lost += len(arrivals) + len(self._waiting) + len(self._running)
            self._waiting.clear()
            self._running.clear()
            self._gauge(now)
            return False
        if self.pace and second < self._next_step:
            self._inbox += arrivals
            return True
        seconds = 1
        if self.pace:
            seconds = max(1, second - self._last_step)
            self._last_step, self._next_step = second, second + rng.randint(*self.pace)
        self._waiting.extend(self._inbox)
        self._inbox.clear()
        self._waiting.extend(arrivals)
        for kind in ("abort_all", "abort_frozen"):
            if kind in active and (self._running or self._waiting) and second == int(active[kind].at):
                self._abort_all(now)
        if "abort_frozen" in active and not arrivals and not self._running and not self._waiting:
            return True
        self._leave(rng, second, now)
        if "spin" in active or "hold" in active:
            self._gauge(now)
            now.passes += int(self.step_rate) if "spin" in active else 0
            return False
        if "evict" in active:
            self._requeue(now)
            return False
        if "livelock" in active:
            self._livelock(rng, now, active["livelock"])
            return False
        if "trickle" in active:
            now.gen += int(active["trickle"].level * (second + 1)) - int(active["trickle"].level * second)
            self._gauge(now)
            return False
        if "admission" not in active:
            self._admit()
        self._work(now, seconds)
        self._gauge(now)
        return False

    def _admit(self) -> None:
        held = sum(request.held for request in self._running)
        claimed = held + sum(max(0.0, request.prompt - request.prefilled) for request in self._running)
        while self._waiting and len(self._running) < self.max_running:
            need = self._waiting[0].prompt + self._waiting[0].produced
            if claimed + need > self.pool:
                return
            claimed += need
            self._running.append(self._waiting.popleft())

    def _work(self, now: Second, seconds: int = 1) -> None:
        budget = self.prefill_rate * seconds
        decoding = [request for request in self._running if request.prefilled >= request.prompt]
        each = seconds * min(self.decode_rate, self.decode_total / max(1, len(decoding)))
        for request in self._running:
            if request.prefilled < request.prompt and budget > 0:
                chunk = min(budget, request.prompt - request.prefilled)
                budget -= chunk
                request.prefilled += chunk
                now.computed += int(chunk)
                if request.prefilled >= request.prompt and not request.reported:
                    request.reported = True
                    request.produced += 1
                    now.prompt += request.prompt
                    now.gen += 1
                    self._events.append(Event(now.t, "first", request))
        for request in decoding:
            was = request.produced
            request.produced = min(float(request.output), request.produced + each)
            now.gen += int(request.produced) - int(was)
            if request.produced >= request.output:
                self._running.remove(request)
                now.stop += request.number % 3 != 0
                now.length += request.number % 3 == 0
                now.gen_done += request.output
                now.prompt_done += request.prompt
                self._events.append(Event(now.t, "finished", request))
        if self._running:
            now.steps += max(1, int(self.step_rate)) if self.pace is None else 1
            now.passes += max(1, int(self.step_rate)) if self.pace is None else 1
            now.scheduled = len(self._running)
        while len(self._running) > 1 and sum(request.held for request in self._running) > self.pool:
            victim = self._running.pop()
            victim.prefilled = 0.0
            now.preempted += 1
            self._events.append(Event(now.t, "preempted", victim))
            self._waiting.appendleft(victim)

    def _leave(self, rng: random.Random, second: int, now: Second) -> None:
        gone = [
            request
            for request in (*self._waiting, *self._running)
            if second - request.arrived > self.patience or (self.abort_rate and rng.random() < self.abort_rate)
        ]
        for request in gone:
            (self._waiting if request in self._waiting else self._running).remove(request)
            now.abort += 1
            self._events.append(Event(now.t, "aborted", request))

    def _abort_all(self, now: Second) -> None:
        for request in (*self._running, *self._waiting):
            now.abort += 1
            self._events.append(Event(now.t, "aborted", request))
        self._running.clear()
        self._waiting.clear()

    def _fail_all(self, now: Second) -> None:
        for request in self._running:
            now.error += 1
            self._events.append(Event(now.t, "failed", request))
        self._lost += len(self._waiting) + len(self._inbox)
        self._running.clear()
        self._waiting.clear()
        self._inbox.clear()

    def _requeue(self, now: Second) -> None:
        while self._running:
            request = self._running.pop()
            request.prefilled = 0.0
            self._waiting.appendleft(request)
        self._gauge(now)
        now.passes += int(self.step_rate)

    def _livelock(self, rng: random.Random, now: Second, fault: Fault) -> None:
        now.preempted += max(1, int(fault.level))
        now.computed += int(self.prefill_rate)
        now.steps += int(self.step_rate)
        now.passes += int(self.step_rate)
        total = len(self._waiting) + len(self._running)
        now.running = min(total, rng.randint(1, 3))
        now.waiting = total - now.running
        now.held = self.pool * rng.uniform(0.90, 1.0)

    def _gauge(self, now: Second) -> None:
        now.running = len(self._running)
        now.waiting = len(self._waiting)
        now.held = sum(request.held for request in self._running)
        now.pending = int(
            sum(request.prompt for request in self._waiting)
            + sum(max(0.0, request.prompt - request.prefilled) for request in self._running)
        )


def _poisson(rng: random.Random, mean: float) -> int:
    """A Poisson draw (Knuth's product, which is quick for the small means of one second)."""
    if mean <= 0:
        return 0
    limit, count, product = math.exp(-mean), 0, rng.random()
    while product > limit:
        count += 1
        product *= rng.random()
    return count


def bursts(on: int, off: int, rate: float, quiet: float = 0.0) -> Callable[[int], float]:
    """Load that comes for `on` seconds and is gone for `off`."""
    return lambda second: rate if second % (on + off) < on else quiet


def steps(*parts: tuple[int, float]) -> Callable[[int], float]:
    """Load that changes: pairs of (from this second, rate)."""

    def rate(second: int) -> float:
        value = 0.0
        for begin, level in parts:
            if second >= begin:
                value = level
        return value

    return rate
