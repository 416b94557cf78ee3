"""The mechanism, without a model: where it cannot wedge, where it does, and what is true when it has."""

from __future__ import annotations

import pytest

from reproducer.batch import Batch, SampleState
from reproducer.config import PROFILES, Config, ConfigError, preset
from reproducer.request import Request
from reproducer.scheduler import Scheduler
from reproducer.simulate import Guess, Outcome, simulate
from reproducer.state import claims_table, wait_for
from reproducer.users import population_for


def run(profile: str, users: int, seed: int, steps: int = 3000, **knobs: float) -> Outcome:
    config = preset(profile, seed=seed, **knobs)
    return simulate(config, population_for(profile, config.max_seq_len, seed), users=users, steps=steps)


@pytest.mark.parametrize("profile", ["draft", "deadlock", "prefill", "transfer"])
def test_never_at_the_provable_bound(profile: str) -> None:
    """200 seeds; campaigns run ten times longer (python -m reproducer matrix bounds)."""
    bound = preset(profile).safe_concurrency
    assert bound > 1
    wedged = [seed for seed in range(200) if run(profile, bound, seed, steps=160 if profile == "draft" else 300).wedged]
    assert wedged == []


@pytest.mark.parametrize(("profile", "users"), [("draft", 26), ("deadlock", 18), ("prefill", 18), ("transfer", 6)])
def test_nearly_always_at_one_and_a_half_times_the_onset(profile: str, users: int) -> None:
    outcomes = [run(profile, users, seed) for seed in range(20)]
    assert sum(1 for outcome in outcomes if outcome.wedged) >= 19
    assert {outcome.wedged for outcome in outcomes} <= {"assertion" if profile == "draft" else "deadlock", ""}


@pytest.mark.parametrize("profile", ["reserve", "preempt"])
def test_the_controls_never_wedge_and_go_on_completing(profile: str) -> None:
    for seed in range(4):
        outcome = run(profile, 64, seed, steps=1200)
        assert not outcome.wedged
        assert outcome.waiting > 20, "the queue is long"
        assert outcome.completed > 100
        assert outcome.largest_silence < 60


def test_growth_is_linear_in_the_decodes_and_passes_the_room_at_one_more() -> None:
    """n decodes, each one token longer than charged: H - A = 16 holds 16 of them and not 18."""
    assert not run("draft", 16, 3, steps=1500).wedged
    outcome = run("draft", 18, 3)
    assert outcome.wedged == "assertion"
    assert 256 < outcome.total_num_tokens <= 256 + 18


def test_the_packer_keeps_its_own_promise() -> None:
    """What is charged never exceeds A; what is appended may."""
    config = preset("draft")
    scheduler = Scheduler(config)
    guess = Guess(scheduler, 0, 0.7)
    people = population_for("draft", config.max_seq_len, 0)
    for number in range(20):
        ask = next(people.asks(number))
        scheduler.add(Request(number, ask.prompt, ask.output_tokens))
    above = False
    for _ in range(60):
        try:
            batch = scheduler.step(guess)
        except AssertionError:
            above = True
            break
        assert batch.charged <= config.step_tokens
        above |= scheduler.total_num_tokens > config.step_tokens
    assert above


def test_two_requests_and_seven_blocks() -> None:
    """The smallest hold and wait (vLLM PR 57104): A holds 4, B holds 3, each needs one more, none is free."""
    config = Config(profile="deadlock", kv_blocks=7, block_tokens=4, max_seq_len=28, step_tokens=64, hard_tokens=64)
    scheduler = Scheduler(config)
    guess = Guess(scheduler, 0, 0.0)
    scheduler.add(Request(1, b"a" * 16, 8))
    scheduler.add(Request(2, b"b" * 12, 8))
    for _ in range(4):
        scheduler.step(guess)
    assert not scheduler.step(guess).rows
    assert [(claim.held, claim.need, claim.free) for claim in scheduler.claims] == [(4, 1, 0), (3, 1, 0)]
    graph = wait_for(claims_table(scheduler), scheduler.kv.available)
    assert graph["cycle"] == [1, 2, 1]
    assert graph["can_go_on"] == []
    assert not scheduler.step(guess).rows, "and so for ever"


def test_at_a_deadlock_everybody_needs_more_than_is_free() -> None:
    config = preset("deadlock", seed=5)
    outcome = simulate(config, population_for("deadlock", config.max_seq_len, 5), users=20)
    assert outcome.wedged == "deadlock"
    assert len(outcome.claims) == outcome.running > 1
    assert all(claim.need > claim.free for claim in outcome.claims)


