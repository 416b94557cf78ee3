"""TensorRT-LLM 1.3 (April 2026), one rank: ``[11/20/2026-09:00:00] [TRT-LLM] [I] ...`` and ``trtllm_*`` metrics.

Formats: https://github.com/NVIDIA/TensorRT-LLM, tensorrt_llm/logger.py, _torch/pyexecutor/py_executor.py,
metrics/collector.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from .base import Voice
from .page import Page

if TYPE_CHECKING:
    from reproducer.batch import Claim
    from reproducer.engine import Engine

__all__ = ["TensorRTLLM"]

RECORDS = 1000  # iteration records kept for the JSON endpoint; the oldest go first


class TensorRTLLM(Voice):
    name = "tensorrt_llm"
    metrics_path: ClassVar[str] = "/prometheus/metrics"

    def say(self, severity: str, message: str) -> None:
        self.raw(f"[{self.stamp('%m/%d/%Y-%H:%M:%S')}] [TRT-LLM] [{severity}] {message}")

    def warning(self, message: str) -> None:
        self.say("W", message)

    def loading(self, engine: Engine) -> None:
        config = engine.config
        self.iterations: deque[dict[str, object]] = deque(maxlen=RECORDS)
        self.say("I", f"PyTorchConfig(max_num_tokens={config.hard_tokens}, max_batch_size={config.max_batch})")

    def starting(self, engine: Engine) -> None:
        config = engine.config
        policy = {"reserve": "GUARANTEED_NO_EVICT"}.get(config.rules.admission, "MAX_UTILIZATION")
        self.say("I", f"Capacity Scheduler Policy: {policy}")
        self.say("I", "Context Chunking Scheduler Policy: FIRST_COME_FIRST_SERVED")
        self.say(
            "I",
            f"Max KV cache blocks per sequence: {config.blocks_for(config.max_seq_len)} "
            f"[window size={config.max_seq_len}], tokens per block={config.block_tokens}, "
            f"primary blocks={config.kv_blocks}, secondary blocks={config.host_blocks if config.rules.offload else 0}",
        )
        self.say(
            "I",
            f"max_seq_len={config.max_seq_len}, max_num_requests={config.max_batch}, "
            f"max_num_tokens={config.hard_tokens}, max_batch_size={config.max_batch}",
        )

    def iteration(self, engine: Engine, claims: Sequence[Claim]) -> None:
        now = engine.stats.now
        self.iterations.append(_record(engine, self.stamp("%m-%d-%Y %H:%M:%S")))
        if self.print_iterations and now.scheduled:
            states = {
                "num_ctx_requests": now.context_requests,
                "num_ctx_tokens": now.context_tokens,
                "num_generation_tokens": now.total_tokens - now.context_tokens,
            }
            before = f"{now.previous_step_seconds * 1000:.2f}ms" if now.previous_step_seconds else "N/A"
            self.say(
                "I",
                f"iter = {now.iteration}, global_rank = 0, rank = 0, "
                f"currank_total_requests = {now.fetched_this_pass}/{now.fetched_this_pass}, "
                f"host_step_time = {now.step_seconds * 1000:.2f}ms, prev_device_step_time = {before}, "
                f"timestamp = {self.stamp('%Y-%m-%d %H:%M:%S')}, num_scheduled_requests: {now.scheduled}, "
                f"states = {states}",
            )
        if not now.scheduled:
            self.warn_once(
                "fitting",
                "num_fitting_reqs=0 and fitting_disagg_gen_init_requests is empty, may not have enough kvCache",
            )
        super().iteration(engine, claims)

    def forward_error(self, message: str, trace: str) -> None:
        self.raw(trace)  # traceback.print_exc(), past the logger
        self.say("E", f"Encountered an error in forward function: {message}")

    def request_error(self, message: str, trace: str) -> None:
        self.say("E", trace)

    def loop_error(self, error: Exception, trace: str) -> None:
        self.say("E", f"Error in event loop: {error}")
        self.say("E", trace)

    def fatal(self, message: str) -> None:
        self.say("E", f"Fatal error detected, initiating shutdown: {message}")

    def records(self) -> list[dict[str, object]]:
        taken = []
        while self.iterations:
            taken.append(self.iterations.popleft())
        return taken

    def page(self, engine: Engine) -> str:
        now, stats, config = self.gauges(engine), engine.stats, engine.config
        page = Page(model_name=self.model, engine_type="pytorch")
        page.counters(
            "trtllm_request_success_total",
            "Count of successfully processed requests.",
            "finished_reason",
            {reason: stats.finished[reason] for reason in ("stop", "length")},
        )
        page.counters(
            "trtllm_request_error_total", "Count of failed requests.", "http_code", {"400": float(stats.errors)}
        )
        page.counter("trtllm_num_requests_completed_total", "Requests completed.", stats.completed)
        page.counter("trtllm_prompt_tokens_total", "Prompt tokens of finished requests.", stats.prompt_tokens_done)
        page.counter(
            "trtllm_generation_tokens_total", "Generated tokens of finished requests.", stats.generation_tokens_done
        )
        for name, about, value in (
            ("num_requests_running", "Number of active requests.", now.running),
            ("num_requests_waiting", "Number of queued requests.", now.waiting),
            ("max_num_active_requests", "Ceiling on active requests.", config.max_batch),
            ("num_scheduled_requests", "Requests in the last iteration.", now.scheduled),
            ("num_context_requests", "Context requests in the last iteration.", now.context_requests),
            ("num_generation_requests", "Generation requests in the last iteration.", now.generation_requests),
            ("num_paused_requests", "Paused requests.", 0),
            ("total_context_tokens", "Context tokens in the last iteration.", now.context_tokens),
            ("max_num_tokens_runtime", "Token budget of one iteration.", config.hard_tokens),
            ("max_batch_size_runtime", "Requests that one iteration may hold.", config.max_batch),
            ("max_batch_size_static", "Requests that one iteration may hold, as built.", config.max_batch),
            ("kv_cache_max_blocks", "Blocks of the KV cache.", config.kv_blocks),
            ("kv_cache_used_blocks", "Blocks in use.", now.kv_used),
            ("kv_cache_free_blocks", "Blocks not in use.", config.kv_blocks - now.kv_used),
            ("kv_cache_tokens_per_block", "Tokens per block.", config.block_tokens),
            ("kv_cache_utilization", "Share of the KV cache in use.", now.kv_used / config.kv_blocks),
        ):
            page.gauge(f"trtllm_{name}", about, value)
        page.histogram("trtllm_e2e_request_latency_seconds", "End to end latency.", stats.e2e)
        page.histogram("trtllm_time_to_first_token_seconds", "Time to first token.", stats.first_token)
        page.histogram("trtllm_iteration_latency_seconds", "Latency of one iteration.", stats.step_seconds)
        page.labels = {}
        page.gauge("process_start_time_seconds", "Start time of the process since unix epoch.", stats.started)
        return page.render()


def _record(engine: Engine, timestamp: str) -> dict[str, object]:
    now, config = engine.stats.now, engine.config
    return {
        "iter": now.iteration,
        "timestamp": timestamp,
        "iterLatencyMS": now.step_seconds * 1000,
        "numActiveRequests": now.running,
        "numQueuedRequests": now.waiting,
        "numCompletedRequests": len(engine.scheduler.finished),
        "maxNumActiveRequests": config.max_batch,
        "maxNumTokensRuntime": config.hard_tokens,
        "kvCacheStats": {
            "maxNumBlocks": config.kv_blocks,
            "freeNumBlocks": config.kv_blocks - now.kv_used,
            "usedNumBlocks": now.kv_used,
            "tokensPerBlock": config.block_tokens,
        },
        "inflightBatchingStats": {
            "numScheduledRequests": now.scheduled,
            "numContextRequests": now.context_requests,
            "numGenRequests": now.generation_requests,
            "numPausedRequests": 0,
            "numCtxTokens": now.context_tokens,
        },
    }
