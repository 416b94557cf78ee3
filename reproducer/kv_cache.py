"""The KV pool: N blocks, each free, held by requests, or cached for a later prompt.

A cached block counts twice in the eyes of a hopeful scheduler: as room for whoever comes next, and as work already
done for whoever returns. Both cannot be true. That is the whole of the ``reuse`` profile.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Sequence

from .request import Request

__all__ = ["KVCache", "chain"]


def chain(tokens: Sequence[int], block_tokens: int) -> list[int]:
    """One hash for each full block of ``tokens``, each over everything before it too."""
    hashes: list[int] = []
    parent = 0
    for start in range(0, len(tokens) - block_tokens + 1, block_tokens):
        parent = hash((parent, *tokens[start : start + block_tokens]))
        hashes.append(parent)
    return hashes


class KVCache:
    """Blocks by number. ``keep`` leaves finished blocks findable until their room is needed (least recent first)."""

    def __init__(self, blocks: int, block_tokens: int, *, keep: bool = False) -> None:
        self.blocks, self.block_tokens, self.keep = blocks, block_tokens, keep
        self.free: deque[int] = deque(range(blocks))
        self.cached: OrderedDict[int, int] = OrderedDict()  # hash -> block that nobody holds, least recent first
        self.index: dict[int, int] = {}  # hash -> block, held or cached
        self.hash_of: dict[int, int] = {}
        self.holders: Counter[int] = Counter()

    @property
    def available(self) -> int:
        return len(self.free) + len(self.cached)

    @property
    def held(self) -> int:
        return self.blocks - self.available

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_tokens)

    def hit(self, request: Request) -> list[int]:
        """Blocks that hold the beginning of the prompt at this moment. At least one token is left to compute."""
        found: list[int] = []
        for value in request.hashes[: (len(request.prompt) - 1) // self.block_tokens]:
            if value not in self.index:
                break
            found.append(self.index[value])
        return found

    def share(self, request: Request) -> int:
        """Take the blocks of :meth:`hit`; returns the tokens that need no computing."""
        found = self.hit(request)
        for block in found:
            if not self.holders[block]:
                del self.cached[self.hash_of[block]]
            self.holders[block] += 1
        request.blocks.extend(found)
        return len(found) * self.block_tokens

    def grow(self, request: Request, tokens: int) -> bool:
        """Give the request blocks for ``tokens`` in all, or nothing and False."""
        need = self.blocks_for(tokens) - len(request.blocks)
        if need > self.available:
            return False
        for _ in range(need):
            block = self.free.popleft() if self.free else self._evict()
            self.holders[block] = 1
            request.blocks.append(block)
        return True

    def release(self, request: Request) -> None:
        """Take everything back. Full blocks of the prompt stay findable when the pool keeps them."""
        written = request.computed // self.block_tokens
        for position, block in reversed(list(enumerate(request.blocks))):
            self.holders[block] -= 1
            if self.holders[block]:
                continue
            del self.holders[block]
            if self.keep and position < min(written, len(request.hashes)):
                self._remember(block, request.hashes[position])
            if block in self.hash_of:
                self.cached[self.hash_of[block]] = block
            else:
                self.free.append(block)
        request.blocks.clear()

    def check(self, requests: Iterable[Request]) -> None:
        """free + held + cached = N, and the tables of ``requests`` are exactly what is held. Raises RuntimeError."""
        tables = sum(len(request.blocks) for request in requests)
        if tables != self.holders.total() or len(self.free) + len(self.cached) + len(self.holders) != self.blocks:
            raise RuntimeError(
                f"free {len(self.free)} + cached {len(self.cached)} + held {len(self.holders)} must be {self.blocks}, "
                f"and {tables} table entries must be {self.holders.total()} holds"
            )

    def audit(self, requests: Iterable[Request]) -> None:
        """As :meth:`check`, block by block: nobody holds what the pool does not know, no block is owned twice."""
        tables = Counter(block for request in requests for block in request.blocks)
        if tables != self.holders:
            raise RuntimeError(f"block tables and pool disagree: {tables - self.holders} {self.holders - tables}")
        if not self.keep and any(count > 1 for count in tables.values()):
            raise RuntimeError(f"owned twice: {[block for block, count in tables.items() if count > 1]}")
        everywhere = [*self.free, *self.cached.values(), *tables]
        if sorted(everywhere) != list(range(self.blocks)):
            raise RuntimeError("a block is lost, or is in two places at once")

    def _remember(self, block: int, value: int) -> None:
        if value not in self.index:
            self.index[value] = block
            self.hash_of[block] = value

    def _evict(self) -> int:
        value, block = self.cached.popitem(last=False)
        del self.index[value], self.hash_of[block]
        return block
