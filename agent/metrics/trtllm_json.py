"""TensorRT-LLM's JSON statistics: ``GET /metrics`` of ``trtllm-serve`` answers with the iteration records since the
last reading, and forgets them (https://nvidia.github.io/TensorRT-LLM/0.19.0rc0/commands/trtllm-serve.html).

Two readers of one server take each other's records, so this format is only used where it is configured. Counts are
per iteration; they are added up here. An empty answer means idle, a blocked step or a dead loop: the last gauges
stand, the counters do not move, and progress decides what that is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.metrics.fetch import FetchError
from agent.model import Sample

__all__ = ["IterationReader"]


@dataclass(slots=True)
class _Totals:
    """What one rank has done since the first reading, and its last gauges."""

    iteration: float = -1.0
    finished: float = 0.0
    iterations: float = 0.0
    prompt_tokens: float = 0.0
    generation_tokens: float = 0.0
    gauges: dict[str, float] = field(default_factory=dict)


class IterationReader:
    """Adds up the records of one server over its readings."""

    def __init__(self) -> None:
        self._ranks: dict[str, _Totals] = {}

    def read(self, body: bytes, *, server: str, timestamp: float) -> list[Sample]:
        """One sample for each rank that ever reported. Raises :class:`FetchError` of class ``parse``."""
        try:
            records = json.loads(body)
        except (ValueError, RecursionError):
            raise FetchError("parse", "the answer is no JSON; is this TensorRT-LLM's /metrics?") from None
        if not isinstance(records, list):
            raise FetchError("parse", "the answer is no list of iteration records; is this TensorRT-LLM's /metrics?")
        for record in records:
            if isinstance(record, dict):
                self._add(record)
        if not self._ranks:
            return [Sample(timestamp, server, "metrics", {"up": 1.0})]
        alone = len(self._ranks) == 1
        return [
            Sample(timestamp, server, "metrics", _values(totals), instance="" if alone else rank)
            for rank, totals in sorted(self._ranks.items())
        ]

    def _add(self, record: Mapping[str, Any]) -> None:
        rank = record.get("rank")
        name = str(int(rank)) if isinstance(rank, int) and 0 <= rank < 4096 else "0"
        totals = self._ranks.setdefault(name, _Totals())
        iteration = _number(record, "iter")
        if iteration is not None and iteration < totals.iteration:
            totals = self._ranks[name] = _Totals()  # the server was started again
        if iteration is not None:
            totals.iteration = iteration
        batch = record.get("inflightBatchingStats")
        batch = batch if isinstance(batch, dict) else {}
        scheduled = _number(batch, "numScheduledRequests")
        # a spinning loop still writes records, with nothing scheduled: those are no work
        totals.iterations += scheduled is None or scheduled > 0
        totals.finished += _number(record, "numCompletedRequests") or 0.0
        context = _number(batch, "numCtxTokens") or 0.0
        generating = _number(batch, "numGenRequests") or 0.0
        totals.prompt_tokens += context
        totals.generation_tokens += generating * max(1.0, _number(batch, "avgNumDecodedTokensPerIter") or 1.0)
        totals.gauges = _gauges(record, batch, context + generating)


def _gauges(record: Mapping[str, Any], batch: Mapping[str, Any], tokens: float) -> dict[str, float]:
    cache = record.get("kvCacheStats")
    cache = cache if isinstance(cache, dict) else {}
    blocks, used, size = (_number(cache, key) for key in ("maxNumBlocks", "usedNumBlocks", "tokensPerBlock"))
    found = {
        "requests_running": _number(record, "numActiveRequests"),
        "requests_waiting": _number(record, "numQueuedRequests"),
        "max_batched_tokens": _number(record, "maxNumTokensRuntime"),
        "max_running_requests": _number(record, "maxNumActiveRequests"),
        "scheduled_requests": _number(batch, "numScheduledRequests"),
        "scheduled_tokens": tokens if batch else None,
        "prompt_tokens_pending": _number(batch, "numQueuedCtxTokens"),
        "kv_cache_usage_ratio": used / blocks if used is not None and blocks else None,
        "kv_cache_capacity_tokens": blocks * size if blocks and size else None,
    }
    return {signal: value for signal, value in found.items() if value is not None}


def _values(totals: _Totals) -> dict[str, float]:
    return {
        "up": 1.0,
        **totals.gauges,
        "requests_finished_total": totals.finished,
        "iterations_total": totals.iterations,
        "prompt_tokens_total": totals.prompt_tokens,
        "generation_tokens_total": totals.generation_tokens,
    }


def _number(record: Mapping[str, Any], key: str) -> float | None:
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if number - number == 0 else None
