"""A small store of series in memory, for conditions over the recent past.

Looks like Prometheus from the outside (https://prometheus.io/docs/prometheus/latest/querying/basics/#staleness): an
instant sees the newest point that is not older than five minutes, unless a stale marker says that the series ended.
Bounded three ways: by age, by points of one series, and by the number of series.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

__all__ = ["LOOKBACK", "Labels", "Series", "SeriesStore", "make_labels"]

Labels = tuple[tuple[str, str], ...]
"""Label pairs sorted by name, the metric's name under ``__name__``; a label with an empty value does not exist."""

LOOKBACK: Final = 300.0
"""Seconds for which a point stands for its series."""
METRIC_NAME: Final = "__name__"

_TRIM: Final = 256
"""Points that are dropped from a series at once, so that trimming costs nothing per point."""


def make_labels(labels: Mapping[str, str], name: str = "") -> Labels:
    """Label pairs in the form in which the store keeps them."""
    pairs = {key: value for key, value in labels.items() if value}
    if name:
        pairs[METRIC_NAME] = name
    return tuple(sorted(pairs.items()))


class Series:
    """The points of one series in time order; times are whole milliseconds."""

    __slots__ = ("_keys", "_values", "labels")

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        # twice the time in milliseconds, plus one for a stale marker: one array says both, and still sorts by time
        self._keys = array("q")
        self._values = array("d")

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def newest(self) -> int | None:
        """Time of the last point or marker."""
        return self._keys[-1] >> 1 if self._keys else None

    def append(self, time: int, value: float, *, stale: bool = False) -> bool:
        """Adds a point at the end; one at the time of the last replaces it, an older one is refused (False)."""
        if self._keys:
            last = self._keys[-1] >> 1
            if time < last:
                return False
            if time == last:
                del self._keys[-1], self._values[-1]
        self._keys.append(time * 2 + stale)
        self._values.append(value)
        return True

    def is_stale(self) -> bool:
        """Whether the series ended with a stale marker."""
        return bool(self._keys) and bool(self._keys[-1] & 1)

    def at(self, time: int, lookback: int) -> tuple[int, float] | None:
        """The point that stands at ``time``: the newest, no older than ``lookback``; None when that is a marker."""
        index = bisect_right(self._keys, time * 2 + 1) - 1
        if index < 0:
            return None
        key = self._keys[index]
        if key & 1 or key >> 1 < time - lookback:
            return None
        return key >> 1, self._values[index]

    def between(self, first: int, last: int) -> tuple[list[int], list[float]]:
        """Times and values of the points from ``first`` to ``last``, both included, markers left out."""
        start = bisect_left(self._keys, first * 2)
        end = bisect_right(self._keys, last * 2 + 1)
        keys, values = self._keys[start:end], self._values[start:end]
        if any(key & 1 for key in keys):
            pairs = [(key >> 1, value) for key, value in zip(keys, values, strict=True) if not key & 1]
            return [time for time, _ in pairs], [value for _, value in pairs]
        return [key >> 1 for key in keys], values.tolist()

    def drop_before(self, time: int, most: int) -> None:
        """Forgets points older than ``time`` and beyond the ``most`` newest; in batches."""
        old = max(bisect_left(self._keys, time * 2), len(self._keys) - most)
        if old >= _TRIM or old == len(self._keys):
            del self._keys[:old], self._values[:old]

    def dump(self) -> tuple[list[int], list[float]]:
        return self._keys.tolist(), self._values.tolist()

    def load(self, keys: Iterable[int], values: Iterable[float]) -> None:
        self._keys, self._values = array("q", keys), array("d", values)


class SeriesStore:
    """Series by name and labels, in the order in which they first came.

    ``retention``: seconds of history that can be asked for. ``max_points`` and ``max_series`` bound what hostile or
    wrong input can make of it; points that were refused are counted in ``refused``.
    """

    def __init__(self, retention: float = 3600.0, *, max_points: int = 20_000, max_series: int = 20_000) -> None:
        self._retention = round((retention + LOOKBACK) * 1000)
        self._max_points = max_points
        self._max_series = max_series
        self._series: dict[Labels, Series] = {}
        self._by_name: dict[str, dict[Labels, Series]] = {}
        self._known: dict[tuple[object, ...], Series] = {}  # by labels as given: sorting them at each point costs more
        self._newest = 0
        self._swept = 0
        self.refused = 0

    def __len__(self) -> int:
        return len(self._series)

    def append(self, name: str, labels: Mapping[str, str], timestamp: float, value: float) -> None:
        """One point of the series ``name{labels}`` at ``timestamp`` (Unix seconds)."""
        known = (name, *labels.items())
        series = self._known.get(known)
        if series is None:
            series = self._open(make_labels(labels, name), name)
            if series is not None:
                self._known[known] = series
        time = round(timestamp * 1000)
        if series is None or not series.append(time, value):
            self.refused += 1
            return
        self._advance(time)
        series.drop_before(self._newest - self._retention, self._max_points)

    def mark_stale(self, labels: Mapping[str, str], timestamp: float) -> None:
        """Ends every series that bears these labels (and perhaps more): what fed them is gone."""
        time = round(timestamp * 1000)
        wanted = make_labels(labels)
        for series in self._series.values():
            if not series.is_stale() and all(pair in series.labels for pair in wanted):
                series.append(time, 0.0, stale=True)
        self._advance(time)

    def series(self, name: str = "") -> Iterator[Series]:
        """The series of a metric name, or all."""
        return iter((self._by_name.get(name, {}) if name else self._series).values())

    def _open(self, labels: Labels, name: str) -> Series | None:
        series = self._series.get(labels)
        if series is None:
            if len(self._series) >= self._max_series:
                return None
            series = Series(labels)
            self._series[labels] = series
            self._by_name.setdefault(name, {})[labels] = series
        return series

    def _advance(self, time: int) -> None:
        self._newest = max(self._newest, time)
        if self._newest - self._swept > self._retention:
            self._swept = self._newest
            self._sweep(self._newest - self._retention)

    def _sweep(self, oldest: int) -> None:
        """Forgets series that have not been fed for the whole retention."""
        self._known.clear()
        for labels, series in list(self._series.items()):
            newest = series.newest
            if newest is None or newest < oldest:
                del self._series[labels]
                name = dict(labels).get(METRIC_NAME, "")
                self._by_name[name].pop(labels)
                if not self._by_name[name]:
                    del self._by_name[name]

    def snapshot(self) -> dict[str, Any]:
        """Everything as values that JSON can carry (numbers beyond the finite as Python's json writes them)."""
        return {"series": [[list(map(list, series.labels)), *series.dump()] for series in self._series.values()]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Puts a :meth:`snapshot` back in place of what is here. Raises KeyError, TypeError or ValueError on others."""
        self._series.clear()
        self._by_name.clear()
        self._known.clear()
        self._newest = self._swept = 0
        for pairs, keys, values in state["series"]:
            labels = tuple(sorted((str(name), str(value)) for name, value in pairs))
            series = self._open(labels, dict(labels).get(METRIC_NAME, ""))
            if series is not None and len(keys) == len(values):
                series.load(keys, values)
                self._newest = max(self._newest, series.newest or 0)
        self._swept = self._newest
