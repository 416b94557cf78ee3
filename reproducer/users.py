"""Who asks what: a population of users whose every request follows from a seed.

Nothing depends on the answers: a later turn of a conversation repeats the prompt before it, then a reply of the length
that was asked for, then a new message. So a load can be written down and run again exactly, on any server.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Protocol

from .lengths import Lengths

__all__ = ["Ask", "Population", "Recorded", "Users", "corpus", "population_for", "read_load", "text_of", "write_load"]


@lru_cache(maxsize=1)
def corpus() -> bytes:
    """The text that ships with the package: the models learn it, and prompts are cut from it."""
    return resources.files(__package__).joinpath("text/harbour.txt").read_bytes()


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: lengths in tokens (bytes of text), and ``at`` seconds after the load began where that matters."""

    user: int
    turn: int
    prompt_tokens: int
    output_tokens: int
    prompt: bytes = b""
    at: float | None = None

    def to_json(self) -> dict[str, Any]:
        row = asdict(self)
        row["prompt"] = self.prompt.decode("latin-1")
        return row

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> Ask:
        return cls(**{**row, "prompt": row.get("prompt", "").encode("latin-1")})


@dataclass(frozen=True, slots=True)
class Population:
    """Users by number. ``turns`` above 1 makes conversations; ``giant_share`` of all prompts are ``giant`` long."""

    lengths: Lengths = field(default_factory=Lengths)
    seed: int = 0
    turns: int = 1
    system_tokens: int = 0
    giant_share: float = 0.0
    giant_tokens: int = 0

    def asks(self, user: int) -> Iterator[Ask]:
        """Everything this user will ever ask, in order."""
        draw = random.Random(f"{self.seed}/{user}")
        text = b""
        turn = 0
        while True:
            message = self.lengths.prompt(draw.random())
            output = self.lengths.output(draw.random())
            if draw.random() < self.giant_share:
                yield Ask(user, turn, self.giant_tokens, output, text_of(draw, self.giant_tokens))
                continue
            if turn % self.turns == 0 or len(text) + message > self.lengths.max_prompt:
                text = text_of(random.Random(f"{self.seed}/system"), self.system_tokens)
            text += text_of(draw, message)
            yield Ask(user, turn, len(text), output, text)
            text += text_of(draw, output)
            turn += 1


@dataclass(frozen=True, slots=True)
class Recorded:
    """Users out of a recorded load: each asks again what it asked then, in the same order, and then is done."""

    rows: tuple[Ask, ...]

    @property
    def users(self) -> int:
        return 1 + max((ask.user for ask in self.rows), default=-1)

    @property
    def timed(self) -> bool:
        """Was it an open loop, with times?"""
        return any(ask.at is not None for ask in self.rows)

    def asks(self, user: int) -> Iterator[Ask]:
        return (ask for ask in self.rows if ask.user == user)

    def at_steps(self, step_seconds: float, *, only_first: bool = False) -> list[Ask]:
        """Arrivals with times in steps; ``only_first`` keeps them so far apart that each is alone."""
        start = min((ask.at or 0.0 for ask in self.rows), default=0.0)
        if only_first:
            gap = 8 + max((ask.prompt_tokens + ask.output_tokens for ask in self.rows), default=0)
            return [replace(ask, at=float(gap * index)) for index, ask in enumerate(self.rows)]
        return [replace(ask, at=((ask.at or 0.0) - start) / step_seconds) for ask in self.rows]


class Users(Protocol):
    """Anybody who can say what each user asks."""

    def asks(self, user: int) -> Iterator[Ask]: ...


def text_of(draw: random.Random, size: int) -> bytes:
    source = corpus()
    pieces = b""
    while len(pieces) < size:
        start = draw.randrange(len(source) - 64)
        pieces += source[start : start + size - len(pieces)]
    return pieces


def population_for(profile: str, max_seq_len: int, seed: int = 0) -> Population:
    """The traffic in which a profile's mechanism is reachable: conversations for caches, one giant for oversize."""
    plain = Lengths()
    if profile == "reuse":
        talk = replace(plain, table="azure-conv", prompt_scale=1 / 32, max_prompt=max_seq_len - 112)
        return Population(talk, seed, turns=8, system_tokens=32)
    if profile == "transfer":
        talk = replace(plain, prompt_scale=1 / 12, output_scale=1 / 8, max_prompt=max_seq_len - 112)
        return Population(talk, seed, turns=8)
    if profile == "oversize":
        return Population(plain, seed, giant_share=0.01, giant_tokens=3000)
    return Population(plain, seed)


def write_load(path: Path, asks: Iterable[Ask]) -> None:
    """One JSON object a line, so that a load can be cut with ordinary tools."""
    with path.open("w", encoding="utf-8") as out:
        for ask in asks:
            out.write(json.dumps(ask.to_json()) + "\n")


def read_load(path: Path) -> list[Ask]:
    """Inverse of :func:`write_load`. Raises ValueError with the line that is wrong."""
    asks = []
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                asks.append(Ask.from_json(json.loads(line)))
            except (ValueError, TypeError) as error:
                raise ValueError(
                    f"{path}:{number}: not a recorded request ({error}); see docs/reproducer.md"
                ) from error
    return asks
