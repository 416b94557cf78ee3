"""Against real Alertmanagers: restart, skewed clocks, a peer that hangs, silences. Cases 11, 27, 28 and 29.

Time in here is real, since it is the other process's; nothing depends on how much of it passes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.config.routing import Route
from agent.model import Secret
from agent.notify import Dispatcher
from agent.store import Store
from integrations.alertmanager import AlertmanagerConfig, AlertmanagerPeer, label_set
from integrations.http import HttpClient
from integrations.local_receiver import Reply
from integrations.webhook import WebhookConfig
from tests.delivery.build import T, alert, config, resolved
from tests.fakes import server as faults
from tests.fakes.alertmanager import AMTOOL, BINARY, RealAlertmanager, free_port, until
from tests.fakes.server import FakeService

real = [
    pytest.mark.peer,
    pytest.mark.skipif(BINARY is None or AMTOOL is None, reason="no Alertmanager (Debian: prometheus-alertmanager)"),
]


def peer_of(url: str, **options: Any) -> AlertmanagerPeer:
    return AlertmanagerPeer(url, AlertmanagerConfig(urls=(url,), **options), HttpClient(), "http://w.example")


def statuses(hook: FakeService) -> list[tuple[str, str]]:
    """What Alertmanager told its receiver: (status, server)."""
    return [(item["status"], item["labels"]["server"]) for body in hook.bodies for item in body["alerts"]]


@pytest.fixture
def hook() -> Iterator[FakeService]:
    with FakeService() as service:
        yield service


@pytest.fixture
def am(tmp_path: Path, hook: FakeService) -> Iterator[RealAlertmanager]:
    with RealAlertmanager(tmp_path, hook.url + "/hook", resolve_timeout="3s") as process:
        yield process


class TestReal:
    """With the Debian package."""

    pytestmark = real

    def test_firing_and_resolved_arrive_with_what_explains_them(self, am: RealAlertmanager, hook: FakeService) -> None:
        peer, now = peer_of(am.url), time.time()
        fired = alert(now=now, labels={"alertname": "x", "größe-1.0": "ü", "9lives": "y", "empty": "", "cluster": "eu"})
        assert peer.push([fired], now=now).kind == "success"
        until(lambda: statuses(hook), "a notification")
        (shown,) = am.alerts()
        assert shown["labels"]["alertname"] == "TokenBudgetDeadlock"
        assert shown["labels"]["gr__e_1_0"] == "ü"
        assert shown["labels"]["_9lives"] == "y"
        assert "empty" not in shown["labels"]
        assert shown["annotations"]["summary"] == "The scheduler's loop ended"
        assert "AssertionError" in shown["annotations"]["evidence"]
        assert shown["generatorURL"] == "http://w.example/alerts/fp-trtllm-0"
        assert "TokenBudgetDeadlock" in am.amtool("alert", "query", "server=trtllm-0")
        assert peer.states() == {"fp-trtllm-0": "active"}
        over = resolved(fired, time.time())
        assert peer.push([over], now=time.time()).kind == "success"
        until(lambda: ("resolved", "trtllm-0") in statuses(hook), "the resolve")
        assert statuses(hook) == [("firing", "trtllm-0"), ("resolved", "trtllm-0")]

    def test_a_restarted_alertmanager_is_told_again(self, am: RealAlertmanager, hook: FakeService) -> None:
        """It forgets every alert; the next round puts that right."""
        peer, fired = peer_of(am.url), alert(now=time.time())
        peer.push([fired], now=time.time())
        until(lambda: statuses(hook), "a notification")
        am.restart()
        assert am.alerts() == []
        peer.push([fired], now=time.time())
        assert len(am.alerts()) == 1
        peer.push([resolved(fired, time.time())], now=time.time())
        until(lambda: ("resolved", "trtllm-0") in statuses(hook), "the resolve")
        assert statuses(hook)[-1] == ("resolved", "trtllm-0")

    @pytest.mark.parametrize("minutes", [-6, 10, -600, 600])
    def test_28_a_wrong_clock_swallows_no_alert(self, minutes: int, am: RealAlertmanager, hook: FakeService) -> None:
        """https://github.com/prometheus/prometheus/issues/10342: our clock is wrong, everything here reads it."""
        peer = peer_of(am.url)

        def ours() -> float:
            return time.time() + 60 * minutes

        peer._client = HttpClient(clock=ours)
        fired = alert(now=ours())
        assert peer.push([fired], now=ours()).kind == "success"
        until(lambda: ("firing", "trtllm-0") in statuses(hook), "a notification")
        assert peer.push([fired], now=ours()).kind == "success"
        assert peer.skew == pytest.approx(-60 * minutes, abs=5)
        assert peer.push([resolved(fired, ours())], now=ours()).kind == "success"
        until(lambda: ("resolved", "trtllm-0") in statuses(hook), "the resolve")

    def test_27_a_long_incident_is_one_firing_and_one_resolved(self, am: RealAlertmanager, hook: FakeService) -> None:
        """https://github.com/prometheus/alertmanager/issues/952: a lease of 3 s, re-sent each second for two leases."""
        peer, fired = peer_of(am.url), alert(now=time.time())
        for _ in range(7):
            peer.push([fired], now=time.time())
            time.sleep(1)  # the lease is what is tested, and it runs in the other process
        assert statuses(hook) == [("firing", "trtllm-0")]
        peer.push([resolved(fired, time.time())], now=time.time())
        until(lambda: len(statuses(hook)) > 1, "the resolve")
        assert statuses(hook) == [("firing", "trtllm-0"), ("resolved", "trtllm-0")]

    def test_a_new_name_resolves_the_old_one(self, am: RealAlertmanager) -> None:
        """silent_stall becomes token_budget_deadlock: for Alertmanager another alert, so the first must end."""
        peer, now = peer_of(am.url), time.time()
        before = alert(now=now, alertname="SilentStall", failure="silent_stall")
        peer.push([before], now=now)
        peer.push([alert(now=now)], now=time.time())
        until(
            lambda: [item["labels"]["alertname"] for item in am.alerts()] == ["TokenBudgetDeadlock"],
            "the old one's end",
        )

    def test_a_silence_set_there_holds_here(self, am: RealAlertmanager, hook: FakeService) -> None:
        """amtool silence add -> read back -> the webhook of ours stays quiet; expire -> it is told."""
        with FakeService() as own:
            receivers = {
                "am": AlertmanagerConfig(urls=(am.url,), resend_interval=0.2),  # type: ignore[arg-type]
                "own": WebhookConfig(url=Secret(own.url + "/own")),
            }
            tree = Route(
                receiver="am", group_wait=0.0, routes=(Route(receiver="am", continue_=True), Route(receiver="own"))
            )
            am.amtool("silence", "add", 'server=~"trtllm-.*"', "alertname=TokenBudgetDeadlock", "--comment=work")
            store = Store(None)
            dispatcher = Dispatcher(config(receivers, tree), store)
            dispatcher.start()
            try:
                until(lambda: store.silences(), "the silence's reading back")
                (silence,) = store.silences()
                assert silence.comment == "work"
                assert silence.source.startswith("alertmanager:http://127.0.0.1")
                fired = alert(now=time.time())
                store.commit(alerts=[fired])
                dispatcher.take([fired])
                until(lambda: am.alerts(), "the alert's arrival")
                assert am.alerts()[0]["status"]["state"] == "suppressed"
                assert own.bodies == []
                am.amtool("silence", "expire", silence.id)
                until(lambda: own.bodies, "our own notification after the silence")
            finally:
                dispatcher.stop(0.6)
                store.close()

    def test_a_pair_is_told_twice_and_tells_once_even_when_one_hangs(self, tmp_path: Path, hook: FakeService) -> None:
        """Both peers get every alert; a stopped one takes nothing from the other, and catches up."""
        ports = (free_port(), free_port())
        first = RealAlertmanager(tmp_path / "a", hook.url + "/hook", cluster=ports[0])
        second = RealAlertmanager(tmp_path / "b", hook.url + "/hook", cluster=ports[1], peers=(ports[0],))
        with first, second:
            both = AlertmanagerConfig(urls=(first.url, second.url), resend_interval=0.2, timeout=0.5)  # type: ignore[arg-type]
            store = Store(None)
            dispatcher = Dispatcher(config({"am": both}), store)
            dispatcher.start()
            try:
                one = alert("one", now=time.time())
                store.commit(alerts=[one])
                dispatcher.take([one])
                until(lambda: first.alerts() and second.alerts(), "the arrival at both peers")
                until(lambda: statuses(hook), "a notification")
                first.pause()
                two = alert("two", now=time.time())
                store.commit(alerts=[two])
                dispatcher.take([two])
                until(lambda: len(second.alerts()) == 2, "the arrival at the peer that works")
                first.go_on()
                until(lambda: len(first.alerts()) == 2, "the catching up of the peer that hung")
                until(lambda: ("firing", "two") in statuses(hook), "the second notification")
                assert statuses(hook).count(("firing", "one")) == 1
                assert [item for item in store.alerts(open=True) if item.alert.server == "wedgewatch"] == []
            finally:
                first.go_on()
                dispatcher.stop(0.6)
                store.close()


