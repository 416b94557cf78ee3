"""Operators between two PromQL operands: which elements meet, what comes out, under which labels.

https://prometheus.io/docs/prometheus/2.42/querying/operators/
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from agent.detect.promql_math import divide, modulo, power
from agent.detect.series import METRIC_NAME, Labels

__all__ = [
    "ARITHMETIC",
    "COMPARISONS",
    "SET_OPERATORS",
    "EvaluationError",
    "Matching",
    "Vector",
    "combine",
    "combine_scalars",
    "combine_with_scalar",
    "set_operation",
    "unique",
    "without_name",
]

Vector = list[tuple[Labels, float]]
"""An instant vector: elements in the order in which the series first came."""

ARITHMETIC: Final[Mapping[str, Callable[[float, float], float]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": divide,
    "%": modulo,
    "^": power,
}
COMPARISONS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}
SET_OPERATORS: Final = frozenset(("and", "or", "unless"))


class EvaluationError(ValueError):
    """The expression has no answer for these series, as in Prometheus (a many-to-many match, say)."""


@dataclass(frozen=True, slots=True)
class Matching:
    """How elements of two sides find each other. ``on``: by exactly ``labels``; else by all but those.

    ``card``: which side may have several elements for one of the other; ``include``: labels that group_left or
    group_right takes over from the single side.
    """

    on: bool = False
    labels: frozenset[str] = frozenset()
    card: Literal["one-to-one", "many-to-one", "one-to-many"] = "one-to-one"
    include: tuple[str, ...] = ()

    def signature(self, labels: Labels) -> Labels:
        if self.on:
            return tuple(pair for pair in labels if pair[0] in self.labels)
        return tuple(pair for pair in labels if pair[0] != METRIC_NAME and pair[0] not in self.labels)

    def result_labels(self, many: Labels, one: Labels, *, drop_name: bool) -> Labels:
        pairs = dict(many)
        if drop_name:
            pairs.pop(METRIC_NAME, None)
        if self.card == "one-to-one":
            pairs = {name: value for name, value in pairs.items() if (name in self.labels) is self.on}
        if self.include:
            single = dict(one)
            for name in self.include:
                if name in single:
                    pairs[name] = single[name]
                else:
                    pairs.pop(name, None)
            return tuple(sorted(pairs.items()))
        return tuple(pairs.items())


def without_name(labels: Labels) -> Labels:
    return tuple(pair for pair in labels if pair[0] != METRIC_NAME)


def unique(vector: Vector) -> Vector:
    """The vector itself. Raises :class:`EvaluationError` when two elements have the same labels."""
    if len(vector) > 1 and len({labels for labels, _ in vector}) < len(vector):
        raise EvaluationError("vector cannot contain metrics with the same labelset")
    return vector


def combine_scalars(symbol: str, left: float, right: float) -> float:
    """Two numbers; a comparison (which needs ``bool``) gives 0 or 1."""
    if symbol in ARITHMETIC:
        return ARITHMETIC[symbol](left, right)
    return float(COMPARISONS[symbol](left, right))


def combine_with_scalar(symbol: str, vector: Vector, number: float, *, swapped: bool, as_bool: bool) -> Vector:
    """A vector and a number; ``swapped`` when the number stands on the left."""
    if symbol in ARITHMETIC:
        apply = ARITHMETIC[symbol]
        return [
            (without_name(labels), apply(number, value) if swapped else apply(value, number))
            for labels, value in vector
        ]
    compare = COMPARISONS[symbol]
    pairs = [(labels, value, compare(number, value) if swapped else compare(value, number)) for labels, value in vector]
    if as_bool:
        return [(without_name(labels), float(holds)) for labels, _, holds in pairs]
    return [(labels, value) for labels, value, holds in pairs if holds]


def combine(symbol: str, left: Vector, right: Vector, matching: Matching, *, as_bool: bool) -> Vector:
    """Two vectors under an arithmetic or comparison operator. Raises :class:`EvaluationError`."""
    if not left or not right:
        return []
    swapped = matching.card == "one-to-many"
    many, one = (right, left) if swapped else (left, right)
    partners: dict[Labels, tuple[Labels, float]] = {}
    for element in one:
        signature = matching.signature(element[0])
        if signature in partners:
            side = "left" if swapped else "right"
            raise EvaluationError(
                f"found duplicate series for the match group on the {side} hand-side of the operation; "
                "many-to-many matching not allowed: matching labels must be unique on one side"
            )
        partners[signature] = element
    out: Vector = []
    matched: dict[Labels, set[Labels]] = {}
    for labels, value in many:
        signature = matching.signature(labels)
        partner = partners.get(signature)
        if partner is None:
            continue
        first, second = (partner[1], value) if swapped else (value, partner[1])
        if symbol in ARITHMETIC:
            result = ARITHMETIC[symbol](first, second)
        else:
            holds = COMPARISONS[symbol](first, second)
            if not holds and not as_bool:
                continue
            result = float(holds) if as_bool else first
        name_goes = symbol in ARITHMETIC or as_bool
        combined = matching.result_labels(labels, partner[0], drop_name=name_goes)
        _note_match(matched, signature, combined, matching)
        out.append((combined, result))
    return unique(out)


def _note_match(matched: dict[Labels, set[Labels]], signature: Labels, labels: Labels, matching: Matching) -> None:
    before = matched.get(signature)
    if before is None:
        matched[signature] = {labels}
    elif matching.card == "one-to-one":
        raise EvaluationError(
            "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)"
        )
    elif labels in before:
        raise EvaluationError("multiple matches for labels: grouping labels must ensure unique matches")
    else:
        before.add(labels)


def set_operation(symbol: str, left: Vector, right: Vector, matching: Matching) -> Vector:
    """``and``, ``or``, ``unless``."""
    if symbol == "or":
        there = _signatures(left, matching)
        return unique([*left, *(element for element in right if matching.signature(element[0]) not in there)])
    there = _signatures(right, matching)
    wanted = symbol == "and"
    return unique([element for element in left if (matching.signature(element[0]) in there) is wanted])


def _signatures(vector: Sequence[tuple[Labels, float]], matching: Matching) -> set[Labels]:
    return {matching.signature(labels) for labels, _ in vector}
