"""Conditions in PromQL: what they answer, what is refused and how that is said.

Whether the answers are Prometheus's is for test_promql_parity.py and bench/promql_parity.py.
"""

from __future__ import annotations

import math
import subprocess
import sys

import pytest

from agent.detect.promql import EvaluationError, ExprError, check_expr, compile_expr
from agent.detect.series import SeriesStore


def store_of(**series: str | list[float]) -> SeriesStore:
    """Points every 10 s from 0; a key like ``running__0`` is the series running{engine_index="0"}."""
    store = SeriesStore()
    for key, values in series.items():
        name, _, index = key.partition("__")
        labels = {"server": "a", **({"engine_index": index} if index else {})}
        for step, value in enumerate(values):
            store.append(name, labels, step * 10.0, float(value))
    return store


def numbers(text: str, store: SeriesStore, t: float) -> list[float]:
    return [value for _, value in compile_expr(text).evaluate(store, t)]


#  time       0    10   20   30
#  waiting/0  0    0    3    5
#  waiting/1  0    0    0    0
#  finished/0 10   20   20   20
QUEUE = {
    "waiting__0": [0, 0, 3, 5],
    "waiting__1": [0, 0, 0, 0],
    "finished__0": [10, 20, 20, 20],
    "finished__1": [10, 20, 30, 40],
}


def test_a_condition_over_two_signals() -> None:
    condition = compile_expr("waiting > 0 and increase(finished[15s]) == 0")
    store = store_of(**QUEUE)
    replica = {"server": "a", "engine_index": "0"}
    assert not condition.holds(store, 15.0, replica)
    assert condition.holds(store, 30.0, replica)
    assert not condition.holds(store, 30.0, {"server": "a", "engine_index": "1"})
    assert condition.holds(store, 30.0, {"server": "a"})
    assert not condition.holds(store, 30.0, {"server": "b"})


def test_what_is_said_of_the_whole_server_holds_for_each_replica() -> None:
    store = store_of(limit=[5], length=[9])
    assert compile_expr("length > limit").holds(store, 5.0, {"server": "a", "engine_index": "3"})


def test_any_element_counts_whatever_its_value() -> None:
    # as in an alerting rule of Prometheus
    assert compile_expr("waiting").holds(store_of(waiting=[0]), 5.0, {"server": "a"})
    assert compile_expr("waiting > bool 5").holds(store_of(waiting=[0]), 5.0, {"server": "a"})
    assert not compile_expr("waiting > 5").holds(store_of(waiting=[0]), 5.0, {"server": "a"})


def test_a_point_stands_for_five_minutes_and_a_marker_ends_it() -> None:
    store = store_of(up=[1])
    assert numbers("up", store, 300.0) == [1]
    assert numbers("up", store, 300.001) == []
    store.mark_stale({"server": "a"}, 20.0)
    assert numbers("up", store, 19.9) == [1]
    assert numbers("up", store, 20.0) == []
    assert numbers("count_over_time(up[1m])", store, 20.0) == [1]
    store.append("up", {"server": "a"}, 30.0, 0.0)
    assert numbers("up", store, 30.0) == [0]


def test_a_rate_survives_a_reset_and_reaches_to_the_ends_of_its_range() -> None:
    store = store_of(tokens=[100, 200, 10, 110])
    assert numbers("increase(tokens[30s])", store, 30.0) == [210]
    assert numbers("rate(tokens[40s])", store, 35.0) == [pytest.approx(210 / 30 * 40 / 40)]
    assert numbers("rate(tokens[5s])", store, 30.0) == []


def test_failed_matching_is_an_error_and_never_holds() -> None:
    store = store_of(**QUEUE)
    condition = compile_expr("waiting / on(server) finished")
    with pytest.raises(EvaluationError, match="many-to-many matching not allowed"):
        condition.evaluate(store, 30.0)
    assert not condition.holds(store, 30.0, {"server": "a"})
    with pytest.raises(EvaluationError, match="same labelset"):
        compile_expr('abs({server="a"})').evaluate(store, 30.0)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 / 0", math.inf),
        ("-1 / 0", -math.inf),
        ("-1 / -0", math.inf),
        ("7 % -4", 3),
        ("-7 % 4", -3),
        ("2 ^ -2", 0.25),
        ("2 ^ 3 ^ 2", 512),
        ("-2 ^ 2", -4),
        ("10 ^ 400", math.inf),
        ("-10 ^ 401", -math.inf),
        ("(-10) ^ 401", -math.inf),
        ("10 ^ -400", 0),
        ("0 ^ -1", math.inf),
        ("(-2) ^ 0.5", math.nan),
        ("2 ^ 0.5", math.sqrt(2)),
        ("2 ^ -0.5", 1 / math.sqrt(2)),
        ("2 ^ 1.5", 2**1.5),
        ("1e300 ^ 1.5", math.inf),
        ("(-1) ^ 1e300", 1),
        ("0.5 ^ 1e300", 0),
        ("NaN ^ 0", 1),
        ("NaN ^ 1", math.nan),
        ("0 / 0", math.nan),
        ("5 % 0", math.nan),
        ("5 % Inf", 5),
        ("1 == bool 1", 1),
        ("NaN == bool NaN", 0),
        ("time()", 30),
        ("scalar(nothing)", math.nan),
        ("scalar(vector(3))", 3),
    ],
)
def test_numbers(text: str, value: float) -> None:
    (found,) = numbers(text, store_of(), 30.0)
    assert found == value or (math.isnan(found) and math.isnan(value))


