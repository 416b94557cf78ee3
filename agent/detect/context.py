"""What an alert says beyond its name: numbers before and now, what was ruled out, the checklist, the texts.

Everything here is derived from what the tracker saw; nothing decides. Messages and the page print it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, Literal

from agent.detect.progress import ProgressTracker
from agent.detect.stall import CLOCKS, Point
from agent.detect.verdict import Verdict
from agent.model import CRITICAL_FAMILIES, Alert, Checklist, rfc3339
from agent.rules.templates import render

__all__ = ["Explainer"]

_BEFORE: Final = 300.0
"""Seconds before the onset that are called "before"."""
_REPLAY: Final = (
    "python -m reproducer verify --url URL-OF-A-REPLICA --load load.jsonl, before and after lowering the ceiling"
)
"""How the third check is run against a real server; docs/reproducer.md."""
_SERIES_SPAN: Final = 900.0
_SERIES_POINTS: Final = 60

LoadReport = Callable[[str, float], Mapping[str, Any]]


class Explainer:
    """Fills annotations, checklist and context of an alert."""

    def __init__(self, load_report: LoadReport | None = None, skews: Mapping[str, float] | None = None) -> None:
        self.skews = skews if skews is not None else {}
        """Seconds that were added to the stamps of a log, because its clock differs from ours."""
        self.load_report = load_report
        """Gives what is known of onset against load for a server (checklist 2), or None: nothing is known."""

    def explain(self, alert: Alert, verdict: Verdict, tracker: ProgressTracker, now: float) -> Alert:
        """The alert with its texts and numbers filled in."""
        onset = verdict.stall.since if verdict.stall is not None else verdict.starts_at
        before = [p for p in tracker.points if onset - _BEFORE <= p.timestamp <= onset]
        after = [p for p in tracker.points if p.timestamp > onset]
        aborted = sum(p.aborted for p in after)
        load = dict(self.load_report(alert.server, onset)) if self.load_report is not None else {}
        context: dict[str, Any] = {
            "stalled_for": round(max(0.0, now - onset), 3),
            "before": _numbers(before),
            "now": _numbers(after[-12:] or before[-1:]),
            "series": _series(tracker, now),
            "facts": dict(tracker.facts),
            "excluded": _excluded(verdict, tracker, after, aborted),
            "starts_by": "last progress" if verdict.stall is not None else "first symptom",
        }
        if verdict.stall is not None:
            context["stall_kind"] = verdict.stall.kind
            context["deadline_s"] = round(verdict.stall.deadline, 1)
            context["deadline_source"] = verdict.stall.deadline_source
        if load:
            context["load"] = load
        skew = max(self.skews.values(), key=abs, default=0.0)
        if skew:
            context["clock_skew_s"] = round(skew, 1)
        over = _overshoot(verdict)
        if over is not None:
            context["overshoot_tokens"] = over
        actions = [text for key, text in sorted(verdict.rule.annotations.items()) if key.startswith("action_")]
        values = _values(alert, verdict, tracker, context)
        annotations = {key: render(text, values) for key, text in verdict.rule.annotations.items()}
        if "summary" not in annotations:
            annotations["summary"] = _summary(alert, verdict, context)
        if over is not None:
            annotations["overshoot"] = f"{over} tokens over the budget"
        context["actions"] = [render(text, values) for text in actions]
        checklist = Checklist(
            stopped_with_queue=_stopped_with_queue(alert, verdict, tracker),
            follows_load=str(load.get("verdict", "unknown")),
            smaller_budget_survives=f"not run: {_REPLAY}" if alert.family in CRITICAL_FAMILIES else "not run",
        )
        return replace(alert, annotations=annotations, context=context, checklist=checklist)


def _values(alert: Alert, verdict: Verdict, tracker: ProgressTracker, context: Mapping[str, Any]) -> dict[str, Any]:
    last = tracker.points[-1] if tracker.points else None
    signal = {
        "requests_waiting": last.waiting if last else None,
        "requests_running": last.running if last else None,
        "kv_cache_usage_ratio": last.kv if last else None,
        **tracker.facts,
    }
    return {
        "server": alert.server,
        "engine": alert.engine,
        "failure": alert.failure,
        "alertname": alert.alertname,
        "severity": alert.severity,
        "confidence": alert.confidence,
        "engine_index": alert.labels.get("engine_index", ""),
        "rank": alert.labels.get("rank", ""),
        "starts_at": rfc3339(alert.starts_at),
        "labels": dict(alert.labels),
        "facts": dict(tracker.facts),
        "fields": verdict.match.fields if verdict.match is not None else {},
        "signal": signal,
        "stalled_for": context["stalled_for"],
        "before": context["before"],
        "now": context["now"],
    }


def _overshoot(verdict: Verdict) -> int | None:
    """By how many tokens a step broke its budget, where the line says both numbers."""
    fields = verdict.match.fields if verdict.match is not None else {}
    try:
        return int(fields["total"]) - int(fields["max"])
    except (KeyError, ValueError):
        return None


def _summary(alert: Alert, verdict: Verdict, context: Mapping[str, Any]) -> str:
    what = alert.failure.replace("_", " ")
    waiting = alert.progress.requests_waiting
    queue = f" ({waiting:.0f} waiting)" if waiting else ""
    return f"{alert.server}: {what}, no progress for {context['stalled_for']:.0f}s{queue}"


def _numbers(points: list[Point]) -> dict[str, float]:
    """Rates over a stretch of looks, and the queue at its end."""
    out: dict[str, float] = {}
    if not points:
        return out
    seconds = sum(p.step for p in points)
    finished = [p.finished for p in points if p.finished is not None]
    tokens = [p.generated for p in points if p.generated is not None]
    if seconds > 0 and finished:
        out["finished_per_minute"] = round(60 * sum(finished) / seconds, 2)
    if seconds > 0 and tokens:
        out["tokens_per_second"] = round(sum(tokens) / seconds, 1)
    last = points[-1]
    for name, value in (
        ("requests_waiting", last.waiting),
        ("requests_running", last.running),
        ("kv_cache_usage_ratio", last.kv),
    ):
        if value is not None:
            out[name] = round(value, 4)
    return out


def _series(tracker: ProgressTracker, now: float) -> dict[str, list[list[float]]]:
    points = [p for p in tracker.points if p.timestamp >= now - _SERIES_SPAN]
    step = max(1, -(-len(points) // _SERIES_POINTS))
    out: dict[str, list[list[float]]] = {}

    def put(name: str, timestamp: float, value: float | None) -> None:
        if value is not None:
            out.setdefault(name, []).append([round(timestamp, 3), round(value, 4)])

    for start in range(0, len(points), step):
        chunk = points[start : start + step]
        last, seconds = chunk[-1], sum(p.step for p in chunk)
        put("requests_waiting", last.timestamp, last.waiting)
        put("requests_running", last.timestamp, last.running)
        put("kv_cache_usage_ratio", last.timestamp, last.kv)
        if seconds > 0:
            if any(p.finished is not None for p in chunk):
                put("finished_per_minute", last.timestamp, 60 * sum(p.finished or 0.0 for p in chunk) / seconds)
            if any(p.generated is not None for p in chunk):
                put("tokens_per_second", last.timestamp, sum(p.generated or 0.0 for p in chunk) / seconds)
    return out


def _excluded(verdict: Verdict, tracker: ProgressTracker, after: list[Point], aborted: float) -> list[str]:
    """Siblings of a stall that the evidence rules out, each with its reason."""
    if verdict.stall is None:
        return []
    out = []
    if any(p.finished is not None for p in after) and not any((p.finished or 0.0) > 0 for p in after):
        out.append("overload (would still finish, slowly)")
    if after and (after[-1].in_flight or 0.0) > 0:
        out.append(f"idle ({after[-1].in_flight:.0f} requests in flight)")
    if any(p.kv is not None for p in after) and verdict.stall.kind == "full":
        out.append("long prefill (KV use would climb)")
    if after:
        out.append(f"client disconnects ({aborted:.0f} since the onset)")
    if tracker.started_at is not None and tracker.started_at < verdict.starts_at:
        out.append("start-up (no restart since the server was ready)")
    return out


def _stopped_with_queue(alert: Alert, verdict: Verdict, tracker: ProgressTracker) -> Literal["yes", "no", "unknown"]:
    """The first check: is work in flight, and has nothing completed since the onset (or the last line that speaks)?"""
    if alert.family not in CRITICAL_FAMILIES:
        return "no" if tracker.state in ("serving", "saturated", "idle") else "unknown"
    since: float | None = None
    if verdict.stall is not None:
        since = verdict.stall.since
    elif verdict.match is not None:
        since = verdict.match.last + CLOCKS
    looks = [p for p in tracker.points if since is not None and p.timestamp - p.step >= since]
    if verdict.stall is not None and not looks:
        looks = list(tracker.points)[-1:]
    if not looks:
        return "unknown"
    if any((p.finished or 0.0) > 0 for p in looks):
        return "no"
    return "yes" if (looks[-1].in_flight or 0.0) > 0 else "unknown"
