"""Who is told what and when: routes, groups, updates, repeats, quiet times, inhibition, our own troubles.

Receivers here live in the process; what is sent over a wire is tested with the receivers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from agent.config import Config
from agent.config.model import GlobalConfig
from agent.config.routing import (
    InhibitRule,
    Maintenance,
    NotificationsConfig,
    ReceiverConfig,
    Route,
    TimeInterval,
    TimeRange,
    TimeWindow,
)
from agent.config.servers import ServerConfig
from agent.model import Alert, parse_rfc3339
from agent.notify.quiet import Quiet, inside
from agent.notify.routing import build_tree, matching_labels
from agent.notify.targets import Built
from agent.notify.values import Target
from integrations.base import Outcome, Traits
from tests.delivery.build import Clock, Rig, ScriptedReceiver, T, alert, resolved

CHAT = Traits()
EDITABLE = Traits(editable=True, partial=True)
PAGER = Traits(keyed=True, late=False)
MACHINE = Traits(partial=True)


class World(Rig):
    """A rig whose receivers are given by name; ``said(name)`` lists (action, servers) in order."""

    def __init__(
        self, receivers: Mapping[str, ScriptedReceiver], route: Route, folder: Path | None = None, **more: object
    ) -> None:
        self.receivers = dict(receivers)
        limits = more.pop("limits", NotificationsConfig())
        clock = more.pop("clock", None)
        observe = more.pop("observe", False)
        config = Config(
            global_=GlobalConfig(external_labels={"cluster": "prod-eu1"}),
            route=route,
            receivers=tuple(ReceiverConfig(name=name) for name in receivers),
            notifications=limits,  # type: ignore[arg-type]
            **more,  # type: ignore[arg-type]
        )
        super().__init__(config, folder, clock=clock, targets=self.build, observe=observe)  # type: ignore[arg-type]

    def build(self, config: Config) -> dict[str, Built]:
        return {
            name: Built(Target(name, name, item.kind, item.traits), item, name, None)
            for name, item in self.receivers.items()
            if any(receiver.name == name for receiver in config.receivers)
        }

    def said(self, name: str) -> list[tuple[str, str]]:
        return [
            (item.action, ",".join(sorted(alert.server for alert in item.alerts))) for item in self.receivers[name].told
        ]


def receivers(**traits: Traits) -> dict[str, ScriptedReceiver]:
    return {name: ScriptedReceiver(item) for name, item in traits.items()}


# -- routes -------------------------------------------------------------------------------------------------------


def test_the_tree_works_as_alertmanagers() -> None:
    """The deepest route of each branch; the first child that matches ends the search unless it continues."""
    tree = build_tree(
        Route(
            receiver="root",
            routes=(
                Route(receiver="page", matchers=('severity="critical"',), continue_=True),
                Route(
                    matchers=('model=~"llama.*"',), routes=(Route(receiver="llama70", matchers=('model="llama-70"',)),)
                ),
                Route(receiver="never", matchers=('severity="nothing"',)),
            ),
        )
    )
    assert tree is not None

    def to(**labels: str) -> list[str]:
        return [node.receiver for node in tree.match(labels)]

    assert to(severity="critical", model="llama-70") == ["page", "llama70"]
    assert to(severity="critical", model="llama-8") == ["page", "root"]
    assert to(severity="warning", model="qwen") == ["root"]
    assert to(severity="critical", model="qwen") == ["page"]
    assert build_tree(None) is None


def test_what_a_route_leaves_out_it_inherits() -> None:
    tree = build_tree(
        Route(
            receiver="a", group_by=("model",), group_wait=7.0, routes=(Route(repeat_interval=9.0, group_by=("...",)),)
        )  # type: ignore[arg-type]
    )
    assert tree is not None
    (child,) = tree.match({"x": "1"})
    assert (child.receiver, child.group_wait, child.repeat_interval) == ("a", 7.0, 9.0)
    assert child.group_labels({"x": "1", "y": "2"}) == {"x": "1", "y": "2"}
    assert tree.group_labels({"x": "1"}) == {"model": ""}


def test_one_receiver_by_two_routes_is_told_once() -> None:
    both = Route(
        receiver="chat", group_wait=0.0, routes=(Route(receiver="chat", continue_=True), Route(receiver="chat"))
    )
    with World(receivers(chat=CHAT), both) as world:
        world.fire(alert())
        world.run(5)
        assert world.said("chat") == [("open", "trtllm-0")]


def test_matchers_see_failure_family_and_confidence() -> None:
    labels = matching_labels(alert(labels={"failure": "a lie"}))
    assert (labels["failure"], labels["family"], labels["confidence"]) == (
        "token_budget_deadlock", "stalled", "confirmed",
    )  # fmt: skip


# -- groups -------------------------------------------------------------------------------------------------------


def test_alerts_within_group_wait_share_a_message_and_a_later_one_gets_its_own() -> None:
    """
    a fires    b fires    told a,b              c fires      told c; a,b are named as open
    0          2          5                     600          605
    """
    with World(receivers(chat=CHAT), Route(receiver="chat", group_wait=5.0)) as world:
        world.fire(alert("a"))
        world.run(2)
        world.fire(alert("b"))
        world.run(2.5)
        assert world.said("chat") == []
        world.run(1)
        assert world.said("chat") == [("open", "a,b")]
        world.run(600)
        world.fire(alert("c", now=world.clock.now))
        world.run(6)
        assert world.said("chat") == [("open", "a,b"), ("open", "c")]
        told = world.receivers["chat"].told[1]
        assert [name.split(" ")[0] for name in told.others] == ["a", "b"]
        assert told.group_key == '{}:{failure="token_budget_deadlock"}'
        assert told.alerts[0].labels["cluster"] == "prod-eu1"


def test_different_failures_are_different_groups() -> None:
    with World(receivers(chat=CHAT), Route(receiver="chat", group_wait=1.0)) as world:
        world.fire(alert("a"), alert("b", failure="kv_cache_deadlock"))
        world.run(3)
        assert sorted(world.said("chat")) == [("open", "a"), ("open", "b")]


def test_the_size_of_the_fleet_is_said() -> None:
    servers = tuple(ServerConfig(name=name, logs=()) for name in "abcdefgh")
    with World(receivers(chat=CHAT), Route(receiver="chat", group_wait=1.0), servers=servers) as world:
        world.fire(*(alert(name) for name in "abc"))
        world.run(3)
        assert world.receivers["chat"].told[0].fleet == 8
        from integrations.message import build

        title = build(world.receivers["chat"].told[0]).title
        assert title == "3 of 8 servers: scheduler deadlocked for 2m11s: a, b, c"


# -- updates, repeats, resolves -----------------------------------------------------------------------------------


def test_partial_resolves_go_to_those_who_want_them() -> None:
    """a,b fire; a is over; b is over. Chat hears the end, a machine each step, a pager only the end."""
    with World(
        receivers(chat=CHAT, machine=MACHINE, pager=PAGER, edit=EDITABLE),
        Route(
            receiver="chat",
            group_wait=0.0,
            routes=tuple(Route(receiver=name, continue_=True) for name in ("chat", "machine", "pager", "edit")),
        ),
    ) as world:
        world.fire(alert("a"), alert("b"))
        world.run(100)
        world.over(alert("a"))
        world.run(100)
        world.over(alert("b"))
        world.run(5)
        ends = [("open", "a,b"), ("resolve", "a,b")]
        steps = [("open", "a,b"), ("update", "a,b"), ("resolve", "a,b")]
        assert world.said("chat") == ends
        assert world.said("pager") == ends
        assert world.said("machine") == steps
        assert world.said("edit") == steps
        update = world.receivers["machine"].told[1]
        assert update.news == ("fp-a",)
        assert [item.server for item in update.resolved] == ["a"]
        assert len({item.key for item in world.receivers["machine"].told}) == 1
        assert [item.seq for item in world.receivers["machine"].told] == [1, 2, 3]


def test_a_cause_found_later_is_news_but_not_more_than_once_a_minute() -> None:
    """probable -> confirmed -> renamed within the minute: one update, with what holds by then."""
    with World(receivers(chat=CHAT), Route(receiver="chat", group_wait=0.0)) as world:
        world.fire(alert(confidence="probable", failure="silent_stall"))
        world.run(10)
        world.fire(alert(confidence="confirmed", failure="silent_stall"))
        world.run(10)
        world.fire(alert(confidence="confirmed"))
        world.run(30)
        assert world.said("chat") == [("open", "trtllm-0")]
        world.run(20)
        assert world.said("chat") == [("open", "trtllm-0"), ("update", "trtllm-0")]
        assert world.receivers["chat"].told[1].alerts[0].failure == "token_budget_deadlock"


def test_numbers_that_move_are_no_news() -> None:
    from agent.model import ProgressSummary

    with World(receivers(chat=CHAT), Route(receiver="chat", group_wait=0.0)) as world:
        for waiting in range(20):
            world.fire(alert(progress=ProgressSummary("stalled", T, float(waiting), 1, 0, 0)))
            world.run(30)
        assert world.said("chat") == [("open", "trtllm-0")]


def test_what_still_fires_is_repeated() -> None:
    with World(receivers(chat=CHAT), Route(receiver="chat", group_wait=0.0, repeat_interval=3600.0)) as world:  # type: ignore[arg-type]
        world.fire(alert())
        world.run(3 * 3600 + 60)
        assert [action for action, _ in world.said("chat")] == ["open", "repeat", "repeat", "repeat"]


def test_an_alert_that_is_over_before_its_message_is_still_told(tmp_path: Path) -> None:
    """Fires and resolves within group_wait: chat hears both in one message, a pager wakes nobody."""
    with World(
        receivers(chat=CHAT, pager=PAGER),
        Route(
            receiver="chat", group_wait=30.0, routes=(Route(receiver="chat", continue_=True), Route(receiver="pager"))
        ),
    ) as world:
        world.fire(alert())
        world.run(5)
        world.over(alert())
        world.run(60)
        assert world.said("chat") == [("resolve", "trtllm-0")]
        assert "it fired and was over" in world.receivers["chat"].told[0].notes[0]
        assert world.said("pager") == []
        world.run(600)
        assert len(world.said("chat")) == 1


def test_what_never_fired_is_never_told() -> None:
    """pending -> gone."""
    with World(receivers(chat=CHAT), Route(receiver="chat", group_wait=0.0)) as world:
        pending = alert(state="pending", fired_at=None, confidence="suspected")
        world.fire(pending)
        world.run(60)
        world.fire(pending.with_(state="resolved", ends_at=world.clock.now))
        world.run(60)
        assert world.said("chat") == []


def test_the_second_time_within_an_hour_says_so() -> None:
    with World(receivers(chat=CHAT), Route(receiver="chat", group_wait=0.0)) as world:
        for _ in range(2):
            world.fire(alert(now=world.clock.now))
            world.run(300)
            world.over(alert(now=world.clock.now))
            world.run(300)
        assert world.receivers["chat"].told[2].notes == ("fired 2 times in 10m",)


def test_a_flapping_machine_receiver_keeps_hearing_that_it_fires() -> None:
    """Told "resolved" in between it would take each episode for a new incident."""
    with World(receivers(machine=MACHINE), Route(receiver="machine", group_wait=0.0)) as world:
        for _ in range(8):
            world.fire(alert(now=world.clock.now))
            world.run(120)
            world.over(alert(now=world.clock.now))
            world.run(120)
        said = world.said("machine")
        assert [action for action, _ in said] == ["open", "resolve"] * 3 + ["open", "update"]
        assert world.receivers["machine"].told[-1].firing
        world.run(1000)
        assert world.said("machine")[-1][0] == "resolve"


# -- quiet --------------------------------------------------------------------------------------------------------


def test_a_mute_holds_back_and_lets_go() -> None:
    """
    mute 10m   fires                     mute ends -> told
    0          60                        600
    """
    with World(receivers(chat=CHAT), Route(receiver="chat", group_wait=0.0)) as world:
        silence = world.dispatcher.mute(['server="trtllm-0"'], 600, comment="upgrade", created_by="me")
        world.run(60)
        world.fire(alert(), alert("other"))
        world.run(60)
        assert world.said("chat") == [("open", "other")]
        assert world.meter.of("notifications_suppressed_total", "silence") == 1
        world.run(500)
        assert world.said("chat") == [("open", "other"), ("open", "trtllm-0")]
        assert silence.matchers == ('server="trtllm-0"',)


def test_a_mute_can_be_taken_back_and_what_was_told_before_is_still_resolved() -> None:
    with World(receivers(chat=CHAT), Route(receiver="chat", group_wait=0.0)) as world:
        world.fire(alert())
        world.run(5)
        silence = world.dispatcher.mute(['alertname=~".+"'], 6000)
        world.fire(alert("b"))
        world.over(alert())
        world.run(30)
        assert world.said("chat") == [("open", "trtllm-0"), ("resolve", "trtllm-0")]
        assert world.dispatcher.unmute(silence.id)
        world.run(30)
        assert world.said("chat")[-1] == ("open", "b")
        assert not world.dispatcher.unmute("nobody")


def test_what_fired_and_ended_under_a_mute_is_never_told() -> None:
    with World(receivers(chat=CHAT), Route(receiver="chat", group_wait=0.0)) as world:
        world.dispatcher.mute(['server="trtllm-0"'], 600)
        world.fire(alert())
        world.run(60)
        world.over(alert())
        world.run(1200)
        assert world.said("chat") == []


@pytest.mark.parametrize("matchers", [[], ["nonsense"], ['a=~"("'], [""]])
def test_a_mute_of_nothing_or_of_nonsense_is_refused(matchers: list[str]) -> None:
    with World(receivers(chat=CHAT), Route(receiver="chat")) as world:
        with pytest.raises(ValueError, match=r"."):
            world.dispatcher.mute(matchers, 60)
        with pytest.raises(ValueError, match="30m"):
            world.dispatcher.mute(['a="b"'], 0)


def test_maintenance_is_planned_quiet() -> None:
    window = Maintenance(matchers=('server="trtllm-0"',), start="2026-12-01T01:30:00Z", end="2026-12-01T02:00:00Z")
    with World(receivers(chat=CHAT), Route(receiver="chat", group_wait=0.0), maintenance=(window,)) as world:
        world.fire(alert())
        world.run(60)
        assert world.said("chat") == []
        assert world.meter.of("notifications_suppressed_total", "maintenance") == 1
        world.run(20 * 60)
        assert world.said("chat") == [("open", "trtllm-0")]


def test_a_routes_quiet_hours() -> None:
    """Chat sleeps from 01:00 to 02:00; the pager does not."""
    night = TimeInterval(
        name="night",
        time_intervals=(TimeWindow(times=(TimeRange(start_time="01:00", end_time="02:00"),)),),
    )
    tree = Route(
        receiver="chat",
        group_wait=0.0,
        routes=(
            Route(receiver="chat", continue_=True, mute_time_intervals=("night",)),
            Route(receiver="day", continue_=True, active_time_intervals=("night",)),
            Route(receiver="pager"),
        ),
    )
    with World(receivers(chat=CHAT, pager=PAGER, day=CHAT), tree, time_intervals=(night,)) as world:
        world.fire(alert())
        world.run(60)
        assert world.said("pager") == [("open", "trtllm-0")]
        assert world.said("day") == [("open", "trtllm-0")]
        assert world.said("chat") == []
        world.run(20 * 60)
        assert world.said("chat") == [("open", "trtllm-0")]


@pytest.mark.parametrize(
    ("window", "moment", "holds"),
    [
        (TimeWindow(), "2026-12-01T00:00:00Z", True),
        (TimeWindow(weekdays=("monday:friday",)), "2026-12-01T12:00:00Z", True),  # a Tuesday
        (TimeWindow(weekdays=("saturday", "sunday")), "2026-12-01T12:00:00Z", False),
        (TimeWindow(weekdays=("sunday",)), "2026-12-06T12:00:00Z", True),
        (TimeWindow(days_of_month=("-1",)), "2026-11-30T12:00:00Z", True),
        (TimeWindow(days_of_month=("-1",)), "2026-12-30T12:00:00Z", False),
        (TimeWindow(days_of_month=("-3:-1",)), "2027-02-26T12:00:00Z", True),
        (TimeWindow(days_of_month=("31",)), "2027-02-28T12:00:00Z", False),
        (TimeWindow(months=("december",)), "2026-12-01T12:00:00Z", True),
        (TimeWindow(months=("1:11",)), "2026-12-01T12:00:00Z", False),
        (TimeWindow(years=("2026:2027",)), "2026-12-01T12:00:00Z", True),
        (TimeWindow(years=("2028",)), "2026-12-01T12:00:00Z", False),
        (TimeWindow(times=(TimeRange(start_time="09:00", end_time="17:00"),)), "2026-12-01T17:00:00Z", False),
        (TimeWindow(times=(TimeRange(start_time="09:00", end_time="24:00"),)), "2026-12-01T23:59:59Z", True),
        (
            TimeWindow(times=(TimeRange(start_time="09:00", end_time="17:00"),), location="America/New_York"),
            "2026-12-01T20:00:00Z",
            True,
        ),
        (TimeWindow(weekdays=("tuesday",), location="Asia/Tokyo"), "2026-11-30T16:00:00Z", True),
    ],
)
def test_time_windows(window: TimeWindow, moment: str, holds: bool) -> None:
    assert inside(TimeInterval(name="x", time_intervals=(window,)), parse_rfc3339(moment)) is holds


def test_a_silence_that_cannot_be_read_silences_nothing() -> None:
    from agent.store import Silence

    quiet = Quiet.of([Silence("x", ("not a matcher",), T - 1, T + 1), Silence("y", (), T - 1, T + 1)], (), ())
    assert quiet.reason(alert(), T) == ""


# -- inhibition ---------------------------------------------------------------------------------------------------


def test_a_wedged_server_is_not_also_overloaded() -> None:
    """The warning of a stalled server says nothing new; another server's does. When the stall ends, it is told."""
    slow = {"failure": "overload", "severity": "warning", "alertname": "Overload"}
    with World(receivers(chat=CHAT), Route(receiver="chat", group_wait=1.0, group_by=("server",))) as world:
        world.fire(
            alert("a"), alert("a", fingerprint="slow-a", **slow), alert("b", fingerprint="slow-b", **slow),
        )  # fmt: skip
        world.run(30)
        assert sorted(world.said("chat")) == [("open", "a"), ("open", "b")]
        assert world.meter.of("notifications_suppressed_total", "inhibited") == 1
        world.over(alert("a"))
        world.run(30)
        assert sorted(world.said("chat")) == [("open", "a"), ("open", "a"), ("open", "b"), ("resolve", "a")]


