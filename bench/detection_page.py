"""The measured page: tables of false pages, misses and delays as Markdown, and what they mean."""

from __future__ import annotations

import math
import textwrap
import time
from collections import Counter

from agent.detect.deadline import GAMMA
from bench.outcome import SCRAPE, Healthy, Wedged
from bench.scenarios import HEALTHY
from bench.wedges import WEDGES

__all__ = ["bound", "page", "summary", "table"]

HEAD = """# Measured: the progress verdict

{date}, `{command}`
(also `make bench-detection`), {minutes:.0f} minutes on {workers} processes, two cores shared with other work.
`--keep FILE` keeps each result: the same command then goes on where it was stopped, another `--seed` adds to it, and
the tables are about all that the file holds.
Simulated servers, see `bench/queueing.py`, `bench/scenarios.py`, `bench/wedges.py`; looked at every 5 s, judged by the
tracker that the daemon runs, from signals alone: no log line helps.

What the simulation knows of a server is what its authors knew. It freezes for up to 15 s every two hours without a
reason, compiles for up to 90 s after a start and once more for up to 30 s, prefills a million tokens, sleeps, is paused
with its host, loses its clients. It does not freeze for longer than that without a word: half a minute in which
nothing moves, that no phase and no gauge explains, is paged, here and in your cluster, unless the server has made a
habit of it.

## False pages and delay
"""
LEGEND = """
*bound*: least mean delay of any test that sees completions only, for one false alarm in 30 days
(`ln(gamma * rate) / rate + scrape / 2`, median over the wedges). The verdict sees tokens and steps too, so it may be
under it. *set by*: what set the deadline, see [how it works](how-it-works.md). Servers of TensorRT-LLM count tokens
when a request ends, so the rule on tokens pages on those that work through a queue. A trickle moves tokens: that rule
never sees one. Before ten completions it is quicker on some: a young process is given the benefit of the doubt, and a
line in the log that names the stall takes it away (10 s).

## Early warnings

Server-months of a fluid model (`bench/weeks.py`). A warning is right when the server stops within half an hour of it.
"""
LEVELS = """
## What load levels buy

An engine that shows completions only, which vLLM and TensorRT-LLM are not (`bench/levels.py`).
"""


def page(command: str, workers: int, minutes: float, tables: list[str], weeks: list[str], by_level: list[str]) -> str:
    """The whole page."""
    date = time.strftime("%Y-%m-%d")
    parts = [HEAD.format(date=date, command=command, minutes=minutes, workers=workers), *tables, LEGEND, *weeks]
    return "\n".join([*parts, *([LEVELS, *by_level] if by_level else []), ""])


def _percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else math.nan


def bound(rate: float) -> float:
    """Least mean delay of any test on completions alone for one false alarm in 30 days (Lorden), plus half a look."""
    return math.log(max(GAMMA * rate, math.e)) / rate + SCRAPE / 2 if rate > 0 else math.inf


def table(results: list[Healthy | Wedged]) -> list[str]:
    """Both tables as Markdown."""
    rests = [one for one in results if isinstance(one, Healthy)]
    found = [one for one in results if isinstance(one, Wedged)]
    befores = [one.before for one in found if one.before is not None]
    lines = [
        "| healthy | server-hours | false pages: this | 60 s no token | no completion in 5 min |",
        "|---|---:|---:|---:|---:|",
    ]
    lines += [_healthy_row(kind, [one for one in rests if one.kind == kind]) for kind in HEALTHY]
    lines.append(_healthy_row("before the wedges below", befores))
    lines.append(_healthy_row("**all**", rests + befores))
    lines += [
        "",
        "Delay in seconds from the last progress (or from the moment work came in after it): median / p99 (missed).",
        "",
        "| wedge | n | this | 60 s no token | no completion in 5 min | bound on completions | set by |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    lines += [_wedge_row(kind, [one for one in found if one.kind == kind]) for kind in WEDGES]
    lines.append(_wedge_row("**all**", found))
    return lines


def summary(results: list[Healthy | Wedged]) -> str:
    """What was asked for and what came out, in a few sentences."""
    found = [one for one in results if isinstance(one, Wedged)]
    rests = [one.before if isinstance(one, Wedged) else one for one in results]
    hours = sum(one.hours for one in rests if one is not None)
    pages = sum(one.pages[0] for one in rests if one is not None)
    missed = sum(one.delays[0] is None for one in found)
    most = f" (with 95 % confidence fewer than {3000 / hours:.2f} in 1000 h of such)" if hours and not pages else ""
    halves = []
    for kind in WEDGES:
        ones = [one for one in found if one.kind == kind]
        if not ones:
            continue
        ours, better = (_percentile([_waited(one, places) for one in ones], 0.5) for places in ((0,), (1, 2)))
        halves.append((ours <= 0.5 * better, f"{kind} {ours:.0f} s against {better:.0f} s"))
    late = "; ".join(text for met, text in halves if not met)
    return textwrap.fill(
        "The goal: no false page, no wedge missed, at most half of the delay of the quicker of two rules in use. Here: "
        f"{pages} false pages in {hours:,.0f} server-hours{most}, {missed} of {len(found):,} wedges missed, "
        f"half of the quicker rule's median delay or less for {sum(met for met, _ in halves)} of {len(halves)} kinds"
        f"{f' (not for: {late})' if late else ''}.",
        width=120,
    )


def _waited(one: Wedged, places: tuple[int, ...]) -> float:
    """Seconds until the first of these rules found it."""
    return min((delay for place in places if (delay := one.delays[place]) is not None), default=math.inf)


def _healthy_row(name: str, ones: list[Healthy]) -> str:
    hours = sum(one.hours for one in ones)
    pages = [sum(one.pages[place] for one in ones) for place in range(3)]
    rates = [f"{count} ({1000 * count / hours:.1f} / 1000 h)" if count else "0" for count in pages]
    return f"| {name} | {hours:,.0f} | {rates[0]} | {rates[1]} | {rates[2]} |"


def _wedge_row(name: str, ones: list[Wedged]) -> str:
    cells = []
    for place in range(3):
        delays = [one.delays[place] for one in ones]
        seen = [delay for delay in delays if delay is not None]
        missed = len(delays) - len(seen)
        text = f"{_percentile(seen, 0.5):.0f} / {_percentile(seen, 0.99):.0f}" if seen else "-"
        cells.append(f"{text} ({missed})")
    least = _percentile([bound(one.rate) for one in ones if one.rate > 0], 0.5)
    causes = Counter(one.source.split()[-1] for one in ones if one.source).most_common(3)
    why = ", ".join(f"{cause} {100 * count / len(ones):.0f} %" for cause, count in causes)
    return f"| {name} | {len(ones):,} | {' | '.join(cells)} | {least:.0f} | {why} |"
