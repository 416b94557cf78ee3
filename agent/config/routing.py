"""Who is told what and when; names and meaning are Alertmanager's."""

# ruff: noqa: RUF009  (the calls in defaults make dataclass fields, nothing is shared between instances)

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, Literal

from agent.config.fields import HOUR, items, matcher_faults, option, required, seconds
from agent.config.times import DayRange, parse_clock, parse_moment
from agent.model import Duration, Secret
from integrations.http import HttpConfig

__all__ = [
    "HeartbeatConfig",
    "InhibitRule",
    "Maintenance",
    "NotificationsConfig",
    "ReceiverConfig",
    "Route",
    "TimeInterval",
    "TimeRange",
    "TimeWindow",
]


@dataclass(frozen=True, kw_only=True)
class Route:
    """Which alerts go where; a tree, as in Alertmanager."""

    receiver: str = option("Name of a receiver; default: the parent's.", "")
    matchers: tuple[str, ...] = items('All must hold, for example severity="critical".')
    group_by: tuple[str, ...] | None = option(
        "Labels whose values put alerts into one message; default: the parent's.", None
    )
    group_wait: Duration | None = option("Wait for others of the group before the first message.", None)
    group_interval: Duration | None = option("Between messages about changes of a group.", None)
    repeat_interval: Duration | None = option("Between repeats of an unchanged message.", None)
    continue_: bool = field(
        default=False, metadata={"name": "continue", "doc": "Whether the routes after this one are tried too."}
    )
    mute_time_intervals: tuple[str, ...] = items("Names of time intervals in which it is silent.")
    active_time_intervals: tuple[str, ...] = items("Names of time intervals outside of which it is silent.")
    routes: tuple[Route, ...] = items("Tried in order; the first that matches takes the alert.")

    HINTS: ClassVar[Mapping[str, str]] = {
        "match": "write matchers: ['name=\"value\"']",
        "match_re": "write matchers: ['name=~\"regex\"']",
    }

    def check(self) -> Iterator[tuple[str, str]]:
        yield from matcher_faults("matchers", self.matchers)


@dataclass(frozen=True, kw_only=True)
class ReceiverConfig:
    """A named set of destinations; the keys ``..._configs`` come from the integrations."""

    name: str = required("Its name in routes.", nonempty=True)
    configs: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    EXTRA: ClassVar[str] = "configs"

    @classmethod
    def extra_fields(cls) -> Mapping[str, Any]:
        return _receiver_fields()

    def check(self) -> Iterator[tuple[str, str, str]]:
        if not any(self.configs.values()):
            yield "", f"receiver '{self.name}' sends nothing anywhere", "warning"


@cache
def _receiver_fields() -> Mapping[str, Any]:
    from integrations.registry import CONFIGS

    return {key: tuple[cls, ...] for key, cls in CONFIGS.items()}  # type: ignore[valid-type]  # a hint made at run time


@dataclass(frozen=True, kw_only=True)
class InhibitRule:
    """While an alert that matches ``source_matchers`` fires, those that match ``target_matchers`` are not sent."""

    source_matchers: tuple[str, ...] = items("The alert that speaks.")
    target_matchers: tuple[str, ...] = items("The alerts that are silent meanwhile.")
    equal: tuple[str, ...] = items("Labels in which both must agree.")

    def check(self) -> Iterator[tuple[str, str]]:
        yield from matcher_faults("source_matchers", self.source_matchers)
        yield from matcher_faults("target_matchers", self.target_matchers)
        if not self.source_matchers or not self.target_matchers:
            yield "", "wants both 'source_matchers' and 'target_matchers'"


@dataclass(frozen=True, kw_only=True)
class TimeRange:
    """From one time of day to another, ``"HH:MM"`` in quotes."""

    start_time: str = required('"HH:MM", in quotes.')
    end_time: str = required('"HH:MM", in quotes; "24:00" is the end of the day.')

    def check(self) -> Iterator[tuple[str, str]]:
        clock = []
        for name in ("start_time", "end_time"):
            try:
                clock.append(parse_clock(getattr(self, name)))
            except ValueError as error:
                yield name, str(error)
        if len(clock) == 2 and clock[0] >= clock[1]:
            yield "end_time", "is not after start_time; for a night write two ranges"


@dataclass(frozen=True, kw_only=True)
class TimeWindow:
    """A set of times; all that is given must hold."""

    times: tuple[TimeRange, ...] = items("Times of day.")
    weekdays: tuple[str, ...] = items("'monday' or 'monday:friday'.")
    days_of_month: tuple[str, ...] = items("'1', '1:5', '-3:-1'.")
    months: tuple[str, ...] = items("'january', '1:3'.")
    years: tuple[str, ...] = items("'2027', '2027:2029'.")
    location: str = option("Time zone.", "UTC")

    def check(self) -> Iterator[tuple[str, str]]:
        for name in ("weekdays", "days_of_month", "months", "years"):
            for index, text in enumerate(getattr(self, name)):
                try:
                    DayRange.parse(name, text)
                except ValueError as error:
                    yield f"{name}.{index}", str(error)


@dataclass(frozen=True, kw_only=True)
class TimeInterval:
    """Named times that routes refer to."""

    name: str = required("Its name in routes.", nonempty=True)
    time_intervals: tuple[TimeWindow, ...] = items("Any of these.")


@dataclass(frozen=True, kw_only=True)
class Maintenance:
    """A planned piece of work: alerts that match are recorded and shown, and not sent."""

    matchers: tuple[str, ...] = required("Which alerts.", nonempty=True)
    start: str = required("RFC 3339.")
    end: str = required("RFC 3339.")
    comment: str = option("Why.", "")

    def check(self) -> Iterator[tuple[str, str]]:
        yield from matcher_faults("matchers", self.matchers)
        moments = []
        for name in ("start", "end"):
            try:
                moments.append(parse_moment(getattr(self, name)))
            except ValueError as error:
                yield name, str(error)
        if len(moments) == 2 and moments[0] >= moments[1]:
            yield "end", "is not after start"


@dataclass(frozen=True, kw_only=True)
class HeartbeatConfig:
    """A ping that stops when we do (dead man's switch)."""

    url: Secret = required("Address that is asked at each interval.")
    interval: Duration = seconds(60, "Between two pings.", minimum=1)
    timeout: Duration = seconds(10, "Total time of one ping.", minimum=0.1)
    method: Literal["GET", "POST"] = option("How it is asked.", "GET")
    http_config: HttpConfig | None = option("Default: global.http_config.", None)


@dataclass(frozen=True, kw_only=True)
class NotificationsConfig:
    """Limits on what is sent, whatever the receiver."""

    storm_limit: int = option("Messages a minute and receiver; what is more is put together.", 20, minimum=1)
    flap_window: Duration = seconds(HOUR, "An alert that comes back within this counts as flapping.", minimum=0)
    flap_limit: int = option("How often it may come back before it is one message 'flapping'.", 3, minimum=1)
    self_alerts: bool = option("Whether wedgewatch's own troubles are alerts too.", True)
