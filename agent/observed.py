"""What would have paged: the report of a first week with ``--observe``, and of what did page without it.

Made from the store, so it spans restarts; nothing is kept for it but the moment at which observing began.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from agent.model import CRITICAL_FAMILIES, Alert, parse_rfc3339
from agent.store import Store, StoredAlert
from agent.web.view import Observed, ObservedAlert
from integrations.text import clip, duration, one_line

__all__ = ["observed", "observing_since", "report_text"]

_MOST: Final = 5000
_LISTED: Final = 100
"""Alerts that are listed, the newest; all are counted."""


def observing_since(store: Store, now: float, *, observe: bool) -> float:
    """When observing began, over restarts; begins anew after a run that did not only observe.

    A whole second: most logs stamp no finer, and a line of this very second may have been written after us.
    """
    now = float(int(now))
    kept = store.load_state("observe") or {}
    if observe and "since" in kept:
        return float(kept["since"])
    if observe or kept:
        store.commit(named_state={"observe": {"since": now} if observe else {}})
    return now


def observed(
    store: Store, since: float, now: float, *, observe: bool, told: Callable[[Alert], Sequence[str]]
) -> Observed:
    """Alerts that fired since then. ``told`` gives the receivers that the routes lead an alert to."""
    found = [item for item in store.alerts(since=since, limit=_MOST) if _counts(item, since)]
    found.sort(key=lambda item: item.alert.fired_at or 0.0, reverse=True)
    pages = sum(item.alert.family in CRITICAL_FAMILIES for item in found)
    return Observed(
        observe=observe,
        since=since,
        until=now,
        pages=pages,
        warnings=len(found) - pages,
        by_failure=dict(Counter(item.alert.failure for item in found).most_common()),
        alerts=tuple(_listed(item.alert, told(item.alert)) for item in found[:_LISTED]),
    )


def _counts(item: StoredAlert, since: float) -> bool:
    alert = item.alert
    return alert.fired_at is not None and alert.fired_at >= since and not alert.context.get("self")


def _listed(alert: Alert, receivers: Sequence[str]) -> ObservedAlert:
    return ObservedAlert(
        alertname=alert.alertname,
        failure=alert.failure,
        severity=alert.severity,
        confidence=alert.confidence,
        server=alert.server,
        fired=alert.fired_at or alert.starts_at,
        ended=alert.ends_at,
        receivers=tuple(receivers),
        summary=alert.annotations.get("summary", ""),
    )


def report_text(report: Mapping[str, Any], width: int = 100) -> str:
    """The report (the JSON form of :class:`Observed`) for people; whatever others wrote is cleaned of escape codes."""
    observe, alerts = bool(report["observe"]), report["alerts"]
    span = duration(parse_rfc3339(report["until"]) - parse_rfc3339(report["since"]))
    if not alerts:
        return f"In {span}: nothing fired, so no page {'would have been' if observe else 'was'} sent.\n"
    pages, warnings = _number(int(report["pages"]), "page"), _number(int(report["warnings"]), "warning")
    lines = [f"In {span}: {pages} and {warnings} {'would have been' if observe else 'were'} sent."]
    lines.append("  " + ", ".join(f"{one_line(name)} {count}" for name, count in report["by_failure"].items()))
    for item in alerts:
        ended = item["ended"]
        lasted = duration(parse_rfc3339(ended) - parse_rfc3339(item["fired"])) if ended else "still open"
        kind = "page" if item["severity"] == "critical" else "warning"
        failure = one_line(item["failure"]).replace("_", " ")
        to = ", ".join(one_line(name) for name in item["receivers"]) or "nobody, for want of a route"
        text = f"  {item['fired'][:19]}  {kind:8}{one_line(item['server'])}: {failure} ({item['confidence']})"
        lines.append(clip(f"{text}, {lasted}; to {to}", width))
    left = int(report["pages"]) + int(report["warnings"]) - len(alerts)
    if left > 0:
        lines.append(f"  and {left} more")
    return "\n".join(lines) + "\n"


def _number(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
