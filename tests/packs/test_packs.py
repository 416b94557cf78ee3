"""The packs as data: their own tests pass, their texts help, and users' words never set them off."""

from __future__ import annotations

import io
import re
import time
from pathlib import Path

import pytest

from agent.authoring.testing import run_files
from agent.logs.engine import LogEngine
from agent.model import CRITICAL_FAMILIES, FAILURE_FAMILY
from agent.rules.model import Condition, Matcher, Rule
from tests.packs.corpus import ROOT, RULES, YEAR, Text, fingerprints, loaded, read, rule_tests, samples

RUNBOOKS = ROOT / "docs" / "runbooks"
PACKS = sorted(path.name for path in (RULES / "packs").glob("*.yaml"))


def test_the_bundled_files_have_no_fault() -> None:
    assert [str(fault) for fault in loaded().faults] == []


@pytest.mark.parametrize("pack", PACKS)
def test_the_tests_of_a_pack_pass(pack: str) -> None:
    files = [bound for bound in loaded().rule_files if bound.document.file.endswith(f"/{pack}")]
    for bound in files:
        bound.document.file = str(RULES / "packs" / pack)  # the inputs stand beside the file on disk
    results = list(run_files(loaded().ruleset, files))
    assert results, "a pack without tests"
    out = io.StringIO()
    for result in results:
        if not result.passed:
            print(result.place, result.name, *result.problems, result.timeline, sep="\n", file=out)
    assert out.getvalue() == ""


@pytest.mark.parametrize(
    "rule", loaded().ruleset.rules, ids=lambda rule: f"{Path(rule.position.file).stem}-{rule.alert}"
)
def test_a_rule_says_what_is_broken_and_what_to_do(rule: Rule) -> None:
    notes = rule.annotations
    assert {"summary", "description", "runbook_url", "action_1"} <= set(notes)
    head = re.sub(r"\{\{[^}]*\}\}", "", notes["summary"])
    assert notes["summary"].startswith("{{ server }}: ")
    assert len(head) <= 80
    assert notes["runbook_url"].endswith(f"/docs/runbooks/{rule.failure}.md")
    assert (RUNBOOKS / f"{rule.failure}.md").is_file()
    assert rule.sources
    assert all(source.startswith("https://") for source in rule.sources)
    family = FAILURE_FAMILY[rule.failure]
    assert rule.severity == ("critical" if family in CRITICAL_FAMILIES else "warning")
    if family == "stalled":
        assert rule.progress == "stalled", "only signals, or a line that ends all work, call a stall"


def test_nobody_is_told_that_a_smaller_token_budget_cures_the_assertion() -> None:
    for rule in loaded().ruleset.rules:
        for name, text in rule.annotations.items():
            if name.startswith("action_") and "tensorrt_llm" in rule.engines:
                assert not re.search(r"\b(?:lower|reduce|decrease|smaller) max_num_tokens", text, re.IGNORECASE), text


def test_every_failure_has_a_runbook_and_every_runbook_a_failure() -> None:
    assert {path.stem for path in RUNBOOKS.glob("*.md")} == set(FAILURE_FAMILY)
    for path in RUNBOOKS.glob("*.md"):
        text = path.read_text(encoding="utf-8")
        for section in ("## What it is", "## How we know", "## Now", "## Prevent", "## Sources"):
            assert section in text, f"{path.name} has no {section!r}"
        for target in re.findall(r"\]\(([\w./-]+\.md)\)", text):
            assert (path.parent / target).is_file(), f"{path.name} points to {target}"


def _stages() -> tuple[list[Condition], list[str]]:
    conditions, names = [], []
    for _, rule in fingerprints():
        assert rule.fingerprint is not None
        for stage in rule.fingerprint.stages:
            conditions.append(stage.condition)
            names.append(f"{rule.alert}/{stage.name}")
    return conditions, names


