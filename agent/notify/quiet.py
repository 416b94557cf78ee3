"""Why an alert that fires is not sent now: a mute, maintenance, a quiet hour of its route, a worse alert that says it.

All of it is decided anew at each look: when the reason ends and the alert still fires, it goes out.
"""

from __future__ import annotations

import calendar
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from typing import Literal, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from agent.config.matchers import LabelMatcher, all_match
from agent.config.routing import InhibitRule, Maintenance, TimeInterval, TimeWindow
from agent.config.times import DayRange, parse_clock, parse_moment
from agent.model import CRITICAL_FAMILIES, Alert
from agent.notify.routing import RouteNode, matching_labels, parse_all
from agent.store import Silence

_T = TypeVar("_T")

__all__ = ["Inhibitor", "Quiet", "Reason", "inside"]

Reason = Literal["", "silence", "maintenance", "inhibited"]


def inside(interval: TimeInterval, timestamp: float) -> bool:
    """Whether a moment lies in one of the windows of a named interval."""
    return any(_in_window(window, timestamp) for window in interval.time_intervals)


def _in_window(window: TimeWindow, timestamp: float) -> bool:
    moment = datetime.fromtimestamp(timestamp, _zone(window.location))
    minute = moment.hour * 60 + moment.minute
    last = calendar.monthrange(moment.year, moment.month)[1]
    weekday = (moment.weekday() + 1) % 7  # Sunday is 0
    return (
        _any(window.times, lambda span: parse_clock(span.start_time) <= minute < parse_clock(span.end_time))
        and _any(window.weekdays, lambda text: _within("weekdays", text, weekday))
        and _any(window.days_of_month, lambda text: _day_of_month(text, moment.day, last))
        and _any(window.months, lambda text: _within("months", text, moment.month))
        and _any(window.years, lambda text: _within("years", text, moment.year))
    )


def _any(items: Sequence[_T], test: Callable[[_T], bool]) -> bool:
    """Nothing given means no limit."""
    return not items or any(test(item) for item in items)


def _within(kind: str, text: str, value: int) -> bool:
    days = DayRange.parse(kind, text)
    return days.first <= value <= days.last


def _day_of_month(text: str, day: int, last: int) -> bool:
    days = DayRange.parse("days_of_month", text)
    first = days.first if days.first > 0 else last + 1 + days.first
    end = days.last if days.last > 0 else last + 1 + days.last
    return max(1, first) <= day <= min(last, end)


@lru_cache(maxsize=64)
def _zone(name: str) -> tzinfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):  # checked at load; a machine without zone data falls back
        return UTC


class Inhibitor:
    """While a source alert fires its targets are silent. Without rules in the configuration one holds: an alert of a
    stalled or dead server silences the warnings of that same server (or replica)."""

    def __init__(self, rules: Sequence[InhibitRule]) -> None:
        self._rules = [(parse_all(rule.source_matchers), parse_all(rule.target_matchers), rule.equal) for rule in rules]

    def silent(self, alert: Alert, firing: Iterable[Alert]) -> bool:
        """Whether another firing alert speaks for this one."""
        others = [other for other in firing if other.fingerprint != alert.fingerprint]
        if not self._rules:
            return any(_speaks_for(other, alert) for other in others)
        labels = matching_labels(alert)
        for source, target, equal in self._rules:
            if not all_match(target, labels):
                continue
            both = all_match(source, labels)  # an alert that is source and target is not silenced by its like
            for other in others:
                theirs = matching_labels(other)
                if not all_match(source, theirs) or (both and all_match(target, theirs)):
                    continue
                if all(labels.get(name, "") == theirs.get(name, "") for name in equal):
                    return True
        return False


def _speaks_for(worse: Alert, milder: Alert) -> bool:
    return (
        worse.family in CRITICAL_FAMILIES
        and milder.family not in CRITICAL_FAMILIES
        and worse.server == milder.server
        and worse.labels.get("engine_index", "") == milder.labels.get("engine_index", "")
    )


@dataclass(frozen=True)
class Quiet:
    """All reasons of one moment."""

    silences: tuple[tuple[tuple[LabelMatcher, ...], Silence], ...] = ()
    maintenance: tuple[tuple[tuple[LabelMatcher, ...], float, float], ...] = ()
    intervals: Mapping[str, TimeInterval] | None = None

    @classmethod
    def of(
        cls, silences: Sequence[Silence], maintenance: Sequence[Maintenance], intervals: Sequence[TimeInterval]
    ) -> Quiet:
        return cls(
            tuple((parse_all(silence.matchers), silence) for silence in silences if silence.matchers),
            tuple(
                (parse_all(work.matchers), parse_moment(work.start), parse_moment(work.end))
                for work in maintenance
                if work.matchers
            ),
            {interval.name: interval for interval in intervals},
        )

    def reason(self, alert: Alert, now: float) -> Reason:
        """Why nobody is told of this alert now; empty when they are."""
        labels = matching_labels(alert)
        for matchers, silence in self.silences:
            if silence.starts_at <= now < silence.ends_at and all_match(matchers, labels):
                return "maintenance" if silence.source == "maintenance" else "silence"
        for matchers, start, end in self.maintenance:
            if start <= now < end and all_match(matchers, labels):
                return "maintenance"
        return ""

    def route_open(self, node: RouteNode, now: float) -> bool:
        """Whether a route is awake."""
        known = self.intervals or {}
        if any(name in known and inside(known[name], now) for name in node.mute):
            return False
        return not node.active or any(name in known and inside(known[name], now) for name in node.active)
