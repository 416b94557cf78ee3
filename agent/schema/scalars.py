"""What one scalar becomes under a hint, and the traps that YAML 1.1 sets on the way."""

from __future__ import annotations

import re
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal, Union, get_args, get_origin

from agent.model import Duration, Secret
from agent.schema.document import ScalarValue, plain_value
from agent.schema.durations import format_duration, parse_duration
from agent.schema.faults import did_you_mean

__all__ = ["Scalar", "convert_scalar", "expected", "members_of", "shortened"]

_BOOLEAN: Final = "a boolean to YAML 1.1 readers and text to others"
_TRAPS: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (re.compile(r"yes|no|on|off", re.IGNORECASE), _BOOLEAN),
    (re.compile(r"[-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?"), "a number in base 60 to YAML 1.1 readers"),
    (re.compile(r"[-+]?0[0-9_]+"), "an octal number to YAML 1.1 readers"),
    (re.compile(r"[-+]?0(?:x[0-9a-fA-F_]+|o[0-7]+|b[01_]+)"), "a number in another base than ten"),
)
_NAMES: Final[dict[Any, str]] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    Duration: "a duration such as 10s or 1h30m",
    Secret: "a text",
}


@dataclass(frozen=True, slots=True)
class Scalar:
    """``text`` is what counts; ``source`` is what the file says (they differ when ``${VAR}`` was filled in, and
    only ``source`` may be shown); ``plain``: without quotes."""

    text: str
    source: str
    plain: bool


@cache
def members_of(hint: Any) -> tuple[Any, ...]:
    """The alternatives of a union, or the hint alone."""
    if get_origin(hint) in (Union, types.UnionType):
        return tuple(member for arg in get_args(hint) for member in members_of(arg))
    return (hint,)


def convert_scalar(given: Scalar, members: tuple[Any, ...], metadata: Mapping[str, Any], *, noun: str) -> Any:
    """The value. Raises ValueError with a sentence that says what is wrong and what to write.

    ``metadata`` is the field's (see :mod:`agent.schema.binding`); ``noun`` names the thing in messages.
    """
    value: ScalarValue = plain_value(given.text) if given.plain else given.text
    if value is None and type(None) in members:
        return None
    choices = _choices(members)
    if choices:
        return _literal(given, value, choices, members)
    if value is None:
        raise ValueError(f"expected {expected(members)}, got nothing")
    _check_traps(given, members)
    # What comes out of a variable is text to YAML; ${PORT} in quotes still means the number.
    number = value if given.text == given.source else plain_value(given.text)
    if isinstance(number, bool):
        if bool in members:
            return number
        if isinstance(value, bool):
            raise ValueError(f"expected {expected(members)}, got the boolean {given.source}; for the text use quotes")
    elif isinstance(number, int | float):
        if int in members and isinstance(number, int):
            return _bounded(number, metadata, str)
        if float in members:
            return _bounded(float(number), metadata, str)
    if Duration in members:
        try:
            span = parse_duration(given.text)
        except ValueError as error:
            if str not in members:
                hidden = given.text != given.source
                reason = f"the value of '{shortened(given.source)}' is none" if hidden else str(error)
                raise ValueError(f"expected {expected(members)}: {reason}") from None
        else:
            return _bounded(span, metadata, format_duration)
    if str in members:
        return _text(given, metadata, noun)
    raise ValueError(f"expected {expected(members)}, got '{shortened(given.source)}'")


@cache
def _choices(members: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a Literal among the members accepts."""
    return tuple(choice for member in members if get_origin(member) is Literal for choice in get_args(member))


def _literal(given: Scalar, value: ScalarValue, choices: tuple[Any, ...], members: tuple[Any, ...]) -> Any:
    for choice in choices:
        if value == choice and type(value) is type(choice):
            return choice
    if str in members or int in members or float in members:
        rest = tuple(member for member in members if get_origin(member) is not Literal)
        return convert_scalar(given, rest, {}, noun="value")
    listed = ", ".join(str(choice) for choice in choices)
    near = did_you_mean(given.source, [str(choice) for choice in choices])
    raise ValueError(f"'{shortened(given.source)}' is not one of {listed}{near}")


def _check_traps(given: Scalar, members: tuple[Any, ...]) -> None:
    if not given.plain or given.text != given.source:
        return
    meaning = next((words for shape, words in _TRAPS if shape.fullmatch(given.source)), "")
    if not meaning:
        return
    text = given.source
    if bool in members and meaning == _BOOLEAN:
        advice = "write true or false"
    elif Duration in members:
        advice = "write it with units, for example 1m30s"
    elif int in members or float in members:
        advice = f"write {text.lstrip('0') or '0'}" if text.isdigit() else "write a decimal number"
    else:
        advice = f'write "{text}" in quotes'
    raise ValueError(f"expected {expected(members)}; plain {text} is {meaning}, {advice}")


def _bounded(number: float, metadata: Mapping[str, Any], show: Any) -> float:
    low, high = metadata.get("minimum"), metadata.get("maximum")
    if number != number:
        raise ValueError("is no number that can be used")
    if low is not None and number < low:
        raise ValueError(f"{show(number)} is too small, the least is {show(low)}")
    if high is not None and number > high:
        raise ValueError(f"{show(number)} is too large, the most is {show(high)}")
    return number


def _text(given: Scalar, metadata: Mapping[str, Any], noun: str) -> str:
    choices = metadata.get("choices")
    if choices is not None and given.text not in choices:
        near = did_you_mean(given.text, choices) or f", known: {', '.join(sorted(choices))}"
        raise ValueError(f"unknown {noun} '{shortened(given.source)}'{near}")
    if metadata.get("nonempty") and not given.text.strip():
        raise ValueError("must not be empty")
    return given.text


def expected(members: Iterable[Any]) -> str:
    """``a number or a list ...``: what a hint wants, in words."""
    words = []
    for member in members:
        if member is type(None):
            continue
        if member in _NAMES:
            words.append(_NAMES[member])
        elif get_origin(member) is Literal:
            words.append("one of " + ", ".join(str(choice) for choice in get_args(member)))
        elif get_origin(member) is tuple:
            words.append("a list (lines that begin with '- ')")
        else:
            words.append("a mapping (key: value)")
    return " or ".join(dict.fromkeys(words))


def shortened(text: str) -> str:
    """Fits into a message: one line, at most 60 characters."""
    text = text.replace("\n", "\\n")
    return text if len(text) <= 60 else text[:57] + "..."
