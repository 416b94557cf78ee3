"""One watched server: lines and signals in any order lead to one alert, whose confidence follows the evidence.

Timelines: ``.`` a look that shows progress, ``x`` a look with work in flight and no progress, ``?`` a failed look,
``0`` a look at an idle server, ``S`` the symptom's line, ``T`` the terminal line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from agent.detect.server import ServerDetector
from agent.model import Alert, LogRecord, Sample
from agent.rules.model import Condition, Fingerprint, Matcher, Rule, Stage

STEP = 5.0
SYMPTOM, TERMINAL = 0, 1


def stage(name: str, **more: bool) -> Stage:
    return Stage(name, Condition(any=(Matcher("contains", name),)), **more)  # type: ignore[arg-type]  # flags only


BUDGET = Rule(
    alert="TokenBudgetDeadlock",
    failure="token_budget_deadlock",
    severity="critical",
    priority=90,
    progress="stalled",
    for_seconds=10,
    keep_firing_for=60,
    fingerprint=Fingerprint((stage("symptom"), stage("loop_end", optional=True, terminal=True))),
)
DEAD = Rule(
    alert="EngineDead",
    failure="engine_dead",
    severity="critical",
    for_seconds=10,
    keep_firing_for=60,
    fingerprint=Fingerprint((stage("dead", terminal=True),)),
)
SILENT = Rule(alert="SilentStall", failure="silent_stall", severity="critical", progress="stalled", keep_firing_for=60)
RECOVERED = Rule(
    alert="AssertionRecovered",
    failure="assertion_recovered",
    severity="warning",
    progress="serving",
    fingerprint=Fingerprint((stage("symptom"),)),
)
OVERLOAD = Rule(alert="Overload", failure="overload", severity="warning", progress="saturated", for_seconds=300)
RULES = (BUDGET, DEAD, SILENT, RECOVERED, OVERLOAD)


class Story:
    """Tells a detector what happened, look by look."""

    def __init__(self, rules: Sequence[Rule] = RULES) -> None:
        self.detector = ServerDetector("llama-0", rules, external_labels={"cluster": "eu1"})
        self.now = 1_000_000.0
        self.tokens = 10_000.0
        self.finished = 500.0
        self.start = 900_000.0
        self.alerts: list[Alert] = []

    def looks(self, text: str, *, waiting: float = 3, running: float = 8, instance: str = "") -> Story:
        for mark in text:
            self.now += STEP
            self.look(mark, waiting=waiting, running=running, instance=instance)
        return self

    def look(self, mark: str, *, waiting: float = 3, running: float = 8, instance: str = "") -> None:
        if mark == "?":
            sample = Sample(self.now, "llama-0", "metrics", {}, instance, ok=False, error="timeout: 3 s")
        else:
            if mark == ".":
                self.tokens += 4000
                self.finished += 4
            values = {
                "generation_tokens_total": self.tokens,
                "requests_finished_total": self.finished,
                "requests_running": 0.0 if mark == "0" else running,
                "requests_waiting": 0.0 if mark == "0" else waiting,
                "process_start_time_seconds": self.start,
            }
            sample = Sample(self.now, "llama-0", "metrics", values, instance)
        self.alerts += self.detector.on_sample(sample)

    def line(self, rule: Rule, index: int, text: str = "line", **attributes: str) -> Story:
        record = LogRecord(self.now + 0.1, text, "llama-0", "server.log", 7, "ERROR", 17, attributes)
        hits = {number: {index: {}} for number, known in enumerate(self.detector._rules) if known is rule}
        for number, known in enumerate(self.detector._rules):
            if known is RECOVERED and rule is BUDGET and index == SYMPTOM:
                hits[number] = {0: {}}  # the same line is the symptom of its harmless sibling
        self.alerts += self.detector.on_stages(record, hits)
        return self

    def wait(self, seconds: float) -> Story:
        self.now += seconds
        self.alerts += self.detector.advance(self.now)
        return self

    def restart(self) -> Story:
        self.start, self.tokens, self.finished = self.now, 0.0, 0.0
        return self

    def fired(self, severity: str = "critical") -> dict[str, Alert]:
        return {a.fingerprint: a for a in self.alerts if a.state == "firing" and a.severity == severity}

    @property
    def page(self) -> Alert:
        (alert,) = self.fired().values()
        return alert


HEALTHY = "." * 40


def test_a_stall_that_no_line_explains() -> None:
    # .......... x x x x x x
    story = Story().looks(HEALTHY).looks("xxxxxxxx")
    page = story.page
    assert (page.alertname, page.confidence) == ("SilentStall", "confirmed")
    assert page.starts_at == 1_000_000 + 40 * STEP
    assert page.fired_at is not None
    assert page.fired_at - page.starts_at <= 40
    assert page.checklist.stopped_with_queue == "yes"
    assert page.progress.state == "stalled"
    assert page.progress.finished_in_window == 0


def orders() -> Iterator[tuple[str, Story]]:
    yield "line first", Story().looks(HEALTHY).line(BUDGET, SYMPTOM).line(BUDGET, TERMINAL).looks("x" * 12)
    yield (
        "metrics first",
        Story().looks(HEALTHY).looks("xx").line(BUDGET, SYMPTOM).line(BUDGET, TERMINAL).looks("x" * 10),
    )
    yield "metrics long before", Story().looks(HEALTHY).looks("x" * 10).line(BUDGET, SYMPTOM).looks("xx")


@pytest.mark.parametrize(("name", "story"), list(orders()), ids=lambda value: value if isinstance(value, str) else "")
def test_lines_and_signals_in_any_order_end_in_the_same_alert(name: str, story: Story) -> None:
    page = story.page
    assert (page.alertname, page.failure, page.confidence) == (
        "TokenBudgetDeadlock",
        "token_budget_deadlock",
        "confirmed",
    )
    assert len({a.fingerprint for a in story.alerts if a.severity == "critical"}) == 1


def test_a_symptom_shortens_the_wait() -> None:
    # .......... S x x x
    quick = Story().looks(HEALTHY).line(BUDGET, SYMPTOM).looks("xxxx").page
    slow = Story().looks(HEALTHY).looks("x" * 10).page
    assert quick.fired_at is not None
    assert slow.fired_at is not None
    assert quick.fired_at < slow.fired_at


def test_a_terminal_line_without_signals_is_probable() -> None:
    # S T (no metrics at all) ... 10 s
    story = Story().line(BUDGET, SYMPTOM).line(BUDGET, TERMINAL).wait(9)
    assert story.fired() == {}
    assert [a.state for a in story.alerts][-1] == "pending"
    story.wait(2)
    assert (story.page.alertname, story.page.confidence) == ("TokenBudgetDeadlock", "probable")
    assert story.page.checklist.stopped_with_queue == "unknown"


def test_a_symptom_alone_without_signals_never_pages() -> None:
    # S (no metrics, no terminal line) ... hours
    story = Story().line(BUDGET, SYMPTOM).wait(8 * 3600)
    assert story.fired() == {}
    assert [a.confidence for a in story.alerts] == ["suspected"]


def test_the_same_symptom_while_work_goes_on_is_a_warning() -> None:
    # .......... S . . . . . .
    story = Story().looks(HEALTHY).line(BUDGET, SYMPTOM).looks("." * 8)
    assert story.fired() == {}
    (warning,) = story.fired("warning").values()
    assert warning.failure == "assertion_recovered"


def test_a_terminal_line_that_is_contradicted_does_not_page() -> None:
    # .......... S T . . . .   (one worker of several died and was replaced)
    story = Story().looks(HEALTHY).line(BUDGET, SYMPTOM).line(BUDGET, TERMINAL).looks("." * 8).wait(60)
    assert story.fired() == {}


def test_a_dead_engine_with_a_cause_is_named_by_the_cause() -> None:
    story = Story().looks(HEALTHY).line(BUDGET, SYMPTOM).line(DEAD, 0).looks("x" * 10)
    assert story.page.alertname == "TokenBudgetDeadlock"


def test_a_page_without_a_cause_takes_the_name_of_one_that_comes_later() -> None:
    # .......... x x x x x x x  (SilentStall)  S
    story = Story().looks(HEALTHY).looks("x" * 8)
    assert story.page.alertname == "SilentStall"
    first = story.page
    story.line(BUDGET, SYMPTOM).looks("xx")
    assert story.page.alertname == "TokenBudgetDeadlock"
    assert (story.page.fingerprint, story.page.fired_at) == (first.fingerprint, first.fired_at)


def test_blindness_is_no_recovery_and_no_stall() -> None:
    # .......... x x x x x x x x ? ? ? ? ? ? ? ?
    story = Story().looks(HEALTHY).looks("x" * 8).looks("?" * 60)
    assert [a.state for a in story.alerts][-1] == "firing"
    blind = Story().looks(HEALTHY).looks("?" * 60)
    assert blind.alerts == []
    assert blind.detector.trackers[""].state_at(blind.now) == "unknown"


def test_resolved_after_a_minute_of_work_and_not_before() -> None:
    # x x x x x x x x . . . . . . . . . . . . . .
    story = Story().looks(HEALTHY).looks("x" * 8).looks("." * 12)
    assert [a.state for a in story.alerts][-1] == "firing"
    story.looks("." * 3)
    last = story.alerts[-1]
    assert last.state == "resolved"
    assert last.ends_at is not None
    assert last.fired_at is not None
    assert last.ends_at - last.fired_at >= 60


def test_a_relapse_during_recovery_is_the_same_alert() -> None:
    # x x x x x x x x . . . x x x x x x x x
    story = Story().looks(HEALTHY).looks("x" * 8).looks("...").looks("x" * 20)
    assert [a.state for a in story.alerts if a.severity == "critical"] == ["firing"]


def test_a_restart_resolves_quickly_and_a_second_wedge_is_a_new_episode() -> None:
    # x x x x x x x x (restart) . . . . . x x x x x x x x ...
    story = Story().looks(HEALTHY).looks("x" * 8).restart().looks("." * 6)
    assert [a.state for a in story.alerts][-1] == "resolved"
    story.looks("." * 30).looks("x" * 40)
    states = [a.state for a in story.alerts if a.severity == "critical"]
    assert states == ["firing", "resolved", "firing"]
    assert len({a.fingerprint for a in story.alerts}) == 1


def test_one_wedged_replica_is_told_by_its_label() -> None:
    # engine 0: . . . . . . . .      engine 1: . . . . x x x x
    story = Story()
    tokens = {"0": 0.0, "1": 0.0}
    for number in range(60):
        story.now += STEP
        for instance in tokens:
            if instance == "0" or number < 40:
                tokens[instance] += 1000
            values = {
                "generation_tokens_total": tokens[instance],
                "requests_finished_total": tokens[instance] / 100,
                "requests_running": 5.0,
                "requests_waiting": 2.0,
            }
            story.alerts += story.detector.on_sample(Sample(story.now, "llama-0", "metrics", values, instance))
    assert story.page.labels["engine_index"] == "1"


def test_labels_identify_and_hold_nothing_that_changes() -> None:
    labels = Story().looks(HEALTHY).looks("x" * 8).page.labels
    assert labels == {
        "cluster": "eu1",
        "alertname": "SilentStall",
        "failure": "silent_stall",
        "severity": "critical",
        "server": "llama-0",
        "engine": "unknown",
    }


def test_overload_is_a_warning_after_its_time_and_silent_while_paged_for() -> None:
    story = Story().looks("." * 90, waiting=40)
    (warning,) = story.fired("warning").values()
    assert warning.failure == "overload"
    assert story.fired() == {}


def test_a_label_template_is_filled_once_and_kept() -> None:
    # S (rank 3) ... the label stays while the alert is open, whatever later lines say
    labelled = replace(BUDGET, labels={"shard": "rank-{{ rank }}"})
    story = Story((labelled, DEAD, SILENT, RECOVERED, OVERLOAD)).looks(HEALTHY)
    story.line(labelled, SYMPTOM, rank="3").looks("x" * 10)
    assert story.page.labels["shard"] == "rank-3"


def test_a_rule_may_inhibit_another() -> None:
    # the queue is long for an hour, and the rule about that is silenced by a firing one that names it
    noisy = replace(OVERLOAD, alert="QueueLong", failure="early_warning", for_seconds=120)
    louder = replace(OVERLOAD, for_seconds=60, inhibits=("QueueLong",))
    story = Story((BUDGET, DEAD, SILENT, louder, noisy)).looks("." * 200, waiting=40)
    assert {a.alertname for a in story.fired("warning").values()} == {"Overload"}


def test_cooldown_keeps_a_flapping_rule_quiet() -> None:
    calm = replace(SILENT, cooldown=3600.0)
    story = Story((BUDGET, DEAD, calm, RECOVERED, OVERLOAD))
    story.looks(HEALTHY).looks("x" * 8).restart().looks("." * 40).looks("x" * 40)
    assert [a.state for a in story.alerts] == ["firing", "resolved"]


def test_the_end_of_input_is_no_evidence_but_windows_run_out() -> None:
    cut = Story().looks(HEALTHY).looks("xx")
    assert cut.detector.finish() == []
    lines = Story().line(BUDGET, SYMPTOM).line(BUDGET, TERMINAL)
    assert [a.state for a in lines.detector.finish()] == ["firing"]


@pytest.mark.parametrize("cut", [5, 38, 41, 43, 45, 47, 60])
def test_a_restart_of_the_daemon_changes_nothing(cut: int) -> None:
    text = HEALTHY + "x" * 10 + "." * 20

    def tell(story: Story, marks: str, offset: int) -> None:
        for number, mark in enumerate(marks, offset):
            story.looks(mark)
            if number == 42:
                story.line(BUDGET, SYMPTOM)

    whole = Story()
    tell(whole, text, 0)
    first = Story()
    tell(first, text[:cut], 0)
    heir = Story()
    heir.now, heir.tokens, heir.finished = first.now, first.tokens, first.finished
    heir.detector.restore(json.loads(json.dumps(first.detector.snapshot())))
    tell(heir, text[cut:], cut)
    assert [a.to_json() for a in first.alerts + heir.alerts] == [a.to_json() for a in whole.alerts]
