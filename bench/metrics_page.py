"""How long one page of 100,000 lines takes, against the parser of prometheus_client in the same run.

    python -m bench.metrics_page [--lines 100000]

Prints CPU milliseconds (best of five) and peak memory above the page itself, for a page of vLLM's histograms with the
dozen wanted names in it. prometheus_client is measured on a tenth of the page and scaled, it is linear.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable

from prometheus_client.parser import text_string_to_metric_families

from agent.metrics.mapping import SignalMapper
from agent.metrics.parse import parse_page
from agent.rules.model import Dialect, MetricMap, MetricSource

SIGNALS = {
    "requests_running": (MetricSource("vllm:num_requests_running"),),
    "requests_waiting": (MetricSource("vllm:num_requests_waiting"),),
    "kv_cache_usage_ratio": (MetricSource("vllm:kv_cache_usage_perc"), MetricSource("vllm:gpu_cache_usage_perc")),
    "requests_finished_total": (MetricSource("vllm:request_success_total", {"finished_reason": "!abort"}),),
    "requests_aborted_total": (MetricSource("vllm:request_success_total", {"finished_reason": "abort"}),),
    "generation_tokens_total": (MetricSource("vllm:generation_tokens_total"),),
    "prompt_tokens_total": (MetricSource("vllm:prompt_tokens_total"),),
    "iterations_total": (MetricSource("vllm:iteration_tokens_total_count"),),
    "preemptions_total": (MetricSource("vllm:num_preemptions_total"),),
    "sleeping": (MetricSource("vllm:engine_sleep_state", {"sleep_state": "!awake"}, agg="max"),),
}
DIALECT = Dialect("vllm", detect_metrics=("vllm:",), metrics=MetricMap("/metrics", ("engine",), SIGNALS))
ENGINES = 8


def page(lines: int) -> bytes:
    """A page in vLLM's manner: the wanted series of eight engines, the rest histogram buckets."""
    out = []
    for engine in range(ENGINES):
        labels = f'engine="{engine}",model_name="meta-llama/Llama-3.3-70B-Instruct"'
        out += [
            f"vllm:num_requests_running{{{labels}}} {engine}.0",
            f"vllm:num_requests_waiting{{{labels}}} 0.0",
            f"vllm:kv_cache_usage_perc{{{labels}}} 0.5",
            f"vllm:generation_tokens_total{{{labels}}} 1.234567e+06",
            f"vllm:prompt_tokens_total{{{labels}}} 98765.0",
            f"vllm:num_preemptions_total{{{labels}}} 0.0",
            f"vllm:iteration_tokens_total_count{{{labels}}} 4711.0",
        ]
        out += [
            f'vllm:request_success_total{{{labels},finished_reason="{reason}"}} 17.0'
            for reason in ("stop", "length", "abort", "error")
        ]
    families = ("e2e_request_latency_seconds", "time_to_first_token_seconds", "iteration_tokens_total")
    while len(out) < lines:
        number = len(out)
        out.append(
            f'vllm:{families[number % 3]}_bucket{{engine="{number % ENGINES}",le="{number}.0",'
            f'model_name="meta-llama/Llama-3.3-70B-Instruct"}} {number}.0'
        )
    return ("\n".join(out[:lines]) + "\n").encode()


def cpu(work: Callable[[], object], rounds: int = 5) -> float:
    """CPU seconds of the fastest round."""
    best = float("inf")
    for _ in range(rounds):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return best


def scrape(body: bytes, mapper: SignalMapper) -> int:
    samples = mapper.map(parse_page(body, mapper.wanted(body)), server="bench", timestamp=0.0)
    return len(samples)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    arguments.add_argument("--lines", type=int, default=100_000)
    lines = arguments.parse_args().lines
    body = page(lines)
    mapper = SignalMapper({"vllm": DIALECT})
    assert scrape(body, mapper) == ENGINES
    first = cpu(lambda: scrape(body, SignalMapper({"vllm": DIALECT})))
    ours = cpu(lambda: scrape(body, mapper))
    tracemalloc.start()
    scrape(body, mapper)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    share = page(max(1, lines // 10)).decode()
    theirs = cpu(lambda: sum(1 for _ in text_string_to_metric_families(share)), rounds=1) * lines / max(1, lines // 10)
    print(f"page: {lines} lines, {len(body) / 1e6:.1f} MB, {ENGINES} engines, {len(SIGNALS)} signals")
    print(f"parse + map:       {ours * 1e3:8.1f} ms CPU (first page, engine to be recognised: {first * 1e3:.1f} ms)")
    print(f"prometheus_client: {theirs * 1e3:8.1f} ms CPU (parse only)")
    print(f"ratio:             {theirs / ours:8.0f} x;  peak memory above the page: {peak / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
