"""From a configuration to an engine that runs: device, weights, pool, scheduler, voice."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

from .config import Config
from .engine import AfterCrash, Engine
from .scheduler import Scheduler
from .voice import VOICES
from .voice.base import Voice

if TYPE_CHECKING:
    import torch

    from .runner import Runner

__all__ = ["Built", "build", "pick_device"]


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

    from .model import Shape
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
    began = time.time()
    shape = Shape(1024, 8, 16) if large else Shape()
    dtype = torch.bfloat16 if where.type == "cuda" else torch.float32
    target, drafter = load_models(shape, device=where, dtype=dtype, folder=cache, say=say)
    scheduler = Scheduler(config)
    runner = Runner(scheduler, target, drafter)
    engine = Engine(scheduler, runner.forward, speaker, after_crash=after_crash, nothing_fits=nothing_fits)
    engine.stats.started = began
    speaker.starting(engine)
    return Built(engine, speaker, runner)


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
