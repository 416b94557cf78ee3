"""Real bugs of other alerting programs, one test each, by the number they have in our list; the URL tells the story.

A number without a test here is one of another room: its docstring says where.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from pathlib import Path

import pytest

from agent.config.routing import NotificationsConfig, Route
from agent.model import Alert, Secret, StageEvidence
from agent.notify.worker import Worker
from agent.store import Store
from integrations.base import DeadlineExceeded, DeliveryError, Redirected
from integrations.discord import DiscordConfig
from integrations.http import Authorization, HttpClient, HttpConfig, parse_retry_after
from integrations.local_receiver import Reply
from integrations.message import build as build_message
from integrations.msteams import MsTeamsReceiver
from integrations.pagerduty import PagerDutyConfig, PagerDutyReceiver
from integrations.registry import build
from integrations.slack import SlackConfig, SlackReceiver
from integrations.slack_blocks import message_payload
from integrations.webhook import WebhookConfig
from tests.delivery.build import Rig, T, alert, config, notification, resolved
from tests.fakes import server as faults
from tests.fakes.discord import FakeDiscord
from tests.fakes.pagerduty import KEY, FakePagerDuty
from tests.fakes.server import FakeService
from tests.fakes.slack import FakeSlack
from tests.fakes.teams import FakeTeams

HOSTILE = "<!channel> <@U1> @everyone </x> [a](http://e) {{7*7}}{% raw %} ```end``` \x1b[31mred\x1b[0m \u202egnp.exe"


def with_line(text: str, **changes: object) -> Alert:
    """An alert whose evidence is this text."""
    line = StageEvidence("symptom", T - 130, text, "server.log", 1, "ERROR")
    return alert(stages=(line,), **changes)


# -- rate limits --------------------------------------------------------------------------------------------------


def test_01_slack_429_is_waited_out_and_the_alert_arrives_once() -> None:
    """https://github.com/prometheus/alertmanager/issues/2111

    t   0 fires -> 429, Retry-After 3    t 3 -> 429, Retry-After 3    t 6 -> ok
    """
    with FakeSlack(faults.busy("3"), faults.busy("3")) as slack, Rig(config({"chat": slack.webhook()})) as rig:
        rig.fire(alert())
        rig.run(1.0)  # group_wait
        assert len(slack.attempts) == 1
        rig.run(2.9)
        assert len(slack.attempts) == 1, "asked again before Retry-After"
        rig.run(2.9)
        assert len(slack.attempts) == 2
        rig.run(4)
        assert len(slack.attempts) == 3
        assert slack.texts == ["[FIRING] trtllm-0: scheduler deadlocked, no completions for 2m17s (214 waiting)"]


def test_02_while_limited_a_channel_is_left_alone_and_others_are_not_held_up() -> None:
    """https://github.com/prometheus/alertmanager/pull/2128: sending on while limited can get an app disabled."""
    both = Route(receiver="chat", group_wait=0.0, group_by=("server",), routes=(
        Route(receiver="hook", continue_=True), Route(receiver="chat"),
    ))  # fmt: skip
    with FakeSlack(faults.busy("30")) as slack, FakeService() as hook:
        receivers = {"chat": slack.webhook(), "hook": WebhookConfig(url=Secret(hook.url + "/hook"))}
        with Rig(config(receivers, both)) as rig:
            rig.fire(alert("a"))
            rig.run(1)
            rig.fire(alert("b"), alert("c"))
            rig.run(28)
            assert len(slack.attempts) == 1
            assert len(hook.bodies) == 3
            rig.run(5)
            assert len(slack.texts) == 3


# -- restarts -----------------------------------------------------------------------------------------------------


def integrations_of(tmp_path: Path) -> list[tuple[FakeService, object]]:
    slack, bot, pager, teams, discord, hook = (
        FakeSlack(), FakeSlack(), FakePagerDuty(), FakeTeams(), FakeDiscord(), FakeService(),
    )  # fmt: skip
    made: list[tuple[FakeService, object]] = []
    for service in (slack, bot, pager, teams, discord, hook):
        service.__enter__()
    made.append((slack, slack.webhook()))
    made.append((bot, bot.bot()))
    made.append((pager, pager.config()))
    made.append((teams, teams.config()))
    made.append((discord, discord.config()))
    made.append((hook, WebhookConfig(url=Secret(hook.url + "/hook"))))
    return made


@pytest.mark.parametrize("which", range(6), ids=["slack", "bot", "pagerduty", "teams", "discord", "webhook"])
def test_03_04_a_restart_after_delivery_says_nothing_again(which: int, tmp_path: Path) -> None:
    """https://github.com/TwiN/gatus/issues/679, and for every integration alike:
    https://github.com/erikdarlingdata/PerformanceMonitor/issues/1145"""
    services = integrations_of(tmp_path)
    service, receiver = services[which]
    rig = Rig(config({"team": receiver}), tmp_path / "state")
    try:
        rig.fire(alert())
        rig.run(2)
        said = len(service.attempts)
        assert said == 1
        rig = rig.restart()
        rig.run(600)
        assert len(service.attempts) == said
        rig.over(alert())
        rig.run(2)
        assert len(service.attempts) > said
    finally:
        rig.close()
        for each, _ in services:
            each.__exit__()


