"""A load file from what a server left behind: when requests came, and how long they were.

====================  =====================================================  =====================================
source                what is read                                           what has to be assumed
====================  =====================================================  =====================================
access log            time of each POST (combined format, CRI or docker      lengths: drawn from a table; time is the
                      stamp, SGLang's bracketed stamp; none of its own:      answer's, not the request's
                      spread between the stamped lines around it)
engine log            TensorRT-LLM ``iter =`` lines (requests fetched,       output lengths: drawn from a table
                      context tokens); vLLM ``Received request`` (lengths);
                      vLLM stats lines (throughput)
metrics over time     completions, prompt and generation tokens              requests spread evenly between readings
                      (OpenMetrics with timestamps, as the daemon exports)
====================  =====================================================  =====================================

Prompts are not taken over: their text is cut from the text that ships with the package, at the length found.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from .lengths import Lengths
from .users import Ask, text_of

__all__ = ["Arrival", "record", "record_asks", "recorded"]


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request as found; lengths in the server's tokens, None where the source does not tell."""

    at: float
    prompt: int | None = None
    output: int | None = None


_POST: Final = re.compile(r'"POST (?:/[\w.-]+)*/(?:chat/)?(?:completions|generate)[^"]*" 200|POST /v1/\S+ .*\b200\b')
_COMBINED: Final = re.compile(r"\[(\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d) ([+-]\d{4})\]")
_ISO: Final = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?")
_TRT: Final = re.compile(r"\[(\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d)\]")
_VLLM: Final = re.compile(r"\b(\d\d-\d\d \d\d:\d\d:\d\d) \[?[\w./-]+:\d+\] ?(.*)")
_ITER: Final = re.compile(r"currank_total_requests = (\d+)/.*'num_ctx_tokens': (\d+)")
_RECEIVED: Final = re.compile(r"Received request \S+:.*?\bmax_tokens=(\d+)")
_TOKENS: Final = re.compile(r"prompt_token_ids: \[([\d, ]*)\]")
_STATS: Final = re.compile(r"Avg prompt throughput: ([\d.]+) tokens/s, Avg generation throughput: ([\d.]+) tokens/s")
_FAMILIES: Final = {
    "finished": ("vllm:request_success_total", "trtllm_request_success_total", "sglang:num_requests_total"),
    "prompt": ("vllm:prompt_tokens_total", "trtllm_prompt_tokens_total", "sglang:prompt_tokens_total"),
    "output": ("vllm:generation_tokens_total", "trtllm_generation_tokens_total", "sglang:generation_tokens_total"),
}


def record(lines: Iterable[str], *, year: int, table: str = "azure-conv", interval: float = 10.0) -> list[Arrival]:
    """Arrivals of a log, sorted by time. ``year`` is for stamps that carry none; stamps without a zone are UTC."""
    mean = sum(Lengths(table, 1, 1, 1 << 30, 1 << 30).prompt((i + 0.5) / 200) for i in range(200)) / 200
    told: list[Arrival] = []
    posts: list[Arrival] = []
    stats: list[tuple[float, float]] = []
    last, unstamped = 0.0, 0
    for line in lines:
        moment = _time(line, year)
        if moment is None:
            unstamped += bool(_POST.search(line))
            continue
        if unstamped:  # uvicorn's access lines have no time of their own: between the stamped lines around them
            posts += _spread(last or moment, max(last, moment), unstamped, None, None)
        last, unstamped = moment, 0
        if found := _ITER.search(line):
            fetched, tokens = int(found[1]), int(found[2])
            told += [Arrival(moment, max(1, tokens // fetched))] * fetched if fetched else []
        elif found := _RECEIVED.search(line):
            tokens_in = _TOKENS.search(line)
            told.append(Arrival(moment, tokens_in[1].count(",") + 1 if tokens_in else None, int(found[1])))
        elif found := _STATS.search(line):
            stats.append((moment, float(found[1])))
        elif _POST.search(line):
            posts.append(Arrival(moment))
    if unstamped and last:
        posts += _spread(last, last + interval, unstamped, None, None)
    arrivals = told or posts  # the same requests may stand there twice; the source that tells more is taken
    if not arrivals:  # stats lines are the poorest source; used only where nothing else speaks
        for moment, rate in stats:
            arrivals += _spread(moment - interval, moment, round(rate * interval / mean), None, None)
    return sorted(arrivals, key=lambda arrival: arrival.at)


def recorded(text: str) -> list[Arrival]:
    """Arrivals from OpenMetrics with timestamps: between two readings as many as completed, evenly spread."""
    totals: dict[str, dict[float, float]] = {"finished": {}, "prompt": {}, "output": {}}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        name = re.split(r"[{ ]", line, maxsplit=1)[0]
        for what, names in _FAMILIES.items():
            if name in names and 'finished_reason="abort"' not in line:
                _, value, moment = line.rsplit(" ", 2)
                totals[what][float(moment)] = totals[what].get(float(moment), 0.0) + float(value)
    arrivals: list[Arrival] = []
    moments = sorted(totals["finished"])
    for before, after in itertools.pairwise(moments):
        grown = {what: rows.get(after, 0.0) - rows.get(before, 0.0) for what, rows in totals.items()}
        count = round(grown["finished"])
        if count > 0:  # a counter that fell is a restart
            arrivals += _spread(before, after, count, grown["prompt"] / count, grown["output"] / count)
    return arrivals


def record_asks(arrivals: Sequence[Arrival], lengths: Lengths, *, seed: int = 0) -> list[Ask]:
    """Arrivals as a load: times from the first, lengths scaled and cut, missing ones drawn from the table."""
    draw = random.Random(seed)
    asks: list[Ask] = []
    for number, arrival in enumerate(arrivals):
        prompt = _scaled(arrival.prompt, lengths.prompt_scale, lengths.max_prompt) or lengths.prompt(draw.random())
        output = _scaled(arrival.output, lengths.output_scale, lengths.max_output) or lengths.output(draw.random())
        at = arrival.at - arrivals[0].at
        asks.append(Ask(number, 0, prompt, output, text_of(draw, prompt), at=round(at, 3)))
    return asks


def _scaled(tokens: int | None, scale: float, most: int) -> int:
    return 0 if tokens is None else max(1, min(most, round(tokens * scale)))


def _spread(start: float, end: float, count: int, prompt: float | None, output: float | None) -> Iterator[Arrival]:
    for index in range(count):
        yield Arrival(
            start + (end - start) * (index + 0.5) / count,
            None if prompt is None else max(1, round(prompt)),
            None if output is None else max(1, round(output)),
        )


def _time(line: str, year: int) -> float | None:
    """Unix seconds of a line's stamp; None where it has none."""
    try:
        if found := _COMBINED.search(line):
            return datetime.strptime(f"{found[1]} {found[2]}", "%d/%b/%Y:%H:%M:%S %z").timestamp()
        if found := _TRT.search(line):
            return datetime.strptime(found[1], "%m/%d/%Y-%H:%M:%S").replace(tzinfo=UTC).timestamp()
        if found := _ISO.search(line):
            zone = (found[3] or "Z").replace("Z", "+0000").replace(":", "")
            moment = datetime.strptime(found[1].replace("T", " ") + zone, "%Y-%m-%d %H:%M:%S%z")
            return moment.timestamp() + float(f"0.{found[2] or 0}")
        if found := _VLLM.search(line):
            return datetime.strptime(f"{year}-{found[1]}", "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None  # a number that looks like a stamp and is none, such as month 13
    return None
