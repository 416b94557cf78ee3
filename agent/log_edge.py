"""The logs of watched servers, live: one thread that follows all files, one for each other source.

Everything here hands over bytes with the position they reach to; nothing is decided.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agent.config import Config
from agent.config.servers import LogSource
from agent.logs.follow import Batch, Follower, FollowSpec, Notice, follow
from agent.logs.sources.piece import Piece
from agent.logs.wake import make_waker
from agent.telemetry import Telemetry
from agent.web.view import SourceView

if TYPE_CHECKING:
    from agent.logs.sources.journald import Journal
    from agent.logs.sources.kubernetes import PodLogs

__all__ = ["LogBytes", "LogEdge"]

log = logging.getLogger("wedgewatch.logs")

_CHUNK: Final = 256 * 1024
_LOUD: Final = frozenset({"denied", "error", "lost"})


@dataclass(frozen=True, slots=True)
class LogBytes:
    """Bytes of one log. ``key`` names the stream for ever, ``position`` is what to commit when they are processed.

    ``new_file``: the bytes begin a file, whose lines count from ``first_line``. ``ended``: the log is gone for good.
    """

    key: str
    server: str
    file: str
    data: bytes = b""
    position: Any = None
    new_file: bool = False
    first_line: int = 1
    envelope: str = "auto"
    timezone: str = ""
    ended: bool = False


Put = Callable[[LogBytes], None]


class LogEdge:
    """All log sources of a configuration. ``positions`` are the committed ones, by stream key."""

    def __init__(self, config: Config, positions: Mapping[str, Any], put: Put, telemetry: Telemetry) -> None:
        self._put = put
        self._telemetry = telemetry
        self._sources: list[_Source] = []
        for server in config.servers:
            for number, source in enumerate(server.logs):
                self._sources.append(_make(server.name, number, source, positions, put, telemetry))
            if server.logs:
                telemetry.register_source(server.name)

    def works(self) -> list[tuple[str, Callable[[threading.Event], None]]]:
        """A name and a loop for each thread."""
        return [(source.name, source.work) for source in self._sources]

    def files(self, server: str) -> list[str]:
        """Files that are followed for a server now."""
        return [name for source in self._sources if source.server == server for name in source.files()]

    def views(self) -> list[SourceView]:
        """Each source for the page."""
        return [source.view() for source in self._sources]

    def close(self) -> None:
        """Wake every loop up; they end when their stop is set."""
        for source in self._sources:
            source.close()


class _Source:
    """One configured source of log bytes."""

    kind = "file"

    def __init__(self, server: str, number: int, source: LogSource, put: Put, telemetry: Telemetry) -> None:
        self.server = server
        self.source = source
        self.telemetry = telemetry
        self.error = ""
        self.bytes = 0
        self.last: float | None = None
        self._put = put
        self.name = f"log {server} {number}"

    def work(self, stop: threading.Event) -> None:
        raise TypeError(f"{type(self).__name__} has no loop of its own")

    def files(self) -> list[str]:
        return []

    def view(self) -> SourceView:
        return SourceView(
            self.server, self.label(), self.kind, files=len(self.files()), bytes=self.bytes, error=self.error
        )

    def label(self) -> str:
        return self.source.path or self.kind

    def close(self) -> None:
        """Nothing to wake."""

    def put(self, key: str, file: str, data: bytes, position: Any, **more: Any) -> None:
        self.bytes += len(data)
        if data:
            self.telemetry.inc("source_bytes_read_total", len(data), source=self.server)
        self._put(
            LogBytes(
                key, self.server, file, data, position,
                envelope={"raw": "none"}.get(self.source.format, self.source.format),
                timezone=self.source.timezone or "",
                **more,
            )
        )  # fmt: skip


class _Files(_Source):
    """Files by path or glob."""

    def __init__(
        self, server: str, number: int, source: LogSource, positions: Mapping[str, Any], put: Put, telemetry: Telemetry
    ) -> None:
        super().__init__(server, number, source, put, telemetry)
        assert source.path is not None, "made for sources with a path"
        self._prefix = f"{server}\x1f"
        mine = {
            key.removeprefix(self._prefix): value for key, value in positions.items() if key.startswith(self._prefix)
        }
        self.follower = Follower(
            FollowSpec((source.path,), source.exclude, source.start_at == "end", source.rotate_wait), mine
        )
        self._waker, problem = make_waker()
        if problem:
            log.info("%s: %s", source.path, problem)

    def work(self, stop: threading.Event) -> None:
        """Follow until told to stop."""
        try:
            follow(
                self.follower, self._waker, self._deliver, stop.is_set,
                poll_interval=self.source.poll_interval, rest=stop.wait,
            )  # fmt: skip
        finally:
            self.follower.close()

    def _deliver(self, batches: list[Batch], notices: list[Notice]) -> None:
        for notice in notices:
            self._note(notice)
        for batch in batches:
            if batch.data or batch.ended or batch.position:
                self.put(
                    self._prefix + batch.key, batch.file, batch.data, dict(batch.position) or None,
                    new_file=batch.new_file, first_line=batch.first_line, ended=batch.ended,
                )  # fmt: skip

    def _note(self, notice: Notice) -> None:
        (log.warning if notice.kind in _LOUD else log.info)("%s", notice.text)
        if notice.kind in ("denied", "error", "missing", "waiting"):
            self.error = notice.text
        elif notice.kind in ("found", "recovered"):
            self.error = ""
        if notice.kind == "rotated":
            self.telemetry.inc("source_rotations_total", 1.0, source=self.server)
        elif notice.kind == "truncated":
            self.telemetry.inc("source_truncations_total", 1.0, source=self.server)

    def files(self) -> list[str]:
        return [path for path, tail in list(self.follower.tails.items()) if tail.is_open]

    def view(self) -> SourceView:
        tails = list(self.follower.tails.values())
        lag = sum(tail.lag() for tail in tails)
        self.telemetry.set("source_lag_bytes", float(lag), source=self.server)
        self.telemetry.set("source_files", float(sum(tail.is_open for tail in tails)), source=self.server)
        return SourceView(
            self.server, self.label(), self.kind, files=len(self.files()), bytes=self.bytes, lag_bytes=lag,
            rotations=sum(tail.rotations for tail in tails), error=self.error,
        )  # fmt: skip

    def close(self) -> None:
        self._waker.wake()


class _Stdin(_Source):
    """Standard input, read to its end."""

    kind = "stdin"

    def work(self, stop: threading.Event) -> None:
        """Read until the end of input."""
        descriptor = sys.stdin.buffer.fileno()
        while not stop.is_set():
            data = os.read(descriptor, _CHUNK)
            if not data:
                self.put(f"{self.server}\x1fstdin", "-", b"", None, ended=True)
                return
            self.put(f"{self.server}\x1fstdin", "-", data, None)


class _Lines(_Source):
    """A source that hands over whole lines by itself: the journal, pods."""

    def __init__(
        self, server: str, number: int, source: LogSource, positions: Mapping[str, Any], put: Put, telemetry: Telemetry
    ) -> None:
        super().__init__(server, number, source, put, telemetry)
        self._prefix = f"{server}\x1f{self.kind}:"
        mine = {
            key.removeprefix(self._prefix): value for key, value in positions.items() if key.startswith(self._prefix)
        }
        self._reader = self._open(mine)
        self._keys: set[str] = set()

    def _open(self, positions: Mapping[str, Any]) -> Journal | PodLogs:
        raise TypeError(f"{type(self).__name__} reads nothing")

    def work(self, stop: threading.Event) -> None:
        """Read until told to stop."""
        self._reader.run(stop, self._deliver, self._note)

    def _deliver(self, piece: Piece) -> None:
        self._keys.add(piece.key)
        self.put(self._prefix + piece.key, piece.key, piece.data, dict(piece.position))

    def _note(self, notice: Notice) -> None:
        (log.warning if notice.kind in _LOUD else log.info)("%s", notice.text)
        self.error = "" if notice.kind in ("found", "recovered") else notice.text

    def files(self) -> list[str]:
        return sorted(self._keys)

    def close(self) -> None:
        self._reader.close()


class _Journal(_Lines):
    """A unit's entries in the systemd journal."""

    kind = "journald"

    def _open(self, positions: Mapping[str, Any]) -> Journal:
        from agent.logs.sources.journald import Journal

        unit = self.source.journald or ""
        arguments = ("-u", unit) if unit else ()
        return Journal(unit, arguments, positions.get(unit), from_end=self.source.start_at == "end")

    def label(self) -> str:
        return self.source.journald or self.kind


