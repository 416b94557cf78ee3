"""YAML with positions -> frozen dataclasses by their type hints, all faults; JSON Schema of the same classes."""

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
