"""From the YAML shape of a rule to the model of it, and the faults that one rule can have by itself."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from agent.model import CRITICAL_FAMILIES, FAILURE_FAMILY, severity_number
from agent.rules.conditions import ConditionFields, CountSpec, ItemSpec, MatcherSpec, parse_count
from agent.rules.model import Condition, Fingerprint, Matcher, Rule, Stage
from agent.rules.regexes import inspect_regex
from agent.rules.slowness import slowness
from agent.rules.spec import FingerprintSpec, RuleFile, RuleSpec, StageSpec
from agent.schema import Bound

__all__ = ["ALERT_SEVERITIES", "Compiler", "compile_rules", "derived_priority", "matchers_of", "named_groups"]

ALERT_SEVERITIES: Final = ("critical", "error", "warning", "info")
_LABEL_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)
_CHANGING: Final = re.compile(r"\{\{\s*((?:signal|now)\.\w+|stalled_for|confidence)")
_RESERVED_LABELS: Final = {
    "alertname": "the alert's name is given by 'alert'",
    "failure": "it comes from 'failure'",
    "server": "it is the watched server",
    "engine": "it is the server's engine",
}


class Compiler:
    """Makes conditions of what a bound file says; faults go to the file's list.

    ``verify``: whether regexes are tried and texts looked at (off for bundled files at start, which tests verify).
    """

    def __init__(self, bound: Bound[Any], *, verify: bool = True) -> None:
        self.bound = bound
        self.verify = verify

    def matcher(self, spec: MatcherSpec | ItemSpec) -> Matcher:
        key = "regex" if spec.regex is not None else "contains"
        pattern = (spec.regex if spec.regex is not None else spec.contains) or ""
        if key == "regex":
            self.regex(spec, "regex", text=pattern, ignore_case=spec.ignore_case)
            if self.verify and re.match(r"\^?\.\*", pattern):
                place = self.bound.inside(spec, "regex", offset=pattern.index(".*"))
                self.bound.fault(place, "'.*' at the beginning only costs time, texts are found anywhere", "warning")
        elif self.verify:
            self.literal(spec, pattern)
        position = self.bound.position(spec, key)
        return Matcher(kind=key, pattern=pattern, ignore_case=spec.ignore_case, position=position)  # type: ignore[arg-type]

    def regex(
        self, owner: object, *path: str | int, text: str, ignore_case: bool = False, needs: str = ""
    ) -> tuple[str, ...]:
        """Checks the regex ``text`` that stands at ``owner``'s ``path``; gives its named groups.

        ``needs``: a group that it must have."""
        if not self.verify:
            return ()
        info = inspect_regex(text, ignore_case)
        where = self.bound.position(owner, *path)
        if info.error:
            where = self.bound.inside(owner, *path, offset=info.offset)
            self.bound.fault(where, f"bad regex at character {info.offset + 1}: {info.error}")
        elif info.matches_empty:
            self.bound.fault(where, "this regex is found in every line, make it say more")
        elif needs and needs not in info.groups:
            self.bound.fault(where, f"the regex needs a group named '{needs}': (?P<{needs}>...)")
        else:
            slow = slowness(text, ignore_case)
            if slow:
                self.bound.fault(where, f"slow regex: {slow}; let neighbouring repetitions take different characters")
        return info.groups

    def literal(self, owner: object, text: str) -> None:
        """Texts that no record can hold, because records are cleaned before they are matched."""
        for character, what in (("\x1b", "escape codes"), ("\r", "carriage returns"), ("\x00", "NULs")):
            at = text.find(character)
            if at >= 0:
                position = self.bound.inside(owner, "contains", offset=at)
                self.bound.fault(position, f"no line can hold this: {what} are removed before matching, leave them out")
        if text != text.strip("\n"):
            self.bound.fault(
                self.bound.position(owner, "contains"),
                "no line ends in a line break when it is matched; write the text in quotes or with '|-'",
            )

    def condition(self, spec: ConditionFields) -> Condition:
        low, high = severity_range(spec)
        any_ = [self.matcher(item) for item in spec.any]
        if isinstance(spec, ItemSpec) and (spec.contains is not None or spec.regex is not None):
            any_.append(self.matcher(spec))
        return Condition(
            any=tuple(any_),
            all=tuple(self.matcher(item) for item in spec.all),
            none=tuple(self.matcher(item) for item in (*spec.not_, *spec.none)),
            severity_min=low,
            severity_max=high,
            attributes={
                name: (value,) if isinstance(value, str) else tuple(value) for name, value in spec.attributes.items()
            },
        )

    def conditions(self, specs: Iterable[ConditionFields]) -> tuple[Condition, ...]:
        return tuple(self.condition(spec) for spec in specs)


def severity_range(spec: ConditionFields) -> tuple[int, int]:
    """Lowest and highest OpenTelemetry number that passes, 0 for no bound."""
    if spec.severity is None:
        return 0, 0
    if isinstance(spec.severity, str):
        return severity_number(spec.severity), 0
    low = severity_number(spec.severity.exactly)
    return low, low + 3


def compile_rules(bound: Bound[RuleFile], *, verify: bool = True) -> list[tuple[Rule, RuleSpec]]:
    """The rules of one file; those with a fault that leaves nothing to work with are left out."""
    if bound.value is None:
        return []
    compiler = Compiler(bound, verify=verify)
    return [(_rule(compiler, spec), spec) for spec in bound.value.rules]


def _rule(compiler: Compiler, spec: RuleSpec) -> Rule:
    bound = compiler.bound
    family = FAILURE_FAMILY.get(spec.failure, "")  # "": a fault already
    guessed = spec.progress is None and bound.written(spec, "progress")
    fingerprint = None
    if spec.fingerprint is not None:
        fingerprint = _fingerprint(compiler, spec.fingerprint)
    elif (
        spec.progress is None
        and spec.when is None
        and not any(bound.written(spec, name) for name in ("fingerprint", "progress", "when"))
    ):
        bound.fault(bound.position(spec), "proves nothing, give 'fingerprint', 'progress' or 'when'")
    elif spec.progress in ("serving", "idle") and spec.when is None:
        message = f"'progress: {spec.progress}' alone holds on a healthy server, give a 'fingerprint' or 'when' with it"
        bound.fault(bound.position(spec, "progress"), message)
    if family == "dead" and spec.progress is not None:
        bound.fault(
            bound.key_position(spec, "progress"),
            f"'{spec.failure}' is of the dead family, its lines decide alone; remove 'progress'",
        )
    if family == "stalled" and spec.progress != "stalled" and not guessed:
        bound.fault(
            bound.position(spec, "progress") if spec.progress else bound.position(spec),
            f"'{spec.failure}' is of the stalled family: it pages when work stands still, write 'progress: stalled'",
        )
    _labels(compiler, spec)
    severity = spec.labels.get("severity") or ("critical" if family in CRITICAL_FAMILIES else "warning")
    rule = Rule(
        alert=spec.alert,
        failure=spec.failure,
        severity=severity,
        engines=tuple(dict.fromkeys(spec.engines)),
        fingerprint=fingerprint,
        progress=spec.progress or "",
        when=spec.when or "",
        for_seconds=spec.for_seconds,
        keep_firing_for=spec.keep_firing_for,
        cooldown=spec.cooldown,
        priority=0,
        inhibits=spec.inhibits,
        labels=dict(spec.labels),
        annotations=dict(spec.annotations),
        sources=spec.sources,
        position=bound.position(spec),
    )
    priority = derived_priority(rule) if spec.priority is None else spec.priority
    return replace(rule, priority=priority)


def derived_priority(rule: Rule) -> int:
    """How specific a rule is: lines beat a condition, a condition beats bare progress.

    100 for a fingerprint, 10 for each required stage after the first (at most 40), 5 for optional stages, 20 for
    ``when``, 5 for a narrower choice of engines than all, 2 for ``absent``.
    """
    priority = 0
    if rule.fingerprint is not None:
        required = sum(not stage.optional for stage in rule.fingerprint.stages)
        priority += 100 + 10 * min(max(required - 1, 0), 4)
        priority += 5 if required < len(rule.fingerprint.stages) else 0
        priority += 2 if rule.fingerprint.absent else 0
    priority += 20 if rule.when else 0
    priority += 5 if rule.engines else 0
    return priority


def _fingerprint(compiler: Compiler, spec: FingerprintSpec) -> Fingerprint:
    bound = compiler.bound
    names: dict[str, int] = {}
    stages = []
    for stage in spec.stages:
        if stage.stage in names:
            bound.fault(bound.position(stage, "stage"), f"stage '{stage.stage}' is given twice, give it another name")
        names[stage.stage] = 1
        stages.append(_stage(compiler, stage))
    if stages and all(stage.optional for stage in stages):
        bound.fault(bound.position(spec, "stages"), "every stage is optional, so nothing is proved; make one required")
    for made, written in zip(stages, spec.stages, strict=True):
        if made.count_within > spec.within:
            bound.fault(
                bound.position(written, "count"),
                "counts over a longer time than the fingerprint's 'within', the rest is never seen",
            )
    return Fingerprint(
        stages=tuple(stages),
        within=spec.within,
        by=spec.by,
        absent=compiler.conditions(spec.absent),
        absent_after=spec.absent_after,
    )


def _stage(compiler: Compiler, spec: StageSpec) -> Stage:
    count: CountSpec | None = None
    if isinstance(spec.count, CountSpec):
        count = spec.count
    elif isinstance(spec.count, str):
        with contextlib.suppress(ValueError):  # a fault already, said where the file was read
            count = parse_count(spec.count)
    return Stage(
        name=spec.stage,
        condition=compiler.condition(spec),
        optional=spec.optional,
        count=count.n if count else spec.count if isinstance(spec.count, int) else 1,
        count_within=count.within if count else 0.0,
        terminal=spec.terminal,
        position=compiler.bound.position(spec),
    )


def _labels(compiler: Compiler, spec: RuleSpec) -> None:
    bound = compiler.bound
    for kind, texts in (("label", spec.labels), ("annotation", spec.annotations)):
        for name in texts:
            if not _LABEL_NAME.fullmatch(name):
                bound.fault(
                    bound.key_position(spec, f"{kind}s", name),
                    f"'{name}' is no {kind} name; letters, digits and '_' only, not beginning with a digit",
                )
            elif kind == "label" and name in _RESERVED_LABELS:
                bound.fault(
                    bound.key_position(spec, "labels", name),
                    f"label '{name}' is set by wedgewatch: {_RESERVED_LABELS[name]}",
                )
    for name, text in spec.labels.items():
        changing = _CHANGING.search(text)
        if changing is not None:
            where = bound.inside(spec, "labels", name, offset=changing.start())
            message = f"'{changing[1]}' changes while the alert lasts, and a changed label is another alert"
            bound.fault(where, f"{message}; put it into an annotation")
    severity = spec.labels.get("severity")
    if severity is not None and severity not in ALERT_SEVERITIES:
        bound.fault(
            bound.position(spec, "labels", "severity"),
            f"unknown severity '{severity[:40]}', known: {', '.join(ALERT_SEVERITIES)}",
        )
    runbook = spec.annotations.get("runbook_url", "")
    if runbook and "{{" not in runbook and not re.match(r"https?://", runbook):
        bound.fault(bound.position(spec, "annotations", "runbook_url"), "is no URL, begin it with https://", "warning")


def named_groups(rule: Rule) -> frozenset[str]:
    """The fields that a rule's stages can catch."""
    if rule.fingerprint is None:
        return frozenset()
    return frozenset(
        group
        for stage in rule.fingerprint.stages
        for matcher in matchers_of((stage.condition,), negative=False)
        if matcher.kind == "regex"
        for group in inspect_regex(matcher.pattern, matcher.ignore_case).groups
    )


def matchers_of(conditions: Sequence[Condition], *, negative: bool = True) -> list[Matcher]:
    """All matchers of some conditions."""
    return [
        matcher
        for condition in conditions
        for matcher in (*condition.any, *condition.all, *(condition.none if negative else ()))
    ]
