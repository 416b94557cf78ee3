"""Which receivers an alert goes to: Alertmanager's routing tree.

https://prometheus.io/docs/alerting/latest/configuration/#route
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from agent.config.matchers import LabelMatcher, all_match, parse_matchers
from agent.config.routing import Route
from agent.model import Alert

__all__ = ["DEFAULT_GROUP_BY", "RouteNode", "build_tree", "matching_labels", "parse_all"]

DEFAULT_GROUP_BY: Final = ("failure",)
"""One failure on many servers is one message."""
GROUP_WAIT: Final = 5.0
"""Shorter than Alertmanager's 30 s: a page in seconds is the point, and a cluster wedges within a few."""
GROUP_INTERVAL: Final = 60.0
REPEAT_INTERVAL: Final = 4 * 3600.0


@dataclass(frozen=True, slots=True)
class RouteNode:
    """A route with everything inherited filled in."""

    receiver: str
    matchers: tuple[LabelMatcher, ...]
    group_by: tuple[str, ...]
    group_wait: float
    group_interval: float
    repeat_interval: float
    mute: tuple[str, ...]
    active: tuple[str, ...]
    goes_on: bool
    children: tuple[RouteNode, ...]

    def match(self, labels: Mapping[str, str]) -> list[RouteNode]:
        """The routes that take an alert with these labels; the deepest of each branch, in order."""
        if not all_match(self.matchers, labels):
            return []
        found: list[RouteNode] = []
        for child in self.children:
            taken = child.match(labels)
            found += taken
            if taken and not child.goes_on:
                break
        return found or ([self] if self.receiver else [])

    def group_labels(self, labels: Mapping[str, str]) -> dict[str, str]:
        """The labels that an alert's group is made of; ``...`` in group_by stands for all of them."""
        names = sorted(labels) if "..." in self.group_by else self.group_by
        return {name: labels.get(name, "") for name in names}


def build_tree(route: Route | None) -> RouteNode | None:
    """The tree of a configuration; None when nothing is routed."""
    if route is None:
        return None
    root = RouteNode("", (), DEFAULT_GROUP_BY, GROUP_WAIT, GROUP_INTERVAL, REPEAT_INTERVAL, (), (), False, ())
    return _node(route, root)


def _node(route: Route, parent: RouteNode) -> RouteNode:
    def inherited(value: float | None, default: float) -> float:
        return default if value is None else float(value)

    own = RouteNode(
        receiver=route.receiver or parent.receiver,
        matchers=parse_all(route.matchers),
        group_by=parent.group_by if route.group_by is None else route.group_by,
        group_wait=inherited(route.group_wait, parent.group_wait),
        group_interval=inherited(route.group_interval, parent.group_interval),
        repeat_interval=inherited(route.repeat_interval, parent.repeat_interval),
        mute=route.mute_time_intervals,
        active=route.active_time_intervals,
        goes_on=route.continue_,
        children=(),
    )
    children = tuple(_node(child, own) for child in route.routes)
    return RouteNode(
        own.receiver,
        own.matchers,
        own.group_by,
        own.group_wait,
        own.group_interval,
        own.repeat_interval,
        own.mute,
        own.active,
        own.goes_on,
        children,
    )


def parse_all(texts: Sequence[str]) -> tuple[LabelMatcher, ...]:
    """Matchers of several texts; a text that is none matches nothing, so it is kept as an impossible one."""
    found: list[LabelMatcher] = []
    for text in texts:
        try:
            found += parse_matchers(text)
        except ValueError:  # the configuration's own check refuses these; from elsewhere they must not match all
            found.append(LabelMatcher("alertname", "=~", "(?!)"))
    return tuple(found)


def matching_labels(alert: Alert) -> dict[str, str]:
    """What matchers see of an alert: its labels and what identifies it."""
    return {
        **alert.labels,
        "alertname": alert.alertname,
        "failure": alert.failure,
        "family": alert.family,
        "severity": alert.severity,
        "server": alert.server,
        "engine": alert.engine,
        "confidence": alert.confidence,
    }
