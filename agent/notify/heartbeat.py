"""The dead man's switch: a ping that somebody else misses when this process, its machine or its network is gone.

It is sent only while the core makes progress (``alive``), so a daemon that hangs is missed as well.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from agent.config.routing import HeartbeatConfig
from agent.notify.worker import Meter, NoMeter
from integrations.base import DeliveryError
from integrations.http import HttpClient, HttpConfig, reveal

__all__ = ["Heartbeat"]

_log = logging.getLogger(__name__)


class Heartbeat:
    """Pings; :meth:`step` is one ping."""

    def __init__(
        self,
        config: HeartbeatConfig,
        *,
        default: HttpConfig | None = None,
        alive: Callable[[], bool] = lambda: True,
        clock: Callable[[], float],
        meter: Meter | None = None,
    ) -> None:
        self._config = config
        self._client = HttpClient(config.http_config or default)
        self._alive = alive
        self._clock = clock
        self._meter: Meter = meter or NoMeter()
        self.last_error = ""
        self.last_success: float | None = None

    def run(self, stop: threading.Event) -> None:
        """Until ``stop``."""
        while not stop.is_set():
            self.step()
            stop.wait(self._config.interval)

    def step(self) -> bool:
        """One ping; True when it was accepted."""
        if not self._alive():
            self._note("the core makes no progress, so no heartbeat is sent")
            return False
        try:
            url = reveal(self._config.url, "heartbeat url")
            body = b"" if self._config.method == "POST" else None
            answer = self._client.request(self._config.method, url, timeout=self._config.timeout, body=body)
        except DeliveryError as error:
            self._note(str(error))
            return False
        if not answer.ok:
            self._note(f"answered {answer.status}")
            return False
        self.last_error = ""
        self.last_success = self._clock()
        self._meter.set("heartbeat_last_success_timestamp_seconds", self.last_success)
        return True

    def _note(self, error: str) -> None:
        if error != self.last_error:
            _log.warning("heartbeat: %s", error)
        self.last_error = error