def test_05_what_happened_while_we_were_down_is_told_after_the_start(tmp_path: Path) -> None:
    """https://github.com/pmcfadin/acmon/issues/29: the first pass after a start swallowed a real transition.

    The line itself is read by the followers after the start (tests/logs); here: an alert that was committed, and the
    process died before anybody was told.
    """
    with FakePagerDuty() as pager:
        rig = Rig(config({"oncall": pager.config()}), tmp_path)
        rig.fire(alert())  # and dies at once
        rig = rig.restart()
        rig.run(1.5)
        assert pager.events == [("trigger", "wedgewatch/prod-eu1/trtllm-0/fp-trtllm-0")]
        rig.close()


def test_06_half_a_fingerprint_survives_a_restart(tmp_path: Path) -> None:
    """https://github.com/YelpArchive/elastalert/issues/704: events half before, half after a restart were missed.

    The detector's own side is in tests/detect; here: its snapshot and the offsets are of one moment, always.
    """
    store = Store(tmp_path)
    store.commit(offsets={"server.log": 2}, state={"stages": ["start", "pressure"]})
    store.close()
    again = Store(tmp_path)
    assert again.load_offsets() == {"server.log": 2}
    assert again.load_state() == {"stages": ["start", "pressure"]}
    again.close()


def test_07_what_was_over_long_ago_pages_nobody(tmp_path: Path) -> None:
    """https://github.com/YelpArchive/elastalert/issues/2711: a restart flooded 200 old mails."""
    with FakeSlack() as slack, Rig(config({"chat": slack.webhook()}), tmp_path) as rig:
        old = [alert(f"s{i}", now=T - 9000) for i in range(200)]
        rig.fire(*(resolved(item, T - 8000) for item in old))
        rig.run(60)
        assert slack.attempts == []


# -- receivers that hang ------------------------------------------------------------------------------------------


def test_08_a_receiver_that_never_answers_holds_up_nobody() -> None:
    """https://github.com/YelpArchive/elastalert/issues/1954

    Real threads: while one worker sits in an attempt that will not end, another receiver gets two more alerts.
    """
    entered, told = threading.Event(), threading.Event()

    class Hook(FakeService):
        def _before(self, handler, data):  # type: ignore[no-untyped-def]
            if len(self.attempts) >= 2:
                told.set()
            return super()._before(handler, data)

    def stuck(service, handler, data):  # type: ignore[no-untyped-def]
        entered.set()
        return faults.hang(service, handler, data)

    both = Route(receiver="hole", group_wait=0.0, group_by=("server",), routes=(
        Route(receiver="hole", continue_=True), Route(receiver="hook"),
    ))  # fmt: skip
    with FakeService(forever=stuck) as hole, Hook() as hook:
        from agent.notify import Dispatcher

        receivers = {
            "hole": WebhookConfig(url=Secret(hole.url + "/x")),
            "hook": WebhookConfig(url=Secret(hook.url + "/x")),
        }
        store = Store(None)
        dispatcher = Dispatcher(config(receivers, both), store)
        dispatcher.start()
        try:
            first = alert("a", now=time.time())
            store.commit(alerts=[first])
            dispatcher.take([first])
            assert entered.wait(5), "the stuck receiver was never asked"
            for name in ("b", "c"):
                item = alert(name, now=time.time())
                store.commit(alerts=[item])
                dispatcher.take([item])
            assert told.wait(5), "the other receiver waited for the stuck one"
            assert len(hole.attempts) == 1
        finally:
            hole.closing.set()
            dispatcher.stop(0.6)
            store.close()


@pytest.mark.parametrize("behaviour", [faults.drip, faults.drip_body, faults.hang], ids=["headers", "body", "silence"])
def test_09_a_dripping_answer_ends_with_the_deadline(behaviour: faults.Behaviour) -> None:
    """A time-out for each read lets a peer that sends a byte now and then hold a request for ever."""
    with FakeService(behaviour) as service:
        done: list[object] = []

        def attempt() -> None:
            try:
                done.append(HttpClient().request("POST", service.url + "/x", timeout=0.3, body=b"{}"))
            except DeliveryError as error:
                done.append(error)

        thread = threading.Thread(target=attempt, daemon=True)
        thread.start()
        thread.join(10)  # the drip alone would take a quarter of an hour
        assert not thread.is_alive(), "the attempt outlived its deadline"
        answer = done[0]
        assert isinstance(answer, DeadlineExceeded) or not getattr(answer, "complete", True)


def test_10_the_core_never_waits_for_receivers() -> None:
    """https://github.com/open-ace/open-ace/pull/1807: notifying on the hot path. Three receivers hang; the core commits
    and goes on. bench/delivery.py measures how long that takes."""
    with FakeService(forever=faults.hang) as hole:
        from agent.notify import Dispatcher

        receivers = {name: WebhookConfig(url=Secret(f"{hole.url}/{name}")) for name in ("a", "b", "c")}
        tree = Route(
            receiver="a",
            group_wait=0.0,
            group_by=("server",),
            routes=tuple(Route(receiver=name, continue_=True) for name in receivers),
        )
        store = Store(None)
        dispatcher = Dispatcher(config(receivers, tree), store)
        dispatcher.start()

        def core() -> None:
            for number in range(50):
                item = alert(f"s{number}", now=time.time())
                store.commit(alerts=[item])
                dispatcher.take([item])

        thread = threading.Thread(target=core, daemon=True)
        thread.start()
        thread.join(8)  # shorter than one attempt's time-out
        held_up = thread.is_alive()
        hole.closing.set()
        dispatcher.stop(0.6)
        store.close()
        assert not held_up


