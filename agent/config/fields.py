"""Fields of configuration classes, each with the sentence that editors and docs show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Any, Final

from agent.config.matchers import parse_matchers
from agent.model import Duration

__all__ = ["DAY", "HOUR", "MINUTE", "items", "labels", "matcher_faults", "option", "required", "seconds", "url_faults"]

MINUTE: Final = 60.0
HOUR: Final = 3600.0
DAY: Final = 86400.0


def seconds(default: float, doc: str, *, minimum: float | None = None, maximum: float | None = None) -> Any:
    """A duration."""
    bounds = {key: value for key, value in (("minimum", minimum), ("maximum", maximum)) if value is not None}
    return field(default=Duration(default), metadata={"doc": doc, **bounds})


def option(doc: str, default: Any, **more: Any) -> Any:
    """A value that may be left out."""
    return field(default=default, metadata={"doc": doc, **more})


def required(doc: str, **more: Any) -> Any:
    """A value that must be given."""
    return field(metadata={"doc": doc, **more})


def items(doc: str) -> Any:
    """A list, empty when left out."""
    return field(default=(), metadata={"doc": doc})


def labels(doc: str) -> Any:
    """A mapping of names to texts, empty when left out."""
    return field(default_factory=dict, metadata={"doc": doc})


def matcher_faults(name: str, matchers: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for index, text in enumerate(matchers):
        try:
            parse_matchers(text)
        except ValueError as error:
            yield f"{name}.{index}", str(error)


def url_faults(name: str, url: str) -> Iterator[tuple[str, str]]:
    if not url.startswith(("http://", "https://")):
        yield name, f"'{url[:60]}' is no address, begin it with http:// or https://"
    elif "@" in url.split("/", 3)[2]:
        yield name, "credentials do not belong into an address, write basic_auth or authorization"