# -- without a real one -------------------------------------------------------------------------------------------


def test_29_one_bad_alert_in_a_batch_is_named_and_the_others_are_delivered() -> None:
    """The whole request is refused although the good ones were taken (seen in 0.25): each goes alone."""

    def picky(service: FakeService, handler: object, data: bytes) -> Reply | None:
        return Reply.text(400, "bad label") if b'"server":"bad"' in data else None

    with FakeService(forever=picky) as service:  # type: ignore[arg-type]
        outcome = peer_of(service.url).push([alert("a"), alert("bad"), alert("c")], now=T)
        taken = [item["labels"]["server"] for body in service.bodies for item in body]
        assert taken == ["a", "c"]
        assert outcome.kind == "permanent"
        assert "TokenBudgetDeadlock on bad" in outcome.detail


def test_many_alerts_go_in_batches() -> None:
    with FakeService() as service:
        assert peer_of(service.url).push([alert(f"s{i}") for i in range(600)], now=T).kind == "success"
        assert [len(body) for body in service.bodies] == [256, 256, 88]


@pytest.mark.parametrize(
    ("behaviour", "kind"),
    [
        (Reply(503), "retry"),
        (Reply(401), "permanent"),
        (faults.busy("2"), "retry"),
        (faults.redirect, "retry"),
        (faults.reset, "retry"),
        (Reply(404), "permanent"),
    ],
)
def test_answers_have_their_class(behaviour: faults.Behaviour, kind: str) -> None:
    with FakeService(forever=behaviour) as service:
        assert peer_of(service.url).push([alert()], now=T).kind == kind


