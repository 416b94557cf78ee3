"""Rules of other tools come in with every loss named; our conditions go out as rules that Prometheus accepts."""

from __future__ import annotations

import io
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from agent.authoring.convert import convert, convert_text
from agent.authoring.lint import inspect
from agent.rules.load import load_files

ROOT = Path(__file__).parents[2]
needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")

SEQUENCE = """
rules:
  - metadata: {id: abc, kind: prequel, generation: 1}
    cre:
      id: CRE-2099-0001
      severity: 1
      title: "Broker loses its quorum"
      description: "Text with {{ braces }} in it."
      impact: Writes fail.
      mitigation: Restart it.
      references: ["https://example.com/a", "see the wiki"]
    rule:
      sequence:
        window: "180s"
        correlations: [hostname, pod]
        event: {source: cre.log.broker}
        order:
          - lost_peer
          - {regex: "stepping down (\\\\d+)", count: 3}
          - plain words
        negate:
          - {value: "Task completed", window: 30s, slide: -5s}
terms:
  lost_peer: {field: message, regex: "RPC timeout"}
"""


def rule(body: str, **cre: object) -> str:
    return yaml.safe_dump({"rules": [{"cre": {"id": "CRE-1", "title": "t", **cre}, "rule": yaml.safe_load(body)}]})


def converted(tmp_path: Path, text: str) -> tuple[list[dict[str, object]], list[str]]:
    """The rules that came out, which our own check accepts, and what was said."""
    source = tmp_path / "cre.yaml"
    source.write_text(text, encoding="utf-8")
    output, faults, count = convert_text(str(source))
    target = tmp_path / "ours.yaml"
    target.write_text(output, encoding="utf-8")
    assert [str(fault) for fault in inspect(rules=[target]).faults] == []
    rules = yaml.safe_load(output)["rules"]
    assert len(rules) == count
    return rules, [fault.message for fault in faults]


class TestFromCre:
    def test_a_sequence_becomes_a_fingerprint(self, tmp_path: Path) -> None:
        (made,), notes = converted(tmp_path, SEQUENCE)
        assert made["alert"] == "BrokerLosesItsQuorum"
        assert made["labels"] == {"severity": "error", "cre": "CRE-2099-0001"}
        assert made["fingerprint"] == {
            "within": "3m",
            "by": ["server", "pod"],
            "stages": [
                {"stage": "lost_peer", "any": [{"regex": "RPC timeout"}]},
                {"stage": "step2", "any": [{"regex": "stepping down (\\d+)"}], "count": "3 within 3m"},
                {"stage": "step3", "any": [{"contains": "plain words"}]},
            ],
            "absent_after": "30s",
            "absent": [{"contains": "Task completed"}],
        }
        assert made["sources"] == ["https://example.com/a"]
        said = "\n".join(notes)
        for loss in ("'failure' is early_warning", "correlation 'pod'", "'slide'", "source 'cre.log.broker'", "30s"):
            assert loss in said

    def test_their_text_is_no_template_of_ours(self, tmp_path: Path) -> None:
        from agent.rules.templates import render

        (made,), _ = converted(tmp_path, SEQUENCE)
        annotations = made["annotations"]
        assert isinstance(annotations, dict)
        assert render(annotations["description"], {}) == "Text with {{ braces }} in it.\nWrites fail."
        assert render(annotations["summary"], {"server": "s"}) == "s: Broker loses its quorum"

    def test_a_set_becomes_a_rule_for_each_order(self, tmp_path: Path) -> None:
        made, notes = converted(tmp_path, rule("{set: {window: 1m, match: [a1, {regex: 'b[0-9]'}]}}"))
        orders = [[stage["any"][0] for stage in item["fingerprint"]["stages"]] for item in made]  # type: ignore[index]
        assert orders == [[{"contains": "a1"}, {"regex": "b[0-9]"}], [{"regex": "b[0-9]"}, {"contains": "a1"}]]
        assert any("became 2 rules" in note for note in notes)

    def test_a_single_line_needs_no_window(self, tmp_path: Path) -> None:
        (made,), _ = converted(tmp_path, rule("{set: {match: [{value: boom}]}}", severity=0))
        assert made["fingerprint"] == {"stages": [{"stage": "step1", "any": [{"contains": "boom"}]}]}
        assert made["labels"] == {"severity": "critical", "cre": "CRE-1"}

    @pytest.mark.parametrize(
        ("body", "reason"),
        [
            ("{set: {match: [{jq: '.a == 1'}]}}", "'jq' inside a term has no counterpart"),
            ("{set: {match: [{promql: {expr: up}}]}}", "'promql'"),
            ("{sequence: {window: 1m, order: [{set: {match: [a]}}, b]}}", "'set' inside a term"),
            ("{set: {match: [{regex: '(a'}]}}", "is none here: this '(' is never closed"),
            ("{set: {match: [a, b, c, d]}}", "a set of 4 lines in any order"),
            ("{sequence: {window: soon, order: [a, b]}}", "window 'soon' is no duration"),
            ("{sequence: {window: 1m, order: []}}", "it looks for no line"),
            ("{set: {match: [{count: 2}]}}", "neither 'value' nor 'regex'"),
            ("{other: 1}", "neither 'sequence' nor 'set'"),
            ("[]", "it has no 'rule'"),
        ],
    )
    def test_what_has_no_counterpart_is_said(self, body: str, reason: str, tmp_path: Path) -> None:
        rules, notes = converted(tmp_path, rule(body))
        assert rules == []
        assert [f"CRE-1: not carried over: {reason}" in note or reason in note for note in notes] == [True]

    @pytest.mark.parametrize("window", ["1m30s", "90s", "1.5m", "0.025h", "90000ms"])
    def test_durations_in_gos_notation(self, window: str, tmp_path: Path) -> None:
        (made,), _ = converted(tmp_path, rule(f"{{sequence: {{window: {window}, order: [a, b]}}}}"))
        assert made["fingerprint"]["within"] == "1m30s"  # type: ignore[index]

    def test_notes_stand_in_the_file_too(self, tmp_path: Path) -> None:
        source = tmp_path / "cre.yaml"
        source.write_text(SEQUENCE, encoding="utf-8")
        text, _, _ = convert_text(str(source))
        assert text.startswith("# Converted from cre.yaml: 1 CRE rules read, 1 rules written.\n# - CRE-2099-0001: ")


