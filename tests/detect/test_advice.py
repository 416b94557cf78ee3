"""Advice with numbers: the cap under which what was admitted always finds room, and what it costs."""

from __future__ import annotations

import json
import random

import pytest

from agent.detect.advice import advise
from agent.detect.onset import OnsetLedger
from agent.detect.sizes import RequestSizes
from agent.detect.stall import Point
from bench.queueing import Engine, Shape
from tests.detect.test_onset import world
from tests.detect.watched import Watched

LIMITS = {
    "kv_cache_capacity_tokens": 100_000.0,
    "max_model_len_tokens": 8_192.0,
    "max_batched_tokens": 8_192.0,
    "max_running_requests": 256.0,
}


def engine(seed: int, shape: Shape, share: float, looks: int = 720) -> Watched:
    """A simulated engine at a share of what it can carry, looked at for an hour."""
    made, server = Engine(random.Random(seed), shape), Watched()
    made.set_rate(share * shape.capacity())
    for _ in range(looks):
        made.advance(made.now + 5.0)
        server.values |= made.page()
        server.stand()
    return server


def test_nothing_is_known_nothing_is_advised() -> None:
    assert advise(Watched().serve(2).tracker) is None
    assert advise(Watched().serve(2).tracker, OnsetLedger()) is None


def test_limits_alone_give_the_cap_that_nothing_can_break() -> None:
    server = Watched()
    server.tracker.fact(LIMITS)
    found = advise(server.tracker)
    assert found is not None
    assert (found.concurrency, found.basis, found.longest_fit) == (12, "longest", 12)
    assert found.token_budget is None
    assert found.cost is None


def test_pool_smaller_than_one_legal_request_still_serves_one() -> None:
    server = Watched()
    server.tracker.fact({"kv_cache_capacity_tokens": 76_640.0, "max_model_len_tokens": 262_144.0})
    found = advise(server.tracker)
    assert found is not None
    assert (found.concurrency, found.longest_fit) == (1, 0)


@pytest.mark.parametrize("style", ["vllm", "trtllm"])
def test_cap_from_sizes_holds_in_the_engine_they_came_from(style: str) -> None:
    shape = Shape(
        style="vllm" if style == "vllm" else "trtllm",
        slots=200,
        pool=100_000.0,
        longest=8_192.0,
        reserve=style == "trtllm",
    )
    server = engine(1, shape, 0.8)
    server.tracker.fact(LIMITS)
    found = advise(server.tracker)
    assert found is not None
    assert found.basis == "sizes"
    assert found.mean_prompt == pytest.approx(1_400, rel=0.25)
    assert found.mean_answer == pytest.approx(245, rel=0.25)
    assert found.longest_fit is not None
    assert found.longest_fit < found.concurrency < 65
    # full sizes of as many requests, drawn anew: they fit but for once in a hundred times
    draw = Engine(random.Random(5), shape).draw
    over = sum(sum(sum(draw()) for _ in range(found.concurrency)) > shape.pool for _ in range(2000))
    assert over <= 40


def test_budget_holds_the_cap_and_says_what_it_costs() -> None:
    server = engine(2, Shape(slots=200, pool=100_000.0, longest=8_192.0), 0.8)
    server.tracker.fact(LIMITS)
    found = advise(server.tracker)
    assert found is not None
    assert found.mean_prompt is not None
    assert found.mean_answer is not None
    assert found.token_budget is not None
    held = found.token_budget * found.mean_answer / (found.mean_prompt + found.mean_answer)
    assert held == pytest.approx(found.concurrency, rel=0.02)
    assert found.cost is not None
    assert 0 <= found.cost < 1
    assert json.loads(json.dumps(found.to_json()))["basis"] == "sizes"
    assert "Admit at most" in found.sentences()[0]
    assert "hard limits of step and cache stay as they are" in found.sentences()[1].replace("the hard", "hard").replace(
        "  ", " "
    )


def test_load_that_stopped_it_caps_the_advice() -> None:
    server = Watched().serve(60)
    found = advise(server.tracker, world(3, "load", 5))
    assert found is not None
    assert found.basis == "load"
    assert found.onset_load is not None
    assert found.concurrency < found.onset_load


def test_cost_is_the_throughput_that_only_came_above_the_cap() -> None:
    server = Watched()
    server.tracker.fact({"kv_cache_capacity_tokens": 80_000.0, "max_model_len_tokens": 8_192.0})
    for running, tokens in ((4, 400), (8, 800), (16, 1200), (32, 1500), (64, 1600)):
        server.serve(30, running=running, tokens=tokens, finished=0)
    found = advise(server.tracker)
    assert found is not None
    assert found.concurrency == 9
    assert found.cost == pytest.approx(0.5, abs=0.02)


def test_spread_of_single_requests_is_read_from_sums() -> None:
    rng, sizes = random.Random(4), RequestSizes()
    for look in range(4000):
        count = rng.randint(0, 6)
        tokens = sum(rng.choice([500.0, 1500.0]) for _ in range(count))
        sizes.look(Point(5.0 * look, 5.0, running=4.0, finished=float(count), prompted=tokens, generated=0.0))
    assert sizes.prompt == pytest.approx(1000, rel=0.05)
    assert sizes.spread == pytest.approx(500, rel=0.15)
    again = RequestSizes()
    again.restore(json.loads(json.dumps(sizes.snapshot())))
    assert (again.spread, again.delivered()) == (sizes.spread, sizes.delivered())


def test_few_requests_say_nothing_of_sizes() -> None:
    sizes = RequestSizes()
    sizes.look(Point(5.0, 5.0, finished=3.0, prompted=900.0, generated=50.0))
    assert sizes.spread is None
    assert sizes.delivered() == []
