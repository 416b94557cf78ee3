"""The pieces of evidence: what is looked at, in which order, within which bounds.

Every piece runs in a thread of its own that is left behind when it overstays: a file on a dead network mount, a driver
that does not answer. What fails is noted, with the reason, and costs the other pieces nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from agent import processes
from agent.commands import run_bounded
from agent.model import Alert
from agent.redact import redact, redact_json

__all__ = ["Capture", "Limits", "Piece", "Target", "safe_name"]

_LOG_TAIL: Final = 1 << 20
"""Bytes of the end of one log. Redaction reads every byte with some twenty patterns; see :func:`_redacted`."""
_PY_SPY_MOST: Final = 8


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds, as ``evidence:`` in the configuration has them; seconds and bytes."""

    timeout: float = 20.0
    incident_bytes: int = 32 << 20
    total_bytes: int = 512 << 20
    max_age: float = 30 * 86400.0
    stacks: bool = True
    gpu: bool = True


@dataclass(frozen=True, slots=True)
class Target:
    """What may be looked at for one server.

    ``logs`` maps a name to what gives its end (at most so many bytes); ``page`` fetches the metrics page within so many
    seconds; ``process`` and ``port`` are for :func:`agent.processes.find`; ``context`` is written as it is (versions,
    digest of the rules, facts of the start block), after redaction.
    """

    server: str
    logs: Mapping[str, Callable[[int], bytes]] = field(default_factory=dict)
    page: Callable[[float], bytes] | None = None
    process: str = ""
    port: int | None = None
    context: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def tail_of(path: str) -> Callable[[int], bytes]:
        """Gives the end of a file, for ``logs``."""

        def read(size: int) -> bytes:
            with open(path, "rb") as handle:
                length = handle.seek(0, os.SEEK_END)
                handle.seek(max(0, length - size))
                data = handle.read(size)
            return data if length <= size else data[data.find(b"\n") + 1 :]

        return read


@dataclass(frozen=True, slots=True)
class Piece:
    """One file of the folder, or the reason why it is not there."""

    name: str
    size: int
    note: str = ""
    seconds: float = 0.0
    sha256: str = ""


