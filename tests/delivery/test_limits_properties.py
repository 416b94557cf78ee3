"""For any log text whatever, what is sent is within every limit and holds nothing active.

Block Kit is also checked by two validators that are not ours: slack_sdk's models and slackblocks.
"""

from __future__ import annotations

import json
import unicodedata
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.model import Alert, Checklist, ProgressSummary, Secret, StageEvidence
from agent.redact import redact
from integrations.base import Notification
from integrations.contracts import pagerduty_faults, slack_fault
from integrations.discord import _fits as fits
from integrations.discord import embed
from integrations.email import EmailConfig, EmailReceiver
from integrations.http import HttpClient, encode_json
from integrations.limits import PagerDuty, Slack, Teams, Text
from integrations.message import LEVELS, Message, build, fit, shorten
from integrations.msteams import card
from integrations.pagerduty import PagerDutyConfig, PagerDutyReceiver
from integrations.plain import render_plain
from integrations.slack_blocks import message_payload, reply_text
from integrations.terminal import render_terminal
from integrations.text import clip, clip_bytes, clip_middle, duration, escaped, head_and_tail, number, sparkline, utf16
from integrations.webhook import payload
from integrations.wording import group_headline
from tests.delivery.build import T
from tests.fakes.discord import fault_of

FAST = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])

NASTY = st.sampled_from(
    [
        "<!channel>", "<@U123>", "<https://evil.example|Runbook>", "@everyone", "```", "````", "&lt;", "&amp;", "*_~`",
        "\x1b[31m", "\x1b]0;title\x07", "\r\n", "\n\n\n", "\x00", "\u202e", "\u200b", "\ufeff", "\ud800", "👨‍👩‍👧‍👦",
        "🇩🇪🇫🇷", "e\u0301" * 9, "漢字", "{{7*7}}", "{% raw %}", "</at>", "<at>all</at>", "[a](http://e)", "\\", "\t",
        "Traceback (most recent call last):\n  File \"x.py\", line 1, in y\n", "x" * 1500, "&" * 900, "<" * 900,
        "`" * 900, "\n" * 200, "😀" * 900, "a b " * 500, "\u2028", "\u0085", "%s%n", "';--", "\\u003c",
    ]
)  # fmt: skip
HOSTILE = st.lists(st.one_of(NASTY, st.text(max_size=60)), max_size=4).map("".join)
NUMBERS = st.one_of(st.none(), st.integers(-5, 10**12), st.floats(allow_nan=True, allow_infinity=True))


@st.composite
def alerts(draw: st.DrawFn) -> Alert:
    lines = tuple(
        StageEvidence(
            "stage", draw(st.floats(-1e12, 1e12)), draw(HOSTILE), draw(HOSTILE), draw(st.integers(0, 10**9)),
            draw(st.sampled_from(["INFO", "WARN", "ERROR", "", "weird"])), {"x": "y"}, draw(st.integers(1, 999)),
        )
        for _ in range(draw(st.integers(0, 7)))
    )  # fmt: skip
    state = draw(st.sampled_from(["firing", "resolved"]))
    anything = st.recursive(
        st.one_of(st.none(), st.booleans(), NUMBERS, HOSTILE),
        lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=4)),
        max_leaves=8,
    )
    points = st.lists(st.tuples(st.floats(0, 1e10), NUMBERS).map(list), max_size=80)
    return Alert(
        alertname=draw(HOSTILE),
        failure=draw(st.one_of(HOSTILE, st.sampled_from(["token_budget_deadlock", "overload", "engine_dead"]))),
        state=state,  # type: ignore[arg-type]
        confidence=draw(st.sampled_from(["probable", "confirmed", "suspected"])),
        severity=draw(st.sampled_from(["critical", "warning", "page"])),
        server=draw(HOSTILE),
        engine=draw(HOSTILE),
        fingerprint=draw(st.text("0123456789abcdef", min_size=1, max_size=16)),
        starts_at=draw(st.floats(0, 4e9)),
        fired_at=T,
        ends_at=draw(st.floats(0, 4e9)) if state == "resolved" else None,
        stages=lines,
        progress=ProgressSummary("stalled", T, *(draw(st.one_of(st.none(), st.floats(0, 1e9))) for _ in range(4))),
        checklist=Checklist("yes", draw(HOSTILE), draw(HOSTILE)),
        labels=draw(st.dictionaries(HOSTILE, HOSTILE, max_size=6)),
        annotations=draw(
            st.dictionaries(
                st.sampled_from(["summary", "description", "runbook_url", "dashboard_url"]), HOSTILE, max_size=4
            )
        ),
        context={
            "before": draw(anything),
            "now": draw(anything),
            "excluded": draw(anything),
            "actions": draw(st.one_of(anything, st.lists(HOSTILE, max_size=9))),
            "series": draw(st.one_of(anything, st.dictionaries(st.just("requests_waiting"), points))),
            "stalled_for": draw(anything),
            "deadline_s": draw(anything),
        },
    )


