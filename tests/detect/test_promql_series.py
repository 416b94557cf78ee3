from __future__ import annotations

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from agent.detect.promql import compile_expr
from agent.detect.series import SeriesStore


def seen(store: SeriesStore, name: str, t: float) -> list[float]:
    return [value for _, value in compile_expr(name).evaluate(store, t)]


def test_points_out_of_order_are_refused_and_counted() -> None:
    store = SeriesStore()
    store.append("x", {}, 10.0, 1.0)
    store.append("x", {}, 9.0, 2.0)
    assert (seen(store, "x", 20.0), store.refused) == ([1.0], 1)


def test_a_point_at_the_same_time_replaces_the_one_before() -> None:
    store = SeriesStore()
    store.append("x", {}, 10.0, 1.0)
    store.append("x", {}, 10.0, 2.0)
    assert (seen(store, "x", 20.0), store.refused) == ([2.0], 0)


def test_labels_come_in_any_order_and_empty_ones_do_not_exist() -> None:
    store = SeriesStore()
    store.append("x", {"a": "1", "b": "2"}, 10.0, 1.0)
    store.append("x", {"b": "2", "a": "1", "c": ""}, 20.0, 2.0)
    assert len(store) == 1
    assert seen(store, 'x{c=""}', 20.0) == [2.0]


def test_a_marker_ends_everything_that_bears_the_labels() -> None:
    store = SeriesStore()
    for engine in ("0", "1"):
        store.append("x", {"server": "a", "engine_index": engine}, 10.0, 1.0)
    store.append("x", {"server": "b"}, 10.0, 5.0)
    store.mark_stale({"server": "a"}, 20.0)
    store.mark_stale({"server": "a"}, 25.0)
    assert seen(store, "x", 30.0) == [5.0]
    assert [len(series) for series in store.series("x")] == [2, 2, 1]


def test_memory_is_bounded_in_time_points_and_series() -> None:
    store = SeriesStore(retention=100.0, max_points=50, max_series=3)
    for step in range(5000):
        store.append("x", {}, step * 1.0, float(step))
    (series,) = store.series("x")
    assert len(series) <= 50 + 256
    assert seen(store, "max_over_time(x[30s])", 4999.0) == [4999.0]
    for number in range(10):
        store.append("y", {"n": str(number)}, 5000.0, 1.0)
    assert (len(store), store.refused) == (3, 8)


def test_series_that_are_no_longer_fed_are_forgotten() -> None:
    store = SeriesStore(retention=100.0)
    store.append("old", {}, 0.0, 1.0)
    for step in range(200):
        store.append("new", {}, step * 10.0, 1.0)
    assert [dict(series.labels)["__name__"] for series in store.series()] == ["new"]
    assert list(store.series("old")) == []


POINTS = st.lists(
    st.tuples(st.integers(0, 200), st.sampled_from(("1", "2")), st.none() | st.floats(allow_nan=False)), max_size=30
)


@given(POINTS)
def test_a_snapshot_brings_back_the_same_answers(points: list[tuple[int, str, float | None]]) -> None:
    store = SeriesStore()
    for t, label, value in sorted(points, key=lambda point: point[0]):
        if value is None:
            store.mark_stale({"n": label}, float(t))
        else:
            store.append("x", {"n": label}, float(t), value)
    again = SeriesStore()
    again.restore(json.loads(json.dumps(store.snapshot())))
    for expression in ("x", "sum_over_time(x[40s])", "count(x)"):
        for t in (0.0, 55.0, 130.0, 300.0):
            one, other = (compile_expr(expression).evaluate(which, t) for which in (store, again))
            assert [labels for labels, _ in one] == [labels for labels, _ in other]
            for (_, left), (_, right) in zip(one, other, strict=True):
                assert left == right or (math.isnan(left) and math.isnan(right))
    again.append("x", {"n": "1"}, 500.0, 1.0)
    assert len(again) <= len(store) + 1
