"""Common Reliability Enumeration rules (https://github.com/prequel-dev/cre) -> ours.

Their rules are sets and sequences of log lines inside a window, with negations; the shape is the one that
https://github.com/prequel-dev/prequel-compiler/blob/main/pkg/parser/parse.go reads. What has no counterpart here is
said, never dropped in silence.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from agent.rules.regexes import inspect_regex
from agent.schema import Document, Fault, format_duration, kind_of
from agent.schema.binding import plain_tree

__all__ = ["CreResult", "convert_cre", "is_cre"]

_SEVERITY: Final = {0: "critical", 1: "error", 2: "warning", 3: "info", 4: "info"}
_HOSTS: Final = frozenset({"hostname", "host", "node", "machine"})
_MOST_IN_ANY_ORDER: Final = 3
"""A set of so many terms becomes one rule for each order in which they can come: 6 at most."""


class _Impossible(Exception):
    """A part has no counterpart here; the text says which and why."""


@dataclass(slots=True)
class CreResult:
    """Rules in the shape of a rule file, and what could not be carried over, each with the rule's id."""

    rules: list[dict[str, Any]] = field(default_factory=list)
    notes: list[Fault] = field(default_factory=list)
    seen: int = 0


def is_cre(document: Document) -> bool:
    """Whether a file holds such rules: a list ``rules`` whose items have the keys ``cre`` and ``rule``."""
    root = document.root
    if root is None or kind_of(root) != "mapping":
        return False
    for key, value in root.value:
        if getattr(key, "value", "") == "rules" and kind_of(value) == "sequence":
            return any(
                kind_of(item) == "mapping" and {"cre", "rule"} & {getattr(k, "value", "") for k, _ in item.value}
                for item in value.value
            )
    return False


def convert_cre(document: Document) -> CreResult:
    """Converts every rule of the file that can be."""
    result = CreResult()
    if document.root is None:
        return result
    content = plain_tree(document)
    terms = content.get("terms") if isinstance(content, Mapping) else None
    rules = content.get("rules") if isinstance(content, Mapping) else None
    nodes = _rule_nodes(document)
    for index, item in enumerate(rules if isinstance(rules, Sequence) and not isinstance(rules, str) else ()):
        result.seen += 1
        position = document.position(nodes[index] if index < len(nodes) else None)
        notes: list[str] = []
        name = _identity(item)
        try:
            made = list(_rules(item, terms if isinstance(terms, Mapping) else {}, notes))
        except _Impossible as reason:
            result.notes.append(Fault(position, f"{name}: not carried over: {reason}", "warning"))
            continue
        result.rules.extend(made)
        result.notes.extend(Fault(position, f"{name}: {note}", "warning") for note in notes)
    return result


def _rule_nodes(document: Document) -> list[Any]:
    root: Any = document.root
    return next((value.value for key, value in root.value if key.value == "rules" and kind_of(value) == "sequence"), [])


def _identity(item: Any) -> str:
    cre = item.get("cre") if isinstance(item, Mapping) else None
    return str(cre.get("id", "a rule without id")) if isinstance(cre, Mapping) else "a rule without id"


def _rules(item: Any, terms: Mapping[str, Any], notes: list[str]) -> Iterator[dict[str, Any]]:
    if not isinstance(item, Mapping) or not isinstance(item.get("rule"), Mapping):
        raise _Impossible("it has no 'rule'")
    body = item["rule"]
    cre = item.get("cre")
    head = _head(cre if isinstance(cre, Mapping) else {}, notes)
    if isinstance(body.get("sequence"), Mapping):
        sequence = body["sequence"]
        stages = [_stage(term, terms, number, notes) for number, term in enumerate(_list(sequence, "order"), 1)]
        yield head | {"fingerprint": _fingerprint(sequence, stages, terms, notes)}
    elif isinstance(body.get("set"), Mapping):
        group = body["set"]
        stages = [_stage(term, terms, number, notes) for number, term in enumerate(_list(group, "match"), 1)]
        if len(stages) > _MOST_IN_ANY_ORDER:
            raise _Impossible(
                f"a set of {len(stages)} lines in any order has no counterpart, write the order that matters"
            )
        if len(stages) > 1:
            notes.append(
                f"a set in any order became {len(list(itertools.permutations(stages)))} rules, one for each order"
            )
        for order in itertools.permutations(stages):
            yield head | {"fingerprint": _fingerprint(group, list(order), terms, notes)}
    else:
        raise _Impossible("neither 'sequence' nor 'set'")


