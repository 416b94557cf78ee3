"""The message that somebody reads at 3 am, as neutral blocks that each receiver draws in its own way.

What is broken, where and for how long comes first; then how sure we are and by what; the lines as they were logged;
numbers before and now instead of adjectives; what was ruled out; what to do, evidence first, because a restart
destroys it. Every text in a :class:`Message` is cleaned, redacted and bounded, so a renderer only escapes and lays out.
:func:`shorten` says the same in less room, step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlsplit

from agent.model import Alert, StageEvidence
from agent.redact import bounded, redact
from agent.rules.templates import render
from integrations.base import Notification, ReceiverOptions
from integrations.limits import Text
from integrations.series import Spark, as_number, mapping, span, sparks
from integrations.text import clean, clip, duration, head_and_tail, number, one_line
from integrations.wording import elapsed, group_headline, headline, phrase, place, verdict, worst_first

__all__ = ["LEVELS", "Check", "Evidence", "Fact", "Link", "Message", "Spark", "build", "clock", "fit", "shorten"]

LEVELS: Final = 7
"""Steps of :func:`shorten`, 0 (everything) to LEVELS - 1 (title and links)."""


@dataclass(frozen=True, slots=True)
class Fact:
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """A log line: when, how severe, its text (a traceback has several lines), where it stands, how often it came."""

    when: str
    severity: str
    text: str
    place: str = ""
    count: int = 1
    timestamp: float = 0.0


@dataclass(frozen=True, slots=True)
class Check:
    """``mark`` is yes, no, unknown or not run."""

    mark: str
    text: str


@dataclass(frozen=True, slots=True)
class Link:
    text: str
    url: str


@dataclass(frozen=True, slots=True)
class Message:
    """See the module. ``state`` is FIRING, RESOLVED, UPDATE, STILL FIRING or CHANGE; ``others`` are the page's further
    alerts, a line each; ``notes`` are remarks about the message itself (late, may be a repeat, flapping, a test)."""

    state: str
    title: str
    summary: str
    severity: str
    key: str
    timestamp: float
    facts: tuple[Fact, ...] = ()
    sparks: tuple[Spark, ...] = ()
    span: str = ""
    evidence: tuple[Evidence, ...] = ()
    checks: tuple[Check, ...] = ()
    excluded: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()
    others: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def headline(self) -> str:
        """State and title in one line."""
        return f"[{self.state}] {self.title}"


def build(notification: Notification, options: ReceiverOptions | None = None) -> Message:
    """The message of a notification. ``options`` may hold templates for title and summary; a template that fails
    is left out with a note, never the message."""
    alerts = worst_first(notification.alerts)
    if not alerts:
        return Message("CHANGE", "nothing to report", "", "info", notification.key, notification.now)
    main = alerts[0]
    now = notification.now
    title = _safe(group_headline(alerts, now, notification.fleet), Text.TITLE)
    summary = _safe(main.annotations.get("summary", ""), Text.SUMMARY)
    description = _safe(main.annotations.get("description", ""), Text.SUMMARY)
    text = "\n".join(part for part in (summary, description) if part and part != title)
    notes = _notes(notification)
    if options is not None and (options.title or options.text):
        values = _template_values(main, notification, title, text)
        title, failed_title = _from_template(options.title, values, title, Text.TITLE)
        text, failed_text = _from_template(options.text, values, text, 2 * Text.SUMMARY)
        if failed_title or failed_text:
            notes.append("a message template gave nothing, the built-in text is shown")
    firing = bool(notification.firing)
    return Message(
        state=_state(notification),
        title=title,
        summary=text,
        severity=main.severity,
        key=one_line(notification.key),
        timestamp=main.starts_at if firing else (main.ends_at or now),
        facts=_facts(main, notification),
        sparks=sparks(main.context.get("series")),
        span=span(main.context.get("series")),
        evidence=tuple(_evidence(stage) for stage in main.stages[-Text.EVIDENCE_LINES :]),
        checks=_checks(main) if firing else (),
        excluded=_texts(main.context.get("excluded"), 8, 160) if firing else (),
        actions=_texts(main.context.get("actions"), 6, 400) if firing else (),
        links=_links(main, notification.external_url),
        others=_others(alerts[1:], now),
        notes=tuple(notes),
    )


def shorten(message: Message, level: int) -> Message:
    """The message with less in it: from ``level`` 1 without INFO lines, 2 with short lines, 3 with first and last
    line, 4 without courses and exclusions, 5 without lines and checks, 6 title and links only."""
    if level >= 1:
        kept = tuple(line for line in message.evidence if line.severity not in {"INFO", "DEBUG", "TRACE"})
        message = replace(message, evidence=kept or message.evidence[-1:])
    if level >= 2:
        limit = Text.EVIDENCE_LINE_SHORT
        short = tuple(replace(line, text=head_and_tail(line.text, limit)) for line in message.evidence)
        message = replace(message, evidence=short, others=message.others[:10])
    if level >= 3 and len(message.evidence) > 2:
        message = replace(message, evidence=(message.evidence[0], message.evidence[-1]))
    if level >= 4:
        message = replace(message, sparks=(), span="", excluded=(), others=message.others[:5])
    if level >= 5:
        message = replace(
            message, evidence=(), checks=(), actions=message.actions[:3], summary=clip(message.summary, 300)
        )
    if level >= 6:
        message = replace(message, summary="", facts=(), actions=(), others=())
    return message


def fit(message: Message, render_with: Callable[[Message], Any], fits: Callable[[Any], bool], start: int = 0) -> Any:
    """The fullest rendering that fits; the shortest one when none does."""
    rendered: Any = None
    for level in range(min(start, LEVELS - 1), LEVELS):
        rendered = render_with(shorten(message, level))
        if fits(rendered):
            break
    return rendered


def clock(timestamp: float, *, now: float | None = None) -> str:
    """``01:39:58 UTC``, with the date when it is another day than ``now``."""
    try:
        moment = datetime.fromtimestamp(timestamp, UTC)
        other_day = now is not None and datetime.fromtimestamp(now, UTC).date() != moment.date()
    except (OverflowError, ValueError, OSError):
        return "?"
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC" if other_day else "%H:%M:%S UTC")


# -- parts ------------------------------------------------------------------------------------------------------------


def _state(notification: Notification) -> str:
    if not notification.firing:
        state = "RESOLVED"
    else:
        state = {"update": "UPDATE", "repeat": "STILL FIRING"}.get(notification.action, "FIRING")
    return f"TEST {state}" if notification.test else state


def _notes(notification: Notification) -> list[str]:
    notes = [_safe(note, 300) for note in notification.notes]
    if notification.delayed >= 60:
        notes.append(f"delayed {duration(notification.delayed)}: this receiver could not be reached before")
    if notification.uncertain:
        notes.append("may be a repeat: an earlier attempt was cut off before its answer")
    if notification.test:
        notes.append("a test sent by hand, nothing is wrong")
    if notification.others:
        shown = ", ".join(one_line(other) for other in notification.others[:5])
        more = len(notification.others) - 5
        notes.append(f"also open: {clip(shown, 300)}" + (f" and {more} more" if more > 0 else ""))
    return [note for note in notes if note]


def _facts(alert: Alert, notification: Notification) -> tuple[Fact, ...]:
    now, context, progress = notification.now, alert.context, alert.progress
    before, present = mapping(context.get("before")), mapping(context.get("now"))
    facts = [Fact("Verdict", verdict(alert)), Fact("Severity", one_line(alert.severity))]
    cluster = alert.labels.get("cluster", "")
    facts.append(Fact("Server", ", ".join(one_line(part) for part in (place(alert), alert.engine, cluster) if part)))
    since = clock(alert.starts_at, now=now)
    begun = one_line(str(context.get("starts_by", "")))
    facts.append(Fact("Since", f"{since} ({begun})" if begun else since))
    if alert.state == "resolved":
        facts.append(Fact("Lasted", duration(elapsed(alert, now))))
        facts += [
            Fact(name, one_line(str(context[key])))
            for name, key in (("Recovered by", "recovered_by"), ("Requests hit", "requests_hit"))
            if context.get(key) not in (None, "")
        ]
    waiting, running = progress.requests_waiting, progress.requests_running
    queue = [
        f"{number(value)} {name}" for value, name in ((waiting, "waiting"), (running, "running")) if value is not None
    ]
    if queue:
        was = as_number(before.get("requests_waiting"))
        facts.append(Fact("Queue", " / ".join(queue) + (f" (was {number(was)} waiting)" if was is not None else "")))
    finished = progress.finished_in_window
    rate, was_rate = as_number(present.get("finished_per_minute")), as_number(before.get("finished_per_minute"))
    if finished is not None or rate is not None:
        text = f"{number(rate)}/min" if rate is not None else f"{number(finished or 0)} in the last window"
        facts.append(Fact("Completions", text + (f" (was {number(was_rate)}/min)" if was_rate is not None else "")))
    tokens, had = as_number(present.get("tokens_per_second")), as_number(before.get("tokens_per_second"))
    if tokens is not None:
        facts.append(Fact("Tokens", f"{number(tokens)}/s" + (f" (was {number(had)}/s)" if had is not None else "")))
    deadline = as_number(context.get("deadline_s"))
    if deadline is not None:
        source = one_line(str(context.get("deadline_source", "")))
        facts.append(Fact("Deadline", f"{duration(deadline)} without progress" + (f" ({source})" if source else "")))
    overshoot = alert.annotations.get("overshoot", "")
    if overshoot:
        facts.append(Fact("Overshoot", one_line(overshoot)))
    told = {"alertname", "failure", "severity", "server", "engine", "cluster", "engine_index", "rank"}
    labels = [f"{one_line(key)}={one_line(value)}" for key, value in sorted(alert.labels.items()) if key not in told]
    if labels:
        facts.append(Fact("Labels", ", ".join(labels)))
    return tuple(Fact(fact.name, _safe(fact.value, 300)) for fact in facts if fact.value)


def _evidence(stage: StageEvidence) -> Evidence:
    text = _fewer_lines(clean(redact(bounded(stage.body))).strip("\n"))
    return Evidence(
        when=clock(stage.timestamp).removesuffix(" UTC"),
        severity=one_line(stage.severity)[:12],
        text=head_and_tail(text, Text.EVIDENCE_LINE),
        place=clip(f"{one_line(stage.file).rsplit('/', 1)[-1]}:{stage.line}" if stage.file else "", 80),
        count=stage.count,
        timestamp=stage.timestamp,
    )


def _fewer_lines(text: str) -> str:
    """A traceback by its first and last lines: the error stands at the end."""
    lines = text.split("\n")
    if len(lines) <= 9:
        return text
    return "\n".join([*lines[:2], f"… {len(lines) - 7} lines …", *lines[-5:]])


_CHECKS: Final[tuple[tuple[str, str], ...]] = (
    ("stopped_with_queue", "completions stopped while the queue is not empty"),
    ("follows_load", "onset follows load, not a restart or a change of configuration"),
    ("smaller_budget_survives", "a smaller budget survives the same load"),
)


def _checks(alert: Alert) -> tuple[Check, ...]:
    checks = []
    if alert.family == "degraded" and alert.checklist.stopped_with_queue == "unknown":
        return ()
    for name, text in _CHECKS:
        said = one_line(str(getattr(alert.checklist, name)))
        mark = next((word for word in ("not run", "unknown", "yes", "no") if said.lower().startswith(word)), "unknown")
        rest = said[len(mark) :].lstrip(" :,;-") if said.lower().startswith(mark) else said
        checks.append(Check(mark, _safe(f"{text}: {rest}" if rest else text, 300)))
    return tuple(checks)


def _links(alert: Alert, external_url: str) -> tuple[Link, ...]:
    page = f"{external_url.rstrip('/')}/alerts/{alert.fingerprint}" if external_url else ""
    wanted = (
        ("Runbook", alert.annotations.get("runbook_url", "")),
        ("Incident", page),
        ("Dashboard", alert.annotations.get("dashboard_url", "")),
    )
    return tuple(Link(text, safe) for text, url in wanted if (safe := safe_url(url)))


def safe_url(url: str) -> str:
    """An http(s) URL of at most 2000 characters without anything a renderer could trip over; else empty."""
    text = redact(url.strip())
    if (
        len(text) > 2000
        or any(char in text for char in "<>\"'`|\\ \n\r\t")
        or not text.isascii()
        or not text.isprintable()
    ):
        return ""
    try:
        parts = urlsplit(text)
    except ValueError:
        return ""
    return text if parts.scheme in {"http", "https"} and parts.hostname else ""


def _others(alerts: Sequence[Alert], now: float) -> tuple[str, ...]:
    lines = []
    for alert in alerts[: Text.ALERTS_LISTED]:
        mark = "recovered: " if alert.state == "resolved" else ""
        lines.append(_safe(f"{mark}{headline(alert, now)}", Text.TITLE))
    if len(alerts) > Text.ALERTS_LISTED:
        lines.append(f"and {len(alerts) - Text.ALERTS_LISTED} more")
    return tuple(lines)


def _template_values(alert: Alert, notification: Notification, title: str, summary: str) -> Mapping[str, Any]:
    context = alert.context
    fields = {key: value for stage in alert.stages for key, value in stage.fields.items()}
    return {
        "title": title,
        "summary": summary,
        "state": "firing" if notification.firing else "resolved",
        "what": phrase(alert),
        "count": len(notification.alerts),
        "servers": ", ".join(sorted({one_line(item.server) for item in notification.alerts})),
        "server": alert.server,
        "engine": alert.engine,
        "engine_index": alert.labels.get("engine_index", ""),
        "rank": alert.labels.get("rank", ""),
        "alertname": alert.alertname,
        "failure": alert.failure,
        "severity": alert.severity,
        "confidence": alert.confidence,
        "stalled_for": elapsed(alert, notification.now),
        "starts_at": clock(alert.starts_at, now=notification.now),
        "fields": fields,
        "facts": mapping(context.get("facts")),
        "signal": mapping(context.get("now")),
        "labels": dict(alert.labels),
        "annotations": dict(alert.annotations),
        "before": mapping(context.get("before")),
        "now": mapping(context.get("now")),
    }


def _from_template(template: str, values: Mapping[str, Any], fallback: str, limit: int) -> tuple[str, bool]:
    """The rendered template, or the fallback and True when nothing readable came of it."""
    if not template:
        return fallback, False
    text = _safe(render(template, values), limit)
    return (text, False) if text.strip() else (fallback, True)


def _safe(text: str, limit: int) -> str:
    # Cut roughly first: a megabyte is not worth twenty patterns for the sake of its first line.
    return clip(clean(redact(text[: 16 * limit + 4096])).strip(), limit)


def _texts(raw: Any, count: int, limit: int) -> tuple[str, ...]:
    if not isinstance(raw, list | tuple):
        return ()
    return tuple(text for item in raw[:count] if (text := _safe(str(item), limit)))
