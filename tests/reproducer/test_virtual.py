"""The whole life of a server in virtual time: the order of its last words, and what each year makes of them."""

from __future__ import annotations

import itertools
import re

import pytest

from reproducer.config import preset
from reproducer.engine import AfterCrash
from reproducer.siblings import SCENARIOS
from reproducer.users import population_for
from reproducer.virtual import EPOCH, World


def crashed(after: AfterCrash | None = None, *, iterations: bool = False, voice: str | None = None) -> World:
    config = preset("draft")
    world = World(config, after_crash=after, print_iterations=iterations, voice=voice)
    world.closed(population_for("draft", config.max_seq_len), range(6), start=25)
    world.closed(population_for("draft", config.max_seq_len), range(6, 24), start=60)
    return world.run(3.0)


# start block, work, a step that grew into the last of its room, a step that grew past it, and the end of the loop:
#
#   I max_num_tokens   I iter ...   W grew to   Traceback   E forward   E event loop   Exception in thread   (silence)
#   |------------------|------------|-----------|-----------|-----------|--------------|---------------------|------->
def test_the_last_words_come_in_the_reported_order() -> None:
    text = crashed(iterations=True).log()
    words = [
        r"\[I\] max_seq_len=384, max_num_requests=32, max_num_tokens=256, max_batch_size=32",
        r"INFO:     Application startup complete\.",
        r"\[I\] iter = \d+, global_rank = 0, rank = 0, currank_total_requests = \d+/\d+, host_step_time = [\d.]+ms",
        r"\[W\] This iteration grew to 2\d\d tokens",
        r"\nTraceback \(most recent call last\):\n  File ",
        r"    assert total_num_tokens <= self\.max_num_tokens, \(",
        r"AssertionError: total_num_tokens \(\d+\) should be less than or equal to max_num_tokens \(256\)",
        r"\[E\] Encountered an error in forward function: total_num_tokens \(\d+\) should be less than",
        r"\[E\] Error in event loop: Sampling failed",
        r"\[E\] Traceback \(most recent call last\):",
        r"AssertionError: Sampling failed",
        r"Exception in thread Thread-1 \(_event_loop_wrapper\):",
    ]
    at = 0
    for word in words:
        found = re.compile(word).search(text, at)
        assert found, word
        at = found.end()
    assert "iter = " not in text[at:], "and then nothing"


def test_a_dead_loop_leaves_its_gauges_standing() -> None:
    world = crashed()
    assert world.died
    values = re.findall(r"trtllm_num_requests_running\{[^}]*\} ([\d.]+) (\d+)", world.metrics())
    after = {value for value, moment in values if float(moment) > world.died + 1}
    assert len(after) == 1
    assert float(after.pop()) > 10, "the last thing that was true"


def test_who_was_in_flight_gets_an_error_and_who_comes_later_gets_nothing() -> None:
    world = crashed()
    text = world.log()
    last = text.rindex("Exception in thread")
    assert text[last:].count("400 Bad Request") > 10
    assert world.engine.unanswered == 24, "all of them asked again, and wait"
    assert world.died
    assert world.completions[-1] <= world.died + 0.01


def test_the_same_seed_gives_the_same_log_and_metrics() -> None:
    first, second = crashed(), crashed()
    assert first.log() == second.log()
    assert first.metrics() == second.metrics()


def test_where_only_the_batch_fails_work_goes_on() -> None:
    world = crashed("batch")
    assert world.log().count("[E] Encountered an error in forward function") > 1
    assert "Error in event loop" not in world.log()
    assert world.completions[-1] > EPOCH + 170


def test_where_the_loop_is_known_to_be_gone_requests_are_refused() -> None:
    world = crashed("unavailable")
    assert world.engine.down == "Sampling failed"
    assert '" 503 Service Unavailable' in world.log()
    assert world.engine.unanswered == 0


def test_in_vllms_voice_every_line_of_the_traceback_has_the_header() -> None:
    text = crashed(voice="vllm").log()
    part = text[text.index("EngineCore encountered a fatal error.") :]
    assert re.search(r"\(EngineCore pid=100\) ERROR .*\] +assert total_num_tokens <= self\.max_num_tokens", part)
    assert "EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause." in part


@pytest.mark.parametrize("name", [name for name, scenario in SCENARIOS.items() if scenario.wedges])
def test_what_should_stop_stops(name: str) -> None:
    world = SCENARIOS[name].build(1).run(6.0)
    assert world.last_step < EPOCH + 330, "no step in the last half minute"
    summary = world.summary()
    assert summary["running"] + summary["waiting"] > 0


@pytest.mark.parametrize("name", ["overload", "preemption-storm", "steady", "restart", "disconnects", "recovered"])
def test_what_should_go_on_goes_on(name: str) -> None:
    world = SCENARIOS[name].build(1).run(5.5)
    assert world.completions[-1] > EPOCH + 320


def test_a_long_prompt_moves_nothing_but_the_cache() -> None:
    world = SCENARIOS["long-prefill"].build(0).run(6.0)
    gauges = re.findall(r"kv_cache_usage_perc\{[^}]*\} ([\d.]+) (\d+)", world.metrics())
    busy = [float(value) for value, moment in gauges if EPOCH + 150 < float(moment) < EPOCH + 310]
    assert busy == sorted(busy)
    tokens = re.findall(r"generation_tokens_total\{[^}]*\} ([\d.]+) (\d+)", world.metrics())
    assert len({value for value, moment in tokens if EPOCH + 150 < float(moment) < EPOCH + 310}) == 1


def test_a_restart_shows_a_new_start_time_and_counters_from_zero() -> None:
    world = SCENARIOS["restart"].build(0).run(7.0)
    starts = re.findall(r"process_start_time_seconds ([\d.]+) ", world.metrics())
    assert len(set(starts)) == 2
    counts = [float(v) for v in re.findall(r'request_success_total\{[^}]*"length"\} ([\d.]+) ', world.metrics())]
    assert any(after < before for before, after in itertools.pairwise(counts))


def test_clients_that_leave_are_counted_as_aborted() -> None:
    world = SCENARIOS["disconnects"].build(0).run(4.0)
    assert world.engine.stats.finished["abort"] > 50
    world.engine.scheduler.kv.audit(world.engine.scheduler.requests())


def test_a_loop_killed_without_a_word_is_noticed_by_the_front_end() -> None:
    world = SCENARIOS["engine-dead"].build(0).run(5.0)
    assert "Engine core proc EngineCore died unexpectedly, shutting down client." in world.log()
    assert world.engine.down