def test_rules_of_the_configuration_replace_it() -> None:
    rule = InhibitRule(source_matchers=('alertname="A"',), target_matchers=('alertname=~"A|B"',), equal=("cluster",))
    tree = Route(receiver="chat", group_wait=0.0, group_by=("alertname",))
    with World(receivers(chat=CHAT), tree, inhibit_rules=(rule,)) as world:
        world.fire(
            alert("x", alertname="A", fingerprint="1"),
            alert("x", alertname="B", fingerprint="2"),
            alert("x", alertname="C", fingerprint="3", failure="overload"),
        )
        world.run(5)
        told = sorted(item.alerts[0].alertname for item in world.receivers["chat"].told)
        assert told == ["A", "C"], "an alert that is source and target is not silenced by its like"


# -- ourselves ----------------------------------------------------------------------------------------------------


def test_observe_decides_and_sends_nothing() -> None:
    with World(receivers(chat=CHAT), Route(receiver="chat", group_wait=0.0), observe=True) as world:
        world.fire(alert())
        world.run(10)
        world.over(alert())
        world.run(4000)
        assert world.said("chat") == []
        assert world.meter.of("notifications_suppressed_total", "observe") == 1


def test_a_receiver_that_cannot_be_reached_is_told_to_the_others_once() -> None:
    """
    chat down   pager told   5 min: pager told of chat      chat works: resolved
    """
    made = receivers(chat=CHAT, pager=PAGER)
    made["chat"].answers = [Outcome.retry("connection refused", reason="network")] * 1000
    tree = Route(
        receiver="pager", group_wait=0.0, routes=(Route(receiver="chat", continue_=True), Route(receiver="pager"))
    )
    with World(made, tree) as world:
        world.fire(alert())
        world.run(200)
        assert world.said("pager") == [("open", "trtllm-0")]
        world.run(1000)
        assert world.said("pager") == [("open", "trtllm-0"), ("open", "wedgewatch")]
        told = world.receivers["pager"].told[1].alerts[0]
        assert "chat cannot be reached: connection refused" in told.annotations["summary"]
        made["chat"].answers.clear()
        world.run(120)
        assert world.said("pager")[-1] == ("resolve", "wedgewatch")
        assert {item.server for note in made["chat"].told[-1:] for item in note.alerts} == {"trtllm-0"}


