"""From a configuration to an engine that runs: device, weights, pool, scheduler, voice."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

from .batch import Batch, SampleState
from .config import Config
from .engine import AfterCrash, Engine
from .scheduler import Scheduler
from .voice import VOICES
from .voice.base import Voice

if TYPE_CHECKING:
    import torch

    from .runner import Runner

__all__ = ["Built", "build", "device_report", "large_config", "pick_device"]


@dataclass(frozen=True, slots=True)
class Built:
    engine: Engine
    voice: Voice
    runner: Runner


def pick_device(name: str) -> torch.device:
    """``auto`` is CUDA where there is one. Raises ValueError when ``cuda`` is asked for and absent."""
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device cuda: this PyTorch sees no CUDA device; use --device cpu, or auto")
    return torch.device(name)


def build(
    config: Config,
    stream: TextIO,
    *,
    voice: str | None = None,
    device: str = "auto",
    large: bool = False,
    after_crash: AfterCrash | None = None,
    nothing_fits: Literal["spin", "assert"] = "spin",
    print_iterations: bool = False,
    gauge_mode: Literal["step", "live"] = "step",
    cache: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Built:
    """An engine ready to start. ``large`` takes the shape that fills a large share of a card (CUDA only)."""
    import torch

    from .model import LARGE, Shape
    from .runner import Runner
    from .training import load_models

    where = pick_device(device)
    if where.type == "cpu":
        torch.set_num_threads(1)
    speaker = VOICES[voice or config.rules.voice](
        stream,
        device="GPU" if where.type == "cuda" else "CPU",
        print_iterations=print_iterations,
        gauge_mode=gauge_mode,
    )
    if large:
        config = large_config(config, where)
    scheduler = Scheduler(config)
    engine = Engine(scheduler, _not_loaded, speaker, after_crash=after_crash, nothing_fits=nothing_fits)
    speaker.loading(engine)
    shape = LARGE if large else Shape()
    dtype = torch.bfloat16 if where.type == "cuda" else torch.float32
    target, drafter = load_models(shape, device=where, dtype=dtype, folder=cache, say=say)
    try:
        runner = Runner(scheduler, target, drafter)
    except RuntimeError:  # the pool does not fit: torch.OutOfMemoryError on CUDA, plain RuntimeError on a CPU
        speaker.start_error(traceback.format_exc())
        raise
    engine.forward = runner.forward
    speaker.starting(engine)
    return Built(engine, speaker, runner)


def _not_loaded(batch: Batch) -> SampleState:
    raise RuntimeError("the weights are not loaded yet")


def large_config(config: Config, device: torch.device, *, share: float = 0.8) -> Config:
    """The same profile in a shape that fills ``share`` of a card's free memory with KV. Raises ValueError off CUDA."""
    import torch

    from .model import LARGE

    if device.type != "cuda":
        raise ValueError("--large fills a card's memory; there is no CUDA device here")
    block = 16
    per_block = LARGE.layers * 2 * block * LARGE.width * 2  # two bytes for each number in bfloat16
    free, _ = torch.cuda.mem_get_info(device)
    hard = 2048
    slack = hard - 64 if config.rules.speculate else hard
    return config.with_(
        hard_tokens=hard,
        step_tokens=slack,
        kv_blocks=max(4096, int(share * (free - (2 << 30)) // per_block)),
        block_tokens=block,
        max_batch=256,
        max_seq_len=4096,
    )


def device_report(built: Built) -> dict[str, Any]:
    """What the run had to itself: device, memory, versions."""
    import torch

    runner = built.runner
    report: dict[str, Any] = {
        "device": runner.device.type,
        "dtype": str(runner.pool.data.dtype).removeprefix("torch."),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "parameters": sum(parameter.numel() for parameter in runner.target.parameters()),
        "kv_bytes": runner.pool.nbytes,
    }
    if runner.device.type == "cuda":
        report |= {
            "gpu": torch.cuda.get_device_name(runner.device),
            "gpu_bytes": torch.cuda.get_device_properties(runner.device).total_memory,
            "max_memory_allocated": torch.cuda.max_memory_allocated(runner.device),
            "max_memory_reserved": torch.cuda.max_memory_reserved(runner.device),
        }
    return report
