"""`wedgewatch test`: rule unit tests run through the real path, and a failure explains itself."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from agent.authoring.testing import run_case, run_files, run_tests
from agent.rules.load import load_files

DIALECT = """
dialect: toy
detect: {lines: [{contains: "toy engine"}], metrics: ["toy:"]}
formats:
  - name: plain
    regex: '(?P<time>\\d{4}-\\d\\d-\\d\\d \\d\\d:\\d\\d:\\d\\d) (?P<severity>[A-Z]+) (?P<message>.*)'
    time: '%Y-%m-%d %H:%M:%S'
metrics:
  signals:
    requests_running: "toy:running"
    requests_waiting: "toy:waiting"
    requests_finished_total: "toy:finished"
    generation_tokens_total: "toy:tokens"
"""

RULES = """
rules:
  - alert: LoopDied
    failure: engine_dead
    engines: [toy]
    fingerprint:
      within: 5m
      stages:
        - {stage: pressure, severity: WARN, optional: true, any: [{regex: 'queue at (?P<queue>\\d+)'}]}
        - {stage: symptom, severity: ERROR, terminal: true, any: [{contains: "loop died"}]}
    annotations: {summary: "{{ server }} died with {{ fields.queue }} in the queue"}
  - alert: Stall
    failure: silent_stall
    engines: [toy]
    progress: stalled
"""

LOG = """
    log: |
      2026-11-20 09:00:00 INFO toy engine up
      2026-11-20 09:00:10 WARN queue at 41
      2026-11-20 09:00:12 ERROR loop died
      2026-11-20 09:00:20 INFO bye
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "toy.yaml").write_text(DIALECT, encoding="utf-8")
    return tmp_path


def results(folder: Path, tests: str) -> list[tuple[str, tuple[str, ...], str]]:
    path = folder / "rules.yaml"
    path.write_text(RULES + "tests:\n" + tests, encoding="utf-8")
    loaded = load_files([folder], bundled=False, tests=True)
    assert [str(fault) for fault in loaded.faults] == []
    return [(r.name, r.problems, r.timeline) for r in run_files(loaded.ruleset, loaded.own_files)]


def test_a_log_in_the_test_itself(folder: Path) -> None:
    tests = (
        f"  - name: dies{LOG}    expect: [{{alert: LoopDied, state: firing, fields: {{queue: '41'}}, within: 5s}}]\n"
    )
    assert results(folder, tests) == [("dies", (), "")]


def test_a_log_beside_the_rules(folder: Path) -> None:
    (folder / "samples").mkdir()
    (folder / "samples" / "a.log").write_text(
        "2026-11-20 09:00:00 INFO toy engine up\n2026-11-20 09:00:12 ERROR loop died\n", encoding="utf-8"
    )
    assert results(folder, "  - {name: dies, log: samples/a.log, expect: [{failure: engine_dead}]}\n") == [
        ("dies", (), "")
    ]


def test_series_alone_in_promtools_notation(folder: Path) -> None:
    # looks every 5 s:  0 .. 300 s tokens come, then 300 s none with work waiting
    tests = """
  - name: stalls
    engine: toy
    metrics:
      toy:running: 8x120
      toy:waiting: 3x120
      toy:finished: 0+1x60 60x60
      toy:tokens: 0+400x60 24000x60
    expect: [{alert: Stall, confidence: confirmed}]
  - name: serves
    engine: toy
    interval: 10s
    metrics:
      - {series: toy:running, values: 8x60}
      - {series: toy:finished, values: 0+1x60}
      - {series: toy:tokens, values: 0+400x60}
    expect: []
"""
    assert [(name, problems) for name, problems, _ in results(folder, tests)] == [("stalls", ()), ("serves", ())]


def test_a_failure_says_what_came_instead_and_what_the_stages_saw(folder: Path) -> None:
    tests = f"  - name: wrong{LOG}    expect: [{{alert: Stall}}]\n"
    ((_, problems, timeline),) = results(folder, tests)
    assert problems[0].splitlines()[0] == "expected  Stall firing"
    assert problems[0].splitlines()[1].startswith("got       LoopDied (engine_dead) firing")
    assert len(problems) == 1
    lines = timeline.splitlines()
    assert lines[0].startswith("2026-11-20T09:00:10Z  LoopDied/pressure")
    assert "server.log:2 [WARN] queue at 41" in lines[0]
    assert lines[1].startswith("2026-11-20T09:00:12Z  LoopDied/symptom")
    assert "-> firing" in lines[-1]


