"""The page of ``bench.logs``: a table for each kind of log, and the same as a picture."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Row", "page"]


@dataclass(frozen=True, slots=True)
class Row:
    """What a program cost on one kind of log with so many rules. ``ratio``, ``low``, ``high``: ripgrep is 1."""

    kind: str
    rules: int
    name: str
    ratio: float
    low: float
    high: float
    nanoseconds: float


def page(
    command: str, rows: Sequence[Row], memory: Mapping[str, float], versions: Sequence[str], picture: Path | None
) -> str:
    """All of it in Markdown; ``picture``: the page's path, beside which the picture goes (needs matplotlib)."""
    out = [
        "# What reading a log costs",
        "",
        f"`{command}`, {time.strftime('%Y-%m-%d')}, {platform.machine()}. CPU time for each byte, start-up included;",
        "`rg -c -j1` with the same patterns on the same file is 1. Median of interleaved rounds, lowest and highest in",
        "brackets. Slow tools read the head of the file only, their start-up taken off.",
        "",
        f"{'; '.join(versions)}.",
    ]
    if picture:
        drawn = picture.with_suffix(".svg")
        _draw(rows, drawn)
        out += ["", f"![The same as bars, on a logarithmic axis]({drawn.name})"]
    for kind in dict.fromkeys(row.kind for row in rows):
        what = "one line in 100,000 matches" if kind == "sparse" else "5 % of the lines match"
        out += ["", f"## {kind.capitalize()}: {what}", ""]
        numbers = list(dict.fromkeys(row.rules for row in rows))
        out.append("| | " + " | ".join(f"{number} rules" for number in numbers) + " |")
        out.append("|---|" + "---:|" * len(numbers))
        for name in dict.fromkeys(row.name for row in rows):
            cells = [_cell(_row(rows, kind, number, name)) for number in numbers]
            out.append(f"| {name} | " + " | ".join(cells) + " |")
    out += [
        "",
        "*scan* is everything that `wedgewatch scan` does with a vLLM log: headers, stamps, tracebacks, stages and",
        "verdicts for those rules alone; *with all packs* has the bundled rules, stats lines and life cycles instead.",
        "*engine* gives the matching records, *block scanner* only the places of the matches.",
        "",
        f"## Memory and start, {max(row.rules for row in rows)} rules",
        "",
        "| | MiB |",
        "|---|---:|",
    ]
    out += [f"| {what} | {value:.1f} |" for what, value in memory.items() if not what.startswith("start")]
    out += [
        "",
        f"Until the first byte is read: {1000 * memory['start']:.0f} ms of CPU with compiled rules in the cache, of "
        f"which the bare interpreter takes {1000 * memory['start of the interpreter']:.0f} ms.",
        "",
    ]
    return "\n".join(out)


def _row(rows: Sequence[Row], kind: str, rules: int, name: str) -> Row | None:
    return next((row for row in rows if (row.kind, row.rules, row.name) == (kind, rules, name)), None)


def _cell(row: Row | None) -> str:
    if row is None:
        return "-"
    if row.ratio >= 100:
        return f"{row.ratio:,.0f} ({row.low:,.0f}-{row.high:,.0f})"
    digits = 2 if row.ratio < 10 else 1
    return f"{row.ratio:.{digits}f} ({row.low:.{digits}f}-{row.high:.{digits}f})"


def _draw(rows: Sequence[Row], target: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "wedgewatch"  # the same figures give the same file
    from matplotlib import pyplot

    numbers = list(dict.fromkeys(row.rules for row in rows))
    names = list(dict.fromkeys(row.name for row in rows))
    kinds = list(dict.fromkeys(row.kind for row in rows))
    figure, axes = pyplot.subplots(1, len(kinds), figsize=(11, 0.42 * len(names) + 1.2), sharey=True, squeeze=False)
    shades = ["#9ec5e8", "#4b8fc9", "#1d4e89"]
    for axis, kind in zip(axes[0], kinds, strict=True):
        for place, number in enumerate(numbers):
            found = [_row(rows, kind, number, name) for name in names]
            values = [row.ratio if row else math.nan for row in found]
            heights = [at + 0.26 * (place - (len(numbers) - 1) / 2) for at in range(len(names))]
            axis.barh(heights, values, 0.24, color=shades[place % 3], label=f"{number} rules")
        axis.axvline(1, color="#444", linewidth=0.8)
        axis.set(xscale="log", title=kind, xlabel="CPU per byte, ripgrep = 1", yticks=range(len(names)))
        axis.set_yticklabels(names)
    axes[0][0].invert_yaxis()
    axes[0][-1].legend(frameon=False, loc="lower right")
    figure.tight_layout()
    figure.savefig(target, metadata={"Date": None})
