"""What an engine tells about itself: gauges that a step sets, counters that only grow, and latencies.

Written by the loop thread alone. When that thread ends, the gauges stand still at their last values, as a real
engine's do; a page that still shows 32 running requests an hour later is not a lie of the voice but the last thing
that was true.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Final

__all__ = ["Gauges", "Histogram", "Stats"]

_LATENCY: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_TOKENS: Final = (1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 8192.0)


class Histogram:
    """Prometheus's kind: cumulative counts up to each bound, and a sum."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds, self.counts, self.sum = bounds, [0] * (len(bounds) + 1), 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        return sum(self.counts)


@dataclass(slots=True)
class Gauges:
    """The last iteration."""

    iteration: int = 0
    running: int = 0
    waiting: int = 0
    fetching: int = 0  # transfers under way
    fetched: int = 0  # transfers done, their requests still waiting
    scheduled: int = 0
    context_requests: int = 0
    generation_requests: int = 0
    context_tokens: int = 0
    total_tokens: int = 0
    kv_used: int = 0
    draft: int = 0
    step_seconds: float = 0.0
    previous_step_seconds: float = 0.0
    fetched_this_pass: int = 0


@dataclass(slots=True)
class Stats:
    started: float = 0.0
    now: Gauges = field(default_factory=Gauges)
    accepted: int = 0
    finished: Counter[str] = field(default_factory=Counter)  # by reason: stop, length, abort
    errors: int = 0
    iterations: int = 0  # that scheduled something
    preemptions: int = 0
    prompt_tokens_done: int = 0  # counted when the request ends
    generation_tokens_done: int = 0
    prompt_tokens_seen: int = 0  # counted when the first token comes out
    generation_tokens_seen: int = 0  # counted as they come out
    prompt_tokens_computed: int = 0  # counted chunk by chunk
    drafted: int = 0
    accepted_drafts: int = 0
    cached_tokens: int = 0
    e2e: Histogram = field(default_factory=lambda: Histogram(_LATENCY))
    first_token: Histogram = field(default_factory=lambda: Histogram(_LATENCY))
    step_tokens: Histogram = field(default_factory=lambda: Histogram(_TOKENS))
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=4096))  # seconds of the last steps
    step_seconds: Histogram = field(default_factory=lambda: Histogram((0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 1.0)))

    @property
    def completed(self) -> int:
        """Requests that got what they asked for."""
        return self.finished["stop"] + self.finished["length"]
