"""``send-test``: a marked pair through the outbox, and what goes wrong said at once. And the registry of receivers."""

from __future__ import annotations

import pytest

from agent.model import Secret
from agent.notify import send_test
from integrations.alertmanager import AlertmanagerConfig
from integrations.base import Receiver
from integrations.http import BasicAuth, HttpConfig, HttpHeader
from integrations.local_receiver import Reply
from integrations.registry import CONFIGS, Context, build, kind_of, secrets_of
from integrations.slack import SlackConfig
from integrations.webhook import WebhookConfig
from tests.delivery.build import Clock, config
from tests.fakes.pagerduty import FakePagerDuty
from tests.fakes.server import FakeService
from tests.fakes.slack import FakeSlack


def test_a_pair_to_every_destination_of_a_receiver() -> None:
    with FakeSlack() as slack, FakePagerDuty() as pager, FakeService() as am:
        made = config(
            {"team": (slack.webhook(), pager.config(), AlertmanagerConfig(urls=(am.url,))), "other": slack.bot()}
        )
        said = [str(result) for result in send_test(made, "team", clock=Clock())]
        assert said == [
            "team/slack: firing delivered",
            "team/slack: resolved delivered",
            "team/pagerduty: firing delivered",
            "team/pagerduty: resolved delivered",
            f"team/alertmanager/{am.url}: firing delivered",
            f"team/alertmanager/{am.url}: resolved delivered",
        ]
        assert slack.texts[0].startswith("[TEST FIRING] test-server: stalled, no cause logged, no completions for 1m")
        assert slack.texts[1].startswith("[TEST RESOLVED]")
        assert "a test sent by hand" in str(slack.bodies[0])
        assert pager.open == set()
        assert "TEST" in pager.bodies[0]["payload"]["summary"]


def test_a_failure_is_said_at_once_with_its_reason() -> None:
    with FakeSlack(Reply.text(404, "no_service")) as slack:
        (result,) = send_test(config({"team": slack.webhook()}), "team", clock=Clock())
        assert str(result) == "team/slack: firing not delivered: no_service"
        assert not result.ok
    down = config({"team": SlackConfig(api_url=Secret("http://127.0.0.1:9/x"))})
    (result,) = send_test(down, "team", clock=Clock())
    assert "http://127.0.0.1:9: connection refused" in str(result)


def test_a_refused_message_is_sent_shorter() -> None:
    with FakeSlack(Reply.text(400, "invalid_blocks")) as slack:
        assert all(result.ok for result in send_test(config({"team": slack.webhook()}), "team", clock=Clock()))
        assert len(slack.attempts) == 3


def test_resolves_are_left_out_where_they_are_turned_off() -> None:
    with FakeSlack() as slack:
        assert len(list(send_test(config({"team": slack.webhook(send_resolved=False)}), "team", clock=Clock()))) == 1


def test_an_unknown_receiver_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        list(send_test(config({}), "nobody"))


# -- registry -----------------------------------------------------------------------------------------------------


def test_every_integration_is_registered_and_is_a_receiver() -> None:
    made = {
        "slack_configs": {"api_url": Secret("https://x")},
        "pagerduty_configs": {"routing_key": Secret("k" * 32)},
        "alertmanager_configs": {"urls": ("http://am:9093",)},
        "webhook_configs": {"url": Secret("https://x")},
        "msteams_configs": {"webhook_url": Secret("https://x")},
        "discord_configs": {"webhook_url": Secret("https://x")},
        "email_configs": {"to": "a@x", "from_": "b@x", "smarthost": "h:25"},
        "kubernetes_event_configs": {},
        "command_configs": {"command": ("true",)},
        "apprise_configs": {"url": Secret("json://x")},
        "terminal_configs": {},
    }
    assert set(CONFIGS) == set(made)
    for key, arguments in made.items():
        options = CONFIGS[key](**arguments)
        receiver = build(options, Context(http_config=HttpConfig()))
        assert isinstance(receiver, Receiver)
        assert receiver.kind == kind_of(options) == key.removesuffix("_configs")
        assert "doc" not in repr(options)
    with pytest.raises(TypeError):
        build(object())
    with pytest.raises(KeyError):
        CONFIGS["carrier_pigeon_configs"]


def test_every_configuration_class_can_be_written_in_yaml() -> None:
    from agent.schema import field_infos

    for key, cls in CONFIGS.items():
        keys = {info.key for info in field_infos(cls)}
        assert {"send_resolved", "timeout", "title", "text", "max_age"} <= keys, key


def test_all_secrets_of_a_configuration_are_found() -> None:
    options = WebhookConfig(
        url=Secret("https://x"),
        hmac_secret=Secret("h"),
        http_config=HttpConfig(
            basic_auth=BasicAuth(username="u", password=Secret("p")),
            http_headers={"X-A": HttpHeader(secrets=(Secret("s"),))},
        ),
    )
    assert [path for path, _ in secrets_of(options)] == [
        "url", "hmac_secret", "http_config.basic_auth.password", "http_config.http_headers.X-A.secrets[0]",
    ]  # fmt: skip


def test_a_receiver_takes_the_global_http_settings_unless_it_has_its_own() -> None:
    with FakeService() as service:
        shared = Context(http_config=HttpConfig(http_headers={"X-A": HttpHeader(values=("shared",))}))
        own = HttpConfig(http_headers={"X-A": HttpHeader(values=("own",))})
        from tests.delivery.build import notification

        build(WebhookConfig(url=Secret(service.url)), shared).notify(notification())
        build(WebhookConfig(url=Secret(service.url), http_config=own), shared).notify(notification())
        assert [sent[2]["X-A"] for sent in service.attempts] == ["shared", "own"]
