"""The rules in force and when each last matched, for the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent.model import FAILURE_FAMILY
from agent.pipeline import Pipeline
from agent.rules.model import Rule
from agent.web.view import RuleView, StageMatch

__all__ = ["rule_views"]


def rule_views(pipeline: Pipeline, fired: Mapping[str, tuple[int, float]]) -> Sequence[RuleView]:
    """``fired`` says of each name how often and when last. Rules of several engines bear one name: what was seen counts
    for those whose engine is watched here."""
    here = {detector.engine for detector in pipeline.detectors.values()}
    return [
        _rule_view(rule, pipeline, fired if not rule.engines or here & set(rule.engines) else None)
        for rule in pipeline.ruleset.rules
    ]


def _rule_view(rule: Rule, pipeline: Pipeline, fired: Mapping[str, tuple[int, float]] | None) -> RuleView:
    """``fired`` is None for a rule of an engine that is not watched here."""
    stages = rule.fingerprint.stages if rule.fingerprint is not None else ()
    count, last = (fired or {}).get(rule.alert, (0, None))
    return RuleView(
        name=rule.alert,
        failure=rule.failure,
        family=FAILURE_FAMILY.get(rule.failure, "degraded"),
        severity=rule.severity,
        engines=rule.engines,
        stages=tuple(
            StageMatch(
                stage.name,
                pipeline.rule_matches.get((rule.alert, stage.name), 0) if fired is not None else 0,
                None,
                stage.optional,
            )
            for stage in stages
        ),
        progress=rule.progress,
        when=rule.when,
        for_s=rule.for_seconds,
        summary=rule.annotations.get("summary", ""),
        file=str(rule.position),
        fired=count,
        last_match=pipeline.rule_last_match.get(rule.alert) if fired is not None else None,
        last_fired=last,
    )
