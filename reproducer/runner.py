"""The step on the device: from a batch of the scheduler to tensors, and from logits to tokens.

On a CPU one thread is right: the tensors are small, and two threads on two busy cores spend their time waiting for each
other. On CUDA the same code runs eagerly; nothing here asks which device it is.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .batch import Batch, Row, SampleState
from .model import Group, PagedPool, Transformer
from .request import Request
from .scheduler import Scheduler
from .speculation import WINDOW, Drafter, accepted

__all__ = ["Runner"]


class Runner:
    """Owns the pool's memory and one page table row (a seat) for each request that runs."""

    def __init__(self, scheduler: Scheduler, target: Transformer, drafter: Drafter) -> None:
        self.scheduler, self.target, self.drafter = scheduler, target, drafter
        weight = target.embed.weight
        self.device, config = weight.device, scheduler.config
        self.pool = PagedPool(target.shape, config.kv_blocks, config.block_tokens, self.device, weight.dtype)
        pages = config.blocks_for(config.max_seq_len + config.lookahead)
        self.tables = torch.zeros((config.max_batch, pages), dtype=torch.int64, device=self.device)
        self.free_seats = list(range(config.max_batch))
        self.seats: dict[int, tuple[int, int, int]] = {}  # request -> seat, preemptions, pages written there
        self.outside: dict[int, Tensor] = {}

    @torch.inference_mode()
    def forward(self, batch: Batch) -> SampleState:
        """Run one step. AssertionError when the batch is larger than H."""
        positions = torch.frombuffer(self.scheduler.prepare(batch), dtype=torch.int64).to(self.device)
        self.move_blocks()
        self.seat(batch)
        drafts = self.propose(batch)
        tokens: list[int] = []
        for row, draft in zip(batch.rows, drafts, strict=True):
            start = row.request.computed
            tokens += row.request.tokens(start, start + row.appended - row.draft) + draft
        return self.sample(batch, drafts, self.logits(batch, tokens, positions))

    def logits(self, batch: Batch, tokens: list[int], positions: Tensor) -> Tensor:
        """Logits of the tokens that :meth:`sample` reads."""
        sizes = [row.appended for row in batch.rows]
        seats = [self.seats[row.request.id][0] for row in batch.rows]
        counts = self.tensor(sizes)
        seat_of = torch.repeat_interleave(self.tensor(seats), counts)
        size = self.pool.block_tokens
        slots = self.tables[seat_of, positions // size] * size + positions % size
        starts, at = [], 0
        wanted: list[int] = []
        for row, count in zip(batch.rows, sizes, strict=True):
            starts.append(at)
            at += count
            if samples(row):
                wanted.extend(range(at - 1 - row.draft, at))
        decodes = [i for i, row in enumerate(batch.rows) if row.request.decoding]
        prompts = [i for i, row in enumerate(batch.rows) if not row.request.decoding]
        groups = [
            self.group([seats[i] for i in some], [starts[i] for i in some], [sizes[i] for i in some], positions)
            for some in (decodes, prompts)
            if some
        ]
        return self.target.paged(self.tensor(tokens), positions, slots, groups, self.pool, self.tensor(wanted))

    def group(self, seats: list[int], starts: list[int], sizes: list[int], positions: Tensor) -> Group:
        """Short rows are padded with copies of their last token, which come to the same result."""
        reach = torch.arange(max(sizes), device=self.device)
        last = self.tensor(sizes)[:, None] - 1
        index = self.tensor(starts)[:, None] + torch.minimum(reach, last)
        at = positions[index]
        pages = int(at.max()) // self.pool.block_tokens + 1
        keys = torch.arange(pages * self.pool.block_tokens, device=self.device)
        return Group(index, self.tables[self.tensor(seats), :pages], (keys <= at[..., None])[:, None])

    def sample(self, batch: Batch, drafts: list[list[int]], logits: Tensor) -> SampleState:
        """Greedy: the likeliest token, and with it as much of the draft as agrees."""
        choices = logits.argmax(-1).tolist()
        out: SampleState = []
        at = 0
        for row, draft in zip(batch.rows, drafts, strict=True):
            if not samples(row):
                out.append([])
                continue
            out.append(accepted(draft, choices[at : at + 1 + row.draft]))
            at += 1 + row.draft
        return out

    def propose(self, batch: Batch) -> list[list[int]]:
        """A draft for each row that has one; all drafts of a step are equally long."""
        drafted = [row for row in batch.rows if row.draft]
        if not drafted:
            return [[] for _ in batch.rows]
        windows = [([0] * WINDOW + row.request.tokens(max(0, row.request.length - WINDOW), row.request.length))
                   [-WINDOW:] for row in drafted]  # fmt: skip
        proposed = iter(self.drafter.propose(self.tensor(windows), drafted[0].draft).tolist())
        return [next(proposed) if row.draft else [] for row in batch.rows]

    def seat(self, batch: Batch) -> None:
        """Write into the page tables what the scheduler has granted since the last step."""
        here = {request.id for request in self.scheduler.running}
        for gone in [number for number in self.seats if number not in here]:
            self.free_seats.append(self.seats.pop(gone)[0])
        seats: list[int] = []
        pages: list[int] = []
        blocks: list[int] = []
        for row in batch.rows:
            request = row.request
            seat, epoch, count = self.seats.get(request.id, (-1, 0, 0))
            if seat < 0:
                seat = self.free_seats.pop()
            if epoch != request.preemptions:
                count = 0
            seats += [seat] * (len(request.blocks) - count)
            pages += range(count, len(request.blocks))
            blocks += request.blocks[count:]
            self.seats[request.id] = (seat, request.preemptions, len(request.blocks))
        if blocks:
            self.tables[self.tensor(seats), self.tensor(pages)] = self.tensor(blocks)

    def move_blocks(self) -> None:
        """Copies between the pool and memory outside it, in the order in which they were asked for."""
        if not (link := self.scheduler.connector):
            return
        while link.saves:
            value, block = link.saves.popleft()
            self.outside[value] = self.pool.data[:, :, block].clone()
        while link.loads:
            value, block = link.loads.popleft()
            self.pool.data[:, :, block] = self.outside[value]
        while link.drops:
            self.outside.pop(link.drops.popleft(), None)

    def tensor(self, values: list[int] | list[list[int]]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64).to(self.device, non_blocking=True)


def samples(row: Row) -> bool:
    """Does this row reach the end of what is known, so that a next token comes out?"""
    request: Request = row.request
    return request.computed + row.appended - row.draft == request.length
