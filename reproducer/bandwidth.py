"""How near decode comes to what the memory can do: bytes that a decode step must read, against a plain copy.

A decode step reads every weight once and the keys and values of every request in the batch; on a large batch of short
contexts a GPU is bound by the first, on long contexts by the second. The copy is the best that the same memory does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .config import Config
from .request import Request
from .runner import Runner
from .scheduler import Scheduler

__all__ = ["Bandwidth", "copy_bandwidth", "decode_bandwidth"]


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Bytes per second, and what they were measured with."""

    copy: float
    decode: float
    rows: int
    context: int
    step_ms: float
    tokens_per_second: float

    def to_json(self) -> dict[str, Any]:
        return {
            "copy_gb_per_s": round(self.copy / 1e9, 2),
            "decode_gb_per_s": round(self.decode / 1e9, 2),
            "share_of_copy": round(self.decode / self.copy, 3),
            "rows": self.rows,
            "context": self.context,
            "step_ms": round(self.step_ms, 3),
            "decode_tokens_per_s": round(self.tokens_per_second, 1),
        }


def copy_bandwidth(device: torch.device, *, nbytes: int = 0, repeats: int = 5) -> float:
    """Bytes read and written per second by copying a large tensor, best of ``repeats``."""
    size = nbytes or ((1 << 30) if device.type == "cuda" else (1 << 26))
    source = torch.zeros(size // 4, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    target.copy_(source)
    best = min(_timed(device, lambda: target.copy_(source)) for _ in range(repeats))
    return 2 * size / best


def decode_bandwidth(runner: Runner, config: Config, *, rows: int, context: int, steps: int = 20) -> Bandwidth:
    """Fill ``rows`` requests with ``context`` tokens each, then time decode steps. The pool must have room for them."""
    scheduler = Scheduler(config.with_(profile="reserve", max_batch=max(rows, config.max_batch)))
    engine = Runner(scheduler, runner.target, runner.drafter)
    for number in range(rows):
        scheduler.add(Request(number, [32] * context, steps + 8))
    while not all(request.decoding for request in scheduler.running) or scheduler.waiting:
        scheduler.step(engine.forward)
    elapsed = _timed(runner.device, lambda: [scheduler.step(engine.forward) for _ in range(steps)]) / steps
    weights = sum(p.numel() * p.element_size() for p in runner.target.parameters())
    per_token = engine.pool.nbytes / config.kv_pool_tokens
    moved = weights + rows * context * per_token
    return Bandwidth(copy_bandwidth(runner.device), moved / elapsed, rows, context, 1000 * elapsed, rows / elapsed)


def _timed(device: torch.device, act: Callable[[], object]) -> float:
    """Seconds, synchronised at the edges only."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    began = time.perf_counter()
    act()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - began
