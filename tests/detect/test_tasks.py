"""An engine that tells of the begin and the end of each request, and of nothing in between: llama.cpp's log alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.detect.tasks import Tasks
from agent.logs.timestamps import YearReference
from agent.model import Alert
from agent.pipeline import Pipeline, ServerSpec
from agent.rules.cached import load_rules_cached
from agent.rules.model import RuleSet
from tests.detect.watched import Watched

T0 = 1_782_072_000.0


@pytest.fixture(scope="module")
def ruleset(tmp_path_factory: pytest.TempPathFactory) -> RuleSet:
    return load_rules_cached(cache_dir=tmp_path_factory.mktemp("cache"))[0]


class Server:
    """A llama.cpp server of which there is only the log, with stamps of the container runtime."""

    def __init__(self, ruleset: RuleSet, cache: Path) -> None:
        self.pipeline = Pipeline(
            ruleset, [ServerSpec("s", "llama_cpp")], year_reference=YearReference(T0), cache_dir=cache
        )
        self.stream = self.pipeline.stream("s", "s.log")
        self.now = T0
        self.alerts: list[Alert] = []

    def say(self, *texts: str, after: float = 1.0) -> Server:
        for text in texts:
            self.wait(after)
            second = self.now - T0
            stamp = f"2026-06-21T20:{int(second // 60):02d}:{second % 60:06.3f}000000Z"
            assert second < 3600
            for matched in self.stream.feed(f"{stamp} stdout F {text}\n".encode()):
                self.alerts += self.pipeline.on_matched(matched, self.stream.dialect)
        return self

    def wait(self, seconds: float) -> Server:
        self.now += seconds
        self.alerts += self.pipeline.advance(self.now)
        return self

    def serve(self, *tasks: int, words: bool = True) -> Server:
        for task in tasks:
            slot, size = f"id  0 | task {task} |", 512 + task
            self.say(f"slot launch_slot_: {slot} processing task")
            if words:
                self.say(f"slot update_slots: {slot} prompt processing progress, n_tokens = {size}, progress = 1.0")
            self.say(f"slot      release: {slot} stop processing: n_tokens = 640, truncated = 0", after=12.0)
        return self

    @property
    def fired(self) -> list[Alert]:
        return [alert for alert in self.alerts if alert.state == "firing" and alert.severity == "critical"]


def test_a_task_was_begun_and_nothing_more_was_heard_of_anything(ruleset: RuleSet, tmp_path: Path) -> None:
    #  begin words end, twice; begin ................. 300 s
    server = Server(ruleset, tmp_path).serve(1, 8)
    server.say("slot launch_slot_: id  0 | task 15 | processing task")
    began = server.now
    server.wait(290)
    assert server.fired == []
    server.wait(120)
    (alert,) = server.fired
    assert (alert.confidence, alert.progress.state if alert.progress else "") == ("probable", "stalled")
    assert alert.starts_at == pytest.approx(began, abs=1.5)


def test_a_long_answer_is_written_without_a_word(ruleset: RuleSet, tmp_path: Path) -> None:
    server = Server(ruleset, tmp_path).serve(1, 8)
    server.say(
        "slot launch_slot_: id  0 | task 15 | processing task",
        "slot update_slots: id  0 | task 15 | prompt processing progress, n_tokens = 900, progress = 1.0",
    )
    server.wait(1500)
    server.say("slot      release: id  0 | task 15 | stop processing: n_tokens = 30000, truncated = 0")
    server.wait(1500)
    assert server.fired == []


def test_an_idle_server_is_silent(ruleset: RuleSet, tmp_path: Path) -> None:
    assert Server(ruleset, tmp_path).serve(1, 8, 15).wait(30_000).fired == []


def test_a_task_whose_client_went_away_is_owed_to_nobody(ruleset: RuleSet, tmp_path: Path) -> None:
    server = Server(ruleset, tmp_path).serve(1, 8)
    server.say("slot launch_slot_: id  0 | task 15 | processing task", "srv  stop: cancel task, id_task = 15")
    assert server.wait(30_000).fired == []


def test_a_stall_ends_with_a_word_of_work(ruleset: RuleSet, tmp_path: Path) -> None:
    server = Server(ruleset, tmp_path).serve(1, 8).say("slot launch_slot_: id  0 | task 15 | processing task")
    server.wait(500).say("slot      release: id  0 | task 15 | stop processing: n_tokens = 640, truncated = 0")
    server.serve(*range(20, 30)).wait(60)
    assert [alert.state for alert in server.alerts if alert.severity == "critical"][-1] == "resolved"


def test_a_build_that_never_says_more_is_given_half_an_hour() -> None:
    tasks = Tasks()
    for number in range(20):
        tasks.begin(str(number), 100.0 * number)
        tasks.end(str(number), 100.0 * number + 40)
    quiet = Tasks()
    quiet.begin("1", 0.0)
    assert quiet.overdue(300.0) == 1800.0, "nothing is known of this build yet"
    tasks.begin("x", 5000.0)
    assert tasks.overdue(300.0) == 6800.0, "answers of 40 s say nothing of how long one may be"
    tasks.hear(5001.0)
    tasks.end("x", 5030.0)
    tasks.begin("y", 6000.0)
    assert tasks.overdue(300.0) == 6300.0


def test_a_page_that_tells_of_the_tasks_is_believed() -> None:
    #  page .......................... hangs ??????????
    server = Watched()
    server.serve(20)
    for number in range(3):
        server.mark("begun", after=1.0)
        server.line(after=1.0, progress_mark=float(number))
    server.mark("begun", after=1.0)
    server.serve(120)
    assert not server.ever_stalled
    server.lose(400)
    assert server.tracker.stall is not None
    assert (server.tracker.stall.kind, server.tracker.stall.certain) == ("silence", False)


def test_tasks_survive_a_restart_of_the_daemon() -> None:
    tasks, again = Tasks(), Tasks()
    tasks.begin("1", 10.0)
    again.restore(json.loads(json.dumps(tasks.snapshot())))
    assert again.overdue(300.0) == tasks.overdue(300.0)
    again.restore(None)
    assert again.overdue(300.0) is not None
