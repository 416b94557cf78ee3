"""The two rules that people page on today, evaluated look by look as Prometheus would."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final, Protocol

__all__ = ["NoCompletions", "NoTokens", "Rule"]

_HOLE: Final = 15.0


class Rule(Protocol):
    """Fed a page at a time; true while it would fire."""

    def look(self, now: float, values: Mapping[str, float]) -> bool: ...


class NoTokens:
    """Requests in flight and no token for 60 s."""

    seconds: Final = 60.0

    def __init__(self) -> None:
        self._tokens: float | None = None
        self._since = 0.0
        self._last = 0.0

    def look(self, now: float, values: Mapping[str, float]) -> bool:
        tokens = values["generation_tokens_total"]
        busy = values["requests_running"] + values["requests_waiting"] > 0
        if tokens != self._tokens or not busy or now - self._last > _HOLE:
            self._since = now
        self._tokens, self._last = tokens, now
        return busy and now - self._since >= self.seconds - 0.5


class NoCompletions:
    """``queue > 0 and rate(completions[5m]) == 0``."""

    seconds: Final = 300.0

    def __init__(self) -> None:
        self._window: deque[tuple[float, float]] = deque()

    def look(self, now: float, values: Mapping[str, float]) -> bool:
        self._window.append((now, values["requests_finished_total"]))
        while self._window[0][0] <= now - self.seconds:
            self._window.popleft()
        if values["requests_waiting"] <= 0 or len(self._window) < 2:
            return False
        return all(finished == self._window[0][1] for _, finished in self._window)