def test_lines_that_came_close_are_in_the_timeline(folder: Path) -> None:
    tests = """
  - name: severity
    log: |
      2026-11-20 09:00:00 INFO toy engine up
      2026-11-20 09:00:12 INFO the loop died, says a test of the log
      2026-11-20 09:00:20 INFO bye
    expect: [{alert: LoopDied}]
"""
    ((_, problems, timeline),) = results(folder, tests)
    assert "got       nothing fired" in problems[0]
    assert "(not enough: its severity is below ERROR)" in timeline


def test_input_that_cannot_be_read_fails_the_test_with_a_sentence(folder: Path) -> None:
    tests = """
  - {name: gone, log: none.log, expect: []}
  - {name: when, metrics: {toy:running: '1x3'}, start: soon, expect: []}
"""
    first, second = results(folder, tests)
    assert first[1][0].startswith("cannot be run: ")
    assert "none.log" in first[1][0]
    assert second[1][0].startswith("cannot be run: ")


def test_series_begin_with_the_log_unless_the_test_says_when(folder: Path) -> None:
    path = folder / "rules.yaml"
    path.write_text(RULES, encoding="utf-8")
    ruleset = load_files([folder], bundled=False).ruleset
    log = "2026-11-20 09:00:00 INFO toy engine up\n"
    series = {"toy:running": "8x120", "toy:tokens": "0+400x20 8000x100", "toy:waiting": "2x120"}
    beside = run_case(ruleset, log=log, metrics=series, engine="toy")
    stated = run_case(ruleset, log=log, metrics=series, engine="toy", start="2026-11-20T09:00:00Z")
    assert beside == stated
    assert beside[-1].alertname == "Stall"


def test_stamps_without_a_year_do_not_depend_on_the_day_of_the_test(folder: Path) -> None:
    (folder / "toy.yaml").write_text(
        DIALECT.replace("\\\\d{4}-", "").replace("\\d{4}-", "").replace("%Y-%m", "%m"), encoding="utf-8"
    )
    path = folder / "rules.yaml"
    path.write_text(RULES, encoding="utf-8")
    ruleset = load_files([folder], bundled=False).ruleset
    log = "12-20 09:00:00 INFO toy engine up\n12-20 09:00:12 ERROR loop died\n"
    assert {alert.starts_at for alert in run_case(ruleset, log=log, engine="toy")} == {1766221212.0}


class TestCommand:
    def run(self, path: Path, *, verbose: bool = False) -> tuple[int, str]:
        out = io.StringIO()
        return run_tests([str(path)], out, verbose=verbose, bundled=False), out.getvalue()

    def test_exit_codes_and_report(self, folder: Path) -> None:
        path = folder / "rules.yaml"
        good = f"  - name: dies{LOG}    expect: [{{alert: LoopDied}}]\n"
        path.write_text(RULES + "tests:\n" + good, encoding="utf-8")
        assert self.run(folder) == (0, "1 test passed\n")
        path.write_text(
            RULES + "tests:\n" + good + good.replace("dies", "not").replace("LoopDied", "Stall"), encoding="utf-8"
        )
        code, text = self.run(folder, verbose=True)
        assert code == 1
        assert text.splitlines()[0] == f"ok    {path}:17:5: dies"
        assert text.splitlines()[1] == f"FAIL  {path}:24:5: not"
        assert "what was seen:" in text
        assert text.endswith("2 tests, 1 failed\n")

    def test_files_with_faults_are_not_run(self, folder: Path) -> None:
        (folder / "rules.yaml").write_text("rules: [{alert: X, failure: nonsense}]\n", encoding="utf-8")
        code, text = self.run(folder)
        assert code == 2
        assert "unknown failure 'nonsense'" in text

    def test_no_test_at_all_is_no_success(self, folder: Path) -> None:
        assert self.run(folder)[0] == 2


@pytest.mark.parametrize(("total", "fires"), [("8,200", True), ("100", False)])
def test_fields_that_are_numbers_stand_in_conditions(folder: Path, total: str, fires: bool) -> None:
    rule = """
rules:
  - alert: Over
    failure: engine_dead
    engines: [toy]
    fingerprint:
      stages: [{stage: symptom, severity: ERROR, any: [{regex: 'total (?P<total>[\\d,]+) of (?P<limit>\\d+)'}]}]
    when: total > limit
"""
    (folder / "rules.yaml").write_text(rule, encoding="utf-8")
    loaded = load_files([folder], bundled=False)
    assert loaded.faults == []
    log = f"2026-11-20 09:00:00 INFO toy engine up\n2026-11-20 09:00:12 ERROR total {total} of 8192\n"
    assert any(alert.state == "firing" for alert in run_case(loaded.ruleset, log=log, engine="toy")) is fires
