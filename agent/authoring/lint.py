"""All faults of a configuration and of rule and dialect files: the library behind ``wedgewatch check``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent.rules.checks import CheckExpr
from agent.rules.load import load_files
from agent.rules.spec import RuleFile
from agent.schema import Bound, Fault, errors, sort_faults

__all__ = ["LintResult", "check_expression", "inspect", "lint"]


@dataclass(frozen=True, slots=True)
class LintResult:
    """The faults in order, and how much was looked at."""

    faults: list[Fault] = field(default_factory=list)
    rules: int = 0
    dialects: int = 0
    tests: int = 0

    @property
    def ok(self) -> bool:
        """No error; warnings may be there."""
        return not errors(self.faults)

    def summary(self) -> str:
        """``58 rules, 14 dialects, 160 tests: 2 errors, 1 warning``."""
        bad = len(errors(self.faults))
        warnings = len(self.faults) - bad
        looked_at = f"{_count(self.rules, 'rule')}, {_count(self.dialects, 'dialect')}, {_count(self.tests, 'test')}"
        if not self.faults:
            return f"{looked_at}: no fault"
        found = ", ".join(_count(number, word) for number, word in ((bad, "error"), (warnings, "warning")) if number)
        return f"{looked_at}: {found}"


def lint(config: str | Path | None = None, rules: Iterable[str | Path] = ()) -> list[Fault]:
    """All faults of a configuration, of the rules that it names, and of further rule files; see :func:`inspect`."""
    return inspect(config, rules).faults


def inspect(
    config: str | Path | None = None,
    rules: Iterable[str | Path] = (),
    *,
    env: Mapping[str, str] | None = None,
    check_expr: CheckExpr | None = None,
) -> LintResult:
    """Looks at a configuration with the rules that it names, at further rule files, and at the bundled ones with them.

    ``check_expr`` gives the faults of a ``when`` expression; default: those of the evaluator itself.
    """
    faults: list[Fault] = []
    paths = [str(path) for path in rules]
    bundled = True
    disabled: tuple[str, ...] = ()
    if config is not None:
        from agent.config import read_config

        bound = read_config(config, env=env)
        faults += bound.faults
        if bound.value is not None:
            paths = [*bound.value.rule_files, *paths]
            bundled, disabled = bound.value.bundled_rules, bound.value.disabled_rules
    loaded = load_files(
        paths,
        bundled=bundled,
        check_expr=check_expr or check_expression,
        disabled=disabled,
        tests=True,
        verify_bundled=config is None and not paths,
    )
    faults += loaded.faults
    for file in loaded.rule_files:
        faults += _test_inputs(file)
    return LintResult(
        sort_faults(faults),
        len(loaded.ruleset.rules),
        len(loaded.ruleset.dialects),
        sum(len(file.value.tests) for file in loaded.rule_files if file.value is not None),
    )


def check_expression(text: str) -> list[tuple[int, str]]:
    """Faults of a ``when`` expression with their places, by the evaluator that will run it."""
    from agent.detect.promql import ExprError, compile_expr

    try:
        compile_expr(text)
    except ExprError as error:
        message = str(error)
        if error.offset is not None:
            message = message.removesuffix(f" (at character {error.offset + 1})")
        return [(error.offset or 0, message)]
    return []


def _test_inputs(file: Bound[RuleFile]) -> list[Fault]:
    """Unit tests whose input is not there or cannot be read as series."""
    from agent.authoring.series import to_openmetrics
    from agent.authoring.testing import inline, series_of

    found: list[Fault] = []
    folder = os.path.dirname(file.document.file)
    if file.value is None:
        return found
    for test in file.value.tests:
        for name, text in (("log", test.log), ("metrics", test.metrics)):
            if isinstance(text, str) and not inline(text) and not os.path.isfile(os.path.join(folder, text)):
                hint = "; a text of one line is written with '|'" if name == "log" else ""
                found.append(Fault(file.position(test, name), f"there is no file {text[:80]}{hint}"))
        if test.metrics is not None and not isinstance(test.metrics, str):
            try:
                to_openmetrics(series_of(test), start=0.0, interval=test.interval)
            except ValueError as error:
                found.append(Fault(file.position(test, "metrics"), str(error)))
    return found


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")