def test_11_a_dead_peer_takes_nothing_from_the_other() -> None:
    """https://github.com/prometheus/prometheus/issues/7676. With a real pair: test_alertmanager_peer.py."""
    from integrations.alertmanager import AlertmanagerConfig

    with FakeService() as good, FakeService(forever=Reply.text(503, "no")) as bad:
        both = AlertmanagerConfig(urls=(bad.url, good.url))
        with Rig(config({"am": both})) as rig:
            rig.fire(alert())
            for _ in range(5):
                for level in rig.dispatcher.level_workers.values():
                    level.step(rig.clock.now)
                rig.clock.advance(60)
            assert len([body for body in good.bodies if isinstance(body, list)]) == 5
            failing = {name: level.failures for name, level in rig.dispatcher.level_workers.items()}
            assert sorted(failing.values()) == [0, 5]


# -- limits -------------------------------------------------------------------------------------------------------


def test_12_a_summary_over_1024_is_trimmed_not_refused() -> None:
    """https://github.com/prometheus/alertmanager/issues/1700"""
    with FakePagerDuty() as pager:
        receiver = PagerDutyReceiver(pager.config(title="😀" * 5000), HttpClient())
        assert receiver.notify(notification()).kind == "success"
        assert 0 < len(pager.bodies[0]["payload"]["summary"]) <= 1024


def test_13_a_megabyte_of_evidence_fits_into_an_event() -> None:
    """https://github.com/prometheus/alertmanager/issues/2178"""
    with FakePagerDuty() as pager:
        receiver = PagerDutyReceiver(pager.config(), HttpClient())
        many = tuple(
            StageEvidence(f"s{i}", T, "x" * 200_000 + "\nTheError: the end", "server.log", i, "ERROR")
            for i in range(20)
        )
        outcome = receiver.notify(notification(alert(stages=many, annotations={
            "summary": "s" * 2_000_000, "runbook_url": "https://example.com/runbooks/x"
        })))  # fmt: skip
        assert outcome.kind == "success"
        data = pager.attempts[0][3]
        assert len(data) < 512_000
        assert pager.bodies[0]["links"][0]["href"] == "https://example.com/runbooks/x"


def test_14_a_section_over_3000_is_cut_and_a_refusal_is_repeated_as_text() -> None:
    """https://github.com/PostHog/posthog/pull/70104"""
    with FakeSlack() as slack, Rig(config({"chat": slack.webhook()})) as rig:
        rig.fire(with_line("x" * 50_000))
        rig.run(2)
        assert len(slack.bodies) == 1
    with FakeSlack(Reply.text(400, "invalid_blocks")) as slack, Rig(config({"chat": slack.webhook()})) as rig:
        rig.fire(alert())
        rig.run(2)
        assert len(slack.attempts) == 2
        assert "blocks" not in slack.bodies[0]
        assert "trtllm-0: scheduler deadlocked" in slack.bodies[0]["text"]
        assert rig.meter.of("notifications_failed_total", "chat/slack") == 1


def test_15_the_undocumented_total_is_kept() -> None:
    """https://github.com/slackapi/bolt-js/issues/2509; over all inputs: test_limits_properties.py"""
    long = "word " * 3000
    lines = tuple(StageEvidence(f"s{i}", T, long, "server.log", i, "ERROR") for i in range(12))
    loud = alert(
        stages=lines,
        annotations={"summary": long, "description": long},
        context={"actions": [long] * 9, "excluded": [long] * 9},
    )
    payload = message_payload(build_message(notification(loud)))
    assert sum(len(text) for text in _texts(payload["blocks"])) <= 10_000
    assert len(payload["blocks"]) <= 50


def test_16_a_storm_stays_under_50_blocks_and_says_how_many_more() -> None:
    """https://github.com/trunk-io/plugins/pull/200"""
    with FakeSlack() as slack, Rig(config({"chat": slack.webhook()})) as rig:
        rig.fire(*(alert(f"server-{i:03d}") for i in range(200)))
        rig.run(2)
        assert len(slack.bodies) == 1
        body = slack.bodies[0]
        assert len(body["blocks"]) <= 50
        assert body["text"].startswith("[FIRING] 200 servers: scheduler deadlocked for 2m11s: server-000, server-001")
        assert any("more" in text for text in _texts(body["blocks"]))


