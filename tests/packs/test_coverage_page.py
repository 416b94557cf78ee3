"""docs/coverage.md is what the packs say now."""

from __future__ import annotations

from agent.authoring.coverage import evidence, page
from tests.packs.corpus import ROOT, loaded


def test_the_page_in_the_repository_is_up_to_date() -> None:
    wanted = page(loaded().ruleset)
    assert (ROOT / "docs" / "coverage.md").read_text(encoding="utf-8") == wanted, (
        "run: python -m agent.authoring.coverage > docs/coverage.md"
    )


def test_a_rule_that_needs_signals_an_engine_lacks_is_not_counted_there() -> None:
    ruleset = loaded().ruleset
    rule = next(rule for rule in ruleset.rules if rule.alert == "PreemptionLivelock" and not rule.engines)
    assert evidence(rule, ruleset.dialects["vllm"]) == {"S"}
    assert evidence(rule, ruleset.dialects["tgi"]) == frozenset()
    assert evidence(rule, ruleset.dialects["megatron"]) == frozenset()
