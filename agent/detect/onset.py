"""Does the trouble follow the load, or a deployment? (the second check of the checklist)

Healthy time and onsets are kept in five-minute bins with the load of that time and the deployment epoch it fell in.
Three explanations are compared by their marginal likelihood, onsets being Poisson with a rate per group of bins and a
Gamma(0.5, 1 day) prior on each rate:

* ``load``: one rate below a load threshold and another above it, averaged over 40 candidate thresholds;
* ``deployment``: one rate before a change and another after it, averaged over the changes seen;
* ``chance``: a single rate.

The answer is a log10 Bayes factor of load against the better of the other two; between -1 and 1 nothing is decided.
The load of an onset is taken *before* it: afterwards the queue itself inflates every measure of load.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["OnsetLedger", "OnsetReport"]

BIN: Final = 300.0
DAY: Final = 86_400.0
_PRIOR_SHAPE: Final = 0.5
_PRIOR_DAYS: Final = 1.0
_MAX_BINS: Final = 30 * 288
"""Thirty days; older bins are dropped."""
_THRESHOLDS: Final = 40


@dataclass(slots=True)
class _Bin:
    start: float
    exposure: float = 0.0
    load_seconds: float = 0.0
    epoch: int = 0
    onsets: int = 0
    onset_load: float = 0.0
    finished: float = 0.0
    tokens: float = 0.0

    @property
    def load(self) -> float:
        if self.onsets:
            return self.onset_load / self.onsets
        return self.load_seconds / self.exposure if self.exposure > 0 else 0.0


@dataclass(frozen=True, slots=True)
class OnsetReport:
    """Which explanation the evidence favours. ``threshold`` and its interval are loads (concurrent requests)."""

    verdict: str  # load, deployment, undecided, unknown
    log10_bayes_factor: float | None
    onsets: int
    restarts: int
    changes: int
    healthy_days: float
    threshold: float | None = None
    threshold_low: float | None = None
    threshold_high: float | None = None
    safe_load: float | None = None
    """The highest load that was held for an hour or more in all without an onset at or below it."""
    onset_rates: tuple[float, float] | None = None
    """Requests and tokens a second before an onset, the middle of all onsets of which they are known."""
    healthy_rates: tuple[float, float] | None = None
    """Requests and tokens a second, the most that was held for five healthy minutes."""

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    def sentence(self) -> str:
        """One line for an alert."""
        if self.verdict == "unknown":
            return "no earlier onset to compare with"
        counts = (
            f"{self.onsets} onset{'s' if self.onsets != 1 else ''}, {self.changes} changes, {self.restarts} restarts"
        )
        if self.verdict == "load":
            return f"onset follows load: above about {self.threshold:.0f} requests in flight ({counts})"
        if self.verdict == "deployment":
            return f"onset follows a change, not load ({counts})"
        return f"not decided yet whether load or a change explains it ({counts})"


class OnsetLedger:
    """What one server went through: load, healthy time, onsets, restarts, changes."""

    def __init__(self) -> None:
        self._bins: dict[int, _Bin] = {}
        self._onsets: list[tuple[float, float]] = []
        self._rates: list[tuple[float, float]] = []
        """Requests and tokens a second before each onset; zeros where they are not known."""
        self._restarts: list[float] = []
        self._changes: list[float] = []
        self._lived: list[tuple[float, float]] = []
        self._lived_until = -1

    def look(
        self, timestamp: float, seconds: float, load: float, *, finished: float = 0.0, tokens: float = 0.0
    ) -> None:
        """``seconds`` of healthy time at ``load`` ended at ``timestamp``, with so many requests and tokens done."""
        found = self._bin(timestamp)
        found.exposure += seconds
        found.load_seconds += seconds * load
        found.finished += finished
        found.tokens += tokens

    def onset(self, timestamp: float, load_before: float, rates: tuple[float, float] = (0.0, 0.0)) -> None:
        """Trouble began, after this load. ``rates``: requests and tokens a second then."""
        if self._onsets and timestamp - self._onsets[-1][0] < 60:
            return
        found = self._bin(timestamp)
        found.onsets += 1
        found.onset_load += load_before
        self._onsets.append((timestamp, load_before))
        self._rates.append(rates)
        del self._onsets[:-500], self._rates[:-500]

    def restart(self, timestamp: float) -> None:
        """The server started anew; by itself that is no deployment."""
        self._restarts.append(timestamp)
        del self._restarts[:-500]

    def change(self, timestamp: float) -> None:
        """Version, flags or image differ from before."""
        self._changes.append(timestamp)
        del self._changes[:-100]

    @property
    def changed(self) -> bool:
        """Was any change of version, flags or image seen?"""
        return bool(self._changes)

    @property
    def onset_loads(self) -> list[float]:
        """The load before each onset of the time that is remembered."""
        first = next(iter(self._bins), 0) * BIN
        return [load for time, load in self._onsets if time >= first]

    def lived(self) -> list[tuple[float, float]]:
        """Healthy time by load: (load, seconds) of each stretch of five minutes, busiest first."""
        latest = next(reversed(self._bins), -1)
        if latest != self._lived_until:
            # Anew with each stretch that begins; the present one is short of nothing that matters.
            self._lived_until = latest
            bins = [(b.load_seconds / b.exposure, b.exposure) for b in self._bins.values() if b.exposure > 0]
            self._lived = sorted(bins, reverse=True)
        return self._lived

    def _bin(self, timestamp: float) -> _Bin:
        number = int(timestamp // BIN)
        found = self._bins.get(number)
        if found is None:
            if len(self._bins) >= _MAX_BINS:
                del self._bins[min(self._bins)]
            epoch = sum(1 for change in self._changes if change <= timestamp)
            found = self._bins[number] = _Bin(start=number * BIN, epoch=epoch)
        return found

    def report(self) -> OnsetReport:
        """Weigh the explanations."""
        bins = [b for b in self._bins.values() if b.exposure > 0 or b.onsets]
        onsets = sum(b.onsets for b in bins)
        days = sum(b.exposure for b in bins) / DAY
        counts = (onsets, len(self._restarts), len(self._changes), round(days, 4))
        if onsets == 0 or days * DAY < BIN:
            return OnsetReport("unknown", None, *counts, safe_load=self._safe(bins), healthy_rates=_busiest(bins))
        chance = _marginal([bins])
        thresholds = _quantiles(sorted(b.load for b in bins))
        by_load = [_marginal([[b for b in bins if b.load < x], [b for b in bins if b.load >= x]]) for x in thresholds]
        epochs = sorted({b.epoch for b in bins})[1:]
        by_change = [_marginal([[b for b in bins if b.epoch < e], [b for b in bins if b.epoch >= e]]) for e in epochs]
        load = _mean(by_load) if by_load else chance
        other = max(chance, _mean(by_change)) if by_change else chance
        factor = (load - other) / math.log(10)
        verdict = "load" if factor >= 1 else "undecided"
        if by_change and (_mean(by_change) - max(load, chance)) / math.log(10) >= 1:
            verdict = "deployment"
        low, middle, high = _interval(thresholds, by_load) if by_load else (None, None, None)
        rates = self._middle_rates(), _busiest(bins)
        return OnsetReport(verdict, round(factor, 3), *counts, middle, low, high, self._safe(bins), *rates)

    def _middle_rates(self) -> tuple[float, float] | None:
        known = [rates for rates in self._rates if rates[0] > 0 or rates[1] > 0]
        if not known:
            return None
        return tuple(round(sorted(values)[len(known) // 2], 3) for values in zip(*known, strict=True))

    def _safe(self, bins: Sequence[_Bin]) -> float | None:
        lowest_onset = min((load for _, load in self._onsets), default=math.inf)
        held, best = 0.0, None
        for one in sorted(bins, key=lambda b: -b.load):
            if one.load >= lowest_onset or one.onsets:
                continue
            held += one.exposure
            if best is None and held >= 3600:
                best = one.load
        return round(best, 2) if best is not None else None

    def snapshot(self) -> dict[str, Any]:
        return {
            "bins": [
                [b.start, b.exposure, b.load_seconds, b.epoch, b.onsets, b.onset_load, b.finished, b.tokens]
                for b in self._bins.values()
            ],
            "onsets": self._onsets,
            "rates": self._rates,
            "restarts": self._restarts,
            "changes": self._changes,
        }

    def restore(self, data: Mapping[str, Any]) -> None:
        self._bins = {int(values[0] // BIN): _Bin(*values) for values in data.get("bins", [])}
        self._onsets = [(float(t), float(x)) for t, x in data.get("onsets", [])]
        rates = [(float(requests), float(tokens)) for requests, tokens in data.get("rates", [])]
        self._rates = rates if len(rates) == len(self._onsets) else [(0.0, 0.0)] * len(self._onsets)
        self._restarts = [float(t) for t in data.get("restarts", [])]
        self._changes = [float(t) for t in data.get("changes", [])]

    def points(self) -> dict[str, list[list[float]]]:
        """For the page: healthy time (load, seconds) and onsets (time, load)."""
        return {
            "healthy": [[round(b.load, 3), round(b.exposure, 1)] for b in self._bins.values() if b.exposure > 0],
            "onsets": [[t, round(x, 3)] for t, x in self._onsets],
            "restarts": [[t] for t in self._restarts],
            "changes": [[t] for t in self._changes],
        }


def _busiest(bins: Sequence[_Bin]) -> tuple[float, float] | None:
    full = [b for b in bins if b.exposure >= BIN / 2 and (b.finished > 0 or b.tokens > 0)]
    if not full:
        return None
    return (
        round(max(b.finished / b.exposure for b in full), 3),
        round(max(b.tokens / b.exposure for b in full), 3),
    )


def _marginal(groups: Sequence[Sequence[_Bin]]) -> float:
    """Log marginal likelihood of the onsets, each group with a rate of its own."""
    total = 0.0
    for group in groups:
        events = sum(b.onsets for b in group)
        days = sum(b.exposure for b in group) / DAY
        total += (
            math.lgamma(_PRIOR_SHAPE + events)
            - math.lgamma(_PRIOR_SHAPE)
            + _PRIOR_SHAPE * math.log(_PRIOR_DAYS)
            - (_PRIOR_SHAPE + events) * math.log(_PRIOR_DAYS + days)
        )
    return total


def _mean(logs: Sequence[float]) -> float:
    """Log of the mean of likelihoods given as logs."""
    top = max(logs)
    return top + math.log(sum(math.exp(x - top) for x in logs) / len(logs))


def _quantiles(loads: Sequence[float]) -> list[float]:
    """Candidate thresholds: forty quantiles of the loads from the median up."""
    if len(loads) < 2:
        return []
    picks = {
        loads[min(len(loads) - 1, int((0.5 + 0.495 * i / (_THRESHOLDS - 1)) * len(loads)))] for i in range(_THRESHOLDS)
    }
    return sorted(picks)


def _interval(thresholds: Sequence[float], logs: Sequence[float]) -> tuple[float, float, float]:
    """5 %, 50 % and 95 % points of the posterior over the threshold."""
    top = max(logs)
    weights = [math.exp(x - top) for x in logs]
    total, out, running = sum(weights), [], 0.0
    wanted = [0.05, 0.5, 0.95]
    for threshold, weight in zip(thresholds, weights, strict=True):
        running += weight / total
        while wanted and running >= wanted[0] - 1e-12:
            out.append(threshold)
            wanted.pop(0)
    while len(out) < 3:
        out.append(thresholds[-1])
    return out[0], out[1], out[2]
