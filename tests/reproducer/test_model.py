"""The model: paged equals dense, drafts change the speed and never the text, weights are learned once."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the reproducer extra (torch) is not installed")

from reproducer.bandwidth import copy_bandwidth, decode_bandwidth  # noqa: E402 - after the skip
from reproducer.build import build, device_report, large_config, pick_device  # noqa: E402
from reproducer.config import Config, preset  # noqa: E402
from reproducer.model import Shape, Transformer  # noqa: E402
from reproducer.request import Request  # noqa: E402
from reproducer.runner import Runner  # noqa: E402
from reproducer.scheduler import Scheduler  # noqa: E402
from reproducer.simulate import simulate  # noqa: E402
from reproducer.speculation import WINDOW, Drafter, accepted  # noqa: E402
from reproducer.stepclock import wedge_step  # noqa: E402
from reproducer.training import load_models, train  # noqa: E402
from reproducer.users import population_for  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def small() -> tuple[Transformer, Drafter]:
    torch.manual_seed(1)
    return Transformer(Shape(32, 2, 2)).eval(), Drafter(8, 32).eval()


def generate(
    target: Transformer, drafter: Drafter, config: Config, prompts: list[bytes], length: int
) -> list[list[int]]:
    scheduler = Scheduler(config)
    runner = Runner(scheduler, target, drafter)
    requests = [Request(number, prompt, length) for number, prompt in enumerate(prompts)]
    for request in requests:
        scheduler.add(request)
    while any(scheduler.requests()):
        scheduler.step(runner.forward)
        scheduler.kv.audit(scheduler.requests())
    return [request.output for request in requests]


def greedy(target: Transformer, prompt: bytes, length: int) -> list[int]:
    """The dense model, one token at a time: the reference."""
    text = torch.tensor([list(prompt)])
    with torch.inference_mode():
        for _ in range(length):
            text = torch.cat((text, target(text)[:, -1:].argmax(-1)), dim=1)
    return text[0, len(prompt) :].tolist()


PROMPTS = [b"The harbour has sixteen berths", b"wind: west, 4", b"A", b"qz7 vk2 xw9 jb4 ph8 rm1 ty6 gc3 nd5 lf0"]


def test_paged_logits_are_the_dense_ones(small: tuple[Transformer, Drafter]) -> None:
    target, drafter = small
    scheduler = Scheduler(preset("reserve"))
    runner = Runner(scheduler, target, drafter)
    prompt = b"The harbour has sixteen berths and one lock."
    scheduler.add(Request(0, prompt, 1))
    seen = []
    plain = target.paged
    target.paged = lambda *a, **k: seen.append(plain(*a, **k)) or seen[-1]  # type: ignore[method-assign]  # a tap
    scheduler.step(runner.forward)
    with torch.inference_mode():
        dense = target(torch.tensor([list(prompt)]))[0, -1:]
    assert torch.allclose(seen[0], dense, atol=1e-5)


@pytest.mark.parametrize(
    ("profile", "knobs"),
    [
        ("reserve", {}),
        ("reserve", {"step_tokens": 16, "hard_tokens": 16}),
        ("preempt", {"kv_blocks": 24, "max_seq_len": 80}),
        ("reuse", {"kv_blocks": 128, "max_seq_len": 128}),
        ("draft", {"step_tokens": 64, "hard_tokens": 256}),
        ("transfer", {"kv_blocks": 192}),
    ],
    ids=["whole", "chunked", "preempted", "reused", "drafted", "transferred"],
)
def test_text_does_not_depend_on_the_schedule(
    small: tuple[Transformer, Drafter], profile: str, knobs: dict[str, int]
) -> None:
    """Chunks, evictions, cached prefixes and drafts change when a token is computed, never which."""
    target, drafter = small
    config = preset(profile, **knobs)
    expected = [greedy(target, prompt, 24) for prompt in PROMPTS]
    assert generate(target, drafter, config, PROMPTS, 24) == expected


def test_a_prefix_from_outside_the_pool_gives_the_same_text(small: tuple[Transformer, Drafter]) -> None:
    target, drafter = small
    scheduler = Scheduler(preset("transfer"))
    runner = Runner(scheduler, target, drafter)
    first, again = Request(0, PROMPTS[0], 4), Request(1, PROMPTS[0] + b" and one lock.", 12)
    scheduler.add(first)
    while any(scheduler.requests()):
        scheduler.step(runner.forward)
    scheduler.add(again)
    while any(scheduler.requests()):
        scheduler.step(runner.forward)
    assert again.loaded
    assert again.cached == 28
    assert again.output == greedy(target, bytes(again.prompt), 12)


def test_acceptance_is_the_common_beginning_and_one_more() -> None:
    assert accepted([5, 6, 7], [5, 6, 7, 8]) == [5, 6, 7, 8]
    assert accepted([5, 9, 7], [5, 6, 7, 8]) == [5, 6]
    assert accepted([1], [2, 3]) == [2]


def test_a_draft_is_as_long_as_asked() -> None:
    assert Drafter(8, 16).propose(torch.zeros((3, WINDOW), dtype=torch.int64), 5).shape == (3, 5)


def test_training_learns_and_steps_its_schedule_after_its_optimizer() -> None:
    """Warnings are errors here: PyTorch warns when the schedule is stepped before the optimizer."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(4, 8), torch.nn.Linear(8, 4))
    tokens = torch.arange(4)

    def batches() -> object:
        while True:
            yield tokens, (tokens + 1) % 4

    assert train(model, batches(), 60, lr=0.05) < 0.1  # type: ignore[arg-type]  # an endless generator