def test_our_own_trouble_survives_a_restart_and_ends(tmp_path: Path) -> None:
    made = receivers(chat=CHAT, pager=PAGER)
    made["chat"].answers = [Outcome.permanent("no_service")]
    tree = Route(
        receiver="pager", group_wait=0.0, routes=(Route(receiver="chat", continue_=True), Route(receiver="pager"))
    )
    world = World(made, tree, tmp_path)
    world.fire(alert())
    world.run(10)
    assert ("open", "wedgewatch") in world.said("pager")
    world.close()
    world = World(made, tree, tmp_path, clock=world.clock)
    world.run(900)  # a new process tries at once; the receiver works by now
    assert world.said("pager")[-1] == ("resolve", "wedgewatch")
    assert [item.alerts[0].server for item in made["chat"].told] == ["trtllm-0", "trtllm-0"]
    world.close()


def test_self_alerts_can_be_turned_off() -> None:
    made = receivers(chat=CHAT, pager=PAGER)
    made["chat"].answers = [Outcome.permanent("no_service")]
    tree = Route(
        receiver="pager", group_wait=0.0, routes=(Route(receiver="chat", continue_=True), Route(receiver="pager"))
    )
    with World(made, tree, limits=NotificationsConfig(self_alerts=False)) as world:
        world.fire(alert())
        world.run(900)
        assert world.said("pager") == [("open", "trtllm-0")]


