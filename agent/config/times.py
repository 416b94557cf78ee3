"""Times of day, days and months as Alertmanager's time intervals write them.

https://prometheus.io/docs/alerting/latest/configuration/#time_interval
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from agent.model import parse_rfc3339
from agent.schema import did_you_mean

__all__ = ["DayRange", "parse_clock", "parse_moment"]

_WEEKDAYS: Final = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_MONTHS: Final = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)


def parse_clock(text: str) -> int:
    """Minutes since midnight of ``HH:MM``, up to ``24:00``. Raises ValueError with a sentence."""
    found = re.fullmatch(r"(\d\d):(\d\d)", text)
    if found is None or int(found[2]) > 59 or int(found[1]) * 60 + int(found[2]) > 24 * 60:
        raise ValueError(f"'{text[:40]}' is no time of day, write \"09:30\" in quotes")
    return int(found[1]) * 60 + int(found[2])


def parse_moment(text: str) -> float:
    """Unix seconds of an RFC 3339 time. Raises ValueError with a sentence."""
    try:
        return parse_rfc3339(text)
    except ValueError:
        raise ValueError(f"'{text[:40]}' is no time, write for example 2027-01-31T22:00:00Z") from None


@dataclass(frozen=True, slots=True)
class DayRange:
    """Whole numbers from ``first`` to ``last``. Days of a month may be negative: -1 is the last day."""

    first: int
    last: int

    @classmethod
    def parse(cls, kind: str, text: str) -> DayRange:
        """``monday:friday``, ``1:5``, ``-3:-1``, ``may``; ``kind`` is ``weekdays``, ``days_of_month``, ``months`` or
        ``years``. Raises ValueError with a sentence."""
        first, colon, last = text.strip().lower().partition(":")
        begin = _number(kind, first)
        end = _number(kind, last) if colon else begin
        if begin > end and (begin < 0) == (end < 0):
            raise ValueError(f"'{text[:40]}' ends before it begins")
        return cls(begin, end)


def _number(kind: str, text: str) -> int:
    if kind == "weekdays":
        return _name(text, _WEEKDAYS, 0)
    if kind == "months" and not text.isdigit():
        return _name(text, _MONTHS, 1)
    low, high = {"months": (1, 12), "days_of_month": (-31, 31), "years": (1970, 9999)}[kind]
    if not re.fullmatch(r"-?\d{1,4}", text) or not low <= int(text) <= high or int(text) == 0:
        raise ValueError(f"'{text[:40]}' is not a number from {low} to {high}")
    return int(text)


def _name(text: str, names: tuple[str, ...], offset: int) -> int:
    if text not in names:
        near = did_you_mean(text, names) or f", known: {', '.join(names)}"
        raise ValueError(f"unknown name '{text[:40]}'{near}")
    return names.index(text) + offset
