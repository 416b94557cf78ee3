"""What every voice can do: write whole lines, in order, to one stream, and say when claims begin to fail.

A voice decides how a thing is said, never whether it happens. Lines are the engine's own, in its format; where an
engine has no line for a real event of this one (a claim that cannot be met), the line is in this engine's words, in
that engine's format, and docs/reproducer.md lists it as such.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, TextIO

from reproducer.stats import Gauges

if TYPE_CHECKING:
    from reproducer.batch import Claim
    from reproducer.engine import AfterCrash, Engine

__all__ = ["Voice"]

QUIET_SECONDS = 10.0  # one warning of a kind in this time


class Voice:
    """One engine's manner of speaking. ``clock`` gives Unix seconds; stamps are local time, as in the engines."""

    name: ClassVar[str] = ""
    metrics_path: ClassVar[str] = "/metrics"
    after_crash: ClassVar[AfterCrash] = "zombie"
    stats_interval: ClassVar[float] = 0.0  # seconds between lines that a timer prints; 0: none

    def __init__(
        self,
        stream: TextIO,
        *,
        model: str = "harbour",
        device: str = "CPU",
        clock: Callable[[], float] = time.time,
        calendar: Callable[[float], time.struct_time] = time.localtime,
        print_iterations: bool = False,
        gauge_mode: Literal["step", "live"] = "step",
    ) -> None:
        self.stream, self.model, self.device, self.clock, self.calendar = stream, model, device, clock, calendar
        self.print_iterations, self.gauge_mode = print_iterations, gauge_mode
        self.lock = threading.Lock()
        self.pid = os.getpid()
        self.warned: dict[str, float] = {}

    def raw(self, text: str) -> None:
        """Text as it is, for what a runtime prints past the logger."""
        with self.lock:
            self.stream.write(text if text.endswith("\n") else text + "\n")
            self.stream.flush()

    def stamp(self, form: str) -> str:
        return time.strftime(form, self.calendar(self.clock()))

    # What happens, in the order in which it may happen

    def loading(self, engine: Engine) -> None:
        """First words, before weights are loaded."""

    def starting(self, engine: Engine) -> None:
        """The start block: what was allocated, and the limits that hold."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it starts")

    def ready(self, host: str, port: int) -> None:
        for line in (
            f"Started server process [{self.pid}]",
            "Waiting for application startup.",
            "Application startup complete.",
            f"Uvicorn running on http://{host}:{port} (Press CTRL+C to quit)",
        ):
            self.front("INFO", line)

    def front(self, level: str, message: str) -> None:
        """A line of the web server in front of the engine; it has neither time nor process."""
        self.raw(f"{level}:{' ' * (9 - len(level))}{message}")

    def access(self, peer: str, request: str, status: int, phrase: str) -> None:
        self.front("INFO", f'{peer} - "{request}" {status} {phrase}')

    def warning(self, message: str) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not say how it warns")

    def iteration(self, engine: Engine, claims: Sequence[Claim]) -> None:
        """After each pass of the loop. Warns when a claim is not met, or when a step has come close to H."""
        now = engine.stats.now
        if claims:
            first = claims[0]
            self.warn_once(
                "claim",
                f"Request {first.request} holds {first.held} KV cache blocks and needs {first.need} more, "
                f"{first.free} of {engine.config.kv_blocks} are free; it waits with what it holds "
                f"({len(claims)} of {now.running} running requests wait).",
            )
        hard, packed = engine.config.hard_tokens, engine.config.step_tokens
        if packed < hard and now.total_tokens > max(0.95 * hard, (packed + hard) / 2):
            self.warn_once(
                "growth",
                f"This iteration grew to {now.total_tokens} tokens after it was scheduled for at most {packed}; "
                f"max_num_tokens is {hard}.",
            )

    def warn_once(self, kind: str, message: str) -> None:
        if self.clock() - self.warned.get(kind, float("-inf")) >= QUIET_SECONDS:
            self.warned[kind] = self.clock()
            self.warning(message)

    def timer(self, engine: Engine, seconds: float) -> None:
        """Every ``stats_interval``, from the front end's own thread."""

    def start_error(self, trace: str) -> None:
        """The engine cannot be set up."""
        self.raw(trace)

    def forward_error(self, message: str, trace: str) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not say how a step fails")

    def loop_error(self, error: Exception, trace: str) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not say how its loop ends")

    def request_error(self, message: str, trace: str) -> None:
        """The front end answers a request with an error."""

    def fatal(self, message: str) -> None:
        """The process is about to end itself."""

    def lost(self) -> None:
        """The front end finds that the engine is gone without a word."""

    def page(self, engine: Engine) -> str:
        raise NotImplementedError(f"{type(self).__name__} does not say what its metrics are")

    def records(self) -> list[dict[str, object]] | None:
        """Iteration records as JSON, where the engine serves such; reading takes them away."""
        return None

    def gauges(self, engine: Engine) -> Gauges:
        """The gauges of the page: what the last step set, or (``live``) with the queue as it is at this moment."""
        if self.gauge_mode == "step":
            return engine.stats.now
        now = Gauges(**{name: getattr(engine.stats.now, name) for name in Gauges.__slots__})
        now.running, now.waiting = len(engine.scheduler.running), len(engine.scheduler.waiting) + engine.unanswered
        return now
