"""How TensorRT-LLM tells a history: its header eras, iteration lines, the two metrics pages it has had.

Formats: https://github.com/NVIDIA/TensorRT-LLM (tensorrt_llm/logger.py, _torch/pyexecutor/py_executor.py, metrics/).
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Literal

from tests.incidents.envelopes import Line
from tests.incidents.openmetrics import Page, Point, counter, gauge, histogram, process
from tests.incidents.world import History, Second

Era = Literal["plain", "mpi", "rank", "module"]
_LATENCIES = (0.5, 2.0, 8.0, 30.0)
BENIGN = (
    (
        "W",
        "[AutoTuner] trtllm::fused_moe::gemm1 using the fallback tactic, due to cache miss on input "
        "shapes=(torch.Size([7, 4096]))",
    ),
    ("W", "Attention workspace size is not enough, increase the size from 33554432 bytes to 67108864 bytes"),
    ("W", "[kv cache manager] storeContextBlocks: Can not find sequence for request 2049"),
    ("E", "Received stop request for requestId 771 but it's not active (might be completed already)."),
)
"""Lines with a level and no meaning."""


@dataclass(frozen=True, slots=True)
class Voice:
    """One deployment's way of logging."""

    era: Era = "plain"
    iterations: bool = True
    ranks: int = 1
    budget: int = 4096
    startup: int = 40
    zone: tzinfo = UTC
    skew: float = 0.0
    model: str = "llama-70b"
    prompts: tuple[str, ...] = ()
    every: int = 5
    module: str = "_torch"

    def say(self, t: float, severity: str, message: str, rank: int = 0, module: str | None = None) -> Line:
        """One record: its first line with the header, the others bare."""
        stamp = datetime.fromtimestamp(t + self.skew, self.zone).strftime("[%m/%d/%Y-%H:%M:%S] ")
        if self.era == "mpi":
            head = f"[TRT-LLM] [MPI_Rank {rank}] [{severity}]"
        elif self.era == "rank":
            head = f"[TRT-LLM] [RANK {rank}] [{severity}]"
        elif self.era == "module":
            head = f"[TRT-LLM] [{severity}] [{module or self.module}]" + (f"[RANK {rank}]" if module is None else "")
        else:
            head = f"[TRT-LLM] [{severity}]"
        return Line(t, f"{stamp}{head} {message}")

    def start(self, ready: float) -> list[Line]:
        t = ready - self.startup
        lines = [
            self.say(t, "I", "Using LLM with PyTorch backend", module="serve"),
            self.say(t + 1, "I", "Set nccl_plugin to None.", module="serve"),
            self.say(t + 2, "I", f"PyTorchConfig(max_num_tokens={self.budget}, max_batch_size=64)"),
            Line(t + 6, "Loading weights: 100%|##########| 680/680 [00:14<00:00, 47.1it/s]"),
            self.say(
                ready - 12,
                "I",
                f"max_seq_len=32768, max_num_requests=64, max_num_tokens={self.budget}, max_batch_size=64",
            ),
            self.say(
                ready - 10, "I", "[MemUsageChange] Allocated 18.65 GiB for max tokens in paged KV cache (264192)."
            ),
            self.say(ready - 8, "I", "Running CUDA graph warmup for batch size=64, draft_len=0"),
        ]
        said = (
            "Started server process [3117]",
            "Waiting for application startup.",
            "Application startup complete.",
            "Uvicorn running on http://0.0.0.0:8000 (Press CTRL+C to quit)",
        )
        lines += [Line(ready - 1, f"INFO:     {text}") for text in said]
        return lines

    def log(self, *histories: History) -> list[Line]:
        history = histories[0]
        lines = self.start(history.start)
        if self.iterations:
            lines += self._iterations(history)
        return lines + list(self._events(history))

    def _iterations(self, history: History) -> Iterable[Line]:
        last = 0
        for second in history.seconds[:: self.every]:
            if not second.up or second.silent or second.scheduled == 0 or second.steps == last:
                continue
            last = second.steps
            contexts = min(3, second.waiting + second.t.__hash__() % 2)
            stamp = datetime.fromtimestamp(second.t + self.skew, self.zone).strftime("%Y-%m-%d %H:%M:%S")
            for rank in range(self.ranks):
                yield self.say(
                    second.t + 0.2,
                    "I",
                    f"iter = {second.steps}, global_rank = {rank}, rank = {rank}, currank_total_requests = 0/0, "
                    f"host_step_time = "
                    f"41.{rank}7ms, prev_device_step_time = 40.{rank}9ms, timestamp = {stamp}, "
                    f"num_scheduled_requests: {second.scheduled}, "
                    f"states = {{'num_ctx_requests': {contexts}, 'num_ctx_tokens': {contexts * 900}, "
                    f"'num_generation_tokens': {second.scheduled}}}",
                    rank,
                )

    def _events(self, history: History) -> Iterable[Line]:
        rng = random.Random(history.seconds[-1].accepted)
        for event in history.events:
            port = rng.randint(30000, 60000)
            access = f'INFO:     10.0.4.{rng.randint(2, 40)}:{port} - "POST /v1/chat/completions HTTP/1.1"'
            if event.kind == "finished":
                yield Line(event.t + 0.5, f"{access} 200 OK")
            elif event.kind in ("failed", "refused"):
                yield Line(
                    event.t + 1.5,
                    f"{access} 400 Bad Request" if event.kind == "failed" else f"{access} 503 Service Unavailable",
                )
            elif event.kind == "accepted" and self.prompts:
                yield self.say(
                    event.t + 0.1,
                    "I",
                    f"Completion request: prompt={rng.choice(self.prompts)!r}, max_tokens=128",
                    module="serve",
                )
            elif event.kind == "down":
                yield Line(event.t, "INFO:     Shutting down")
                yield Line(event.t + 1, "INFO:     Application shutdown complete.")
                yield Line(event.t + 1, "INFO:     Finished server process [3117]")
            elif event.kind == "up":
                yield from self.start(event.t)

    # -- lines of trouble -------------------------------------------------------------------------------------

    def overshoot(
        self,
        t: float,
        total: int,
        *,
        numbers: bool = True,
        dies: bool = True,
        threading_only: bool = False,
        rank: int = 0,
        failed: int = 3,
        trace: bool = True,
    ) -> list[Line]:
        """The assertion of the token budget: bare traceback, logger's line, failed requests, the loop's end."""
        said = f" ({total})" if numbers else ""
        limit = f" ({self.budget})" if numbers else ""
        message = f"total_num_tokens{said} should be less than or equal to max_num_tokens{limit}"
        lines = []
        if trace:
            lines.append(
                Line(
                    t,
                    "Traceback (most recent call last):\n"
                    '  File "/opt/trt/tensorrt_llm/_torch/pyexecutor/py_executor.py", line 2101, in _forward_step\n'
                    "    outputs = forward(scheduled_requests, self.resource_manager, new_tensors_device)\n"
                    '  File "/opt/trt/tensorrt_llm/_torch/pyexecutor/model_engine.py", line 2678, in '
                    "_prepare_tp_inputs\n"
                    "    assert total_num_tokens <= self.max_num_tokens, (\n"
                    "           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
                    f"AssertionError: {message}",
                )
            )
        lines.append(self.say(t, "E", f"Encountered an error in forward function: {message}", rank))
        lines += [
            self.say(
                t + 0.3,
                "E",
                "Traceback (most recent call last):\n"
                '  File "/opt/trt/tensorrt_llm/serve/openai_server.py", line 410, in chat_stream_generator\n'
                "    async for res in promise:\n"
                f"tensorrt_llm.executor.utils.RequestError: {message}",
                module="serve",
            )
            for _ in range(failed)
        ]
        if not dies:
            return lines
        if not threading_only:
            lines += self.loop_ends(t + 0.5, "Sampling failed", "AssertionError", rank)
        lines.append(
            Line(
                t + 0.6,
                "Exception in thread Thread-3 (_event_loop_wrapper):\nTraceback (most recent call last):\n"
                '  File "/usr/lib/python3.12/threading.py", line 1075, in _bootstrap_inner\n    self.run()\n'
                '  File "/opt/trt/tensorrt_llm/_torch/pyexecutor/py_executor.py", line 1600, in '
                "_executor_loop_overlap\n"
                '    assert sample_state is not None, "Sampling failed"\nAssertionError: Sampling failed',
            )
        )
        return lines

    def loop_ends(self, t: float, error: str, kind: str = "RuntimeError", rank: int = 0) -> list[Line]:
        """The executor's thread is gone."""
        return [
            self.say(t, "E", f"Error in event loop: {error}", rank),
            self.say(
                t,
                "E",
                "Traceback (most recent call last):\n"
                '  File "/opt/trt/tensorrt_llm/_torch/pyexecutor/py_executor.py", line 633, in _event_loop_wrapper\n'
                f"    self.event_loop()\n{kind}: {error}",
                rank,
            ),
        ]

    # -- metrics ----------------------------------------------------------------------------------------------

    def page(self, pool: int, *, five: bool = False) -> Page:
        """The page of 1.3, or of 1.1 with its five families of finished requests."""
        labels = {"model_name": self.model, "engine_type": "pytorch"}

        def points(second: Second) -> list[Point]:
            out = []
            for reason, value in (("stop", second.stop), ("length", second.length)):
                out.append(
                    counter(
                        "trtllm_request_success",
                        value,
                        {**labels, "finished_reason": reason},
                        "Count of successfully processed requests.",
                    )
                )
            for family, mean in (
                ("e2e_request_latency", 6.1),
                ("time_to_first_token", 0.4),
                ("request_queue_time", 0.1),
            ):
                out += histogram(
                    f"trtllm_{family}_seconds",
                    second.finished,
                    mean,
                    labels,
                    _LATENCIES,
                    f"Histogram of {family} in seconds.",
                )
            out.append(
                gauge("trtllm_kv_cache_utilization", round(second.held / pool, 5), labels, "KV cache utilization.")
            )
            if not five:
                out += [
                    gauge("trtllm_num_requests_running", second.running, labels, "Number of active requests."),
                    gauge("trtllm_num_requests_waiting", second.waiting, labels, "Number of queued requests."),
                    gauge("trtllm_num_scheduled_requests", second.scheduled or second.running, labels),
                    gauge("trtllm_num_paused_requests", 0, labels),
                    gauge("trtllm_max_num_tokens_runtime", self.budget, labels),
                    gauge("trtllm_kv_cache_used_blocks", int(second.held) // 32, labels),
                    gauge("trtllm_kv_cache_max_blocks", pool // 32, labels),
                    counter("trtllm_prompt_tokens", second.prompt_done, labels, "Prompt tokens."),
                    counter("trtllm_generation_tokens", second.gen_done, labels, "Generation tokens."),
                    counter("trtllm_request_error", second.error, {**labels, "http_code": "400"}),
                    counter("trtllm_request_error", second.refused, {**labels, "http_code": "503"}),
                    *histogram(
                        "trtllm_prefill_batch_tokens", second.computed // 1500, 1500.0, labels, (512.0, 2048.0, 8192.0)
                    ),
                ]
            return out + process(second)

        return points
