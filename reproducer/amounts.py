"""Numbers and addresses as typed on a command line: what cannot be meant is refused in words, before anything runs."""

from __future__ import annotations

from argparse import ArgumentTypeError
from urllib.parse import urlsplit

__all__ = ["address", "count", "natural", "port", "positive", "share"]


def count(text: str) -> int:
    """A whole number from 1."""
    return _whole(text, 1)


def natural(text: str) -> int:
    """A whole number from 0."""
    return _whole(text, 0)


def port(text: str) -> int:
    """A TCP port; 0 picks a free one."""
    number = _whole(text, 0)
    if number > 65535:
        raise ArgumentTypeError(f"{text} is no port; the largest is 65535")
    return number


def positive(text: str) -> float:
    """A number above 0."""
    number = _number(text)
    if not 0 < number < float("inf"):
        raise ArgumentTypeError(f"{text} is not above 0")
    return number


def share(text: str) -> float:
    """A number between 0 and 1, neither of them."""
    number = _number(text)
    if not 0 < number < 1:
        raise ArgumentTypeError(f"{text} is not between 0 and 1, as 0.05 is")
    return number


def address(text: str) -> str:
    """The base URL of a server."""
    try:
        parts = urlsplit(text)
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is no number
        known = False
    if not known:
        raise ArgumentTypeError(f"{text!r} is no URL of a server; write it as http://127.0.0.1:8000")
    return text.rstrip("/")


def _whole(text: str, least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no whole number") from None
    if number < least:
        raise ArgumentTypeError(f"{text} is below {least}")
    return number


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no number") from None