@pytest.mark.parametrize("unit", ["漢", "😀", "👨‍👩‍👧", "🇩🇪", "e\u0301", "👍🏽", "न\u093f"])
def test_17_a_cut_parts_no_character(unit: str) -> None:
    """https://github.com/sourcegraph/sourcegraph/pull/50083: cutting bytes broke UTF-8."""
    from integrations.text import clip, clip_bytes, utf16

    for limit in range(1, 60):
        for cut in (clip(unit * 40, limit), clip(unit * 40, limit, utf16), clip_bytes(unit * 40, limit + 3)):
            assert cut.encode().decode() == cut
            body = cut.removesuffix("…")
            assert body == unit * (len(body) // len(unit)), f"{unit!r} was parted at {limit}"


# -- hostile text -------------------------------------------------------------------------------------------------


def test_18_mentions_and_markup_in_a_log_line_are_inert() -> None:
    """https://github.com/langfuse/langfuse/pull/13874: the fallback text had been forgotten.
    https://github.com/DiscordSRV/DiscordSRV/issues/712"""
    loud = with_line(HOSTILE, annotations={"summary": HOSTILE}, server="<!here>")
    payload = message_payload(build_message(notification(loud)))
    for text in [payload["text"], *_texts(payload["blocks"])]:
        assert "<!channel>" not in text
        assert "<!here>" not in text
        assert "<@U1>" not in text
        assert text.count("```") in (0, 2)
        assert "\x1b" not in text
        assert "\u202e" not in text
    with FakeDiscord() as discord:
        assert build(discord.config()).notify(notification(loud)).kind == "success"
        (shown,) = discord.messages.values()
        assert shown["allowed_mentions"] == {"parse": []}
        assert "@everyone" not in json.dumps(shown, ensure_ascii=False)
        assert "[a](http://e)" not in shown["embeds"][0]["description"].split("```")[0]
    with FakeTeams() as teams:
        assert build(teams.config()).notify(notification(loud)).kind == "success"
        assert all(run["type"] == "TextRun" for block in teams.cards[0]["body"] for run in block["inlines"])


def test_19_a_line_break_in_a_subject_writes_no_header() -> None:
    """https://github.com/distribution/distribution/pull/4900; with a real SMTP server: test_email.py"""
    from integrations.email import EmailConfig, EmailReceiver

    sender = EmailReceiver(EmailConfig(to="a@example.com", from_="w@example.com", smarthost="127.0.0.1:1"))
    mail = sender._mail(notification(alert("x\r\nBcc: evil@example.com\r\n\r\nboo")))
    assert mail["Bcc"] is None
    assert "\n" not in mail["Subject"]
    raw = mail.as_bytes()
    assert raw.split(b"\n\n")[0].lower().count(b"\nbcc:") == 0


# -- secrets ------------------------------------------------------------------------------------------------------

_SECRETS = ("s3cr3t", KEY, "tok-abcdef")


@pytest.mark.parametrize(
    "behaviour",
    [
        faults.hang, faults.reset, faults.not_http, faults.redirect, faults.lie, faults.huge,
        Reply.text(404, "no_service for s3cr3t-webhook-path"), Reply.text(500, "rollup_error"), faults.busy("1"), None,
    ],
    ids=["hang", "reset", "not http", "redirect", "lie", "huge", "404", "500", "429", "refused"],
)  # fmt: skip
def test_20_no_secret_in_logs_store_or_status(
    behaviour: faults.Behaviour | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """https://github.com/DependencyTrack/dependency-track/issues/1160: webhook URLs in logs. The host stays visible."""
    caplog.set_level(logging.DEBUG)
    with FakeSlack(forever=behaviour) as slack:
        url = slack.url if behaviour is not None else "http://127.0.0.1:9"
        receiver = SlackConfig(api_url=Secret(f"{url}/services/T0/B0/s3cr3t-webhook-path"), timeout=0.2)  # type: ignore[arg-type]
        with Rig(config({"chat": receiver}), tmp_path) as rig:
            rig.fire(alert())
            rig.run(3)
            rows = rig.store.outbox(states=("pending", "sending", "dead", "sent"))
            assert rows
            seen = caplog.text + json.dumps(rig.dispatcher.status()) + repr(rows) + repr(rig.config)
            if behaviour in (faults.reset, faults.hang, None):
                assert "127.0.0.1" in rows[0].last_error
        disk = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    slack.closing.set()
    for secret in _SECRETS:
        assert secret not in seen
        assert secret.encode() not in disk


def test_21_secrets_in_evidence_are_hidden_everywhere(tmp_path: Path) -> None:
    """https://github.com/Kometa-Team/Kometa/issues/3472: the alert itself held a token."""
    leaky = with_line(
        "401 for https://bob:hunter2@hub.example.com/m?token=abc123&x=1 Authorization: Bearer tok-abcdef "
        "hf_AbCdEfGhIjKl sk-proj-abcdef123456 AKIAIOSFODNN7EXAMPLE password=letmein",
        annotations={"summary": "failed with sk-proj-abcdef123456"},
    )
    hidden = ("hunter2", "abc123", "tok-abcdef", "hf_AbCdEfGhIjKl", "sk-proj", "AKIAIOSFODNN7EXAMPLE", "letmein")
    with FakeSlack() as slack, FakeService() as hook:
        receivers = {"team": (slack.webhook(), WebhookConfig(url=Secret(hook.url + "/x")))}
        with Rig(config(receivers), tmp_path) as rig:
            rig.fire(leaky)
            rig.run(2)
        sent = json.dumps([slack.bodies, hook.bodies])
        disk = b"".join(path.read_bytes() for path in tmp_path.iterdir()).decode("utf-8", "replace")
        assert "hub.example.com" in sent
        for secret in hidden:
            assert secret not in sent
            assert secret not in disk


def test_22_a_printed_configuration_holds_no_secret() -> None:
    """https://github.com/grafana/loki/issues/6184"""
    from agent.config import render

    made = config(
        {
            "a": PagerDutyConfig(routing_key=Secret(KEY)),
            "b": SlackConfig(api_url=Secret("https://hooks.slack.com/services/T/B/s3cr3t")),
            "c": DiscordConfig(webhook_url=Secret("https://discord.com/api/webhooks/1/s3cr3t")),
            "d": WebhookConfig(
                url=Secret("https://x/s3cr3t"),
                hmac_secret=Secret("tok-abcdef"),
                http_config=HttpConfig(
                    authorization=Authorization(credentials=Secret("tok-abcdef")),
                    proxy_url=Secret("http://u:s3cr3t@proxy:3128"),
                ),
            ),
        }
    )
    printed = render(made) + repr(made) + str(made)
    assert "<secret>" in printed
    for secret in _SECRETS:
        assert secret not in printed


# -- resolves -----------------------------------------------------------------------------------------------------


def test_23_whoever_was_told_hears_that_it_is_over_whatever_the_routes_say_now(tmp_path: Path) -> None:
    """https://github.com/netdata/netdata/issues/18179: a severity filter kept the resolve back.

    t 0 critical -> oncall    t 10 severity falls to warning    t 20 reload: no route to oncall    t 30 over
    """
    with FakePagerDuty() as pager, FakeSlack() as slack:
        receivers = {"chat": slack.webhook(), "oncall": pager.config()}
        only_critical = Route(
            receiver="chat", group_wait=0.0, routes=(Route(receiver="oncall", matchers=('severity="critical"',)),)
        )
        rig = Rig(config(receivers, only_critical), tmp_path)
        rig.fire(alert())
        rig.run(1)
        assert len(pager.open) == 1
        rig.fire(alert(severity="warning"))
        rig.run(10)
        rig.dispatcher.reload(config({"chat": slack.webhook()}, Route(receiver="chat", group_wait=0.0)))
        rig.over(alert(severity="warning"))
        rig.run(10)
        assert pager.open == set()
        assert [action for action, _ in pager.events][-1] == "resolve"
        rig.close()


def test_23_a_new_route_does_not_take_the_resolve_away(tmp_path: Path) -> None:
    """The same over a restart: the receiver is still there, no route leads to it any more."""
    with FakePagerDuty() as pager, FakeSlack() as slack:
        receivers = {"oncall": pager.config(), "chat": slack.webhook()}
        rig = Rig(config(receivers, Route(receiver="oncall", group_wait=0.0)), tmp_path)
        rig.fire(alert())
        rig.run(1)
        rig = rig.restart(config(receivers, Route(receiver="chat", group_wait=0.0)))
        rig.over(alert())
        rig.run(2)
        assert pager.open == set()
        rig.close()


def test_24_keys_are_stable_and_distinct(tmp_path: Path) -> None:
    """https://github.com/elastic/kibana/issues/77772, https://github.com/klen/graphite-beacon/pull/109"""
    from agent.notify.pages import key_for

    one = alert("a")
    assert key_for([one]) == key_for(
        [one.with_(severity="warning", failure="kv_cache_deadlock", confidence="probable")]
    )
    keys = {
        key_for([item])
        for item in (
            one,
            alert("b"),
            alert("a", fingerprint="another rule"),
            alert("a", labels={**one.labels, "cluster": "prod-us1"}),
        )
    }
    assert len(keys) == 4
    with FakePagerDuty() as pager:
        rig = Rig(config({"oncall": pager.config()}), tmp_path)
        rig.fire(one)
        rig.run(2)
        rig = rig.restart()
        rig.fire(one.with_(severity="warning"))
        rig.run(61)
        rig.over(one)
        rig.run(2)
        rig.close()
        assert len({key for _, key in pager.events}) == 1
        assert pager.open == set()


def test_25_over_while_we_were_away_is_resolved_after_the_start(tmp_path: Path) -> None:
    """https://github.com/VictoriaMetrics/VictoriaMetrics/pull/11371"""
    with FakePagerDuty() as pager:
        rig = Rig(config({"oncall": pager.config()}), tmp_path)
        rig.fire(alert())
        rig.run(2)
        rig.store.commit(alerts=[resolved(alert(), rig.clock.now)])  # committed, and dies
        rig = rig.restart()
        rig.run(60)
        assert [action for action, _ in pager.events] == ["trigger", "resolve"]
        rig.close()


def test_26_an_alert_that_stays_open_is_not_resolved_by_silence(tmp_path: Path) -> None:
    """https://github.com/prometheus/alertmanager/issues/44: the monitor was down, and said "resolved". That a failing
    scrape is no recovery is the core's (tests/detect); here: nothing but a committed resolve ends a page."""
    with FakePagerDuty() as pager:
        rig = Rig(config({"oncall": pager.config()}), tmp_path)
        rig.fire(alert())
        rig.run(2)
        for _ in range(5):
            rig.run(3600)
            rig = rig.restart()
        assert "resolve" not in [action for action, _ in pager.events]
        rig.close()


def test_27_a_resend_interval_too_long_for_alertmanager_is_warned_of() -> None:
    """https://github.com/prometheus/alertmanager/issues/952; half an hour with a real one: test_alertmanager_peer.py"""
    from integrations.alertmanager import AlertmanagerConfig

    faults_found = list(AlertmanagerConfig(urls=("http://am:9093",), resend_interval=120.0).check())  # type: ignore[arg-type]
    assert faults_found[0][0] == "resend_interval"
    assert faults_found[0][2:] == ("warning",)
    assert list(AlertmanagerConfig(urls=("http://am:9093",)).check()) == []


# 28 (clock skew swallows alerts) and 29 (one bad alert in a batch) need a real Alertmanager: test_alertmanager_peer.py


# -- storms, floods, dead letters ---------------------------------------------------------------------------------


def test_30_64_servers_in_ten_seconds_are_one_message() -> None:
    """https://github.com/influxdata/kapacitor/issues/828"""
    with FakeSlack() as slack, FakePagerDuty() as pager:
        receivers = {"team": (slack.webhook(), pager.config())}
        with Rig(config(receivers, Route(receiver="team", group_wait=10.0))) as rig:
            for number in range(64):
                rig.fire(alert(f"s{number:02d}"))
                rig.run(10 / 64)
            rig.run(15)
            assert len(slack.texts) == 1
            assert len(pager.open) == 1
            rig.over(*(alert(f"s{number:02d}") for number in range(64)))
            rig.run(5)
            assert len(slack.texts) == 2
            assert pager.open == set()


def test_30_a_storm_of_single_messages_is_put_together() -> None:
    """64 groups of one: the limit a minute holds, and nobody is left out."""
    limits = NotificationsConfig(storm_limit=10)
    alone = Route(receiver="chat", group_wait=0.0, group_by=("server",))
    with FakeSlack() as slack, Rig(config({"chat": slack.webhook()}, alone, limits=limits)) as rig:
        rig.fire(*(alert(f"s{number:02d}") for number in range(64)))
        rig.run(1)
        assert len(slack.bodies) == 10
        assert slack.texts[-1].startswith("[FIRING] 55 servers")


def test_30_an_alert_that_comes_and_goes_is_one_incident() -> None:
    """https://github.com/louislam/uptime-kuma/issues/4779

    ten times an hour: 3 min on, 3 min off. Told four times, then "flapping", then nothing until it is quiet.
    """
    with FakePagerDuty() as pager, FakeSlack() as slack:
        receivers = {"team": (pager.config(), slack.bot())}
        with Rig(config(receivers, Route(receiver="team", group_wait=0.0))) as rig:
            for _ in range(10):
                rig.fire(alert(now=rig.clock.now))
                rig.run(180)
                rig.over(alert(now=rig.clock.now))
                rig.run(180)
            opened = [action for action, _ in pager.events].count("trigger")
            assert opened == 4
            assert len(pager.open) == 1, "it flaps, so it is not over"
            assert "flapping: 4 times" in json.dumps(slack.bodies)
            rig.run(1200)
            assert pager.open == set()


def test_31_after_a_long_outage_only_what_holds_now_is_said() -> None:
    """https://github.com/bcgov/entity/issues/2253: a flood of hours-old mails on recovery.

    0:00 receiver down, A fires   0:30 B fires   1:00 B is over   1:30 A changes   2:00 receiver back
    """
    with FakeSlack(forever=Reply.text(503, "down")) as slack, FakePagerDuty(forever=Reply.text(503, "down")) as pager:
        receivers = {"team": (slack.webhook(), pager.config())}
        alone = Route(receiver="team", group_wait=0.0, group_by=("server",))
        with Rig(config(receivers, alone, limits=NotificationsConfig(self_alerts=False))) as rig:
            rig.fire(alert("a", confidence="probable"))
            rig.run(1800)
            rig.fire(alert("b", now=rig.clock.now))
            rig.run(1800)
            rig.over(alert("b", now=rig.clock.now))
            rig.run(1800)
            rig.fire(alert("a"))
            rig.run(1320)
            slack.forever = pager.forever = None
            rig.run(120)
            said = [body["text"].split("\n")[0] for body in slack.bodies]
            assert [text for text in said if " a:" in text] == [
                "[FIRING] a: scheduler deadlocked, no completions for 1h54m (214 waiting)"
            ]
            assert "delayed 1h52m" in json.dumps(slack.bodies)
            assert "(confirmed)" in json.dumps(slack.bodies)
            assert [key.split("/")[2] for key in pager.open] == ["a"], "nobody is woken for what is over"


def test_32_a_dead_letter_can_be_seen_and_retried() -> None:
    """https://github.com/Pulsefy/Soter/issues/945"""
    with FakeSlack(Reply.text(404, "no_service")) as slack, FakeService() as hook:
        receivers = {"chat": slack.webhook(), "hook": WebhookConfig(url=Secret(hook.url + "/x"))}
        tree = Route(receiver="hook", group_wait=0.0, routes=(Route(receiver="chat", matchers=('server="trtllm-0"',)),))
        with Rig(config(receivers, tree)) as rig:
            rig.fire(alert())
            rig.run(2)
            (dead,) = rig.store.outbox(states=("dead",))
            assert dead.last_error == "no_service"
            assert rig.meter.of("notifications_dead_total", "chat/slack") == 1
            assert rig.dispatcher.status()[0]["dead"] == 1
            told = [item["labels"]["alertname"] for body in hook.bodies for item in body["alerts"]]
            assert told == ["WedgewatchDeliveryFailing"], "the others are told that this one fails"
            assert rig.store.revive() == 1
            rig.run(6)
            assert len(slack.bodies) == 1
            assert rig.store.outbox(states=("dead",)) == []
            assert hook.bodies[-1]["status"] == "resolved"


# -- TLS, proxies: 33 and 34 are in test_http.py ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("3", 3.0), ("1.5", 1.5), ("0", 1.0), ("-1", None), ("abc", None), ("1" + "0" * 30, 300.0), ("", None),
        (None, None), ("nan", None), ("inf", None), ("Wed, 21 Oct 2015 07:28:10 GMT", 10.0), ("1e400", None),
        ("Wed, 21 Oct 2015 06:28:10 GMT", 1.0), ("9" * 4000, None), ("Wed, 99 Foo 2015", None), (2.5, 2.5),
        (True, None),
    ],
)  # fmt: skip
def test_35_retry_after_in_all_its_forms(given: str | float | None, seconds: float | None) -> None:
    """https://github.com/notatallshaw/nab/pull/596, https://github.com/rpush/rpush/pull/737"""
    assert parse_retry_after(given, now=1445412480.0) == seconds


