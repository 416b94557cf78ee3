"""An alert in a terminal, for a person at 3 am: the answer on the first line, no colour needed to understand it."""

from __future__ import annotations

import os
import sys
import textwrap
import unicodedata
from dataclasses import dataclass
from typing import IO, Final, Literal

from agent.model import Alert
from integrations.base import Action, Notification, Outcome, ReceiverOptions, Traits
from integrations.message import Message, build
from integrations.plain import evidence_lines, fact_lines, spark_lines

__all__ = ["TerminalConfig", "TerminalReceiver", "color_wanted", "render_message", "render_terminal", "visible_width"]

_RED: Final = "\x1b[1;37;41m"
_YELLOW: Final = "\x1b[30;43m"
_GREEN: Final = "\x1b[30;42m"
_BOLD: Final = "\x1b[1m"
_DIM: Final = "\x1b[2m"
_PLAIN: Final = "\x1b[0m"
_SEVERITY: Final = {"ERROR": "\x1b[31m", "FATAL": "\x1b[31m", "WARN": "\x1b[33m"}
_MARK: Final = {"yes": "\x1b[31m", "no": "\x1b[32m"}


@dataclass(frozen=True, kw_only=True)
class TerminalConfig(ReceiverOptions):
    """Alerts on standard error (or output) of the daemon."""

    stream: Literal["stderr", "stdout"] = "stderr"


def render_terminal(alert: Alert, *, color: bool, width: int, now: float | None = None) -> str:
    """One alert as lines for a terminal of ``width`` columns, ending in a newline.

    ``now`` is the time to reckon from; without it the alert's own last moment, as for yesterday's log."""
    if now is None:
        times = [alert.ends_at, alert.detected_at, alert.fired_at, *(stage.timestamp for stage in alert.stages)]
        now = max([alert.starts_at, *(when for when in times if when is not None)])
        told = alert.context.get("stalled_for")
        if alert.state != "resolved" and isinstance(told, int | float) and 0 <= told < 30 * 86400:
            now = max(now, alert.starts_at + told)
    action: Action = "resolve" if alert.state == "resolved" else "open"
    notification = Notification("terminal", alert.fingerprint, action, (alert,), now)
    message = build(notification)
    return render_message(message, color=color, width=width, pending=alert.state == "pending")


def render_message(message: Message, *, color: bool, width: int, pending: bool = False) -> str:
    """A message as lines for a terminal, ending in a newline."""
    width = max(40, min(width, 160))

    def paint(text: str, code: str) -> str:
        return f"{code}{text}{_PLAIN}" if color and code else text

    state = "PENDING" if pending else message.state
    badge = _GREEN if "RESOLVED" in state else _RED if message.severity == "critical" and not pending else _YELLOW
    mark = f" {state} " if color else f"[{state}]"
    first, *rest = _wrap(f"{mark} {message.title}", width, "", hang=2)
    lines = [f"{paint(mark, badge)}{paint(first[len(mark) :], _BOLD)}", *(paint(line, _BOLD) for line in rest)]
    if message.summary:
        lines += _wrap(message.summary, width, "  ")
    for line in fact_lines(message.facts):
        lines += _wrap(line, width, "  ", hang=2 + max(len(fact.name) for fact in message.facts) + 2)
    if message.sparks:
        lines += ["", *(part for line in spark_lines(message) for part in _wrap(line, width, "  ", hang=4))]
    if message.evidence:
        lines += ["", paint("Evidence", _BOLD)]
        for item in message.evidence:
            for line in evidence_lines([item]):
                painted = _SEVERITY.get(item.severity, "")
                lines += [paint(part, painted) for part in _wrap(line, width, "  ", hang=17)]
    if message.checks:
        lines += ["", paint("Checks", _BOLD)]
        for check in message.checks:
            first, *rest = _wrap(f"[{check.mark}] {check.text}", width, "  ", hang=2 + len(check.mark) + 3)
            mark = f"[{check.mark}]"
            lines.append(first.replace(mark, paint(mark, _MARK.get(check.mark, _DIM)), 1))
            lines += rest
    if message.excluded:
        lines += ["", *_wrap("Not this: " + ", ".join(message.excluded), width, "", hang=10)]
    if message.actions:
        lines += ["", paint("Do now", _BOLD)]
        for index, action in enumerate(message.actions, 1):
            lines += _wrap(f"{index}. {action}", width, "  ", hang=5)
    if message.others:
        lines += ["", paint("Also", _BOLD)]
        for other in message.others:
            lines += _wrap(other, width, "  ", hang=4)
    if message.links:
        lines += ["", *(f"{link.text}: {link.url}" for link in message.links)]
    for note in (*message.notes, *([f"key {message.key}"] if message.key else [])):
        lines += [paint(line, _DIM) for line in _wrap(note, width, "")]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def visible_width(text: str) -> int:
    """Columns that a text takes: wide characters two, combining ones none."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def _wrap(text: str, width: int, indent: str, hang: int | None = None) -> list[str]:
    """Lines of at most ``width`` columns; wide characters are counted as two by wrapping them earlier."""
    lines: list[str] = []
    after = " " * (len(indent) if hang is None else hang)
    for part in text.split("\n"):
        part = part.replace("\t", "    ")
        wide = visible_width(part) - len(part)
        room = max(20, width if wide <= 0 else width * max(1, len(part)) // max(1, visible_width(part)))
        lines += textwrap.wrap(
            part,
            room,
            initial_indent=indent if not lines else after,
            subsequent_indent=after,
            break_on_hyphens=False,
            drop_whitespace=True,
            replace_whitespace=False,
        ) or [""]
    return lines


def color_wanted(stream: IO[str]) -> bool:
    """Colours only on a terminal, and never with NO_COLOR (https://no-color.org) or TERM=dumb."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


class TerminalReceiver:
    """Prints each notification."""

    kind = "terminal"
    traits = Traits(partial=True)

    def __init__(self, config: TerminalConfig, stream: IO[str] | None = None) -> None:
        self._config = config
        self._stream = stream

    def notify(self, notification: Notification) -> Outcome:
        stream: IO[str] = self._stream or (sys.stdout if self._config.stream == "stdout" else sys.stderr)
        try:
            width = os.get_terminal_size(stream.fileno()).columns if stream.isatty() else 100
            text = render_message(build(notification, self._config), color=color_wanted(stream), width=width)
            encoding = getattr(stream, "encoding", None) or "utf-8"
            stream.write(text.encode(encoding, "replace").decode(encoding) + "\n")
            stream.flush()
        except (OSError, ValueError) as error:
            return Outcome.retry(f"the terminal takes nothing ({error})", reason="other")
        return Outcome.success()
