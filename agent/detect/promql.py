"""Conditions in PromQL over the store of signals: compiled once, evaluated at an instant.

The text is parsed by the ``promql-parser`` package; what is supported gives the answer of Prometheus 2.42, so that a
condition can move to a fleet's own Prometheus unchanged, and everything else is refused when rules are loaded:
subqueries, ``@``, ``topk``, ``count_values``, strings, native histograms and what newer versions have added.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Final, Literal

import promql_parser

from agent.detect.promql_functions import AGGREGATIONS, INSTANT_FUNCTIONS, RANGE_FUNCTIONS, Window
from agent.detect.promql_match import (
    SET_OPERATORS,
    EvaluationError,
    Matching,
    Vector,
    combine,
    combine_scalars,
    combine_with_scalar,
    set_operation,
    unique,
    without_name,
)
from agent.detect.promql_math import NAN
from agent.detect.promql_select import LabelTest, label_test, labels_of_absent, selected
from agent.detect.promql_text import MAX_DEPTH, ExprError, check_text, did_you_mean, syntax_error
from agent.detect.series import LOOKBACK, METRIC_NAME, Labels, SeriesStore
from agent.model import SIGNALS

__all__ = ["MAX_LOOKBACK", "EvaluationError", "Expr", "ExprError", "check_expr", "compile_expr"]

MAX_LOOKBACK: Final = 3600.0
"""Seconds of the past that a condition may speak of: what the store of the daemon keeps."""


class _Moment:
    """One evaluation: the store and the instant in milliseconds."""

    __slots__ = ("now", "store")

    def __init__(self, store: SeriesStore, now: int) -> None:
        self.store = store
        self.now = now


_Scalar = Callable[[_Moment], float]
_Instant = Callable[[_Moment], Vector]
_Node = tuple[Literal["scalar"], _Scalar] | tuple[Literal["vector"], _Instant]


class Expr:
    """A compiled expression. ``lookback``: the farthest it looks into the past, seconds (staleness not counted)."""

    __slots__ = ("_node", "lookback", "metrics", "text")

    def __init__(self, text: str, node: _Node, lookback: float, metrics: frozenset[str]) -> None:
        self.text = text
        self.lookback = lookback
        self.metrics = metrics
        self._node = node

    @property
    def is_scalar(self) -> bool:
        """A bare number, which a rule of Prometheus takes for "always"."""
        return self._node[0] == "scalar"

    def evaluate(self, store: SeriesStore, t: float) -> list[tuple[Mapping[str, str], float]]:
        """The instant vector at ``t`` (Unix seconds); a number is one element without labels. Raises
        :class:`EvaluationError` where Prometheus has no answer either."""
        return [(dict(labels), value) for labels, value in self._vector(store, t)]

    def _vector(self, store: SeriesStore, t: float) -> Vector:
        moment = _Moment(store, round(t * 1000))
        if self._node[0] == "scalar":
            return [((), self._node[1](moment))]
        return self._node[1](moment)

    def holds(self, store: SeriesStore, t: float, labels: Mapping[str, str]) -> bool:
        """Whether an element, whatever its value, speaks of the one who has these ``labels``.

        As in an alerting rule of Prometheus any element counts; a label that the element has not is no obstacle (a
        number of the whole server speaks of each replica). No answer (see :meth:`evaluate`) is no.
        """
        try:
            vector = self._vector(store, t)
        except EvaluationError:
            return False
        return any(all(labels.get(name, value) == value for name, value in element) for element, _ in vector)

    def __repr__(self) -> str:
        return f"Expr({self.text!r})"


def compile_expr(text: str, *, signals: frozenset[str] | None = None) -> Expr:
    """Raises :class:`ExprError`. ``signals``: names that may be spoken of (None: any)."""
    check_text(text)
    try:
        tree = promql_parser.parse(text)
    except ValueError as error:
        raise syntax_error(text, str(error), FUNCTIONS) from None
    compiler = _Compiler(text, signals)
    node = compiler.compile(tree, 0)
    if compiler.lookback > MAX_LOOKBACK:
        raise ExprError(
            f"looks back {compiler.lookback:g} s; only the last {MAX_LOOKBACK:g} s are kept, use a shorter range or "
            "offset"
        )
    return Expr(text, node, compiler.lookback, frozenset(compiler.metrics))


def check_expr(text: str) -> list[str]:
    """What is wrong with a rule's condition, as sentences; empty when nothing is."""
    try:
        expression = compile_expr(text, signals=frozenset(SIGNALS))
    except ExprError as error:
        return [str(error)]
    if expression.is_scalar:
        return ["is a bare number, and a number always holds; compare a signal with something, without bool"]
    return []


