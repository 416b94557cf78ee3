"""Blindness, clocks, restarts and pages that are not what they were. None of it is a stall, none of it is health."""

from __future__ import annotations

import math

import pytest

from agent.model import Sample
from tests.detect.watched import T0, Watched


def test_page_is_lost_for_three_minutes_and_comes_back_with_progress_made() -> None:
    server = Watched().serve(60).lose(180)
    assert server.state == "unknown"
    assert server.tracker.failed_since is not None
    assert server.tracker.failure.startswith("timeout")
    server.serve(12)
    assert server.states == ["serving", "unknown", "serving"]
    assert server.tracker.failed_since is None


@pytest.mark.parametrize("hole", [30, 120, 600])
def test_host_stands_still_with_everything_on_it_and_goes_on(hole: int) -> None:
    # both ends of the gap show the same: time in which nobody looked is no evidence
    server = Watched().serve(60).stand(3).lose(hole).stand(1).serve(12)
    assert "stalled" not in server.states


def test_daemon_stands_still_and_nobody_tells_it() -> None:
    server = Watched().serve(60).stand(2)
    server.now += 3600
    server.stand(2).serve(12)
    assert not server.ever_stalled


def test_stall_goes_on_over_a_scrape_gap() -> None:
    #  page    ....| . . . lost . . . . .
    server = Watched().serve(120)
    began = server.now
    server.stand(3).lose(60).stand(12)
    assert server.stalled_after(began) <= 110


def test_single_looks_fail_all_the_time() -> None:
    server = Watched().serve(120)
    for _ in range(30):
        server.lose(5).serve(1)
    assert not server.ever_stalled
    began = server.now
    for _ in range(10):
        server.lose(5).stand(1)
    assert server.stalled_after(began) <= 60


@pytest.mark.parametrize("back", [-3600.0, -70.0])
def test_clock_is_set_back(back: float) -> None:
    server = Watched().serve(120)
    server.now += back
    server.serve(12)
    assert server.states == ["serving"]
    began = server.now
    server.stand(12)
    assert server.stalled_after(began) <= 31
    assert server.tracker.stall is not None
    assert server.tracker.stall.since == began


def test_clock_is_set_back_within_a_stall() -> None:
    server = Watched().serve(120).stand(12)
    server.now -= 3600
    server.stand(12)
    assert server.states == ["serving", "stalled"]
    server.serve(1)
    assert server.state == "serving"


def test_clock_is_set_forward() -> None:
    server = Watched().serve(120)
    server.now += 7 * 86_400
    server.stand(1).serve(12)
    assert not server.ever_stalled


def test_look_that_comes_late_is_overtaken() -> None:
    server = Watched().serve(60)
    server.now -= 12
    server.stand(1)
    server.now += 12
    server.serve(6)
    assert not server.ever_stalled
    assert len(server.tracker.points) == 66


def test_restart_is_seen_by_the_start_time_though_counters_grew_past_the_old_ones() -> None:
    server = Watched().serve(2)
    server.values["process_start_time_seconds"] += 500
    server.look(1, tokens=50_000)
    assert server.tracker.restarts == 1


def test_restart_is_seen_by_counters_where_no_start_time_is_shown() -> None:
    server = Watched()
    del server.values["process_start_time_seconds"]
    server.serve(60)
    server.values["generation_tokens_total"] = 10.0
    server.stand(1)
    assert server.tracker.restarts == 1


def test_counter_that_falls_in_the_same_process_is_no_restart() -> None:
    # a model's series went away with its adapter
    server = Watched().serve(60)
    server.values["generation_tokens_total"] -= 10_000
    server.stand(1).serve(12)
    assert server.tracker.restarts == 0
    assert not server.ever_stalled


def test_restart_that_the_log_and_the_page_tell_of_is_one() -> None:
    server = Watched().serve(60).lose(30).mark("starting").lose(60).mark("ready").restart(down=0).serve(4)
    assert server.tracker.restarts == 1


def test_restart_is_told_by_the_page_alone() -> None:
    server = Watched().serve(60).restart().serve(4)
    assert server.tracker.restarts == 1
    assert server.tracker.started_at is not None
    assert server.tracker.started_at > T0 + 300


def test_two_processes_answer_in_turn_behind_one_address() -> None:
    server = Watched()
    first = dict(server.values)
    for look in range(41):
        server.values = {**first, "process_start_time_seconds": T0 - 600 + look % 2 * 50}
        server.look(1, tokens=100 * look, running=4)
    assert server.tracker.restarts <= 1
    assert "several processes" in server.tracker.failure


def test_first_look_at_a_server_whose_counters_are_large() -> None:
    server = Watched(generation_tokens_total=9e9, requests_finished_total=1e6).stand(1, running=8)
    assert server.state == "serving"
    assert server.tracker.last_progress is None
    server.serve(6).stand(5).serve(2)
    assert not server.ever_stalled


def test_first_look_at_a_server_that_has_stood_for_long() -> None:
    server = Watched(generation_tokens_total=9e9)
    began = server.now
    assert server.stand(40, running=8, waiting=30).stalled_after(began) <= 130


