"""All faults of a configuration and of rule and dialect files: the library behind ``wedgewatch check``."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent.config.matchers import parse_matchers
from agent.config.model import ActionConfig, Config
from agent.config.routing import Maintenance
from agent.model import FAILURE_FAMILY
from agent.rules.checks import CheckExpr
from agent.rules.compile import ALERT_SEVERITIES
from agent.rules.load import LoadedFiles, expand_paths, load_files
from agent.rules.spec import RuleFile
from agent.schema import Bound, Fault, did_you_mean, errors, sort_faults

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
    bound = None
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
    if bound is not None and bound.value is not None:
        faults += _unknown_names(bound, bound.value, loaded)
    # The inputs of the bundled rules' tests are in the repository, not in a wheel: only a user's own are looked for.
    for file in loaded.own_files:
        faults += _test_inputs(file)
        faults += _expected_alerts(file, loaded.alerts)
    return LintResult(
        sort_faults(faults),
        len(loaded.ruleset.rules),
        len(loaded.ruleset.dialects),
        sum(len(file.value.tests) for file in loaded.rule_files if file.value is not None),
    )


def _unknown_names(bound: Bound[Config], config: Config, loaded: LoadedFiles) -> list[Fault]:
    """Names in the configuration that only the rules can know."""
    found: list[Fault] = []
    for index, name in enumerate(config.disabled_rules):
        if name not in loaded.alerts:
            near = did_you_mean(name, loaded.alerts)
            position = bound.position(config, "disabled_rules", index)
            found.append(Fault(position, f"no alert is named '{name[:60]}'{near}"))
    for index, pattern in enumerate(config.rule_files):
        if not expand_paths([pattern])[0]:
            position = bound.position(config, "rule_files", index)
            found.append(Fault(position, "no rule file is found here", "warning"))
    known: dict[str, Collection[str]] = {
        "alertname": loaded.alerts,
        "failure": FAILURE_FAMILY,
        "severity": ALERT_SEVERITIES,
        "server": [server.name for server in config.servers],
    }
    for owner, name, index, text in _matchers(config):
        try:
            matchers = parse_matchers(text)
        except ValueError:
            continue  # a fault already
        for matcher in matchers:
            if matcher.op == "=" and matcher.value not in known.get(matcher.name, [matcher.value]):
                near = did_you_mean(matcher.value, known[matcher.name])
                message = f"no {matcher.name} is '{matcher.value[:60]}', so this holds for no alert{near}"
                found.append(Fault(bound.position(owner, name, index), message, "warning"))
    return found


def _matchers(config: Config) -> Iterator[tuple[object, str, int, str]]:
    """Every matcher as (owner, key, index, text)."""
    routes = [config.route] if config.route is not None else []
    while routes:
        route = routes.pop()
        routes.extend(route.routes)
        yield from ((route, "matchers", index, text) for index, text in enumerate(route.matchers))
    for rule in config.inhibit_rules:
        for name in ("source_matchers", "target_matchers"):
            yield from ((rule, name, index, text) for index, text in enumerate(getattr(rule, name)))
    others: list[Maintenance | ActionConfig] = [*config.maintenance, *config.actions]
    for item in others:
        yield from ((item, "matchers", index, text) for index, text in enumerate(item.matchers))


def check_expression(text: str) -> list[tuple[int, str]]:
    """Faults of a ``when`` expression with their places, by the evaluator that will run it."""
    from agent.detect.promql import ExprError, compile_expr

    try:
        expression = compile_expr(text)
    except ExprError as error:
        message = str(error)
        if error.offset is not None:
            message = message.removesuffix(f" (at character {error.offset + 1})")
        return [(_place(text, message) if error.offset is None else error.offset, message)]
    if expression.is_scalar:
        return [(0, "is a bare number, and a number always holds; compare a signal with something, without bool")]
    return []


def _place(text: str, message: str) -> int:
    """Where a word stands that the parser quotes without saying where."""
    quoted = re.findall(r"'([^']+)'", message)
    return text.index(quoted[-1]) if quoted and text.count(quoted[-1]) == 1 else 0


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


def _expected_alerts(file: Bound[RuleFile], known: Collection[str]) -> list[Fault]:
    """Unit tests that expect an alert which no rule can give."""
    found: list[Fault] = []
    for test in file.value.tests if file.value is not None else ():
        for expect in test.expect:
            if expect.alert is not None and expect.alert not in known:
                message = f"no alert is named '{expect.alert[:60]}'{did_you_mean(expect.alert, known)}"
                found.append(Fault(file.position(expect, "alert"), message))
    return found


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")