def test_weights_are_learned_once_and_then_read(tmp_path: Path) -> None:
    said: list[str] = []
    shape = Shape(16, 1, 2)
    first, _ = load_models(shape, folder=tmp_path, steps=3, say=said.append)
    second, _ = load_models(shape, folder=tmp_path, steps=3, say=said.append)
    assert len([line for line in said if line.startswith("training")]) == 1
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def test_what_is_learned_makes_drafts_vary_with_the_text(cache: Path) -> None:
    """Prose that it knows is accepted far more often than numbers; so the draft length moves."""
    target, drafter = load_models(Shape(), folder=cache)
    shares = []
    for text in (
        b"The pilot at the lock goes on letting ships into the outer basin",
        b"8314 0927 5561 7240 3389 1806 94",
    ):
        hits = tried = 0
        for end in range(20, len(text)):
            draft = drafter.propose(torch.tensor([list(text[end - WINDOW : end])]), 1)[0].tolist()
            hits += accepted(draft, greedy(target, text[:end], 1))[:1] == draft
            tried += 1
        shares.append(hits / tried)
    assert shares[0] > shares[1] + 0.1


@pytest.mark.parametrize("profile", ["deadlock", "prefill"])
def test_with_a_model_and_without_the_wedge_is_at_the_same_step(profile: str, cache: Path) -> None:
    """Outputs are as long as asked, so nothing that a device computes can move the wedge."""
    config = preset(profile, seed=4)
    alone = simulate(config, population_for(profile, config.max_seq_len, 4), users=18, steps=400)
    assert alone.wedged
    assert wedge_step(config, 18, 4, "cpu", cache=cache) == alone.step


def test_bandwidth_is_measured_against_a_copy(cache: Path) -> None:
    built = build(preset("reserve"), io.StringIO(), device="cpu", cache=cache)
    measured = decode_bandwidth(built.runner, built.engine.config, rows=4, context=32, steps=3)
    assert 0 < measured.decode < 5 * copy_bandwidth(torch.device("cpu"), nbytes=1 << 22)
    assert set(measured.to_json()) >= {"share_of_copy", "decode_tokens_per_s"}
    assert device_report(built)["device"] == "cpu"


def test_a_card_is_asked_for_only_where_there_is_one() -> None:
    if torch.cuda.is_available():
        assert pick_device("cuda").type == "cuda"
    else:
        assert pick_device("auto").type == "cpu"
        with pytest.raises(ValueError, match="sees no CUDA device"):
            pick_device("cuda")
    with pytest.raises(ValueError, match="--large"):
        large_config(preset("draft"), torch.device("cpu"))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("profile", ["deadlock", "prefill"])
def test_cpu_and_card_wedge_at_the_same_step(profile: str, cache: Path) -> None:
    config = preset(profile)
    steps = [wedge_step(config, 18, 1, device, cache=cache) for device in ("cpu", "cuda")]
    assert steps[0] == steps[1] is not None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_large_shape_fills_a_large_share_of_the_card(cache: Path) -> None:
    built = build(preset("draft"), io.StringIO(), device="cuda", large=True, cache=cache)
    report = device_report(built)
    assert report["dtype"] == "bfloat16"
    assert report["kv_bytes"] > 0.5 * report["gpu_bytes"]
    measured = decode_bandwidth(built.runner, preset("reserve"), rows=16, context=64)
    assert measured.decode < measured.copy * 1.1
