"""Durations read as Prometheus reads them, and what people write instead gets told what to write."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.schema import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10s", 10.0),
        ("1h30m", 5400.0),
        ("500ms", 0.5),
        ("1d2h3m4s5ms", 93784.005),
        ("2w", 1209600.0),
        ("1y", 31536000.0),
        ("0", 0.0),
        ("0s", 0.0),
        (" 5m ", 300.0),
    ],
)
def test_a_duration_is_read_as_prometheus_reads_it(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("5", "write for example 5s"),
        ("5.5", "write for example 5s"),
        ("1.5h", "write 1h30m"),
        ("0.5s", "write 500ms"),
        ("1:30", "for example 1m30s"),
        ("10 seconds", "write 10s"),
        ("5 Minutes", "write 5m"),
        ("30m1h", "for example 10s, 5m or 1h30m"),
        ("-5s", "for example"),
        ("", "for example"),
        ("9" * 40 + "s", "longer than any duration"),
        ("1h 30m", "for example"),
    ],
)
def test_anything_else_is_refused_with_what_to_write(text: str, advice: str) -> None:
    with pytest.raises(ValueError, match=r"duration|unit|fraction") as caught:
        parse_duration(text)
    assert advice in str(caught.value)


@given(st.integers(min_value=0, max_value=10**10))
def test_what_is_printed_is_read_back(millis: int) -> None:
    assert parse_duration(format_duration(millis / 1000)) == millis / 1000


def test_printed_durations_are_short() -> None:
    assert [format_duration(s) for s in (0, 0.25, 60, 3661, 90061, -5)] == [
        "0s",
        "250ms",
        "1m",
        "1h1m1s",
        "1d1h1m1s",
        "-5s",
    ]
