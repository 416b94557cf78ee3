"""What must survive a crash: log offsets, the detector's state, alerts, notifications that still have to go out.

One SQLite database in the state folder. :meth:`Store.commit` writes offsets, detector state, alerts and outbox rows in
**one** transaction: however a process dies, either all that followed from a piece of log is there, or none of it and
that piece is read again. So nothing is lost between "matched" and "queued", and nothing is doubled.

A disk that is full, read-only or broken never stops the watching (see :mod:`agent.database`). Thread-safe: every
method takes one lock and does nothing slower than a local write. Text in alerts, pages and outbox rows is redacted on
its way in.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from agent.database import Database, StoreLocked, Table
from agent.model import Alert
from agent.redact import redact, redact_alert, redact_json
from agent.store_rows import (
    OutboxRow,
    OutboxState,
    Page,
    Silence,
    StoredAlert,
    dump,
    outbox_row,
    page_row,
    put_alert,
    put_outbox,
    put_page,
    silence_row,
    silence_values,
    stored_alert,
)

__all__ = ["OutboxRow", "OutboxState", "Page", "Retention", "Silence", "Store", "StoreLocked", "StoredAlert"]

_T = TypeVar("_T")

FILE_NAME: Final = "state.db"
_PRUNE_SECONDS: Final = 300.0
_SCHEMA_VERSION: Final = 1
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS offsets(source TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS state(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS alerts(
    id INTEGER PRIMARY KEY AUTOINCREMENT, fingerprint TEXT NOT NULL, state TEXT NOT NULL, opened REAL NOT NULL,
    updated REAL NOT NULL, closed REAL, fired INTEGER NOT NULL, planned INTEGER NOT NULL DEFAULT 0,
    body TEXT NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS alerts_open ON alerts(fingerprint) WHERE closed IS NULL;
CREATE INDEX IF NOT EXISTS alerts_by_fingerprint ON alerts(fingerprint, id);
CREATE INDEX IF NOT EXISTS alerts_unplanned ON alerts(id) WHERE planned = 0;
CREATE INDEX IF NOT EXISTS alerts_closed ON alerts(closed) WHERE closed IS NOT NULL;
CREATE TABLE IF NOT EXISTS pages(
    id INTEGER PRIMARY KEY AUTOINCREMENT, receiver TEXT NOT NULL, key TEXT NOT NULL, group_key TEXT NOT NULL,
    state TEXT NOT NULL, opened REAL NOT NULL, updated REAL NOT NULL, closed REAL, body TEXT NOT NULL,
    ref TEXT NOT NULL DEFAULT '{}');
CREATE INDEX IF NOT EXISTS pages_open ON pages(receiver) WHERE closed IS NULL;
CREATE INDEX IF NOT EXISTS pages_closed ON pages(closed) WHERE closed IS NOT NULL;
CREATE TABLE IF NOT EXISTS outbox(
    id INTEGER PRIMARY KEY AUTOINCREMENT, receiver TEXT NOT NULL, page INTEGER NOT NULL, action TEXT NOT NULL,
    priority INTEGER NOT NULL, state TEXT NOT NULL, created REAL NOT NULL, next_at REAL NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0, degraded INTEGER NOT NULL DEFAULT 0, uncertain INTEGER NOT NULL DEFAULT 0,
    finished REAL, last_error TEXT NOT NULL DEFAULT '', body TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS outbox_waiting ON outbox(receiver, next_at) WHERE state IN ('pending', 'sending');
CREATE INDEX IF NOT EXISTS outbox_page ON outbox(page, id);
CREATE INDEX IF NOT EXISTS outbox_finished ON outbox(finished) WHERE finished IS NOT NULL;
CREATE TABLE IF NOT EXISTS silences(
    id TEXT PRIMARY KEY, source TEXT NOT NULL, matchers TEXT NOT NULL, starts_at REAL NOT NULL, ends_at REAL NOT NULL,
    created_by TEXT NOT NULL, comment TEXT NOT NULL);
"""
# What goes along when the store moves between disk and memory: everything that is still needed to detect and deliver.
_TABLES: Final = (
    Table("offsets", whole=True),
    Table("state"),
    Table(
        "alerts",
        carried="closed IS NULL OR id IN (SELECT max(id) FROM alerts GROUP BY fingerprint)",
        replaced="closed IS NULL",  # the index on open ones would refuse a second open row
    ),
    Table(
        "pages",
        carried="closed IS NULL OR id IN (SELECT page FROM outbox WHERE state IN ('pending', 'sending', 'dead'))",
    ),
    Table("outbox", carried="state IN ('pending', 'sending', 'dead')"),
    Table("silences", whole=True),
)


