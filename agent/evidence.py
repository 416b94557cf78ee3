"""What a restart would destroy, taken once per incident, before anybody restarts the server.

One folder an incident: the alert, the log's end, the metrics page, the series, the process tree, Python stacks, GPU
state, and a manifest that says what could not be had and why. Bounded in size and time, redacted, handed out as one
tar. A capture ends within :attr:`Limits.timeout`; see :mod:`agent.capture` for its pieces.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import tarfile
import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent.capture import Capture, Limits, Piece, Target, safe_name
from agent.model import CRITICAL_FAMILIES, Alert, rfc3339
from agent.redact import redact_json

__all__ = ["Captured", "EvidenceStore", "Limits", "Piece", "Target", "eligible", "incident_id"]

log = logging.getLogger("wedgewatch.evidence")

_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,80}")


@dataclass(frozen=True, slots=True)
class Captured:
    """How a capture went; ``result`` is a label value of ``wedgewatch_evidence_captures_total``."""

    id: str
    result: str
    pieces: tuple[Piece, ...]
    seconds: float


def incident_id(alert: Alert) -> str:
    """Names the incident in addresses and folders; the same for all of its updates."""
    return f"{alert.fingerprint}-{int(alert.fired_at or alert.starts_at)}"


def eligible(alert: Alert) -> bool:
    """Whether evidence is taken for this alert: a stall or death that fires as confirmed or probable."""
    return alert.state == "firing" and alert.family in CRITICAL_FAMILIES and alert.confidence != "suspected"


class EvidenceStore:
    """The folders. One capture at a time; :meth:`pending` may be asked from any thread."""

    def __init__(
        self,
        root: Path,
        limits: Limits | None = None,
        *,
        clock: Callable[[], float] = time.time,
        enabled: bool = True,
    ) -> None:
        self._root = root
        self._limits = limits or Limits()
        self._clock = clock
        self._enabled = enabled
        self._lock = threading.Lock()
        self._asked: dict[str, float] = {}
        self._finished: set[str] = set()

    def pending(self, alert: Alert) -> bool:
        """True while a probe should wait: the evidence is due and not taken yet. Never for longer than twice the
        time-out of a capture, whatever happened to it: a probe that is held for ever would be no probe."""
        if not self._enabled or not eligible(alert):
            return False
        name = incident_id(alert)
        if name in self._finished or (self._root / name / "manifest.json").exists():
            return False
        with self._lock:
            first = self._asked.setdefault(name, self._clock())
            while len(self._asked) > 1000:
                del self._asked[next(iter(self._asked))]
        return self._clock() - first < 2 * self._limits.timeout

    def capture(self, alert: Alert, target: Target, series: Any = None) -> Captured | None:
        """Takes the evidence, unless this incident has some already; None then. Raises nothing: what fails is noted.

        ``series`` is anything that becomes JSON: the points around the onset.
        """
        if not self._enabled:
            return None
        name = incident_id(alert)
        folder = self._root / name
        started = time.monotonic()
        try:
            self._root.mkdir(parents=True, exist_ok=True, mode=0o750)
            if folder.exists():
                self._finished.add(name)
                return None
            folder.mkdir(mode=0o750)  # the claim: whoever makes the folder captures, and nobody again
        except OSError as error:
            if folder.is_dir():  # another thread was faster
                return None
            log.warning("evidence for %s cannot be kept: %s", name, error)
            self._finished.add(name)
            return Captured(name, "failed", (), 0.0)
        try:
            pieces = Capture(folder, self._limits, alert, target, series).run()
            result = "complete" if not any(piece.note.startswith("failed") for piece in pieces) else "partial"
            self._write_manifest(folder, alert, pieces)
        except OSError as error:
            log.warning("evidence for %s is incomplete: %s", name, error)
            pieces, result = (), "failed"
        finally:
            self._finished.add(name)
        self.prune(keep={name})
        return Captured(name, result, pieces, time.monotonic() - started)

    def pieces(self, name: str) -> tuple[Piece, ...]:
        """The files of an incident, as its manifest lists them; empty when there is none."""
        folder = self._folder(name)
        if folder is None:
            return ()
        try:
            manifest = json.loads((folder / "manifest.json").read_bytes())
            return tuple(Piece(**item) for item in manifest["pieces"])
        except (OSError, ValueError, KeyError, TypeError):
            return tuple(Piece(path, (folder / path).stat().st_size) for path in _files(folder))

    def tar(self, name: str) -> tuple[int, Iterator[bytes]] | None:
        """The folder as one tar: its size and its blocks. Links are not followed and not packed."""
        folder = self._folder(name)
        if folder is None:
            return None
        members = [(path, (folder / path).stat()) for path in _files(folder)]
        size = sum(512 + -(-stat.st_size // 512) * 512 for _, stat in members) + 1024
        return size, _tar_blocks(folder, f"wedgewatch-{name}", members)

    def context_text(self, name: str, file: str) -> str:
        """The captured end of a log, for the lines around a stage; empty when there is none."""
        folder = self._folder(name)
        if folder is None:
            return ""
        try:
            return (folder / "log" / safe_name(file)).read_text(errors="replace")
        except OSError:
            return ""

    def prune(self, keep: Collection[str] = ()) -> int:
        """Removes what is too old, then the oldest until the rest fits; never what is in ``keep``. Returns how many."""
        try:
            folders = [item for item in self._root.iterdir() if item.is_dir() and _ID.fullmatch(item.name)]
        except OSError:
            return 0
        aged = sorted((item.stat().st_mtime, item) for item in folders)
        sizes = {item: sum((item / path).stat().st_size for path in _files(item)) for _, item in aged}
        total, removed = sum(sizes.values()), 0
        for modified, item in aged:
            old = self._clock() - modified > self._limits.max_age
            if item.name in keep or not (old or total > self._limits.total_bytes):
                continue
            shutil.rmtree(item, ignore_errors=True)
            total -= sizes[item]
            removed += 1
        return removed

    def _folder(self, name: str) -> Path | None:
        folder = self._root / name
        return folder if _ID.fullmatch(name) and folder.is_dir() else None

    def _write_manifest(self, folder: Path, alert: Alert, pieces: tuple[Piece, ...]) -> None:
        manifest = {
            "server": alert.server,
            "alertname": alert.alertname,
            "failure": alert.failure,
            "starts_at": rfc3339(alert.starts_at),
            "captured_at": rfc3339(self._clock()),
            "pieces": [
                {"name": p.name, "size": p.size, "note": p.note, "seconds": round(p.seconds, 3), "sha256": p.sha256}
                for p in pieces
            ],
        }
        text = json.dumps(redact_json(manifest), indent=1).encode()
        temporary = folder / ".manifest"
        temporary.write_bytes(text)
        os.replace(temporary, folder / "manifest.json")


def _files(folder: Path) -> list[str]:
    found = []
    for base, _, names in os.walk(folder):
        for name in names:
            path = Path(base) / name
            if not path.is_symlink() and path.is_file():
                found.append(str(path.relative_to(folder)))
    return sorted(found)


def _tar_blocks(folder: Path, top: str, members: list[tuple[str, os.stat_result]]) -> Iterator[bytes]:
    for path, stat in members:
        info = tarfile.TarInfo(f"{top}/{path}")
        info.size, info.mtime, info.mode = stat.st_size, int(stat.st_mtime), 0o640
        yield info.tobuf(tarfile.USTAR_FORMAT)
        left = stat.st_size
        with open(folder / path, "rb") as handle:
            while left:
                block = handle.read(min(65536, left))
                if not block:  # it shrank meanwhile: what was promised is filled up
                    block = b"\0" * min(65536, left)
                left -= len(block)
                yield block
        yield b"\0" * (-stat.st_size % 512)
    yield b"\0" * 1024
