"""How names of metrics are compared, and found in raw bytes."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache

__all__ = ["any_of", "plain_name"]


@lru_cache(maxsize=4096)
def plain_name(name: str) -> str:
    """The form in which names are compared: ``ray_vllm:num_requests`` becomes ``vllm_num_requests``.

    Ray and some gateways cannot keep a colon and write ``_``; Ray puts ``ray_`` in front.
    """
    plain = name.replace(":", "_")
    return plain[4:] if plain.startswith("ray_") and not plain.startswith("ray_serve_") else plain


def any_of(names: Collection[str]) -> bytes:
    """A regular expression for one of the plain names in any spelling, the longest that fits.

    Written as a tree: a line of another name fails at the letter where it differs. As a list of alternatives the same
    page takes four times as long.
    """
    rest = {name for name in names if name}
    branches = []
    for letter in sorted({name[0] for name in rest}):
        group = [name for name in rest if name[0] == letter]
        common = _common_beginning(group)
        branches.append(_spelling(common) + any_of([name[len(common) :] for name in group]))
    if not branches:
        return b""
    return b"(?:" + b"|".join(branches) + (b")?" if len(rest) < len(set(names)) else b")")


def _common_beginning(names: Collection[str]) -> str:
    first, last = min(names), max(names)
    return next((first[:index] for index, letter in enumerate(first) if not last.startswith(letter, index)), first)


def _spelling(name: str) -> bytes:
    return b"".join(b"[_:]" if char == "_" else re.escape(char.encode()) for char in name)
