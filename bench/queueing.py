"""A server as a queue: arrivals -> batch -> tokens -> completions -> what its metrics page shows. No engine, no torch.

Requests share the batch as processors do: each running request advances at one speed, which falls with the batch, so
a virtual clock of tokens and a heap are enough, and an hour costs milliseconds. What matters for a detector is modelled
as the engines do it:

* vLLM counts a prompt when its first token comes, and tokens as they come; while a long prompt is prefilled in chunks
  its counters stand still and only KV use climbs;
* TensorRT-LLM counts prompt and answer when the request ends and takes the KV of a prompt at once; only its count of
  prefill batches and KV use move in between;
* gauges are pushed by the loop's steps: they stand still when it does, and tell nothing of requests that came since.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from dataclasses import dataclass
from functools import cache
from math import exp, log
from statistics import NormalDist
from typing import Final, Literal

__all__ = ["Engine", "Request", "Shape", "Style"]

Style = Literal["vllm", "trtllm"]
_TICK: Final = 2.5
"""Seconds of one step of the simulation; gaps under it are not resolved, looks are twice as long."""
_PARTS: Final = 4096


@dataclass(frozen=True, slots=True)
class Shape:
    """One kind of server. Speeds in tokens a second, sizes in tokens, times in seconds."""

    style: Style = "vllm"
    slots: int = 64
    pool: float = 400_000.0
    prefill: float = 10_000.0
    step: float = 0.03
    step_per_request: float = 0.0004
    prompt: tuple[float, float] = (900.0, 1.0)
    """Median and sigma of a lognormal, near the Azure conversation trace of 2023."""
    answer: tuple[float, float] = (180.0, 0.8)
    longest: float = 32_768.0
    reserve: bool = False
    """Admit only what fits with its whole answer: then nothing is ever preempted."""
    jitter: float = 0.0
    """Sigma of the lognormal factor on the time of a step that is itself seconds long (a slow CPU)."""

    def capacity(self) -> float:
        """Requests a second that this server can just about complete."""
        prompt, answer = _mean(self.prompt), _mean(self.answer)
        decode = self.slots / (self.step + self.step_per_request * self.slots) / answer
        held = self.pool / (prompt + answer / 2)
        if held < self.slots:
            decode = held / (self.step + self.step_per_request * held) / answer
        return 1 / (1 / decode + prompt / self.prefill)


@cache
def _factors(sigma: float) -> tuple[float, ...]:
    """A lognormal law of median 1 in parts of one chance: to pick one costs a fifth of what a draw does."""
    bell = NormalDist()
    return tuple(exp(sigma * bell.inv_cdf((n + 0.5) / _PARTS)) for n in range(_PARTS))


def _mean(law: tuple[float, float]) -> float:
    return law[0] * 2.718281828 ** (law[1] ** 2 / 2)


@dataclass(slots=True)
class Request:
    """``ready_at``: its KV comes over the network and is there then (disaggregated prefill)."""

    arrived: float
    prompt: float
    answer: float
    patience: float = float("inf")
    ready_at: float = 0.0
    done: float = 0.0
    """Prompt tokens prefilled."""


class Engine:
    """One engine, advanced in event time. Attributes are what an observer of the inside would know."""

    def __init__(self, rng: random.Random, shape: Shape, start: float = 0.0) -> None:
        self.rng, self.shape = rng, shape
        self.now = start
        self.rate = 0.0
        """Arrivals a second, set by the scenario."""
        self.patience = float("inf")
        self.transfer = 0.0
        """Mean seconds of a KV transfer before admission; 0: none."""
        self.waiting: deque[Request] = deque()
        self.prefilling: deque[Request] = deque()
        self.running: list[tuple[float, int, Request]] = []
        self.held = 0.0
        self.blocked_until = 0.0
        """The loop stands until then: nothing moves, gauges included."""
        self.spins = False
        """The loop turns and schedules nothing: gauges live, nothing else."""
        self.crawl = 1.0
        """Factor on the speed of decoding."""
        self.admits = True
        self.last_progress = start
        self.owed_since: float | None = None
        """When the oldest request came that nothing has been done for since the last progress."""
        self._virtual = 0.0
        self._serial = 0
        self._oldest = start
        """No running request came before that."""
        self._next = start
        self._step_left = 0.0
        self.reset(start)

    # -- life ------------------------------------------------------------------------------------------------

    def reset(self, now: float) -> None:
        """A new process: counters at zero, nothing in flight."""
        self.start = now
        self.counts = dict.fromkeys(("finished", "aborted", "generated", "prompted", "iterations", "preempted"), 0.0)
        self.drop_all()
        self._push()

    def drop_all(self) -> None:
        """Nothing is in flight any more."""
        self.waiting.clear()
        self.prefilling.clear()
        self.running.clear()
        self.held = 0.0
        self._step_left = 0.0
        self.owed_since = None

    def lengthen(self) -> None:
        """Nothing that runs comes to an end."""
        self.running = [(ends + 1e9, serial, request) for ends, serial, request in self.running]

    def _push(self) -> None:
        """What the loop tells the page at the end of a step."""
        ready = [r for r in self.waiting if r.ready_at > self.now] if self.transfer else ()
        self.gauges = (
            float(len(self.running) + len(self.prefilling)),
            float(len(self.waiting)),
            min(1.0, self.held / self.shape.pool),
            float(len(ready)),
        )

    def arrive(self, prompt: float, answer: float, at: float | None = None) -> None:
        """One more request."""
        at = self.now if at is None else at
        ready = at + self.rng.expovariate(1 / self.transfer) if self.transfer else 0.0
        patience = self.patience * (0.8 + 0.4 * self.rng.random()) if self.patience < 1e12 else self.patience
        self.waiting.append(Request(at, prompt, answer, patience, ready))
        if self.owed_since is None:
            self.owed_since = at

    def draw(self) -> tuple[float, float]:
        """Prompt and answer of a usual request."""
        shape, uniform = self.shape, self.rng.random
        prompt = shape.prompt[0] * _factors(shape.prompt[1])[int(_PARTS * uniform())]
        answer = shape.answer[0] * _factors(shape.answer[1])[int(_PARTS * uniform())]
        return round(min(shape.longest / 2, max(16.0, prompt))), round(min(shape.longest / 4, max(4.0, answer)))

    def in_flight(self) -> int:
        """Requests that somebody waits for."""
        return len(self.waiting) + len(self.prefilling) + len(self.running)

    # -- time ------------------------------------------------------------------------------------------------

    def advance(self, until: float) -> None:
        """Let time pass."""
        while self.now < until - 1e-9:
            dt = min(_TICK, until - self.now)
            if not self.waiting and not self.prefilling and not self.running and not self.spins:
                # Idle: nothing to do until somebody comes.
                if self.rate <= 0 or self._next >= until:
                    self._next = max(self._next, until) if self.rate <= 0 else self._next
                    self.now = until
                    if self.now >= self.blocked_until:
                        self._push()
                    return
                self.now = max(self.now, self._next - _TICK / 2)
                dt = min(_TICK, until - self.now)
            self._arrivals(dt)
            self.now += dt
            self._give_up()
            if self.now < self.blocked_until:
                continue
            if self.spins:
                self._push()
                continue
            self._admit()
            if self.shape.jitter:
                self._slow_work(dt)
            else:
                self._work(dt)
            if not self.in_flight():
                self.owed_since = None

    def set_rate(self, rate: float) -> None:
        """Arrivals a second from now on."""
        self.rate = rate
        self._next = self.now + self.rng.expovariate(rate) if rate > 0 else float("inf")

    def _arrivals(self, dt: float) -> None:
        end = self.now + dt
        if self.rate <= 0:
            return
        while self._next <= end:
            self.arrive(*self.draw(), at=max(self._next, self.now))
            self._next -= log(1.0 - self.rng.random()) / self.rate

    def _give_up(self) -> None:
        """Clients that waited for too long go away, from the queue or from the batch."""
        if self.patience == float("inf"):
            return
        now = self.now
        while self.waiting and now - self.waiting[0].arrived > self.waiting[0].patience:
            self.waiting.popleft()
            self.counts["aborted"] += 1
        if self.running and now - self._oldest > 0.8 * self.patience:
            stay = []
            self._oldest = min(r.arrived for _, _, r in self.running)
            for item in self.running:
                request = item[2]
                if now - request.arrived > request.patience:
                    self.counts["aborted"] += 1
                    self.held -= request.prompt + request.answer - max(0.0, item[0] - self._virtual)
                else:
                    stay.append(item)
            if len(stay) < len(self.running):
                self.running = stay
                heapq.heapify(self.running)
        if not self.in_flight():
            self.owed_since = None

    def _admit(self) -> None:
        shape = self.shape
        if not self.waiting or not self.admits:
            return
        claimed = self._claimed() if shape.reserve else self.held + sum(r.prompt - r.done for r in self.prefilling)
        while self.waiting and len(self.running) + len(self.prefilling) < shape.slots:
            request = self.waiting[0]
            if request.ready_at > self.now:
                ready = next((r for r in self.waiting if r.ready_at <= self.now), None)
                if ready is None:
                    return
                request = ready
            claim = request.prompt + (request.answer if shape.reserve else 0.0)
            if claimed + claim > shape.pool:
                return
            claimed += claim
            self.waiting.popleft() if request is self.waiting[0] else self.waiting.remove(request)
            if request.ready_at:
                request.done = request.prompt - 1  # its prompt was prefilled elsewhere
                self.held += request.done
            elif shape.style == "trtllm":
                self.held += request.prompt
            self.prefilling.append(request)

    def _claimed(self) -> float:
        running = sum(r.prompt + r.answer for _, _, r in self.running)
        return running + sum(r.prompt + r.answer for r in self.prefilling)

    # -- work ------------------------------------------------------------------------------------------------

    def _work(self, dt: float) -> None:
        decode = dt
        if self.prefilling:
            share = 0.6 if self.running else 1.0
            budget = self.shape.prefill * dt * share * self.crawl
            spent = self._prefill(budget)
            decode = dt * (1 - spent / (self.shape.prefill * dt * self.crawl))
        if self.running:
            self._decode(decode / (self.shape.step + self.shape.step_per_request * len(self.running)) * self.crawl)
        self._push()

    def _prefill(self, budget: float) -> float:
        spent = 0.0
        began = self.shape.style == "trtllm"
        while self.prefilling and spent < budget:
            request = self.prefilling[0]
            work = min(request.prompt - request.done, budget - spent)
            request.done += work
            spent += work
            if self.shape.style == "vllm":
                self.held += work
            if request.done >= request.prompt - 1e-6:
                self.prefilling.popleft()
                self._serial += 1
                self._oldest = min(self._oldest, request.arrived)
                heapq.heappush(self.running, (self._virtual + request.answer, self._serial, request))
                if self.shape.style == "vllm":
                    self.counts["prompted"] += request.prompt
                    self.counts["generated"] += 1
                began = True
        if began and spent > 0:
            self.counts["iterations"] += 1
        if spent > 0:
            self._moved()
        return spent

    def _decode(self, tokens: float) -> None:
        count = len(self.running)
        self._virtual += tokens
        self.held += count * tokens
        if self.shape.style == "vllm":
            self.counts["generated"] += count * tokens
            self.counts["iterations"] += max(tokens, 0.001)
        while self.running and self.running[0][0] <= self._virtual:
            over, _, request = heapq.heappop(self.running)
            self.held -= request.prompt + request.answer + (self._virtual - over)
            self.counts["finished"] += 1
            if self.shape.style == "trtllm":
                self.counts["generated"] += request.answer
                self.counts["prompted"] += request.prompt
        while self.held > self.shape.pool and len(self.running) > 1:
            ends, _, request = self.running.pop()
            left = max(1.0, ends - self._virtual)
            self.held -= request.prompt + request.answer - left
            self.counts["preempted"] += 1
            again = Request(request.arrived, request.prompt + request.answer - left, left, request.patience)
            self.waiting.appendleft(again)
        if tokens > 0:
            self._moved()

    def _slow_work(self, dt: float) -> None:
        """Steps that last seconds: the page moves when one ends."""
        self._step_left -= dt
        if self._step_left > 0 or not (self.prefilling or self.running):
            return
        factor = self.rng.lognormvariate(0, self.shape.jitter)
        if self.prefilling:
            self._prefill(512.0)
            self._step_left = 512.0 / self.shape.prefill * factor
        else:
            self._decode(1.0)
            self._step_left = (self.shape.step + self.shape.step_per_request * len(self.running)) * factor
        self._push()

    def _moved(self) -> None:
        self.last_progress = self.now
        self.owed_since = None

    # -- the page --------------------------------------------------------------------------------------------

    def page(self) -> dict[str, float]:
        """The signals that a dialect would read off the page now."""
        running, waiting, kv, deferred = self.gauges
        counts = self.counts
        values = {
            "requests_running": running,
            "requests_waiting": waiting,
            "kv_cache_usage_ratio": kv,
            "requests_finished_total": counts["finished"],
            "requests_aborted_total": counts["aborted"],
            "generation_tokens_total": float(int(counts["generated"])),
            "prompt_tokens_total": counts["prompted"],
            "iterations_total": float(int(counts["iterations"])),
            "process_start_time_seconds": self.start,
        }
        if self.shape.style == "vllm":
            values["preemptions_total"] = counts["preempted"]
        if self.transfer:
            values["requests_deferred"] = deferred
        return values
