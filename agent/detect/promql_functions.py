"""PromQL's functions over ranges and instants, and its aggregations, as tables.

Each does what Prometheus 2.42 does (https://prometheus.io/docs/prometheus/2.42/querying/functions/), to the last bit
where the order of additions is defined; ``bench/promql_parity.py`` holds them against the real one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from agent.detect.promql_math import NAN, CompensatedSum, divide, maximum, minimum, quantile, slope

__all__ = ["AGGREGATIONS", "INSTANT_FUNCTIONS", "RANGE_FUNCTIONS", "Window"]


@dataclass(frozen=True, slots=True)
class Window:
    """The points of one series in a range; times in milliseconds. ``start`` and ``end`` bound the range, ``now`` is
    the instant of evaluation (they differ by the offset)."""

    times: list[int]
    values: list[float]
    start: int
    end: int
    now: int
    scalars: Sequence[float] = ()


# --- functions over a range: None means no result for this series ----------------------------------------------------


def _extrapolated(window: Window, *, counter: bool, per_second: bool) -> float | None:
    """Change over the whole range from the points in it: resets made good, then stretched towards the ends.

    The stretch reaches an end when the nearest point is about one interval from it, else half an interval; a counter
    is never stretched below zero (https://prometheus.io/docs/prometheus/2.42/querying/functions/#rate).
    """
    times, values = window.times, window.values
    if len(values) < 2:
        return None
    change = values[-1] - values[0]
    if counter:
        before = values[0]
        for value in values[1:]:
            if value < before:
                change += before
            before = value
    to_start = (times[0] - window.start) / 1000
    to_end = (window.end - times[-1]) / 1000
    sampled = (times[-1] - times[0]) / 1000
    interval = sampled / (len(values) - 1)
    if counter and change > 0 and values[0] >= 0:
        to_start = min(to_start, sampled * (values[0] / change))
    threshold = interval * 1.1
    stretched = sampled
    stretched += to_start if to_start < threshold else interval / 2
    stretched += to_end if to_end < threshold else interval / 2
    factor = stretched / sampled
    if per_second:
        factor /= (window.end - window.start) / 1000
    return change * factor


def _rate(window: Window) -> float | None:
    return _extrapolated(window, counter=True, per_second=True)


def _increase(window: Window) -> float | None:
    return _extrapolated(window, counter=True, per_second=False)


def _delta(window: Window) -> float | None:
    return _extrapolated(window, counter=False, per_second=False)


def _irate(window: Window) -> float | None:
    if len(window.values) < 2:
        return None
    before, last = window.values[-2:]
    change = last if last < before else last - before
    return change / ((window.times[-1] - window.times[-2]) / 1000)


def _idelta(window: Window) -> float | None:
    return window.values[-1] - window.values[-2] if len(window.values) >= 2 else None


def _changes(window: Window) -> float:
    pairs = zip(window.values, window.values[1:], strict=False)
    return float(sum(now != before and not (math.isnan(now) and math.isnan(before)) for before, now in pairs))


def _resets(window: Window) -> float:
    return float(sum(now < before for before, now in zip(window.values, window.values[1:], strict=False)))


def _deriv(window: Window) -> float | None:
    return slope(window.times, window.values, window.times[0])[0] if len(window.values) >= 2 else None


def _predict_linear(window: Window) -> float | None:
    if len(window.values) < 2:
        return None
    steep, level = slope(window.times, window.values, window.now)
    return steep * window.scalars[0] + level


def _sum_over_time(window: Window) -> float:
    total = CompensatedSum()
    for value in window.values:
        total.add(value)
    return total.value if math.isinf(total.value) else total.total


def _avg_over_time(window: Window) -> float:
    mean = CompensatedSum()
    for count, value in enumerate(window.values, start=1):
        if math.isinf(mean.value):
            if math.isinf(value) and (mean.value > 0) == (value > 0):
                continue
            if math.isfinite(value):
                continue
        mean.add(value / count - mean.value / count)
    return mean.value if math.isinf(mean.value) else mean.total


def _max_over_time(window: Window) -> float:
    return _largest(window.values)


def _min_over_time(window: Window) -> float:
    return _smallest(window.values)


def _stdvar_over_time(window: Window) -> float:
    mean, squares = CompensatedSum(), CompensatedSum()
    for count, value in enumerate(window.values, start=1):
        away = value - mean.total
        mean.add(away / count)
        squares.add(away * (value - mean.total))
    return squares.total / len(window.values)


def _stddev_over_time(window: Window) -> float:
    return _root(_stdvar_over_time(window))


def _quantile_over_time(window: Window) -> float:
    return quantile(window.scalars[0], window.values)


def _count_over_time(window: Window) -> float:
    return float(len(window.values))


def _last_over_time(window: Window) -> float:
    return window.values[-1]


def _present_over_time(window: Window) -> float:  # there are points, or it is not asked
    return 1.0


RANGE_FUNCTIONS: Final[Mapping[str, Callable[[Window], float | None]]] = {
    "rate": _rate,
    "increase": _increase,
    "delta": _delta,
    "irate": _irate,
    "idelta": _idelta,
    "changes": _changes,
    "resets": _resets,
    "deriv": _deriv,
    "predict_linear": _predict_linear,
    "avg_over_time": _avg_over_time,
    "min_over_time": _min_over_time,
    "max_over_time": _max_over_time,
    "sum_over_time": _sum_over_time,
    "count_over_time": _count_over_time,
    "last_over_time": _last_over_time,
    "present_over_time": _present_over_time,
    "stddev_over_time": _stddev_over_time,
    "stdvar_over_time": _stdvar_over_time,
    "quantile_over_time": _quantile_over_time,
}


# --- functions of one value (and numbers): None drops the element ----------------------------------------------------


def _whole(value: float, rounding: Callable[[float], int]) -> float:
    if not math.isfinite(value) or abs(value) >= 2.0**53:
        return value
    rounded = float(rounding(value))
    return math.copysign(rounded, value) if rounded == 0 else rounded


def _ceil(value: float) -> float:
    return _whole(value, math.ceil)


def _floor(value: float) -> float:
    return _whole(value, math.floor)


def _round(value: float, nearest: float = 1.0) -> float:
    inverse = divide(1.0, nearest)
    return divide(_floor(value * inverse + 0.5), inverse)


def _sign(value: float) -> float:
    return -1.0 if value < 0 else 1.0 if value > 0 else value


def _root(value: float) -> float:
    return NAN if value < 0 or math.isnan(value) else math.sqrt(value)


def _clamp(value: float, low: float, high: float) -> float | None:
    return None if high < low else maximum(low, minimum(high, value))


def _clamp_min(value: float, low: float) -> float:
    return maximum(low, value)


def _clamp_max(value: float, high: float) -> float:
    return minimum(high, value)


INSTANT_FUNCTIONS: Final[Mapping[str, Callable[..., float | None]]] = {
    "abs": abs,
    "ceil": _ceil,
    "floor": _floor,
    "round": _round,
    "sgn": _sign,
    "sqrt": _root,
    "clamp": _clamp,
    "clamp_min": _clamp_min,
    "clamp_max": _clamp_max,
}


# --- aggregations: values of one group, in the order of the series ---------------------------------------------------


def _largest(values: Sequence[float], _: float = NAN) -> float:
    best = values[0]
    for value in values[1:]:
        if value > best or math.isnan(best):
            best = value
    return best


def _smallest(values: Sequence[float], _: float = NAN) -> float:
    best = values[0]
    for value in values[1:]:
        if value < best or math.isnan(best):
            best = value
    return best


def _sum(values: Sequence[float], _: float) -> float:
    total = values[0]
    for value in values[1:]:
        total += value
    return total


def _avg(values: Sequence[float], _: float) -> float:
    mean = values[0]
    for count, value in enumerate(values[1:], start=2):
        if math.isinf(mean):
            if math.isinf(value) and (mean > 0) == (value > 0):
                continue
            if math.isfinite(value):
                continue
        mean += value / count - mean / count
    return mean


def _stdvar(values: Sequence[float], _: float) -> float:
    mean, squares = values[0], 0.0
    for count, value in enumerate(values[1:], start=2):
        away = value - mean
        mean += away / count
        squares += away * (value - mean)
    return squares / len(values)


def _stddev(values: Sequence[float], _: float) -> float:
    return _root(_stdvar(values, _))


def _count(values: Sequence[float], _: float) -> float:
    return float(len(values))


def _group(values: Sequence[float], _: float) -> float:
    return 1.0


def _quantile(values: Sequence[float], share: float) -> float:
    return quantile(share, values)


AGGREGATIONS: Final[Mapping[str, Callable[[Sequence[float], float], float]]] = {
    "sum": _sum,
    "avg": _avg,
    "min": _smallest,
    "max": _largest,
    "count": _count,
    "group": _group,
    "stddev": _stddev,
    "stdvar": _stdvar,
    "quantile": _quantile,
}
