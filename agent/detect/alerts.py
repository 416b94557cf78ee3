"""The life of an alert: pending -> firing -> resolved, as Prometheus has it, with a confidence that rises and falls.

:class:`LiveAlert` is the small state machine that every alert goes through; it turns "this is what we know now" into
the transitions that are printed, stored and delivered. It repeats nothing: a transition comes out only when state,
confidence or name changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from agent.model import Alert, AlertState, Confidence

__all__ = ["Finding", "LiveAlert"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What the evidence says now: an alert without its life cycle, and when it is due to fire.

    ``due`` is the event time from which the alert fires; ``alert`` carries name, failure and evidence; ``explain`` adds
    texts and numbers, and is only asked when the alert changes.
    """

    alert: Alert
    explain: Callable[[Alert], Alert]
    confidence: Confidence
    due: float
    keep_firing_for: float


class LiveAlert:
    """One alert by fingerprint, over its whole life and through later recurrences."""

    __slots__ = ("current", "healthy_since", "keep_firing_for", "resolved_at")

    def __init__(self) -> None:
        self.current: Alert | None = None
        self.healthy_since: float | None = None
        self.keep_firing_for = 60.0
        self.resolved_at: float | None = None

    @property
    def open(self) -> bool:
        return self.current is not None

    @property
    def firing(self) -> bool:
        return self.current is not None and self.current.state == "firing"

    def hold(self, finding: Finding, now: float) -> list[Alert]:
        """The trouble is there. Returns the transitions, none when nothing changed."""
        self.healthy_since = None
        before = self.current
        if before is None or before.state == "pending":
            state: AlertState = "firing" if now >= finding.due else "pending"
            fired_at = now if state == "firing" else None
            starts_at = min(finding.alert.starts_at, before.starts_at) if before else finding.alert.starts_at
        else:
            state, fired_at, starts_at = "firing", before.fired_at, before.starts_at
        self.keep_firing_for = finding.keep_firing_for
        after = replace(
            finding.alert,
            state=state,
            confidence=finding.confidence,
            starts_at=starts_at,
            fired_at=fired_at,
            ends_at=None,
        )
        if (
            before is not None
            and before.state == after.state
            and before.confidence == after.confidence
            and before.alertname == after.alertname
        ):
            return []
        self.current = finding.explain(after)
        return [self.current]

    def clear(self, now: float, *, at_once: bool = False, hold_for: float | None = None) -> list[Alert]:
        """The trouble is gone. A firing alert goes on for ``keep_firing_for`` (or ``hold_for``) seconds of health."""
        if self.current is None:
            return []
        if self.healthy_since is None:
            self.healthy_since = now
        hold = self.keep_firing_for if hold_for is None else hold_for
        if self.current.state == "firing" and not at_once and now < self.healthy_since + hold:
            return []
        ends_at = (
            now if self.current.state != "firing" or at_once else max(self.healthy_since + hold, self.current.starts_at)
        )
        done = replace(self.current, state="resolved", ends_at=ends_at)
        self.current, self.healthy_since, self.resolved_at = None, None, ends_at
        return [done]

    def blind(self) -> None:
        """Nothing is seen: health is not counted on, the alert stands."""
        self.healthy_since = None

    def next_time(self, due: float | None) -> float | None:
        """The event time at which waiting alone changes this alert."""
        if self.current is None:
            return due
        if self.current.state == "pending":
            return due
        return self.healthy_since + self.keep_firing_for if self.healthy_since is not None else None

    def snapshot(self) -> dict[str, Any]:
        return {
            "current": self.current.to_json(context=True) if self.current is not None else None,
            "healthy_since": self.healthy_since,
            "keep_firing_for": self.keep_firing_for,
            "resolved_at": self.resolved_at,
        }

    def restore(self, data: Mapping[str, Any]) -> None:
        current = data.get("current")
        self.current = Alert.from_json(current) if current else None
        self.healthy_since = data.get("healthy_since")
        self.keep_firing_for = data.get("keep_firing_for", 60.0)
        self.resolved_at = data.get("resolved_at")
