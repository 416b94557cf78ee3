"""How long prompts and answers are: quantile tables of public traces, interpolated.

A log-normal fits these traces poorly (they have several modes), so the tables themselves ship. Made from
https://github.com/Azure/AzurePublicDataset (Azure LLM inference traces of 2023, CC-BY-4.0; Patel et al., "Splitwise",
ISCA 2024) and https://github.com/kvcache-ai/Mooncake (FAST25 release, Apache-2.0).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

__all__ = ["TABLES", "Lengths"]

_PERCENTS: Final = (0, 1, 2, *range(5, 100, 5), 98, 99, 99.5, 100)


def _row(values: str) -> tuple[int, ...]:
    return tuple(int(value) for value in values.split())


TABLES: Final[dict[str, tuple[tuple[int, ...], tuple[int, ...]]]] = {
    "azure-conv": (
        _row("2 29 91 181 207 372 387 396 403 414 703 984 1020")
        + _row("1045 1071 1097 1130 1189 1315 1876 2734 4083 4098 4142 4831 14050"),
        _row("7 16 24 41 54 67 77 85 91 96 103 113 129 151 177 217 384 395 400 411 424 451 540 601 643 1000"),
    ),
    "azure-code": (
        _row("3 17 35 75 147 232 386 578 770 938 1075 1261 1469")
        + _row("1690 1909 2164 2433 2745 3192 3919 5186 7302 7436 7436 7436 7437"),
        _row("6 6 6 6 7 7 8 9 9 10 11 12 13 14 16 18 20 24 29 39 55 90 172 252 361 1899"),
    ),
    "mooncake-synthetic": (
        _row("13 16 18 22 30 45 88 277 913 2777 4365 6657 11587")
        + _row("14730 16289 17642 19407 23175 28430 34305 38615 48835 56631 66456 76328 191378"),
        _row("1 2 2 2 4 6 8 11 16 22 32 49 69 92 126 169 210 250 289 332 389 519 688 768 782 893"),
    ),
}
"""Name -> (prompt tokens, output tokens) at the percentiles of the trace. Prompt and output are drawn apart: their
correlation in these traces is 0.0 to 0.1."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """A table, scaled down to the size of a small engine and cut to what is legal there."""

    table: str = "azure-conv"
    prompt_scale: float = 1 / 16
    output_scale: float = 1 / 4
    max_prompt: int = 256
    max_output: int = 112

    def prompt(self, share: float) -> int:
        """Prompt length at this share (0..1) of the distribution, at least 1."""
        return max(1, min(self.max_prompt, round(_at(TABLES[self.table][0], share) * self.prompt_scale)))

    def output(self, share: float) -> int:
        return max(1, min(self.max_output, round(_at(TABLES[self.table][1], share) * self.output_scale)))


def _at(values: tuple[int, ...], share: float) -> float:
    percent = 100 * share
    upper = min(bisect_right(_PERCENTS, percent), len(_PERCENTS) - 1)
    low, high = _PERCENTS[upper - 1], _PERCENTS[upper]
    return float(values[upper - 1] + (values[upper] - values[upper - 1]) * (percent - low) / (high - low))
