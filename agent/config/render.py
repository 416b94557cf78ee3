"""The configuration as it is in force, as YAML: defaults filled in, credentials as ``<secret>``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

from agent.config.model import Config
from agent.model import Duration, Secret
from agent.redact import redact
from agent.schema import field_infos, format_duration
from agent.schema.scalars import members_of

__all__ = ["render", "to_plain"]


def render(config: Config) -> str:
    """YAML text. What was left out shows its default; empty parts are left away; no credential is in it."""
    import yaml

    text: str = yaml.safe_dump(to_plain(config), sort_keys=False, allow_unicode=True, width=120)
    return text


def to_plain(value: Any, hint: Any = None) -> Any:
    """Dataclasses as mappings under their YAML keys, durations as text, secrets as ``<secret>``."""
    if isinstance(value, Secret):
        return "<secret>"
    if is_dataclass(value) and not isinstance(value, type):
        plain = {
            info.key: to_plain(getattr(value, info.attribute), info.hint)
            for info in field_infos(type(value))
            if not _empty(getattr(value, info.attribute))
        }
        extra = getattr(type(value), "EXTRA", None)
        return plain | (to_plain(getattr(value, extra)) if extra else {})
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    if Duration in members_of(hint) and isinstance(value, int | float):
        return format_duration(value)
    return redact(value) if isinstance(value, str) else value


def _empty(value: Any) -> bool:
    return value is None or value == () or value == "" or (isinstance(value, Mapping) and not value)
