"""A decoder-only transformer over bytes that keeps its keys and values in pages of a shared pool.

All rows of a step are one flat list of tokens, as in a real engine: each token says which position it has and which
slot of the pool is its own. Attention gathers the pages of each row. Rows are grouped by shape (decodes together,
prompt chunks together), because padding a decode to the length of a prompt would cost more than the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["LARGE", "Group", "PagedPool", "Shape", "Transformer"]

VOCABULARY = 256


@dataclass(frozen=True, slots=True)
class Shape:
    """Size of a model."""

    width: int = 96
    layers: int = 2
    heads: int = 4

    @property
    def head(self) -> int:
        return self.width // self.heads


LARGE: Final = Shape(1024, 8, 16)  # about 100 million parameters


class PagedPool:
    """Keys and values of every layer: ``[layers, 2, blocks, block_tokens, heads, head]``."""

    def __init__(
        self, shape: Shape, blocks: int, block_tokens: int, device: torch.device | str, dtype: torch.dtype
    ) -> None:
        size = (shape.layers, 2, blocks, block_tokens, shape.heads, shape.head)
        self.block_tokens = block_tokens
        self.data = torch.zeros(size, device=device, dtype=dtype)

    @property
    def nbytes(self) -> int:
        return self.data.numel() * self.data.element_size()

    def write(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        flat = self.data[layer].flatten(1, 2)
        flat[0].index_copy_(0, slots, keys)
        flat[1].index_copy_(0, slots, values)

    def read(self, layer: int, tables: Tensor) -> tuple[Tensor, Tensor]:
        """Pages named by ``tables`` [rows, pages] as keys and values [rows, heads, pages * block_tokens, head]."""
        keys, values = self.data[layer, 0][tables], self.data[layer, 1][tables]
        return keys.flatten(1, 2).transpose(1, 2), values.flatten(1, 2).transpose(1, 2)


@dataclass(frozen=True, slots=True)
class Group:
    """Rows of like shape: ``index`` [rows, width] into the flat tokens, ``tables`` [rows, pages], ``mask`` of both."""

    index: Tensor
    tables: Tensor
    mask: Tensor


class Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.before, self.after = nn.RMSNorm(shape.width), nn.RMSNorm(shape.width)
        self.qkv = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.out = nn.Linear(shape.width, shape.width, bias=False)
        self.up = nn.Linear(shape.width, 4 * shape.width, bias=False)
        self.down = nn.Linear(4 * shape.width, shape.width, bias=False)

    def project(self, x: Tensor, angles: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value of each token, the first two turned by its position."""
        parts = self.qkv(self.before(x)).unflatten(-1, (3, self.shape.heads, self.shape.head))
        return rotate(parts[..., 0, :, :], angles), rotate(parts[..., 1, :, :], angles), parts[..., 2, :, :]

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + self.out(attended.flatten(-2))
        out: Tensor = x + self.down(F.gelu(self.up(self.after(x))))
        return out


class Transformer(nn.Module):
    """``forward`` is the dense form for training, ``paged`` the form for serving; a test holds them together."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed = nn.Embedding(VOCABULARY, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width)
        self.head = nn.Linear(shape.width, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits [batch, length, 256] for whole texts."""
        x = self.embed(tokens)
        angles = rotary(torch.arange(tokens.shape[-1], device=tokens.device), self.shape.head, x.dtype)
        for layer in self.layers:
            assert isinstance(layer, Layer)
            q, k, v = layer.project(x, angles)
            attended = F.scaled_dot_product_attention(
                q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True
            )
            x = layer.finish(x, attended.transpose(1, 2))
        out: Tensor = self.head(self.norm(x))
        return out

    def paged(
        self, tokens: Tensor, positions: Tensor, slots: Tensor, groups: list[Group], pool: PagedPool, wanted: Tensor
    ) -> Tensor:
        """Logits [wanted, 256] of the flat tokens of one step; their keys and values are written to ``slots``."""
        x = self.embed(tokens)
        angles = rotary(positions, self.shape.head, x.dtype)
        for number, layer in enumerate(self.layers):
            assert isinstance(layer, Layer)
            q, k, v = layer.project(x, angles)
            pool.write(number, slots, k, v)
            attended = torch.empty_like(q)
            for group in groups:
                keys, values = pool.read(number, group.tables)
                rows = F.scaled_dot_product_attention(q[group.index].transpose(1, 2), keys, values, group.mask)
                attended[group.index] = rows.transpose(1, 2)
            x = layer.finish(x, attended)
        out: Tensor = self.head(self.norm(x[wanted]))
        return out


def rotary(positions: Tensor, head: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosine and sine [tokens, 1, head / 2] of rotary position embedding (Su et al., arXiv 2104.09864)."""
    steps = torch.arange(0, head, 2, device=positions.device, dtype=torch.float32) / head
    angles = positions[:, None, None].float() * torch.pow(10000.0, -steps)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
    cos, sin = angles
    left, right = x.chunk(2, dim=-1)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)