@dataclass(frozen=True, slots=True)
class Retention:
    """How much history is kept. Open alerts and undelivered notifications are always kept."""

    closed_alerts_seconds: float = 30 * 86400.0
    outbox_seconds: float = 7 * 86400.0
    max_bytes: int = 256 * 1024 * 1024


class Store:
    """The state folder of a daemon; ``folder`` None keeps everything in memory (``run --log`` without configuration).

    ``exclusive`` (the daemon) locks the folder and raises :class:`StoreLocked` when another process has it; it also
    takes up what a dead process left half sent. Command-line helpers that add a mute or look at the outbox open it with
    ``exclusive=False``. ``on_problem`` is called with one sentence when the disk fails and with an empty text when it
    works again. No other exception leaves a method because of the disk.
    """

    def __init__(
        self,
        folder: Path | str | None,
        *,
        exclusive: bool = True,
        clock: Callable[[], float] = time.time,
        retention: Retention | None = None,
        on_problem: Callable[[str], None] | None = None,
    ) -> None:
        self.path = None if folder is None else Path(folder) / FILE_NAME
        self._clock = clock
        self._retention = retention or Retention()
        self._next_prune = 0.0
        self._database = Database(
            self.path,
            _SCHEMA,
            _SCHEMA_VERSION,
            _TABLES,
            exclusive=exclusive,
            clock=clock,
            on_problem=on_problem,
        )
        if exclusive:
            # Rows that a dead process was sending: whether they arrived is unknown, so they go again, marked so.
            self._write(
                lambda db: db.execute(
                    "UPDATE outbox SET state = 'pending', uncertain = 1, next_at = 0 WHERE state = 'sending'"
                )
            )

    # -- the one transaction ---------------------------------------------------------------------------------------

    def commit(
        self,
        *,
        offsets: Mapping[str, Any] | None = None,
        forget_offsets: Sequence[str] = (),
        state: Mapping[str, Any] | None = None,
        named_state: Mapping[str, Any] | None = None,
        alerts: Sequence[Alert] = (),
        pages: Sequence[Page] = (),
        outbox: Sequence[OutboxRow] = (),
        planned: Sequence[int] = (),
        drop: Sequence[int] = (),
    ) -> list[int]:
        """Writes everything given, or (when the process dies) nothing. Returns the ids of the pages, in order.

        ``offsets`` maps a source to any JSON value and replaces what it held; ``state`` is the detector's snapshot;
        ``named_state`` other snapshots by name. A page with an id is rewritten, one without is added. ``planned``: ids
        of alerts that the dispatcher has dealt with; ``drop``: pages whose dead rows are of no use any more.
        """
        now = self._clock()
        offset_rows = [(source, dump(value)) for source, value in (offsets or {}).items()]
        states = dict(named_state or {})
        if state is not None:
            states["detector"] = state
        state_rows = [(name, dump(value)) for name, value in states.items()]
        alert_rows = [redact_alert(alert) for alert in alerts]

        def write(db: sqlite3.Connection) -> list[int]:
            db.executemany("INSERT OR REPLACE INTO offsets VALUES(?, ?)", offset_rows)
            db.executemany("DELETE FROM offsets WHERE source = ?", [(source,) for source in forget_offsets])
            db.executemany("INSERT OR REPLACE INTO state VALUES(?, ?)", state_rows)
            for alert in alert_rows:
                put_alert(db, alert, now)
            ids = [put_page(db, page) for page in pages]
            for row in outbox:
                page = row.page if row.page > 0 else ids[-row.page - 1]
                put_outbox(db, row, page)
            db.executemany("UPDATE alerts SET planned = 1 WHERE id = ?", [(item,) for item in planned])
            db.executemany(
                "UPDATE outbox SET state = 'dropped' WHERE page = ? AND state = 'dead'", [(item,) for item in drop]
            )
            return ids

        with self._database.lock:
            ids = self._write(write)
            self._maybe_prune(now)
            return ids

    # -- what the detector and the followers left --------------------------------------------------------------------

    def load_offsets(self) -> dict[str, Any]:
        """Source -> what was committed for it."""
        return {row["source"]: json.loads(row["value"]) for row in self._database.read("SELECT * FROM offsets")}

    def load_state(self, name: str = "detector") -> Any | None:
        """The snapshot last committed, None when there is none."""
        rows = self._database.read("SELECT value FROM state WHERE name = ?", name)
        return json.loads(rows[0]["value"]) if rows else None

    def load_states(self, prefix: str) -> dict[str, Any]:
        """All snapshots whose name begins so, by the rest of their names."""
        rows = self._database.read("SELECT * FROM state WHERE substr(name, 1, ?) = ?", len(prefix), prefix)
        return {row["name"][len(prefix) :]: json.loads(row["value"]) for row in rows}

    def alerts(
        self,
        *,
        open: bool | None = None,
        since: float | None = None,
        fingerprint: str | None = None,
        planned: bool | None = None,
        fired: bool | None = None,
        limit: int = 1000,
    ) -> list[StoredAlert]:
        """Alerts by state, newest episode first; ``since`` bounds the last update of closed ones, ``planned`` tells
        those that the dispatcher has dealt with, ``fired`` those that were ever more than pending."""
        where, values = ["1"], list[Any]()
        if open is not None:
            where.append("closed IS NULL" if open else "closed IS NOT NULL")
        if since is not None:
            where.append("(closed IS NULL OR updated >= ?)")
            values.append(since)
        if fingerprint is not None:
            where.append("fingerprint = ?")
            values.append(fingerprint)
        if fired is not None:
            where.append("fired = 1" if fired else "fired = 0")
        if planned is not None:
            where.append("planned = 1" if planned else "planned = 0")
        rows = self._database.read(
            f"SELECT * FROM alerts WHERE {' AND '.join(where)} ORDER BY id DESC LIMIT ?", *values, max(0, limit)
        )
        return [stored_alert(row) for row in rows]

    def episodes(self, fingerprint: str, since: float) -> list[float]:
        """When the episodes of an alert began that fired and were open at or after ``since``, oldest first."""
        rows = self._database.read(
            "SELECT opened FROM alerts WHERE fingerprint = ? AND fired = 1 AND (closed IS NULL OR closed >= ?) "
            "ORDER BY id",
            fingerprint,
            since,
        )
        return [float(row["opened"]) for row in rows]

    # -- pages -------------------------------------------------------------------------------------------------------

    def pages(self, *, receiver: str | None = None, open: bool | None = True, limit: int = 10_000) -> list[Page]:
        """Pages in the order in which they were opened."""
        where, values = ["1"], list[Any]()
        if receiver is not None:
            where.append("receiver = ?")
            values.append(receiver)
        if open is not None:
            where.append("closed IS NULL" if open else "closed IS NOT NULL")
        rows = self._database.read(
            f"SELECT * FROM pages WHERE {' AND '.join(where)} ORDER BY id LIMIT ?", *values, limit
        )
        return [page_row(row) for row in rows]

    def page(self, page_id: int) -> Page | None:
        rows = self._database.read("SELECT * FROM pages WHERE id = ?", page_id)
        return page_row(rows[0]) if rows else None

    # -- outbox ------------------------------------------------------------------------------------------------------

    def claim(self, receiver: str, now: float) -> list[OutboxRow]:
        """The most urgent page's undelivered rows, oldest first, marked as being sent; empty when nothing is due.

        A page is due when its oldest undelivered row is: later rows of a page wait for earlier ones, and all of it
        waits while one is being sent. The rows come together so that the worker can say the present state once
        (:meth:`finish` takes them all). Whoever claims must finish or retry; a dead process's claims are taken up at
        the next start.
        """
        first = (
            "SELECT page FROM outbox o WHERE receiver = ? AND state = 'pending' AND next_at <= ? "
            "AND id = (SELECT min(id) FROM outbox WHERE page = o.page AND state IN ('pending', 'sending')) "
            "ORDER BY priority, attempts, id LIMIT 1"
        )
        with self._database.lock:
            if not self._database.read(first, receiver, now):
                return []

            def write(db: sqlite3.Connection) -> list[OutboxRow]:
                row = db.execute(first, (receiver, now)).fetchone()
                if row is None:
                    return []
                db.execute(
                    "UPDATE outbox SET state = 'sending', attempts = attempts + 1 WHERE page = ? AND state = 'pending'",
                    (row["page"],),
                )
                rows = db.execute(
                    "SELECT * FROM outbox WHERE page = ? AND state = 'sending' ORDER BY id", (row["page"],)
                )
                return [outbox_row(item) for item in rows]

            return self._write(write)

    def next_due(self, receiver: str) -> float | None:
        """When the next undelivered row of a receiver may be tried; None when there is none."""
        rows = self._database.read(
            "SELECT min(next_at) AS at FROM outbox WHERE receiver = ? AND state = 'pending'", receiver
        )
        at = rows[0]["at"]
        return None if at is None else float(at)

    def finish(
        self,
        ids: Sequence[int],
        *,
        state: OutboxState = "sent",
        error: str = "",
        page: int | None = None,
        ref: Mapping[str, Any] | None = None,
        page_state: str | None = None,
    ) -> None:
        """Rows are done: ``sent``, ``dead`` (given up, can be retried by hand) or ``dropped`` (said by a later row).

        In the same transaction a page's ``ref`` and state are updated."""
        now = self._clock()

        def write(db: sqlite3.Connection) -> None:
            for row in ids:
                db.execute(
                    "UPDATE outbox SET state = ?, finished = ?, last_error = ? WHERE id = ?",
                    (state, now, redact(error)[:256], row),
                )
            if page is not None and ref is not None:
                db.execute("UPDATE pages SET ref = ? WHERE id = ?", (dump(redact_json(ref)), page))
            if page is not None and page_state is not None:
                db.execute(
                    "UPDATE pages SET state = ?, closed = ? WHERE id = ?",
                    (page_state, None if page_state == "open" else now, page),
                )

        self._write(write)

    def retry(
        self, ids: Sequence[int], *, at: float, error: str = "", degraded: int = 0, uncertain: bool = False
    ) -> None:
        """Rows stay undelivered and may be tried again at ``at``."""

        def write(db: sqlite3.Connection) -> None:
            for row in ids:
                db.execute(
                    "UPDATE outbox SET state = 'pending', next_at = ?, last_error = ?, degraded = ?, "
                    "uncertain = uncertain OR ? WHERE id = ?",
                    (at, redact(error)[:256], degraded, uncertain, row),
                )

        self._write(write)

    def revive(self, ids: Sequence[int] | None = None) -> int:
        """Dead rows (all, or those given) go back into the queue, due now, their pages open again. Returns how many."""
        now = self._clock()

        def write(db: sqlite3.Connection) -> int:
            count = 0
            dead = db.execute("SELECT id, page FROM outbox WHERE state = 'dead' ORDER BY id").fetchall()
            for row in dead:
                if ids is None or row["id"] in ids:
                    db.execute(
                        "UPDATE outbox SET state = 'pending', finished = NULL, attempts = 0, degraded = 0, "
                        "created = ?, next_at = ? WHERE id = ?",
                        (now, now, row["id"]),
                    )
                    db.execute(
                        "UPDATE pages SET state = 'open', closed = NULL WHERE id = ? AND state = 'undelivered'",
                        (row["page"],),
                    )
                    count += 1
            return count

        return self._write(write)

    def outbox(
        self,
        *,
        states: Sequence[OutboxState] = ("pending", "sending", "dead"),
        receiver: str | None = None,
        limit: int = 1000,
    ) -> list[OutboxRow]:
        """Notifications by state, oldest first."""
        marks = ", ".join("?" * len(states))
        where, values = f"state IN ({marks})", list[Any](states)
        if receiver is not None:
            where += " AND receiver = ?"
            values.append(receiver)
        return [
            outbox_row(row)
            for row in self._database.read(f"SELECT * FROM outbox WHERE {where} ORDER BY id LIMIT ?", *values, limit)
        ]

    def outbox_counts(self) -> dict[str, dict[str, float]]:
        """Receiver -> pending, dead, and oldest (when the oldest undelivered one was made), for metrics and page."""
        counts: dict[str, dict[str, float]] = {}
        for row in self._database.read(
            "SELECT receiver, state = 'dead' AS dead, count(*) AS n, min(created) AS oldest FROM outbox "
            "WHERE state IN ('pending', 'sending', 'dead') GROUP BY receiver, state = 'dead'"
        ):
            entry = counts.setdefault(row["receiver"], {"pending": 0.0, "dead": 0.0})
            entry["dead" if row["dead"] else "pending"] = float(row["n"])
            if not row["dead"]:
                entry["oldest"] = float(row["oldest"])
        return counts

    # -- silences ----------------------------------------------------------------------------------------------------

    def silences(self, *, active_at: float | None = None) -> list[Silence]:
        """Silences, all of them or those active at a time."""
        found = [silence_row(row) for row in self._database.read("SELECT * FROM silences ORDER BY starts_at, id")]
        return [s for s in found if active_at is None or s.starts_at <= active_at < s.ends_at]

    def put_silences(self, silences: Sequence[Silence], *, replace_source: str | None = None) -> None:
        """Adds or replaces silences by id; with ``replace_source`` those of that source not given are removed."""

        def write(db: sqlite3.Connection) -> None:
            if replace_source is not None:
                db.execute("DELETE FROM silences WHERE source = ?", (replace_source,))
            db.executemany(
                "INSERT OR REPLACE INTO silences VALUES(?, ?, ?, ?, ?, ?, ?)", [silence_values(s) for s in silences]
            )

        self._write(write)

    def expire_silence(self, silence_id: str) -> bool:
        """Ends a silence now; False when there is none of that id."""
        now = self._clock()

        def write(db: sqlite3.Connection) -> bool:
            done = db.execute("UPDATE silences SET ends_at = min(ends_at, ?) WHERE id = ?", (now, silence_id))
            return done.rowcount > 0

        return self._write(write)

    # -- upkeep ------------------------------------------------------------------------------------------------------

    @property
    def durable(self) -> bool:
        """Whether what is committed now reaches a disk."""
        return self._database.on_disk

    @property
    def problem(self) -> str:
        """One sentence while the disk fails, else empty."""
        return self._database.problem

    @property
    def errors(self) -> int:
        """How often the disk failed since start."""
        return self._database.errors

    def size_bytes(self) -> int:
        """Bytes on disk, write-ahead log included; 0 in memory."""
        return self._database.size_bytes()

    def prune(self, now: float) -> None:
        """Forgets history past its age, and the oldest of it while the database is larger than allowed."""
        keep = self._retention

        def by_age(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM alerts WHERE closed < ?", (now - keep.closed_alerts_seconds,))
            db.execute("DELETE FROM outbox WHERE finished < ?", (now - keep.outbox_seconds,))
            db.execute(
                "DELETE FROM pages WHERE closed < ? AND id NOT IN (SELECT page FROM outbox)",
                (now - keep.outbox_seconds,),
            )
            db.execute("DELETE FROM silences WHERE ends_at < ?", (now - keep.outbox_seconds,))

        def oldest_tenth(db: sqlite3.Connection) -> int:
            gone = 0
            for table, done in (("outbox", "finished"), ("pages", "closed"), ("alerts", "closed")):
                cut = db.execute(
                    f"DELETE FROM {table} WHERE id IN (SELECT id FROM {table} WHERE {done} IS NOT NULL ORDER BY {done} "
                    f"LIMIT (SELECT count(*) / 10 + 1 FROM {table} WHERE {done} IS NOT NULL))"
                )
                gone += cut.rowcount
            return gone

        with self._database.lock:
            self._write(by_age)
            for _ in range(20):
                if self._database.used_bytes() <= keep.max_bytes or not self._write(oldest_tenth):
                    break
            self._database.give_back()

    def close(self) -> None:
        """Writes back what is only in memory, if the disk takes it, and lets go of the folder. Idempotent."""
        self._database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, action: Callable[[sqlite3.Connection], _T]) -> _T:
        return self._database.write(action)

    def _maybe_prune(self, now: float) -> None:
        if now >= self._next_prune:
            self._next_prune = now + _PRUNE_SECONDS
            self.prune(now)
