"""One step's work: a row for each request in it, first as packed, then as it turned out."""

from __future__ import annotations

from dataclasses import dataclass, field

from .request import Request

__all__ = ["Batch", "Claim", "Row", "SampleState"]


@dataclass(slots=True)
class Row:
    """A request's part of one step: ``tokens`` were packed, ``charged`` of them against A."""

    request: Request
    tokens: int
    charged: int
    draft: int = 0  # appended behind the one sampled token

    prompt_tokens: int = 0  # of what was appended, known once the step is prepared

    @property
    def appended(self) -> int:
        """What this row really puts into the step, known once KV is claimed."""
        return min(self.tokens, self.request.remaining) + self.draft


@dataclass(slots=True)
class Batch:
    rows: list[Row] = field(default_factory=list)
    arrivals: list[Row] = field(default_factory=list)  # packed, but not admitted before their KV is claimed

    @property
    def charged(self) -> int:
        return sum(row.charged for row in self.rows) + sum(row.charged for row in self.arrivals)


@dataclass(frozen=True, slots=True)
class Claim:
    """A request that cannot go on: it holds ``held`` blocks and needs ``need`` more, of which ``free`` exist."""

    request: int
    held: int
    need: int
    free: int


SampleState = list[list[int]]
"""For each row the tokens that came out: none (prompt not finished), or one and the accepted part of its draft."""