class _Pods(_Lines):
    """Pods through the Kubernetes API."""

    kind = "kubernetes"

    def _open(self, positions: Mapping[str, Any]) -> PodLogs:
        # Brings TLS with it, which a daemon that follows files may never need.
        from agent.logs.sources.kubernetes import ApiAccess, PodLogs

        pods = self.source.kubernetes
        assert pods is not None, "made for sources of pods"
        given = {"server": pods.api_server, "token_file": pods.token_file, "ca_file": pods.ca_file}
        access = ApiAccess(namespace=pods.namespace, **{name: value for name, value in given.items() if value})
        return PodLogs(
            access, pod=pods.pod, selector=pods.selector, container=pods.container, positions=positions,
            from_end=self.source.start_at == "end",
        )  # fmt: skip

    def label(self) -> str:
        pods = self.source.kubernetes
        return (pods.selector or pods.pod or self.kind) if pods is not None else self.kind


def _make(
    server: str, number: int, source: LogSource, positions: Mapping[str, Any], put: Put, telemetry: Telemetry
) -> _Source:
    if source.path is not None:
        return _Files(server, number, source, positions, put, telemetry)
    if source.journald is not None:
        return _Journal(server, number, source, positions, put, telemetry)
    if source.kubernetes is not None:
        return _Pods(server, number, source, positions, put, telemetry)
    return _Stdin(server, number, source, put, telemetry)
