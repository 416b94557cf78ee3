"""The lesser troubles of one server: overload, a recovered assertion, a slow start, a risky configuration.

Each rule is an alert of its own for each engine, with Prometheus's life cycle: its condition must hold for ``for``, and
it goes on for ``keep_firing_for`` after that. A warning that still waits is not worth a line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from agent.detect.alerts import Finding, LiveAlert
from agent.detect.fingerprint import Match
from agent.detect.progress import ProgressTracker
from agent.detect.verdict import Verdict, contradicted
from agent.model import Alert, Confidence
from agent.rules.model import Rule

__all__ = ["WarningBook"]

_ONE_TIME: Final = 300.0
"""Seconds for which a warning about a single line stays up."""
_LESSER: Final = frozenset({"overload", "early_warning", "slow_start"})
"""Failures that say nothing new about an engine that is paged for."""

Describe = Callable[[Verdict, ProgressTracker, str, float, LiveAlert], Finding]
Holds = Callable[[Rule, str], bool]


class WarningBook:
    """The warnings of one server, by rule (its index) and engine. ``describe`` makes an alert of a verdict, ``holds``
    evaluates a rule's ``when`` for an engine."""

    def __init__(self, describe: Describe, holds: Holds) -> None:
        self._describe = describe
        self._holds = holds
        self._lives: dict[tuple[int, str], LiveAlert] = {}
        self._since: dict[tuple[int, str], float] = {}

    def judge(
        self,
        rules: Iterable[tuple[int, Rule]],
        instance: str,
        tracker: ProgressTracker,
        matches: Sequence[Match],
        now: float,
        *,
        paged: bool,
        inhibited: Callable[[Rule], bool],
    ) -> list[Alert]:
        """Transitions of the warnings about one engine. ``paged``: a page about it is open; ``inhibited``: another open
        alert says that this rule is to be silent."""
        out: list[Alert] = []
        for index, rule in rules:
            key = (index, instance)
            live = self._lives.get(key)
            match = next((m for m in matches if m.rule is rule), None)
            since = self._condition(rule, match, tracker, instance, now)
            if since is None:
                self._since.pop(key, None)
                if live is not None and live.open:
                    if rule.progress and live.firing and not tracker.sees(now):
                        live.blind()  # blindness is not recovery
                    else:
                        out += live.clear(now)
                continue
            if live is None:
                live = self._lives[key] = LiveAlert()
            since = self._since.setdefault(key, since)
            if not live.open:
                if now < since + rule.for_seconds:
                    continue
                cooling = live.resolved_at is not None and now < live.resolved_at + rule.cooldown
                if cooling or (paged and rule.failure in _LESSER) or inhibited(rule):
                    continue
            verdict = Verdict(rule, match, None, _confidence(rule), since, since + rule.for_seconds)
            out += live.hold(self._describe(verdict, tracker, instance, now, live), now)
        return out

    def _condition(
        self, rule: Rule, match: Match | None, tracker: ProgressTracker, instance: str, now: float
    ) -> float | None:
        """Since when the condition of a rule holds, or None."""
        if rule.fingerprint is not None:
            if match is None or now < match.decided or now - match.completed > max(rule.keep_firing_for, _ONE_TIME):
                return None
            if rule.progress == "serving" and not contradicted(match, tracker):
                return None
            if rule.progress not in ("", "serving") and tracker.state != rule.progress:
                return None
            since = match.completed
        elif rule.progress == "serving":
            if tracker.state not in ("serving", "saturated"):
                return None
            since = tracker.state_since or now
        elif rule.progress:
            if tracker.state != rule.progress:
                return None
            since = tracker.state_since or now
        else:
            since = now
        return since if self._holds(rule, instance) else None

    def open_alerts(self) -> list[Alert]:
        """Every warning that is up."""
        return [live.current for live in self._lives.values() if live.current is not None]

    def times(self, rules: Sequence[Rule]) -> list[float]:
        """Event times at which waiting alone changes a warning."""
        out: list[float] = []
        for (index, instance), live in self._lives.items():
            if live.current is not None and live.healthy_since is not None:
                out.append(live.healthy_since + live.keep_firing_for)
            since = self._since.get((index, instance))
            if since is not None and not live.firing:
                out.append(since + rules[index].for_seconds)
        return out

    def line_times(self, rules: Sequence[Rule]) -> list[float]:
        """The same for warnings that rest on lines already seen, which run on at the end of input."""
        return [
            since + rules[index].for_seconds
            for (index, instance), since in self._since.items()
            if rules[index].fingerprint is not None and not self._lives[(index, instance)].firing
        ]

    def snapshot(self, names: Sequence[str]) -> list[Any]:
        """State as JSON-able values, by the name of the rule."""
        return [
            [names[index], instance, live.snapshot(), self._since.get((index, instance))]
            for (index, instance), live in self._lives.items()
            if live.open or live.resolved_at is not None
        ]

    def restore(self, data: Iterable[Any], by_name: Mapping[str, int]) -> None:
        """Inverse of :meth:`snapshot`; state of rules that are gone is dropped."""
        for name, instance, value, since in data:
            if name in by_name:
                key = (by_name[name], instance)
                self._lives[key] = LiveAlert()
                self._lives[key].restore(value)
                if since is not None:
                    self._since[key] = since


def _confidence(rule: Rule) -> Confidence:
    """A warning that signals had a say in is confirmed; one of lines alone is probable."""
    return "confirmed" if rule.progress or rule.when else "probable"
