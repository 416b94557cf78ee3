"""The loop thread's contract with its clients, run in the test's own thread where it must be seen to raise."""

from __future__ import annotations

import io

import pytest

from reproducer.batch import Batch, SampleState
from reproducer.config import Config, preset
from reproducer.engine import Engine, EngineDown, RequestFailed
from reproducer.scheduler import Scheduler
from reproducer.simulate import Guess
from reproducer.stats import Histogram
from reproducer.voice import VOICES


def engine_for(config: Config, *, after: str | None = None, nothing: str = "spin") -> tuple[Engine, io.StringIO]:
    text = io.StringIO()
    voice = VOICES["tensorrt_llm"](text, clock=lambda: 0.0)
    scheduler = Scheduler(config)
    engine = Engine(
        scheduler,
        Guess(scheduler, 0, 0.7),
        voice,
        after_crash=after,  # type: ignore[arg-type]  # one of the literals
        nothing_fits=nothing,  # type: ignore[arg-type]  # one of the literals
        clock=lambda: 0.0,
        sleep=lambda _: None,
    )
    voice.loading(engine)
    return engine, text


def test_tokens_come_out_and_then_the_end() -> None:
    engine, _ = engine_for(preset("preempt"))
    ticket = engine.submit(b"hello", 5)
    engine.start()
    tokens: list[int] = []
    while (event := ticket.events.get(timeout=300)) is not None:
        assert isinstance(event, list)
        tokens += event
    engine.stop()
    assert len(tokens) == 5
    assert ticket.request.finish_reason == "length"
    assert engine.stats.completed == 1
    assert not engine.alive


@pytest.mark.parametrize(
    ("prompt", "limit", "message"),
    [(b"", 1, "at least one token"), (b"x", 0, "at least one"), (b"x" * 300, 200, "maximum context length is 384")],
)
def test_an_illegal_request_is_refused_at_the_door(prompt: bytes, limit: int, message: str) -> None:
    engine, _ = engine_for(preset("preempt"))
    with pytest.raises(ValueError, match=message):
        engine.submit(prompt, limit)


def test_nothing_fits_can_be_an_assertion_of_its_own() -> None:
    config = Config(profile="deadlock", kv_blocks=7, max_seq_len=28, step_tokens=64, hard_tokens=64)
    engine, text = engine_for(config, nothing="assert")
    engine.submit(b"a" * 16, 8)
    engine.submit(b"b" * 12, 8)
    with pytest.raises(AssertionError, match="fail to schedule any pending request"):
        engine._event_loop_wrapper()
    assert "[W] num_fitting_reqs=0 and fitting_disagg_gen_init_requests is empty" in text.getvalue()
    assert (
        "[E] Error in event loop: fail to schedule any pending request, probably run out of resource."
        in text.getvalue()
    )


def test_a_failed_step_fails_every_active_request_and_leaves_the_queue() -> None:
    engine, text = engine_for(preset("draft", max_batch=3))

    def fails(batch: Batch) -> SampleState:
        raise RuntimeError("out of paper")

    engine.forward = fails
    tickets = [engine.submit(b"x" * 50, 20) for _ in range(5)]
    with pytest.raises(AssertionError, match="Sampling failed"):
        engine._event_loop_wrapper()
    answers = [ticket.events.get_nowait() for ticket in tickets if not ticket.events.empty()]
    assert len(answers) == 3
    assert all(isinstance(answer, RequestFailed) for answer in answers)
    assert len(engine.scheduler.waiting) == 2
    assert engine.scheduler.kv.held == 0
    assert "Encountered an error in forward function: out of paper" in text.getvalue()


def test_zombie_goes_on_accepting_and_unavailable_does_not() -> None:
    for after, refused in (("zombie", False), ("unavailable", True)):
        engine, _ = engine_for(preset("draft"), after=after)
        engine.forward = _broken
        engine.submit(b"x", 1)
        with pytest.raises(AssertionError):
            engine._event_loop_wrapper()
        if refused:
            with pytest.raises(EngineDown, match="Sampling failed"):
                engine.submit(b"x", 1)
        else:
            assert engine.submit(b"x", 1).events.empty()
            assert engine.unanswered == 1


def _broken(batch: Batch) -> SampleState:
    raise AssertionError("broken")


def test_whoever_waits_is_told_where_the_end_is_known() -> None:
    engine, _ = engine_for(preset("draft", max_batch=1), after="unavailable")
    engine.forward = _broken
    tickets = [engine.submit(b"x", 1) for _ in range(2)]
    with pytest.raises(AssertionError):
        engine._event_loop_wrapper()
    assert isinstance(tickets[0].events.get_nowait(), RequestFailed)
    assert isinstance(tickets[1].events.get_nowait(), EngineDown)


def test_a_client_that_leaves_frees_its_blocks() -> None:
    engine, _ = engine_for(preset("preempt"))
    ticket = engine.submit(b"x" * 50, 200)
    calls = iter(range(3))
    plain = engine.forward

    def leaves(batch: Batch) -> SampleState:
        if next(calls, None) == 2:
            engine.cancel(ticket)
            engine.stopping = True
        return plain(batch)

    engine.forward = leaves
    engine._executor_loop()
    engine.stopping = False
    engine.inbox.put(None)
    assert engine._fetch_new_requests() == 0
    assert engine.scheduler.kv.held == 0
    assert engine.stats.finished["abort"] == 1


@pytest.mark.filterwarnings("ignore:Exception in thread")  # the death itself
def test_a_killed_loop_ends_without_a_word() -> None:
    engine, text = engine_for(preset("preempt"))
    engine.start()
    before = text.getvalue()
    engine.kill()
    engine.thread.join(timeout=300)
    assert not engine.alive
    assert text.getvalue() == before


def test_histogram_counts_at_its_bounds() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (1.0, 1.5, 9.0):
        histogram.observe(value)
    assert (histogram.counts, histogram.count, histogram.sum) == ([1, 1, 1], 3, 11.5)
