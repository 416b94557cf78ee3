"""Arithmetic on floats as Prometheus does it, where Python raises or answers otherwise.

Division by zero is infinite, a power never overflows into an error, and ``max`` and ``min`` have IEEE's way with NaN,
because that is what the same condition gives in a fleet's own Prometheus.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

__all__ = ["NAN", "CompensatedSum", "divide", "maximum", "minimum", "modulo", "power", "quantile", "slope"]

NAN: Final = math.nan


def divide(left: float, right: float) -> float:
    if right != 0:
        return left / right
    if left == 0 or math.isnan(left) or math.isnan(right):
        return NAN
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def modulo(left: float, right: float) -> float:
    """Remainder with the sign of ``left``."""
    if right == 0 or math.isinf(left) or math.isnan(left) or math.isnan(right):
        return NAN
    return math.fmod(left, right)


def power(base: float, exponent: float) -> float:
    """``base ** exponent``; a whole exponent is worked out by squaring, as Prometheus's runtime does, so that the
    last bit agrees."""
    if exponent == 0 or base == 1:
        return 1.0
    if math.isnan(base) or math.isnan(exponent):
        return NAN
    if base == 0 or math.isinf(base) or math.isinf(exponent):
        return _power_at_the_edge(base, exponent)
    if exponent in (0.5, -0.5):
        if base < 0:
            return NAN
        root = math.sqrt(base)
        return root if exponent > 0 else 1.0 / root
    whole = abs(exponent)
    if whole != math.floor(whole):
        if base < 0:
            return NAN
        try:
            return math.pow(base, exponent)
        except OverflowError:
            return math.inf
    if whole >= 2.0**63:
        return 1.0 if base == -1 else 0.0 if (abs(base) < 1) == (exponent > 0) else math.inf
    return _by_squaring(base, int(whole), negative=exponent < 0)


def _power_at_the_edge(base: float, exponent: float) -> float:
    """Zero and the infinities, where C and IEEE 754 agree and Python raises."""
    try:
        return math.pow(base, exponent)
    except (ValueError, OverflowError):
        odd = exponent == math.floor(exponent) and math.fmod(exponent, 2) != 0
        return math.copysign(math.inf, base) if odd else math.inf


def _by_squaring(base: float, count: int, *, negative: bool) -> float:
    factor, exponent = math.frexp(base)
    result, scale = 1.0, 0
    while count:
        if abs(exponent) > 4096:
            # far outside of what a float can hold already; the sign of the exponent is all that matters
            scale += exponent
            break
        if count & 1:
            result *= factor
            scale += exponent
        factor *= factor
        exponent *= 2
        if factor < 0.5:
            factor += factor
            exponent -= 1
        count >>= 1
    if negative:
        result, scale = 1.0 / result, -scale
    try:
        return math.ldexp(result, scale)
    except OverflowError:
        return math.copysign(math.inf, result)


def maximum(left: float, right: float) -> float:
    """The larger; +Inf wins over NaN, NaN over the rest."""
    if left == math.inf or right == math.inf:
        return math.inf
    if math.isnan(left) or math.isnan(right):
        return NAN
    return left if left > right else right if right > left else left if math.copysign(1, left) > 0 else right


def minimum(left: float, right: float) -> float:
    """The smaller; -Inf wins over NaN, NaN over the rest."""
    return -maximum(-left, -right)


class CompensatedSum:
    """A running sum with Neumaier's compensation for lost digits."""

    __slots__ = ("compensation", "value")

    def __init__(self) -> None:
        self.value = 0.0
        self.compensation = 0.0

    def add(self, term: float) -> None:
        total = self.value + term
        if abs(self.value) >= abs(term):
            self.compensation += (self.value - total) + term
        else:
            self.compensation += (term - total) + self.value
        self.value = total

    @property
    def total(self) -> float:
        return self.value + self.compensation


def quantile(share: float, values: Iterable[float]) -> float:
    """The ``share`` quantile, between two values interpolated; NaN sorts first."""
    ordered = sorted(values, key=lambda value: -math.inf if math.isnan(value) else value)
    ordered.sort(key=lambda value: not math.isnan(value))
    if not ordered or math.isnan(share):
        return NAN
    if share < 0:
        return -math.inf
    if share > 1:
        return math.inf
    rank = share * (len(ordered) - 1)
    below = max(0, math.floor(rank))
    above = min(len(ordered) - 1, below + 1)
    weight = rank - math.floor(rank)
    return ordered[below] * (1 - weight) + ordered[above] * weight


def slope(times: list[int], values: list[float], origin: int) -> tuple[float, float]:
    """Least squares over points (milliseconds, value): slope per second, and the value at ``origin``."""
    if all(value == values[0] for value in values[1:]):
        return (NAN, NAN) if math.isinf(values[0]) else (0.0, values[0])
    sums = [CompensatedSum() for _ in range(4)]
    for time, value in zip(times, values, strict=True):
        x = (time - origin) / 1e3
        for total, term in zip(sums, (x, value, x * value, x * x), strict=True):
            total.add(term)
    count = float(len(values))
    sum_x, sum_y, sum_xy, sum_xx = (total.total for total in sums)
    covariance = sum_xy - sum_x * sum_y / count
    variance = sum_xx - sum_x * sum_x / count
    steep = divide(covariance, variance)
    return steep, sum_y / count - steep * sum_x / count
