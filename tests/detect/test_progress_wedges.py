"""What is a stall, how soon it is called, and how it ends."""

from __future__ import annotations

import pytest

from tests.detect.watched import Watched

FLOOR = 25.0
SOON = FLOOR + 6.0
"""The floor and one look, plus what looks come late by."""


@pytest.mark.parametrize("running", [8.0, 0.0])
def test_full_stop_is_called_at_the_floor(running: float) -> None:
    #  tokens  ....|            running 0: nothing is admitted; 8: a step never returns
    #  queue        /////////
    server = Watched().serve(120)
    began = server.now
    server.stand(12, running=running, waiting=(1, 40))
    stall = server.tracker.stall
    assert server.stalled_after(began) <= SOON
    assert stall is not None
    assert (stall.kind, stall.deadline_source, stall.since) == ("full", "floor", began)


def test_everything_is_frozen_and_the_queue_shows_nothing() -> None:
    server = Watched().serve(120)
    began = server.now
    assert server.stand(12).stalled_after(began) <= SOON


def test_engine_is_dead_behind_a_front_end_that_counts_errors() -> None:
    server = Watched(request_errors_total=0.0).serve(120)
    began = server.now
    for errors in range(12):
        server.values["request_errors_total"] = 3.0 * errors
        server.stand()
    assert server.stalled_after(began) <= SOON


def test_oversize_head_blocks_the_queue_after_what_ran_is_done() -> None:
    #  running  8 6 4 2 0 0 0 0 0 0
    #  waiting  1 2 3 4 5 6 7 ....
    server = Watched().serve(120)
    server.look(4, running=(8, 0), tokens=400, finished=2, waiting=(1, 5), kv=(0.4, 0.0))
    began = server.now
    assert server.stand(12, waiting=(5, 30)).stalled_after(began) <= SOON


def test_oversize_request_alone_on_a_server_that_does_next_to_nothing() -> None:
    server = Watched().serve(4).stand(60, running=0, kv=0.0)
    began = server.now
    assert server.stand(40, waiting=1).stalled_after(began) <= 130


def test_cold_wedge_before_anything_came_out() -> None:
    server = Watched().look(1)
    began = server.now
    server.stand(30, running=4)
    stall = server.tracker.stall
    assert server.stalled_after(began) <= 126
    assert stall is not None
    assert stall.deadline_source == "cold"


def test_cold_wedge_is_called_sooner_where_the_loop_turns_and_schedules_nothing() -> None:
    # the queue grows on the page: its gauge comes from the loop, so nothing compiles and no step hangs
    server = Watched().look(2, running=4, tokens=100)
    began = server.now
    server.stand(20, waiting=(1, 20))
    stall = server.tracker.stall
    assert server.stalled_after(began) <= 2 * FLOOR + 6
    assert stall is not None
    assert stall.deadline_source == "turning"


def test_a_queue_that_front_ends_count_themselves_proves_no_turning_loop() -> None:
    # seen once: the queue grew while a step took half a minute
    server = Watched().serve(6).stand(6, waiting=(1, 6)).serve(2)
    server.restart()
    began = server.now
    server.look(1, running=4, tokens=50).stand(20, waiting=(1, 20))
    assert not any(state == "stalled" and time < began + 100 for time, state in server.seen)


def test_one_replica_of_eight_while_seven_go_on() -> None:
    replicas = [Watched().serve(120) for _ in range(8)]
    began = replicas[2].now
    for number, replica in enumerate(replicas):
        if number == 2:
            replica.stand(12)
        else:
            replica.serve(12)
    assert [number for number, replica in enumerate(replicas) if replica.ever_stalled] == [2]
    assert replicas[2].stalled_after(began) <= SOON


