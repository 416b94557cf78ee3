"""A page's bookkeeping: who is in it, what was said of them, under which key."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from agent.model import Alert
from agent.store import OutboxRow, Page, StoredAlert
from integrations.limits import PagerDuty, Text
from integrations.wording import worst_first

__all__ = ["closed_page", "digest", "key_for", "members_of", "new_page", "row", "snapshot"]

_PRIORITY: Final = {"critical": 0, "error": 1}


def new_page(
    target: str,
    key: str,
    group_key: str,
    now: float,
    *,
    group_labels: Mapping[str, str],
    members: Mapping[str, str],
    interval: float = 60.0,
    repeat: float = 4 * 3600.0,
) -> Page:
    """A page about to be opened."""
    body = {
        "members": dict(members),
        "group_labels": dict(group_labels),
        "interval": interval,
        "repeat": repeat,
        "seq": 0,
    }
    return Page(target, key, group_key, now, now, body)


def closed_page(page: Page, now: float) -> Page:
    return replace(page, state="closed", closed=now, updated=now)


def members_of(page: Page) -> dict[str, str]:
    """Fingerprint -> what was last said of it."""
    members = page.body.get("members")
    return dict(members) if isinstance(members, Mapping) else {}


def digest(alert: Alert, firing: Mapping[str, StoredAlert]) -> str:
    """What of an alert is news when it changes. Numbers are not: they change every second."""
    state = "firing" if alert.fingerprint in firing else "resolved"
    return f"{state}|{alert.confidence}|{alert.failure}|{alert.severity}"


def key_for(alerts: Sequence[Alert]) -> str:
    """The dedup key of a page: the same for the same alerts, on every start and after every reload.

    It rests on fingerprints, which neither severity nor a cause found later changes."""
    cluster = alerts[0].labels.get("cluster", "")
    if len(alerts) == 1:
        parts = ["wedgewatch", cluster, alerts[0].server, alerts[0].fingerprint]
    else:
        together = "\x00".join(sorted(alert.fingerprint for alert in alerts))
        parts = ["wedgewatch", cluster, f"{len(alerts)} alerts", hashlib.sha256(together.encode()).hexdigest()[:16]]
    key = "/".join(part for part in parts if part)
    if len(key) <= PagerDuty.DEDUP_KEY:
        return key
    return f"{key[: PagerDuty.DEDUP_KEY - 33]}/{hashlib.sha256(key.encode()).hexdigest()[:32]}"


def snapshot(alerts: Sequence[Alert]) -> list[dict[str, Any]]:
    """The alerts as a notification carries them; past the first twenty without lines and courses: nobody shows them."""
    found = []
    for index, alert in enumerate(worst_first(alerts)):
        slim = alert if index < Text.ALERTS_LISTED else alert.with_(stages=(), context={})
        found.append(slim.to_json(context=True))
    return found


def row(
    pages: Sequence[Page], page: Page, action: str, body: Mapping[str, Any], now: float, alerts: Sequence[Alert]
) -> OutboxRow:
    """The outbox row of a page that was just appended to ``pages``."""
    priority = min((_PRIORITY.get(alert.severity, 1) for alert in alerts), default=2)
    return OutboxRow(page.receiver, page.id or -len(pages), action, body, now, priority=priority)
