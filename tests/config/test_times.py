"""Times of day and ranges of days, as Alertmanager's time intervals write them."""

from __future__ import annotations

import pytest

from agent.config.times import DayRange, parse_clock, parse_moment


def test_times_of_day() -> None:
    assert [parse_clock(text) for text in ("00:00", "09:30", "24:00")] == [0, 570, 1440]


@pytest.mark.parametrize("text", ["9:30", "24:01", "12:60", "noon", "", "0930"])
def test_other_texts_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="no time of day"):
        parse_clock(text)


@pytest.mark.parametrize(
    ("kind", "text", "first", "last"),
    [
        ("weekdays", "monday:friday", 1, 5),
        ("weekdays", "Sunday", 0, 0),
        ("days_of_month", "1:5", 1, 5),
        ("days_of_month", "-3:-1", -3, -1),
        ("days_of_month", "25:-1", 25, -1),
        ("months", "may:august", 5, 8),
        ("months", "12", 12, 12),
        ("years", "2027:2029", 2027, 2029),
    ],
)
def test_ranges(kind: str, text: str, first: int, last: int) -> None:
    assert DayRange.parse(kind, text) == DayRange(first, last)


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("weekdays", "mondy", "did you mean 'monday'?"),
        ("weekdays", "friday:monday", "ends before it begins"),
        ("days_of_month", "0", "is not a number from -31 to 31"),
        ("days_of_month", "32", "is not a number"),
        ("months", "13", "is not a number from 1 to 12"),
        ("years", "27", "is not a number"),
    ],
)
def test_ranges_that_are_none(kind: str, text: str, words: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        DayRange.parse(kind, text)
    assert words in str(caught.value)


def test_moments() -> None:
    assert parse_moment("2027-01-31T22:00:00Z") == 1801432800.0
    with pytest.raises(ValueError, match="write for example 2027"):
        parse_moment("tomorrow")