def test_nothing_to_send_is_no_request() -> None:
    with FakeService() as service:
        assert peer_of(service.url).push([], now=T).kind == "success"
        assert service.attempts == []


def test_silences_that_make_no_sense_are_left_out() -> None:
    whole = {
        "id": "1",
        "status": {"state": "active"},
        "matchers": [
            {"name": "server", "value": 'a"b\\', "isRegex": False, "isEqual": True},
            {"name": "x", "value": "y.*", "isRegex": True, "isEqual": False},
        ],
        "startsAt": "2026-12-01T00:00:00.000Z",
        "endsAt": "2026-12-01T02:00:00.000Z",
        "comment": "line\nbreak",
    }
    listed = [
        whole,
        None,
        {},
        {**whole, "status": {"state": "expired"}},
        {**whole, "matchers": [3]},
        {**whole, "endsAt": "x"},
    ]
    with FakeService(Reply.json(200, listed), Reply.json(200, {"a": 1}), Reply.text(200, "<html>")) as service:
        peer = peer_of(service.url)
        (found,) = peer.silences()
        assert found.matchers == ('server="a\\"b\\\\"', 'x!~"y.*"')
        assert found.comment == "line break"
        from agent.notify.routing import parse_all

        first, second = parse_all(found.matchers)
        assert first.value == 'a"b\\'
        assert second.matches({"x": "z"})
        assert peer.silences() == []
        assert peer.silences() == []


def test_labels_identify_and_numbers_are_not_among_them() -> None:
    labels = label_set(alert())
    assert labels == {
        "alertname": "TokenBudgetDeadlock",
        "severity": "critical",
        "cluster": "prod-eu1",
        "failure": "token_budget_deadlock",
        "server": "trtllm-0",
        "engine": "tensorrt_llm",
        "wedgewatch_id": "fp-trtllm-0",
    }
    later = alert(progress=alert().progress.__class__("stalled", T, 999, 1, 2, 3), confidence="probable")
    assert label_set(later) == labels
