"""A worker's attempts: what waits is said once, as it stands now; retry classes; who waits for whom."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from agent.notify.values import Target
from agent.notify.worker import Event, Said, Worker, backoff, coalesce
from agent.store import OutboxRow, Page, Store
from integrations.base import DeadlineExceeded, Outcome, Traits
from tests.delivery.build import Clock, Counts, ScriptedReceiver, T, alert, resolved

CHAT, PAGER = Traits(), Traits(keyed=True, late=False)
LATE_PAGER = Traits(keyed=True, late=True)


def row(action: str, **changes: object) -> OutboxRow:
    return replace(OutboxRow("t", 1, action, {"alerts": [], "news": [action], "notes": []}, T), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("actions", "traits", "said", "rows"),
    [
        (["open"], CHAT, "open", 1),
        (["open", "update", "repeat"], CHAT, "open", 3),
        (["open", "update", "resolve"], CHAT, "resolve", 3),
        (["open", "resolve"], PAGER, "", 2),
        (["open", "update", "resolve"], LATE_PAGER, "open", 2),
        (["resolve"], PAGER, "resolve", 1),
        (["update", "repeat", "update"], CHAT, "repeat", 3),
        (["update", "repeat", "resolve"], CHAT, "resolve", 3),
        (["update", "update"], CHAT, "update", 2),
        (["change"], PAGER, "change", 1),
    ],
)
def test_what_waits_is_said_once(actions: list[str], traits: Traits, said: str, rows: int) -> None:
    result = coalesce([row(action, id=number) for number, action in enumerate(actions)], Target("t", "t", "x", traits))
    assert (result.action, len(result.rows)) == (said, rows)
    if said:
        assert result.body["news"] == list(dict.fromkeys(actions[:rows]))


def test_an_open_that_may_have_arrived_is_resolved_not_forgotten() -> None:
    """Cut off after sending: PagerDuty may have an open page that only a resolve ends."""
    result = coalesce([row("open", uncertain=True), row("resolve")], Target("t", "t", "x", PAGER))
    assert (result.action, len(result.rows)) == ("resolve", 2)
    assert isinstance(result, Said)


def test_backoff_doubles_to_a_minute_with_jitter() -> None:
    rng = random.Random(3)
    for attempt in range(1, 40):
        waits = [backoff(attempt, rng) for _ in range(200)]
        assert min(waits) >= 0.2
        assert max(waits) <= min(60.0, 2.0 ** (attempt - 1)) or max(waits) == 0.2
    assert len({backoff(9, rng) for _ in range(20)}) == 20


class Bench:
    """One worker, one receiver, a store in memory."""

    def __init__(self, traits: Traits = CHAT, **target: object) -> None:
        self.clock = Clock()
        self.store = Store(None, clock=self.clock)
        self.receiver = ScriptedReceiver(traits)
        self.events: list[Event] = []
        self.meter = Counts()
        self.worker = Worker(
            Target("t", "team", "scripted", traits, **target),  # type: ignore[arg-type]
            self.receiver,
            self.store,
            clock=self.clock,
            on_event=self.events.append,
            meter=self.meter,
            rng=random.Random(1),
        )

    def page(self, *actions: str, over: bool = False, priority: int = 0) -> int:
        item = resolved(alert(), T) if over else alert()
        page = Page("t", f"key{len(self.store.pages(open=None))}", "", T, T, {}, closed=T if over else None)
        body = {"alerts": [item.to_json(context=True)], "seq": 1}
        rows = [OutboxRow("t", -1, action, body, self.clock.now, priority=priority) for action in actions]
        return self.store.commit(pages=[page], outbox=rows)[0]

    def states(self) -> list[str]:
        return [item.state for item in self.store.outbox(states=("pending", "sending", "sent", "dead", "dropped"))]


def test_success_keeps_what_the_service_returned() -> None:
    bench = Bench()
    number = bench.page("open")
    bench.receiver.answers = [Outcome.success(ts="1.2")]
    assert bench.worker.step(T) == 0.0
    assert bench.states() == ["sent"]
    kept = bench.store.page(number)
    assert kept is not None
    assert kept.ref == {"ts": "1.2"}
    bench.store.commit(outbox=[OutboxRow("t", number, "update", {"alerts": [alert().to_json()], "seq": 2}, T)])
    bench.worker.step(T)
    assert bench.receiver.told[1].ref == {"ts": "1.2"}
    assert bench.events == [Event("t", "ok"), Event("t", "ok")]


def test_a_refused_content_is_sent_shorter_at_once_and_then_given_up() -> None:
    bench = Bench()
    bench.page("open")
    bench.receiver.answers = [Outcome.degrade("invalid_blocks")] * 9
    while bench.worker.step(bench.clock.now) == 0.0 and len(bench.receiver.told) < 9:
        pass
    assert [item.degraded for item in bench.receiver.told] == [0, 1, 2, 3]
    assert bench.states() == ["dead"]
    assert bench.events[-1].kind == "broken"


def test_a_cut_off_attempt_says_later_that_it_may_be_a_repeat() -> None:
    bench = Bench()
    bench.page("open")
    bench.receiver.answers = [DeadlineExceeded("no answer", sent=True)]
    wait = bench.worker.step(T)
    bench.clock.advance(wait + 1)
    bench.worker.step(bench.clock.now)
    assert [item.uncertain for item in bench.receiver.told] == [False, True]
    keyed = Bench(PAGER)
    keyed.page("open")
    keyed.receiver.answers = [DeadlineExceeded("no answer", sent=True)]
    keyed.clock.advance(keyed.worker.step(T) + 1)
    keyed.worker.step(keyed.clock.now)
    assert [item.uncertain for item in keyed.receiver.told] == [False, False], "a key makes repeats harmless"


def test_trouble_of_the_receiver_holds_all_its_pages() -> None:
    bench = Bench()
    bench.page("open")
    bench.page("open")
    bench.receiver.answers = [Outcome.retry("429", reason="rate_limited", after=7)]
    assert bench.worker.step(T) == pytest.approx(7)
    assert bench.worker.step(T + 3) == pytest.approx(4)
    assert len(bench.receiver.told) == 1
    bench.clock.advance(7)
    bench.worker.step(bench.clock.now)
    bench.worker.step(bench.clock.now)
    assert len(bench.receiver.told) == 3 or bench.states() == ["sent", "sent"]


def test_news_that_is_over_is_given_up_after_max_age_and_what_stands_is_not() -> None:
    bench = Bench(max_age=100.0)
    bench.page("open", "resolve", over=True)
    bench.page("open")
    bench.receiver.answers = [Outcome.retry("down", reason="network")] * 1000
    for _ in range(400):
        bench.clock.advance(min(5.0, bench.worker.step(bench.clock.now)) or 0.1)
    states = bench.states()
    assert states[:2] == ["dead", "dead"]
    assert states[2] in ("pending", "sending")
    assert bench.meter.of("notifications_dead_total", "too_old") == 1
    assert any(event.overdue for event in bench.events)
    bench.receiver.answers.clear()
    bench.clock.advance(60)
    bench.worker.step(bench.clock.now)
    assert bench.states()[2] == "sent"
    assert bench.receiver.told[-1].delayed > 100


def test_a_pager_is_not_told_of_what_is_over() -> None:
    bench = Bench(PAGER)
    bench.page("open", "resolve", over=True)
    bench.worker.step(T)
    assert bench.receiver.told == []
    assert bench.states() == ["dropped", "dropped"]
    late = Bench(LATE_PAGER)
    late.page("open", "resolve", over=True)
    late.worker.step(T)
    late.worker.step(T)
    assert late.receiver.actions == ["open", "resolve"]


def test_an_idle_worker_looks_again_by_itself() -> None:
    bench = Bench()
    assert 0 < bench.worker.step(T) <= 5, "another process may have revived a dead letter"


def test_requests_and_failures_are_counted() -> None:
    bench = Bench()
    bench.page("open")
    bench.receiver.answers = [Outcome.retry("500", reason="server", after=1)]
    bench.worker.step(T)
    bench.clock.advance(1)
    bench.worker.step(bench.clock.now)
    assert bench.meter.of("notification_requests_total") == 2
    assert bench.meter.of("notification_requests_failed_total") == 1
    assert bench.meter.of("notifications_failed_total", "server") == 1
    assert bench.meter.of("notifications_total") == 1
    assert bench.meter.of("receiver_up", "t") == 1


def test_a_worker_that_dies_lets_go_of_what_it_had_claimed() -> None:
    """Its thread is started anew; the message must not wait for a restart of the process."""
    bench = Bench()
    bench.page("open")
    bench.receiver.answers = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        bench.worker.step(T)
    assert bench.states() == ["pending"]
    bench.clock.advance(61)
    bench.worker.step(bench.clock.now)
    assert bench.states() == ["sent"]
    assert bench.receiver.told[-1].uncertain
