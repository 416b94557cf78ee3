"""Slack, PagerDuty, webhook, Teams, Discord: what each sends, and what it makes of each answer."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
from dataclasses import replace

import pytest

from agent.model import Secret
from integrations.base import Notification, Outcome
from integrations.discord import DiscordReceiver
from integrations.http import HttpClient
from integrations.local_receiver import Reply
from integrations.msteams import MsTeamsReceiver
from integrations.pagerduty import PagerDutyConfig, PagerDutyReceiver
from integrations.slack import SlackConfig, SlackReceiver
from integrations.webhook import WebhookConfig, WebhookReceiver
from tests.delivery.build import T, alert, notification, resolved
from tests.fakes import server as faults
from tests.fakes.discord import FakeDiscord
from tests.fakes.pagerduty import KEY, FakePagerDuty
from tests.fakes.server import FakeService
from tests.fakes.slack import FakeSlack
from tests.fakes.teams import FakeTeams

OVER = resolved(alert(), T + 900)


def html(status: int) -> Reply:
    return Reply(status, b"<html>proxy</html>", content_type="text/html")


# -- Slack --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "kind", "reason"),
    [
        (Reply.text(200, "ok"), "success", ""),
        (Reply.json(200, {"ok": True}), "success", ""),
        (Reply.json(200, {"success": True}), "success", ""),
        (html(200), "retry", "client"),
        (Reply.text(200, ""), "retry", "client"),
        (Reply.text(400, "invalid_payload"), "degrade", "client"),
        (Reply.text(400, "invalid_blocks"), "degrade", "client"),
        (Reply.text(400, "something new"), "degrade", "client"),
        (Reply.text(413, "too big"), "degrade", "client"),
        (Reply.text(400, "user_not_found"), "permanent", "client"),
        (Reply.text(403, "invalid_token"), "permanent", "auth"),
        (Reply.text(403, "action_prohibited"), "permanent", "client"),
        (Reply.text(404, "no_service"), "permanent", "client"),
        (Reply.text(404, "channel_not_found"), "permanent", "client"),
        (Reply.text(410, "channel_is_archived"), "permanent", "client"),
        (Reply.text(500, "rollup_error"), "retry", "server"),
        (Reply.text(503, "x"), "retry", "server"),
        (faults.redirect, "retry", "client"),
        (faults.reset, "retry", "network"),
        (faults.busy("4"), "retry", "rate_limited"),
    ],
)
def test_slack_webhook_answers(answer: faults.Behaviour, kind: str, reason: str) -> None:
    with FakeSlack(answer) as slack:
        outcome = SlackReceiver(slack.webhook(), HttpClient()).notify(notification())
        assert (outcome.kind, outcome.reason) == (kind, reason)


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        (faults.busy("4"), 4.0),
        (faults.busy(None, b'{"retry_after":1.5,"ok":false,"error":"rate_limited"}'), 1.5),
        (faults.busy(None), None),
        (faults.busy("soon"), None),
    ],
)
def test_slack_says_how_long_to_wait(answer: Reply, seconds: float | None) -> None:
    with FakeSlack(answer) as slack:
        assert SlackReceiver(slack.webhook(), HttpClient()).notify(notification()).after == seconds


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("not_in_channel", "permanent"), ("channel_not_found", "permanent"), ("invalid_auth", "permanent"),
        ("token_revoked", "permanent"), ("missing_scope", "permanent"), ("is_archived", "permanent"),
        ("msg_too_long", "degrade"), ("msg_blocks_too_long", "degrade"), ("invalid_blocks", "degrade"),
        ("ratelimited", "retry"), ("internal_error", "retry"), ("fatal_error", "retry"), ("never_heard_of", "retry"),
    ],
)  # fmt: skip
def test_slack_api_says_no_with_status_200(error: str, kind: str) -> None:
    with FakeSlack(Reply.json(200, {"ok": False, "error": error})) as slack:
        outcome = SlackReceiver(slack.bot(), HttpClient()).notify(notification())
        assert outcome.kind == kind
        assert outcome.detail == error
        assert outcome.uncertain == (error in ("internal_error", "fatal_error"))


def test_slack_bot_edits_and_replies_in_the_thread() -> None:
    """open -> update (edit) -> repeat (edit, reply to the channel) -> resolve (edit, reply)."""
    with FakeSlack() as slack:
        receiver = SlackReceiver(slack.bot(), HttpClient())
        first = receiver.notify(notification())
        assert first.ref["channel"] == "C0LOCAL", "the id from the answer, since edits do not take names"
        ref = dict(first.ref)
        for step in (
            notification(action="update", ref=ref),
            notification(action="update", ref=ref, news=("fp-trtllm-0",)),
            notification(action="repeat", ref=ref),
            notification(OVER, action="resolve", ref=ref),
        ):
            assert receiver.notify(step).kind == "success"
        names = [arrival.path.rpartition(".")[2] for arrival in slack.arrivals]
        post, update = "postMessage", "update"
        assert names == [post, update, update, post, update, post, update, post]
        assert slack.bodies[5]["reply_broadcast"] is True
        assert slack.bodies[7]["reply_broadcast"] is False
        assert slack.bodies[7]["text"].startswith("[RESOLVED] trtllm-0: recovered after 17m")
        assert len(slack.desk.messages) == 4
        assert slack.desk.messages[ref["ts"]]["text"].startswith("[RESOLVED]")


def test_slack_text_only_edit_takes_the_blocks_away() -> None:
    with FakeSlack() as slack:
        receiver = SlackReceiver(slack.bot(thread_replies=False), HttpClient())
        ref = dict(receiver.notify(notification()).ref)
        receiver.notify(notification(action="update", ref=ref, degraded=1))
        assert slack.desk.messages[ref["ts"]]["blocks"] == []


def test_slack_nobody_is_rung_unless_configured() -> None:
    with FakeSlack() as slack:
        SlackReceiver(slack.webhook(), HttpClient()).notify(notification())
        SlackReceiver(slack.webhook(mention="<!here>"), HttpClient()).notify(notification())
        SlackReceiver(slack.webhook(mention="<!here>"), HttpClient()).notify(notification(OVER, action="resolve"))
        rung = [json.dumps(body).count("<!here>") for body in slack.bodies]
        assert rung == [0, 2, 0]


def test_slack_configuration_is_checked() -> None:
    url, token = Secret("https://hooks.slack.com/x"), Secret("xoxb-1")
    assert list(SlackConfig(api_url=url).check()) == []
    assert list(SlackConfig(bot_token=token, channel="C1").check()) == []
    for wrong in (
        SlackConfig(),
        SlackConfig(api_url=url, bot_token=token, channel="C1"),
        SlackConfig(bot_token=token),
        SlackConfig(api_url=url, channel="C1"),
        SlackConfig(api_url=url, base_url="slack.com"),
    ):
        assert list(wrong.check())


# -- PagerDuty ----------------------------------------------------------------------------------------------------


def pager(service: FakePagerDuty, **options: object) -> PagerDutyReceiver:
    return PagerDutyReceiver(service.config(**options), HttpClient())


def test_pagerduty_trigger_acknowledge_resolve() -> None:
    with FakePagerDuty() as service:
        receiver = pager(service)
        for action in ("open", "repeat", "acknowledge", "resolve"):
            assert receiver.notify(notification(action=action)).kind == "success"
        assert [action for action, _ in service.events] == ["trigger", "trigger", "acknowledge", "resolve"]
        assert service.open == set()
        event = service.bodies[0]
        assert event["payload"]["summary"] == "trtllm-0: scheduler deadlocked, no completions for 2m10s (214 waiting)"
        assert event["payload"]["severity"] == "critical"
        assert event["payload"]["timestamp"] == "2026-12-01T01:37:48Z"
        assert event["payload"]["class"] == "token_budget_deadlock"
        assert event["payload"]["custom_details"]["do_now"][0].startswith("Keep evidence")
        assert set(service.bodies[3]) == {"routing_key", "event_action", "dedup_key"}


@pytest.mark.parametrize(
    ("severity", "option", "sent"),
    [("critical", "", "critical"), ("warning", "", "warning"), ("page", "", "error"), ("critical", "info", "info")],
)
def test_pagerduty_knows_four_severities(severity: str, option: str, sent: str) -> None:
    with FakePagerDuty() as service:
        pager(service, severity=option).notify(notification(alert(severity=severity)))
        assert service.bodies[0]["payload"]["severity"] == sent


@pytest.mark.parametrize(
    ("answer", "kind", "reason"),
    [
        (html(200), "retry", "client"),
        (html(202), "retry", "client"),
        (Reply.json(202, {"status": "error"}), "retry", "client"),
        (
            Reply.json(400, {"errors": ["Length of 'routing_key' is incorrect (should be 32 characters)"]}),
            "permanent",
            "auth",
        ),
        (
            Reply.json(400, {"status": "invalid event", "errors": ["'payload.summary' is too long"]}),
            "degrade",
            "client",
        ),
        (html(400), "degrade", "client"),
        (Reply.text(413, "x"), "degrade", "client"),
        (Reply.text(403, "x"), "permanent", "auth"),
        (Reply.text(404, "x"), "permanent", "client"),
        (Reply.text(500, "x"), "retry", "server"),
        (faults.hang, "retry", "timeout"),
    ],
)
def test_pagerduty_answers(answer: faults.Behaviour, kind: str, reason: str) -> None:
    with FakePagerDuty(answer) as service:
        outcome = pager(service, timeout=0.3).notify(notification())
        assert (outcome.kind, outcome.reason) == (kind, reason)


def test_pagerduty_429_without_a_time_waits_half_a_minute() -> None:
    with FakePagerDuty(faults.busy(None), faults.busy("9")) as service:
        receiver = pager(service)
        assert receiver.notify(notification()).after == 30.0
        assert receiver.notify(notification()).after == 9.0


def test_pagerduty_a_refused_event_gets_smaller_and_keeps_its_link() -> None:
    with FakePagerDuty() as service:
        receiver = pager(service)
        sizes = []
        for degraded in range(4):
            receiver.notify(notification(degraded=degraded))
            sizes.append(len(service.attempts[-1][3]))
            assert service.bodies[-1]["links"] == [{"href": "https://example.com/runbooks/x", "text": "Runbook"}]
        assert sizes[0] > sizes[1] > sizes[2] == sizes[3]


def test_pagerduty_a_key_of_the_wrong_length_never_leaves() -> None:
    with FakePagerDuty() as service:
        config = PagerDutyConfig(routing_key=Secret("short"), url=f"{service.url}/v2/enqueue")
        outcome = PagerDutyReceiver(config, HttpClient()).notify(notification())
        assert (outcome.kind, outcome.reason) == ("permanent", "config")
        assert "5 characters" in outcome.detail
        assert service.attempts == []


def test_pagerduty_eu_is_named_when_a_key_is_refused() -> None:
    with FakePagerDuty(Reply.json(400, {"errors": ["invalid routing_key"]})) as service:
        assert "https://events.eu.pagerduty.com/v2/enqueue" in pager(service).notify(notification()).detail


def test_pagerduty_change_events() -> None:
    with FakePagerDuty() as service:
        note = Notification(
            "team", "k", "change", (), T, notes=("server a restarted",), group_labels={"server": "a"}
        )  # fmt: skip
        assert pager(service).notify(note).kind == "success"
        (arrival,) = service.arrivals
        assert arrival.path == "/v2/change/enqueue"
        assert arrival.body["payload"]["summary"] == "server a restarted"
        assert arrival.body["payload"]["source"] == "a"


def test_the_fake_is_faithful_the_official_client_works_against_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What PagerDuty's own client sends is taken; what the service refuses, and the client lets through, is refused."""
    import pagerduty

    with FakePagerDuty() as service, contextlib.ExitStack() as stack:
        client = pagerduty.EventsApiV2Client(KEY)
        stack.callback(client.close)
        monkeypatch.setattr(client, "_url", service.url, raising=False)
        monkeypatch.setattr(type(client), "url", service.url, raising=False)
        key = client.trigger("the queue is stuck", "server-1", severity="critical", custom_details={"a": 1})
        assert service.open == {key}
        client.acknowledge(key)
        client.resolve(key)
        assert [action for action, _ in service.events] == ["trigger", "acknowledge", "resolve"]
        assert service.open == set()
        for wrong in ({"severity": "page"}, {"summary": "x" * 1025}, {"dedup_key": "k" * 256}):
            arguments = {"summary": "s", "source": "h", "severity": "info", **wrong}
            with pytest.raises(pagerduty.Error):
                client.trigger(**arguments)