def test_36_a_card_stays_small_enough_for_teams() -> None:
    """https://github.com/MicrosoftDocs/msteams-docs/issues/11274: 24453 bytes became 28897 of 28672"""
    lines = tuple(StageEvidence(f"s{i}", T, "<a href='x'>" * 400, "server.log", i, "ERROR") for i in range(12))
    with FakeTeams() as teams:
        receiver = MsTeamsReceiver(teams.config(), HttpClient())
        assert (
            receiver.notify(notification(alert(stages=lines, annotations={"summary": "'<>'" * 900}))).kind == "success"
        )
        assert len(teams.attempts[0][3]) <= 18_000
        assert len(teams.cards) == 1


def test_36_an_error_in_words_with_status_200_is_no_success() -> None:
    """https://github.com/prometheus-msteams/prometheus-msteams/issues/29"""
    said = "Webhook message delivery failed with error: Microsoft Teams endpoint returned HTTP error 413"
    with FakeTeams(Reply.text(200, said)) as teams:
        assert MsTeamsReceiver(teams.config(), HttpClient()).notify(notification()).kind == "degrade"


def test_37_a_redirect_to_a_login_page_is_a_failure() -> None:
    """A POST that is redirected becomes a GET, and the login page's 200 looks like success."""
    with FakeService(faults.redirect) as service:
        with pytest.raises(Redirected, match=r"redirect to https://sso\.example\.com, which is not followed"):
            HttpClient().request("POST", service.url + "/hook", timeout=5, body=b"{}")
        assert len(service.attempts) == 1


