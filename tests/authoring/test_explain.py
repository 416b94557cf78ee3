"""`wedgewatch scan --explain`: which stages matched, which came close, why no alert came."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from agent.authoring.explain import Trace
from agent.replay import scan
from agent.rules.load import load_files
from agent.rules.model import RuleSet

HEAD = """
dialect: toy
detect: {lines: [{contains: "toy engine"}]}
formats:
  - name: plain
    regex: '(?P<time>\\d{4}-\\d\\d-\\d\\d [\\d:]{8}) (?P<severity>[A-Z]+) (?:r(?P<rank>\\d) )?(?P<message>.*)'
    time: '%Y-%m-%d %H:%M:%S'
"""
RULES = """
rules:
  - alert: Died
    failure: engine_dead
    engines: [toy]
    fingerprint:
      within: 1m
      stages:
        - {stage: pressure, severity: WARN, any: [{contains: "queue is long"}]}
        - stage: symptom
          severity: ERROR
          count: "2 within 10s"
          any: [{contains: "loop died"}]
          attributes: {rank: "0"}
      absent: [{contains: "shutting down"}]
  - alert: Stalled
    failure: token_budget_deadlock
    engines: [toy]
    fingerprint: {stages: [{stage: symptom, severity: ERROR, any: [{contains: "budget assertion"}]}]}
    progress: stalled
  - alert: Elsewhere
    failure: engine_dead
    engines: [vllm]
    fingerprint: {stages: [{stage: symptom, any: [{contains: "loop died"}]}]}
"""
START = "2026-11-20 09:00:00 INFO toy engine up\n"


@pytest.fixture
def ruleset(tmp_path: Path) -> RuleSet:
    (tmp_path / "d.yaml").write_text(HEAD, encoding="utf-8")
    (tmp_path / "r.yaml").write_text(RULES, encoding="utf-8")
    return load_files([tmp_path / "d.yaml", tmp_path / "r.yaml"], bundled=False).ruleset


def explain(ruleset: RuleSet, tmp_path: Path, lines: str, *, packed: bool = False) -> list[str]:
    path = tmp_path / ("server.log.gz" if packed else "server.log")
    data = (START + lines + "2026-11-20 09:10:00 INFO later\n").encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    result = scan(ruleset, [str(path)])
    trace = Trace(ruleset, engine=result.engine)
    trace.read(str(path))
    return trace.render(result).splitlines()


LONG = "2026-11-20 09:00:10 WARN queue is long\n"
LATE = "2026-11-20 09:00:20 WARN queue is long\n"
DIED = "2026-11-20 09:00:12 ERROR r0 loop died\n2026-11-20 09:00:13 ERROR r0 loop died\n"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        # pressure, symptom x2: everything is there
        (LONG + DIED, "-> firing"),
        # no pressure
        (DIED, "-> no alert: pressure never came"),
        # one symptom only
        (LONG + DIED.splitlines()[0] + "\n", "-> no alert: symptom wants 2 lines within 10s"),
        # the symptom first, pressure after it
        (DIED + LATE, "-> no alert: the stages never came in this order within 1m"),
        # too far apart:  pressure 09:00:00 ...... 09:05:00 symptom
        (LONG + DIED.replace("09:00", "09:05"), "never came in this order within 1m"),
        # a sibling's line
        (LONG + "2026-11-20 09:00:11 INFO shutting down\n" + DIED, "-> no alert: ruled out by"),
        # nearly: wrong severity, wrong rank
        (DIED.replace("ERROR", "INFO") + LATE, "came close, its severity is below ERROR"),
        (DIED.replace("r0", "r7") + LATE, "came close, its rank is 7, not 0"),
        # lines without a stall
        ("2026-11-20 09:00:12 ERROR budget assertion\n", "progress: stalled"),
    ],
)
def test_the_reason_is_given(ruleset: RuleSet, lines: str, words: str, tmp_path: Path) -> None:
    shown = explain(ruleset, tmp_path, lines)
    assert any(words in line for line in shown), "\n".join(shown)


def test_stages_show_their_first_line_and_how_often_they_came(ruleset: RuleSet, tmp_path: Path) -> None:
    shown = explain(ruleset, tmp_path, LONG + DIED)
    assert shown[0] == "Died (engine_dead)"
    assert shown[1].startswith("  [x] pressure: once, first 2026-11-20T09:00:10Z ")
    assert shown[1].endswith("server.log:2 [WARN] queue is long")
    assert shown[2].startswith("  [x] symptom: 2 times, first 2026-11-20T09:00:12Z ")


def test_rules_of_other_engines_and_silent_ones_are_only_counted(ruleset: RuleSet, tmp_path: Path) -> None:
    shown = explain(ruleset, tmp_path, DIED)
    assert not any("Elsewhere" in line for line in shown)
    assert shown[-1] == "1 more rules for toy saw nothing of theirs in 4 lines."


def test_packed_logs_are_read_too(ruleset: RuleSet, tmp_path: Path) -> None:
    assert explain(ruleset, tmp_path, DIED, packed=True)[0] == "Died (engine_dead)"


def test_of_a_traceback_its_last_line_is_shown(ruleset: RuleSet, tmp_path: Path) -> None:
    lines = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nAssertionError: budget assertion\n'
    shown = explain(ruleset, tmp_path, lines)
    assert any(line.endswith("[ERROR] AssertionError: budget assertion") for line in shown), shown
