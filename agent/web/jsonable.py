"""Values to JSON, driven by their type hints: a ``Time`` becomes RFC 3339, what is not finite becomes null."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, get_args, get_type_hints

from agent.model import Alert, rfc3339

__all__ = ["dump", "jsonable"]


def dump(value: Any) -> bytes:
    """UTF-8 JSON text. Characters outside ASCII are escaped, so a lone surrogate of a file name cannot break it."""
    return json.dumps(jsonable(value), allow_nan=False, separators=(",", ":")).encode()


def jsonable(value: Any) -> Any:
    """``value`` as objects, lists, texts and numbers. Unknown things (a Secret) come out as ``str`` gives them."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, Alert):
        return jsonable(value.to_json(context=True))
    if is_dataclass(value) and not isinstance(value, type):
        times = _time_fields(type(value))
        return {
            item.name: _time(getattr(value, item.name)) if item.name in times else jsonable(getattr(value, item.name))
            for item in fields(value)
        }
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [jsonable(item) for item in value]
    return str(value)


def _number(value: float) -> float | int | None:
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() and abs(value) < 1e15 else value


def _time(value: float | None) -> str | None:
    if value is None or not math.isfinite(value):
        return None
    try:
        return rfc3339(value)
    except (ValueError, OverflowError, OSError):  # a clock that stands outside the calendar
        return None


@cache
def _time_fields(kind: type) -> frozenset[str]:
    def is_time(hint: Any) -> bool:
        return "time" in getattr(hint, "__metadata__", ()) or any(is_time(item) for item in get_args(hint))

    return frozenset(name for name, hint in get_type_hints(kind, include_extras=True).items() if is_time(hint))
