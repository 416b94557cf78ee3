"""Stats lines of the engines, alone and beside the page, and the canary."""

from __future__ import annotations

from agent.model import Sample
from tests.detect.watched import Watched


def vllm(server: Watched, lines: int, gen: float, running: float, waiting: float = 0.0, kv: float = 0.3) -> Watched:
    """``Engine 000: Avg prompt throughput ...`` each ten seconds."""
    for _ in range(lines):
        server.line(gen=gen, prompt=gen * 2, running=running, waiting=waiting, kv=kv)
    return server


def test_vllm_at_debug_repeats_its_zero_line() -> None:
    server = vllm(Watched(), 30, 800, 8)
    began = server.now
    vllm(server, 8, 0, 0, waiting=5, kv=0.0)
    assert server.stalled_after(began) <= 61
    assert server.tracker.stall is not None
    assert server.tracker.stall.certain


def test_vllm_at_info_falls_silent_after_one_zero_line_with_nothing_running() -> None:
    #  line   800 800 800 0/0 (Running 0, Waiting 5)  . . . .
    server = vllm(Watched(), 30, 800, 8)
    began = server.now
    vllm(server, 1, 0, 0, waiting=5, kv=0.0).wait(400)
    stall = server.tracker.stall
    assert 110 <= server.stalled_after(began) <= 140
    assert stall is not None
    assert (stall.kind, stall.certain) == ("silence", False)


def test_vllm_at_info_falls_silent_over_a_long_prefill() -> None:
    # one zero line with a request running may be a prompt of a million tokens: five minutes are left to it
    server = vllm(Watched(), 30, 800, 8)
    vllm(server, 1, 0, 1).wait(250)
    assert not server.ever_stalled
    vllm(server, 4, 800, 1)
    assert server.states[-1] == "serving"


def test_vllm_at_info_is_silent_when_idle() -> None:
    server = vllm(Watched(), 30, 800, 8)
    vllm(server, 1, 0, 0).wait(3600, step=30)
    assert "stalled" not in server.states
    assert server.state == "unknown"


def test_time_at_which_silence_counts_is_foretold() -> None:
    server = vllm(Watched(), 30, 800, 8)
    assert server.tracker.next_deadline() is None
    vllm(server, 1, 0, 0, waiting=5)
    due = server.tracker.next_deadline()
    assert due is not None
    server.tracker.advance(due - 0.001)
    assert server.tracker.stall is None
    server.tracker.advance(due)
    assert server.tracker.stall is not None
    assert server.tracker.next_deadline() is None


def test_sglang_prints_nothing_but_its_own_probes() -> None:
    #  Prefill batch, #new-token: 1, #running-req: 0, #queue-req: 9     each 20 s, from the health check
    server = Watched()
    for _ in range(60):
        server.line(after=2, running=8, waiting=0, gen=900)
    began = server.now
    for queue in range(8):
        server.line(after=20, probe=True, running=0, waiting=3 + queue, scheduled_tokens=1)
    assert server.stalled_after(began) <= 61


def test_sglang_says_nothing_more_with_a_queue() -> None:
    server = Watched()
    for _ in range(60):
        server.line(after=2, running=8, waiting=4, gen=900)
    began = server.now
    assert server.wait(200).stalled_after(began) <= 121


def test_sglang_ran_out_of_work() -> None:
    server = Watched()
    for _ in range(60):
        server.line(after=2, running=2, waiting=0, gen=300)
    assert not server.wait(3600, step=30).ever_stalled


def test_tensorrt_llm_iterates_and_schedules_nothing() -> None:
    #  iter = 8112 ... num_scheduled_requests: 0      twenty a second
    server = Watched()
    for step in range(600):
        server.line(after=0.5, scheduled_requests=8, progress_mark=float(step))
    began = server.now
    for step in range(600, 1400):
        server.line(after=0.05, probe=True, scheduled_requests=0, progress_mark=float(step))
    assert server.stalled_after(began) <= 30
    assert len(server.tracker.points) < 700, "lines closer together than a second are one point"


def test_tensorrt_llm_waits_for_requests_without_a_line() -> None:
    server = Watched()
    for step in range(600):
        server.line(after=0.5, scheduled_requests=8, progress_mark=float(step))
    assert not server.wait(3600, step=30).ever_stalled


def test_page_and_lines_agree_and_the_lines_do_not_delay_the_page() -> None:
    # the line after the stop still tells of the ten seconds before it
    server = Watched()
    for _ in range(60):
        server.serve(2).line(after=0.1, gen=300, prompt=400, running=8)
    began = server.now
    server.stand(1).line(after=0.5, gen=140, prompt=200, running=8)
    for _ in range(5):
        server.stand(2).line(after=0.1, gen=0, prompt=0, running=8)
    assert server.stalled_after(began) <= 35
    assert server.tracker.disagreement == ""


def test_page_is_frozen_and_the_lines_say_so() -> None:
    #  page   ....|                       lines   300 300 300 300 300
    server = Watched()
    for _ in range(30):
        server.serve(2).line(after=0.1, gen=300, prompt=400, running=8)
    for _ in range(60):
        server.stand(2).line(after=0.1, gen=300, prompt=400, running=8)
    assert not server.ever_stalled
    assert server.tracker.disagreement
    server.serve(2)
    assert server.tracker.disagreement == ""


def test_lines_go_on_when_the_page_is_lost() -> None:
    server = Watched().serve(60)
    for _ in range(20):
        server.lose(10).line(after=0.1, gen=300, prompt=400, running=8)
    assert server.state == "serving"
    began = server.now
    for _ in range(8):
        server.lose(10).line(after=0.1, gen=0, prompt=0, running=8, kv=0.4)
    assert server.stalled_after(began) <= 70


def test_completion_in_the_log_is_progress() -> None:
    server = Watched().serve(120)
    for _ in range(20):
        server.stand(4).mark("progress")
    assert not server.ever_stalled


def canary(server: Watched, answered: bool) -> Watched:
    server.now += 60
    server._observe(Sample(server.now, "s", "canary", {"canary_success": float(answered)}))
    return server


def test_two_canaries_without_an_answer_speak_of_a_stall_that_no_signal_shows() -> None:
    # the input thread is dead: the gauges say idle for ever
    server = Watched().serve(60).look(20, running=0, kv=0.0)
    canary(server, answered=False)
    server.look(12)
    assert server.state == "idle"
    canary(server, answered=False)
    assert server.tracker.stall is not None
    assert (server.tracker.stall.kind, server.tracker.stall.certain) == ("canary", False)
    server.look(12)
    assert server.state == "stalled"
    canary(server, answered=True)
    server.look(1)
    assert server.state == "idle"


def test_canary_that_could_not_be_sent_says_nothing() -> None:
    server = Watched().serve(60).look(20, running=0, kv=0.0)
    for _ in range(5):
        server.now += 60
        server._observe(Sample(server.now, "s", "canary", {}, ok=False, error="connect: refused"))
    assert not server.ever_stalled