# -- webhook ------------------------------------------------------------------------------------------------------


def test_webhook_speaks_alertmanagers_fourth_version() -> None:
    with FakeService() as service:
        config = WebhookConfig(url=Secret(service.url + "/hook"))
        note = notification(
            alert("a"),
            resolved(alert("b"), T),
            group_labels={"failure": "x"},
            group_key="{}:{}",
            external_url="https://w.example",
        )
        assert WebhookReceiver(config, HttpClient()).notify(note).kind == "success"
        (body,) = service.bodies
        assert list(body) == [
            "version", "groupKey", "truncatedAlerts", "status", "receiver", "groupLabels", "commonLabels",
            "commonAnnotations", "externalURL", "alerts", "incident",
        ]  # fmt: skip
        assert (body["version"], body["status"], body["groupKey"]) == ("4", "firing", "{}:{}")
        firing, over = body["alerts"]
        assert (firing["status"], firing["endsAt"]) == ("firing", "0001-01-01T00:00:00Z")
        assert (over["status"], over["endsAt"]) == ("resolved", "2026-12-01T01:39:58Z")
        assert firing["generatorURL"] == "https://w.example/alerts/fp-a"
        assert body["commonLabels"]["alertname"] == "TokenBudgetDeadlock"
        assert "server" not in body["commonLabels"]
        assert service.attempts[0][2]["Idempotency-Key"] == "wedgewatch/prod-eu1/trtllm-0/fp/1"


