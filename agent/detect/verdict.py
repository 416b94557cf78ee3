"""From evidence to a name: which failure is it, how sure are we, and when is it due to fire.

Progress decides the family, the lines decide the name (see docs/concepts.md). One stall has one name: rules that
explain it compete, and the most telling wins: a cause that lines name, then a cause that signals name, then a dead
engine without a cause, then a stall that nothing explains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from agent.detect.fingerprint import Match
from agent.detect.progress import ProgressTracker
from agent.detect.stall import CLOCKS, Stall
from agent.model import CRITICAL_FAMILIES, FAILURE_FAMILY, SEVERITY_NUMBER, Confidence, severity_number
from agent.rules.model import Rule

__all__ = ["NAMELESS", "Verdict", "asked_to_stop", "contradicted", "critical_verdict", "name_rank"]

NAMELESS: Final = frozenset({"silent_stall", "engine_dead", "crash"})
"""Failures that say that something stopped, not why: any cause replaces them."""
_NEXT_LOOK: Final = 1.5
"""Intervals after a look by which the next one is there."""
_LONGEST_WAIT: Final = 20.0
_CAUSE_WITHIN: Final = 60.0
"""Seconds before the end of an engine in which an error is taken for its cause."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The failure that the evidence of one engine shows now."""

    rule: Rule
    match: Match | None
    stall: Stall | None
    confidence: Confidence
    starts_at: float
    due: float | None
    """Event time from which it fires; None while it is only suspected."""


def name_rank(rule: Rule, *, matched: bool) -> tuple[int, int]:
    """How much a rule explains; higher names beat lower ones."""
    if rule.failure == "silent_stall":
        return (0, rule.priority)
    if rule.failure in NAMELESS:
        return (1, rule.priority)
    return (3 if matched else 2, rule.priority)


def contradicted(match: Match, tracker: ProgressTracker) -> bool:
    """Did work demonstrably go on after the lines said that it would not?

    A look shows what was done since the look before, so it only counts when that one, too, came after the last line;
    and one look at a page is not enough, since clocks of log and metrics may differ by a few seconds. The log's own
    stats lines have the clock of the line that they speak against."""
    enough, later = (1 if tracker.last_metrics is None else 2), 0
    for point in reversed(tracker.points):
        if point.timestamp - point.step <= match.last + CLOCKS:
            break
        later += point.progress
    return later >= enough


def asked_to_stop(match: Match, tracker: ProgressTracker) -> bool:
    """Did the server say that it shuts down before these lines came? Processes that end then, end as they should."""
    return tracker.stopping_since is not None and tracker.stopping_since < match.completed


def critical_verdict(
    rules: Iterable[Rule],
    matches: Iterable[Match],
    tracker: ProgressTracker,
    now: float,
    holds: Callable[[Rule, float], bool],
) -> Verdict | None:
    """The stalled or dead verdict on one engine, or None. ``holds`` evaluates a rule's ``when``."""
    live = [
        m
        for m in matches
        if FAILURE_FAMILY.get(m.rule.failure) in CRITICAL_FAMILIES
        and not contradicted(m, tracker)
        and not asked_to_stop(m, tracker)
    ]
    stall = tracker.stall
    if stall is None:
        for match in live:
            if match.rule.progress == "stalled" and now >= match.decided:
                stall = tracker.with_evidence(match.last)
                if stall is not None:
                    tracker.stall = stall
                    tracker.advance(now)  # the state is named anew
                    break
    named = sorted(
        (m for m in live if holds(m.rule, now)),
        key=lambda m: (name_rank(m.rule, matched=True), len(m.stages), m.completed),
        reverse=True,
    )
    if stall is not None:
        return _stalled(rules, named, stall, tracker, now, holds)
    return _by_lines(named, tracker, now)


def _stalled(
    rules: Iterable[Rule],
    named: list[Match],
    stall: Stall,
    tracker: ProgressTracker,
    now: float,
    holds: Callable[[Rule, float], bool],
) -> Verdict | None:
    candidates: list[tuple[tuple[int, int], int, Rule, Match | None]] = [
        (name_rank(m.rule, matched=True), len(m.stages), m.rule, m) for m in named if now >= m.decided
    ]
    candidates += [
        (name_rank(rule, matched=False), 0, rule, None)
        for rule in rules
        if rule.progress == "stalled"
        and rule.fingerprint is None
        and FAILURE_FAMILY.get(rule.failure) in CRITICAL_FAMILIES
        and holds(rule, now)
    ]
    if not candidates:
        return None
    _, _, rule, match = max(candidates, key=lambda item: (item[0], item[1]))
    terminal = match is not None and match.terminal
    confidence: Confidence = "confirmed" if stall.certain else "probable"
    onset = stall.since if stall.since > 0 else stall.declared
    starts_at = min(onset, match.completed) if match is not None and stall.since <= 0 else onset
    # The deadline has been waited for already; `for` counts from the onset, so it only matters when it is longer.
    due = max(stall.declared if not terminal else min(stall.declared, now), starts_at + rule.for_seconds)
    return Verdict(rule, match, stall, confidence, starts_at, due)


def _by_lines(named: list[Match], tracker: ProgressTracker, now: float) -> Verdict | None:
    """No stall is seen: lines may still prove one where the signals are silent, or a death.

    ``named`` comes best name first. A match that proves itself gives the name; an error of the last minute may name the
    death that another line proves ("the loop's thread is gone"). Mere pressure (preemptions, late transfers) may not:
    it goes before many deaths, and only signals can say that it was one.
    """
    best: Match | None = None
    proofs: list[Match] = []
    due: float | None = None
    died = False
    for match in named:
        dead = FAILURE_FAMILY.get(match.rule.failure) == "dead" and match.rule.progress == ""
        if not dead and match.rule.progress != "stalled":
            continue
        best = best or match
        look = tracker.points[-1] if tracker.points else None
        watched = look is not None and look.timestamp > match.last and (look.in_flight or 0.0) > 0
        if dead or (match.terminal and not watched):
            ripe = max(match.decided, match.last + match.rule.for_seconds)
            if look is not None and look.progress and look.timestamp > match.last:
                # That work may have been done before the line: the next look tells.
                ripe = max(ripe, look.timestamp + _NEXT_LOOK * min(tracker.looks.interval, _LONGEST_WAIT))
            due = ripe if due is None else min(due, ripe)
            died = died or dead
            proofs.append(match)
    if proofs:
        proof = proofs[0]
        best = next((m for m in named if m in proofs or _causes(m, proof)), proof)
    if best is None:
        return None
    if due is None:
        return Verdict(best.rule, best, None, "suspected", best.completed, None)
    confidence: Confidence = "confirmed" if died and tracker.failed_since is not None else "probable"
    return Verdict(best.rule, best, None, confidence, best.started, due)


def _causes(match: Match, proof: Match) -> bool:
    """Is this an error so close before a death that it names it?"""
    if match.rule.progress != "stalled" or not 0.0 <= proof.last - match.last <= _CAUSE_WITHIN:
        return False
    return any(severity_number(stage.severity) >= SEVERITY_NUMBER["ERROR"] for stage in match.stages)
