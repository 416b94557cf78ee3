"""What a healthy stretch and a wedge came to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

__all__ = ["SCRAPE", "Healthy", "Wedged"]

SCRAPE: Final = 5.0
"""Seconds between two looks."""


@dataclass(slots=True)
class Healthy:
    """What a healthy stretch came to. ``pages`` per rule; ``where`` names our own false pages, to look into them."""

    kind: str
    hours: float = 0.0
    pages: list[int] = field(default_factory=lambda: [0, 0, 0])
    where: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Wedged:
    """What a wedge came to. ``delays`` per rule, in seconds from the last progress; None: missed."""

    kind: str
    seed: int
    delays: list[float | None]
    rate: float
    source: str = ""
    before: Healthy | None = None
