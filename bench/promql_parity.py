"""Do our PromQL and Prometheus give the same answers? Random series, random expressions, both sides, compared.

    python -m bench.promql_parity [--pairs 4000] [--seed 1] [--keep FOLDER]

Every pair is one expression evaluated at one instant over one set of series, by us and by `promtool test rules` (the
Debian package prometheus). The two answers must hold the same elements with the same labels and the same values, and
where one fails the other must fail. Values must be equal to the last bit, except where Prometheus's own answer depends
on the order in which it happens to visit series (averages and deviations over several series, seen from run to run) or
on its runtime's `pow`: those may differ by one part in 10^12.

Exit status 1 when there is a difference.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent.detect.promql import EvaluationError, ExprError, compile_expr
from agent.detect.series import SeriesStore

__all__ = ["Difference", "Group", "compare", "generate"]

Answer = list[tuple[tuple[tuple[str, str], ...], float]] | str
"""Elements sorted by labels, or the word ``error``."""

NAMES = ("foo", "bar", "baz_total", "qux:rate")
LABEL_VALUES = {"a": ("1", "2", "3"), "b": ("x", "y"), "job": ("api", "db"), "__empty": ("",)}
PER_GROUP = 40


@dataclass(frozen=True)
class Group:
    """Series and expressions of one promtool test. ``points``: labels -> (seconds, value; None a stale marker)."""

    interval: int
    series: list[tuple[dict[str, str], list[tuple[int, float | None]]]]
    questions: list[tuple[str, float]]
    notation: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Difference:
    expression: str
    time: float
    ours: Answer
    theirs: Answer
    group: int


# --- random series ---------------------------------------------------------------------------------------------------


def _selector_text(labels: Mapping[str, str]) -> str:
    inner = ",".join(f'{name}="{value}"' for name, value in labels.items() if name != "__name__")
    return f"{labels['__name__']}{{{inner}}}"


def _values(rng: random.Random, count: int) -> list[float | str | None]:
    """Values at each interval: a number, None for a gap, or ``stale``."""
    kind = rng.choice(("counter", "counter", "gauge", "constant", "wild", "sparse", "short"))
    out: list[float | str | None] = []
    value = float(rng.choice((0, 0, 1, 100, -5))) if kind != "counter" else float(rng.choice((0, 7, 1000)))
    step = rng.choice((0.25, 1, 3, 17.5, 1000))
    for index in range(count):
        if kind == "counter":
            value = 0.0 if rng.random() < 0.04 else value + step * rng.randint(0, 4)
        elif kind == "gauge":
            value += step * rng.randint(-3, 3)
        elif kind == "wild":
            value = rng.choice((math.nan, math.inf, -math.inf, 0.0, 1.0, -1.0, 0.5, 1e9, -2.25))
        gap = {"sparse": 0.8, "short": 0.0}.get(kind, 0.08)
        if (kind == "short" and index >= count // 4) or rng.random() < gap:
            out.append(None)
        elif rng.random() < 0.02:
            out.append("stale")
        else:
            out.append(value)
    return out


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    return repr(value)


def _group(rng: random.Random, questions: int) -> Group:
    interval = rng.choice((5, 7, 15, 30, 60))
    count = rng.choice((12, 40, 90))
    chosen: dict[str, dict[str, str]] = {}
    for number in range(rng.randint(6, 16)):
        labels = {"__name__": NAMES[number % len(NAMES)]}
        for label in ("a", "b", "job"):
            if rng.random() < 0.7:
                labels[label] = rng.choice(LABEL_VALUES[label])
        chosen.setdefault(_selector_text(labels), labels)
    series = []
    notation = []
    for text, labels in chosen.items():
        values = _values(rng, count)
        words = ["_" if v is None else v if isinstance(v, str) else _number(v) for v in values]
        notation.append((text, " ".join(words)))
        points: list[tuple[int, float | None]] = [
            (index * interval, None if isinstance(value, str) else value)
            for index, value in enumerate(values)
            if value is not None
        ]
        series.append((labels, points))
    rng.shuffle(series)
    span = interval * count
    asked = []
    for _ in range(questions):
        at = rng.choice(
            (
                rng.randint(span // 4, span),
                rng.randint(0, count) * interval,
                rng.randint(count // 4, count) * interval,
                span + rng.choice((0, 100, 290, 300, 301, 400)) - interval,
            )
        )
        asked.append((_expression(rng, rng.choice((0, 1, 2, 2, 3))), float(at)))
    return Group(interval, series, asked, notation)


# --- random expressions ----------------------------------------------------------------------------------------------

RANGE_CALLS = (
    "rate",
    "increase",
    "delta",
    "idelta",
    "irate",
    "changes",
    "resets",
    "deriv",
    "avg_over_time",
    "min_over_time",
    "max_over_time",
    "sum_over_time",
    "count_over_time",
    "last_over_time",
    "present_over_time",
    "stddev_over_time",
    "stdvar_over_time",
    "absent_over_time",
)
INSTANT_CALLS = ("abs", "ceil", "floor", "round", "sgn", "sqrt", "timestamp", "absent")
AGGREGATES = ("sum", "sum", "min", "max", "avg", "count", "group", "stddev", "stdvar")
COMPARE = ("==", "!=", ">", "<", ">=", "<=")
ARITHMETIC = ("+", "-", "*", "/", "%", "^")


def _matchers(rng: random.Random) -> str:
    parts = []
    for label in rng.sample(("a", "b", "job"), rng.choice((0, 0, 0, 0, 1, 1, 2))):
        value = rng.choice(LABEL_VALUES[label])
        parts.append(
            rng.choice(
                (
                    f'{label}="{value}"',
                    f'{label}!="{value}"',
                    f'{label}=~"{value}|z"',
                    f'{label}!~"{value}.*"',
                    f'{label}=""',
                    f'{label}=~".+"',
                    f'{label}=~"[xy1a]p?i?"',
                )
            )
        )
    return "{" + ",".join(parts) + "}" if parts else ""


def _duration(rng: random.Random) -> str:
    return rng.choice(("10s", "30s", "45s", "1m", "1m30s", "2m", "5m", "5m", "7m", "15m", "61500ms"))


def _offset(rng: random.Random) -> str:
    return f" offset {rng.choice(('', '', '-'))}{_duration(rng)}" if rng.random() < 0.1 else ""


def _selector(rng: random.Random) -> str:
    if rng.random() < 0.04:
        return rng.choice(('{__name__=~"foo|bar"}', '{__name__="foo",a="1"}', '{a="1"}', '{b=~"x|y"}'))
    name = "nothing" if rng.random() < 0.03 else rng.choice(NAMES)
    return name + _matchers(rng)


def _scalar(rng: random.Random, depth: int) -> str:
    kind = rng.random()
    if depth > 0 and kind < 0.15:
        return f"scalar({_expression(rng, depth - 1)})"
    if depth > 0 and kind < 0.25:
        return f"({_scalar(rng, 0)} {rng.choice(ARITHMETIC)} {_scalar(rng, 0)})"
    if kind < 0.3:
        return "time()"
    if kind < 0.36:
        return rng.choice(("NaN", "Inf", "-Inf"))
    return rng.choice(("0", "1", "2", "0.5", "-1", "3", "100", "1e3", "-2.25"))


def _grouping(rng: random.Random) -> str:
    labels = ", ".join(rng.sample(("a", "b", "job"), rng.randint(0, 2)))
    return rng.choice(("", f"by ({labels})", f"without ({labels})"))


def _vector_matching(rng: random.Random) -> str:
    labels = rng.sample(("a", "b", "job"), rng.randint(0, 3))
    words = rng.choice(("", "", f"on ({', '.join(labels)})", f"ignoring ({', '.join(labels)})"))
    if words and rng.random() < 0.35:
        free = [label for label in ("a", "b", "job") if label not in labels or not words.startswith("on")]
        include = ", ".join(rng.sample(free, rng.randint(0, len(free))))
        words += f" {rng.choice(('group_left', 'group_right'))} ({include})"
    return words


def _expression(rng: random.Random, depth: int) -> str:
    """An expression of type vector."""
    kind = rng.random()
    if depth == 0:
        if kind < 0.5:
            return _selector(rng) + _offset(rng)
        return f"{rng.choice(RANGE_CALLS)}({_selector(rng)}[{_duration(rng)}]{_offset(rng)})"

    def inner() -> str:
        return _expression(rng, depth - 1)

    if kind < 0.14:
        return f"{rng.choice(RANGE_CALLS)}({_selector(rng)}[{_duration(rng)}]{_offset(rng)})"
    if kind < 0.17:
        call = rng.choice(("quantile_over_time({n}, {m})", "predict_linear({m}, {n})"))
        return call.format(n=_scalar(rng, 0), m=f"{_selector(rng)}[{_duration(rng)}]{_offset(rng)}")
    if kind < 0.32:
        if rng.random() < 0.1:
            return f"quantile {_grouping(rng)} ({_scalar(rng, 0)}, {inner()})"
        return f"{rng.choice(AGGREGATES)} {_grouping(rng)} ({inner()})"
    if kind < 0.42:
        return f"{rng.choice(INSTANT_CALLS)}({inner()})"
    if kind < 0.47:
        name = rng.choice(("clamp_min", "clamp_max", "clamp", "round"))
        numbers = ", ".join(_scalar(rng, 1) for _ in range(2 if name == "clamp" else 1))
        return f"{name}({inner()}, {numbers})"
    if kind < 0.51:
        return f"-{_selector(rng)}" if rng.random() < 0.5 else f"-({inner()})"
    if kind < 0.53:
        return f"vector({_scalar(rng, 1)})"
    operator = rng.choice((*ARITHMETIC, *COMPARE, *COMPARE, "and", "or", "unless"))
    as_bool = " bool" if operator in COMPARE and rng.random() < 0.3 else ""
    if operator in ("and", "or", "unless"):
        words = _vector_matching(rng).partition(" group_")[0]
        return f"({inner()}) {operator} {words} ({inner()})"
    if rng.random() < 0.4:
        sides = [f"({inner()})", _scalar(rng, depth)]
        rng.shuffle(sides)
        return f"{sides[0]} {operator}{as_bool} {sides[1]}"
    return f"({inner()}) {operator}{as_bool} {_vector_matching(rng)} ({inner()})"


def generate(seed: int, pairs: int) -> list[Group]:
    """Groups with ``pairs`` questions in all; the same seed gives the same."""
    rng = random.Random(seed)
    sizes = [PER_GROUP] * (pairs // PER_GROUP) + ([pairs % PER_GROUP] if pairs % PER_GROUP else [])
    return [_group(rng, size) for size in sizes]


# --- both sides ------------------------------------------------------------------------------------------------------


def _store(group: Group) -> SeriesStore:
    """As promtool does it, everything up to the last question is there, also for the earlier ones."""
    end = max(time for _, time in group.questions)
    store = SeriesStore(retention=1e9)
    for labels, points in group.series:
        rest = {name: value for name, value in labels.items() if name != "__name__"}
        for at, value in points:
            if at <= end and value is not None:
                store.append(labels["__name__"], rest, at, value)
            elif at <= end:
                for series in store.series(labels["__name__"]):
                    if dict(series.labels) == labels:
                        series.append(at * 1000, 0.0, stale=True)
    return store


def ours(group: Group) -> Iterator[Answer]:
    """Our answers to the questions of the group."""
    store = _store(group)
    for expression, time in group.questions:
        try:
            found = compile_expr(expression).evaluate(store, time)
        except (ExprError, EvaluationError):
            yield "error"
        else:
            yield sorted((tuple(sorted(labels.items())), value) for labels, value in found)


def _test_file(group: Group) -> dict[str, object]:
    return {
        "interval": f"{group.interval}s",
        "input_series": [{"series": text, "values": values} for text, values in group.notation],
        "promql_expr_test": [
            {"expr": f"{expression} # {number}", "eval_time": f"{int(time)}s", "exp_samples": []}
            for number, (expression, time) in enumerate(group.questions)
        ],
    }


_GOT = re.compile(
    r'^ {4}expr: "(?P<expr>(?:[^"\\]|\\.)*) # (?P<number>\d+)", time: \S+?'
    r"(?:, err: (?P<error>.*)|,\n {8}exp: .*\n {8}got: ?(?P<got>.*))$",
    re.MULTILINE,
)
_ELEMENT = re.compile(r"\{((?:[^\"{}]|\"(?:[^\"\\]|\\.)*\")*)\} (\S+?)(?:, |$)")
_PAIR = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"')


def theirs(groups: Sequence[Group], folder: Path) -> list[list[Answer]]:
    """Prometheus's answers: every test expects nothing, so promtool prints what it got."""
    out = []
    for number, group in enumerate(groups):
        path = folder / f"group{number}.yml"
        # JSON is YAML, and leaves no doubt about quoting; one second of evaluation loads every point
        path.write_text(json.dumps({"evaluation_interval": "1s", "tests": [_test_file(group)]}, indent=1))
        done = subprocess.run(
            ["promtool", "test", "rules", str(path)], capture_output=True, text=True, timeout=600, check=False
        )
        answers: list[Answer] = [[] for _ in group.questions]
        text = done.stdout + done.stderr
        if "FAILED" not in text and "SUCCESS" not in text:
            raise RuntimeError(f"promtool did not run {path}: {text[:2000]}")
        for match in _GOT.finditer(text):
            index = int(match["number"])
            if match["error"] is not None:
                answers[index] = "error"
            else:
                answers[index] = sorted(
                    (tuple(sorted(_PAIR.findall(labels))), float(value))
                    for labels, value in _ELEMENT.findall(match["got"] or "")
                )
        out.append(answers)
    return out


