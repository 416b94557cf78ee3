"""What looks like a stall and is none, each on the series that its engine would show."""

from __future__ import annotations

import random

from agent.detect.deadline import ProgressLimits
from bench.queueing import Engine, Shape
from tests.detect.watched import Watched


def test_prompt_of_a_million_tokens_freezes_the_counters_while_the_pool_fills() -> None:
    # tokens   ....|                      |....
    # kv       .4  /////// 0.4 -> 0.95 ///
    server = Watched().serve(60, kv=0.02, running=1, finished=0)
    server.look(24, kv=(0.02, 0.48), running=1)
    server.look(24, kv=(0.48, 0.95), running=1)
    server.look(12, tokens=200, prompted=83_000, steps=5, kv=0.95)
    assert server.states == ["serving"]


def test_the_same_prompt_in_an_engine_that_is_simulated() -> None:
    engine = Engine(random.Random(1), Shape(pool=2_500_000.0, prefill=4_000.0, longest=1_048_576.0))
    server = Watched()
    for look in range(240):
        if look == 100:
            engine.arrive(1_000_000.0, 300.0)
        if look < 100 and look % 2 == 0:
            engine.arrive(800.0, 200.0)
        engine.advance(engine.now + 5.0)
        server.values |= engine.page()
        server.stand()
    assert engine.counts["finished"] >= 50
    assert not server.ever_stalled


def test_prefill_in_chunks_of_minutes_on_a_slow_machine_once_it_is_known_for_them() -> None:
    # a step of 40 s for each chunk: only the pool moves, eight looks apart
    server = Watched().serve(6, finished=0)
    for step in range(12):
        server.stand(7).look(kv=0.42 + 0.04 * step, running=1)
    assert not server.ever_stalled
    assert server.tracker.deadline()[1] in ("learned", "ceiling")


def test_batch_of_very_long_answers_completes_nothing_for_half_an_hour_and_streams() -> None:
    server = Watched().serve(60)
    server.look(360, tokens=1200, steps=150, kv=(0.4, 0.9), running=8)
    assert server.states == ["serving"]


def test_long_answers_on_an_engine_that_counts_tokens_at_the_end_only_fill_the_pool() -> None:
    # TensorRT-LLM: tokens come with the completion, blocks of the pool before it
    server = Watched().serve(60)
    server.look(240, kv=(0.40, 0.41), running=4)
    server.look(1, tokens=48_000, finished=4)
    assert server.states == ["serving"]


def test_sleep_that_the_page_shows_is_idle_and_frozen_gauges_in_it_are_no_work() -> None:
    server = Watched().serve(60, sleeping=0.0)
    server.look(60, sleeping=1.0)
    assert server.state == "idle"
    server.look(1, sleeping=0.0).serve(12)
    assert server.states == ["serving", "idle", "serving"]


def test_pause_for_new_weights_that_the_log_tells_of() -> None:
    #  log   sleeping ........... awake
    #  page  frozen, 8 running    frozen for 20 s more, then on
    server = Watched().serve(60).mark("sleeping").stand(24)
    server.mark("awake").stand(4).serve(12)
    assert not server.ever_stalled


def test_the_line_that_ends_the_pause_may_bear_too_early_a_time() -> None:
    # access-log lines have no time of their own: the wake-up is stamped like the last line before the pause
    server = Watched().serve(60).mark("sleeping").look(1, tokens=100).mark("awake").stand(50).serve(12)
    assert not server.ever_stalled


def test_pause_that_nobody_tells_of_is_called_once_and_twice_is_a_habit() -> None:
    # 45 s without anything each five minutes, no client gives up, nobody restarts
    server = Watched().serve(60)
    calls = []
    for _ in range(4):
        server.stand(9).serve(60)
        calls.append(server.states.count("stalled"))
    assert calls == [1, 2, 2, 2]


def test_a_habit_is_never_longer_than_the_cold_deadline() -> None:
    server = Watched().serve(60)
    for _ in range(3):
        server.stand(50).serve(60)
    began = server.now
    server.stand(60)
    assert server.stalled_after(began) <= ProgressLimits().cold


def test_compile_and_capture_before_it_is_ready() -> None:
    server = Watched().mark("starting").stand(4).mark("loading").stand(120, running=1)
    assert server.states == ["starting"]
    server.mark("ready").serve(12)
    assert server.state == "serving"


