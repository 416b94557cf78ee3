"""A request: what it asked for, how far it has come, and what it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["Request"]


@dataclass(eq=False, slots=True)
class Request:
    """``prompt`` tokens in, up to ``max_new`` tokens out.

    ``computed`` tokens have their keys and values in the pool; ``blocks`` are what it holds there. The last token of
    ``output`` is never computed yet: it is the next step's input.
    """

    id: int
    prompt: Sequence[int]
    max_new: int
    stop_token: int | None = None
    output: list[int] = field(default_factory=list)
    computed: int = 0
    blocks: list[int] = field(default_factory=list)
    hashes: list[int] = field(default_factory=list)  # of each full block of the prompt, when a cache looks for them
    loading: int = 0  # blocks that a transfer still has to bring
    loaded: bool = False
    cached: int = 0  # prompt tokens that came from a cache
    preemptions: int = 0
    finish_reason: str = ""
    error: str = ""

    @property
    def length(self) -> int:
        return len(self.prompt) + len(self.output)

    @property
    def remaining(self) -> int:
        """Tokens still to compute before the next one can be sampled; 1 for a request that is decoding."""
        return len(self.prompt) + len(self.output) - self.computed

    @property
    def decoding(self) -> bool:
        return bool(self.output) and len(self.prompt) + len(self.output) - self.computed == 1

    def tokens(self, start: int, stop: int) -> list[int]:
        """Tokens ``start`` to ``stop`` of prompt and output taken as one text."""
        split = len(self.prompt)
        return [*self.prompt[start:stop], *self.output[max(0, start - split) : max(0, stop - split)]]