def test_38_netrc_does_not_replace_our_authorization(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """~/.netrc overrides an explicit Authorization header unless it is told not to."""
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine 127.0.0.1 login mallory password wrong\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HOME", str(tmp_path))
    with FakeService() as service:
        client = HttpClient(HttpConfig(authorization=Authorization(credentials=Secret("tok-abcdef"))))
        client.request("POST", service.url + "/hook", timeout=5, body=b"{}")
        assert service.attempts[0][2]["Authorization"] == "Bearer tok-abcdef"


def test_39_a_huge_binary_error_body_is_read_to_a_bound_and_stored_short(tmp_path: Path) -> None:
    """50 MB of error body cost 96 MB of memory."""
    with FakeService(faults.huge) as service:
        answer = HttpClient().request("POST", service.url + "/x", timeout=5, body=b"{}")
        assert len(answer.body) <= 64 * 1024
        assert not answer.complete
    with (
        FakeService(forever=faults.huge) as service,
        Rig(config({"hook": WebhookConfig(url=Secret(service.url + "/x"))}), tmp_path) as rig,
    ):
        rig.fire(alert())
        rig.run(3)
        (row,) = rig.store.outbox()
        assert len(row.last_error) <= 256
        assert row.last_error.isprintable()


def test_40_a_template_in_a_log_line_is_data_and_a_broken_template_loses_no_alert() -> None:
    """https://github.com/pallets/jinja/issues/549"""
    loud = with_line("{{7*7}}{% raw %} {{ server }}")
    for title, text in [("", ""), ("{{ nothing.there }}", "{{ broken"), ("{{ a | b | c }}", "{{}}"), ("{% x %}", " ")]:
        with FakeSlack() as slack:
            receiver = SlackReceiver(slack.webhook(title=title, text=text), HttpClient())
            assert receiver.notify(notification(loud)).kind == "success"
            shown = json.dumps(slack.bodies, ensure_ascii=False)
            assert "{{7*7}}{% raw %} {{ server }}" in shown


def test_40_title_and_text_can_be_written_by_the_user() -> None:
    with FakeSlack() as slack:
        own = slack.webhook(
            title="{{ server }} is stuck ({{ labels.cluster }})", text="See {{ failure }}: {{ summary }}"
        )
        SlackReceiver(own, HttpClient()).notify(notification())
        assert slack.texts == ["[FIRING] trtllm-0 is stuck (prod-eu1)"]
        assert "See token_budget_deadlock: The scheduler's loop ended" in slack.bodies[0]["text"]


# 41 (a log that may not be read) is in tests/logs


def test_42_after_the_fault_is_mended_what_stands_is_told_once(tmp_path: Path) -> None:
    """https://github.com/traceroot-ai/traceroot/pull/2204

    t 0 fires -> 404    t 60 configuration mended, reload -> told, once
    """
    with FakeSlack(Reply.text(404, "no_service")) as slack:
        wrong = SlackConfig(api_url=Secret(slack.url + "/services/old"))
        with Rig(config({"chat": wrong}), tmp_path) as rig:
            rig.fire(alert())
            rig.run(60)
            assert len(slack.attempts) == 1
            rig.dispatcher.reload(config({"chat": slack.webhook()}))
            rig.run(120)
            assert len([text for text in slack.texts if "trtllm-0" in text]) == 1
            assert rig.store.outbox(states=("dead",)) == []
            rig.over(alert())
            rig.run(5)
            assert "[RESOLVED] trtllm-0" in slack.texts[-1]


def test_42_a_secret_file_that_changes_is_enough(tmp_path: Path) -> None:
    """No reload: the file of the webhook's URL is read at each send."""
    with FakeSlack(Reply.text(404, "no_service")) as slack:
        secret = tmp_path / "webhook"
        secret.write_text(slack.url + "/services/old\n")
        with Rig(config({"chat": SlackConfig(api_url=Secret(path=str(secret)))}), tmp_path / "state") as rig:
            rig.fire(alert())
            rig.run(60)
            assert len(slack.attempts) == 1
            secret.write_text(slack.url + slack.path + "\n")
            rig.run(60)
            assert len([text for text in slack.texts if "trtllm-0" in text]) == 1


def test_43_metrics_have_only_known_labels() -> None:
    """https://github.com/kumina/openvpn_exporter/issues/19: the real registry takes every name and label we use."""
    from agent.telemetry import Telemetry
    from tests.delivery.build import Clock

    telemetry = Telemetry(version="test", process=False)
    with FakeSlack(Reply.text(500, "x"), faults.busy("1"), Reply.text(400, "invalid_blocks")) as slack:
        clock = Clock()
        store = Store(None, clock=clock)
        from agent.notify import Dispatcher

        made = config({"chat": slack.webhook()}, Route(receiver="chat", group_wait=0.0))
        dispatcher = Dispatcher(made, store, clock, meter=telemetry)
        store.commit(alerts=[alert()])
        for _ in range(40):
            dispatcher.tick(clock.now)
            dispatcher.workers["chat/slack"].step(clock.now)
            clock.advance(5)
        page = telemetry.render()[1].decode()
        assert 'wedgewatch_notifications_total{integration="slack",receiver="chat/slack"} 1.0' in page
        store.close()


def test_44_a_bot_message_is_edited_by_channel_id_and_a_deleted_one_is_posted_anew() -> None:
    """https://github.com/slackapi/hubot-slack/issues/568, https://github.com/slackapi/python-slack-sdk/issues/1254"""
    with FakeSlack() as slack, Rig(config({"chat": slack.bot()})) as rig:
        rig.fire(alert())
        rig.run(2)
        (stamp,) = slack.desk.messages
        rig.over(alert())
        rig.run(2)
        assert slack.desk.messages[stamp]["text"].startswith("[RESOLVED]")
        assert [arrival.path for arrival in slack.arrivals] == [
            "/api/chat.postMessage", "/api/chat.update", "/api/chat.postMessage",
        ]  # fmt: skip
        assert slack.bodies[-1]["thread_ts"] == stamp
    with FakeSlack() as slack, Rig(config({"chat": slack.bot()})) as rig:
        rig.fire(alert())
        rig.run(2)
        slack.delete(next(iter(slack.desk.messages)))
        rig.over(alert())
        rig.run(2)
        (again,) = slack.desk.messages.values()
        assert again["text"].startswith("[RESOLVED]")


def test_45_resolves_can_be_left_to_people() -> None:
    """https://github.com/department-of-veterans-affairs/va.gov-cms/issues/8057. That recovery must last is the core's
    (keep_firing_for)."""
    with FakePagerDuty() as pager, Rig(config({"oncall": pager.config(send_resolved=False)})) as rig:
        rig.fire(alert())
        rig.run(2)
        rig.over(alert())
        rig.run(60)
        assert [action for action, _ in pager.events] == ["trigger"]
        rig.fire(alert(now=rig.clock.now))
        rig.run(60)
        assert [action for action, _ in pager.events] == ["trigger", "trigger"], "a new episode is told again"


def _texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.values() for text in _texts(item)]
    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]
    return [value] if isinstance(value, str) else []


def test_the_worker_survives_a_receiver_with_a_fault_of_its_own() -> None:
    """A renderer that raises must not end the worker; the message goes out with less in it."""
    from agent.notify.values import Target
    from agent.store import OutboxRow, Page
    from tests.delivery.build import Clock, ScriptedReceiver

    clock = Clock()
    receiver = ScriptedReceiver()
    receiver.answers = [ZeroDivisionError("bug"), ZeroDivisionError("bug")]
    with Store(None, clock=clock) as store:
        page = Page("x/y", "key", "", T, T, {"members": {}})
        body = {"alerts": [alert().to_json(context=True)], "seq": 1}
        store.commit(pages=[page], outbox=[OutboxRow("x/y", -1, "open", body, T)])
        target = Target("x/y", "x", "y", receiver.traits)
        worker = Worker(target, receiver, store, clock=clock, on_event=lambda event: None)
        logging.getLogger("agent.notify.worker").setLevel(logging.CRITICAL)
        for _ in range(3):
            worker.step(clock.now)
        assert [item.degraded for item in receiver.told] == [0, 1, 2]
        assert store.outbox(states=("sent",))
