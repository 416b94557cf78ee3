"""The words by which an engine is described on a command line, and the way back from words to a configuration."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from .amounts import count, positive
from .config import PROFILES, Config, preset
from .engine import AFTER_CRASH
from .voice import VOICES

__all__ = ["config_from", "engine_options", "serve_arguments", "serve_options"]

_KNOBS: Final = {
    "hard_tokens": "H: tokens that fit one step",
    "step_tokens": "A: tokens up to which a step is packed",
    "kv_blocks": "N: blocks in the pool",
    "block_tokens": "tokens per block",
    "max_batch": "K: requests at once",
    "max_seq_len": "longest legal request",
    "max_draft": "longest draft",
    "link_blocks": "blocks that a transfer moves per step",
}
_VALUES: Final = (
    "dialect",
    "device",
    "after_crash",
    "nothing_fits",
    "gauge_mode",
    "cache",
    "memory_margin",
    "memory_limit",
)
_FLAGS: Final = ("large", "print_iter_log")


def engine_options(parser: argparse.ArgumentParser) -> None:
    """What the scheduler is made of."""
    group = parser.add_argument_group("engine", "H, A, N and K; what is not given is the profile's")
    group.add_argument(
        "--profile",
        choices=PROFILES,
        default="draft",
        help="the mechanism; all are told by python -m reproducer --help",
    )
    for knob, about in _KNOBS.items():
        group.add_argument(f"--{knob.replace('_', '-')}", type=count, metavar="N", help=about)
    group.add_argument("--kv-ceiling", type=positive, metavar="SHARE", help="K: share of the pool to be admitted")
    group.add_argument("--seed", type=int, default=0, help="another seed, another traffic")


def serve_options(parser: argparse.ArgumentParser) -> None:
    """What is around the scheduler: device, voice, and what follows a crash."""
    group = parser.add_argument_group("server")
    group.add_argument("--dialect", choices=VOICES, help="whose log lines and metrics (default: the profile's)")
    group.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto: CUDA where it is")
    group.add_argument("--large", action="store_true", help="a model and pool that fill a large share of a CUDA card")
    eras = "; ".join(f"{name}: {about}" for name, about in AFTER_CRASH.items())
    group.add_argument("--after-crash", choices=AFTER_CRASH, help=f"what follows the assertion, by era. {eras}")
    group.add_argument(
        "--nothing-fits", choices=("spin", "assert"), help="a pass that schedules nothing; assert: as in 2025"
    )
    group.add_argument("--print-iter-log", action="store_true", help="one INFO line for each step (TensorRT-LLM)")
    group.add_argument(
        "--gauge-mode", choices=("step", "live"), help="step (default): gauges stay as the last step left them"
    )
    group.add_argument("--memory-limit", type=count, metavar="MIB", help="map no more memory than this at all")
    group.add_argument("--memory-margin", type=count, metavar="MIB", help="map no more than this beyond the start")
    group.add_argument("--cache", type=Path, metavar="DIR", help="where trained weights are kept")


def config_from(options: argparse.Namespace) -> Config:
    """Raises ConfigError when the numbers contradict each other."""
    names = [*_KNOBS, "kv_ceiling"]
    given = {name: getattr(options, name) for name in names if getattr(options, name, None) is not None}
    return preset(options.profile, seed=options.seed, **given)


def serve_arguments(options: argparse.Namespace) -> list[str]:
    """The same options as words again, for a server in a process of its own."""
    words: list[str] = ["--profile", options.profile, "--seed", str(options.seed)]
    for name in (*_KNOBS, "kv_ceiling", *_VALUES):
        if getattr(options, name, None) is not None:
            words += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    return words + [f"--{name.replace('_', '-')}" for name in _FLAGS if getattr(options, name, False)]
