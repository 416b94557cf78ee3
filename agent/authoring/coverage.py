"""Which failure is recognised on which engine, and from what: ``docs/coverage.md``, made from the packs.

``python -m agent.authoring.coverage`` prints the page; a test compares it with the file in the repository.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from agent.model import FAILURE_FAMILY
from agent.rules.checks import signals_of
from agent.rules.dialect_spec import ENGINES
from agent.rules.expressions import names_in
from agent.rules.load import load_rules
from agent.rules.model import Dialect, Rule, RuleSet
from agent.schema import format_duration

__all__ = ["evidence", "page"]

SYMBOLS: Final[Mapping[str, str]] = {
    "L": "a line of the log proves it alone (probable; confirmed when signals agree)",
    "C": "lines name the cause, signals must confirm it (confirmed)",
    "S": "signals prove it without any line (confirmed)",
    "P": "lines and signals that show that work goes on",
}
"""Kinds of evidence, in the order in which they are shown."""
_WORK: Final = frozenset({"requests_running", "requests_waiting", "http_requests_active", "training_step"})
_TITLES: Final[Mapping[str, str]] = {
    "stalled": "Stalled: work waits or runs, none is issued (a page)",
    "dead": "Dead (a page, another action)",
    "degraded": "Degraded (a warning)",
}


def evidence(rule: Rule, dialect: Dialect) -> frozenset[str]:
    """Kinds of evidence (keys of :data:`SYMBOLS`) by which ``rule`` speaks on the engine of ``dialect``; empty when the
    rule is not for that engine or needs signals that it does not give."""
    if rule.engines and dialect.engine not in rule.engines:
        return frozenset()
    signals = signals_of(dialect)
    wanted = {name for _, name in names_in(rule.when)} if rule.when else set()
    if rule.fingerprint is None:
        if wanted and not _had(wanted, rule.when, signals):
            return frozenset()
        # What is asked of progress needs to see work in flight; a start is told by lines.
        if rule.progress in ("stalled", "saturated") and not signals & _WORK:
            return frozenset()
        return frozenset({"L"} if rule.progress == "starting" else {"S"})
    if rule.progress == "serving":
        return frozenset({"P"})
    kinds = set()
    if rule.progress == "" or any(stage.terminal for stage in rule.fingerprint.stages):
        kinds.add("L")
    if rule.progress == "stalled" and signals & _WORK:
        kinds.add("C")
    return frozenset(kinds)


def _had(wanted: Iterable[str], expression: str, signals: frozenset[str]) -> bool:
    """Can the condition ever hold? A name after ``unless``, or one side of an ``or``, may be missing."""
    required = expression.split("unless", 1)[0]
    return all(
        name in signals or f"or {name}" in required or f"{name} > 0 or" in required
        for name in wanted
        if name in required
    )


def page(ruleset: RuleSet) -> str:
    """The whole page as Markdown."""
    engines = [
        ruleset.dialects[name]
        for name in (*ENGINES, *sorted(set(ruleset.dialects) - set(ENGINES)))
        if name in ruleset.dialects
    ]
    out = [
        "# What is recognised where",
        "",
        "Made from the bundled packs by `python -m agent.authoring.coverage`; do not edit.",
        "",
        *(f"* **{symbol}** {meaning}" for symbol, meaning in SYMBOLS.items()),
        "",
        "Signals are the metrics page of the engine or, where its log has them, its own stats lines.",
        "Lines in brackets are evidence when they are there; ■ marks a line that says by itself that no work follows.",
        "",
    ]
    for family, title in _TITLES.items():
        failures = [name for name, of in FAILURE_FAMILY.items() if of == family]
        out += [f"## {title}", "", *_matrix(failures, engines, ruleset.rules), ""]
    out += ["## The rules", ""]
    for failure in FAILURE_FAMILY:
        rules = [rule for rule in ruleset.rules if rule.failure == failure]
        if rules:
            out += [f"### [{failure}](runbooks/{failure}.md)", "", *_rules(rules), ""]
    return "\n".join(out).rstrip("\n") + "\n"


def _matrix(failures: Sequence[str], engines: Sequence[Dialect], rules: Sequence[Rule]) -> list[str]:
    head = [dialect.engine for dialect in engines]
    lines = [f"| failure | {' | '.join(head)} |", "|---" * (len(head) + 1) + "|"]
    for failure in failures:
        cells = []
        for dialect in engines:
            kinds = {kind for rule in rules if rule.failure == failure for kind in evidence(rule, dialect)}
            cells.append(" ".join(symbol for symbol in SYMBOLS if symbol in kinds) or "–")
        lines.append(f"| [{failure}](runbooks/{failure}.md) | {' | '.join(cells)} |")
    return lines


def _rules(rules: Sequence[Rule]) -> list[str]:
    lines = ["| alert | engines | lines | signals | for |", "|---|---|---|---|---|"]
    for rule in rules:
        engines = ", ".join(rule.engines) or "any"
        held = format_duration(rule.for_seconds)
        lines.append(f"| {rule.alert} | {engines} | {_lines(rule)} | {_signals(rule)} | {held} |")
    return lines


def _lines(rule: Rule) -> str:
    if rule.fingerprint is None:
        return "–"
    parts = []
    for stage in rule.fingerprint.stages:
        name = f"({stage.name})" if stage.optional else stage.name
        count = f" ×{stage.count}" if stage.count > 1 else ""
        parts.append(f"{name}{count}{' ■' if stage.terminal else ''}")
    without = f", not after {len(rule.fingerprint.absent)} other kind(s) of line" if rule.fingerprint.absent else ""
    return " → ".join(parts) + without


def _signals(rule: Rule) -> str:
    parts = []
    if rule.progress:
        parts.append(f"work is {rule.progress}")
    if rule.when:
        parts.append("`" + " ".join(rule.when.split()).replace("|", "\\|") + "`")
    return ", ".join(parts) or "–"


def main() -> int:
    """Prints the page; exit 1 when the bundled rules cannot be loaded."""
    ruleset, faults = load_rules()
    for fault in faults:
        print(fault, file=sys.stderr)
    if faults:
        return 1
    sys.stdout.write(page(ruleset))
    return 0


if __name__ == "__main__":
    sys.exit(main())
