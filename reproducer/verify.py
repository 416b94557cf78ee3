"""A recorded load against a real server, watched from outside, stopped at the first sign of a wedge.

Run it before a change of configuration and after: wedged before and survived after is checklist 3 for a deployment. It
sends real work to a real server and may wedge it; so it says what it will do, asks, and is bounded in time, in requests
and in requests at once. Two watchers may stop it: wedgewatch itself, run beside it, and the clients' own silence.
"""

from __future__ import annotations

import json
import os
import queue
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from .load import Load, post_json
from .users import Ask, Recorded

__all__ = ["Daemon", "Limits", "Verdict", "describe_plan", "verify"]


_RUN = ("-m", "agent", "run", "--observe", "--json", "--listen", "", "--state")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a verification may take at most. ``silence`` is seconds without any answer while requests are open."""

    seconds: float = 300.0
    requests: int = 2000
    at_once: int = 256
    silence: float = 60.0
    patience: float = 120.0  # for the answers that are open when sending is over


@dataclass
class Verdict:
    """``survived``: everything sent was answered. ``wedged``: a sign came, told in ``sign``. ``unclear``: neither."""

    outcome: Literal["survived", "wedged", "unclear", "refused"]
    sign: str = ""
    sent: int = 0
    completed: int = 0
    failed: int = 0
    open: int = 0
    seconds: float = 0.0
    p50: float | None = None
    p99: float | None = None
    alerts: list[dict[str, Any]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))

    def sentence(self) -> str:
        counts = (
            f"{self.completed} of {self.sent} answered, {self.failed} failed, {self.open} open, {self.seconds:.0f} s"
        )
        again = "restart the server, change one ceiling, and run the same load again"
        return {
            "survived": f"survived this load ({counts})",
            "wedged": f"WEDGED: {self.sign} ({counts}); {again}",
            "unclear": f"unclear: {self.sign} ({counts})",
            "refused": "not started",
        }[self.outcome]


class Daemon:
    """wedgewatch in a process of its own, observing only; what it says of the server comes out of :meth:`sign`.

    It is there when the constructor returns: a load that begins before somebody watches would prove little. Raises
    RuntimeError with wedgewatch's own words when it does not start.
    """

    def __init__(self, arguments: Sequence[str], *, patience: float = 120.0) -> None:
        self.scratch = tempfile.TemporaryDirectory()
        self.lines: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.alerts: list[dict[str, Any]] = []
        folder = Path(self.scratch.name)
        self.words = folder / "stderr"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready, self.words.open("wb") as words:
            ready.bind(str(folder / "ready"))  # the notify protocol of systemd: one datagram when it watches
            ready.settimeout(0.2)
            self.process = subprocess.Popen(
                [sys.executable, *_RUN, str(folder / "state"), *arguments],
                stdout=subprocess.PIPE,
                stderr=words,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "NOTIFY_SOCKET": str(folder / "ready")},
            )
            self.reader = threading.Thread(target=self._read, daemon=True)
            self.reader.start()
            self._await(ready, time.monotonic() + patience)

    def _await(self, ready: socket.socket, end: float) -> None:
        while self.process.poll() is None and time.monotonic() < end:
            try:
                if b"READY=1" in ready.recv(4096):
                    return
            except TimeoutError:
                continue
        said = self.words.read_text(errors="replace").strip()[-1000:]
        self.close()
        raise RuntimeError(f"wedgewatch did not start, so nobody would watch; it says: {said or 'nothing'}")

    def critical(self, *states: str) -> dict[str, Any] | None:
        """The first critical alert that is in one of these states."""
        while not self.lines.empty():
            self.alerts.append(self.lines.get())
        wanted = (alert for alert in self.alerts if alert.get("severity") == "critical")
        return next((alert for alert in wanted if alert.get("state") in states), None)

    def sign(self) -> str:
        """The first critical alert, pending or firing; empty while there is none."""
        if alert := self.critical("pending", "firing"):
            return f"wedgewatch says {alert['failure']} ({alert['state']}, {alert['confidence']})"
        return ""

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.reader.join(timeout=10)
        if self.process.stdout:
            self.process.stdout.close()
        self.scratch.cleanup()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict) and row.get("kind") == "alert":
                self.lines.put(row)


def describe_plan(url: str, asks: Sequence[Ask], limits: Limits) -> str:
    """What is about to be done, for whoever has to say yes."""
    count = min(len(asks), limits.requests)
    tokens = sum(ask.prompt_tokens + ask.output_tokens for ask in asks[:count])
    return (
        f"This sends {count} requests ({tokens:,} tokens) to {url},\n"
        f"at most {limits.at_once} at once, for at most {limits.seconds:.0f} s, and stops at the first sign of a "
        "wedge.\n"
        "It may leave that server wedged: use a replica without users, and be ready to restart it."
    )


def verify(
    url: str,
    asks: Sequence[Ask],
    *,
    model: str = "any",
    confirm: Callable[[str], bool],
    daemon: Sequence[str] | None = None,
    limits: Limits | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    tell: Callable[[str], None] = lambda _: None,
) -> Verdict:
    """``daemon`` holds the words of ``wedgewatch run`` that name the server's metrics and logs; None: no daemon."""
    limits = limits or Limits()
    chosen = tuple(asks[: limits.requests])
    if not confirm(describe_plan(url, chosen, limits)):
        return Verdict("refused")
    watcher = Daemon(daemon) if daemon else None
    load = Load(url, timeout=limits.seconds + limits.patience, model=model)
    began = clock()
    try:
        sender = _send(load, chosen, limits)
        outcome, sign = _watch(load, sender, watcher, limits, len(chosen), clock, sleep, tell)
        if outcome == "survived" and not _answers(url, model):
            outcome, sign = "wedged", "everything was answered, but one more small request was not"
    finally:
        load.stop()
        if watcher:
            watcher.sign()
            watcher.close()
    waits = sorted(answer.latency for answer in load.answers if answer.status == 200)
    return Verdict(
        outcome,
        sign,
        len(load.asked),
        load.completed,
        load.failed,
        load.in_flight,
        round(clock() - began, 1),
        round(waits[len(waits) // 2], 3) if waits else None,
        round(waits[int(0.99 * (len(waits) - 1))], 3) if waits else None,
        watcher.alerts if watcher else [],
    )


def _send(load: Load, asks: tuple[Ask, ...], limits: Limits) -> threading.Thread | None:
    """Open loop where the load has times, closed loop where it has users only."""
    if any(ask.at is not None for ask in asks):
        start = min(ask.at or 0.0 for ask in asks)
        shifted = sorted(
            (Ask(a.user, a.turn, a.prompt_tokens, a.output_tokens, a.prompt, at=(a.at or 0.0) - start) for a in asks),
            key=lambda ask: ask.at or 0.0,
        )
        load.at_once = threading.Semaphore(limits.at_once)
        return load.open(shifted)
    recorded = Recorded(asks)
    load.closed(recorded, min(recorded.users, limits.at_once))
    return None


def _watch(
    load: Load,
    sender: threading.Thread | None,
    watcher: Daemon | None,
    limits: Limits,
    total: int,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
    tell: Callable[[str], None],
) -> tuple[Literal["survived", "wedged", "unclear"], str]:
    began = moved = clock()
    answered = 0
    while True:
        now, done = clock(), len(load.answers)
        if done != answered or not load.in_flight:
            answered, moved = done, now
        tell(f"{load.completed} of {total} answered, {load.failed} failed, {load.in_flight} open, {now - began:.0f} s")
        if watcher and (sign := watcher.sign()):
            return "wedged", sign
        if load.in_flight and now - moved > limits.silence:
            return "wedged", f"{load.in_flight} requests open and none answered for {now - moved:.0f} s"
        if done >= total:
            failures = load.failed
            return (
                ("unclear", f"{failures} requests failed, the last with: {load.trouble}")
                if failures > total // 2
                else ("survived", "")
            )
        if now - began > limits.seconds:
            load.stop()
            if not load.in_flight and (sender is None or not sender.is_alive()):
                return "survived", ""
            if now - began > limits.seconds + limits.patience:
                return "unclear", f"{load.in_flight} requests still open at the end of the time allowed"
        sleep(0.5)


def _answers(url: str, model: str) -> bool:
    """One small request, with a short patience."""
    body = {"model": model, "prompt": "ping", "max_tokens": 1}
    try:
        return post_json(url, "/v1/completions", body, 30.0)[0] == 200
    except OSError:
        return False
