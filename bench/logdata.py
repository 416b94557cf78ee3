"""Logs and rules for the benchmark of the log engine, made from a seed.

The mix of lines is that of a busy vLLM server at DEBUG level: mostly access lines, requests that came in, the
scheduler's steps, stats lines, lines of libraries, some tracebacks. ``sparse`` plants one matching line in 100,000;
in ``dense`` 5 % of all lines match, half of them preemption warnings, half stats lines with a long queue.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

__all__ = ["DENSE_HITS", "PLANTED", "patterns", "write_log"]

SEED: Final = 20261120

# What the rules look for. The last one is the hard kind: its only literal stands in 8 % of all lines.
HAND_MADE: Final = (
    r"total_num_tokens <= self\.max_num_tokens",
    r"total_num_tokens (?:\(\d+\) )?should be less than or equal to max_num_tokens",
    r"Sequence group \S+ is preempted by PreemptionMode\.(?:RECOMPUTE|SWAP)",
    r"torch\.OutOfMemoryError: CUDA out of memory",
    r"EngineCore encountered a fatal error",
    r"(?i)watchdog caught collective operation timeout",
    r"Error in event loop: \w+ failed",
    r"No available shared memory broadcast block found in \d+ seconds",
    r"Scheduler watchdog timeout \(self\.watchdog_timeout=\d+",
    r"Waiting: (?:[5-9]\d|\d{3,}) reqs",
)
PLANTED: Final = (
    "[{us}] [TRT-LLM] [E] Encountered an error in forward function: assert total_num_tokens <= self.max_num_tokens",
    "[{us}] [TRT-LLM] [E] total_num_tokens (6986) should be less than or equal to max_num_tokens (4096)",
    "(EngineCore_DP0 pid=912) ERROR {md} [core.py:720] EngineCore encountered a fatal error.",
    "[rank3]:[E{glog}.267261 ProcessGroupNCCL.cpp:607] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB",
    "[{us}] [TRT-LLM] [E] Error in event loop: Sampling failed",
)
DENSE_HITS: Final = (
    "(EngineCore_DP0 pid=912) WARNING {md} [scheduler.py:1057] Sequence group cmpl-{n} is preempted by "
    "PreemptionMode.RECOMPUTE mode because there is not enough KV cache space. This can affect the end-to-end "
    "performance.",
    "(APIServer pid=851) INFO {md} [loggers.py:257] Engine 000: Avg prompt throughput: {n}.0 tokens/s, Avg generation "
    "throughput: {n}.5 tokens/s, Running: 64 reqs, Waiting: {queue} reqs, GPU KV cache usage: 98.1%, Prefix cache hit "
    "rate: 41.7%",
)

_WORDS: Final = [
    "scheduler",
    "batch",
    "token",
    "block",
    "cache",
    "prefix",
    "decode",
    "prefill",
    "worker",
    "rank",
    "stream",
    "request",
    "response",
    "client",
    "shard",
    "layer",
    "kernel",
    "graph",
    "tensor",
    "pool",
    "queue",
    "budget",
    "chunk",
    "page",
    "slot",
    "session",
    "adapter",
    "lora",
    "guided",
    "grammar",
    "sampler",
    "logits",
    "beam",
]

_TRACEBACK: Final = """\
Traceback (most recent call last):
  File "/usr/lib/python3.12/site-packages/uvicorn/protocols/http/httptools_impl.py", line 409, in run_asgi
    result = await app(self.scope, self.receive, self.send)
             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/usr/lib/python3.12/site-packages/starlette/routing.py", line 715, in __call__
    await self.middleware_stack(scope, receive, send)
  File "/opt/app/serve/api_server.py", line 512, in create_completion
    raise ClientGone(request.request_id)
