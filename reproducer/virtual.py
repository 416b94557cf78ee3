"""The whole server in virtual time: the real loop, scheduler and voice, with a clock that jumps.

A model would decide how long a step takes and which tokens come out; here both are given, so ten minutes of a server's
life take a second or two and the same seed always gives the same log and the same metrics. Nothing else is replaced:
the loop that runs is :class:`reproducer.engine.Engine`'s, its error path included.
"""

from __future__ import annotations

import heapq
import io
import random
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, Final

from .batch import Batch, SampleState
from .config import Config
from .engine import AfterCrash, Engine, EngineDown, RequestFailed, Ticket
from .openmetrics import Recording
from .scheduler import Scheduler
from .simulate import Guess
from .users import Ask, Users
from .voice import VOICES
from .voice.base import Voice

__all__ = ["EPOCH", "World"]

EPOCH: Final = 1_795_165_200.0  # 2026-11-20T09:00:00Z
RETRY_SECONDS: Final = 1.0  # a client whose request failed tries again after this


class _Over(BaseException):
    """The end of the world is reached inside the loop; no handler of the engine may catch it."""


@dataclass
class _Client:
    ticket: Ticket
    asks: Iterator[Ask] | None
    gives_up: float


@dataclass
class _Inbox:
    """A queue whose waiting is the passing of virtual time."""

    world: World
    items: deque[Ticket | None] = field(default_factory=deque)

    def put(self, item: Ticket | None) -> None:
        self.items.append(item)

    def get(self) -> Ticket | None:
        while not self.items:
            self.world.skip()
        return self.items.popleft()

    def empty(self) -> bool:
        return not self.items

    def qsize(self) -> int:
        return len(self.items)


