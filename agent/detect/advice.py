"""Advice with numbers: how much may be admitted so that what grows always finds room, and what that costs.

Requests that were admitted grow: a prompt of p tokens becomes p + o. The state is safe while all that are admitted fit
at their full size (the banker's rule). Two bounds follow from the size of the KV pool:

* every legal request fits: ``pool / longest legal request``, which nothing can break;
* with the sizes seen: the largest n with ``n * mean + z * deviation * sqrt(n) <= pool``, passed once in a thousand.

A budget of A prompt tokens a step lets in ``A * o / (p + o)`` requests in the long run (each brings p tokens once and
takes o steps), so the budget that holds n of them is ``n * (p + o) / o``. That is the ceiling on *admission*; the hard
size of a step or of the pool is never to be lowered for it. See docs/how-it-works.md.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Final

from agent.detect.onset import OnsetLedger
from agent.detect.progress import ProgressTracker
from agent.detect.sizes import Delivered, RequestSizes

__all__ = ["Advice", "advise"]

_Z: Final = 3.09
"""One in a thousand, normal."""
_USABLE: Final = 0.97
"""Share of the pool to plan with: blocks are filled unevenly."""
_UNDER_ONSET: Final = 0.8
"""Of the lowest load that stopped it, where no load was ever held for an hour."""
_FEWEST: Final = 50.0
"""Completions from which sizes are worth something."""


@dataclass(frozen=True, slots=True)
class Advice:
    """What to admit. Sizes in tokens, concurrency in requests; None where it is not known.

    ``concurrency`` is the advised cap, ``basis`` what sets it: ``sizes`` (those seen), ``longest`` (every legal request
    fits), ``load`` (an onset came above it). ``longest_fit`` is the cap under which every legal request fits.
    ``token_budget`` is the admission ceiling of a step that holds the cap, ``cost`` the share of the throughput at the
    busiest that it gives up.
    """

    concurrency: int
    basis: str
    longest_fit: int | None
    token_budget: int | None
    cost: float | None
    mean_prompt: float | None
    mean_answer: float | None
    deviation: float | None
    requests_seen: int
    pool: float | None
    safe_load: float | None
    onset_load: float | None

    def to_json(self) -> dict[str, Any]:
        return {k: round(v, 4) if isinstance(v, float) else v for k, v in asdict(self).items()}

    def sentences(self) -> list[str]:
        """What to do, for an alert."""
        why = {
            "sizes": f"at the sizes seen ({self.requests_seen} requests) their growth then overruns the cache at most "
            "once in a thousand times",
            "longest": "then even requests of the longest legal size fit all at once",
            "load": f"it stopped at {self.onset_load or 0:.0f}",
        }[self.basis]
        out = [f"Admit at most {self.concurrency} requests at a time: {why}."]
        if self.token_budget is not None:
            out.append(
                f"Or admit at most {self.token_budget} prompt tokens in a step, which holds that number; the hard "
                "limits of step and cache stay as they are."
            )
        if self.cost is not None:
            out.append(
                f"It costs about {100 * self.cost:.0f} % of the throughput at the busiest."
                if self.cost >= 0.005
                else "It costs no throughput: more was never delivered at a higher concurrency."
            )
        return out


def advise(tracker: ProgressTracker, ledger: OnsetLedger | None = None) -> Advice | None:
    """What this engine should admit at most; None while neither sizes and limits nor an onset are known."""
    facts, sizes = tracker.facts, tracker.sizes
    pool = facts.get("kv_cache_capacity_tokens")
    longest = facts.get("max_model_len_tokens")
    known = sizes.finished >= _FEWEST
    caps: list[tuple[float, str]] = []
    longest_fit = int(pool // longest) if pool and longest else None
    if pool and known:
        caps.append((float(_fitting(pool * _USABLE, sizes)), "sizes"))
    elif longest_fit is not None:
        caps.append((float(longest_fit), "longest"))
    report = ledger.report() if ledger is not None else None
    onset_load = min(ledger.onset_loads, default=None) if ledger is not None else None
    if report is not None and report.verdict == "load" and onset_load is not None:
        caps.append((report.safe_load or _UNDER_ONSET * onset_load, "load"))
    if not caps:
        return None
    cap, basis = min(caps)
    if longest_fit is not None and cap < longest_fit:
        cap, basis = (float(longest_fit), "longest") if basis == "sizes" else (cap, basis)
    limit = facts.get("max_running_requests")
    concurrency = max(1, int(min(cap, limit) if limit else cap))
    budget = concurrency * (sizes.prompt + sizes.answer) / sizes.answer if known and sizes.answer > 0 else None
    return Advice(
        concurrency=concurrency,
        basis=basis,
        longest_fit=longest_fit,
        token_budget=math.floor(budget) if budget is not None else None,
        cost=_cost(tracker.sizes.delivered(), concurrency),
        mean_prompt=sizes.prompt if known else None,
        mean_answer=sizes.answer if known else None,
        deviation=sizes.spread if known else None,
        requests_seen=int(sizes.finished),
        pool=pool,
        safe_load=report.safe_load if report is not None else None,
        onset_load=onset_load,
    )


def _fitting(room: float, sizes: RequestSizes) -> int:
    """The most requests that fit at their full size, but once in a thousand times."""
    mean = sizes.prompt + sizes.answer
    deviation = sizes.spread if sizes.spread is not None else mean
    if mean <= 0:
        return 1
    # n * mean + z * deviation * sqrt(n) = room, solved for sqrt(n)
    root = (-_Z * deviation + math.sqrt((_Z * deviation) ** 2 + 4 * mean * room)) / (2 * mean)
    return max(1, int(root * root))


def _cost(delivered: list[Delivered], cap: int) -> float | None:
    """Share of the best throughput that is given up when no more than ``cap`` run."""
    if not delivered:
        return None
    best = max(one.tokens_per_second for one in delivered)
    under = [one for one in delivered if one.running <= cap]
    if best <= 0:
        return None
    if not under:
        # All that was seen is above: throughput grows at most in step with concurrency.
        first = delivered[0]
        reached = first.tokens_per_second * cap / first.running
    else:
        reached = max(one.tokens_per_second for one in under)
    return max(0.0, 1 - reached / best)
