"""The draft model: guesses the next few bytes from the last few, so that the target may check them all in one step.

It has no memory beyond its window and no KV of its own. How much of a guess is right depends on the text: prose that it
knows is guessed well, numbers are not. So the draft length moves, and with it what every decode will claim next.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["WINDOW", "Drafter"]

WINDOW = 12


class Drafter(nn.Module):
    """The last :data:`WINDOW` bytes in, one byte out; one hidden layer."""

    def __init__(self, width: int = 16, hidden: int = 256) -> None:
        super().__init__()
        self.embed = nn.Embedding(256, width)
        self.inner = nn.Linear(WINDOW * width, hidden)
        self.head = nn.Linear(hidden, 256)

    def forward(self, windows: Tensor) -> Tensor:
        """Logits [rows, 256] for windows [rows, WINDOW]."""
        out: Tensor = self.head(torch.relu(self.inner(self.embed(windows).flatten(1))))
        return out

    @torch.inference_mode()
    def propose(self, windows: Tensor, length: int) -> Tensor:
        """``length`` bytes after each window, the likeliest each time: [rows, length]."""
        proposed = []
        for _ in range(length):
            token = self(windows).argmax(-1, keepdim=True)
            proposed.append(token)
            windows = torch.cat((windows[:, 1:], token), dim=1)
        return torch.cat(proposed, dim=1)


def accepted(guess: list[int], truth: list[int]) -> list[int]:
    """What the target makes of a draft: the part that it would have said itself, and one token of its own.

    ``truth`` holds the target's choice after the last sampled token and after each token of ``guess``.
    """
    same = 0
    while same < len(guess) and guess[same] == truth[same]:
        same += 1
    return truth[: same + 1]
