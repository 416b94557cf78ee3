"""The scheduler, without torch: one ``step()``, and in its order lies the failure.

    capacity -> pack to A with estimates -> claim KV -> prepare inputs, assert against H -> forward -> grow, release

Between packing and preparing, estimates become facts: a draft turns out one token longer, a cached prefix turns out
evicted, a decode needs one more block. Whoever was admitted on an estimate then holds a *claim*. A claim on the step
that exceeds H ends in the assertion below. Claims on the pool that can neither be met nor withdrawn end in a ``step()``
that schedules nothing, for ever.

No branch here looks at a clock, at a request's number or at a count chosen in advance: a test reads this file for that.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterator

from .batch import Batch, Claim, SampleState
from .config import Config
from .kv_cache import KVCache, chain
from .packer import Packer
from .request import Request
from .transfer import Connector

__all__ = ["Scheduler"]


class Scheduler:
    """Requests in :attr:`waiting` hope, requests in :attr:`running` hold."""

    def __init__(self, config: Config) -> None:
        self.config, self.rules = config, config.rules
        self.kv = KVCache(config.kv_blocks, config.block_tokens, keep=self.rules.prefix_cache)
        self.connector = Connector(config) if self.rules.offload else None
        self.packer = Packer(config, self.kv, self.connector)
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.draft = self.draft_seen = 1  # this step's draft length, and the one the packer knows of
        self.max_num_tokens = config.hard_tokens
        self.position_ids = memoryview(array("q", bytes(8 * config.hard_tokens)))  # H is the size of real buffers
        self.total_num_tokens = 0
        self.claims: list[Claim] = []  # not satisfied in the last step
        self.finished: list[Request] = []  # in the last step
        self.preemptions = 0

    def add(self, request: Request) -> None:
        if self.rules.prefix_cache or self.connector:
            request.hashes = chain(request.prompt, self.config.block_tokens)
        self.waiting.append(request)

    def step(self, forward_step: Callable[[Batch], SampleState | None]) -> Batch:
        """One iteration; ``forward_step`` runs :meth:`prepare` and the model, or reports failure as None."""
        self.claims.clear()
        self.finished.clear()
        if self.connector:
            self.connector.advance(self.waiting)
        seats = self.config.max_batch - len(self.running) - sum(1 for request in self.waiting if request.blocks)
        batch = self.packer.pack(self.running, self.waiting, seats, self.draft_seen)
        self.claim(batch)
        if batch.rows:
            sample_state = forward_step(batch)
            assert sample_state is not None, "Sampling failed"
            self.update(batch, sample_state)
        self.kv.check(self.requests())
        return batch

    def claim(self, batch: Batch) -> None:
        """Make the estimates true: blocks for what runs, then admission for what was packed from the queue."""
        before = self.preemptions
        for row in list(batch.rows):
            while row.request.blocks and not self.kv.grow(row.request, self.packer.target(row)):
                if not self.rules.preempt:
                    self.claims.append(self.packer.lack(row))
                    batch.rows.remove(row)  # holds what it has, and waits for another to let go
                    break
                self.preempt(self.running[-1], batch)
        for row in batch.arrivals:
            request = row.request
            if self.preemptions > before or not self.packer.fits(self.packer.need(row), 0):
                break
            if not request.computed:
                request.computed = request.cached = self.kv.share(request)
            self.kv.grow(request, self.packer.target(row))
            self.waiting.remove(request)
            self.running.append(request)
            batch.rows.append(row)
        batch.arrivals.clear()
        for row in batch.rows:
            row.draft = self.draft if self.rules.speculate and row.request.decoding else 0

    def preempt(self, victim: Request, batch: Batch) -> None:
        """Withdraw a claim: what the victim held is free, what it computed is lost."""
        self.kv.release(victim)
        victim.computed, victim.preemptions, self.preemptions = 0, victim.preemptions + 1, self.preemptions + 1
        self.running.remove(victim)
        self.waiting.appendleft(victim)
        batch.rows[:] = [row for row in batch.rows if row.request is not victim]

    def prepare(self, batch: Batch) -> memoryview:
        """Positions of every token of the step, in the buffers of H tokens that the model reads."""
        position_ids = array("q")
        for row in batch.rows:
            row.prompt_tokens = 0 if row.request.decoding else row.appended
            position_ids.extend(range(row.request.computed, row.request.computed + row.appended))
        total_num_tokens = self.total_num_tokens = len(position_ids)
        assert total_num_tokens <= self.max_num_tokens, (
            f"total_num_tokens ({total_num_tokens}) should be less than or equal to "
            f"max_num_tokens ({self.max_num_tokens})"
        )
        self.position_ids[:total_num_tokens] = memoryview(position_ids)
        return self.position_ids[:total_num_tokens]

    def update(self, batch: Batch, sample_state: SampleState) -> None:
        """Grow by what was sampled, release what is finished, and set the next draft length by what was accepted."""
        drafted = accepted = 0
        for row, tokens in zip(batch.rows, sample_state, strict=True):
            request = row.request
            if row.draft:
                drafted += 1
                accepted += len(tokens) > row.draft
            request.computed += len(tokens) if request.decoding else row.appended
            for token in tokens:
                request.output.append(token)
                if token == request.stop_token or len(request.output) >= request.max_new:
                    self.finish(request, "stop" if token == request.stop_token else "length")
                    break
        if drafted:
            following = self.draft + (1 if 2 * accepted >= drafted else -1)
            self.draft_seen, self.draft = self.draft, max(1, min(self.config.max_draft, following))

    def finish(self, request: Request, reason: str, error: str = "") -> None:
        """The request is over: it releases what it holds. For one that is aborted or failed, too."""
        request.finish_reason, request.error = reason, error
        if self.connector:
            self.connector.store(request)
        self.kv.release(request)
        (self.running if request in self.running else self.waiting).remove(request)
        self.finished.append(request)

    def requests(self) -> Iterator[Request]:
        yield from self.running
        yield from self.waiting