# --- the compiler ----------------------------------------------------------------------------------------------------

FUNCTIONS: Final = (
    *RANGE_FUNCTIONS,
    *INSTANT_FUNCTIONS,
    *("absent", "absent_over_time", "scalar", "vector", "time", "timestamp"),
)
_NUMBERED: Final = {"quantile_over_time": 0, "predict_linear": 1}
"""Range functions with a number beside the range, and the place of that number."""


class _Compiler:
    """Makes a function of each node of the tree; collects what the expression speaks of."""

    def __init__(self, text: str, signals: frozenset[str] | None) -> None:
        self._text = text
        self._signals = signals
        self.lookback = 0.0
        self.metrics: set[str] = set()

    def compile(self, node: Any, depth: int) -> _Node:
        if depth > MAX_DEPTH:
            raise ExprError(f"is nested more than {MAX_DEPTH} levels deep")
        match node:
            case promql_parser.ParenExpr():
                return self.compile(node.expr, depth + 1)
            case promql_parser.NumberLiteral():
                number = float(node.val)
                return "scalar", lambda moment: number
            case promql_parser.VectorSelector():
                return "vector", self._selector(node)
            case promql_parser.UnaryExpr():
                return self._minus(node, depth)
            case promql_parser.BinaryExpr():
                return self._binary(node, depth)
            case promql_parser.AggregateExpr():
                return "vector", self._aggregate(node, depth)
            case promql_parser.Call():
                return self._call(node, depth)
            case promql_parser.MatrixSelector():
                raise self._error("a range belongs into a function, as in rate(x[5m])", "[")
            case promql_parser.SubqueryExpr():
                raise self._error("subqueries are not supported here; evaluate over a signal itself", ":")
            case promql_parser.StringLiteral():
                raise self._error("a text is no condition", '"')
            case _:
                raise ExprError(f"{type(node).__name__} is not supported here")

    def _error(self, message: str, word: str) -> ExprError:
        place = re.search(rf"(?<!\w){re.escape(word)}(?!\w)" if word[0].isalpha() else re.escape(word), self._text)
        return ExprError(message, place.start() if place else None)

    def _scalar(self, node: Any, depth: int) -> _Scalar:
        compiled = self.compile(node, depth + 1)
        if compiled[0] != "scalar":
            raise ExprError("a number is needed where a vector stands; scalar() makes one of it")
        return compiled[1]

    def _instant(self, node: Any, depth: int) -> _Instant:
        compiled = self.compile(node, depth + 1)
        if compiled[0] != "vector":
            raise ExprError("a vector is needed where a number stands; vector() makes one of it")
        return compiled[1]

    # selectors

    def _matchers(self, node: Any) -> tuple[str, list[LabelTest]]:
        if node.matchers.or_matchers:
            raise self._error("'or' between label matchers is not supported here", "or")
        tests = [label_test(matcher) for matcher in node.matchers.matchers]
        name = node.name or ""
        for test in tests:
            if test.name == METRIC_NAME and test.kind == "=" and not name:
                name = test.value
        if not name and self._signals is not None:
            raise ExprError('every selector must name its signal, as in requests_waiting{engine_index="0"}')
        if name:
            self.metrics.add(name)
            if self._signals is not None and name not in self._signals:
                hint = did_you_mean(name, self._signals)
                raise self._error(f"{name!r} is no signal{hint}", name)
        return name, [test for test in tests if not (test.name == METRIC_NAME and test.value == name)]

    def _window(self, node: Any, range_: timedelta | None) -> int:
        """The offset in milliseconds; notes how far back that looks."""
        if node.at is not None:
            raise self._error("the @ modifier is not supported here", "@")
        offset = node.offset or timedelta()
        reach = offset + (range_ or timedelta())
        self.lookback = max(self.lookback, reach.total_seconds())
        return _milliseconds(offset)

    def _selector(self, node: Any, *, stamped: bool = False) -> _Instant:
        """Instant selector; with ``stamped`` the value is the time of the point."""
        name, tests = self._matchers(node)
        offset = self._window(node, None)
        lookback = round(LOOKBACK * 1000)

        def select(moment: _Moment) -> Vector:
            out: Vector = []
            for series in selected(moment.store, name, tests):
                point = series.at(moment.now - offset, lookback)
                if point is not None:
                    out.append((series.labels, point[0] / 1000 if stamped else point[1]))
            return out

        return select

    # operators

    def _minus(self, node: Any, depth: int) -> _Node:
        compiled = self.compile(node.expr, depth + 1)
        if compiled[0] == "scalar":
            scalar = compiled[1]
            return "scalar", lambda moment: -scalar(moment)
        vector = compiled[1]
        return "vector", lambda moment: unique([(without_name(labels), -value) for labels, value in vector(moment)])

    def _binary(self, node: Any, depth: int) -> _Node:
        symbol = str(node.op).strip()
        modifier = node.modifier
        as_bool = bool(modifier is not None and modifier.return_bool)
        left, right = self.compile(node.lhs, depth + 1), self.compile(node.rhs, depth + 1)
        if symbol == "atan2":
            raise self._error("atan2 is not supported here", "atan2")
        if modifier is not None and modifier.fill_values is not None and _has_fill(modifier.fill_values):
            raise self._error("fill modifiers are not supported here", "fill")
        matching = _matching(modifier)
        if left[0] == "scalar" and right[0] == "scalar":
            one, other = left[1], right[1]
            return "scalar", lambda moment: combine_scalars(symbol, one(moment), other(moment))
        if left[0] == "vector" and right[0] == "vector":
            many, more = left[1], right[1]
            if symbol in SET_OPERATORS:
                return "vector", lambda moment: set_operation(symbol, many(moment), more(moment), matching)
            return "vector", lambda moment: combine(symbol, many(moment), more(moment), matching, as_bool=as_bool)
        if left[0] == "vector" and right[0] == "scalar":
            vector, number, swapped = left[1], right[1], False
        elif left[0] == "scalar" and right[0] == "vector":
            vector, number, swapped = right[1], left[1], True
        else:  # pragma: no cover  # the four cases above are all there are
            raise ExprError(f"{symbol} does not fit its operands")
        if symbol in SET_OPERATORS:
            raise self._error(f"{symbol!r} stands between vectors; vector() makes one of a number", symbol)
        return "vector", lambda moment: unique(
            combine_with_scalar(symbol, vector(moment), number(moment), swapped=swapped, as_bool=as_bool)
        )

    def _aggregate(self, node: Any, depth: int) -> _Instant:
        name = str(node.op).strip()
        function = AGGREGATIONS.get(name)
        if function is None:
            raise self._error(f"{name} is not supported here; use one of {', '.join(AGGREGATIONS)}", name)
        vector = self._instant(node.expr, depth)
        parameter = self._scalar(node.param, depth) if node.param is not None else None
        modifier = node.modifier
        without = modifier is not None and modifier.type == promql_parser.AggModifierType.Without
        chosen = frozenset(modifier.labels if modifier is not None else ())

        def key(labels: Labels) -> Labels:
            if without:
                return tuple(pair for pair in labels if pair[0] not in chosen and pair[0] != METRIC_NAME)
            return tuple(pair for pair in labels if pair[0] in chosen)

        def aggregate(moment: _Moment) -> Vector:
            groups: dict[Labels, list[float]] = {}
            for labels, value in vector(moment):
                groups.setdefault(key(labels), []).append(value)
            number = parameter(moment) if parameter is not None else NAN
            return [(labels, function(values, number)) for labels, values in groups.items()]

        return aggregate

    # functions

    def _call(self, node: Any, depth: int) -> _Node:
        name = node.func.name
        arguments = [_unwrapped(argument) for argument in node.args]
        if name in RANGE_FUNCTIONS or name == "absent_over_time":
            return "vector", self._range_call(name, arguments, depth)
        if name in INSTANT_FUNCTIONS:
            return "vector", self._instant_call(name, arguments, depth)
        match name:
            case "time":
                return "scalar", lambda moment: moment.now / 1000
            case "scalar":
                one = self._instant(arguments[0], depth)
                return "scalar", lambda moment: _only(one(moment))
            case "vector":
                number = self._scalar(arguments[0], depth)
                nobody: Labels = ()
                return "vector", lambda moment: [(nobody, number(moment))]
            case "timestamp":
                return "vector", self._timestamp(arguments[0], depth)
            case "absent":
                vector = self._instant(arguments[0], depth)
                labels = labels_of_absent(arguments[0])
                return "vector", lambda moment: [] if vector(moment) else [(labels, 1.0)]
        raise self._error(f"{name}() is not supported here", name)

    def _timestamp(self, node: Any, depth: int) -> _Instant:
        if isinstance(node, promql_parser.VectorSelector):
            vector = self._selector(node, stamped=True)
            return lambda moment: unique([(without_name(labels), value) for labels, value in vector(moment)])
        computed = self._instant(node, depth)
        return lambda moment: unique([(without_name(labels), moment.now / 1000) for labels, _ in computed(moment)])

    def _instant_call(self, name: str, arguments: list[Any], depth: int) -> _Instant:
        function = INSTANT_FUNCTIONS[name]
        vector = self._instant(arguments[0], depth)
        numbers = [self._scalar(argument, depth) for argument in arguments[1:]]

        def call(moment: _Moment) -> Vector:
            given = [number(moment) for number in numbers]
            out: Vector = []
            for labels, value in vector(moment):
                result = function(value, *given)
                if result is not None:
                    out.append((without_name(labels), result))
            return unique(out)

        return call

    def _range_call(self, name: str, arguments: list[Any], depth: int) -> _Instant:
        place = _NUMBERED.get(name)
        scalars = [] if place is None else [self._scalar(arguments.pop(place), depth)]
        matrix = arguments[0]
        if not isinstance(matrix, promql_parser.MatrixSelector):
            raise self._error("subqueries are not supported here; evaluate over a signal itself", name)
        selector = matrix.vector_selector
        metric, tests = self._matchers(selector)
        offset, width = self._window(selector, matrix.range), _milliseconds(matrix.range)

        def windows(moment: _Moment) -> Iterator[tuple[Labels, Window]]:
            numbers = [scalar(moment) for scalar in scalars]
            end = moment.now - offset
            for series in selected(moment.store, metric, tests):
                times, values = series.between(end - width, end)
                if times:
                    yield series.labels, Window(times, values, end - width, end, moment.now, numbers)

        if name == "absent_over_time":
            labels_when_absent = labels_of_absent(selector)
            return lambda moment: [] if any(True for _ in windows(moment)) else [(labels_when_absent, 1.0)]
        function = RANGE_FUNCTIONS[name]
        keep_name = name == "last_over_time"

        def call(moment: _Moment) -> Vector:
            out: Vector = []
            for labels, window in windows(moment):
                result = function(window)
                if result is not None:
                    out.append((labels if keep_name else without_name(labels), result))
            return unique(out)

        return call


def _milliseconds(span: timedelta) -> int:
    return span // timedelta(milliseconds=1)


def _unwrapped(node: Any) -> Any:
    while isinstance(node, promql_parser.ParenExpr):
        node = node.expr
    return node


def _only(vector: Vector) -> float:
    return vector[0][1] if len(vector) == 1 else NAN


def _has_fill(values: Any) -> bool:
    return values.lhs is not None or values.rhs is not None


def _matching(modifier: Any) -> Matching:
    if modifier is None:
        return Matching()
    labels = modifier.matching
    card = modifier.card
    cards = promql_parser.VectorMatchCardinality
    return Matching(
        on=labels is not None and labels.type == promql_parser.LabelModifierType.Include,
        labels=frozenset(labels.labels if labels is not None else ()),
        card="many-to-one" if card == cards.ManyToOne else "one-to-many" if card == cards.OneToMany else "one-to-one",
        include=tuple(modifier.group_labels or ()),
    )
