"""Rule and dialect files become one rule set: found, checked as a whole, put together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent.model import FAILURE_FAMILY
from agent.rules.checks import severities_of
from agent.rules.compile import derived_priority, named_groups
from agent.rules.dialect_spec import ENGINES
from agent.rules.digest import canonical
from agent.rules.load import expand_paths, load_files, load_rules
from agent.rules.model import Condition, Dialect, Fingerprint, LineFormat, Matcher, Rule, Stage
from agent.rules.regexes import inspect_regex, texts_of_group

RULE = """
rules:
  - alert: Budget
    failure: token_budget_deadlock
    engines: [tensorrt_llm]
    fingerprint:
      within: 15m
      by: [server, rank]
      stages:
        - {stage: start, severity: INFO, optional: true, any: [{contains: "max_num_tokens="}]}
        - stage: symptom
          severity: {exactly: ERROR}
          count: "2 within 3m"
          terminal: true
          any:
            - contains: "total_num_tokens <= self.max_num_tokens"
            - {regex: 'total_num_tokens \\((?P<total>\\d+)\\)', ignore_case: true}
          not: [{contains: warmup}]
          none: [{contains: profiling}]
          attributes: {rank: ["0", "1"], process: worker}
      absent: [{contains: "out of memory"}, {severity: FATAL, all: [{contains: a}, {contains: b}]}]
      absent_after: 10s
    progress: stalled
    when: 'requests_waiting > 0'
    for: 10s
    keep_firing_for: 2m
    cooldown: 5m
    inhibits: [SilentStall]
    labels: {team: inference}
    annotations: {summary: "{{ server }}: {{ fields.total }}"}
    sources: [https://example.com/1]
"""


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_rule_arrives_whole(tmp_path: Path) -> None:
    path = write(tmp_path / "r.yaml", RULE)
    ruleset, faults = load_rules([path], bundled=True)
    assert faults == []
    rule = next(rule for rule in ruleset.rules if rule.alert == "Budget")
    assert (rule.failure, rule.severity, rule.engines) == ("token_budget_deadlock", "critical", ("tensorrt_llm",))
    assert (rule.progress, rule.when, rule.for_seconds) == ("stalled", "requests_waiting > 0", 10.0)
    assert (rule.keep_firing_for, rule.cooldown, rule.inhibits) == (120.0, 300.0, ("SilentStall",))
    assert (rule.position.file, rule.position.line, rule.position.column) == (str(path), 3, 5)
    assert rule.fingerprint is not None
    assert (rule.fingerprint.within, rule.fingerprint.by) == (900.0, ("server", "rank"))
    assert rule.fingerprint.absent_after == 10.0
    start, symptom = rule.fingerprint.stages
    assert (start.name, start.optional, start.condition.severity_min, start.condition.severity_max) == (
        "start",
        True,
        9,
        0,
    )
    assert (symptom.count, symptom.count_within, symptom.terminal) == (2, 180.0, True)
    assert symptom.condition == Condition(
        any=(
            Matcher("contains", "total_num_tokens <= self.max_num_tokens"),
            Matcher("regex", r"total_num_tokens \((?P<total>\d+)\)", True),
        ),
        none=(Matcher("contains", "warmup"), Matcher("contains", "profiling")),
        severity_min=17,
        severity_max=20,
        attributes={"rank": ("0", "1"), "process": ("worker",)},
    )
    assert rule.fingerprint.absent == (
        Condition(any=(Matcher("contains", "out of memory"),)),
        Condition(all=(Matcher("contains", "a"), Matcher("contains", "b")), severity_min=21),
    )
    assert named_groups(rule) == {"total"}


class TestSeverityOfAnAlert:
    @pytest.mark.parametrize(
        ("failure", "extra", "severity"),
        [
            ("silent_stall", "progress: stalled", "critical"),
            ("overload", "progress: saturated", "warning"),
            ("overload", "progress: saturated\n    labels: {severity: info}", "info"),
        ],
    )
    def test_comes_from_its_label_or_its_family(self, failure: str, extra: str, severity: str, tmp_path: Path) -> None:
        path = write(tmp_path / "r.yaml", f"rules:\n  - alert: A\n    failure: {failure}\n    {extra}\n")
        ruleset, faults = load_rules([path], bundled=False)
        assert faults == []
        assert ruleset.rules[0].severity == severity


class TestPriority:
    stage = Stage("symptom", Condition(any=(Matcher("contains", "x"),)))
    bare = Rule(alert="A", failure="silent_stall", severity="critical", progress="stalled")

    def test_lines_beat_a_condition_and_a_condition_beats_bare_progress(self) -> None:
        lines = replace(self.bare, fingerprint=Fingerprint(stages=(self.stage,)))
        condition = replace(self.bare, when="requests_waiting > 0")
        assert derived_priority(lines) > derived_priority(condition) > derived_priority(self.bare)

    def test_more_lines_beat_fewer_and_lines_with_a_condition_beat_lines(self) -> None:
        one = replace(self.bare, fingerprint=Fingerprint(stages=(self.stage,)))
        two = replace(self.bare, fingerprint=Fingerprint(stages=(self.stage, replace(self.stage, name="b"))))
        assert derived_priority(two) > derived_priority(one)
        assert derived_priority(replace(one, when="up")) > derived_priority(one)

    def test_a_file_may_state_one(self, tmp_path: Path) -> None:
        path = write(tmp_path / "r.yaml", "rules: [{alert: A, failure: overload, progress: saturated, priority: 7}]")
        assert load_rules([path], bundled=False)[0].rules[0].priority == 7


class TestDigest:
    def digest(self, tmp_path: Path, text: str) -> str:
        return load_rules([write(tmp_path / "r.yaml", text)], bundled=False)[0].digest

    def test_it_changes_exactly_when_the_meaning_does(self, tmp_path: Path) -> None:
        first = self.digest(tmp_path, RULE)
        assert self.digest(tmp_path, "# a comment moves every line\n" + RULE) == first
        assert self.digest(tmp_path, RULE.replace("https://example.com/1", "https://example.com/2")) == first
        assert (
            self.digest(
                tmp_path, RULE.replace('{rank: ["0", "1"], process: worker}', '{process: worker, rank: ["0", "1"]}')
            )
            == first
        )
        assert self.digest(tmp_path, RULE.replace("within: 15m", "within: 16m")) != first
        assert self.digest(tmp_path, RULE.replace("warmup", "warm-up")) != first

    def test_every_field_with_a_meaning_is_in_it(self) -> None:
        rule = Rule(alert="A", failure="overload", severity="warning")
        changed = [
            replace(rule, alert="B"), replace(rule, failure="slow_start"), replace(rule, severity="info"),
            replace(rule, engines=("vllm",)), replace(rule, progress="idle"), replace(rule, when="up"),
            replace(rule, for_seconds=1.0), replace(rule, keep_firing_for=1.0), replace(rule, cooldown=1.0),
            replace(rule, priority=1), replace(rule, inhibits=("X",)), replace(rule, labels={"a": "b"}),
            replace(rule, annotations={"a": "b"}), replace(rule, fingerprint=Fingerprint(stages=())),
        ]  # fmt: skip
        assert len({canonical(item) for item in [rule, *changed]}) == len(changed) + 1


class TestFiles:
    def test_folders_globs_and_files_each_once_in_order(self, tmp_path: Path) -> None:
        (tmp_path / "d" / "sub").mkdir(parents=True)
        names = ["d/b.yaml", "d/a.yml", "d/sub/c.yaml", "d/readme.md", "e.yaml"]
        for name in names:
            write(tmp_path / name, "rules: []")
        found, faults = expand_paths([tmp_path / "d", str(tmp_path / "*.yaml"), tmp_path / "e.yaml"])
        assert faults == []
        assert [str(Path(name).relative_to(tmp_path)) for name in found] == [
            "d/a.yml",
            "d/b.yaml",
            "d/sub/c.yaml",
            "e.yaml",
        ]

    def test_a_path_that_names_nothing_is_a_fault_and_an_empty_glob_is_none(self, tmp_path: Path) -> None:
        found, faults = expand_paths([tmp_path / "none.yaml", str(tmp_path / "none-*.yaml")])
        assert found == []
        assert [str(fault) for fault in faults] == [f"{tmp_path}/none.yaml:1:1: there is no such file"]

    def test_a_rule_with_a_fault_does_not_hide_the_others(self, tmp_path: Path) -> None:
        path = write(tmp_path / "r.yaml", RULE + "  - {alert: Other, failure: nonsense, progress: stalled}\n")
        ruleset, faults = load_rules([path], bundled=True)
        assert any(rule.alert == "Budget" for rule in ruleset.rules)
        assert len(faults) == 1

    def test_rules_can_be_turned_off_by_name(self) -> None:
        everything, _ = load_rules()
        without, faults = load_rules(disabled=["SilentStall"])
        assert faults == []
        assert {rule.alert for rule in everything.rules} - {rule.alert for rule in without.rules} == {"SilentStall"}
        assert without.digest != everything.digest

    def test_a_users_dialect_replaces_the_bundled_one(self, tmp_path: Path) -> None:
        path = write(tmp_path / "d.yaml", "dialect: vllm\nformats: [{name: mine, regex: '(?P<message>x.*)'}]\n")
        ruleset, _ = load_rules([path])
        assert [line.name for line in ruleset.dialects["vllm"].formats] == ["mine"]

    def test_two_of_the_users_own_for_one_engine_are_a_fault(self, tmp_path: Path) -> None:
        for name in ("a.yaml", "b.yaml"):
            write(tmp_path / name, "dialect: mine\n")
        _, faults = load_rules([tmp_path], bundled=False)
        assert "dialect 'mine' is defined twice" in faults[0].message

    def test_a_new_engine_is_a_file_and_no_code(self, tmp_path: Path) -> None:
        write(tmp_path / "d.yaml", "dialect: my_engine\nmetrics: {signals: {requests_waiting: my_waiting}}\n")
        rule = "{alert: A, failure: overload, progress: saturated, engines: [my_engine], when: requests_waiting > 3}"
        write(tmp_path / "r.yaml", f"rules: [{rule}]")
        ruleset, faults = load_rules([tmp_path])
        assert faults == []
        assert "my_engine" in ruleset.dialects

    def test_a_copy_of_a_bundled_pack_stands_in_for_it(self, tmp_path: Path) -> None:
        source = Path(__file__).parents[2] / "rules" / "packs" / "common.yaml"
        write(tmp_path / "common.yaml", source.read_text(encoding="utf-8"))
        plain, _ = load_rules()
        copied, faults = load_rules([tmp_path])
        assert faults == []
        assert len(copied.rules) == len(plain.rules)

    def test_the_same_rule_twice_in_ones_own_files_is_a_fault(self, tmp_path: Path) -> None:
        write(tmp_path / "a.yaml", RULE)
        write(tmp_path / "b.yaml", RULE)
        _, faults = load_rules([tmp_path])
        assert [f"first at {tmp_path}/a.yaml:3:5" in fault.message for fault in faults] == [True]

    def test_an_expression_is_judged_by_the_function_that_is_given(self, tmp_path: Path) -> None:
        path = write(tmp_path / "r.yaml", RULE)
        _, faults = load_rules([path], check_expr=lambda text: [(3, f"cannot evaluate {text}"), "is odd"])
        assert [(f.position.line, f.position.column, f.message) for f in faults] == [
            (24, 12, "when: is odd"),
            (24, 15, "when: cannot evaluate requests_waiting > 0"),
        ]


class TestBundled:
    def test_everything_loads_without_a_fault(self) -> None:
        loaded = load_files(tests=True, verify_bundled=True)
        assert [str(fault) for fault in loaded.faults] == []

    def test_every_engine_of_the_contract_that_has_a_dialect_is_known(self) -> None:
        ruleset, _ = load_rules()
        assert set(ruleset.dialects) <= set(ENGINES)
        assert {"tensorrt_llm", "vllm", "sglang"} <= set(ruleset.dialects)

    def test_every_failure_of_a_rule_has_a_family(self) -> None:
        ruleset, _ = load_rules()
        assert {rule.failure for rule in ruleset.rules} <= set(FAILURE_FAMILY)


class TestRegexes:
    @pytest.mark.parametrize(
        ("pattern", "texts"),
        [
            (r"(?P<severity>INFO|WARN(?:ING)?) x", {"INFO", "WARN", "WARNING"}),
            (r"\[(?P<severity>[IWE])\]", {"I", "W", "E"}),
            (r"(?:x(?P<severity>a|b))?", {"a", "b"}),
            (r"(?P<severity>\w+)", None),
            (r"(?P<other>a)", None),
            (r"(", None),
        ],
    )
    def test_the_texts_that_a_group_can_take(self, pattern: str, texts: set[str] | None) -> None:
        assert texts_of_group(pattern, "severity") == texts

    def test_what_severities_an_engine_can_have(self) -> None:
        dialect = Dialect(
            "x",
            formats=(
                LineFormat("a", regex=r"\[(?P<severity>[IW])\] (?P<message>.*)", severity={"I": "INFO", "W": "WARN"}),
                LineFormat("b", regex=r"(?P<message>.*)"),
            ),
        )
        assert severities_of(dialect) == {0, 9, 13, 17}

    @pytest.mark.parametrize(
        ("pattern", "offset", "words"),
        [
            ("a(b", 1, "never closed"),
            ("ab)", 2, "closes nothing"),
            ("*a", 0, "nothing to repeat"),
            ("a[b", 1, "never closed"),
            ("[[a]b]", 1, "backslash before the bracket"),
            ("(?<n>a)", 1, "(?P<name>...)"),
            ("(" * 5000, 0, ""),
            ("a{99999999999}", 0, ""),
        ],
    )
    def test_a_bad_one_says_where_and_what(self, pattern: str, offset: int, words: str) -> None:
        info = inspect_regex(pattern)
        assert info.error
        assert words in info.error
        assert info.offset == offset or not words