@st.composite
def notifications(draw: st.DrawFn) -> Notification:
    return Notification(
        receiver="team",
        key=draw(st.one_of(st.just("wedgewatch/a/b"), HOSTILE)),
        action=draw(st.sampled_from(["open", "update", "repeat", "resolve"])),  # type: ignore[arg-type]
        alerts=tuple(draw(st.lists(alerts(), min_size=1, max_size=3))),
        now=draw(st.floats(0, 4e9)),
        delayed=draw(st.floats(0, 1e6)),
        notes=tuple(draw(st.lists(HOSTILE, max_size=3))),
        others=tuple(draw(st.lists(HOSTILE, max_size=8))),
        external_url=draw(st.sampled_from(["", "https://w.example", "javascript:alert(1)"])),
        degraded=draw(st.integers(0, 3)),
    )


def texts_of(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.values() for text in texts_of(item)]
    if isinstance(value, list | tuple):
        return [text for item in value for text in texts_of(item)]
    return [value] if isinstance(value, str) else []


@FAST
@given(notifications())
def test_every_receiver(notification: Notification) -> None:
    message = build(notification)
    check_headline(notification)
    check_slack(notification, message)
    check_pagerduty(notification)
    check_discord(message)
    check_teams(message)
    check_webhook(notification, message)
    check_mail(notification)
    for alert in notification.alerts:
        check_terminal(alert)


