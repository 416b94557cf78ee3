"""Series in promtool's notation -> OpenMetrics text with timestamps.

``0+5x10`` is 0, 5, ... 50 (eleven values), ``7x3`` is 7 four times, ``_`` is no value, ``_x3`` none three times and
``stale`` ends a series: https://prometheus.io/docs/prometheus/latest/configuration/unit_testing_rules/#series
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

__all__ = ["expand_values", "to_openmetrics"]

MAX_VALUES: Final = 100_000
_NUMBER: Final = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|[-+]?[Ii]nf|NaN"
_TOKEN: Final = re.compile(
    rf"(?P<start>{_NUMBER})(?:(?P<step>[-+](?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?))?(?:x(?P<times>\d+))?"
)
_GAP: Final = re.compile(r"(?P<what>_|stale)(?:x(?P<times>\d+))?")
_SERIES: Final = re.compile(r"\s*(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?P<labels>\{.*\})?\s*", re.ASCII | re.DOTALL)


def expand_values(text: str) -> list[float | None]:
    """The values, None where there is none. Raises ValueError with a sentence."""
    values: list[float | None] = []
    for token in text.split():
        gap = _GAP.fullmatch(token)
        found = _TOKEN.fullmatch(token)
        if gap is not None:
            values.extend([None] * _bounded(gap["times"] or "1", values))
        elif found is None:
            raise ValueError(f"'{token[:40]}' is no value, write for example 7, 0+5x10, 3x4 or _")
        else:
            start, step = float(found["start"]), float(found["step"] or 0)
            if found["step"] and not found["times"]:
                raise ValueError(f"'{token[:40]}' says no times, write {token[:40]}x10")
            values.extend(start + step * index for index in range(_bounded(found["times"] or "0", values) + 1))
    if not values:
        raise ValueError("holds no value, write for example '0+5x10'")
    return values


def _bounded(times: str, values: list[float | None]) -> int:
    if len(times) > 9 or len(values) + int(times) >= MAX_VALUES:
        raise ValueError(f"is more than {MAX_VALUES} values")
    return int(times)


def to_openmetrics(series: Mapping[str, str] | Iterable[tuple[str, str]], *, start: float, interval: float) -> str:
    """Text that a scrape log would hold: one sample a line, ``start`` Unix seconds for the first value of each series.

    Raises ValueError with a sentence that names the series."""
    pairs = series.items() if isinstance(series, Mapping) else series
    lines: list[tuple[float, str]] = []
    for name, text in pairs:
        found = _SERIES.fullmatch(name)
        if found is None:
            raise ValueError(f"'{name[:60]}' is no series, write for example vllm:num_requests_running{{engine=\"0\"}}")
        try:
            values = expand_values(text)
        except ValueError as error:
            raise ValueError(f"{found['name']}: {error}") from None
        head = f"{found['name']}{found['labels'] or ''}"
        lines.extend(
            (start + index * interval, f"{head} {value:.17g} {start + index * interval:.3f}")
            for index, value in enumerate(values)
            if value is not None
        )
    lines.sort(key=lambda line: line[0])  # stable: series keep their order at one instant
    return "".join(f"{line}\n" for _, line in lines) + "# EOF\n"
