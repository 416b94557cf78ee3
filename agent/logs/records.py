"""From lines to records: a traceback is one record, whoever else writes in between.

Python prints tracebacks in three shapes: bare, chained (two or more with a sentence between), and with the
logger's header repeated on every line. Several processes share one file and interleave line by line, so each
open traceback belongs to a *writer*: the envelope's stream and the header's process, pid and rank.

::

    [RANK 7] [E] Traceback (most recent call last):   opens a group of rank 7
      File "executor.py", line 12, in step            no header: the newest open group of this stream
    [RANK 5] [E] Traceback (most recent call last):   opens a group of rank 5, does not end that of rank 7
    AssertionError: ...                               ends the newest one; held until the next line, since
                                                      "During handling of ..." would chain another to it
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

__all__ = ["TRACEBACK_MARKS", "Group", "Grouper", "Line", "holds_traceback", "is_exception_line", "starts_group"]

TRACEBACK_MARKS: Final = (
    rb"Traceback \x28most recent call last\x29\x3a[\x09 ]*\n",
    rb"Exception (?:in thread|ignored in)",
)
"""Expressions of which one is found in every line that may open a group."""

MAX_LINES: Final = 2000
MAX_BYTES: Final = 1 << 20
MAX_FOREIGN: Final = 200
"""Lines of others after which an open group is taken as it is."""
MAX_GAP: Final = 2.0
"""Seconds of event time after which an open group is taken as it is."""


@dataclass(slots=True)
class Line:
    """One unwrapped line with what is known of it. ``writer`` is (envelope stream, process, pid, rank)."""

    number: int
    text: str
    body: str
    time: float | None
    time_source: str
    severity_text: str
    severity_number: int
    attributes: Mapping[str, str]
    writer: tuple[str, ...]
    has_header: bool
    engine: str = ""


_TRACEBACK: Final = "Traceback (most recent call last):"
_CHAIN: Final = ("During handling of the above exception", "The above exception was the direct cause")
_PROLOGUE: Final = ("Exception in thread ", "Exception ignored in")
_EXCEPTION: Final = re.compile(r"(?P<name>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?::(?:\s|$)|$)", re.ASCII)
_LEVELS: Final = frozenset({"TRACE", "DEBUG", "INFO", "NOTICE", "WARN", "WARNING", "ERROR", "CRITICAL", "FATAL"})
_NO_EXCEPTION: Final = _LEVELS | {"Note", "Hint", "Warning", "Error"}
_SUFFIXES: Final = ("Error", "Exception", "Exit", "Interrupt", "Timeout", "Expired", "ExceptionGroup")
_FRAME: Final = re.compile(r"\d+\s+0x[0-9a-fA-F]+\s|#\d+\s|\[0x|\"\"\"$|'''$|ray::")
_GROUP_END: Final = re.compile(r"\s*\+-+\s*$")


def is_exception_line(body: str) -> bool:
    """``SomeError: message`` at the start of a line, by the name's ending."""
    match = _EXCEPTION.match(body)
    return (
        match is not None
        and match["name"].rpartition(".")[2].endswith(_SUFFIXES)
        and match["name"] not in _NO_EXCEPTION
    )


def holds_traceback(body: str) -> bool:
    """Whether a body of several lines (a journal's message, a JSON record) has a traceback in it."""
    return "\n" in body and _TRACEBACK in body


def starts_group(body: str) -> bool:
    """Whether a line with this body opens a traceback."""
    return body.rstrip().endswith(_TRACEBACK) or body.startswith(_PROLOGUE)


def _may_end(body: str) -> bool:
    # After frames the first line that is not indented is the exception, whatever it is called.
    match = _EXCEPTION.match(body)
    if match is None or match["name"] in _NO_EXCEPTION:
        return False
    last = match["name"].rpartition(".")[2]
    return last[:1].isupper() or "." in match["name"] or last.endswith(_SUFFIXES)


