"""Unit tests of rules: the library behind ``wedgewatch test``.

A test gives a log (a file or its text) and metrics (a file, or series in promtool's notation) and says which alerts
must come. It runs through the same code as ``wedgewatch scan``. When it fails it says what was expected, what came
instead, and what each stage of the rules in question saw and when.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO
from zoneinfo import ZoneInfo

from agent.authoring.explain import Trace
from agent.authoring.lint import check_expression
from agent.authoring.outcomes import Outcome, mismatches, outcomes
from agent.authoring.series import to_openmetrics
from agent.model import Alert, parse_rfc3339
from agent.rules.checks import CheckExpr
from agent.rules.load import load_files
from agent.rules.model import RuleSet
from agent.rules.spec import RuleFile, TestSpec
from agent.schema import Bound, errors

__all__ = ["CaseResult", "inline", "run_case", "run_files", "run_tests", "series_of"]

DEFAULT_START: Final = 1_767_225_600.0
"""2026-01-01T00:00:00Z: where inline series begin when neither the test nor its log says when."""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """How one test went: ``problems`` is empty when it passed. ``place`` is ``file:line:col``."""

    place: str
    name: str
    problems: tuple[str, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    timeline: str = ""

    @property
    def passed(self) -> bool:
        return not self.problems


def run_tests(
    paths: Sequence[str],
    out: TextIO,
    *,
    verbose: bool = False,
    bundled: bool = True,
    check_expr: CheckExpr | None = None,
) -> int:
    """Runs the tests of some files and folders and prints the report. 0 all passed, 1 some failed, 2 bad files.

    ``bundled``: whether the bundled rules and dialects take part too, as they will where the files are used.
    """
    loaded = load_files(paths, bundled=bundled, check_expr=check_expr or check_expression, tests=True)
    bad = errors(loaded.faults)
    for fault in bad:
        print(fault, file=out)
    if bad:
        print("the files have faults, no test was run", file=out)
        return 2
    results = []
    for result in run_files(loaded.ruleset, loaded.own_files):
        results.append(result)
        if verbose or not result.passed:
            print(_report(result), file=out)
    failed = sum(not result.passed for result in results)
    if not results:
        print("there is no test in these files", file=out)
        return 2
    print(_summary(len(results), failed), file=out)
    return 1 if failed else 0


def _summary(count: int, failed: int) -> str:
    tests = "1 test" if count == 1 else f"{count} tests"
    return f"{tests}, {failed} failed" if failed else f"{tests} passed"


def run_files(ruleset: RuleSet, files: Iterable[Bound[RuleFile]]) -> Iterator[CaseResult]:
    """Runs every test of the files against one rule set."""
    with tempfile.TemporaryDirectory(prefix="wedgewatch-patterns-") as cache:  # patterns are compiled once for all
        for file in files:
            if file.value is None:
                continue
            folder = os.path.dirname(file.document.file)
            for test in file.value.tests:
                yield _run_test(ruleset, test, folder, str(file.position(test)), Path(cache))


def _run_test(ruleset: RuleSet, test: TestSpec, folder: str, place: str, cache_dir: Path) -> CaseResult:
    trace = Trace(ruleset, engine=test.engine, timezone=test.timezone)
    try:
        alerts = run_case(
            ruleset,
            log=test.log,
            metrics=test.metrics if isinstance(test.metrics, str) else series_of(test) or None,
            engine=test.engine,
            interval=test.interval,
            start=test.start,
            timezone=test.timezone,
            until=test.until,
            folder=folder,
            trace=trace,
            cache_dir=cache_dir,
        )
    except (OSError, ValueError) as error:
        return CaseResult(place, test.name, (f"cannot be run: {error}",))
    came = outcomes(alerts)
    problems = mismatches(test.expect, came)
    if not problems:
        return CaseResult(place, test.name, (), tuple(came))
    names = {expected.alert for expected in test.expect} | {outcome.alertname for outcome in came if outcome.fired_at}
    failures = {expected.failure for expected in test.expect if expected.failure}
    concerned = [rule for rule in ruleset.rules if rule.alert in names or rule.failure in failures]
    return CaseResult(place, test.name, tuple(problems), tuple(came), trace.timeline(concerned, alerts))


def run_case(
    ruleset: RuleSet,
    *,
    log: str | None = None,
    metrics: str | Mapping[str, str] | Sequence[tuple[str, str]] | None = None,
    engine: str = "auto",
    interval: float = 5.0,
    start: str | None = None,
    timezone: str = "UTC",
    until: str | None = None,
    folder: str = "",
    trace: Trace | None = None,
    cache_dir: Path | None = None,
) -> list[Alert]:
    """Every transition that a log and metrics lead to.

    ``log`` and ``metrics`` are paths, relative to ``folder``, or the text itself when they hold a line break; metrics
    may be series in promtool's notation. Raises OSError and ValueError with a sentence about the input.
    """
    from agent.metrics.mapping import SignalMapper
    from agent.metrics.openmetrics import read_samples
    from agent.replay import scan

    zone = ZoneInfo(timezone)
    with tempfile.TemporaryDirectory(prefix="wedgewatch-test-") as scratch:
        logs = [] if log is None else [_file(log, folder, scratch, "server.log")]
        samples = []
        mapper = SignalMapper(ruleset.dialects, engine)
        if metrics is not None:
            if isinstance(metrics, str):
                path = _file(metrics, folder, scratch, "metrics.om")
            else:
                begin = parse_rfc3339(start) if start is not None else _first_stamp(ruleset, logs, engine, zone)
                path = _file(to_openmetrics(metrics, start=begin, interval=interval), "", scratch, "metrics.om")
            samples = read_samples(path, mapper, "server")
        if trace is not None:
            for name in logs:
                trace.read(name, span=(samples[0].timestamp, samples[-1].timestamp) if samples else None, keep=True)
        return scan(
            ruleset,
            logs,
            samples=samples,
            samples_engine=mapper.engine,
            engine=engine,
            timezone=zone,
            until=parse_rfc3339(until) if until is not None else None,
            cache_dir=cache_dir,
        ).alerts


def inline(text: str) -> bool:
    """Whether a test's ``log`` or ``metrics`` is the text itself rather than a path."""
    return "\n" in text


