"""The load at which it begins: doubling, bisection with a sequential test, then a curve with its uncertainty.

A run at C users either wedges within the given steps or does not. The search asks at each level only until a sequential
probability ratio test (Wald 1945) has told "one in ten" from "nine in ten", which two agreeing runs do. Then several
levels around the onset are run equally often and a logistic curve is fitted. A curve that falls again is reported as
such: the ``reuse`` profile has a window, not a threshold.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from .config import Config
from .predict import bracket
from .simulate import simulate
from .users import population_for

__all__ = ["Curve", "fit", "onset", "plot", "sprt"]

_STEP: Final = math.log(9)  # evidence of one run for p = 0.9 against p = 0.1
_BOUND: Final = math.log(19)  # errors of 5 % each way
_STEEPEST: Final = 8.0  # per user; a sharper onset than one user cannot be told apart

Trial = Callable[[int, int], bool]
"""Does load C with seed S wedge?"""


@dataclass
class Curve:
    """Runs and wedges by load, and what follows from them. ``width`` is from 10 % to 90 %; loads are users at once."""

    profile: str
    runs: dict[int, tuple[int, int]] = field(default_factory=dict)  # load -> (wedges, runs)
    c50: float = math.nan
    low: float = math.nan
    high: float = math.nan
    width: float = math.nan
    falls: str = ""
    predicted: dict[str, Any] = field(default_factory=dict)
    safe: int = 0

    def chance(self, load: float) -> float:
        """Fitted chance of a wedge at a load."""
        slope = 2 * math.log(9) / self.width
        return _logistic(slope * (load - self.c50))

    def to_json(self) -> dict[str, Any]:
        return {
            "profile": self.profile,
            "c50": _rounded(self.c50),
            "interval_95": [_rounded(self.low), _rounded(self.high)],
            "width_10_90": _rounded(self.width),
            "predicted": self.predicted,
            "safe_concurrency": self.safe,
            "falls": self.falls,
            "runs": {str(load): list(pair) for load, pair in sorted(self.runs.items())},
        }

    def sentence(self) -> str:
        if math.isnan(self.c50):
            return f"{self.profile}: no wedge at any load tried ({_levels(self.runs)})"
        text = (
            f"{self.profile}: half of the runs wedge at {self.c50:.1f} users at once "
            f"(95% interval {self.low:.1f} to {self.high:.1f}), from 10% to 90% within {self.width:.1f}; "
        )
        if self.predicted:
            text += f"predicted {self.predicted['low']} to {self.predicted['high']}; "
        text += f"provably safe up to {self.safe}" if self.safe else "no load is provably safe"
        return text + (f". NOT A THRESHOLD: {self.falls}" if self.falls else "")


def trial_for(config: Config, steps: int) -> Trial:
    """A run of the scheduler without a model."""

    def trial(users: int, seed: int) -> bool:
        population = population_for(config.profile, config.max_seq_len, seed)
        return bool(simulate(config.with_(seed=seed), population, users=users, steps=steps).wedged)

    return trial


def sprt(trial: Callable[[int], bool], *, most: int = 25) -> tuple[bool, int, int]:
    """(wedges more often than not, wedges, runs). Stops as soon as the evidence suffices, or undecided at ``most``."""
    evidence, wedges = 0.0, 0
    for run in range(1, most + 1):
        wedged = trial(run)
        wedges += wedged
        evidence += _STEP if wedged else -_STEP
        if abs(evidence) >= _BOUND:
            break
    return evidence > 0, wedges, run


def onset(
    config: Config,
    *,
    steps: int = 3000,
    runs: int = 12,
    largest: int = 256,
    trial: Trial | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Curve:
    """Find and measure the onset of a configuration."""
    attempt = trial or trial_for(config, steps)
    curve = Curve(config.profile, safe=config.safe_concurrency)
    seeds = iter(range(1, 1 << 30))

    def level(load: int, count: int = 0) -> bool:
        tell(f"{load} users")
        if count:
            outcomes = [attempt(load, next(seeds)) for _ in range(count)]
            above, wedges, n = sum(outcomes) * 2 > count, sum(outcomes), count
        else:
            above, wedges, n = sprt(lambda _: attempt(load, next(seeds)))
        old = curve.runs.get(load, (0, 0))
        curve.runs[load] = (old[0] + wedges, old[1] + n)
        return above

    low, high = 0, 1
    while not level(high):
        low, high = high, high * 2
        if high > largest:
            return curve
    top = high
    while high - low > max(1, round(0.04 * high)):
        middle = (low + high) // 2
        low, high = (low, middle) if level(middle) else (middle, high)
    gap = max(1, round(0.06 * high))
    for load in sorted({max(1, high + gap * offset) for offset in range(-3, 4)}):
        level(load, runs)
    for load in (2 * top, 4 * top):  # a window is seen only from beyond it
        level(load, max(4, runs // 3))
    curve.c50, curve.width = fit(curve.runs)
    curve.low, curve.high = _interval(curve.runs)
    curve.falls = _falls(curve.runs)
    curve.predicted = bracket(config, population_for(config.profile, config.max_seq_len, 0), steps=steps)
    return curve


def fit(runs: Mapping[int, tuple[float, float]]) -> tuple[float, float]:
    """(C50, width 10-90 %) of the likeliest logistic curve; its slope is held below what whole users can show."""
    loads = sorted(runs)
    best = (math.inf, float(loads[0]), 1.0)
    centre, slope = _halfway(runs), 2.0
    span, ratio = max(4.0, (loads[-1] - loads[0]) / 4), 4.0
    for _ in range(12):  # a grid that shrinks around its best point: no derivative can fail on separated data
        for i in range(-6, 7):
            for j in range(-4, 5):
                c, s = centre + span * i / 6, min(_STEEPEST, max(0.02, slope * ratio ** (j / 4)))
                best = min(best, (_loss(runs, c, s), c, s))
        _, centre, slope = best
        span, ratio = span / 2, max(1.02, math.sqrt(ratio))
    return centre, 2 * math.log(9) / slope


def plot(curves: Sequence[Curve], path: Path, *, subtitle: str = "") -> None:
    """Draw measured shares with their intervals, the fit, the predicted bracket and the safe bound."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(curves), figsize=(5.2 * len(curves), 3.8), squeeze=False)
    for axis, curve in zip(axes[0], curves, strict=True):
        shown = [load for load in sorted(curve.runs) if load <= 2.2 * curve.c50]
        passing = [load for load in shown if curve.runs[load][1] < 6]  # the search went through, two or three runs each
        loads = [load for load in shown if load not in passing]
        hollow = [curve.runs[load][0] / curve.runs[load][1] for load in passing]
        axis.plot(passing, hollow, "o", color="#1f4e79", fillstyle="none", label="passed in the search")
        shares = [curve.runs[load][0] / curve.runs[load][1] for load in loads]
        bars = [_wilson(*curve.runs[load]) for load in loads]
        below = [max(0.0, share - bar[0]) for share, bar in zip(shares, bars, strict=True)]
        above = [max(0.0, bar[1] - share) for share, bar in zip(shares, bars, strict=True)]
        axis.errorbar(loads, shares, yerr=[below, above], fmt="o", color="#1f4e79", capsize=2, label="runs that wedge")
        xs = [shown[0] + (shown[-1] - shown[0]) * i / 200 for i in range(201)]
        axis.plot(xs, [curve.chance(x) for x in xs], color="#1f4e79", label=f"fit: C50 = {curve.c50:.1f}")
        if curve.predicted:
            axis.axvspan(
                curve.predicted["low"], curve.predicted["high"], color="#f0a35e", alpha=0.35, label="predicted"
            )
        if curve.safe:
            axis.axvline(curve.safe, color="#3a7d44", linestyle="--", label=f"provably safe: {curve.safe}")
        axis.set(title=curve.profile, xlabel="requests at once", ylabel="share of runs that wedge", ylim=(-0.04, 1.04))
        axis.legend(fontsize=8, loc="upper left", bbox_to_anchor=(0.0, 0.96))
    if subtitle:
        figure.text(0.5, 0.01, subtitle, ha="center", fontsize=8)
    figure.tight_layout(rect=(0, 0.03, 1, 1))
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)


