"""KV blocks outside the pool, and the link that brings them back a few per step.

A prefix that is loaded holds its blocks from the moment the load is asked for, while its request still waits. Two such
requests, each too long for what is left, wait for each other with nothing running at all (vLLM #45387, #45388).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .config import Config
from .request import Request

if TYPE_CHECKING:
    from .packer import Packer

__all__ = ["Connector"]


class Connector:
    """Knows which prompt blocks exist outside the pool, least recently stored first.

    Whoever moves the bytes takes ``saves``, then ``loads`` (both of hash and block), then ``drops``, before it writes
    any block of the next step.
    """

    def __init__(self, config: Config) -> None:
        self.block_tokens, self.link_blocks = config.block_tokens, config.link_blocks
        self.capacity = config.host_blocks
        self.outside: OrderedDict[int, None] = OrderedDict()
        self.saves: deque[tuple[int, int]] = deque()
        self.loads: deque[tuple[int, int]] = deque()
        self.drops: deque[int] = deque()

    def prefix(self, request: Request) -> int:
        """Blocks at the beginning of the prompt that need not be computed; at least one token is left over."""
        found = 0
        for value in request.hashes[: (len(request.prompt) - 1) // self.block_tokens]:
            if value not in self.outside:
                break
            found += 1
        return found

    def fetch(self, request: Request, packer: Packer) -> bool:
        """Begin to load what is outside, if there is room for *that*; the rest of the prompt stays a claim."""
        blocks = 0 if request.loaded or request.computed else self.prefix(request)
        if not blocks or not packer.fits(blocks, 0):
            return False
        packer.kv.grow(request, blocks * self.block_tokens)
        request.loading = blocks
        self.loads.extend(zip(request.hashes, request.blocks, strict=False))
        return True

    def advance(self, waiting: Iterable[Request]) -> None:
        """Move ``link_blocks`` blocks, first come first served."""
        room = self.link_blocks
        for request in waiting:
            moved = min(room, request.loading)
            room -= moved
            request.loading -= moved
            if moved and not request.loading:
                request.computed = request.cached = len(request.blocks) * self.block_tokens
                request.loaded = True

    def store(self, request: Request) -> None:
        """The blocks of a finished prompt go outside, for the next turn of the same conversation."""
        written = min(request.computed, len(request.prompt)) // self.block_tokens
        for value, block in zip(request.hashes[:written], request.blocks, strict=False):
            if value not in self.outside:
                self.outside[value] = None
                self.saves.append((value, block))
        while len(self.outside) > self.capacity:
            self.drops.append(self.outside.popitem(last=False)[0])