class TestToPrometheus:
    def content(self, tmp_path: Path, text: str) -> tuple[dict[str, dict[str, object]], list[str]]:
        source = tmp_path / "ours.yaml"
        source.write_text(text, encoding="utf-8")
        output, notes, _ = convert_text(str(source))
        groups = yaml.safe_load(output)["groups"]
        alerts = {r["alert"]: r for group in groups for r in group["rules"] if "alert" in r}
        return alerts, [note.message for note in notes]

    def test_a_condition_moves_over_unchanged(self, tmp_path: Path) -> None:
        text = """
rules:
  - alert: QueueGrows
    failure: early_warning
    when: deriv(requests_waiting[5m]) > 0 and kv_cache_usage_ratio > 0.95
    for: 5m
    labels: {team: a}
    annotations: {summary: "{{ server }}: {{ signal.requests_waiting | humanize }} wait ({{ labels.team }})"}
"""
        alerts, notes = self.content(tmp_path, text)
        assert notes == []
        assert alerts["QueueGrows"] == {
            "alert": "QueueGrows",
            "expr": "deriv(requests_waiting[5m]) > 0 and kv_cache_usage_ratio > 0.95",
            "for": "5m",
            "keep_firing_for": "1m",
            "labels": {"severity": "warning", "failure": "early_warning", "team": "a"},
            "annotations": {"summary": "{{ $labels.instance }}: (signal.requests_waiting) wait ({{ $labels.team }})"},
        }

    def test_rules_of_one_engine_speak_of_that_engine_only(self, tmp_path: Path) -> None:
        text = "rules: [{alert: A, failure: overload, progress: saturated, for: 5m, engines: [vllm]}]"
        alerts, _ = self.content(tmp_path, text)
        assert 'label_replace(vector(1), "wedgewatch_engine", "vllm", "", "")' in str(alerts["A"]["expr"])

    def test_stalls_that_only_lines_tell_apart_become_one(self, tmp_path: Path) -> None:
        text = """
rules:
  - alert: One
    failure: device_hang
    progress: stalled
    fingerprint: {stages: [{stage: a, any: [{contains: x}]}]}
  - alert: Two
    failure: collective_hang
    progress: stalled
    fingerprint: {stages: [{stage: a, any: [{contains: z}]}]}
  - alert: Dead
    failure: engine_dead
    fingerprint: {stages: [{stage: a, any: [{contains: w}]}]}
"""
        alerts, notes = self.content(tmp_path, text)
        assert list(alerts) == ["SilentStall"]
        assert alerts["SilentStall"]["annotations"]["description"] == "The log tells which it is: One, Two."  # type: ignore[index]
        assert len(notes) == 3

    def test_a_signal_that_no_page_has_cannot_move(self, tmp_path: Path) -> None:
        _, notes = self.content(
            tmp_path, "rules: [{alert: A, failure: lost_replies, progress: stalled, when: canary_success == 0}]"
        )
        assert notes == ["A: not carried over: canary_success is on no metrics page of its engines"]

    @pytest.mark.peer
    @needs_promtool
    @pytest.mark.parametrize("pack", sorted(path.name for path in (ROOT / "rules" / "packs").glob("*.yaml")))
    def test_promtool_accepts_what_becomes_of_every_pack(self, pack: str, tmp_path: Path) -> None:
        target = tmp_path / "prom.yaml"
        code = convert(str(ROOT / "rules" / "packs" / pack), output=str(target), notes=io.StringIO())
        if code == 1:
            return  # only lines prove its rules
        assert code == 0
        done = subprocess.run(["promtool", "check", "rules", str(target)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    @pytest.mark.peer
    @needs_promtool
    def test_prometheus_fires_on_a_stall_and_only_then(self, tmp_path: Path) -> None:
        # minutes:  0 .. 10 serving, 10 .. 20 stalled with work, on instance a; b serves all the time, c is idle
        target = tmp_path / "prom.yaml"
        convert(str(ROOT / "rules" / "packs" / "common.yaml"), output=str(target), notes=io.StringIO())
        series = []
        for instance, running, tokens in (
            ("a", "8x40", "0+900x20 18000x20"),
            ("b", "8x40", "0+900x40"),
            ("c", "0x40", "7x40"),
        ):
            labels = f'{{job="vllm", instance="{instance}", engine="0"}}'
            series += [
                {"series": f"vllm:num_requests_running{labels}", "values": running},
                {"series": f"vllm:num_requests_waiting{labels}", "values": running},
                {"series": f"vllm:generation_tokens_total{labels}", "values": tokens},
                {"series": f"vllm:prompt_tokens_total{labels}", "values": tokens},
            ]
        expression = 'count by (instance) (ALERTS{alertname="SilentStall", alertstate="firing"})'
        test = {
            "rule_files": ["prom.yaml"],
            "evaluation_interval": "30s",
            "tests": [
                {
                    "interval": "30s",
                    "input_series": series,
                    "promql_expr_test": [
                        {"expr": expression, "eval_time": "9m", "exp_samples": []},
                        {
                            "expr": expression,
                            "eval_time": "19m",
                            "exp_samples": [{"labels": '{instance="a"}', "value": 1}],
                        },
                    ],
                }
            ],
        }
        (tmp_path / "test.yaml").write_text(yaml.safe_dump(test), encoding="utf-8")
        done = subprocess.run(
            ["promtool", "test", "rules", "test.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


class TestCommand:
    def test_what_the_file_is_decides(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        source = tmp_path / "cre.yaml"
        source.write_text(SEQUENCE, encoding="utf-8")
        assert convert(str(source)) == 0
        shown = capsys.readouterr()
        assert "alert: BrokerLosesItsQuorum" in shown.out
        assert "warning: CRE-2099-0001:" in shown.err

    def test_exit_codes(self, tmp_path: Path) -> None:
        notes = io.StringIO()
        lines_only = tmp_path / "a.yaml"
        lines_only.write_text(
            "rules: [{alert: A, failure: crash, fingerprint: {stages: [{stage: s, any: [{contains: x}]}]}}]",
            encoding="utf-8",
        )
        assert convert(str(lines_only), notes=notes) == 1
        assert convert(str(lines_only), to="wedgewatch", notes=notes) == 2
        assert convert(str(tmp_path / "none.yaml"), notes=notes) == 2
        cre = tmp_path / "cre.yaml"
        cre.write_text(SEQUENCE, encoding="utf-8")
        assert convert(str(cre), to="prometheus", notes=notes) == 2
        assert convert(str(cre), output=str(tmp_path / "no" / "folder.yaml"), notes=notes) == 2

    def test_faults_of_ones_own_rules_stop_it(self, tmp_path: Path) -> None:
        bad = tmp_path / "bad.yaml"
        bad.write_text("rules: [{alert: A, failure: nonsense}]", encoding="utf-8")
        notes = io.StringIO()
        assert convert(str(bad), notes=notes) == 2
        assert "unknown failure 'nonsense'" in notes.getvalue()
        assert load_files([bad]).faults
