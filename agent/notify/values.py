"""What the planner works with: targets, limits, the plan it makes, how much was sent lately."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.notify.routing import RouteNode
from agent.store import OutboxRow, Page, StoredAlert
from integrations.base import Traits

__all__ = ["Group", "Plan", "Rules", "Sent", "Target"]

STORM_WINDOW = 60.0


@dataclass(frozen=True, slots=True)
class Target:
    """One destination of a receiver: ``oncall/pagerduty``. ``retired``: the configuration no longer has it, but
    somebody there still waits to hear that an alert is over."""

    id: str
    receiver: str
    kind: str
    traits: Traits
    send_resolved: bool = True
    wants_changes: bool = False
    max_age: float | None = None
    retired: bool = False


@dataclass(frozen=True, slots=True)
class Rules:
    """Limits on what is sent, and what every alert carries."""

    storm_limit: int = 20
    flap_window: float = 3600.0
    flap_limit: int = 3
    external_labels: Mapping[str, str] = field(default_factory=dict)
    observe: bool = False


@dataclass(slots=True)
class Plan:
    """What is to be committed. Rows name new pages by their place in ``pages``: see Store.commit."""

    pages: list[Page] = field(default_factory=list)
    rows: list[OutboxRow] = field(default_factory=list)
    planned: list[int] = field(default_factory=list)
    drop: list[int] = field(default_factory=list)
    suppressed: Counter[str] = field(default_factory=Counter)
    orphans: list[Page] = field(default_factory=list)
    next_at: float | None = None

    def at(self, moment: float) -> None:
        """Something will have to be decided by then."""
        self.next_at = moment if self.next_at is None else min(self.next_at, moment)

    def __bool__(self) -> bool:
        return bool(self.pages or self.rows or self.planned or self.drop)


@dataclass(slots=True)
class Group:
    """Alerts of one group that wait for their first message to one target."""

    target: Target
    node: RouteNode
    labels: dict[str, str]
    key: str
    first: float
    alerts: list[StoredAlert] = field(default_factory=list)

    @property
    def urgent(self) -> bool:
        return any(item.alert.severity == "critical" for item in self.alerts)


class Sent:
    """Messages to each target within the last minute."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._times: dict[str, deque[float]] = {}

    def room(self, target: str, now: float) -> int:
        """How many more may go now."""
        return self._limit - len(self._recent(target, now))

    def free_at(self, target: str, now: float) -> float:
        """When there will be room again."""
        recent = self._recent(target, now)
        return recent[0] + STORM_WINDOW if recent else now

    def spend(self, target: str, now: float) -> None:
        self._recent(target, now).append(now)

    def _recent(self, target: str, now: float) -> deque[float]:
        sent = self._times.setdefault(target, deque())
        while sent and sent[0] <= now - STORM_WINDOW:
            sent.popleft()
        return sent
