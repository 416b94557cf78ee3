"""The canary: one completion of one token, asked only when nothing else has completed lately.

It is the one proof of life that no gauge can fake. Off unless configured, never more than one in flight, under a
deadline of its own; what it cost is counted. Its time-out is evidence; an answer that refuses it (401, 404, 429) is
not, it only means that the canary says nothing.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from agent.metrics.fetch import Endpoint, FetchError, Response, fetch, printable
from agent.model import Sample

__all__ = ["Canary", "CanaryCost"]

MAX_ANSWER: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class CanaryCost:
    """What the canary has asked and spent since the start."""

    requests: int = 0
    answered: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Canary:
    """Asks one server. ``endpoint.url`` is the base address (``http://host:8000`` or ``.../v1``), its ``timeout`` the
    canary's deadline. ``quiet`` is how many seconds nothing must have completed, ``interval`` the least time between
    two canaries. ``model`` empty: the first that ``/v1/models`` names.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        server: str,
        model: str = "",
        prompt: str = "ping",
        interval: float = 60.0,
        quiet: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._endpoint = replace(endpoint, max_bytes=min(endpoint.max_bytes, MAX_ANSWER))
        self._server = server
        self._model = model
        self._discovered = ""
        self._prompt = prompt
        self._interval = interval
        self._quiet = quiet
        self._clock = clock
        self._flying = threading.Lock()
        self._asked_at: float | None = None
        self.cost = CanaryCost()

    def due(self, now: float, last_completion: float | None) -> bool:
        """Whether to ask at ``now``; ``last_completion`` is when anything last completed, None when never seen."""
        if self._flying.locked():
            return False
        if self._asked_at is not None and 0 <= now - self._asked_at < self._interval:
            return False
        return last_completion is None or now - last_completion >= self._quiet

    def ask(self, now: float) -> Sample | None:
        """Asks, waits for the answer no longer than the deadline, and says what it was; None when one is in flight.

        ``canary_success`` is 1 for a completion and 0 for a time-out; anything else is a failed sample. The sample
        bears the time at which the answer was there.
        """
        if not self._flying.acquire(blocking=False):
            return None
        try:
            self._asked_at = now
            began = self._clock()
            values: dict[str, float] = {}
            failure = ""
            try:
                values["canary_success"] = self._complete()
            except FetchError as error:
                if error.reason == "timeout":
                    values["canary_success"] = 0.0
                else:
                    failure = f"{error.reason}: {error.text}"
            end = now + max(0.0, self._clock() - began)
            return Sample(end, self._server, "canary", values, ok=not failure, error=failure)
        finally:
            self._flying.release()

    def _complete(self) -> float:
        deadline = self._clock() + self._endpoint.timeout
        if not self._model and not self._discovered:
            self._discovered = _first_model(self._call("models", None, deadline))
        model = self._model or self._discovered
        self._discovered = ""  # asked again should this model be gone by then
        self.cost = replace(self.cost, requests=self.cost.requests + 1)
        body = {"model": model, "prompt": self._prompt, "max_tokens": 1, "temperature": 0, "stream": False}
        answer = _json(self._call("completions", json.dumps(body).encode(), deadline))
        if not isinstance(answer.get("choices"), list):
            raise FetchError("parse", "the answer is no completion")
        self._discovered = model
        usage = answer.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        self.cost = replace(
            self.cost,
            answered=self.cost.answered + 1,
            prompt_tokens=self.cost.prompt_tokens + _count(usage.get("prompt_tokens")),
            completion_tokens=self.cost.completion_tokens + _count(usage.get("completion_tokens")),
        )
        return 1.0

    def _call(self, path: str, body: bytes | None, deadline: float) -> Response:
        left = deadline - self._clock()
        if left <= 0:
            raise FetchError("timeout", "no time left")
        response = fetch(
            replace(self._endpoint, url=_under_v1(self._endpoint.url, path), timeout=left),
            method="GET" if body is None else "POST",
            body=body,
            headers={"Accept": "application/json", **({"Content-Type": "application/json"} if body else {})},
            clock=self._clock,
        )
        if response.status != 200:
            raise FetchError("http", f"{response.status} {printable(response.reason, 60)} for /v1/{path}")
        return response


def _under_v1(url: str, path: str) -> str:
    parts = urlsplit(url)
    base = parts.path.rstrip("/").removesuffix("/v1")
    return urlunsplit((parts.scheme, parts.netloc, f"{base}/v1/{path}", parts.query, ""))


def _json(response: Response) -> dict[str, Any]:
    try:
        answer = json.loads(response.body)
    except (ValueError, RecursionError):
        raise FetchError("parse", "the answer is no JSON") from None
    if not isinstance(answer, dict):
        raise FetchError("parse", "the answer is no JSON object")
    return answer


def _first_model(response: Response) -> str:
    models = _json(response).get("data")
    if isinstance(models, list):
        for model in models:
            if isinstance(model, dict) and isinstance(model.get("id"), str) and model["id"]:
                return str(model["id"])
    raise FetchError("parse", "/v1/models names no model; configure one for the canary")


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