class Capture:
    """One capture. The order is that of how fast things vanish: stacks before logs."""

    def __init__(self, folder: Path, limits: Limits, alert: Alert, target: Target, series: Any) -> None:
        self._folder = folder
        self._limits = limits
        self._alert = alert
        self._target = target
        self._series = series
        self._end = time.monotonic() + limits.timeout
        self._left = limits.incident_bytes
        self._pieces: list[Piece] = []

    def run(self) -> tuple[Piece, ...]:
        target, limits = self._target, self._limits
        family = self._piece("processes.txt", self._processes)
        if limits.stacks:
            self._stacks(family if isinstance(family, list) else [])
        if limits.gpu:
            self._piece("gpu.txt", self._gpu, share=0.4)
        if target.page is not None:
            fetch = target.page
            self._piece("metrics.txt", lambda seconds: fetch(seconds), share=0.4)
        self._piece("alert.json", lambda _: _json(redact_json(self._alert.to_json(context=True))))
        if self._series is not None:
            self._piece("series.json", lambda _: _json(self._series))
        self._piece("context.json", lambda _: _json(redact_json(dict(target.context))))
        for name, tail in target.logs.items():
            self._piece(f"log/{safe_name(name)}", self._tail(tail))
        return tuple(self._pieces)

    def _seconds(self) -> float:
        return max(0.0, self._end - time.monotonic())

    def _piece(self, name: str, make: Callable[[float], Any], share: float = 1.0) -> Any:
        """Writes what ``make(seconds)`` gives: bytes, or bytes with a note, or bytes with something to hand back."""
        began, allowed = time.monotonic(), self._seconds() * share
        made = _within(allowed, lambda: make(allowed))
        seconds = time.monotonic() - began
        if isinstance(made, _Failure):
            self._pieces.append(Piece(name, 0, made.text, seconds))
            return None
        data, rest = made if isinstance(made, tuple) else (made, "")
        note = rest if isinstance(rest, str) else ""
        if len(data) > self._left:
            data, note = data[: self._left], "cut: the folder's size limit is reached"
        if data:
            path = self._folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
        self._left -= len(data)
        self._pieces.append(Piece(name, len(data), note, seconds, hashlib.sha256(data).hexdigest() if data else ""))
        return rest

    def _processes(self, _: float) -> tuple[bytes, Any]:
        roots = processes.find(self._target.process, self._target.port)
        family = processes.family(roots)
        if not family:
            return b"", (
                "no process of the server is visible from here (in a pod: shareProcessNamespace: true; "
                "or name it with 'process' in the server's configuration)"
            )
        lines = ["   pid state threads   rss MiB     cpu s  command; waits in"]
        lines += [
            f"{item.pid:6} {item.state:5} {item.threads:7} {item.rss_bytes / 2**20:9.0f} {item.cpu_seconds:9.0f}  "
            f"{'  ' * depth}{redact(item.command)[:400]}" + (f"; {item.waits_in}" if item.waits_in else "")
            for depth, item in family
        ]
        return ("\n".join(lines) + "\n").encode(errors="replace"), [item for _, item in family]

    def _stacks(self, family: list[processes.Process]) -> None:
        pythons = [item for item in family if item.is_python][:_PY_SPY_MOST]
        if family and not pythons:
            self._pieces.append(Piece("stacks", 0, "no Python process among them"))
        for item in pythons:
            self._piece(f"stacks/{item.pid}.txt", partial(self._stack, item.pid), share=0.3)
            if "not installed" in self._pieces[-1].note:
                return

    @staticmethod
    def _stack(pid: int, seconds: float) -> tuple[bytes, str]:
        # nonblocking: a server that may still recover is not stopped for our sake
        done = run_bounded([_py_spy(), "dump", "--nonblocking", "--pid", str(pid)], timeout=min(seconds, 8.0))
        output = redact(done.output.decode(errors="replace")).encode()
        if done.ok:
            return output, ""
        hint = "" if done.fault else f"py-spy ended with {done.code} (it needs CAP_SYS_PTRACE)"
        return output, done.fault or hint

    @staticmethod
    def _gpu(seconds: float) -> tuple[bytes, str]:
        fields = (
            "index,name,utilization.gpu,memory.used,memory.total,temperature.gpu,pstate,power.draw,"
            "ecc.errors.uncorrected.volatile.total"
        )
        query = run_bounded(["nvidia-smi", f"--query-gpu={fields}", "--format=csv"], timeout=min(seconds, 5.0))
        if query.fault:
            return query.output, query.fault
        whole = run_bounded(["nvidia-smi"], timeout=min(seconds, 5.0))
        return query.output + b"\n" + whole.output, whole.fault

    def _tail(self, read: Callable[[int], bytes]) -> Callable[[float], tuple[bytes, str]]:
        size = min(_LOG_TAIL, self._left)

        def make(seconds: float) -> tuple[bytes, str]:
            return _redacted(read(size), time.monotonic() + seconds * 0.9)

        return make


def _py_spy() -> str:
    """Where py-spy is: on the path, or beside our own interpreter (an environment that nobody activated)."""
    beside = Path(sys.executable).parent / "py-spy"
    return shutil.which("py-spy") or (str(beside) if beside.exists() else "py-spy")


@dataclass(frozen=True, slots=True)
class _Failure:
    text: str


def _within(seconds: float, work: Callable[[], Any]) -> Any:
    """What ``work`` returns, or a :class:`_Failure` when it raises or overstays; then its thread is left behind."""
    if seconds <= 0:
        return _Failure("failed: no time was left")
    box: list[Any] = []

    def run() -> None:
        try:
            box.append(work())
        except Exception as error:  # noqa: BLE001 - the boundary: a piece that fails must not cost the others
            box.append(_Failure(f"failed: {redact(f'{type(error).__name__}: {error}')[:300]}"))

    thread = threading.Thread(target=run, name="evidence", daemon=True)
    thread.start()
    thread.join(seconds)
    return box[0] if box else _Failure(f"failed: not done within {seconds:.1f} s")


def _redacted(data: bytes, end: float) -> tuple[bytes, str]:
    """Log bytes without credentials. In small portions: a long run of one pattern would hold up the detecting thread
    (the interpreter's lock is not given up inside it). Past ``end`` the newest part wins."""
    text = data.decode(errors="replace")
    if "PRIVATE KEY" in text:  # spans lines
        return redact(text).encode(), ""
    portions: list[str] = []
    lines = text.splitlines(keepends=True)
    done = len(lines)
    while done:
        start, size = done, 0
        while start and size < 2048:
            start -= 1
            size += len(lines[start])
        portions.append(redact("".join(lines[start:done])))
        done = start
        if time.monotonic() > end:
            break
        time.sleep(0)
    note = "" if not done else "the newest part; there was no time for more"
    return "".join(reversed(portions)).encode(), note


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=1, default=str).encode()


def safe_name(name: str) -> str:
    """A file name made of a path: letters, digits, dot, dash, underscore; at most 80 characters, the end of it."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).lstrip("._")[-80:] or "log"
