"""JSON Schema (draft 7, which editors speak) of the classes that :mod:`agent.schema.binding` reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, is_dataclass
from typing import Any, Final, Literal, get_args, get_origin

from agent.model import Duration, Secret
from agent.schema.binding import FieldInfo, field_infos
from agent.schema.durations import DURATION_PATTERN, format_duration
from agent.schema.scalars import members_of

__all__ = ["json_schema"]

_NO_CAPTURE: Final = DURATION_PATTERN.replace("(\\d+)", "[0-9]+")
_NARROW: Final = ("number", "integer", "boolean")
_VARIABLE: Final = {"type": "string", "pattern": r"\$\{"}


def json_schema(cls: type, *, title: str, identifier: str, env: bool = False) -> dict[str, Any]:
    """The schema of a file whose outermost mapping is ``cls``.

    ``env``: whether ``${VAR}`` may stand for numbers, booleans and choices.
    """
    maker = _Maker(env)
    body = maker.object(cls)
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": identifier,
        "title": title,
        **body,
        "definitions": dict(sorted(maker.definitions.items())),
    }


class _Maker:
    def __init__(self, env: bool) -> None:
        self.env = env
        self.definitions: dict[str, Any] = {}

    def object(self, cls: type) -> dict[str, Any]:
        properties: dict[str, Any] = {}
        required: list[str] = []
        one_of: list[dict[str, Any]] = []
        for info in field_infos(cls):
            properties[info.key] = self.property(info)
            if info.secret:
                properties[f"{info.key}_file"] = {
                    "type": "string",
                    "description": f"Path of a file that holds '{info.key}'; read at each use.",
                }
                twins = [{"required": [info.key]}, {"required": [f"{info.key}_file"]}]
                one_of.append(
                    {"oneOf": twins} if info.required else {"not": {"required": [info.key, f"{info.key}_file"]}}
                )
            elif info.required:
                required.append(info.key)
        for key, hint in (cls.extra_fields() if hasattr(cls, "extra_fields") else {}).items():
            properties[key] = self.value(hint, {})
        result: dict[str, Any] = {"type": "object", "additionalProperties": False}
        if cls.__doc__ and not cls.__doc__.startswith(f"{cls.__name__}("):
            result["description"] = _plain(cls.__doc__)
        result["properties"] = properties
        result["patternProperties"] = {"^x-": {}}
        if required:
            result["required"] = sorted(required)
        if one_of:
            result["allOf"] = one_of
        return result

    def property(self, info: FieldInfo) -> dict[str, Any]:
        schema = self.value(info.hint, info.metadata)
        doc = info.metadata.get("doc")
        default = _json_default(info)
        if "$ref" in schema and (doc or default is not None):
            schema = {"allOf": [schema]}
        if doc:
            schema["description"] = doc
        if default is not None:
            schema["default"] = default
        return schema

    def value(self, hint: Any, metadata: Mapping[str, Any]) -> dict[str, Any]:
        options = [self.member(member, metadata) for member in members_of(hint) if member is not type(None)]
        if type(None) in members_of(hint):
            options.append({"type": "null"})
        if self.env and any(option.get("type") in _NARROW or "enum" in option for option in options):
            options.append(dict(_VARIABLE))
        return options[0] if len(options) == 1 else {"anyOf": options}

    def member(self, hint: Any, metadata: Mapping[str, Any]) -> dict[str, Any]:
        if hint is Any:
            return {}
        if hint is bool:
            return {"type": "boolean"}
        if hint is int or hint is float:
            schema: dict[str, Any] = {"type": "integer" if hint is int else "number"}
            for bound in ("minimum", "maximum"):
                if bound in metadata:
                    schema[bound] = metadata[bound]
            return schema
        if hint is Duration:
            pattern = f"{_NO_CAPTURE}|\\$\\{{" if self.env else _NO_CAPTURE
            # A bare 0 is the one duration without a unit.
            return {"anyOf": [{"type": "string", "pattern": pattern, "minLength": 1}, {"const": 0}]}
        if hint is Secret:
            return {"type": "string", "minLength": 1}
        if hint is str:
            if "choices" in metadata:
                return {"type": "string", "enum": sorted(metadata["choices"])}
            # A plain number is text where text is wanted, as in Prometheus.
            return {"type": "string", "minLength": 1} if metadata.get("nonempty") else {"type": ["string", "number"]}
        origin = get_origin(hint)
        if origin is Literal:
            return {"enum": list(get_args(hint))}
        if origin is tuple:
            array: dict[str, Any] = {"type": "array", "items": self.value(get_args(hint)[0], metadata)}
            if metadata.get("nonempty"):
                array["minItems"] = 1
            return array
        if is_dataclass(hint) and isinstance(hint, type):
            name = hint.__name__
            if name not in self.definitions:
                self.definitions[name] = {}  # a placeholder ends recursion
                self.definitions[name] = self.object(hint)
            return {"$ref": f"#/definitions/{name}"}
        return {"type": "object", "additionalProperties": self.value(get_args(hint)[1], metadata)}


def _json_default(info: FieldInfo) -> Any:
    value = info.default
    if value is MISSING or value is None or value in ("", ()) or isinstance(value, Mapping) or is_dataclass(value):
        return None
    if Duration in members_of(info.hint):
        return format_duration(value)
    return list(value) if isinstance(value, tuple) else value


def _plain(doc: str) -> str:
    return " ".join(doc.replace("``", "'").split())