def test_kernels_are_compiled_at_the_first_request_after_it_is_ready() -> None:
    # ready, first request: 100 s of compiling, a few tokens, 30 s more of it, then well
    server = Watched().mark("starting").mark("ready", after=60).stand(20, running=1)
    server.look(6, tokens=50, finished=0, running=2).stand(6).serve(60)
    assert not server.ever_stalled


def test_kernels_are_compiled_anew_by_a_process_that_follows_a_quick_one() -> None:
    server = Watched().serve(400).restart().stand(15, running=2).look(4, tokens=500, running=4).stand(8).serve(60)
    assert not server.ever_stalled


def test_kv_comes_over_the_network_for_a_minute() -> None:
    server = Watched().serve(60, deferred=0.0)
    server.stand(12, running=0, waiting=3, deferred=3.0).serve(12, deferred=0.0)
    assert not server.ever_stalled


def test_kv_is_fetched_back_from_the_host_in_pauses_that_it_is_used_to() -> None:
    server = Watched()
    for _ in range(20):
        server.serve(12).stand(3)
    assert not server.ever_stalled


def test_preemption_storm_that_still_delivers_is_overload() -> None:
    server = Watched().serve(60)
    server.look(120, tokens=600, finished=1, preempted=30, waiting=(10, 90), kv=0.99, running=20)
    assert server.states == ["serving", "saturated"]


def test_preemption_storm_that_streams_without_completing_for_two_minutes_is_no_livelock() -> None:
    server = Watched().serve(60)
    server.look(36, tokens=500, preempted=20, waiting=(10, 50), running=8)
    assert server.states == ["serving", "saturated"]


def test_drain_before_shutdown() -> None:
    server = Watched().serve(60).mark("draining").look(12, tokens=300, running=2).stand(60).mark("stopped")
    assert server.state == "down"
    assert not server.ever_stalled


def test_a_server_that_works_on_for_ten_minutes_does_not_drain() -> None:
    server = Watched().serve(60).mark("draining").serve(130)
    began = server.now
    assert server.stand(12).stalled_after(began) <= 30


def test_clients_disconnect_in_a_storm_while_others_are_served() -> None:
    server = Watched().serve(60)
    server.look(60, aborted=25, tokens=2500, finished=0, running=30, waiting=(5, 40))
    assert server.states == ["serving", "saturated"]


def test_all_clients_leave_at_once_and_the_gauges_freeze() -> None:
    #  running  8 8 8 8 8 8 ....   (nobody pushes them any more)
    #  aborted  0 0 8 8 8 8 ....
    server = Watched().serve(60).look(1, aborted=8).stand(200)
    assert server.states == ["serving", "idle"]


def test_all_clients_leave_in_the_interval_in_which_the_gauges_change_for_the_last_time() -> None:
    server = Watched().serve(60, running=34).look(1, aborted=32, running=32, kv=0.9).stand(200)
    assert server.states == ["serving", "idle"]


def test_the_log_tells_who_left_where_the_page_does_not() -> None:
    server = Watched()
    del server.values["requests_aborted_total"]
    server.serve(60)
    for _ in range(8):
        server.mark("aborted")
    assert not server.stand(100).ever_stalled


def test_both_tell_of_the_same_aborts_at_different_times() -> None:
    # page and log count the same eight: that is eight, not sixteen
    server = Watched().serve(60, running=20).stand(1)
    for _ in range(8):
        server.mark("aborted")
    server.look(1, aborted=8)
    began = server.now
    server.stand(12)
    assert server.stalled_after(began) < 60


def test_planned_restart_resets_counters_and_is_counted_once() -> None:
    server = Watched().serve(60).mark("draining").mark("stopped").lose(60)
    server.mark("starting").mark("ready", after=40).restart(down=0).serve(60)
    assert server.tracker.restarts == 1
    assert not server.ever_stalled


def test_idle_night_with_a_request_now_and_then() -> None:
    server = Watched().serve(60)
    for _ in range(20):
        server.look(100, running=0, kv=0.0).look(1, running=1, tokens=50).look(1, running=0, finished=1)
    assert "stalled" not in server.states
    assert server.state == "idle"


def test_requests_that_their_clients_give_up_at_once_add_up_only_within_ten_minutes() -> None:
    # a probe that opens a request and leaves it after a look, twice an hour
    server = Watched().serve(60)
    for _ in range(12):
        server.look(150, running=0, kv=0.0).stand(2, running=1).look(1, running=0, aborted=1)
    assert not server.ever_stalled


def test_training_steps_are_progress() -> None:
    server = Watched()
    for step in range(100):
        server.line(after=30, training_step=float(step), requests_running=1.0)
    assert not server.ever_stalled