def test_webhook_strict_receivers_get_nothing_of_ours() -> None:
    with FakeService() as service:
        config = WebhookConfig(url=Secret(service.url), payload="alertmanager", max_alerts=2)
        WebhookReceiver(config, HttpClient()).notify(notification(*(alert(name) for name in "abc")))
        (body,) = service.bodies
        assert "incident" not in body
        assert (len(body["alerts"]), body["truncatedAlerts"]) == (2, 1)


def test_webhook_signature() -> None:
    with FakeService() as service:
        config = WebhookConfig(url=Secret(service.url), hmac_secret=Secret("s3cr3t"))
        WebhookReceiver(config, HttpClient()).notify(notification())
        _, _, headers, data = service.attempts[0]
        signed = headers["X-Wedgewatch-Timestamp"].encode() + b"." + data
        assert headers["X-Wedgewatch-Signature"] == f"sha256={hmac.new(b's3cr3t', signed, hashlib.sha256).hexdigest()}"


def test_webhook_stays_below_half_a_megabyte() -> None:
    """One service answers 429 to what is too large, so a blind retry would never end."""
    loud = [alert(f"s{i}", annotations={"summary": "x" * 8000, "description": "y" * 8000}) for i in range(256)]
    with FakeService() as service:
        WebhookReceiver(WebhookConfig(url=Secret(service.url)), HttpClient()).notify(notification(*loud))
        assert len(service.attempts[0][3]) <= 500_000
        assert service.bodies[0]["truncatedAlerts"] > 0


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (200, "success"), (202, "success"), (204, "success"), (400, "degrade"), (413, "degrade"), (422, "degrade"),
        (401, "permanent"), (403, "permanent"), (404, "permanent"), (410, "permanent"), (418, "permanent"),
        (408, "retry"), (425, "retry"), (429, "retry"), (500, "retry"), (502, "retry"), (599, "retry"),
    ],
)  # fmt: skip
def test_webhook_statuses(status: int, kind: str) -> None:
    with FakeService(Reply(status, b"")) as service:
        assert WebhookReceiver(WebhookConfig(url=Secret(service.url)), HttpClient()).notify(notification()).kind == kind


