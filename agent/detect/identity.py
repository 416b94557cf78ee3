"""What identifies an alert: its labels and its fingerprint. They hold nothing that changes while it is open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agent.detect.verdict import Verdict
from agent.model import CRITICAL_FAMILIES, FAILURE_FAMILY, Alert, alert_fingerprint
from agent.rules.templates import render

__all__ = ["Identity"]


@dataclass(frozen=True, slots=True)
class Identity:
    """The labels of one server's alerts: ``external`` go on every alert of the daemon, ``labels`` are the server's."""

    server: str
    labels: Mapping[str, str]
    external: Mapping[str, str]

    def fingerprint(self, verdict: Verdict, instance: str) -> str:
        """One incident for each engine whatever its failure turns out to be, and one alert for each warning's rule."""
        critical = FAILURE_FAMILY.get(verdict.rule.failure, "degraded") in CRITICAL_FAMILIES
        parts = {"server": self.server, **self.external, "alert": "incident" if critical else verdict.rule.alert}
        if instance:
            parts["engine_index"] = instance
        return alert_fingerprint(**parts)

    def label(self, verdict: Verdict, engine: str, instance: str, current: Alert | None) -> dict[str, str]:
        """All labels. ``instance`` is empty for an only engine; ``current`` is the alert as it is open already."""
        out = {
            **self.external,
            **self.labels,
            **self._of_rule(verdict, engine, instance, current),
            "alertname": verdict.rule.alert,
            "failure": verdict.rule.failure,
            "severity": verdict.rule.severity,
            "server": self.server,
            "engine": engine,
        }
        if instance:
            out["engine_index"] = instance
        if verdict.match is not None and verdict.match.rank:
            out["rank"] = verdict.match.rank
        return out

    def _of_rule(self, verdict: Verdict, engine: str, instance: str, current: Alert | None) -> dict[str, str]:
        """The rule's own labels. A template is filled once: labels identify, an open alert keeps what it began with."""
        rule, match = verdict.rule, verdict.match
        known = current.labels if current is not None and current.alertname == rule.alert else {}
        values = {
            "server": self.server,
            "engine": engine,
            "engine_index": instance,
            "rank": match.rank if match is not None else "",
            "alertname": rule.alert,
            "failure": rule.failure,
            "severity": rule.severity,
            "fields": match.fields if match is not None else {},
            "labels": {**self.external, **self.labels},
        }
        return {
            name: known.get(name, render(text, values)) if "{{" in text else text
            for name, text in rule.labels.items()
            if text
        }