def _head(cre: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    title = str(cre.get("title") or cre.get("id") or "Converted")
    severity = cre.get("severity")
    annotations = {"summary": _literal(f"{{{{ server }}}}: {title}", keep="{{ server }}")}
    description = [str(cre[key]).strip() for key in ("description", "impact") if cre.get(key)]
    if description:
        annotations["description"] = _literal("\n".join(description))
    for key in ("cause", "mitigation"):
        if cre.get(key):
            annotations[key] = _literal(str(cre[key]).strip())
    references = [str(url) for url in _list(cre, "references") if re.match(r"https?://", str(url))]
    if references:
        annotations["runbook_url"] = references[0]
    notes.append("'failure' is early_warning, since a CRE names no failure; write the one that these lines prove")
    head: dict[str, Any] = {"alert": _camel(title), "failure": "early_warning"}
    head["labels"] = {"severity": _SEVERITY.get(severity if isinstance(severity, int) else 2, "warning")}
    if cre.get("id"):
        head["labels"]["cre"] = str(cre["id"])
    head["annotations"] = annotations
    if references:
        head["sources"] = references
    return head


def _fingerprint(
    group: Mapping[str, Any], stages: list[dict[str, Any]], terms: Mapping[str, Any], notes: list[str]
) -> dict[str, Any]:
    if not stages:
        raise _Impossible("it looks for no line")
    fingerprint: dict[str, Any] = {}
    window = _window(group.get("window"))
    if window is not None:
        fingerprint["within"] = window
    elif len(stages) > 1:
        notes.append("it has no window, so 15m holds")
    by = ["server"]
    for name in _list(group, "correlations"):
        if str(name) not in _HOSTS:
            by.append(str(name))
            notes.append(f"correlation '{name}' became 'by', which works only if log lines carry that attribute")
    if len(by) > 1:
        fingerprint["by"] = by
    for stage in stages:
        if "count" in stage and isinstance(stage["count"], int):
            stage["count"] = f"{stage['count']} within {window or '15m'}"
    fingerprint["stages"] = stages
    absent = [_absent(term, terms, fingerprint, notes) for term in _list(group, "negate")]
    if absent:
        fingerprint["absent"] = absent
    event = group.get("event")
    if isinstance(event, Mapping) and event.get("source"):
        notes.append(
            f"its source '{event['source']}' is not carried over; a server's logs are named in the configuration"
        )
    return fingerprint


def _stage(term: Any, terms: Mapping[str, Any], number: int, notes: list[str]) -> dict[str, Any]:
    name = term if isinstance(term, str) and term in terms else f"step{number}"
    matcher, found = _matcher(term, terms, notes)
    stage: dict[str, Any] = {"stage": name, "any": [matcher]}
    if isinstance(found.get("count"), int) and found["count"] > 1:
        stage["count"] = found["count"]
    return stage


def _absent(term: Any, terms: Mapping[str, Any], fingerprint: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    matcher, found = _matcher(term, terms, notes)
    window = _window(found.get("window"))
    if window is not None:
        fingerprint["absent_after"] = window
        notes.append(
            f"a negation with a window of its own counts from the first line on and for {window} after the last"
        )
    options = ("slide", "anchor", "absolute")
    notes.extend(f"'{key}' of a negation is not carried over" for key in options if found.get(key))
    return matcher


def _matcher(term: Any, terms: Mapping[str, Any], notes: list[str]) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Our matcher for one of their terms, and the term itself, looked up in ``terms`` when it is a name."""
    if isinstance(term, str) and term in terms:
        term = terms[term]
    if isinstance(term, str):
        return {"contains": term}, {}
    if not isinstance(term, Mapping):
        raise _Impossible(f"a term is {type(term).__name__}")
    for key in ("jq", "promql", "script", "set", "sequence"):
        if term.get(key) is not None:
            raise _Impossible(f"'{key}' inside a term has no counterpart")
    if term.get("extract"):
        notes.append("'extract' is not carried over; name a group in the regex: (?P<name>...)")
    if term.get("field") not in (None, "message", "log", "msg"):
        notes.append(f"'field: {term['field']}' is not carried over, the whole line is looked at")
    if term.get("regex") is not None:
        pattern = str(term["regex"])
        info = inspect_regex(pattern)
        if info.error:
            raise _Impossible(f"regex '{pattern[:60]}' is none here: {info.error}")
        return {"regex": pattern}, term
    if term.get("value") is not None:
        return {"contains": str(term["value"])}, term
    raise _Impossible("a term has neither 'value' nor 'regex'")


def _window(value: Any) -> str | None:
    """Go's notation for durations, ``1m30s`` or ``0.5h``, in ours."""
    if value is None:
        return None
    units = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|us|µs|ns|h|m|s)", str(value))
    if not parts or "".join(number + unit for number, unit in parts) != str(value).strip():
        raise _Impossible(f"window '{value}' is no duration")
    return format_duration(sum(float(number) * units[unit] for number, unit in parts))


def _list(group: Mapping[str, Any], key: str) -> Sequence[Any]:
    value = group.get(key)
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def _camel(title: str) -> str:
    words = re.findall(r"[A-Za-z0-9]+", title)
    name = "".join(word[:1].upper() + word[1:] for word in words)[:80] or "Converted"
    return name if name[0].isalpha() else f"Rule{name}"


def _literal(text: str, *, keep: str = "") -> str:
    """Their texts are no templates: braces that would begin one are written so that they print."""
    head, rest = (keep, text[len(keep) :]) if keep and text.startswith(keep) else ("", text)
    return head + rest.replace("{{", '{{ "{{" }}')
