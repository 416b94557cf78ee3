"""Each kind of log source, live: what reads it, how it is named, and how it is shown.

A source runs in a thread of its own, hands over bytes with the position they reach to, and decides nothing.
"""

from __future__ import annotations

import logging
import os
import select
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from agent.config.servers import LogSource
from agent.logs.follow import Batch, Follower, FollowSpec, Notice, follow
from agent.logs.sources.piece import Piece
from agent.logs.wake import make_waker
from agent.telemetry import Telemetry
from agent.web.view import SourceView

if TYPE_CHECKING:
    from agent.logs.sources.journald import Journal
    from agent.logs.sources.kubernetes import PodLogs

__all__ = ["LogBytes", "Post", "ReadToEnd", "Source", "make_source"]

log = logging.getLogger("wedgewatch.logs")

_CHUNK: Final = 256 * 1024
_LOUD: Final = frozenset({"denied", "error", "lost"})


@dataclass(frozen=True, slots=True)
class LogBytes:
    """Bytes of one log. ``key`` names the stream for ever, ``position`` is what to commit when they are processed.

    ``new_file``: the bytes begin a file, whose lines count from ``first_line``. ``ended``: the log is gone for good.
    ``live``: they were written while we watched, so a stamp that is far from now is a wrong stamp.
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
    live: bool = False
    source: Source | None = None


@dataclass(frozen=True, slots=True)
class ReadToEnd:
    """A source was read to its end, after it was asked for the ``turn``-th time to say so."""

    source: Source
    turn: int


Post = Callable[["LogBytes | ReadToEnd", int, Callable[[], bool]], None]
"""Hands something of so many bytes to the core; waits for room unless the last argument says that it is given up."""


class Source:
    """One configured source of log bytes.

    The core counts ``lines``, ``cut_lines``, ``decode_errors``, ``adjusted`` and ``last_line`` into it. What was read
    from a source that is ``retired`` (another configuration holds) and is not yet processed is read again by its
    successor.
    """

    kind: ClassVar[str] = "file"
    tells_its_end: ClassVar[bool] = False
    """Whether :class:`ReadToEnd` comes from it."""

    def __init__(self, server: str, name: str, source: LogSource, post: Post, telemetry: Telemetry) -> None:
        self.server = server
        self.name = name
        self.config = source
        self.telemetry = telemetry
        self.error = ""
        self.bytes = 0
        self.lines = 0
        self.cut_lines = 0
        self.decode_errors = 0
        self.adjusted = 0
        self.last_line: float | None = None
        self.retired = False
        self.turn = 0
        self._post = post
        self._stop = threading.Event()

    def work(self, stop: threading.Event) -> None:
        """Read until told to stop."""
        raise TypeError(f"{type(self).__name__} has no loop of its own")

    def files(self) -> list[str]:
        """Names of what is read now."""
        return []

    def lag(self) -> int:
        """Bytes that are there and were not read."""
        return 0

    def rotations(self) -> int:
        """Rotations followed."""
        return 0

    def label(self) -> str:
        """How people call it."""
        return self.config.path or self.kind

    def tell_end(self, turn: int) -> None:
        """Say when everything that is there now was read."""
        self.turn = turn
        self.wake()

    def retire(self) -> None:
        """Another configuration holds; nothing of this source counts any more."""
        self.retired = True

    def wake(self) -> None:
        """End a wait in :meth:`work`."""

    def view(self) -> SourceView:
        """For the page."""
        return SourceView(
            self.server, self.label(), self.kind, files=len(self.files()), lines=self.lines, bytes=self.bytes,
            lag_bytes=self.lag(), last_line=self.last_line, rotations=self.rotations(), error=self.error,
        )  # fmt: skip

    def put(self, key: str, file: str, data: bytes, position: Any, **more: Any) -> None:
        """Hand over bytes."""
        self.bytes += len(data)
        item = LogBytes(
            key, self.server, file, data, position,
            envelope=self.config.format, timezone=self.config.timezone or "", source=self, **more,
        )  # fmt: skip
        self._post(item, len(data), self._given_up)

    def _given_up(self) -> bool:
        return self.retired or self._stop.is_set()

    def note(self, notice: Notice) -> None:
        """Something happened to the source: say it once."""
        (log.warning if notice.kind in _LOUD else log.info)("%s", notice.text)
        if notice.kind in ("denied", "error", "missing", "waiting"):
            self.error = notice.text
        elif notice.kind in ("found", "recovered"):
            self.error = ""
        if notice.kind == "rotated":
            self.telemetry.inc("source_rotations_total", 1.0, source=self.name)
        elif notice.kind == "truncated":
            self.telemetry.inc("source_truncations_total", 1.0, source=self.name)


class Files(Source):
    """Files by path or glob."""

    tells_its_end = True

    def __init__(
        self,
        server: str,
        name: str,
        source: LogSource,
        positions: Mapping[str, Any],
        post: Post,
        telemetry: Telemetry,
    ) -> None:
        super().__init__(server, name, source, post, telemetry)
        assert source.path is not None, "made for sources with a path"
        self._prefix = f"{server}\x1f"
        spec = FollowSpec((source.path,), source.exclude, source.start_at == "end", source.rotate_wait)
        self.follower = Follower(spec, _of(self._prefix, positions))
        self._waker, problem = make_waker()
        if problem:
            log.info("%s: %s", source.path, problem)
        self._caught_up = False
        self._asked = 1  # the turn that was asked for when the present look began
        self._told = 0
        self._ended = False
        self._ending = threading.Lock()

    def work(self, stop: threading.Event) -> None:
        """Follow until told to stop."""
        self._stop = stop
        try:
            follow(
                self.follower, self._waker, self._deliver, stop.is_set,
                poll_interval=self.config.poll_interval, rest=stop.wait,
            )  # fmt: skip
        finally:
            if stop.is_set():
                self.follower.close()
                with self._ending:
                    self._ended = True
                    self._waker.close()

    def _deliver(self, batches: list[Batch], notices: list[Notice]) -> None:
        for notice in notices:
            self.note(notice)
        for batch in batches:
            if batch.data or batch.ended or batch.position:
                self.put(
                    self._prefix + batch.key, batch.file, batch.data, dict(batch.position) or None,
                    new_file=batch.new_file, first_line=batch.first_line, ended=batch.ended, live=self._caught_up,
                )  # fmt: skip
        if self.follower.more:
            return
        self._caught_up = True
        if self._asked > self._told:
            self._told = self._asked
            self._post(ReadToEnd(self, self._told), 0, self._given_up)
        self._asked = self.turn

    def files(self) -> list[str]:
        return [path for path, tail in list(self.follower.tails.items()) if tail.is_open]

    def lag(self) -> int:
        return sum(tail.lag() for tail in list(self.follower.tails.values()))

    def rotations(self) -> int:
        return sum(tail.rotations for tail in list(self.follower.tails.values()))

    def wake(self) -> None:
        with self._ending:
            if not self._ended:
                self._waker.wake()


class Stdin(Source):
    """Standard input, read to its end."""

    kind = "stdin"

    def __init__(self, server: str, name: str, source: LogSource, post: Post, telemetry: Telemetry) -> None:
        super().__init__(server, name, source, post, telemetry)
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def work(self, stop: threading.Event) -> None:
        """Read until the end of input."""
        self._stop = stop
        key, descriptor = f"{self.server}\x1fstdin", sys.stdin.fileno()
        while not self._given_up():
            ready, _, _ = select.select([descriptor, self._wake_read], [], [])
            if descriptor not in ready:
                os.read(self._wake_read, 4096)
                continue
            data = os.read(descriptor, _CHUNK)
            self.put(key, "-", data, None, ended=not data)
            if not data:
                log.info("standard input has ended")
                return

    def label(self) -> str:
        return "standard input"

    def wake(self) -> None:
        os.write(self._wake_write, b"x")


class _Lines(Source):
    """A source that hands over whole lines by itself: the journal, pods."""

    def __init__(
        self,
        server: str,
        name: str,
        source: LogSource,
        positions: Mapping[str, Any],
        post: Post,
        telemetry: Telemetry,
    ) -> None:
        super().__init__(server, name, source, post, telemetry)
        self._prefix = f"{server}\x1f{self.kind}:"
        self._reader = self._open(_of(self._prefix, positions))
        self._keys: set[str] = set()

    def _open(self, positions: Mapping[str, Any]) -> Journal | PodLogs:
        raise TypeError(f"{type(self).__name__} reads nothing")

    def work(self, stop: threading.Event) -> None:
        """Read until told to stop."""
        self._stop = stop
        self._reader.run(stop, self._deliver, self.note)

    def _deliver(self, piece: Piece) -> None:
        self._keys.add(piece.key)
        self.put(self._prefix + piece.key, piece.key, piece.data, dict(piece.position))

    def files(self) -> list[str]:
        return sorted(self._keys)

    def wake(self) -> None:
        self._reader.close()

    def tell_end(self, turn: int) -> None:
        """It cannot say; and a wake-up would end the connection."""


class Journald(_Lines):
    """A unit's entries in the systemd journal."""

    kind = "journald"

    def _open(self, positions: Mapping[str, Any]) -> Journal:
        from agent.logs.sources.journald import Journal

        unit = self.config.journald or ""
        arguments = ("-u", unit) if unit else ()
        return Journal(unit, arguments, positions.get(unit), from_end=self.config.start_at == "end")

    def label(self) -> str:
        return self.config.journald or self.kind


