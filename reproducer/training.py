"""Set-up: both models learn the text that ships with the package, in seconds, and are kept in a cache folder.

The loop is the usual one. Note its last two lines: the optimizer steps first and the learning-rate schedule after it;
the other way round the schedule is one step ahead from the first batch on, and PyTorch says so once and goes on.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn, optim
from torch.nn import functional as F

from .model import Shape, Transformer
from .speculation import WINDOW, Drafter
from .users import corpus

__all__ = ["cache_folder", "load_models", "train"]

RECIPE = 4  # raise when anything below changes what is learned: cached weights are then learned anew
CONTEXT = 256


def cache_folder() -> Path:
    """``$WEDGEWATCH_CACHE``, else ``$XDG_CACHE_HOME/wedgewatch``, else ``~/.cache/wedgewatch``."""
    named = os.environ.get("WEDGEWATCH_CACHE")
    base = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser()
    return Path(named) if named else base / "wedgewatch"


def train(
    model: nn.Module, batches: Iterator[tuple[Tensor, Tensor]], num_training_steps: int, lr: float = 3e-3
) -> float:
    """Minimise cross entropy over ``batches`` of (input, target); returns the last loss in nats per byte."""
    optimizer = optim.AdamW(model.parameters(), lr=lr)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=num_training_steps)
    loss = torch.zeros(())
    for _ in range(num_training_steps):
        inputs, targets = next(batches)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs).flatten(0, -2), targets.flatten())
        loss.backward()  # type: ignore[no-untyped-call]  # torch ships it without a signature
        optimizer.step()
        scheduler.step()
    return float(loss.detach())


def texts(seed: int, rows: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """Pieces of the text and the same pieces one byte later."""
    data, draw = _data(device), torch.Generator().manual_seed(seed)
    reach = torch.arange(CONTEXT + 1, device=device)
    while True:
        starts = torch.randint(len(data) - CONTEXT - 1, (rows, 1), generator=draw).to(device)
        piece = data[starts + reach]
        yield piece[:, :-1], piece[:, 1:]


def windows(seed: int, rows: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """Windows of the text and the byte that follows."""
    data, draw = _data(device), torch.Generator().manual_seed(seed)
    reach = torch.arange(WINDOW, device=device)
    while True:
        starts = torch.randint(len(data) - WINDOW, (rows, 1), generator=draw).to(device)
        yield data[starts + reach], data[starts[:, 0] + WINDOW]


def load_models(
    shape: Shape,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    folder: Path | None = None,
    steps: int = 400,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[Transformer, Drafter]:
    """Target and draft model for serving, from the cache or learned now (about 15 s on one core)."""
    where = torch.device(device)
    key = hashlib.sha256(corpus() + repr((RECIPE, shape, seed, steps)).encode()).hexdigest()[:16]
    path = (folder or cache_folder()) / f"models-{key}.pt"
    torch.manual_seed(seed)
    target, drafter = Transformer(shape).to(where), Drafter().to(where)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # who comes second waits and reads what the first has learned
        if not path.exists():
            say(f"training target ({_size(target)} parameters) and draft model ({_size(drafter)}), once, about 30 s")
            slow = train(target, texts(seed, 6, where), steps, lr=3e-3 * 96 / shape.width)
            fast = train(drafter, windows(seed, 256, where), steps)
            say(f"trained: target {slow:.2f}, draft model {fast:.2f} nats per byte; kept in {path.parent}")
            unfinished = path.with_suffix(".part")
            torch.save({"target": target.state_dict(), "drafter": drafter.state_dict()}, unfinished)
            unfinished.replace(path)
    weights = torch.load(path, map_location=where, weights_only=True)
    target.load_state_dict(weights["target"])
    drafter.load_state_dict(weights["drafter"])
    return target.to(dtype).eval(), drafter.eval()


def _data(device: torch.device) -> Tensor:
    return torch.tensor(list(corpus()), device=device)


def _size(model: nn.Module) -> str:
    return f"{sum(parameter.numel() for parameter in model.parameters()):,}"
