"""How large requests are, and how much the server delivers at which concurrency, from what its counters show.

Counters tell no single request, only sums. The mean size is their quotient; the spread comes from batches of looks: a
batch of m requests has a mean whose variance is that of one request over m.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from agent.detect.stall import Point
from agent.detect.state import Remembered

__all__ = ["Delivered", "RequestSizes"]

_BATCH: Final = 16.0
"""Completions that make one batch."""
_FEWEST_BATCHES: Final = 12.0
_MOST: Final = 200_000.0
"""Completions before half is forgotten."""
_RATIO: Final = 1.25


@dataclass(frozen=True, slots=True)
class Delivered:
    """What came out at about ``running`` concurrent requests, over ``seconds``."""

    running: float
    seconds: float
    tokens_per_second: float
    requests_per_second: float


class RequestSizes(Remembered):
    """Sums over completed requests, and delivery by concurrency."""

    __slots__ = ("_batch", "_batches", "_curve", "finished", "generated", "prompted")
    _PLAIN: ClassVar = __slots__

    def __init__(self) -> None:
        self.finished = 0.0
        self.prompted = 0.0
        self.generated = 0.0
        self._batch = [0.0, 0.0]
        """The batch that fills: completions, tokens."""
        self._batches = [0.0, 0.0, 0.0, 0.0]
        """Over full batches: how many, completions m, tokens, and the sum of m * mean^2."""
        self._curve: dict[str, list[float]] = {}
        """By class of concurrency: running * seconds, seconds, tokens, completions."""

    def look(self, point: Point) -> None:
        """Take in one look."""
        if point.finished is None or point.step <= 0:
            return
        tokens = (point.prompted or 0.0) + (point.generated or 0.0)
        self.finished += point.finished
        self.prompted += point.prompted or 0.0
        self.generated += point.generated or 0.0
        count, total = self._batch[0] + point.finished, self._batch[1] + tokens
        if count >= _BATCH:
            new = (1.0, count, total, total * total / count)
            self._batches = [old + add for old, add in zip(self._batches, new, strict=True)]
            count = total = 0.0
        self._batch = [count, total]
        if point.running:
            key = str(math.floor(math.log(point.running) / math.log(_RATIO)))
            row = self._curve.get(key, [0.0, 0.0, 0.0, 0.0])
            seen = (point.running * point.step, point.step, point.generated or 0.0, point.finished)
            self._curve[key] = [old + add for old, add in zip(row, seen, strict=True)]
        if self.finished > _MOST:
            self.finished, self.prompted, self.generated = self.finished / 2, self.prompted / 2, self.generated / 2
            self._batches = [value / 2 for value in self._batches]
            self._curve = {key: [value / 2 for value in row] for key, row in self._curve.items()}

    @property
    def prompt(self) -> float:
        """Mean prompt tokens of a request."""
        return self.prompted / self.finished if self.finished else 0.0

    @property
    def answer(self) -> float:
        """Mean generated tokens of a request."""
        return self.generated / self.finished if self.finished else 0.0

    @property
    def spread(self) -> float | None:
        """Standard deviation of prompt and answer together, over requests; None while too few were seen."""
        batches, completions, tokens, squares = self._batches
        if batches < _FEWEST_BATCHES:
            return None
        # The sum of m * (mean of the batch - overall mean)^2 estimates one request's variance for each batch.
        return math.sqrt(max(0.0, squares - tokens * tokens / completions) / (batches - 1))

    def delivered(self) -> list[Delivered]:
        """Delivery by concurrency, from the fewest running requests to the most; classes of under a minute left out."""
        rows = [row for row in self._curve.values() if row[1] >= 60.0]
        out = [Delivered(row[0] / row[1], row[1], row[2] / row[1], row[3] / row[1]) for row in rows]
        return sorted(out, key=lambda one: one.running)

    def snapshot(self) -> dict[str, Any]:
        return {**super().snapshot(), "_curve": dict(self._curve)}
