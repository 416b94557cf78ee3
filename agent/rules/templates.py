"""``{{ dotted.path | filter }}`` in labels and annotations.

A template looks values up by name and formats them; there are no loops, no attributes, no calls of anything that is
not in :data:`FILTERS`, so it cannot run code. Rendering never raises and never renders twice: what comes out of a log
line is data, and ``{{7*7}}`` in it is printed as it is. A value that is not there prints as ``n/a``; a text that is
no template (an unknown filter, a brace too few) is found by ``wedgewatch check``, and printed unchanged if need be.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from typing import Any, Final

from agent.schema import did_you_mean, format_duration

__all__ = ["FILTERS", "NAMES", "check_template", "render"]

NAMES: Final[Mapping[str, str]] = {
    "server": "name of the server",
    "engine": "engine id",
    "engine_index": "replica inside the server, empty for the only one",
    "rank": "rank of the process that spoke, empty when the lines have none",
    "alertname": "name of the alert",
    "failure": "name from the taxonomy",
    "severity": "critical, warning ...",
    "confidence": "suspected, probable, confirmed",
    "stalled_for": "seconds since the last progress or the first symptom",
    "starts_at": "onset, RFC 3339",
}
"""Names without a dot."""

SPACES: Final[Mapping[str, str]] = {
    "fields": "named groups that the stages caught",
    "signal": "signals as they were last seen",
    "facts": "numbers of the start block",
    "labels": "labels of the alert",
    "before": "finished_per_minute, tokens_per_second, requests_waiting ... in the five minutes before the onset",
    "now": "the same, now",
}
"""What may stand before a dot."""
_NUMBERS: Final = (
    "finished_per_minute",
    "tokens_per_second",
    "requests_waiting",
    "requests_running",
    "kv_cache_usage_ratio",
)

MISSING: Final = "n/a"
MAX_RENDERED: Final = 64 * 1024
"""Characters; a template that prints a megabyte of log text is cut here."""

_TAG: Final = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_PATH: Final = re.compile(r"\s*([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)\s*")
_LITERAL: Final = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)')\s*""")
_FILTER: Final = re.compile(r"""\|\s*([A-Za-z_]\w*)\s*(?:\(\s*(?:"([^"]*)"|'([^']*)'|(-?\d+(?:\.\d+)?))\s*\))?\s*""")


def _duration(value: Any, _: str | None) -> Any:
    seconds = _number(value)
    if seconds is None:
        return value
    return format_duration(round(seconds) if abs(seconds) >= 10 else round(seconds, 1))


def _humanize(value: Any, _: str | None) -> Any:
    """``1234567`` -> ``1.235M``, as Prometheus's humanize."""
    number = _number(value)
    if number is None:
        return value
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.4g}{unit}"
    return f"{number:.4g}"


def _percent(value: Any, _: str | None) -> Any:
    number = _number(value)
    return value if number is None else f"{100 * number:.3g}%"


def _first_line(value: Any, _: str | None) -> Any:
    lines = _text(value).strip().splitlines()
    return lines[0] if lines else ""


def _truncate(value: Any, argument: str | None) -> Any:
    text, length = _text(value), max(1, int(float(argument or 80)))
    return text if len(text) <= length else text[: length - 1] + "…"


def _default(value: Any, argument: str | None) -> Any:
    return argument or "" if value is None or value == "" else value


FILTERS: Final[Mapping[str, Callable[[Any, str | None], Any]]] = {
    "duration": _duration,
    "humanize": _humanize,
    "percent": _percent,
    "first_line": _first_line,
    "truncate": _truncate,
    "default": _default,
}
_WITH_ARGUMENT: Final = {"truncate": "truncate(80)", "default": 'default("none")'}
_MISTAKES: Final[tuple[tuple[str, str], ...]] = (
    ("$labels.", "write {{ labels.NAME }}"),
    ("$value", "write {{ signal.NAME }}"),
    (".", "names begin with a letter"),
    ("range", "there are no loops here"),
    ("if ", "there are no conditions here, use | default"),
)


@dataclass(frozen=True, slots=True)
class _Lookup:
    path: tuple[str, ...]
    filters: tuple[tuple[str, str | None], ...]
    source: str


@dataclass(frozen=True, slots=True)
class _Literal:
    """``{{ "{{" }}``: the way to write braces."""

    text: str
    source: str


@dataclass(frozen=True, slots=True)
class _Broken:
    offset: int
    message: str
    source: str


def render(text: str, values: Mapping[str, Any]) -> str:
    """The text with its values filled in; never raises, at most :data:`MAX_RENDERED` characters."""
    if "{{" not in text:
        return text
    return "".join(_shown(part, values) for part in _parse(text))[:MAX_RENDERED]


def check_template(text: str, *, fields: Collection[str], signals: Collection[str]) -> list[tuple[int, str]]:
    """Faults as (offset in the text, message): bad syntax, unknown names and filters.

    ``fields``: named groups that the rule's stages can catch; ``signals``: signals that its engines have.
    """
    found: list[tuple[int, str]] = []
    offset = 0
    for part in _parse(text):
        if isinstance(part, _Broken):
            found.append((offset + part.offset, part.message))
        elif isinstance(part, _Lookup):
            message = _name_fault(part.path, fields, signals)
            if message:
                found.append((offset + _path_offset(part.source), message))
        offset += len(part if isinstance(part, str) else part.source)
    return found


