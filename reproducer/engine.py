"""The loop thread: it takes requests in, steps the scheduler, hands tokens out, and is the only thing that does.

The error path is the reported one, link by link (TensorRT-LLM #13318): the assertion is caught around the forward step
and fails the active requests; the step then has no sample state, a second assertion *outside* that handler says so, and
the thread ends. It is a plain daemon thread: nothing waits for it, nothing restarts it, and HTTP goes on accepting.
``after_crash`` selects what releases of other years make of the same assertion.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final, Literal, Protocol

from .batch import Batch, SampleState
from .config import Config
from .request import Request
from .scheduler import Scheduler
from .stats import Gauges, Stats
from .voice.base import Voice

__all__ = ["AFTER_CRASH", "AfterCrash", "Engine", "EngineDown", "RequestFailed", "Ticket"]

AfterCrash = Literal["zombie", "batch", "unavailable", "exit"]
AFTER_CRASH: Final[dict[str, str]] = {
    "zombie": "the loop thread ends, HTTP stays up and says 200, new requests are never answered",
    "batch": "only the failed batch's requests fail, work goes on",
    "unavailable": "the loop thread ends and is known to have: 503 for ever",
    "exit": "the process ends",
}


class RequestFailed(Exception):
    """The engine gave a request up; the message is what its client is told."""


class EngineDown(Exception):
    """The engine knows that it will not serve again."""


class _BatchFailed(Exception):
    """The failed batch has been answered; the loop goes on with the next."""


@dataclass(eq=False, slots=True)
class Ticket:
    """A client's end of a request: tokens as they come, then None; or an exception."""

    request: Request
    born: float
    events: queue.SimpleQueue[list[int] | Exception | None] = field(default_factory=queue.SimpleQueue)
    told: int = 0
    cancelled: bool = False


class Inbox(Protocol):
    """What the loop reads requests from: a queue."""

    def put(self, item: Ticket | None) -> None: ...
    def get(self) -> Ticket | None: ...
    def empty(self) -> bool: ...
    def qsize(self) -> int: ...