def test_webhook_a_2xx_whose_body_drips_is_a_success() -> None:
    with FakeService(faults.drip_body) as service:
        config = WebhookConfig(url=Secret(service.url), timeout=0.3)  # type: ignore[arg-type]
        assert WebhookReceiver(config, HttpClient()).notify(notification()).kind == "success"


# -- Teams and Discord --------------------------------------------------------------------------------------------


def test_teams_card() -> None:
    with FakeTeams() as teams:
        receiver = MsTeamsReceiver(teams.config(), HttpClient())
        for degraded in range(4):
            assert receiver.notify(notification(degraded=degraded)).kind == "success"
        (first, *_) = teams.cards
        assert first["body"][0]["inlines"][0]["text"].startswith("[FIRING] trtllm-0: scheduler deadlocked")
        assert first["body"][0]["inlines"][0]["color"] == "attention"
        assert first["actions"][0]["url"] == "https://example.com/runbooks/x"
        sizes = [len(json.dumps(card)) for card in teams.cards]
        assert sizes[0] > sizes[1] > sizes[2]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Reply.text(202, ""), "success"),
        (Reply.text(200, "1"), "success"),
        (Reply.text(200, "Webhook message delivery failed with error: HTTP error 429"), "retry"),
        (Reply.text(413, "x"), "degrade"),
        (Reply.text(400, "x"), "degrade"),
        (Reply.text(401, "x"), "permanent"),
        (faults.busy("3"), "retry"),
    ],
)
def test_teams_answers(answer: Reply, kind: str) -> None:
    with FakeTeams(answer) as teams:
        assert MsTeamsReceiver(teams.config(), HttpClient()).notify(notification()).kind == kind