def _path_offset(source: str) -> int:
    return len(source) - len(source[2:].lstrip())


def _name_fault(path: tuple[str, ...], fields: Collection[str], signals: Collection[str]) -> str:
    name, rest = path[0], path[1:]
    dotted = ".".join(path)
    if name in NAMES and not rest:
        return ""
    if name in NAMES:
        return f"'{name}' is a text, '{dotted}' has no meaning; write {{{{ {name} }}}}"
    if name not in SPACES:
        if name in fields:
            return f"unknown name '{name}', write {{{{ fields.{name} }}}}"
        if name in signals:
            return f"unknown name '{name}', write {{{{ signal.{name} }}}}"
        return f"unknown name '{dotted}'" + (did_you_mean(name, [*NAMES, *SPACES]) or f", known: {_known()}")
    if len(rest) != 1:
        return f"'{name}' wants one name after the dot, for example {{{{ {name}.NAME }}}}"
    known: Collection[str] | None = {"fields": fields, "signal": signals, "facts": signals}.get(name)
    if name in {"before", "now"}:
        known = _NUMBERS
    if known is None or rest[0] in known:
        return ""
    what = {"fields": "no stage catches a field", "before": "unknown number", "now": "unknown number"}
    text = f"{what.get(name, 'unknown signal')} '{rest[0]}'"
    near = did_you_mean(rest[0], known)
    if near or not known:
        return text + (near or ", no regex of this rule has a named group")
    return f"{text}, known: {', '.join(sorted(known))}"


def _known() -> str:
    return ", ".join([*NAMES, *(f"{space}.NAME" for space in SPACES)])


@lru_cache(maxsize=1024)
def _parse(text: str) -> tuple[str | _Lookup | _Literal | _Broken, ...]:
    parts: list[str | _Lookup | _Literal | _Broken] = []
    end = 0
    for tag in _TAG.finditer(text):
        if tag.start() > end:
            parts.extend(_plain(text[end : tag.start()]))
        parts.append(_tag(tag[1], tag[0]))
        end = tag.end()
    if end < len(text):
        parts.extend(_plain(text[end:]))
    return tuple(parts)


def _plain(text: str) -> list[str | _Lookup | _Literal | _Broken]:
    at = text.find("{{")
    if at < 0:
        return [text]
    broken = _Broken(0, "'{{' is never closed, write {{ name }}", text[at:])
    return [text[:at], broken] if at else [broken]


def _tag(inside: str, source: str) -> _Lookup | _Literal | _Broken:
    literal = _LITERAL.fullmatch(inside)
    if literal is not None:
        return _Literal(literal[1] if literal[1] is not None else literal[2], source)
    path = _PATH.match(inside)
    start = 2 + len(inside) - len(inside.lstrip())
    stripped = inside.strip()
    if path is None:
        hint = next((advice for begin, advice in _MISTAKES if stripped.startswith(begin)), "write {{ name | filter }}")
        return _Broken(start, f"'{stripped[:40]}' is no name, {hint}", source)
    filters: list[tuple[str, str | None]] = []
    end = path.end()
    while end < len(inside):
        found = _FILTER.match(inside, end)
        if found is None:
            hint = next((advice for begin, advice in _MISTAKES if stripped.startswith(begin)), "")
            rest = inside[end:].strip()[:40]
            return _Broken(2 + end, f"'{rest}' is not understood here, {hint or 'write {{ name | filter }}'}", source)
        name = found[1]
        argument = next((group for group in found.groups()[1:] if group is not None), None)
        where = 2 + found.start(1)
        if name not in FILTERS:
            near = did_you_mean(name, FILTERS) or f", known: {', '.join(FILTERS)}"
            return _Broken(where, f"unknown filter '{name}'{near}", source)
        if (argument is None) == (name in _WITH_ARGUMENT):
            wanted = _WITH_ARGUMENT.get(name)
            return _Broken(where, f"write {wanted}" if wanted else f"filter '{name}' takes nothing in brackets", source)
        if name == "truncate" and _number(argument) is None:
            return _Broken(where, "truncate wants a number, write truncate(80)", source)
        filters.append((name, argument))
        end = found.end()
    return _Lookup(tuple(path[1].split(".")), tuple(filters), source)


def _shown(part: str | _Lookup | _Literal | _Broken, values: Mapping[str, Any]) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, _Broken):
        return part.source
    if isinstance(part, _Literal):
        return part.text
    value: Any = values
    for name in part.path:
        value = value.get(name) if isinstance(value, Mapping) else None
    for name, argument in part.filters:
        if value is not None or name == "default":
            value = FILTERS[name](value, argument)
    return MISSING if value is None else _text(value)


def _text(value: Any) -> str:
    """Texts as they are, whole numbers without a point, nothing that would call into an object's own methods."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if abs(value) < 10**30 else f"{float('inf') if value > 0 else float('-inf')}"
    if isinstance(value, float):
        return str(int(value)) if isfinite(value) and value == int(value) and abs(value) < 1e15 else f"{value:.6g}"
    return MISSING


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        if len(value) > 40 or not value.isascii():
            return None
        try:
            number = float(value.replace(",", ""))
        except ValueError:
            return None
    elif isinstance(value, int | float):
        number = float(value) if abs(value) < 10**300 else float("inf")
    else:
        return None
    return number if isfinite(number) else None