def _loss(runs: Mapping[int, tuple[float, float]], centre: float, slope: float) -> float:
    total = 0.0
    for load, (wedges, count) in runs.items():
        p = min(1 - 1e-9, max(1e-9, _logistic(slope * (load - centre))))
        total -= wedges * math.log(p) + (count - wedges) * math.log(1 - p)
    return total


def _halfway(runs: Mapping[int, tuple[float, float]]) -> float:
    above = [load for load, (wedges, count) in runs.items() if 2 * wedges >= count]
    return float(min(above, default=max(runs)))


def _interval(runs: Mapping[int, tuple[int, int]], draws: int = 60) -> tuple[float, float]:
    """95 % interval of C50: each level's chance drawn from what its runs leave possible (Jeffreys), then fitted."""
    draw = random.Random(0)
    centres = []
    for _ in range(draws):
        again: dict[int, tuple[float, float]] = {}
        for load, (wedges, count) in runs.items():
            p = draw.betavariate(wedges + 0.5, count - wedges + 0.5)
            again[load] = (sum(draw.random() < p for _ in range(count)), count)
        centres.append(fit(again)[0])
    centres.sort()
    return centres[round(0.025 * (draws - 1))], centres[round(0.975 * (draws - 1))]


def _falls(runs: Mapping[int, tuple[int, int]]) -> str:
    """Say so when a higher load wedges clearly less often than a lower one."""
    measured = [(load, wedges / count) for load, (wedges, count) in sorted(runs.items()) if count >= 4]
    for index, (load, share) in enumerate(measured):
        for beyond, later in measured[index + 1 :]:
            if share - later >= 0.5:
                return f"{share:.0%} wedge at {load} users but {later:.0%} at {beyond}; more load is not worse here"
    return ""


def _wilson(wedges: int, count: int, z: float = 1.96) -> tuple[float, float]:
    p, d = wedges / count, 1 + z * z / count
    half = z * math.sqrt(p * (1 - p) / count + z * z / (4 * count * count))
    return (p + z * z / (2 * count) - half) / d, (p + z * z / (2 * count) + half) / d


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


def _levels(runs: Mapping[int, tuple[int, int]]) -> str:
    return ", ".join(f"{load}: {wedges}/{count}" for load, (wedges, count) in sorted(runs.items()))


def _rounded(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 2)