# How engines print what users sent them; the quoted text is JSON- or repr-escaped, so it stays on one line.
QUOTES = {
    "vllm": "(APIServer pid=851) INFO 11-20 09:01:10 [logger.py:40] Received request cmpl-0: prompt: '{}', params: x",
    "vllm ": "(APIServer pid=851) ERROR 11-20 09:01:10 [serving.py:1] bad input [{{'role': 'user', 'content': '{}'}}]",
    "vllm  ": "(APIServer pid=851) INFO 11-20 09:01:10 [logger.py:60] Generated response cmpl-0: output: '{}'",
    "tensorrt_llm": "[06/09/2026-23:10:45] [TRT-LLM] [I] [serve] Completion request: prompt='{}'",
    "tensorrt_llm ": "[06/09/2026-23:10:45] [TRT-LLM] [E] [serve] bad input [{{'role': 'user', 'content': '{}'}}]",
    "sglang": "[2026-11-20 09:01:00] Receive: obj=GenerateReqInput(text='{}', sampling_params={{}})",
    "sglang ": "[2026-11-20 09:01:00] Finish: obj=GenerateReqInput(text='x'), out={{'text': '{}'}}",
    "llama_cpp": 'srv  log_server_r: request:  {{"messages":[{{"role":"user","content":"{}"}}]}}',
    "triton": 'E1118 19:56:24.568955 1 pb_stub.cc:737] "bad input: {{\\"text_input\\": \\"{}\\"}}',
    "lmdeploy": "2026-06-17 04:42:39,520 - lmdeploy - INFO - async_engine.py:1 - prompt='{}', gen_config=x",
    "ray_serve": "(ServeReplica:a:b pid=1) INFO 06-13 15:20:00 [logger.py:40] Received request cmpl-0: prompt: '{}'",
    "dynamo": "2026-11-04T12:26:52.371053Z  INFO logger.log: Received request cmpl-0: prompt: '{}'",
    "nim": "INFO 06-28 08:28:20 [logger.py:40] Received request cmpl-0: prompt: '{}', params: x",
    "tgi": '2026-07-21T16:30:46.000000Z ERROR text_generation_router: bad input {{"role": "user", "content": "{}"}}',
}


@pytest.mark.parametrize("how", sorted(QUOTES))
def test_a_prompt_that_quotes_any_line_of_any_engine_sets_nothing_off(how: str) -> None:
    conditions, names = _stages()
    scan = LogEngine(conditions, loaded().ruleset.dialects, year_reference=YEAR)
    lines = {line for text in (*samples(), *rule_tests()) for line in text.text.splitlines() if line.strip()}
    quoted = [
        QUOTES[how].format(line.replace("\\", "\\\\").replace("'", "\\'").replace('"', '\\"')) for line in sorted(lines)
    ]
    hits = {
        (names[hit.condition], matched.record.body[:120])
        for matched in read(scan, Text("quoted.log", how.strip(), "\n".join(quoted) + "\n"))
        for hit in matched.hits
    }
    assert hits == set()


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'").replace('"', '\\"')


LURES = (
    "a" * 8_000,
    "(" * 8_000,
    "[rank1]:[E" + "1" * 8_000,
    " " * 8_000,
    "a: " * 2_600,
    "0.00.000.000 " * 600,
    "(Worker_DP0_TP0 pid=1) " + "INFO " * 1_600,
    "[TRT-LLM] [E] " + "total_num_tokens " * 500,
    "ab/12 [" * 1_100,
)


def test_no_pattern_takes_long_on_a_hostile_line() -> None:
    """A backtracking matcher must not stall on a long line that is built to please a pattern."""
    dialects = loaded().ruleset.dialects.values()
    tries = [re.compile(item.regex, re.ASCII).match for one in dialects for item in one.formats if item.regex]
    found = {
        m.pattern
        for _, rule in fingerprints()
        if rule.fingerprint
        for s in rule.fingerprint.stages
        for m in s.condition.any
    }
    found |= {field.regex for one in dialects for stats in one.stats for field in stats.fields}
    found |= {fact.regex for one in dialects for fact in one.facts}
    tries += [re.compile(pattern, re.MULTILINE | re.ASCII).search for pattern in sorted(found)]
    slow = []
    for attempt in tries:
        for lure in LURES:
            before = time.process_time()
            attempt(lure)
            if time.process_time() - before > 0.25:
                slow.append((str(attempt)[:160], lure[:20]))
    assert slow == []


def test_a_matcher_is_anchored_or_says_much() -> None:
    """A pattern of a few common words without an anchor is found in anybody's text."""
    weak = [
        (rule.alert, matcher.pattern)
        for _, rule in fingerprints()
        for stage in (rule.fingerprint.stages if rule.fingerprint else ())
        for matcher in stage.condition.any
        if not _anchored(matcher) and len(re.sub(r"\W|_", "", matcher.pattern)) < 24
    ]
    assert weak == []


def _anchored(matcher: Matcher) -> bool:
    return matcher.kind == "regex" and ("^" in matcher.pattern[:8] or matcher.pattern.startswith("(?:^"))