def check_headline(notification: Notification) -> None:
    """What, where and for how long, within sixty characters."""
    title = group_headline(notification.alerts, notification.now)
    assert len(title) <= Text.TITLE
    assert not any(unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") for char in title)
    if len(notification.alerts) == 1 and notification.alerts[0].failure == "token_budget_deadlock":
        head = title[: Text.TITLE_HEAD]
        if notification.alerts[0].state == "firing":
            assert ": scheduler deadlocked" in head
            assert " for " in head
        else:
            assert ": recovered after " in head


def check_slack(notification: Notification, message: Message) -> None:
    sent = message_payload(message, notification.degraded)
    assert slack_fault(sent) == ""
    assert utf16(sent["text"]) <= Slack.TEXT + 10
    blocks = sent.get("blocks", [])
    assert len(blocks) <= Slack.BLOCKS
    assert sum(utf16(text) for text in texts_of(blocks)) <= Slack.ALL_BLOCKS
    for text in [sent["text"], *texts_of(blocks), reply_text(message)]:
        left = text.replace("<!date^", "", 1)
        assert "<!" not in left
        assert "<@" not in left
        assert "<http" not in left
        assert text.count("```") in (0, 2)
        text.encode()
    if blocks:
        by_others(blocks)


def by_others(blocks: list[dict[str, Any]]) -> None:
    """slack_sdk's models accept 51 blocks, slackblocks refuses them; between them they know the limits."""
    import slackblocks
    from slack_sdk.models.blocks import Block

    for block in Block.parse_all(blocks):
        block.validate_json()
    made: list[Any] = []
    for block in blocks:
        if block["type"] == "header":
            made.append(slackblocks.HeaderBlock(block["text"]["text"]))
        elif block["type"] == "section" and "fields" in block:
            made.append(slackblocks.SectionBlock(fields=[slackblocks.Text(item["text"]) for item in block["fields"]]))
        elif block["type"] == "section":
            made.append(slackblocks.SectionBlock(block["text"]["text"]))
        elif block["type"] == "context":
            made.append(slackblocks.ContextBlock([slackblocks.Text(item["text"]) for item in block["elements"]]))
        elif block["type"] == "actions":
            items = [
                slackblocks.Button(i["text"]["text"], f"a{n}", url=i["url"]) for n, i in enumerate(block["elements"])
            ]
            made.append(slackblocks.ActionsBlock(items))
    slackblocks.Message("C1", blocks=made)


def check_pagerduty(notification: Notification) -> None:
    data = PagerDutyReceiver(PagerDutyConfig(routing_key=Secret("k" * 32)), HttpClient())._event(notification, "k" * 32)
    assert len(data) <= PagerDuty.EVENT_BYTES
    if notification.key:
        assert pagerduty_faults(json.loads(data)) == []


def check_discord(message: Message) -> None:
    body = {"content": "", "embeds": [fit(message, embed, fits)], "allowed_mentions": {"parse": []}}
    assert fault_of(body) == ""
    assert "@everyone" not in json.dumps(body, ensure_ascii=False)


def check_teams(message: Message) -> None:
    made = fit(message, card, lambda item: len(encode_json(item)) <= Teams.CARD_BYTES)
    assert len(encode_json(made)) <= Teams.CARD_BYTES
    for block in made["attachments"][0]["content"]["body"]:
        assert block["type"] == "RichTextBlock"
        assert all(run["type"] == "TextRun" and run["text"] for run in block["inlines"])


def check_webhook(notification: Notification, message: Message) -> None:
    read = json.loads(encode_json(payload(notification, message, limit=256, full=True)))
    assert read["version"] == "4"
    assert read["status"] in ("firing", "resolved")
    for item in read["alerts"]:
        assert set(item) == {"status", "labels", "annotations", "startsAt", "endsAt", "generatorURL", "fingerprint"}
        assert all(isinstance(value, str) for value in (*item["labels"].values(), *item["annotations"].values()))


def check_mail(notification: Notification) -> None:
    config = EmailConfig(to="a@example.com", from_="w@example.com", smarthost="127.0.0.1:1")
    mail = EmailReceiver(config)._mail(notification)
    head, _, body = mail.as_bytes().partition(b"\n\n")
    assert b"\nbcc:" not in head.lower()
    assert len(str(mail["Subject"])) <= 200
    assert body


def check_terminal(alert: Alert) -> None:
    for color, width in ((False, 80), (True, 20)):
        text = render_terminal(alert, color=color, width=width)
        text.encode()
        assert text.endswith("\n")
        painted = text if not color else text.replace("\x1b[", "")
        assert "\x1b" not in painted, "an escape code of a log line reached the terminal"
        assert not any(char in text for char in "\r\x00\u202e\x07\x9b")


@FAST
@given(notifications(), st.integers(0, LEVELS - 1))
def test_each_step_of_shortening_says_no_more_than_the_one_before(notification: Notification, level: int) -> None:
    message = build(notification)
    longer = render_plain(shorten(message, max(0, level - 1)))
    shorter = render_plain(shorten(message, level))
    # an ellipsis and its count may be longer than the few characters they stand for
    assert len(shorter) <= len(longer) + 40 * 12
    assert message.title in shorter
    assert len(shorter) < 60_000


@FAST
@given(HOSTILE, st.integers(0, 400))
def test_cutting(text: str, limit: int) -> None:
    for size, cut in ((len, clip(text, limit)), (utf16, clip(text, limit, utf16)), (len, clip_middle(text, limit))):
        assert size(cut) <= limit
    assert len(clip_bytes(text.encode("utf-8", "replace").decode(), limit).encode()) <= max(limit, 0)
    html = escaped(text, limit, lambda part: part.replace("&", "&amp;").replace("<", "&lt;"))
    assert utf16(html) <= limit
    assert html.replace("&amp;", "").replace("&lt;", "").count("&") == 0, "an escape was cut through"
    assert len(head_and_tail(text, limit)) <= limit + 1 or len(text) <= limit


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_numbers_and_durations_are_short(value: float) -> None:
    assert 1 <= len(number(value)) <= 24
    assert 1 <= len(duration(value)) <= 24 or value > 1e15


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=200), st.integers(1, 40))
def test_bars(values: list[float], width: int) -> None:
    assert len(sparkline([value for value in values if abs(value) < 1e300], width)) <= width


@FAST
@given(HOSTILE)
def test_redaction_is_idempotent(text: str) -> None:
    once = redact(text + " token=abc&x=1 Bearer abcdefg")
    assert redact(once) == once
    assert "abcdefg" not in once
