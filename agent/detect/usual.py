"""What is usual for a server: a quantity's median over its recent past, in little memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["Usual"]

_RATIO: Final = 1.2
"""Width of a class: the median is known to 10 %."""
_MOST: Final = 10_000.0
"""Values held before half is forgotten: 14 busy hours at 5 s looks."""


class Usual:
    """A histogram of a positive quantity over logarithmic classes, which forgets slowly."""

    __slots__ = ("_counts", "count")

    def __init__(self) -> None:
        self._counts: dict[int, float] = {}
        self.count = 0.0

    def add(self, value: float) -> None:
        """One more value; only positive ones count."""
        if value <= 0:
            return
        place = math.floor(math.log(value) / math.log(_RATIO))
        self._counts[place] = self._counts.get(place, 0.0) + 1.0
        self.count += 1.0
        if self.count > _MOST:
            self._counts = {key: count / 2 for key, count in self._counts.items() if count >= 0.2}
            self.count = sum(self._counts.values())

    def median(self) -> float:
        """The middle of the class that holds the median; 0 without any value."""
        below = 0.0
        for place in sorted(self._counts):
            below += self._counts[place]
            if below >= self.count / 2:
                return float(_RATIO ** (place + 0.5))
        return 0.0

    def snapshot(self) -> dict[str, Any]:
        return {str(place): count for place, count in self._counts.items()}

    def restore(self, data: Mapping[str, Any]) -> None:
        self._counts = {int(place): float(count) for place, count in data.items()}
        self.count = sum(self._counts.values())