serve.errors.ClientGone: request cmpl-{n} went away before its first token"""

# (share in percent, line)
_MIX: Final = (
    (34, '(APIServer pid=851) INFO:     10.0.{a}.{b}:{port} - "POST /v1/chat/completions HTTP/1.1" 200 OK'),
    (8, '(APIServer pid=851) INFO:     10.0.0.1:{port} - "GET /health HTTP/1.1" 200 OK'),
    (12, "(EngineCore_DP0 pid=912) DEBUG {md} [scheduler.py:{a}] step {n}: host_step_time = 41.2{b}ms, scheduled {a} "
         "requests, states = {{'num_ctx_requests': 1, 'num_ctx_tokens': {n}, 'num_generation_tokens': {a}}}"),
    (10, "(APIServer pid=851) INFO {md} [async_llm.py:269] Added request chatcmpl-{n}{port}{n}."),
    (8, "(APIServer pid=851) INFO {md} [loggers.py:257] Engine 000: Avg prompt throughput: {n}.0 tokens/s, Avg "
        "generation throughput: {a}.5 tokens/s, Running: {a} reqs, Waiting: {few} reqs, GPU KV cache usage: {b}.0%, "
        "Prefix cache hit rate: 41.7%"),
    (7, "(APIServer pid=851) INFO {md} [logger.py:40] Received request chatcmpl-{n}: prompt: '{words}', params: "
        "SamplingParams(n=1, presence_penalty=0.0, temperature=0.{a}, top_p=0.95, max_tokens={n}), lora: None."),
    (5, '{{"Active Request Count":{a},"Max Request Count":64,"Iteration Counter":{n},"Scheduled Requests":{a},"Used '
        'KV cache blocks":{n}}}'),
    (6, "[rank0]:[I{glog}.{port} ProcessGroupNCCL.cpp:{a}] {words}"),
    (5, "(EngineCore_DP0 pid=912) DEBUG {md} [core.py:{a}] {words} {n}"),
    (3, "node-7:912:1204 [3] NCCL INFO Channel {a}/0 : 3[3] -> 4[4] via P2P/CUMEM/read {n}"),
    (1.7, "(APIServer pid=851) WARNING {md} [config.py:{a}] {words} is not specified, will use {n}"),
    (0.3, _TRACEBACK),
)  # fmt: skip


def patterns(count: int, seed: int = SEED) -> list[str]:
    """``count`` rules: the hand-made ones and, beyond ten, synthetic ones of five forms that match nothing here."""
    rng = random.Random(seed)
    out = list(HAND_MADE[:count])
    forms: tuple[Callable[[str, str, str], str], ...] = (
        lambda a, b, c: rf"{a} {b} failed after \d+ retries in {c}",
        lambda a, b, c: rf"(?:{a}|{b}) {c} (?:lost|stuck|aborted)",
        lambda a, b, c: rf"\b{a}-{b}\b.{{0,40}}\b{c} overflow",
        lambda a, b, c: rf"(?i){a} {b} {c} unavailable",
        lambda a, b, c: rf"{a}_{b}\[\d+\]: invalid {c} \S+",
    )
    while len(out) < count:
        a, b, c = (rng.choice(_WORDS) + rng.choice("abcdefgh") + rng.choice("klmnop") for _ in range(3))
        out.append(forms[len(out) % len(forms)](a, b, c))
    return out


def write_log(path: Path, size: int, kind: str, seed: int = SEED) -> tuple[int, int]:
    """Write about ``size`` bytes of a ``sparse`` or ``dense`` log; gives its lines and how many were made to match."""
    lines = hits = written = 0
    with path.open("wb") as handle:
        for text, planted in _lines(kind, seed):
            data = text.encode() + b"\n"
            handle.write(data)
            written += len(data)
            lines += data.count(b"\n")
            hits += planted
            if written >= size:
                return lines, hits
    raise AssertionError("the lines never end")


def _lines(kind: str, seed: int) -> Iterator[tuple[str, bool]]:
    rng = random.Random(seed)
    shares = [share for share, _ in _MIX]
    templates = [template for _, template in _MIX]
    second = 0
    number = 0
    while True:
        # One second of the server's life at a time: a hundred lines with the same stamp.
        hours, minutes = divmod(second // 60, 60)
        clock = f"{9 + hours % 12:02d}:{minutes:02d}:{second % 60:02d}"
        stamps = {"us": f"11/20/2026-{clock}", "md": f"11-20 {clock}", "glog": f"1120 {clock}"}
        second += 1
        for template in rng.choices(templates, shares, k=100):
            number += 1
            if kind == "dense" and rng.random() < 0.05:
                yield rng.choice(DENSE_HITS).format(n=number, queue=rng.randrange(50, 400), **stamps), True
            if kind == "sparse" and number % 100_000 == 50_000:
                yield PLANTED[number // 100_000 % len(PLANTED)].format(**stamps), True
            yield template.format(
                n=number, a=rng.randrange(1, 99), b=rng.randrange(1, 99), port=rng.randrange(30000, 60000),
                few=rng.randrange(0, 9), words=" ".join(rng.choices(_WORDS, k=6)), **stamps,
            ), False  # fmt: skip
