"""What ``wedgewatch scan`` shows a person: a progress bar while it reads, then what it found."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import TextIO

from agent.model import Alert, rfc3339
from agent.replay import ScanResult
from integrations.terminal import render_terminal

__all__ = ["ProgressBar", "print_report"]


class ProgressBar:
    """A line on the terminal that says how much of the input has been read."""

    def __init__(self, logs: Sequence[str], out: TextIO) -> None:
        self._total = sum(os.path.getsize(name) for name in logs if name != "-")
        self._known = "-" not in logs
        self._out = out
        self._done: dict[str, int] = {}
        self._shown = 0.0
        self._drawn = False

    def update(self, name: str, position: int) -> None:
        """``position`` bytes of ``name`` have been read."""
        self._done[name] = position
        now = time.monotonic()
        if now - self._shown < 0.1:
            return
        self._shown = now
        done = sum(self._done.values())
        if self._known and self._total:
            share = min(1.0, done / self._total)
            bar = "#" * round(30 * share)
            self._out.write(f"\r[{bar:<30}] {100 * share:3.0f}%  {_size(done)} of {_size(self._total)}")
        else:
            self._out.write(f"\r{_size(done)} read")
        self._out.flush()
        self._drawn = True

    def close(self) -> None:
        """Take the bar away."""
        if self._drawn:
            self._out.write("\r\x1b[K")
            self._out.flush()


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def print_report(result: ScanResult, out: TextIO, *, color: bool, width: int | None = None) -> None:
    """Every alert that fired as a person at 3 am wants it, then one line that says what was read."""
    width = width or _width()
    for fingerprint in result.fired:
        alert = _as_it_ended(result.alerts, fingerprint)
        out.write(render_terminal(alert, color=color, width=width).rstrip("\n") + "\n\n")
    if not result.fired and not result.lines:
        out.write("Nothing was decided: there is no line in the input.\n")
    elif not result.fired:
        out.write("Nothing fired: no stalled, dead or degraded server in this log.\n")
        pending = {a.fingerprint: a for a in result.alerts if a.state == "pending"}
        for alert in pending.values():
            out.write(f"  suspected at {rfc3339(alert.starts_at)}, not proven: {alert.failure} ({alert.alertname})\n")
        if result.engine == "unknown":
            out.write("  The engine was not recognised from these lines; is it a server's log? --engine names it.\n")
    for sentence in result.damaged:
        out.write(f"  {sentence}\n")
    lines = "1 line" if result.lines == 1 else f"{result.lines:,} lines"
    out.write(f"{lines}, {_size(result.bytes)}, engine {result.engine}, alerts fired: {len(result.fired)}\n")


def _as_it_ended(alerts: Sequence[Alert], fingerprint: str) -> Alert:
    last = [alert for alert in alerts if alert.fingerprint == fingerprint and alert.fired_at is not None]
    return last[-1]


def _width() -> int:
    if sys.stdout.isatty():
        return max(60, min(120, os.get_terminal_size(sys.stdout.fileno()).columns))
    return 100
