"""The inside of a running engine as JSON: who holds what, who waits for whom. For people and for this package's tools.

No real engine serves this; it is here because the explanation of a deadlock is a table that nobody gets to see.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .engine import Engine
    from .request import Request
    from .scheduler import Scheduler

__all__ = ["claims_table", "describe", "wait_for"]


def claims_table(scheduler: Scheduler) -> list[dict[str, Any]]:
    """Every request that holds blocks: what it holds, and what it needs before it can go on."""
    return [
        {
            "request": request.id,
            "state": "running" if running else "loading" if request.loading else "waiting",
            "prompt": len(request.prompt),
            "generated": len(request.output),
            "computed": request.computed,
            "held": len(request.blocks),
            "need": max(0, scheduler.kv.blocks_for(_next(scheduler, request)) - len(request.blocks)),
        }
        for running, group in ((True, scheduler.running), (False, scheduler.waiting))
        for request in list(group)
        if request.blocks
    ]


def _next(scheduler: Scheduler, request: Request) -> int:
    """Tokens that the request must have room for before its next token comes out."""
    return request.length if request.output or scheduler.rules.admission != "chunk" else len(request.prompt)


def wait_for(table: Sequence[dict[str, Any]], free: int) -> dict[str, Any]:
    """The wait-for graph: a request that needs more than is free waits for every other holder.

    In the queue it also keeps all behind it waiting, whatever they need (``behind``). It is a deadlock when somebody
    waits and ``can_go_on`` is empty.
    """
    short = [row for row in table if row["need"] > free]
    head = next((row["request"] for row in short if row["state"] == "waiting"), None)
    queue = [row["request"] for row in table if row["state"] == "waiting"]
    behind = queue[queue.index(head) + 1 :] if head is not None else []
    waiters = [row["request"] for row in short if row["request"] not in behind]
    moving = [row["request"] for row in table if row["request"] not in (*waiters, *behind)]
    return {
        "free": free,
        "holders": len(table),
        "waiters": waiters,
        "behind": behind,
        "edges": len(waiters) * (len(table) - 1) + len(behind),
        "can_go_on": moving,
        "cycle": _cycle(waiters, behind),
    }


def _cycle(waiters: list[int], behind: list[int]) -> list[int]:
    """A shortest ring of requests, each waiting for the next; empty when there is none."""
    ring = [*waiters[:2], *behind[:1]][:2] if waiters else []
    return [*ring, ring[0]] if len(ring) > 1 else []


def describe(engine: Engine, device: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    scheduler, stats = engine.scheduler, engine.stats
    table = claims_table(scheduler)
    return {
        "config": engine.config.to_json(),
        "voice": engine.voice.name,
        "after_crash": engine.after_crash,
        "device": device(),
        "loop_alive": engine.alive,
        "down": engine.down,
        "accepted": stats.accepted,
        "completed": stats.completed,
        "aborted": stats.finished["abort"],
        "errors": stats.errors,
        "unanswered": engine.unanswered,
        "running": len(scheduler.running),
        "waiting": len(scheduler.waiting),
        "passes": stats.now.iteration,
        "steps": stats.iterations,
        "prompt_tokens": stats.prompt_tokens_computed,
        "generation_tokens": stats.generation_tokens_seen,
        "preemptions": stats.preemptions,
        "drafted": stats.drafted,
        "accepted_drafts": stats.accepted_drafts,
        "step_ms": {"p50": _ms(stats.recent, 0.5), "p99": _ms(stats.recent, 0.99)},
        "kv": {"free": len(scheduler.kv.free), "held": scheduler.kv.held, "cached": len(scheduler.kv.cached)},
        "unmet": [
            {"request": c.request, "held": c.held, "need": c.need, "free": c.free} for c in list(scheduler.claims)
        ],
        "claims": table,
        "wait_for": wait_for(table, scheduler.kv.available),
        "crash": engine.crash or None,
    }


def _ms(seconds: Sequence[float], share: float) -> float | None:
    ordered = sorted(seconds)
    return round(1000 * ordered[int(share * (len(ordered) - 1))], 3) if ordered else None