class Engine:
    """``forward`` runs a batch and raises AssertionError when it exceeds H; see :class:`reproducer.runner.Runner`.

    ``clock`` gives Unix seconds, ``sleep`` and ``inbox`` wait; :mod:`reproducer.virtual` gives its own.
    ``nothing_fits`` ``assert`` is the behaviour of 2025: a pass that can schedule nothing while requests are active
    ends the loop with an assertion of its own.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        forward: Callable[[Batch], SampleState],
        voice: Voice,
        *,
        after_crash: AfterCrash | None = None,
        nothing_fits: Literal["spin", "assert"] = "spin",
        idle_tick: float = 0.01,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        inbox: Inbox | None = None,
    ) -> None:
        self.scheduler, self.forward, self.voice = scheduler, forward, voice
        self.after_crash: AfterCrash = after_crash or voice.after_crash
        self.nothing_fits, self.idle_tick, self.clock, self.sleep = nothing_fits, idle_tick, clock, sleep
        self.stats = Stats(started=clock())
        self.inbox: Inbox = inbox or queue.SimpleQueue()
        self.tickets: dict[int, Ticket] = {}
        self.numbers = count()
        self.door = threading.Lock()  # many front-end threads come in at once
        self.down = ""  # why the engine is known not to serve
        self.crash: dict[str, object] = {}
        self.stopping = self.killed = False
        self.thread = threading.Thread(target=self._event_loop_wrapper, daemon=True)

    @property
    def config(self) -> Config:
        return self.scheduler.config

    @property
    def alive(self) -> bool:
        return self.thread.is_alive()

    @property
    def unanswered(self) -> int:
        """Requests accepted and not yet taken in by the loop."""
        return self.inbox.qsize()

    def start(self) -> None:
        self.thread.start()

    def kill(self) -> None:
        """End the loop thread without a word, as the death of an engine's process would, before its next step."""
        self.killed = True
        self.inbox.put(None)

    def stop(self) -> None:
        """End the loop after its present step."""
        self.stopping = True
        self.inbox.put(None)
        self.thread.join(timeout=10)

    def submit(self, prompt: Sequence[int], max_new: int, stop_token: int | None = None) -> Ticket:
        """Queue a request. Whether anybody will ever read the queue is not checked: that is the reported behaviour.

        Raises EngineDown when the engine knows that it is down, ValueError when the request is not legal.
        """
        if self.down:
            raise EngineDown(self.down)
        if not prompt or max_new < 1:
            raise ValueError("a request has at least one token in its prompt and asks for at least one")
        if len(prompt) + max_new > self.config.max_seq_len:
            raise ValueError(
                f"This model's maximum context length is {self.config.max_seq_len} tokens. However, you requested "
                f"{len(prompt) + max_new} tokens ({len(prompt)} in the messages, {max_new} in the completion)."
            )
        ticket = Ticket(Request(next(self.numbers), prompt, max_new, stop_token), self.clock())
        with self.door:
            self.stats.accepted += 1
        self.inbox.put(ticket)
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        """The client is gone; the loop lets go of the request at its next pass, if there is one."""
        ticket.cancelled = True

    def _event_loop_wrapper(self) -> None:
        try:
            self._executor_loop()
        except Exception as e:
            self.voice.loop_error(e, traceback.format_exc())
            if self.after_crash in ("unavailable", "exit"):
                self._go_down(str(e))
            raise

    def _executor_loop(self) -> None:
        while not self.stopping:
            fetched = self._fetch_new_requests()
            if self.killed:
                raise SystemExit  # no handler of ours catches it, and the threading module prints nothing
            if not any(self.scheduler.requests()):
                continue
            started = self.clock()
            try:
                batch = self.scheduler.step(self._forward_step)
            except _BatchFailed:
                continue
            finally:
                self.stats.preemptions = self.scheduler.preemptions
            self._respond(batch)
            self._update_iter_stats(batch, self.clock() - started, fetched)
            if not batch.rows:
                if self.nothing_fits == "assert":
                    assert self.stats.now.scheduled > 0, (
                        "fail to schedule any pending request, probably run out of resource."
                    )
                self.sleep(self.idle_tick)

    def _fetch_new_requests(self) -> int:
        """Take in what has been queued; wait for it when there is nothing else to do."""
        fetched = 0
        idle = not any(self.scheduler.requests())
        if idle:
            self._settle()
        while idle or not self.inbox.empty():
            ticket = self.inbox.get()
            idle = False
            if ticket is not None and not ticket.cancelled:
                self.tickets[ticket.request.id] = ticket
                self.scheduler.add(ticket.request)
                fetched += 1
        for ticket in [ticket for ticket in self.tickets.values() if ticket.cancelled]:
            self.scheduler.finish(ticket.request, "abort")
            self._close(ticket)
        return fetched

    def _forward_step(self, batch: Batch) -> SampleState | None:
        try:
            return self.forward(batch)
        except Exception as e:
            trace = traceback.format_exc()
            error_msg = str(e)
            self.voice.forward_error(error_msg, trace)
            if not self.crash:
                self._post_mortem(batch, error_msg)
            self._handle_errors(error_msg, batch)
            if self.after_crash == "batch":
                raise _BatchFailed from e
            return None

    def _handle_errors(self, error_msg: str, batch: Batch) -> None:
        """Every active request fails; the queue is left as it is. Where only the batch fails, the rest goes on."""
        for request in (
            [row.request for row in batch.rows] if self.after_crash == "batch" else [*self.scheduler.running]
        ):
            self.scheduler.finish(request, "error", error_msg)
            ticket = self.tickets.pop(request.id)
            self.stats.errors += 1
            ticket.events.put(RequestFailed(error_msg))

    def _respond(self, batch: Batch) -> None:
        """Hand out what came out of the step."""
        now, stats = self.clock(), self.stats
        for row in batch.rows:
            request, ticket = row.request, self.tickets[row.request.id]
            if row.draft:
                stats.drafted += row.draft
                stats.accepted_drafts += max(0, len(request.output) - ticket.told - 1)
            fresh = request.output[ticket.told :]
            if fresh and not ticket.told:
                stats.first_token.observe(now - ticket.born)
                stats.prompt_tokens_seen += len(request.prompt)
                stats.cached_tokens += request.cached
            ticket.told += len(fresh)
            stats.generation_tokens_seen += len(fresh)
            if fresh:
                ticket.events.put(fresh)
        for request in self.scheduler.finished:
            stats.prompt_tokens_done += len(request.prompt)
            stats.generation_tokens_done += len(request.output)
            stats.e2e.observe(now - self.tickets[request.id].born)
            self._close(self.tickets[request.id])

    def _close(self, ticket: Ticket) -> None:
        self.stats.finished[ticket.request.finish_reason] += 1
        del self.tickets[ticket.request.id]
        ticket.events.put(None)

    def _update_iter_stats(self, batch: Batch, seconds: float, fetched: int) -> None:
        scheduler, prompts = self.scheduler, [row for row in batch.rows if row.prompt_tokens]
        self.stats.now = Gauges(
            iteration=self.stats.now.iteration + 1,
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            fetching=sum(1 for request in scheduler.waiting if request.loading),
            fetched=sum(1 for request in scheduler.waiting if request.blocks and not request.loading),
            scheduled=len(batch.rows),
            context_requests=len(prompts),
            generation_requests=len(batch.rows) - len(prompts),
            context_tokens=sum(row.prompt_tokens for row in prompts),
            total_tokens=scheduler.total_num_tokens if batch.rows else 0,
            kv_used=scheduler.kv.held,
            draft=scheduler.draft,
            step_seconds=seconds,
            previous_step_seconds=self.stats.now.step_seconds,
            fetched_this_pass=fetched,
        )
        self.stats.prompt_tokens_computed += self.stats.now.context_tokens
        if batch.rows:
            self.stats.iterations += 1
            self.stats.step_tokens.observe(self.stats.now.total_tokens)
            self.stats.step_seconds.observe(seconds)
            self.stats.recent.append(seconds)
        self.voice.iteration(self, scheduler.claims)

    def _settle(self) -> None:
        """Nothing runs and nothing waits: say so, or the page would show the last busy step while idle."""
        last = self.stats.now
        self.stats.now = Gauges(iteration=last.iteration, kv_used=self.scheduler.kv.held, draft=last.draft)

    def _post_mortem(self, batch: Batch, error_msg: str) -> None:
        self.crash = {
            "message": error_msg,
            "step": self.stats.now.iteration + 1,
            "total_num_tokens": self.scheduler.total_num_tokens,
            "max_num_tokens": self.scheduler.max_num_tokens,
            "charged": batch.charged,
            "draft": self.scheduler.draft,
            "draft_seen_by_packer": self.scheduler.draft_seen,
            "rows": [
                {"request": r.request.id, "charged": r.charged, "appended": r.appended, "held": len(r.request.blocks)}
                for r in batch.rows
            ],
        }

    def _go_down(self, reason: str) -> None:
        """Remember the crash, tell whoever waits, and in the ``exit`` era end the process."""
        self.down = reason
        while not self.inbox.empty():
            if ticket := self.inbox.get():
                self.tickets[ticket.request.id] = ticket
        for ticket in self.tickets.values():
            ticket.events.put(EngineDown(reason))
        if self.after_crash == "exit":
            self.voice.fatal(reason)
            os.kill(os.getpid(), signal.SIGINT)
