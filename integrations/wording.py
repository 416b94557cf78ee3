"""The first line of every message: what is broken, where, for how long, within sixty characters.

A phone's lock screen, a PagerDuty call and a subject line show that much and no more. So the headline is ours by
construction; a rule's own summary stands below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from agent.model import CRITICAL_FAMILIES, FAILURE_FAMILY, Alert
from integrations.limits import Text
from integrations.text import clip, clip_middle, duration, number, one_line

__all__ = ["elapsed", "group_headline", "headline", "phrase", "place", "verdict", "worst_first"]

_PHRASES: Final = {
    "token_budget_deadlock": "scheduler deadlocked",
    "kv_cache_deadlock": "KV cache deadlocked",
    "request_never_fits": "queue blocked",
    "preemption_livelock": "preemption livelock",
    "transfer_stall": "KV transfer stalled",
    "collective_hang": "collective hung",
    "device_hang": "GPU hung",
    "lost_replies": "replies lost",
    "silent_stall": "stalled, no cause logged",
    "engine_dead": "engine dead",
    "out_of_memory": "out of memory",
    "crash": "crashed",
    "startup_failure": "start failed",
    "overload": "overloaded",
    "assertion_recovered": "assertion, recovered",
    "slow_start": "slow to start",
    "config_risk": "risky configuration",
    "early_warning": "close to a stall",
    "training_fault": "training fault",
}
_VERDICTS: Final = {
    "token_budget_deadlock": "token-budget deadlock",
    "kv_cache_deadlock": "KV-cache deadlock",
    "request_never_fits": "request that never fits",
    "silent_stall": "silent stall",
    "lost_replies": "lost replies",
    "out_of_memory": "out of memory",
}
_SEVERITY_ORDER: Final = {"critical": 0, "error": 1, "warning": 2, "info": 3}
_LONGEST_BELIEVABLE: Final = 30 * 86400.0


def phrase(alert: Alert) -> str:
    """What is broken, in at most 24 characters: ``scheduler deadlocked``."""
    known = _PHRASES.get(alert.failure)
    return known or clip(one_line(alert.failure or alert.alertname).replace("_", " "), 24) or "alert"


def verdict(alert: Alert) -> str:
    """The failure's name as a noun, with how sure we are."""
    name = _VERDICTS.get(alert.failure) or one_line(alert.failure).replace("_", " ")
    sure = {
        "confirmed": "confirmed",
        "probable": "probable: not confirmed by signals",
        "suspected": "suspected",
    }.get(alert.confidence, alert.confidence)
    return f"{clip(name, 60)} ({sure})"


def place(alert: Alert) -> str:
    """The server, with its replica or rank when it has several."""
    name = one_line(alert.server) or "server"
    labels = alert.labels
    if labels.get("engine_index"):
        return f"{name} replica {one_line(labels['engine_index'])}"
    if labels.get("rank"):
        return f"{name} rank {one_line(labels['rank'])}"
    if alert.context.get("self") and labels.get("receiver"):
        return f"{name} to {one_line(labels['receiver'])}"
    return name


def elapsed(alert: Alert, now: float) -> float:
    """Seconds since the onset; for a resolved alert how long it lasted."""
    if alert.state == "resolved" and alert.ends_at is not None:
        return max(0.0, alert.ends_at - alert.starts_at)
    since = now - alert.starts_at
    told = alert.context.get("stalled_for")
    if isinstance(told, int | float) and not 0 <= since <= _LONGEST_BELIEVABLE:
        return max(0.0, float(told))
    return max(0.0, since)


def headline(alert: Alert, now: float) -> str:
    """``trtllm-0: scheduler deadlocked, no completions for 2m10s (214 waiting)``.

    What stands in brackets is all that may lie past the sixtieth character."""
    what, span, where = phrase(alert), duration(elapsed(alert, now)), place(alert)
    if alert.state == "resolved":
        forms = [f": recovered after {span}, was {what}", f": recovered after {span}"]
    elif alert.family == "stalled":
        forms = [f": {what}, no completions for {span}", f": {what} for {span}"]
    elif alert.failure in {"assertion_recovered", "config_risk"}:
        forms = [f": {what}, {span} ago", f": {what}"]
    else:
        forms = [f": {what} for {span}"]
    room = Text.TITLE_HEAD
    form = next((form for form in forms if len(where) + len(form) <= room), forms[-1])
    line = clip_middle(where, max(12, room - len(form))) + form
    waiting = alert.progress.requests_waiting
    if alert.state != "resolved" and waiting:
        line += f" ({number(waiting)} waiting)"
    return clip(line, Text.TITLE)


def group_headline(alerts: Sequence[Alert], now: float, fleet: int = 0) -> str:
    """One line for several alerts: ``3 of 8 servers: scheduler deadlocked for 2m10s: a, b, c``."""
    firing = [alert for alert in alerts if alert.state != "resolved"]
    told = worst_first(firing or alerts)
    if len(told) == 1 and len(alerts) == 1:
        return headline(told[0], now)
    places = list(dict.fromkeys(place(alert) for alert in told))
    servers = len({alert.server for alert in told})
    span = duration(max(elapsed(alert, now) for alert in told))
    count = f"{servers} of {fleet} servers" if fleet >= servers > 0 and fleet > 1 else _plural(servers, "server")
    if not firing:
        what = f"recovered after {span}, was {phrase(told[0])}"
    elif len({alert.failure for alert in told}) == 1:
        what = f"{phrase(told[0])} for {span}"
    else:
        what = f"{_plural(len(told), 'alert')}, {phrase(told[0])} for {span}"
    over = len(alerts) - len(firing)
    note = f" ({over} recovered)" if firing and over else ""
    return clip(f"{count}: {what}{note}: {', '.join(places)}", Text.TITLE)


def worst_first(alerts: Sequence[Alert]) -> list[Alert]:
    """Firing before resolved, critical before warning, confirmed before probable, then by time."""
    sure = {"confirmed": 0, "probable": 1, "suspected": 2}
    return sorted(
        alerts,
        key=lambda alert: (
            alert.state == "resolved",
            _SEVERITY_ORDER.get(alert.severity, 2),
            FAILURE_FAMILY.get(alert.failure, "degraded") not in CRITICAL_FAMILIES,
            sure.get(alert.confidence, 3),
            alert.starts_at,
            alert.server,
        ),
    )


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
