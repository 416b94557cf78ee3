"""Verification of a server: asks first, stops at a sign, and says what it saw."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from reproducer.config import preset
from reproducer.server import Server
from reproducer.users import Ask
from reproducer.verify import Limits, Verdict, describe_plan, verify

Maker = Callable[..., tuple[Server, io.StringIO]]


def heavy(users: int, turns: int) -> list[Ask]:
    return [Ask(user, turn, 100, 80, b"x" * 100) for turn in range(turns) for user in range(users)]


def test_nothing_is_sent_before_somebody_says_yes(light_server: Maker) -> None:
    server, _ = light_server(preset("preempt"))
    shown: list[str] = []

    def refuse(plan: str) -> bool:
        shown.append(plan)
        return False

    assert verify(server.url, heavy(2, 2), confirm=refuse).outcome == "refused"
    assert "It may leave that server wedged" in shown[0]
    assert server.engine.stats.accepted == 0


def test_the_plan_is_bounded() -> None:
    assert "This sends 5 requests (900 tokens)" in describe_plan("http://x", heavy(4, 4), Limits(requests=5))


def test_a_server_that_evicts_survives(light_server: Maker) -> None:
    server, _ = light_server(preset("preempt"))
    verdict = verify(server.url, heavy(20, 3), confirm=lambda _: True, limits=Limits(seconds=300, silence=200))
    assert verdict.outcome == "survived", verdict
    assert (verdict.sent, verdict.completed, verdict.open) == (60, 60, 0)
    assert verdict.sentence().startswith("survived this load (60 of 60 answered")


def test_a_server_that_holds_and_waits_does_not(light_server: Maker) -> None:
    server, _ = light_server(preset("deadlock"), pace=0.004)
    limits = Limits(seconds=300, silence=2.0)
    verdict = verify(server.url, heavy(20, 30), confirm=lambda _: True, limits=limits)
    assert verdict.outcome == "wedged"
    assert "none answered for" in verdict.sign
    assert verdict.sentence().startswith("WEDGED: ")


def test_the_same_load_after_the_change_survives(light_server: Maker) -> None:
    """Checklist 3 for a deployment: before and after a lower ceiling on claims, with the pool as it was."""
    server, _ = light_server(preset("deadlock", max_batch=8))
    verdict = verify(server.url, heavy(20, 3), confirm=lambda _: True, limits=Limits(seconds=300, silence=200))
    assert verdict.outcome == "survived", verdict


def test_times_of_an_open_load_are_kept_and_the_number_at_once_is_not_exceeded(light_server: Maker) -> None:
    server, _ = light_server(preset("preempt"))
    asks = [Ask(n, 0, 40, 30, b"x" * 40, at=100 + n * 0.01) for n in range(30)]
    verdict = verify(server.url, asks, confirm=lambda _: True, limits=Limits(seconds=300, silence=200, at_once=4))
    assert (verdict.outcome, verdict.completed) == ("survived", 30)


def test_a_server_that_fails_everything_is_unclear(light_server: Maker) -> None:
    server, _ = light_server(preset("preempt"))
    asks = [Ask(n, 0, 500, 30, b"x" * 500) for n in range(3)]
    verdict = verify(server.url, asks, confirm=lambda _: True, limits=Limits(seconds=300, silence=200))
    assert verdict.outcome == "unclear"
    assert "3 requests failed" in verdict.sign


@pytest.mark.filterwarnings("ignore:Exception in thread")  # the loop's death is what is tested
def test_wedgewatch_beside_it_gives_the_sign(light_server: Maker, tmp_path: Path) -> None:
    """The daemon itself, in its own process, names what it reads long before the clients' patience ends.

    The users ask again and again, so that the step with one draft too many comes however slowly they are served.
    """
    pytest.importorskip("agent.cli")
    path = tmp_path / "server.log"
    with path.open("w") as stream:
        server, _ = light_server(preset("draft", kv_blocks=4096), "tensorrt_llm", stream=stream, pace=0.02)
        words = ["--metrics", server.metrics_url, "--log", str(path)]
        limits = Limits(seconds=400, silence=300)
        verdict = verify(server.url, heavy(40, 50), confirm=lambda _: True, daemon=words, limits=limits)
    assert verdict.outcome == "wedged"
    assert verdict.sign.startswith("wedgewatch says token_budget_deadlock"), verdict
    assert verdict.alerts


def test_a_wedgewatch_that_does_not_start_is_said_before_anything_is_sent(light_server: Maker) -> None:
    pytest.importorskip("agent.cli")
    server, _ = light_server(preset("preempt"))
    with pytest.raises(RuntimeError, match=r"wedgewatch did not start.*(?s:.*)invalid choice"):
        verify(server.url, heavy(2, 2), confirm=lambda _: True, daemon=["--engine", "teapot"])
    assert server.engine.stats.accepted == 0


def test_a_verdict_is_json() -> None:
    assert Verdict("survived").to_json()["outcome"] == "survived"
