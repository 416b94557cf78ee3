"""Load files that others publish: when requests came and how long they were, in the columns they are published in.

Read by what the header says: Azure (TIMESTAMP, ContextTokens, GeneratedTokens), BurstGPT (Timestamp, Request tokens,
Response tokens), Mooncake (JSON lines with timestamp in ms, input_length, output_length), or a load recorded here. Only
lengths and times are taken; the text of a prompt is cut from the text that ships with the package.
"""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from .users import Ask, Population, read_load, text_of

__all__ = ["read_trace"]


def read_trace(path: Path, population: Population, *, speed: float = 1.0) -> list[Ask]:
    """Requests with ``at`` in seconds from the first, lengths scaled and cut as the population's are.

    Raises ValueError that names file and line when a row is not what its header promises.
    """
    with path.open(encoding="utf-8-sig") as source:
        first = source.readline()
    if first.lstrip().startswith("{") and "prompt_tokens" in first:
        asks = read_load(path)
        start = min((ask.at or 0.0 for ask in asks), default=0.0)
        return [_at(ask, ((ask.at or 0.0) - start) / speed) for ask in asks]
    rows = list(_mooncake(path) if first.lstrip().startswith("{") else _table(path))
    draw = random.Random(population.seed)
    lengths = population.lengths
    start = rows[0][0] if rows else 0.0
    asks = []
    for number, (moment, prompt, output) in enumerate(rows):
        size = max(1, min(lengths.max_prompt, round(prompt * lengths.prompt_scale)))
        wanted = max(1, min(lengths.max_output, round(output * lengths.output_scale)))
        asks.append(Ask(number, 0, size, wanted, text_of(draw, size), at=(moment - start) / speed))
    return asks


def _at(ask: Ask, moment: float) -> Ask:
    return Ask(ask.user, ask.turn, ask.prompt_tokens, ask.output_tokens, ask.prompt, at=moment)


def _mooncake(path: Path) -> Iterator[tuple[float, int, int]]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
                yield row["timestamp"] / 1000, int(row["input_length"]), int(row["output_length"])
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{path}:{number}: not a row of a Mooncake trace ({error!r})") from error


_COLUMNS = (
    ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    ("Timestamp", "Request tokens", "Response tokens"),
)


def _table(path: Path) -> Iterator[tuple[float, int, int]]:
    with path.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.DictReader(lines)
        names = next((names for names in _COLUMNS if set(names) <= set(reader.fieldnames or ())), None)
        if names is None:
            raise ValueError(
                f"{path}:1: no known columns; expected {' or '.join(', '.join(names) for names in _COLUMNS)}, "
                "or JSON lines with timestamp, input_length, output_length"
            )
        for number, row in enumerate(reader, 2):
            try:
                yield _seconds(row[names[0]]), int(float(row[names[1]])), int(float(row[names[2]]))
            except (ValueError, TypeError) as error:
                raise ValueError(f"{path}:{number}: not a row of {', '.join(names)} ({error})") from error


def _seconds(text: str) -> float:
    """Seconds, or a date with time (Azure writes seven digits of a second)."""
    try:
        return float(text)
    except ValueError:
        head, _, fraction = text.partition(".")
        return datetime.fromisoformat(head).timestamp() + float(f"0.{fraction or 0}")