_ORDER_MATTERS = re.compile(r"\b(?:avg|stddev|stdvar|quantile)\b|\^")


def _equal(expression: str, left: Answer, right: Answer) -> bool:
    if isinstance(left, str) or isinstance(right, str):
        return left == right
    if [labels for labels, _ in left] != [labels for labels, _ in right]:
        return False
    loose = _ORDER_MATTERS.search(expression) is not None
    for (_, one), (_, other) in zip(left, right, strict=True):
        if one == other or (math.isnan(one) and math.isnan(other)):
            continue
        if not (loose and math.isclose(one, other, rel_tol=1e-12)):
            return False
    return True


def compare(groups: Sequence[Group], folder: Path) -> tuple[list[Difference], dict[str, int]]:
    """All differences, and how many answers were of which kind."""
    differences = []
    kinds = {"empty": 0, "error": 0, "elements": 0}
    for number, (group, answers) in enumerate(zip(groups, theirs(groups, folder), strict=True)):
        for (expression, time), mine, other in zip(group.questions, ours(group), answers, strict=True):
            kinds["error" if isinstance(other, str) else "elements" if other else "empty"] += 1
            if not _equal(expression, mine, other):
                differences.append(Difference(expression, time, mine, other, number))
    return differences, kinds


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    arguments.add_argument("--pairs", type=int, default=4000)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--keep", type=Path, help="folder for promtool's files, kept")
    options = arguments.parse_args()
    groups = generate(options.seed, options.pairs)
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        differences, kinds = compare(groups, folder)
    for difference in differences[:20]:
        print(f"group {difference.group}, at {difference.time:g} s: {difference.expression}")
        print(f"  ours:   {difference.ours}\n  theirs: {difference.theirs}")
    total = sum(kinds.values())
    print(
        f"seed {options.seed}: {total} pairs in {len(groups)} sets of series ({kinds['elements']} with elements, "
        f"{kinds['empty']} empty, {kinds['error']} errors on both sides or one), {len(differences)} differences"
    )
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
