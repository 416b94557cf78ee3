"""A text that two rules or dialects share exactly when they mean the same."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

__all__ = ["canonical", "digest"]

_NO_MEANING: Final = frozenset({"position", "sources", "title"})
"""Fields that change nothing that is done: where it stands, where a fact is from, a name for people."""


def canonical(value: Any) -> str:
    """Mappings in key order, positions and sources left out."""
    if is_dataclass(value) and not isinstance(value, type):
        inside = ",".join(
            f"{item.name}={canonical(getattr(value, item.name))}"
            for item in fields(value)
            if item.name not in _NO_MEANING
        )
        return f"{type(value).__name__}({inside})"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key!r}:{canonical(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, tuple | list):
        return "[" + ",".join(canonical(item) for item in value) + "]"
    return repr(value)


def digest(values: Iterable[Any]) -> str:
    """16 hex digits over some values, whose order counts."""
    state = hashlib.sha256()
    for value in values:
        state.update(canonical(value).encode("utf-8", "surrogatepass"))
        state.update(b"\n")
    return state.hexdigest()[:16]
