"""The rows of the store as values, and how they are written and read back."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from agent.model import Alert
from agent.redact import redact, redact_json

__all__ = [
    "OutboxRow",
    "OutboxState",
    "Page",
    "Silence",
    "StoredAlert",
    "dump",
    "outbox_row",
    "page_row",
    "put_alert",
    "put_outbox",
    "put_page",
    "silence_row",
    "silence_values",
    "stored_alert",
]

OutboxState = Literal["pending", "sending", "sent", "dead", "dropped"]


@dataclass(frozen=True, slots=True)
class StoredAlert:
    """An alert as last committed. ``id`` names the episode: the same alert firing again later has a new one."""

    id: int
    alert: Alert
    opened: float
    updated: float
    closed: float | None
    planned: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """What one receiver knows of one or more alerts that it was told of together: a Slack message with its thread,
    a PagerDuty alert, a mail conversation.

    ``key`` is the dedup key, stable for the page's life. ``body`` is the dispatcher's bookkeeping (members and what
    was said of them), ``ref`` what the receiver handed back (a message's timestamp and channel). ``id`` 0: not stored
    yet. Rows of the outbox name a new page by its position: see :meth:`Store.commit`.
    """

    receiver: str
    key: str
    group_key: str
    opened: float
    updated: float
    body: Mapping[str, Any]
    state: Literal["open", "closed", "undelivered"] = "open"
    closed: float | None = None
    ref: Mapping[str, Any] = field(default_factory=dict)
    id: int = 0


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """One notification on its way to one receiver. ``page`` is a page's id, or -1, -2, ... for the first, second, ...
    page of the same commit. ``uncertain``: an earlier attempt may have arrived (it was cut off before the answer)."""

    receiver: str
    page: int
    action: str
    body: Mapping[str, Any]
    created: float
    priority: int = 1
    next_at: float = 0.0
    state: OutboxState = "pending"
    attempts: int = 0
    degraded: int = 0
    uncertain: bool = False
    finished: float | None = None
    last_error: str = ""
    id: int = 0


@dataclass(frozen=True, slots=True)
class Silence:
    """Alerts that match every matcher (Alertmanager's notation) are not notified between the two times.

    ``source`` is ``mute`` for our own, ``maintenance`` or ``alertmanager:<host>`` for those read back from there."""

    id: str
    matchers: tuple[str, ...]
    starts_at: float
    ends_at: float
    comment: str = ""
    created_by: str = ""
    source: str = "mute"


def put_alert(db: sqlite3.Connection, alert: Alert, now: float) -> None:
    closed = (alert.ends_at if alert.ends_at is not None else now) if alert.state == "resolved" else None
    fired = alert.fired_at is not None
    body = dump(alert.to_json(context=True))
    row = db.execute(
        "SELECT id, closed FROM alerts WHERE fingerprint = ? ORDER BY id DESC LIMIT 1", (alert.fingerprint,)
    ).fetchone()
    # A second "resolved" of a closed episode only refreshes it; anything else after a close is a new episode.
    if row is not None and (row["closed"] is None or closed is not None):
        db.execute(
            "UPDATE alerts SET state = ?, updated = ?, closed = ?, fired = fired OR ?, body = ? WHERE id = ?",
            (alert.state, now, closed, fired, body, row["id"]),
        )
    else:
        db.execute(
            "INSERT INTO alerts(fingerprint, state, opened, updated, closed, fired, body) VALUES(?, ?, ?, ?, ?, ?, ?)",
            (alert.fingerprint, alert.state, now, now, closed, fired, body),
        )


def put_page(db: sqlite3.Connection, page: Page) -> int:
    body = dump(redact_json(page.body))
    if page.id > 0:
        db.execute(
            "UPDATE pages SET state = ?, updated = ?, closed = ?, body = ? WHERE id = ?",
            (page.state, page.updated, page.closed, body, page.id),
        )
        return page.id
    cursor = db.execute(
        "INSERT INTO pages(receiver, key, group_key, state, opened, updated, closed, body, ref) "
        "VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            page.receiver,
            page.key,
            page.group_key,
            page.state,
            page.opened,
            page.updated,
            page.closed,
            body,
            dump(dict(page.ref)),
        ),
    )
    return int(cursor.lastrowid or 0)


def put_outbox(db: sqlite3.Connection, row: OutboxRow, page: int) -> None:
    db.execute(
        "INSERT INTO outbox(receiver, page, action, priority, state, created, next_at, body) "
        "VALUES(?, ?, ?, ?, ?, ?, ?, ?)",
        (
            row.receiver,
            page,
            row.action,
            row.priority,
            row.state,
            row.created,
            row.next_at,
            dump(redact_json(row.body)),
        ),
    )


def stored_alert(row: sqlite3.Row) -> StoredAlert:
    return StoredAlert(
        id=row["id"],
        alert=Alert.from_json(json.loads(row["body"])),
        opened=row["opened"],
        updated=row["updated"],
        closed=row["closed"],
        planned=bool(row["planned"]),
    )


def page_row(row: sqlite3.Row) -> Page:
    return Page(
        id=row["id"],
        receiver=row["receiver"],
        key=row["key"],
        group_key=row["group_key"],
        state=row["state"],
        opened=row["opened"],
        updated=row["updated"],
        closed=row["closed"],
        body=json.loads(row["body"]),
        ref=json.loads(row["ref"]),
    )


def outbox_row(row: sqlite3.Row) -> OutboxRow:
    return OutboxRow(
        id=row["id"],
        receiver=row["receiver"],
        page=row["page"],
        action=row["action"],
        priority=row["priority"],
        state=row["state"],
        created=row["created"],
        next_at=row["next_at"],
        attempts=row["attempts"],
        degraded=row["degraded"],
        uncertain=bool(row["uncertain"]),
        finished=row["finished"],
        last_error=row["last_error"],
        body=json.loads(row["body"]),
    )


def silence_row(row: sqlite3.Row) -> Silence:
    return Silence(
        id=row["id"],
        matchers=tuple(json.loads(row["matchers"])),
        starts_at=row["starts_at"],
        ends_at=row["ends_at"],
        comment=row["comment"],
        created_by=row["created_by"],
        source=row["source"],
    )


def silence_values(silence: Silence) -> tuple[Any, ...]:
    return (
        silence.id,
        silence.source,
        dump(list(silence.matchers)),
        silence.starts_at,
        silence.ends_at,
        redact(silence.created_by),
        redact(silence.comment),
    )


def dump(value: Any) -> str:
    # NaN and infinities are no JSON; Python reads its own spelling back, and nobody else reads this database.
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))