def test_trickle_of_half_a_token_a_second() -> None:
    server = Watched().serve(120)
    began = server.now
    for look in range(60):
        server.look(1, tokens=look % 2 * 5, waiting=5 + look // 2)
    stall = server.tracker.stall
    assert server.stalled_after(began) <= 96
    assert stall is not None
    assert stall.kind == "trickle"


def test_trickle_goes_on_being_a_stall_until_something_completes() -> None:
    server = Watched().serve(120).look(40, tokens=2, waiting=(5, 60))
    assert server.state == "stalled"
    server.look(3, tokens=2, waiting=70)
    assert server.state == "stalled"
    server.serve(2)
    assert server.state != "stalled"


def test_long_prefill_beside_one_that_crawls_is_no_trickle() -> None:
    # 30 tokens a second fall to 0.2 while a prompt of 72,000 is prefilled: the pool tells
    server = Watched().serve(120).look(30, tokens=1, waiting=(1, 6), running=2, kv=(0.4, 0.6))
    assert not server.ever_stalled


def test_a_decent_speed_for_few_is_no_trickle() -> None:
    # four long contexts fill the pool, stream at their usual pace, and everybody else waits for minutes
    server = Watched().serve(120).look(60, tokens=350, running=4, waiting=(5, 60), kv=0.98)
    assert server.states == ["serving", "saturated"]


def test_preemption_livelock_without_any_token() -> None:
    server = Watched().serve(120)
    began = server.now
    for look in range(12):
        server.look(1, preempted=40, kv=0.93 + 0.02 * (look % 3), waiting=10 + look)
    stall = server.tracker.stall
    assert server.stalled_after(began) <= SOON
    assert stall is not None
    assert stall.kind == "livelock"


def test_preemption_livelock_that_leaks_a_token_now_and_then() -> None:
    server = Watched().serve(120)
    began = server.now
    for look in range(40):
        server.look(1, preempted=40, tokens=look % 3 == 0, kv=0.93 + 0.02 * (look % 3), waiting=10 + look)
    assert server.stalled_after(began) <= 126


def test_pool_that_flaps_without_a_count_of_preemptions() -> None:
    server = Watched().serve(120)
    began = server.now
    for look in range(20):
        server.look(1, kv=(0.92, 0.99, 0.95)[look % 3], running=(3, 1, 2)[look % 3], waiting=10 + look)
    assert server.stalled_after(began) <= 60


def test_clients_give_up_and_new_ones_come_on_a_loop_that_is_dead() -> None:
    #  running  8 8 8 8 8 8 8   frozen
    #  aborted  . . 8 9 10 11   more than the gauges ever showed: somebody still comes
    server = Watched().serve(120)
    began = server.now
    server.stand(2).look(1, aborted=8).look(12, aborted=1)
    assert server.stalled_after(began) <= 45


def test_clients_give_up_before_the_deadline_again_and_again() -> None:
    # each waits 20 s and leaves; half a minute later the next one comes
    server = Watched().serve(120).look(1, running=0, kv=0.0, finished=1)
    began = server.now
    for _ in range(4):
        server.stand(4, waiting=1).look(1, waiting=0, aborted=1).stand(6)
    assert server.stalled_after(began) <= 120


def test_replies_are_lost_between_engine_and_client() -> None:
    # the front end holds three requests, the engine none
    server = Watched().serve(120, http=9.0).look(1, running=0, kv=0.0, finished=8, http=1.0).stand(6)
    began = server.now
    server.stand(40, http=4.0)
    stall = server.tracker.stall
    assert 110 <= server.stalled_after(began) <= 130
    assert stall is not None
    assert (stall.kind, stall.certain) == ("lost_replies", False)


def test_what_the_front_end_always_holds_open_is_nobodys_request() -> None:
    # it counts the read of this very page
    server = Watched().serve(120, http=9.0).look(400, running=0, kv=0.0, http=1.0)
    assert server.states == ["serving", "idle"]


def test_transfer_that_never_ends_is_given_two_minutes() -> None:
    server = Watched().serve(120, deferred=0.0)
    began = server.now
    server.stand(40, running=0, waiting=3, deferred=3.0)
    stall = server.tracker.stall
    assert server.stalled_after(began) <= 126
    assert stall is not None
    assert stall.deadline_source == "transfer"


def test_passes_that_schedule_nothing_are_no_work() -> None:
    server = Watched(scheduled_requests=4.0).serve(120)
    began = server.now
    assert server.look(20, steps=200, scheduled=0.0, waiting=(1, 9)).stalled_after(began) <= SOON + 6


def test_stall_ends_with_the_first_progress() -> None:
    server = Watched().serve(120).stand(12).serve(1)
    assert server.states == ["serving", "stalled", "serving"]


def test_stall_ends_when_live_gauges_show_nobody_waiting() -> None:
    server = Watched().serve(120).stand(12, waiting=3).look(1, running=0, waiting=0, kv=0.0)
    assert server.states[-2:] == ["stalled", "idle"]


def test_stall_ends_with_the_process() -> None:
    server = Watched().serve(120).stand(12).restart().serve(4)
    assert server.states[-1] == "serving"
    assert server.tracker.restarts == 1


def test_stall_stands_while_nothing_is_seen() -> None:
    server = Watched().serve(120).stand(12).lose(600)
    assert server.state == "stalled"


def test_line_that_names_the_stall_halves_the_wait() -> None:
    server = Watched().serve(120)
    symptom = server.now + 1
    server.stand(1)
    assert server.tracker.with_evidence(symptom) is None
    server.stand(1)
    stall = server.tracker.with_evidence(symptom)
    assert stall is not None
    assert (stall.deadline, stall.deadline_source, stall.declared - stall.since) == (10.0, "evidence", 10.0)


def test_line_with_a_stamp_of_whole_seconds_is_believed_although_a_look_saw_work_a_moment_later() -> None:
    # stamp  . death  look: the last work   look  look
    server = Watched().serve(120)
    symptom = server.now - 0.9
    server.serve(1)
    server.stand(2)
    assert server.tracker.with_evidence(symptom) is not None


def test_line_that_names_a_stall_is_not_believed_while_work_goes_on() -> None:
    server = Watched().serve(120)
    symptom = server.now
    server.serve(4).stand(4)
    assert server.tracker.with_evidence(symptom) is None


def test_summary_counts_since_the_onset() -> None:
    server = Watched().serve(120).look(40, tokens=2, waiting=(5, 60))
    summary = server.tracker.summary(server.now)
    assert summary.state == "stalled"
    assert summary.finished_in_window == 0
    assert summary.requests_waiting == 60
    assert 30 <= (summary.tokens_in_window or 0) <= 90
