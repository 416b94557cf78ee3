"""What is decided before it is known: a step filled by estimate, a request admitted on a promise.

Nothing here is wrong by itself. A last chunk is charged without what the cache is *believed* to save, a decode with the
draft length of the step *before*, a request is admitted when what it needs *first* is free. What becomes of it is told
in :mod:`reproducer.scheduler`.
"""

from __future__ import annotations

from collections.abc import Iterable

from .batch import Batch, Claim, Row
from .config import Config
from .kv_cache import KVCache
from .request import Request
from .transfer import Connector

__all__ = ["Packer"]


class Packer:
    """Fills a step up to A, and says what must be free before a request may run."""

    def __init__(self, config: Config, kv: KVCache, connector: Connector | None) -> None:
        self.config, self.rules, self.kv, self.connector = config, config.rules, kv, connector

    def pack(self, running: list[Request], waiting: Iterable[Request], seats: int, draft: int) -> Batch:
        """Decodes first, then prompts begun, then the queue in order. ``draft`` is the draft length it knows of."""
        batch, budget = Batch(), self.config.step_tokens
        for request in running:
            if request.decoding and (cost := 1 + draft * self.rules.speculate) <= budget:
                batch.rows.append(Row(request, 1, cost))
                budget -= cost
        for request in running:
            if not request.decoding and (row := self.chunk(request, budget)):
                batch.rows.append(row)
                budget -= row.charged
        promised = 0
        for request in waiting:
            if seats <= 0 and not request.blocks:
                break
            if request.loading:
                continue
            seats -= not request.blocks
            if self.connector and self.connector.fetch(request, self):
                continue
            row = self.chunk(request, budget)
            if row is None or not self.fits(need := self.need(row), promised):
                break  # the head of the queue waits, and all behind it
            promised += need
            batch.arrivals.append(row)
            budget -= row.charged
        return batch

    def chunk(self, request: Request, budget: int) -> Row | None:
        """As much of the prompt as fits."""
        reusable = 0 if request.computed else len(self.kv.hit(request)) * self.config.block_tokens
        if (cost := request.remaining - reusable) <= budget:
            return Row(request, request.remaining, cost)
        size = budget - budget % self.config.block_tokens
        return Row(request, size, size) if size else None

    def need(self, row: Row) -> int:
        """Blocks that must be free before the request of this row may run: the promise that the profile makes."""
        if self.rules.admission == "chunk":
            return self.kv.blocks_for(row.tokens)
        request = row.request
        shared = sum(1 for block in self.kv.hit(request) if self.kv.holders[block]) + len(request.blocks)
        return self.kv.blocks_for(request.length if self.rules.by_chunk else self.target(row)) - shared

    def target(self, row: Row) -> int:
        """Tokens for which the request should hold blocks once this step is claimed."""
        request = row.request
        if self.rules.admission == "reserve":
            return len(request.prompt) + request.max_new + self.config.lookahead
        if not self.rules.by_chunk and self.rules.admission == "prompt" and not request.decoding:
            return request.length
        return request.computed + row.tokens

    def lack(self, row: Row) -> Claim:
        """What the request of this row holds, and what it needs beside that to go on."""
        held = len(row.request.blocks)
        return Claim(row.request.id, held, self.kv.blocks_for(self.target(row)) - held, self.kv.available)

    def fits(self, need: int, promised: int) -> bool:
        ceiling = int(self.config.kv_ceiling * self.config.kv_blocks)
        return need + promised <= self.kv.available and self.kv.held + need + promised <= ceiling
