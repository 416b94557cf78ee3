"""Threads that do not die in silence.

Each edge of the daemon (a follower, a scraper, the web server) is one supervised thread. What ends it is logged once
with its traceback, counted, and the thread is started anew after a pause that grows; a thread that must not be
missing is visible in the daemon's own health.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

__all__ = ["Supervised"]

log = logging.getLogger(__name__)

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0


class Supervised:
    """Runs ``work(stop)`` in a daemon thread until ``stop`` is set; restarts it when it raises.

    ``work`` returns when its time is up or when ``stop`` is set; a plain return is final.
    """

    def __init__(self, name: str, work: Callable[[threading.Event], None]) -> None:
        self.name = name
        self._work = work
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.deaths = 0
        self.last_error = ""
        self.last_death: float | None = None
        self.started_at: float | None = None

    def start(self) -> None:
        """Start it."""
        self.started_at = time.time()
        self._thread.start()

    def _run(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                self._work(self._stop)
                return
            except Exception as error:
                self.deaths += 1
                self.last_error, self.last_death = f"{type(error).__name__}: {error}", time.time()
                log.exception("thread %s died and is started again in %.0f s", self.name, pause)
            if time.monotonic() - began > _LONGEST_PAUSE:
                pause = _FIRST_PAUSE
            self._stop.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Ask it to end; does not wait."""
        self._stop.set()

    def join(self, timeout: float) -> bool:
        """Wait for its end; False when it is still running."""
        self._thread.join(timeout)
        return not self._thread.is_alive()
