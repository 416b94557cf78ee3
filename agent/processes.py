"""The processes of a watched server, seen through ``/proc``: who they are, how they hang together, what they wait for.

Linux only; where ``/proc`` hides a process (another user's, another container's) it is simply not seen.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

__all__ = ["Process", "family", "find", "listeners", "local_port", "read"]

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_MOST: Final = 64
"""Processes of one family that are described."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process at one moment. ``state`` is the letter of ps (R, S, D, Z, T), ``waits_in`` the kernel function that
    it sleeps in (with D: a driver call that does not return)."""

    pid: int
    parent: int
    session: int
    state: str
    threads: int
    rss_bytes: int
    cpu_seconds: float
    command: str
    waits_in: str = ""

    @property
    def is_python(self) -> bool:
        first = self.command.split(" ", 1)[0].rsplit("/", 1)[-1]
        return first.startswith(("python", "vllm", "VLLM", "sglang", "trtllm", "ray::")) or ".py" in self.command


def read(pid: int, proc: Path = Path("/proc")) -> Process | None:
    """The process ``pid``; None when it is gone or hidden."""
    folder = proc / str(pid)
    try:
        stat = (folder / "stat").read_text(errors="replace")
        command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return None
    name, _, rest = stat.partition("(")[2].rpartition(")")  # the name may hold blanks and brackets
    fields = rest.split()
    if len(fields) < 22:
        return None
    waits_in = ""
    with contextlib.suppress(OSError):
        waits_in = (folder / "wchan").read_text().strip().strip("0")
    return Process(
        pid=pid,
        parent=int(fields[1]),
        session=int(fields[3]),
        state=fields[0],
        threads=int(fields[17]),
        rss_bytes=int(fields[21]) * _PAGE,
        cpu_seconds=(int(fields[11]) + int(fields[12])) / _TICKS,
        command=command or f"[{name}]",
        waits_in=waits_in,
    )


def everyone(proc: Path = Path("/proc")) -> dict[int, Process]:
    """Every process that can be seen."""
    found = {}
    for entry in os.listdir(proc):
        if entry.isdigit() and (process := read(int(entry), proc)) is not None:
            found[process.pid] = process
    return found


def find(hint: str, port: int | None, proc: Path = Path("/proc")) -> list[int]:
    """The pids that ``hint`` means: a PID file, a number, or a part of the command line; without a hint the process
    that listens on ``port``."""
    hint = hint.strip()
    if hint.isascii() and hint.isdigit():
        return [int(hint)]
    if hint.startswith("/") and " " not in hint and os.path.isfile(hint) and not os.access(hint, os.X_OK):
        with contextlib.suppress(OSError, ValueError):
            return [int(Path(hint).read_text()[:32].split()[0])]
    if hint:
        own = os.getpid()
        return sorted(pid for pid, item in everyone(proc).items() if hint in item.command and pid != own)
    return listeners(port, proc) if port else []


def listeners(port: int, proc: Path = Path("/proc")) -> list[int]:
    """The pids that hold a socket listening on TCP ``port``."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if len(fields) > 9 and fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    if not inodes:
        return []
    found = []
    for entry in os.listdir(proc):
        if not entry.isdigit():
            continue
        try:
            with os.scandir(proc / entry / "fd") as handles:
                if any(_target(handle.path) in inodes for handle in handles):
                    found.append(int(entry))
        except OSError:
            continue
    return sorted(found)


def local_port(url: str) -> int | None:
    """The port of an address on this machine; None when it is another machine's: a process that listens on the same
    port here would be a stranger."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return None
    return port if host in ("localhost", "::1") or re.fullmatch(r"127(\.\d{1,3}){3}", host) else None


def family(roots: Iterable[int], proc: Path = Path("/proc")) -> list[tuple[int, Process]]:
    """``(depth, process)`` of the roots with their ancestors inside the same session and all descendants."""
    known = everyone(proc)
    tops = []
    for pid in roots:
        current = known.get(pid)
        if current is None:
            continue
        while (
            (parent := known.get(current.parent)) is not None and parent.session == current.session and parent.pid > 1
        ):
            current = parent
        if current.pid not in tops:
            tops.append(current.pid)
    children: dict[int, list[int]] = {}
    for item in known.values():
        children.setdefault(item.parent, []).append(item.pid)
    out: list[tuple[int, Process]] = []
    stack = [(0, pid) for pid in reversed(tops)]
    seen: set[int] = set()
    while stack and len(out) < _MOST:
        depth, pid = stack.pop()
        if pid in seen:
            continue
        seen.add(pid)
        out.append((depth, known[pid]))
        stack.extend((depth + 1, child) for child in sorted(children.get(pid, ()), reverse=True))
    return out


def _target(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