def test_the_daemon_may_raise_alerts_of_its_own() -> None:
    with World(receivers(chat=CHAT), Route(receiver="chat", group_wait=0.0)) as world:
        world.dispatcher.self_alerts.raise_(
            "WedgewatchSourceSilent", "source_silent", "a.log is silent", labels={"s": "a"}
        )
        world.run(5)
        world.dispatcher.self_alerts.clear("WedgewatchSourceSilent", {"s": "a"})
        world.dispatcher.self_alerts.clear("WedgewatchSourceSilent", {"s": "never"})
        world.run(5)
        assert [action for action, _ in world.said("chat")] == ["open", "resolve"]


def test_a_receiver_that_is_gone_after_a_restart_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = receivers(chat=CHAT, pager=PAGER)
    world = World(made, Route(receiver="pager", group_wait=0.0), tmp_path)
    world.fire(alert())
    world.run(5)
    world.close()
    del made["pager"]
    world = World(made, Route(receiver="chat", group_wait=0.0), tmp_path, clock=world.clock)
    world.run(5)
    assert "receiver pager is not configured any more" in caplog.text
    assert "close it by hand" in caplog.text
    assert world.said("chat") == [("open", "trtllm-0")], "whoever is responsible now is told"
    world.close()


def test_changes_go_to_those_who_want_them() -> None:
    made = receivers(chat=CHAT, pager=PAGER)

    class ChangeWorld(World):
        def build(self, config: Config) -> dict[str, Built]:
            return {
                name: Built(Target(name, name, "x", item.traits, wants_changes=name == "pager"), item, name, None)
                for name, item in self.receivers.items()
            }

    with ChangeWorld(made, Route(receiver="chat")) as world:
        world.dispatcher.change("server trtllm-0 was restarted", {"server": "trtllm-0"})
        world.run(5)
        assert world.said("chat") == []
        (told,) = made["pager"].told
        assert told.action == "change"
        assert told.notes == ("server trtllm-0 was restarted",)