class Pods(_Lines):
    """Pods through the Kubernetes API."""

    kind = "kubernetes"

    def _open(self, positions: Mapping[str, Any]) -> PodLogs:
        # Brings TLS with it, which a daemon that follows files may never need.
        from agent.logs.sources.kubernetes import ApiAccess, PodLogs

        pods = self.config.kubernetes
        assert pods is not None, "made for sources of pods"
        given = {"server": pods.api_server, "token_file": pods.token_file, "ca_file": pods.ca_file}
        access = ApiAccess(namespace=pods.namespace, **{name: value for name, value in given.items() if value})
        return PodLogs(
            access, pod=pods.pod, selector=pods.selector, container=pods.container, positions=positions,
            from_end=self.config.start_at == "end",
        )  # fmt: skip

    def label(self) -> str:
        pods = self.config.kubernetes
        return (pods.selector or pods.pod or self.kind) if pods is not None else self.kind


def _of(prefix: str, positions: Mapping[str, Any]) -> dict[str, Any]:
    return {key.removeprefix(prefix): value for key, value in positions.items() if key.startswith(prefix)}


def make_source(
    server: str, name: str, source: LogSource, positions: Mapping[str, Any], post: Post, telemetry: Telemetry
) -> Source:
    """The source that a configuration asks for. ``positions`` are the committed ones, by stream key."""
    if source.path is not None:
        return Files(server, name, source, positions, post, telemetry)
    if source.journald is not None:
        return Journald(server, name, source, positions, post, telemetry)
    if source.kubernetes is not None:
        return Pods(server, name, source, positions, post, telemetry)
    return Stdin(server, name, source, post, telemetry)