def test_lookback_and_names_of_an_expression() -> None:
    expression = compile_expr("rate(a[5m] offset 1m) + max_over_time(b[30s]) > c")
    assert expression.lookback == 360
    assert expression.metrics == {"a", "b", "c"}
    assert not expression.is_scalar
    assert repr(expression) == "Expr('rate(a[5m] offset 1m) + max_over_time(b[30s]) > c')"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("requests_wating > 0", "'requests_wating' is no signal, did you mean requests_waiting? (at character 1)"),
        ("rat(up[5m])", "unknown function with name 'rat', did you mean rate? (at character 1)"),
        ("up = 0", "to compare write == (at character 4)"),
        ("up > 0 and", "operators, operands and brackets do not fit together"),
        ("rate(up)", "expected type matrix in call to function 'rate', got vector (at character 1)"),
        ("topk(3, up)", "topk is not supported here; use one of sum,"),
        ("max_over_time(up[5m:1m])", "subqueries are not supported here"),
        ("up[5m:1m]", "subqueries are not supported here"),
        ("up @ 5", "the @ modifier is not supported here (at character 4)"),
        ("up[5m]", "a range belongs into a function, as in rate(x[5m]) (at character 3)"),
        ("rate(up[2h])", "only the last 3600 s are kept"),
        ("rate(up[40m] offset 30m)", "looks back 4200 s"),
        ("1 > bool 0", "is a bare number"),
        ("up > 5m", "5m is a duration; a number of seconds is written without unit (at character 6)"),
        ("rate(up[5])", "'5' is no duration; write one as 30s, 5m or 1h30m (at character 9)"),
        ("up offset 5", "'5' is no duration"),
        ('up{server=~"(?i)x"}', "uses more than groups, classes and repetition"),
        ('up{server=~"[a--b]"}', "uses more than groups, classes and repetition"),
        ('up{server=~"a++"}', ""),
        ('up{server=~"("}', "illegal regex"),
        ('{server="a"}', "every selector must name its signal"),
        ('{__name__=~"u.*"}', "every selector must name its signal"),
        ("histogram_quantile(0.9, up)", "histogram_quantile() is not supported here (at character 1)"),
        ("exp(up)", "exp() is not supported here"),
        ('"up"', "a text is no condition"),
        ("up atan2 up", "atan2 is not supported here (at character 4)"),
        ('up{server="a" or server="b"}', "'or' between label matchers is not supported here"),
        ('up{"quoted label"="a"}', "is quoted"),
        ("up and 1", "not allowed"),
        ("", "no expression found"),
        ("(" * 70 + "1" + ")" * 70, "is nested more than 60 levels deep (at character 61)"),
        ("+".join(["up"] * 100), "is nested more than 60 levels deep"),
        ("-" * 1999 + "1", ""),
        ("up " * 1000, "is longer than 2000 characters"),
        ("up\x00", "unexpected character"),
    ],
)
def test_what_is_refused_is_explained(text: str, says: str) -> None:
    (fault,) = check_expr(text)
    assert says in fault


@pytest.mark.parametrize(
    "text",
    [
        "requests_waiting > 0",
        "requests_waiting > 0 and rate(generation_tokens_total[2m]) == 0",
        'sum by (server) (requests_running{engine_index=~"[0-3]|1\\\\d"}) > 4',
        "requests_running / on(server) group_left() max_running_requests > 0.9",
        "absent(up) or up == 0",
        "max_model_len_tokens > kv_cache_capacity_tokens",
        "up > 0 # a comment with [5] and 5m",
    ],
)
def test_what_is_supported_has_no_fault(text: str) -> None:
    assert check_expr(text) == []


def test_a_regular_expression_matches_the_whole_label() -> None:
    store = store_of(up__10=[1], up__1=[2])
    assert numbers('up{engine_index=~"1"}', store, 5.0) == [2]
    assert numbers('up{engine_index!~"1|2"}', store, 5.0) == [1]
    assert numbers('up{absent=~".*"}', store, 5.0) == [1, 2]
    assert numbers('up{engine_index=~"1.?"}', store, 5.0) == [1, 2]


def test_compiling_never_ends_the_process() -> None:
    # the parser recurses in native code; what would overflow its stack must not reach it
    code = (
        "from agent.detect.promql import compile_expr, ExprError\n"
        "for text in ('(' * 1000 + '1' + ')' * 1000, '-' * 2000 + '1', '+'.join(['1'] * 999), 'abs(' * 600,\n"
        "             'a' * 100000, '[' * 5000, 'a or ' * 399 + 'a', '1^' * 999 + '1', 'sum(' * 499 + 'a'):\n"
        "    try:\n"
        "        compile_expr(text)\n"
        "    except ExprError:\n"
        "        pass\n"
        "print('alive')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "alive\n", done.stderr


def test_compile_without_names_takes_any() -> None:
    assert compile_expr("anything > 0").metrics == {"anything"}
    with pytest.raises(ExprError, match="is no signal"):
        compile_expr("anything > 0", signals=frozenset({"something"}))
