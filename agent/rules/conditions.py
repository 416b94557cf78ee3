"""The shape of conditions in rule and dialect files: matchers, severity, attributes, counts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from agent.model import SEVERITY_NUMBER, Duration
from agent.schema import parse_duration

__all__ = [
    "OTHER_TOOLS",
    "SEVERITIES",
    "ConditionFields",
    "CountSpec",
    "ExactSeverity",
    "ItemSpec",
    "MatcherSpec",
    "key",
    "parse_count",
]

SEVERITIES: Final = frozenset({*SEVERITY_NUMBER, "WARNING", "CRITICAL"} - {"UNSPECIFIED"})
OTHER_TOOLS: Final[Mapping[str, str]] = {
    "sequence": "write 'fingerprint' with 'stages'",
    "set": "write 'fingerprint' with 'stages'",
    "order": "write 'stages' inside 'fingerprint'",
    "steps": "write 'stages' inside 'fingerprint'",
    "window": "write 'within' inside 'fingerprint'",
    "timespan": "write 'within' inside 'fingerprint'",
    "maxspan": "write 'within' inside 'fingerprint'",
    "group-by": "write 'by' inside 'fingerprint'",
    "group_by": "write 'by' inside 'fingerprint'",
    "negate": "write 'absent' inside 'fingerprint'",
    "without": "write 'absent' inside 'fingerprint'",
    "level": "write 'severity'",
    "expr": "write 'when' (over signals)",
    "condition": "write 'when'",
    "confirm": "write 'progress' and 'when'",
    "match": "write 'any' with 'contains' or 'regex'",
    "pattern": "write 'regex'",
    "name": "write 'alert'",
    "id": "write 'stage'",
    "value": "write 'contains'",
}


def key(name: str = "", doc: str = "", **more: Any) -> dict[str, Any]:
    """Field metadata for :mod:`agent.schema`."""
    return {**({"name": name} if name else {}), **({"doc": doc} if doc else {}), **more}


@dataclass(frozen=True, slots=True)
class MatcherSpec:
    """One test of a record's text: a literal or a regular expression."""

    contains: str | None = field(default=None, metadata=key(doc="A literal text; fast. Exactly one of the two."))
    regex: str | None = field(
        default=None, metadata=key(doc="A regular expression that is searched for; named groups become fields.")
    )
    ignore_case: bool = field(default=False, metadata=key(doc="Whether case is ignored."))

    HINTS: ClassVar[Mapping[str, str]] = {
        "value": "write 'contains' for a literal or 'regex'",
        "literal": "write 'contains'",
        "pattern": "write 'regex'",
        "re": "write 'regex'",
        "match": "write 'contains' or 'regex'",
        "jq": "a JSON log's keys are attributes, match them with 'attributes'",
    }

    def check(self) -> Iterator[tuple[str, str]]:
        if (self.contains is None) == (self.regex is None):
            yield "", "give either 'contains' or 'regex'" + (", not both" if self.regex is not None else "")
        if self.contains is not None and not self.contains.strip():
            yield "contains", "an empty text is found in every line"


@dataclass(frozen=True, slots=True)
class ExactSeverity:
    """``{exactly: WARN}``: this severity and no other."""

    exactly: str = field(metadata=key(choices=SEVERITIES, noun="severity"))


@dataclass(frozen=True, slots=True)
class ConditionFields:
    """What a record must be like."""

    any: tuple[MatcherSpec, ...] = field(default=(), metadata=key(doc="One of these is found."))
    all: tuple[MatcherSpec, ...] = field(default=(), metadata=key(doc="All of these are found."))
    not_: tuple[MatcherSpec, ...] = field(default=(), metadata=key("not", "None of these is found."))
    none: tuple[MatcherSpec, ...] = field(default=(), metadata=key(doc="The same as 'not'."))
    severity: str | ExactSeverity | None = field(
        default=None,
        metadata=key(doc="At least this severity, or {exactly: WARN}.", choices=SEVERITIES, noun="severity"),
    )
    attributes: Mapping[str, str | tuple[str, ...]] = field(
        default_factory=dict, metadata=key(doc="Attribute -> the texts that are accepted (rank, process, logger ...).")
    )

    HINTS: ClassVar[Mapping[str, str]] = {
        **OTHER_TOOLS,
        "contains": "write any: [{contains: ...}]",
        "regex": "write any: [{regex: ...}]",
    }


@dataclass(frozen=True, slots=True)
class ItemSpec(ConditionFields):
    """A condition; one matcher may be written without ``any`` around it."""

    contains: str | None = field(default=None, metadata=key(doc="Short for any: [{contains: ...}]."))
    regex: str | None = field(default=None, metadata=key(doc="Short for any: [{regex: ...}]."))
    ignore_case: bool = field(default=False, metadata=key(doc="Whether case is ignored in the short form."))

    HINTS: ClassVar[Mapping[str, str]] = {**OTHER_TOOLS, **MatcherSpec.HINTS}

    def check(self) -> Iterator[tuple[str, str]]:
        if self.contains is not None and self.regex is not None:
            yield "", "give either 'contains' or 'regex', not both; for both write all: [...]"
        if self.contains is not None and not self.contains.strip():
            yield "contains", "an empty text is found in every line"
        short = self.contains is not None or self.regex is not None
        if short and self.any:
            yield "any", "give either a matcher or 'any'; put the matcher into 'any' or 'all'"
        if not (short or self.any or self.all):
            yield "", "says nothing to look for, give 'contains', 'regex', 'any' or 'all'"


@dataclass(frozen=True, slots=True)
class CountSpec:
    """``{n: 2, within: 3m}``: so many records in so long a time."""

    n: int = field(metadata=key(minimum=1, maximum=100_000, doc="How many records."))
    within: Duration = field(metadata=key(minimum=0.001, doc="In how long a time."))


def parse_count(text: str) -> CountSpec:
    """``2 within 3m``. Raises ValueError with a sentence."""
    found = re.fullmatch(r"\s*(\d{1,6})\s+within\s+(\S+)\s*", text)
    if found is None or int(found[1]) < 1:
        raise ValueError(f"'{text[:40]}' is no count, write for example \"2 within 3m\"")
    return CountSpec(int(found[1]), parse_duration(found[2]))