class World:
    """One server, its clients and its scraper. Schedule things with :meth:`at`, then :meth:`run`.

    ``step_seconds`` and ``token_seconds`` say how long a step takes. Seconds given to methods count from the start.
    """

    def __init__(
        self,
        config: Config,
        *,
        voice: str | None = None,
        after_crash: AfterCrash | None = None,
        step_seconds: float = 0.02,
        token_seconds: float = 0.0001,
        scrape_interval: float = 5.0,
        start_seconds: float = 20.0,
        print_iterations: bool = False,
        acceptance: float = 0.7,
        seed: int = 0,
    ) -> None:
        self.config, self.acceptance, self.seed = config, acceptance, seed
        self.step_seconds, self.token_seconds = step_seconds, token_seconds
        self.now = EPOCH
        self.end = EPOCH
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.order = count()
        self.ports = count(40000)
        self.clients: list[_Client] = []
        self.recording = Recording()
        self.blind = False  # scrapes fail
        self.doomed = False  # the loop is to end without a word, as a killed engine process does
        self.listening = False
        self.died: float | None = None
        self.completions: list[float] = []
        self.last_step = EPOCH
        self.text = io.StringIO()
        self.voice: Voice = VOICES[voice or config.rules.voice](
            self.text, clock=self.clock, calendar=time.gmtime, print_iterations=print_iterations
        )
        self.voice.pid = 100
        self.after_crash = after_crash
        self.engine = self._engine()
        self.voice.loading(self.engine)
        self.at(start_seconds, self._listen)
        self._every(scrape_interval, self._scrape)
        if self.voice.stats_interval:
            self._every(self.voice.stats_interval, self._timer)

    def clock(self) -> float:
        return self.now

    @property
    def elapsed(self) -> float:
        return self.now - EPOCH

    def at(self, seconds: float, act: Callable[[], None]) -> None:
        """Do something ``seconds`` after the start."""
        heapq.heappush(self.events, (EPOCH + seconds, next(self.order), act))

    def closed(self, population: Users, users: range, *, start: float, patience: float = 1e9) -> None:
        """Users who each send, wait, and send again, from ``start`` on."""
        for user in users:
            self.at(start, partial(self._send, population.asks(user), patience))

    def arrivals(self, population: Users, rate: float, *, start: float, end: float, patience: float = 1e9) -> None:
        """Poisson arrivals of ``rate`` per second."""
        draw = random.Random(f"{self.seed}/{rate}/{start}")
        moment, user = start, 1_000_000
        while (moment := moment + draw.expovariate(rate)) < end:
            ask = next(population.asks(user))
            self.at(moment, partial(self._submit, ask, None, patience))
            user += 1

    def restart(self, seconds: float = 15.0) -> None:
        """The process is replaced: clients are cut off, and it listens again after ``seconds``."""
        self.listening = False
        asks = [client.asks for client in self.clients if client.asks]
        self.clients.clear()
        self.died = None
        self.engine.stopping = True
        self.engine = self._engine()
        self.voice.loading(self.engine)
        self.at(self.elapsed + seconds, self._listen)
        for again in asks:
            self.at(self.elapsed + seconds + 1, partial(self._send, again, 1e9))

    def run(self, minutes: float) -> World:
        """Live until ``minutes`` after the start."""
        self.end = EPOCH + 60 * minutes
        try:
            while True:
                self._loop()
        except _Over:
            return self

    def skip(self) -> None:
        """Nothing to do until the next event."""
        self.advance(max(0.0, (self.events[0][0] if self.events else self.end) - self.now) + 1e-6)

    def advance(self, seconds: float) -> None:
        """Let time pass, and everything happen that is due in it."""
        until = self.now + seconds
        while self.events and self.events[0][0] <= min(until, self.end):
            moment, _, act = heapq.heappop(self.events)
            self.now = max(self.now, moment)
            act()
        if until >= self.end:
            self.now = self.end
            raise _Over
        self.now = max(self.now, until)
        self._answer()

    def log(self) -> str:
        return self.text.getvalue()

    def metrics(self) -> str:
        return self.recording.text()

    def summary(self) -> dict[str, Any]:
        return {
            "completed": len(self.completions),
            "last_completion": self.completions[-1] if self.completions else None,
            "last_step": self.last_step,
            "loop_died": self.died,
            "running": len(self.engine.scheduler.running),
            "waiting": len(self.engine.scheduler.waiting) + self.engine.unanswered,
            "preemptions": self.engine.scheduler.preemptions,
        }

    def _engine(self) -> Engine:
        scheduler = Scheduler(self.config)
        guess = Guess(scheduler, self.seed, self.acceptance)

        def forward(batch: Batch) -> SampleState:
            if self.doomed:
                raise SystemExit
            out = guess(batch)
            self.advance(self.step_seconds + self.token_seconds * scheduler.total_num_tokens)
            self.last_step = self.now
            return out

        return Engine(
            scheduler,
            forward,
            self.voice,
            after_crash=self.after_crash,
            clock=self.clock,
            idle_tick=0.1,
            sleep=self.advance,
            inbox=_Inbox(self),
        )

    def _loop(self) -> None:
        """The loop thread's life; after its death time goes on without it."""
        while not self.listening:
            self.skip()
        engine = self.engine
        try:
            engine._event_loop_wrapper()
        except SystemExit:
            self.died = self.now
            if engine.after_crash != "zombie":
                engine.down = "engine process died"
                self.voice.lost()
        except Exception:  # noqa: BLE001 - whatever ends the thread is printed as the threading module prints it
            self.died = self.now
            self.voice.raw(f"Exception in thread Thread-1 (_event_loop_wrapper):\n{traceback.format_exc()}")
        self._answer()  # what was finished before
        while self.engine is engine:
            self.skip()

    def _listen(self) -> None:
        self.engine.stats.started = self.now
        self.voice.starting(self.engine)
        self.voice.ready("127.0.0.1", 8000)
        self.listening = True

    def _every(self, seconds: float, act: Callable[[], None]) -> None:
        def again() -> None:
            act()
            self.at(self.elapsed + seconds, again)

        self.at(seconds, again)

    def _scrape(self) -> None:
        if self.listening and not self.blind:
            self.recording.add(self.voice.page(self.engine), self.now)

    def _timer(self) -> None:
        if self.listening:
            self.voice.timer(self.engine, self.voice.stats_interval)

    def _send(self, asks: Iterator[Ask], patience: float) -> None:
        if (ask := next(asks, None)) is not None:
            self._submit(ask, asks, patience)

    def _submit(self, ask: Ask, asks: Iterator[Ask] | None, patience: float) -> None:
        if not self.listening:
            if asks:
                self.at(self.elapsed + RETRY_SECONDS, partial(self._send, asks, patience))
            return
        output = max(1, min(ask.output_tokens, self.config.max_seq_len - ask.prompt_tokens))
        try:
            ticket = self.engine.submit(ask.prompt, output)
        except EngineDown:
            self._access(503, "Service Unavailable")
            return
        self.clients.append(_Client(ticket, asks, self.now + patience))

    def _answer(self) -> None:
        """Clients look at what came for them; whoever is done asks again, whoever is tired leaves."""
        for client in list(self.clients):
            over = self.now > client.gives_up
            while not over and not client.ticket.events.empty():
                event = client.ticket.events.get()
                if isinstance(event, list):
                    continue
                over = True
                if event is None:
                    self.completions.append(self.now)
                    self._access(200, "OK")
                else:
                    self._failed(event)
            if not over:
                continue
            self.clients.remove(client)
            if self.now > client.gives_up:
                self.engine.cancel(client.ticket)
            if asks := client.asks:
                wait = 0.0 if client.ticket.request.finish_reason in ("stop", "length") else RETRY_SECONDS
                patience = client.gives_up - client.ticket.born
                self.at(self.elapsed + wait, partial(self._send, asks, patience))

    def _failed(self, event: Exception) -> None:
        if isinstance(event, RequestFailed):
            kind = f"{type(event).__module__}.{type(event).__name__}"
            self.voice.request_error(str(event), f"Traceback (most recent call last):\n{kind}: {event}")
            self._access(400, "Bad Request")
        else:
            self._access(503, "Service Unavailable")

    def _access(self, status: int, phrase: str) -> None:
        self.voice.access(f"127.0.0.1:{next(self.ports)}", "POST /v1/completions HTTP/1.1", status, phrase)
