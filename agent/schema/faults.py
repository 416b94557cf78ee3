"""What is wrong in a file, where, and what was probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from agent.model import Position

__all__ = ["Fault", "did_you_mean", "errors", "nearest", "sort_faults"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a configuration, rule or dialect file.

    A file with an ``error`` is refused as a whole; a ``warning`` is said and lived with. As text:
    ``file:line:col: message``, a warning with the word in front of its message.
    """

    position: Position
    message: str
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        word = "warning: " if self.severity == "warning" else ""
        return f"{self.position}: {word}{self.message}"


def sort_faults(faults: Iterable[Fault]) -> list[Fault]:
    """By file, line and column, each fault once."""

    def key(fault: Fault) -> tuple[str, int, int, str, str]:
        where = fault.position
        return (where.file, where.line, where.column, fault.severity, fault.message)

    return sorted(set(faults), key=key)


def errors(faults: Iterable[Fault]) -> list[Fault]:
    """Those that make the input unusable."""
    return [fault for fault in faults if fault.severity == "error"]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``, did you mean 'x'?`` for the nearest known word, or an empty text when none is near."""
    near = nearest(word, known)
    return "" if near is None else f", did you mean '{near}'?"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant; case, dashes and underscores are not held against the writer."""
    import difflib  # costs 3 ms and is needed only when something is wrong

    def plain(text: str) -> str:
        return text.lower().replace("-", "_").replace(" ", "_")

    names = {plain(name): name for name in known}
    near = difflib.get_close_matches(plain(word), names, n=1, cutoff=0.6)
    return names[near[0]] if near else None