def test_the_last_words_at_shutdown_do_not_wait_for_the_group() -> None:
    with World(receivers(chat=CHAT), Route(receiver="chat", group_wait=300.0)) as world:
        world.fire(alert())
        world.dispatcher.tick(world.clock.now, hurry=True)
        world.dispatcher.workers["chat"].step(world.clock.now)
        assert world.said("chat") == [("open", "trtllm-0")]


def test_without_a_route_nothing_is_sent() -> None:
    clock = Clock()
    with Rig(Config(), clock=clock) as rig:
        rig.fire(alert())
        rig.run(60)
        assert rig.store.pages() == []


def test_a_thousand_open_alerts_are_planned_in_one_look() -> None:
    items = [alert(f"s{number}") for number in range(1000)]
    with World(receivers(chat=CHAT), Route(receiver="chat", group_wait=0.0)) as world:
        world.fire(*items)
        world.run(1)
        (told,) = world.receivers["chat"].told
        assert len(told.alerts) == 1000
        assert sum(1 for item in told.alerts if item.stages) == 20, "lines of the first twenty only: nobody reads more"
        assert isinstance(resolved(items[0], T), Alert)


def test_an_acknowledgement_reaches_pagerduty_and_nobody_else() -> None:
    pager = ScriptedReceiver(PAGER, kind="pagerduty")
    made = {"chat": ScriptedReceiver(CHAT), "pager": pager}
    tree = Route(
        receiver="chat", group_wait=0.0, routes=(Route(receiver="chat", continue_=True), Route(receiver="pager"))
    )
    with World(made, tree) as world:
        world.fire(alert())
        world.run(2)
        assert world.dispatcher.acknowledge("fp-trtllm-0", "alex") == 1
        assert world.dispatcher.acknowledge("fp-unknown") == 0
        world.run(2)
        assert pager.actions == ["open", "acknowledge"]
        assert pager.told[1].key == pager.told[0].key
        assert world.receivers["chat"].actions == ["open"]


def test_a_pending_alert_neither_hides_a_resolve_nor_counts_as_an_episode() -> None:
    """
    fires -> told   over, and pending again in the same breath -> resolve told   pending four more times: no flapping
    """
    with World(receivers(chat=CHAT), Route(receiver="chat", group_wait=0.0)) as world:
        world.fire(alert())
        world.run(2)
        world.store.commit(alerts=[resolved(alert(), world.clock.now)])
        for _ in range(5):
            again = alert(state="pending", fired_at=None, confidence="suspected", now=world.clock.now)
            world.fire(again)
            world.run(60)
            world.fire(resolved(again, world.clock.now))
        assert world.said("chat") == [("open", "trtllm-0"), ("resolve", "trtllm-0")]
        (over,) = world.receivers["chat"].told[1].alerts
        assert over.state == "resolved"
        world.fire(alert(now=world.clock.now))
        world.run(2)
        assert world.receivers["chat"].told[2].notes == ("fired 2 times in 5m2s",)
