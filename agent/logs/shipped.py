"""JSON that a log shipper or a log store put around each line, whatever it calls its keys.

An engine's own JSON formatter is a line format of its dialect. A shipper's object holds the engine's *line*, with the
engine's header still in it: that is how the key is known, and then every object with that key is an envelope.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

__all__ = ["Shipped"]

Path = tuple[str, ...]
_TIMES: Final = ("@timestamp", "timestamp", "time", "_time", "ts", "datetime", "eventTime", "date")
_WRITERS: Final = (
    "pod_name",
    "pod",
    "container_name",
    "container",
    "host",
    "hostname",
    "stream",
    "logStreamName",
    "file",
)
_DEPTH: Final = 4


@dataclass(frozen=True, slots=True)
class Shipped:
    """Where in the objects of one stream the line, its time and its writer stand."""

    message: Path
    time: Path = ()
    writers: tuple[Path, ...] = ()

    @classmethod
    def learn(cls, item: Mapping[str, Any], reads: Callable[[str], bool]) -> Shipped | None:
        """The keys of this object, if one of its texts begins with an engine's header (``reads``)."""
        found = list(_texts(item))
        message = next((path for path, value in found if isinstance(value, str) and reads(value.lstrip("\n"))), None)
        if message is None:
            return None
        others = [path for path, _ in found if path != message]
        time = min(
            (path for path in others if path[-1] in _TIMES), key=lambda p: (len(p), _TIMES.index(p[-1])), default=()
        )
        writers = tuple(path for path in others if any(name in _WRITERS for name in path))
        return cls(message, time, writers[:4])

    def unwrap(self, item: Mapping[str, Any]) -> tuple[tuple[str, ...], str] | None:
        """(time, writer, "F"), and the line; None for an object of another kind."""
        line = _member(item, self.message)
        if not isinstance(line, str):
            return None
        writer = "|".join(str(value) for path in self.writers if (value := _member(item, path)) is not None)
        return (_moment(_member(item, self.time)) if self.time else "", writer, "F"), line.removesuffix("\n")

    def to_json(self) -> list[Any]:
        """As JSON-able values."""
        return [list(self.message), list(self.time), [list(path) for path in self.writers]]

    @classmethod
    def from_json(cls, data: Any) -> Shipped | None:
        """Inverse of :meth:`to_json`; None stays None."""
        if data is None:
            return None
        message, time, writers = data
        return cls(tuple(message), tuple(time), tuple(tuple(path) for path in writers))


def _texts(item: Mapping[str, Any], path: Path = ()) -> Iterator[tuple[Path, Any]]:
    for key, value in item.items():
        if isinstance(value, Mapping):
            if len(path) < _DEPTH:
                yield from _texts(value, (*path, key))
        elif isinstance(value, str | int | float):
            yield (*path, key), value


def _member(item: Any, path: Path) -> Any:
    for key in path:
        item = item.get(key) if isinstance(item, Mapping) else None
    return item


def _moment(value: Any) -> str:
    """A time as RFC 3339; a number is seconds, or what its size says."""
    if isinstance(value, str) and not value.replace(".", "", 1).isdecimal():
        return value
    try:
        number = float(value)
    except (TypeError, ValueError):
        return ""
    for limit, unit in ((1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3)):
        if number >= limit:
            number *= unit
            break
    if not 1e8 <= number < 1e11:
        return ""
    return datetime.fromtimestamp(number, UTC).isoformat()
