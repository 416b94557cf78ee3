"""A SQLite database that goes on in memory while its disk fails.

:class:`Database` runs transactions. When the disk is full, read-only, gone or damaged it says so once, copies what it
can still read into a database in memory, runs the transaction there, tries the disk again every
:data:`RETRY_DISK_SECONDS` and then writes back what it holds, in one transaction. What is lost meanwhile is only
durability. A file that is damaged is kept aside under another name and a new one is begun.

It knows no table: the schema and what has to move between disk and memory are given (:class:`Table`).
https://www.sqlite.org/wal.html, https://www.sqlite.org/rescode.html
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, TypeVar

__all__ = ["RETRY_DISK_SECONDS", "Database", "StoreLocked", "Table"]

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

RETRY_DISK_SECONDS: Final = 10.0
_BUSY_SECONDS: Final = 2.0


class StoreLocked(RuntimeError):
    """Another daemon holds this state folder."""


@dataclass(frozen=True, slots=True)
class Table:
    """What of a table goes along between disk and memory: rows for which ``carried`` holds.

    ``whole``: the rows in memory are all there are, so older ones on the disk are dropped on the way back.
    ``replaced``: rows on the disk for which this holds give way to those in memory.
    """

    name: str
    carried: str = "1"
    whole: bool = False
    replaced: str = ""


class Database:
    """Thread-safe; :meth:`write` and :meth:`read` never raise because of the disk.

    ``path`` None: memory only. ``exclusive`` takes a lock beside the file for the life of the object and raises
    :class:`StoreLocked` when another process has it. ``on_problem`` is called with one sentence when the disk fails and
    with an empty text when it works again; it must not call back into the database.
    """

    def __init__(
        self,
        path: Path | None,
        schema: str,
        version: int,
        tables: Sequence[Table],
        *,
        exclusive: bool,
        clock: Callable[[], float],
        on_problem: Callable[[str], None] | None = None,
    ) -> None:
        self.path = path
        self.lock = threading.RLock()
        self.problem = ""
        self.errors = 0
        self.on_disk = False
        self._schema = schema
        self._version = version
        self._tables = tuple(tables)
        self._clock = clock
        self._on_problem = on_problem
        self._lock_file: IO[bytes] | None = None
        self._next_try = 0.0
        if path is not None and exclusive:
            self._take_lock(path)
        self._db = self._open_first()

    def write(self, action: Callable[[sqlite3.Connection], _T]) -> _T:
        """Runs ``action`` as one transaction, again in memory when the disk fails under it."""
        with self.lock:
            if not self.on_disk:
                self.try_disk()
            try:
                with _transaction(self._db):
                    return action(self._db)
            except sqlite3.DatabaseError as error:
                self._fall_back(error)
                with _transaction(self._db):
                    return action(self._db)

    def read(self, query: str, *values: Any) -> list[sqlite3.Row]:
        """All rows of a query."""
        with self.lock:
            try:
                return self._db.execute(query, values).fetchall()
            except sqlite3.DatabaseError as error:
                self._fall_back(error)
                return self._db.execute(query, values).fetchall()

    def used_bytes(self) -> int:
        """Bytes of pages in use; what the file takes besides is free for reuse."""
        pages = self.read("PRAGMA page_count")[0][0] - self.read("PRAGMA freelist_count")[0][0]
        return int(pages * self.read("PRAGMA page_size")[0][0])

    def size_bytes(self) -> int:
        """Bytes on disk, write-ahead log included; 0 in memory."""
        total = 0
        for suffix in ("", "-wal") if self.path is not None else ():
            with contextlib.suppress(OSError):
                total += os.stat(f"{self.path}{suffix}").st_size
        return total

    def give_back(self) -> None:
        """Returns free pages to the file system; a courtesy, so failing is no fault."""
        with self.lock, contextlib.suppress(sqlite3.Error):
            if self.on_disk:
                self._db.executescript("PRAGMA incremental_vacuum")  # execute() would step it once: one page
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """Writes back what is only in memory, if the disk takes it, and lets go of the file. Idempotent."""
        with self.lock:
            if not self.on_disk and self._lock_file is not None:
                self.try_disk(force=True)
            with contextlib.suppress(sqlite3.Error):
                self._db.close()
            if self._lock_file is not None:
                self._lock_file.close()
                self._lock_file = None

    # -- between disk and memory -----------------------------------------------------------------------------------

    def try_disk(self, *, force: bool = False) -> None:
        """Back to the disk if it works again; at most once in :data:`RETRY_DISK_SECONDS`."""
        now = self._clock()
        if self.path is None or (now < self._next_try and not force):
            return
        self._next_try = now + RETRY_DISK_SECONDS
        try:
            disk = self._open_disk(self.path)
        except sqlite3.Error:
            return
        try:
            self._write_back(disk)
        except sqlite3.Error as error:
            disk.close()
            if not _is_damage(error):
                return
            try:
                self._set_aside(self.path, error)
                disk = self._connect(self.path)
                self._write_back(disk)
            except sqlite3.Error:
                return
        self._db.close()
        self._db = disk
        self.on_disk = True
        self.problem = ""
        _log.info("%s: the state database works again; what was kept in memory is written", self.path)
        if self._on_problem is not None:
            self._on_problem("")

    def _write_back(self, disk: sqlite3.Connection) -> None:
        with _transaction(disk):
            for table in self._tables:
                if table.whole or table.replaced:
                    disk.execute(f"DELETE FROM {table.name} WHERE {table.replaced or '1'}")
                _insert(disk, table.name, self._db.execute(f"SELECT * FROM {table.name}").fetchall())

    def _open_first(self) -> sqlite3.Connection:
        if self.path is None:
            return self._memory()
        try:
            db = self._open_disk(self.path)
        except sqlite3.Error as error:
            self._report(error)
            self._next_try = self._clock() + RETRY_DISK_SECONDS
            return self._memory_from(self.path)
        self.on_disk = True
        return db

    def _open_disk(self, path: Path) -> sqlite3.Connection:
        """A connection proven by a write. A file that is no database, or a damaged one, is moved aside."""
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return self._connect(path)
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            self._set_aside(path, error)
            return self._connect(path)

    def _connect(self, path: Path) -> sqlite3.Connection:
        db = sqlite3.connect(path, timeout=_BUSY_SECONDS, check_same_thread=False, isolation_level=None)
        try:
            db.row_factory = sqlite3.Row
            db.execute("PRAGMA auto_vacuum = INCREMENTAL")
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA journal_size_limit = 8388608")
            found = db.execute("PRAGMA user_version").fetchone()[0]
            if found > self._version:
                raise sqlite3.OperationalError(
                    f"a newer wedgewatch wrote it: schema {found}, this one knows {self._version}"
                )
            with _transaction(db):
                for statement in self._schema.split(";"):
                    db.execute(statement)
                # Written even when nothing changed: a read-only file or a full disk shows now, not at the first alert.
                db.execute(f"PRAGMA user_version = {self._version}")
        except BaseException:
            db.close()
            raise
        with contextlib.suppress(OSError):
            os.chmod(path, 0o600)  # log lines may be confidential
        return db

    def _memory(self) -> sqlite3.Connection:
        db = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        db.row_factory = sqlite3.Row
        db.executescript(self._schema)
        return db

    def _memory_from(self, path: Path) -> sqlite3.Connection:
        """A database in memory with what the file still knows, table by table: any of it is better than none."""
        memory = self._memory()
        for mode in ("mode=ro", "immutable=1"):  # the second reads a WAL database in a folder that takes no files
            if not path.is_file():
                break
            try:
                disk = sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=_BUSY_SECONDS)
            except sqlite3.Error:
                continue
            with contextlib.closing(disk):
                if self._copy_tables(disk, memory):
                    break
        return memory

    def _copy_tables(self, disk: sqlite3.Connection, memory: sqlite3.Connection) -> bool:
        copied = False
        for table in self._tables:
            with contextlib.suppress(sqlite3.Error), _transaction(memory):
                _insert(
                    memory, table.name, disk.execute(f"SELECT * FROM {table.name} WHERE {table.carried}").fetchall()
                )
                copied = True
        with contextlib.suppress(sqlite3.Error), _transaction(memory):
            # Ids go on from where the disk stopped, also past rows that were not carried.
            sequence = disk.execute("SELECT name, seq FROM sqlite_sequence").fetchall()
            memory.execute("DELETE FROM sqlite_sequence")
            memory.executemany("INSERT INTO sqlite_sequence(name, seq) VALUES(?, ?)", sequence)
        return copied

    def _fall_back(self, error: sqlite3.DatabaseError) -> None:
        """To memory, or raises ``error`` again when it is no fault of the disk."""
        if self.path is None or not self.on_disk or not _is_disk_fault(error):
            raise error
        self._report(error)
        with contextlib.suppress(sqlite3.Error):
            self._db.close()
        self._db = self._memory_from(self.path)
        self.on_disk = False
        self._next_try = self._clock() + RETRY_DISK_SECONDS

    def _set_aside(self, path: Path, error: sqlite3.Error) -> None:
        kept = path.with_name(f"{path.name}.damaged-{int(self._clock())}")
        self.errors += 1
        _log.error("%s: the state database is damaged (%s); kept as %s, an empty one is begun", path, error, kept)
        try:
            os.replace(path, kept)
            for suffix in ("-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    os.replace(f"{path}{suffix}", f"{kept}{suffix}")
        except OSError as fault:
            raise sqlite3.OperationalError(f"the damaged file cannot be moved aside: {fault.strerror}") from None

    def _report(self, error: sqlite3.Error) -> None:
        self.errors += 1
        if self.problem:
            return
        self.problem = (
            f"{self.path}: cannot write the state database ({_reason(error)}); going on in memory: alerts still go "
            "out, but a restart now would forget them. Make room or give write access; it is tried again by itself"
        )
        _log.error("%s", self.problem)
        if self._on_problem is not None:
            self._on_problem(self.problem)

    def _take_lock(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = open(f"{path}.lock", "ab")  # noqa: SIM115  # held for the life of the object
        except OSError:
            return  # no disk: opening the database reports it
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.close()
            raise StoreLocked(
                f"{path.parent}: another wedgewatch uses this state folder; give each daemon its own `state: path:`"
            ) from None
        except OSError:  # a file system without locks: better unguarded than not watching
            handle.close()
            return
        self._lock_file = handle


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):  # a full disk may have rolled back by itself
            db.execute("ROLLBACK")
        raise


def _insert(db: sqlite3.Connection, table: str, rows: Sequence[sqlite3.Row]) -> None:
    if rows:
        marks = ", ".join("?" * len(rows[0]))
        db.executemany(f"INSERT OR REPLACE INTO {table} VALUES({marks})", [tuple(row) for row in rows])


def _code(error: sqlite3.Error) -> str:
    return getattr(error, "sqlite_errorname", "") or ""


def _is_damage(error: sqlite3.Error) -> bool:
    return _code(error).startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB"))


def _is_disk_fault(error: sqlite3.Error) -> bool:
    """Not a mistake in our SQL: those are IntegrityError, ProgrammingError and plain SQLITE_ERROR."""
    return not isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError) and _code(error) != "SQLITE_ERROR"


_REASONS: Final = {
    "SQLITE_FULL": "the disk is full",
    "SQLITE_READONLY": "it is read-only",
    "SQLITE_CANTOPEN": "it cannot be opened",
    "SQLITE_BUSY": "another process holds it",
    "SQLITE_IOERR": "input/output error",
    "SQLITE_CORRUPT": "it is damaged",
    "SQLITE_NOTADB": "it is no database",
}


def _reason(error: sqlite3.Error) -> str:
    return next((text for prefix, text in _REASONS.items() if _code(error).startswith(prefix)), str(error))
