"""How many requests somebody waits for: the gauges, less what they do not know yet.

Engines push their gauges from the scheduling loop. When the loop stands, or has nothing left to do, the gauges keep
their last values, whether the requests are still wanted or were given up by their clients long ago. So what was given
up since the gauges last changed is taken off them. Replies can also be lost between engine and client; then only the
HTTP front end knows of the request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from agent.detect.change import Change
from agent.detect.state import Remembered

__all__ = ["WorkInFlight"]


class WorkInFlight(Remembered):
    """Estimate of the requests in flight at one engine."""

    __slots__ = ("_gauges", "_http_low", "_logged_gone", "_logged_last", "_metered_gone", "logged_aborts")
    _PLAIN: ClassVar = __slots__

    def __init__(self) -> None:
        self.logged_aborts = 0.0
        """Requests given up, as lines of the log tell."""
        self._gauges: list[float] | None = None
        self._metered_gone = 0.0
        self._logged_gone = 0.0
        self._logged_last = 0.0
        self._http_low: float | None = None

    def forget(self) -> None:
        """The process is gone with all that was in flight."""
        self.logged_aborts = self._logged_last = self._metered_gone = self._logged_gone = 0.0
        self._gauges = None

    def look(self, values: Mapping[str, float], change: Change) -> float | None:
        """Requests in flight at this look; None when nothing on the page tells."""
        http = self._http(values)
        metered = change.of("requests_aborted_total")
        logged, self._logged_last = self.logged_aborts - self._logged_last, self.logged_aborts
        if "requests_running" not in values and "requests_waiting" not in values:
            return http
        running = values.get("requests_running", 0.0)
        waiting = max(values.get("requests_waiting", 0.0), values.get("requests_deferred", 0.0))
        total = running + waiting
        if self._gauges is None:
            self._metered_gone = self._logged_gone = 0.0
        elif self._gauges == [running, waiting]:
            self._metered_gone += metered
            self._logged_gone += logged
        else:
            # Nobody knows whether what was given up in this very interval left before the gauges changed or after.
            # Taken as after: on an idle engine they never change again, on a live one they soon do.
            self._metered_gone, self._logged_gone = metered, logged
        self._gauges = [running, waiting]
        gone = max(self._metered_gone, self._logged_gone)
        if gone < total:
            return total - gone
        if gone > total > 0 and max(metered, logged) > 0 and not change.counted:
            # More is given up than the gauges ever showed: requests still come, and nobody takes them in.
            return 1.0
        return http or 0.0

    def _http(self, values: Mapping[str, float]) -> float | None:
        """Requests that the front end holds beyond the fewest ever seen: something is always open there (the read of
        this very page, a stream of events)."""
        active = values.get("http_requests_active")
        if active is None:
            return None
        self._http_low = active if self._http_low is None else min(self._http_low, active)
        return active - self._http_low

    def snapshot(self) -> dict[str, Any]:
        data = super().snapshot()
        data["_gauges"] = list(self._gauges) if self._gauges is not None else None
        return data
