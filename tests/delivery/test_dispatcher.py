"""The dispatcher with its threads: starting, stopping, reloading; heartbeat; what status says."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from agent.config.routing import HeartbeatConfig, Route
from agent.model import Secret
from agent.notify import Dispatcher
from agent.notify.heartbeat import Heartbeat
from agent.notify.level import LevelWorker
from agent.notify.values import Target
from agent.notify.worker import Event
from agent.store import Store
from integrations.alertmanager import AlertmanagerConfig, AlertmanagerPeer
from integrations.base import Traits
from integrations.http import HttpClient
from integrations.local_receiver import Reply
from integrations.webhook import WebhookConfig
from tests.delivery.build import Clock, Counts, Rig, alert, config, resolved
from tests.fakes import server as faults
from tests.fakes.alertmanager import until
from tests.fakes.pagerduty import FakePagerDuty
from tests.fakes.server import FakeService
from tests.fakes.slack import FakeSlack


def fire(store: Store, dispatcher: Dispatcher, *names: str) -> None:
    items = [alert(name, now=time.time()) for name in names]
    store.commit(alerts=items)
    dispatcher.take(items)


# -- threads ------------------------------------------------------------------------------------------------------


def test_stopping_says_what_was_still_waiting_for_its_group(tmp_path: Path) -> None:
    """SIGTERM a second after an alert: a sidecar has no later to say it in."""
    with FakeSlack() as slack:
        store = Store(tmp_path)
        dispatcher = Dispatcher(config({"chat": slack.webhook()}, Route(receiver="chat", group_wait=300.0)), store)
        dispatcher.start()
        fire(store, dispatcher, "a")
        dispatcher.stop(5.0)
        assert len(slack.bodies) == 1
        assert all(not thread.alive for thread in dispatcher.threads())
        assert store.outbox() == []
        store.close()


def test_stopping_does_not_wait_for_a_receiver_that_hangs(tmp_path: Path) -> None:
    with FakeService(forever=faults.hang) as hole:
        store = Store(tmp_path)
        hook = WebhookConfig(url=Secret(hole.url))
        dispatcher = Dispatcher(config({"hook": hook}, Route(receiver="hook", group_wait=0.0)), store)
        dispatcher.start()
        fire(store, dispatcher, "a")
        until(lambda: hole.attempts, "the attempt")
        done = threading.Event()
        threading.Thread(target=lambda: (dispatcher.stop(0.6), done.set()), daemon=True).start()
        assert done.wait(8), "it waited for the attempt's own time-out"
        assert [item.state for item in store.outbox()] == ["sending"]
        hole.closing.set()
        store.close()
    with Store(tmp_path) as again:
        assert [item.uncertain for item in again.outbox()] == [True], "the next start sends it again, marked"


def test_a_reload_keeps_what_did_not_change_and_replaces_what_did() -> None:
    with FakeSlack() as slack, FakePagerDuty() as pager, FakeService() as hook:
        store = Store(None)
        both = Route(
            receiver="chat", group_wait=0.0, routes=(Route(receiver="chat", continue_=True), Route(receiver="oncall"))
        )
        dispatcher = Dispatcher(config({"chat": slack.webhook(), "oncall": pager.config()}, both), store)
        dispatcher.start()
        try:
            kept, replaced = dispatcher.workers["chat/slack"], dispatcher.workers["oncall/pagerduty"]
            fire(store, dispatcher, "a")
            until(lambda: slack.bodies and pager.open, "the first messages")
            changed = config(
                {
                    "chat": slack.webhook(),
                    "oncall": (pager.config(severity="info"), WebhookConfig(url=Secret(hook.url))),
                },
                both,
            )
            dispatcher.reload(changed)
            assert dispatcher.workers["chat/slack"] is kept
            assert dispatcher.workers["oncall/pagerduty"] is not replaced
            until(lambda: hook.bodies, "the new receiver's first message")
            assert len(slack.bodies) == 1, "nobody is told again"
            dispatcher.reload(config({"chat": slack.webhook()}, Route(receiver="chat", group_wait=0.0)))
            status = {item["target"]: item["retired"] for item in dispatcher.status()}
            assert status == {"chat/slack": False, "oncall/pagerduty": True, "oncall/webhook": True}
            over = resolved(alert("a", now=time.time()), time.time())
            store.commit(alerts=[over])
            dispatcher.take([over])
            until(lambda: not pager.open, "the resolve at the receiver that is gone")
            until(lambda: hook.bodies[-1]["status"] == "resolved", "the other's")
            dispatcher.reload(config({"chat": slack.webhook()}, Route(receiver="chat", group_wait=0.0)))
            assert [item["target"] for item in dispatcher.status()] == ["chat/slack"], "nobody waits there any more"
        finally:
            dispatcher.stop(0.6)
            store.close()


def test_a_reload_forgets_the_troubles_of_a_receiver_that_is_gone() -> None:
    with FakeSlack(forever=Reply.text(404, "no_service")) as slack, FakePagerDuty() as pager:
        made = {"oncall": pager.config(), "chat": slack.webhook()}
        tree = Route(
            receiver="oncall", group_wait=0.0, routes=(Route(receiver="chat", continue_=True), Route(receiver="oncall"))
        )
        with Rig(config(made, tree)) as rig:
            rig.fire(alert())
            rig.run(5)
            assert len(pager.open) == 2
            rig.dispatcher.reload(config({"oncall": pager.config()}, Route(receiver="oncall", group_wait=0.0)))
            rig.run(5)
            assert len(pager.open) == 1


def test_status_tells_what_works_and_what_waits() -> None:
    with FakeSlack(forever=Reply.text(503, "x")) as slack, FakeService() as am:
        made = {"chat": slack.webhook(), "am": AlertmanagerConfig(urls=(am.url,))}
        tree = Route(
            receiver="am", group_wait=0.0, routes=(Route(receiver="chat", continue_=True), Route(receiver="am"))
        )
        with Rig(config(made, tree)) as rig:
            rig.fire(alert())
            rig.run(3)
            for level in rig.dispatcher.level_workers.values():
                level.step(rig.clock.now)
            peer, chat = sorted(rig.dispatcher.status(), key=lambda item: item["target"])
            assert (peer["target"], peer["up"]) == (f"am/alertmanager/{am.url}", True)
            assert peer["last_success"] == rig.clock.now
            assert (chat["up"], chat["pending"], chat["dead"]) == (False, 1, 0)
            assert chat["last_error"] == "503: x"
            assert json.dumps(rig.dispatcher.status())


# -- Alertmanager's worker ----------------------------------------------------------------------------------------


def level(url: str, alerts: list[Any], events: list[Event], clock: Clock) -> LevelWorker:
    peer = AlertmanagerPeer(url, AlertmanagerConfig(urls=(url,)), HttpClient(clock=clock))
    target = Target("am/alertmanager", "am", "alertmanager", Traits(level=True))
    return LevelWorker(
        target, peer, lambda now: alerts, clock=clock, on_event=events.append, on_silences=lambda name, found: None,
        meter=Counts(),
    )  # fmt: skip


def test_an_alertmanager_that_cannot_be_reached_is_known_before_it_is_needed() -> None:
    events: list[Event] = []
    clock = Clock()
    worker = level("http://127.0.0.1:9", [], events, clock)
    assert worker.step(clock.now) == 60.0
    assert [event.kind for event in events] == ["retry"]
    assert "connection refused" in worker.last_error
    worker.step(clock.now + 1)
    assert len(events) == 1, "asked once a round"


def test_rounds_follow_the_answer() -> None:
    events: list[Event] = []
    clock = Clock()
    with FakeService(faults.busy("7"), Reply(503), Reply(503), Reply(401)) as am:
        worker = level(am.url, [alert()], events, clock)
        assert worker.step(clock.now) == 7.0
        assert 1.0 <= worker.step(clock.now) <= 60.0
        assert 1.0 <= worker.step(clock.now) <= 60.0
        worker.step(clock.now)
        assert [event.kind for event in events] == ["retry", "retry", "retry", "broken"]
        assert worker.failures == 4
        assert worker.step(clock.now) == 60.0
        assert worker.failures == 0


# -- heartbeat ----------------------------------------------------------------------------------------------------


def beat(url: str, **options: Any) -> tuple[Heartbeat, Counts, Clock]:
    meter, clock = Counts(), Clock()
    alive = options.pop("alive", lambda: True)
    made = HeartbeatConfig(url=Secret(url), **options)
    return Heartbeat(made, clock=clock, meter=meter, alive=alive), meter, clock


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_heartbeat_is_sent_and_noted(method: str) -> None:
    with FakeService() as service:
        heart, meter, clock = beat(service.url + "/ping/s3cr3t", method=method)
        assert heart.step()
        assert service.attempts[0][:2] == (method, "/ping/s3cr3t")
        assert heart.last_success == clock.now
        assert meter.of("heartbeat_last_success_timestamp_seconds") == clock.now


def test_a_core_that_stands_still_sends_no_heartbeat() -> None:
    with FakeService() as service:
        heart, _, _ = beat(service.url, alive=lambda: False)
        assert not heart.step()
        assert service.attempts == []
        assert "no progress" in heart.last_error


def test_a_heartbeat_that_fails_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    with FakeService(Reply(500), Reply(500)) as service:
        heart, _, _ = beat(service.url + "/s3cr3t")
        assert not heart.step()
        assert not heart.step()
        assert heart.step()
    assert not heart.step()
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["heartbeat", "heartbeat"]
    assert "s3cr3t" not in caplog.text


def test_the_heartbeat_runs_until_it_is_stopped() -> None:
    with FakeService() as service:
        heart, _, _ = beat(service.url, interval=0.01)
        stop = threading.Event()
        thread = threading.Thread(target=heart.run, args=(stop,), daemon=True)
        thread.start()
        until(lambda: len(service.attempts) >= 3, "three beats")
        stop.set()
        thread.join(5)
        assert not thread.is_alive()


def test_the_dispatcher_starts_it_and_a_reload_ends_it() -> None:
    with FakeService() as service:
        store = Store(None)
        with_heart = config({}, heartbeat=HeartbeatConfig(url=Secret(service.url), interval=0.01))  # type: ignore[arg-type]
        dispatcher = Dispatcher(with_heart, store)
        dispatcher.start()
        try:
            until(lambda: service.attempts, "a beat")
            dispatcher.reload(config({}))
            assert dispatcher.heartbeat is None
            assert "heartbeat" not in [thread.name for thread in dispatcher.threads()]
        finally:
            dispatcher.stop(0.6)
            store.close()