def test_preemption_resolves_the_same_shortage() -> None:
    config = Config(profile="preempt", kv_blocks=7, block_tokens=4, max_seq_len=28, step_tokens=64, hard_tokens=64)
    scheduler = Scheduler(config)
    guess = Guess(scheduler, 0, 0.0)
    done: list[int] = []
    scheduler.add(Request(1, b"a" * 16, 8))
    scheduler.add(Request(2, b"b" * 12, 8))
    for _ in range(40):
        scheduler.step(guess)
        done += [request.id for request in scheduler.finished]
        scheduler.kv.audit(scheduler.requests())
    assert done == [1, 2]
    assert scheduler.preemptions == 1


def test_a_request_larger_than_the_pool_blocks_the_queue_even_alone() -> None:
    config = preset("oversize")
    scheduler = Scheduler(config)
    guess = Guess(scheduler, 0, 0.0)
    scheduler.add(Request(1, b"x" * 3000, 4))
    scheduler.add(Request(2, b"small", 4))
    for _ in range(5):
        assert not scheduler.step(guess).rows
    assert (len(scheduler.running), len(scheduler.waiting), scheduler.kv.held) == (0, 2, 0)


def test_a_deadlock_of_transfers_has_nothing_running() -> None:
    outcome = run("transfer", 8, 1)
    assert (outcome.wedged, outcome.running) == ("deadlock", 0)
    assert outcome.waiting == 8


def test_reuse_charges_less_than_it_appends_when_a_hit_is_evicted() -> None:
    outcomes = [run("reuse", 9, seed, steps=1500) for seed in range(6)]
    wedged = [outcome for outcome in outcomes if outcome.wedged]
    assert len(wedged) >= 3
    assert all(outcome.wedged == "assertion" for outcome in wedged)
    assert max(outcome.total_num_tokens for outcome in wedged) > 256 + 9, "the overshoot is not a token per request"


@pytest.mark.parametrize("profile", list(PROFILES))
def test_accounting_holds_block_by_block_in_every_profile(profile: str) -> None:
    config = preset(profile, seed=2)
    scheduler = Scheduler(config)
    guess = Guess(scheduler, 2, 0.7)
    people = population_for(profile, config.max_seq_len, 2)
    streams = [people.asks(user) for user in range(12)]
    for number, stream in enumerate(streams):
        ask = next(stream)
        scheduler.add(Request(number, ask.prompt, min(ask.output_tokens, config.max_seq_len - len(ask.prompt))))
    for number in range(100, 220):
        try:
            scheduler.step(guess)
        except AssertionError:
            break
        scheduler.kv.audit(scheduler.requests())
        for index, _ in enumerate(scheduler.finished):
            ask = next(streams[index])
            scheduler.add(Request(number * 100 + index, ask.prompt, min(ask.output_tokens, 64)))


def test_the_same_seed_gives_the_same_run() -> None:
    first, second = (run("deadlock", 16, 7) for _ in range(2))
    assert first == second


def test_abort_gives_everything_back() -> None:
    scheduler = Scheduler(preset("deadlock"))
    guess = Guess(scheduler, 0, 0.0)
    requests = [Request(number, b"x" * 50, 20) for number in range(3)]
    for request in requests:
        scheduler.add(request)
    scheduler.step(guess)
    for request in requests:
        scheduler.finish(request, "abort")
    assert scheduler.kv.held == 0
    assert not list(scheduler.requests())


def test_a_step_without_sample_state_is_the_second_assertion() -> None:
    scheduler = Scheduler(preset("draft"))
    scheduler.add(Request(1, b"x" * 50, 20))

    def fails(batch: Batch) -> SampleState | None:
        return None

    with pytest.raises(AssertionError, match="Sampling failed"):
        scheduler.step(fails)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"step_tokens": 300}, "above hard_tokens"),
        ({"kv_blocks": 20}, "a legal request would never fit"),
        ({"max_batch": 0}, "max_batch is 0"),
        ({"kv_ceiling": 1.5}, "share of the pool"),
        ({"block_tokens": 500, "max_seq_len": 400}, "below one block"),
        ({"profile": "other"}, "choose one of"),
    ],
)
def test_numbers_that_contradict_each_other_are_refused(knobs: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Config(**knobs)  # type: ignore[arg-type]  # wrong on purpose
