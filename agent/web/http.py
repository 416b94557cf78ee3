"""Requests and responses as values, so that the API is a function from one to the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from agent.model import parse_rfc3339
from agent.web.jsonable import dump

__all__ = ["MAX_BODY", "HttpError", "Request", "Response", "json_response", "text_response"]

MAX_BODY: Final = 64 * 1024
"""Bytes of a request body that are accepted."""

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"


class HttpError(Exception):
    """Ends a request with ``status`` and a sentence for the caller."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = dict(headers or {})


@dataclass(frozen=True, slots=True)
class Request:
    """``segments`` are the decoded parts of the path; ``query`` maps a name to all its values."""

    method: str
    path: str
    segments: tuple[str, ...]
    query: Mapping[str, tuple[str, ...]]
    headers: Mapping[str, str]
    body: bytes = b""
    peer: str = ""
    secure: bool = False

    @classmethod
    def parse(cls, method: str, target: str, **rest: Any) -> Request:
        """Reads a request target. Raises HttpError 400 when it is no path."""
        try:
            split = urlsplit(target)
            query = parse_qs(split.query, keep_blank_values=True, max_num_fields=50, errors="replace")
        except ValueError as error:
            raise HttpError(400, f"The address cannot be read: {error}.") from error
        if not split.path.startswith("/"):
            raise HttpError(400, "The address must be a path that begins with /.")
        segments = tuple(unquote(part, errors="replace") for part in split.path.split("/")[1:])
        return cls(method, split.path, segments, {name: tuple(values) for name, values in query.items()}, **rest)

    def text(self, name: str, default: str = "") -> str:
        """The first value of a query parameter."""
        return self.query.get(name, (default,))[0]

    def integer(self, name: str, default: int, low: int, high: int) -> int:
        """A whole number of a query parameter, in ``low..high``. Raises HttpError 400."""
        if name not in self.query:
            return default
        text = self.text(name)
        if not text.isascii() or not text.isdigit() or len(text) > 12 or not low <= int(text) <= high:
            raise HttpError(400, f"{name} must be a whole number from {low} to {high}.")
        return int(text)

    def time(self, name: str, default: float) -> float:
        """A point in time of a query parameter, Unix seconds or RFC 3339. Raises HttpError 400."""
        text = self.text(name)
        if not text:
            return default
        try:
            value = float(text)
        except ValueError:
            try:
                value = parse_rfc3339(text)
            except (ValueError, OverflowError):
                value = -1.0
        if not 0 <= value < 1e11:
            raise HttpError(400, f"{name} must be Unix seconds or a time such as 2026-01-31T12:00:00Z.")
        return value


@dataclass(frozen=True, slots=True)
class Response:
    """``body`` is the whole of it, or an iterator of blocks that are sent as they come."""

    status: int = 200
    content_type: str = JSON
    body: bytes | Iterator[bytes] = b""
    headers: Mapping[str, str] = field(default_factory=dict)


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(status, JSON, dump(value), {"Cache-Control": "no-store", **(headers or {})})


def text_response(text: str, status: int = 200) -> Response:
    return Response(status, TEXT, text.encode(), {"Cache-Control": "no-store"})