def test_frozen_exporter_repeats_a_page_that_counts_its_own_cpu_time() -> None:
    server = Watched().serve(60)
    for repeats in range(1, 60):
        server.look(1, repeats=repeats)
    assert server.states == ["serving", "unknown"]
    assert server.tracker.failure.startswith("frozen: the same page")
    server.serve(6)
    assert server.state == "serving"


def test_cache_in_between_renews_the_page_each_fifteen_seconds() -> None:
    server = Watched()
    for _ in range(60):
        server.serve(1).look(1, repeats=1).look(1, repeats=2)
    assert not server.ever_stalled
    began = server.now
    for _ in range(8):
        server.look(1, repeats=0).look(1, repeats=1).look(1, repeats=2)
    assert server.stalled_after(began) <= 75


def test_wedge_on_a_page_without_a_clock_of_its_own_repeats_itself_and_is_called() -> None:
    # TensorRT-LLM and vLLM with several front ends show no process counters
    server = Watched().serve(120)
    began = server.now
    for repeats in range(12):
        server.now += 5
        server._observe(Sample(server.now, "s", "metrics", dict(server.values), repeats=repeats))
    assert server.stalled_after(began) <= 31


def test_gauges_vanish_from_the_page() -> None:
    server = Watched().serve(60)
    del server.values["requests_running"], server.values["requests_waiting"]
    server.look(30, tokens=1000)
    assert server.state == "unknown"
    assert "gone" in server.tracker.failure


def test_page_is_cut_short_once_and_filled_with_zeros() -> None:
    server = Watched().serve(60)
    whole = dict(server.values)
    server.values = {name: 0.0 for name in whole if name.endswith("_total")}
    server.look(1)
    server.values = whole
    server.serve(6)
    assert server.tracker.restarts == 0
    assert server.states[-1] == "serving"


def test_counters_of_tokens_vanish_and_completions_stay() -> None:
    # what is left shows progress once a minute: the ceiling holds, not what the old eyes learned
    server = Watched().serve(120)
    for name in ("generation_tokens_total", "prompt_tokens_total", "iterations_total", "kv_cache_usage_ratio"):
        del server.values[name]
    for _ in range(5):
        server.look(12).look(1, finished=1)
    assert not server.ever_stalled
    assert server.tracker.deadline()[1] in ("vanished", "ceiling")


def test_nothing_on_the_page_tells_of_progress() -> None:
    server = Watched().serve(60)
    for name in list(server.values):
        if name not in ("requests_running", "requests_waiting", "process_start_time_seconds"):
            del server.values[name]
    server.stand(200, running=8)
    assert not server.ever_stalled


def test_counter_is_born_with_its_first_event() -> None:
    server = Watched()
    del server.values["requests_finished_total"], server.values["generation_tokens_total"]
    server.look(20, running=4, kv=(0.1, 0.2))
    server.values |= {"requests_finished_total": 1.0}
    server.look(1)
    assert server.tracker.points[-1].finished == 1


def test_counter_that_comes_back_has_grown_by_what_is_new() -> None:
    server = Watched().serve(60)
    kept = server.values.pop("generation_tokens_total")
    server.look(3, steps=10)
    server.values["generation_tokens_total"] = kept + 40
    server.look(1)
    assert server.tracker.points[-1].generated == 40


def test_not_a_number_is_no_value() -> None:
    server = Watched().serve(60)
    server.values["requests_running"] = math.nan
    server.values["kv_cache_usage_ratio"] = math.inf
    server.look(3, tokens=100)
    server.values["requests_running"] = 8.0
    server.serve(3)
    assert server.state == "serving"


def test_page_without_gauges_shows_service_and_never_a_stall() -> None:
    # TensorRT-LLM up to 1.2: completions are all it counts
    server = Watched()
    server.values = {"requests_finished_total": 0.0}
    server.look(30, finished=1)
    assert server.state == "serving"
    server.look(100)
    assert server.state == "unknown"


def test_stop_line_of_another_process_does_not_make_it_stopped() -> None:
    # one of several front ends ends, or its line bears the time of the line before: the page still answers
    server = Watched().serve(60).mark("stopped")
    assert server.state == "down"
    began = server.now
    server.stand(12)
    assert server.stalled_after(began) <= 45


def test_looks_of_half_a_minute() -> None:
    server = Watched(every=30).serve(120)
    began = server.now
    assert server.stand(12).stalled_after(began) <= 125


def test_looks_of_a_second() -> None:
    server = Watched(every=1).serve(600)
    began = server.now
    assert server.stand(60).stalled_after(began) <= 27


def test_queue_that_is_never_empty_is_saturation() -> None:
    server = Watched().serve(10).serve(13, waiting=5)
    assert server.states == ["serving", "saturated"]
    server.serve(1, waiting=0)
    assert server.state == "serving"
    assert server.tracker.state_since == server.now
    assert server.tracker.state_at(server.now + 3600) == "unknown"