def series_of(test: TestSpec) -> list[tuple[str, str]]:
    """Inline series as (series, values); empty when there are none."""
    if test.metrics is None or isinstance(test.metrics, str):
        return []
    if isinstance(test.metrics, Mapping):
        return list(test.metrics.items())
    return [(item.series, item.values) for item in test.metrics]


def _file(text: str, folder: str, scratch: str, name: str) -> str:
    if not inline(text):
        return os.path.join(folder, text)
    path = Path(scratch, name)
    path.write_text(text, encoding="utf-8")
    # Stamps without a year are completed from the file's age, which must not depend on the day of the test.
    os.utime(path, (DEFAULT_START, DEFAULT_START))
    return str(path)


def _first_stamp(ruleset: RuleSet, logs: Sequence[str], engine: str, zone: ZoneInfo) -> float:
    """Time of the first stamped line, so that log and series begin together."""
    from agent.logs.engine import LogEngine
    from agent.logs.timestamps import YearReference

    for name in logs:
        reference = YearReference.for_scan([name])
        stream = LogEngine((), ruleset.dialects, timezone=zone, year_reference=reference).stream(
            server="server", file=name, engine=engine
        )
        stream.feed(Path(name).read_bytes())
        stream.flush()
        if stream.first_timestamp is not None:
            return float(stream.first_timestamp)
    return DEFAULT_START


def _report(result: CaseResult) -> str:
    if result.passed:
        return f"ok    {result.place}: {result.name}"
    lines = [
        f"FAIL  {result.place}: {result.name}",
        *(f"        {line}" for text in result.problems for line in text.splitlines()),
    ]
    if result.timeline:
        lines.append("      what was seen:")
        lines.extend(f"        {line}" for line in result.timeline.splitlines())
    return "\n".join(lines)