@dataclass(slots=True)
class Group:
    """An open traceback. ``state``: ``prologue`` (a line before it), ``frames``, ``done``, ``chain``."""

    first: Line
    bodies: list[str]
    texts: list[str]
    state: Literal["prologue", "frames", "done", "chain"]
    prefixed: bool | None = None
    last_time: float | None = None
    foreign: int = 0
    blanks: int = 0
    size: int = 0
    dropped: int = 0
    is_exception_group: bool = False

    @property
    def lines(self) -> int:
        return len(self.bodies) + self.dropped

    def accepts(self, body: str) -> bool:
        """Whether a line of this writer goes on with the traceback."""
        stripped = body.strip()
        if self.state == "prologue":
            return body.rstrip().endswith(_TRACEBACK)
        if self.state == "chain":
            return not stripped or body.rstrip().endswith(_TRACEBACK)
        if not stripped or stripped.startswith(_CHAIN):
            return True
        if self.state == "done" and self.blanks:
            return False
        if body[0] in " \t" or _FRAME.match(body) is not None:
            return True
        return self.state == "frames" and _may_end(body)

    def add(self, line: Line) -> None:
        """Take a line that :meth:`accepts` takes."""
        body = line.body
        stripped = body.strip()
        if not stripped:
            # Only a chain makes a blank line part of the record.
            self.blanks += 1
            return
        if stripped.startswith(_CHAIN):
            self.state = "chain"
        elif body.rstrip().endswith(_TRACEBACK):
            self.state = "frames"
            self.is_exception_group |= stripped.startswith("+")
        elif self.is_exception_group:
            self.state = "done" if _GROUP_END.match(body) else "frames" if self.state == "frames" else self.state
        elif self.state == "frames" and body[0] not in " \t" and _may_end(body):
            self.state = "done"
        self._append("", "", self.blanks)
        self.blanks = 0
        self._append(body, line.text, 1)
        self.foreign = 0
        if line.time is not None:
            self.last_time = line.time

    def _append(self, body: str, text: str, times: int) -> None:
        for _ in range(times):
            if len(self.bodies) >= MAX_LINES or self.size + len(text) > MAX_BYTES:
                self.dropped += 1
            else:
                self.bodies.append(body)
                self.texts.append(text)
                self.size += len(text) + 1


@dataclass(slots=True)
class Grouper:
    """The open tracebacks of one stream. :meth:`take` is given every line while any is open."""

    groups: list[Group] = field(default_factory=list)

    def take(self, line: Line) -> tuple[bool, list[Group]]:
        """Whether the line went into a group, and the groups that it ends (which come before it)."""
        target = self._target(line)
        taken = target is not None and target.accepts(line.body)
        if taken and target is not None:
            if target.prefixed is None:
                target.prefixed = line.has_header
            target.add(line)
        ended = [group for group in self.groups if self._ends(group, line, target, taken)]
        for group in ended:
            self.groups.remove(group)
        if not taken and starts_group(line.body):
            self._open(line)
            taken = True
        return taken, ended

    def flush(self) -> list[Group]:
        """End of input, or silence: what is open is as whole as it gets."""
        ended, self.groups = self.groups, []
        return ended

    def _open(self, line: Line) -> None:
        state: Literal["prologue", "frames"] = "frames" if line.body.rstrip().endswith(_TRACEBACK) else "prologue"
        group = Group(line, [line.body], [line.text], state, last_time=line.time, size=len(line.text))
        group.prefixed = None if line.has_header else False
        group.is_exception_group = line.body.lstrip().startswith("+")
        self.groups.append(group)

    def _target(self, line: Line) -> Group | None:
        if line.has_header:
            return next((group for group in self.groups if group.first.writer == line.writer), None)
        # A line without a header may go on with the newest traceback of its stream that can use it.
        able = [
            group for group in reversed(self.groups) if group.first.writer[0] == line.writer[0] and not group.prefixed
        ]
        return next((group for group in able if group.accepts(line.body)), able[0] if able else None)

    @staticmethod
    def _ends(group: Group, line: Line, target: Group | None, taken: bool) -> bool:
        if group is target and taken:
            return False
        bare = group.prefixed is False and not group.first.has_header
        if bare and group.state == "done" and line.writer[0] == group.first.writer[0]:
            # Nothing tells whose it is, so its end is the next line of the stream that is none of it.
            return True
        if group is target and (
            group.state != "frames" or starts_group(line.body) or (line.has_header and group.first.has_header)
        ):
            # A whole traceback ends with the next line that is none of it, a cut one with its writer's next header.
            return True
        group.foreign += 1
        late = line.time is not None and group.last_time is not None and line.time - group.last_time > MAX_GAP
        return group.foreign > MAX_FOREIGN or late

    def snapshot(self) -> list[dict[str, Any]]:
        """Open groups as JSON-able values."""
        return [
            {
                "first": [getattr(group.first, name) for name in Line.__slots__],
                **{name: getattr(group, name) for name in Group.__slots__ if name != "first"},
            }
            for group in self.groups
        ]

    @classmethod
    def restore(cls, data: list[dict[str, Any]]) -> Grouper:
        """Inverse of :meth:`snapshot`."""
        groups = []
        for item in data:
            first = dict(zip(Line.__slots__, item["first"], strict=True))
            first["writer"] = tuple(first["writer"])
            groups.append(Group(Line(**first), **{name: value for name, value in item.items() if name != "first"}))
        return cls(groups)