def test_discord_edits_its_message() -> None:
    with FakeDiscord() as discord:
        receiver = DiscordReceiver(discord.config(), HttpClient())
        first = receiver.notify(notification())
        ref = dict(first.ref)
        assert receiver.notify(notification(action="update", ref=ref)).kind == "success"
        assert receiver.notify(notification(OVER, action="resolve", ref=ref)).kind == "success"
        assert [(arrival.method, arrival.path.count("/messages/")) for arrival in discord.arrivals] == [
            ("POST", 0), ("PATCH", 1), ("PATCH", 1), ("POST", 0),
        ]  # fmt: skip
        assert discord.messages[ref["message_id"]]["embeds"][0]["title"].startswith("\\[RESOLVED\\]")
        assert "recovered after 17m" in discord.bodies[-1]["content"]
        assert discord.attempts[0][1].endswith("?wait=true")
        del discord.messages[ref["message_id"]]
        again = receiver.notify(notification(OVER, action="resolve", ref=ref))
        assert again.ref["message_id"] in discord.messages


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (faults.busy(None, b'{"retry_after": 2.5}'), Outcome.retry("429", reason="rate_limited", after=2.5)),
        (faults.busy("7"), Outcome.retry("429", reason="rate_limited", after=7.0)),
        (Reply.json(404, {"code": 10015}), "permanent"),
        (Reply.json(400, {"code": 50035}), "degrade"),
        (Reply.json(200, {}), "retry"),
        (html(200), "retry"),
        (Reply(204), "success"),
    ],
)
def test_discord_answers(answer: Reply, outcome: Outcome | str) -> None:
    with FakeDiscord(answer) as discord:
        got = DiscordReceiver(discord.config(), HttpClient()).notify(notification())
        assert (got if isinstance(outcome, Outcome) else got.kind) == outcome


def test_discord_plain_text_when_embeds_are_refused() -> None:
    with FakeDiscord() as discord:
        DiscordReceiver(discord.config(), HttpClient()).notify(notification(degraded=1))
        (body,) = discord.bodies
        assert body["embeds"] == []
        assert "scheduler deadlocked" in body["content"]


def test_every_receiver_marks_a_test_and_a_delay() -> None:
    note = replace(notification(), test=True, delayed=6720.0, uncertain=True)
    with FakeSlack() as slack, FakePagerDuty() as service, FakeTeams() as teams, FakeDiscord() as discord:
        for receiver in (
            SlackReceiver(slack.webhook(), HttpClient()),
            pager(service),
            MsTeamsReceiver(teams.config(), HttpClient()),
            DiscordReceiver(discord.config(), HttpClient()),
        ):
            assert receiver.notify(note).kind == "success"
        for fake in (slack, service, teams, discord):
            said = json.dumps(fake.bodies, ensure_ascii=False)
            assert "TEST" in said
            assert "delayed 1h52m" in said
            assert "may be a repeat" in said
