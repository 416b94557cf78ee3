"""YAML with positions -> frozen dataclasses by their type hints, all faults; JSON Schema of the same classes.

What is asked for is loaded then: to format a duration needs no YAML.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from agent.schema.binding import Bound, FieldInfo, bind, field_infos
    from agent.schema.document import Document, kind_of, parse_document, read_document
    from agent.schema.durations import format_duration, parse_duration
    from agent.schema.faults import Fault, did_you_mean, errors, sort_faults

__all__ = [
    "Bound",
    "Document",
    "Fault",
    "FieldInfo",
    "bind",
    "did_you_mean",
    "errors",
    "field_infos",
    "format_duration",
    "kind_of",
    "parse_document",
    "parse_duration",
    "read_document",
    "sort_faults",
]

_HOMES: Final = {
    "Bound": "binding",
    "FieldInfo": "binding",
    "bind": "binding",
    "field_infos": "binding",
    "Document": "document",
    "kind_of": "document",
    "parse_document": "document",
    "read_document": "document",
    "format_duration": "durations",
    "parse_duration": "durations",
    "Fault": "faults",
    "did_you_mean": "faults",
    "errors": "faults",
    "sort_faults": "faults",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return found
