"""vLLM V1 (0.30): ``(EngineCore pid=9) INFO 11-20 09:00:00 [core.py:78] ...`` and ``vllm:*`` metrics.

Formats: https://github.com/vllm-project/vllm, vllm/logging_utils, vllm/v1/metrics/loggers.py,
vllm/v1/core/kv_cache_utils.py. The stats line comes from the front end's timer, and is demoted to DEBUG (here: not
printed) when nothing was computed in this interval and the one before, however many requests run or wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from .base import Voice
from .page import Page

if TYPE_CHECKING:
    from reproducer.engine import AfterCrash, Engine

__all__ = ["VLLM"]


class VLLM(Voice):
    name = "vllm"
    after_crash: ClassVar[AfterCrash] = "unavailable"
    stats_interval: ClassVar[float] = 10.0
    last: tuple[int, int, float, float] = (0, 0, 0.0, 0.0)  # token counters and rates at the last stats line

    def say(self, process: str, level: str, where: str, message: str) -> None:
        """The whole header stands on every line of a message."""
        head = f"({process} pid={self.pid}) {level} {self.stamp('%m-%d %H:%M:%S')} [{where}] "
        self.raw("\n".join(head + line for line in message.rstrip("\n").split("\n")))

    def front(self, level: str, message: str) -> None:
        self.raw(f"(APIServer pid={self.pid}) {level}:{' ' * (9 - len(level))}{message}")

    def warning(self, message: str) -> None:
        self.say("EngineCore", "WARNING", "scheduler.py:412", message)

    def loading(self, engine: Engine) -> None:
        config = engine.config
        self.say(
            "EngineCore",
            "INFO",
            "core.py:78",
            f"Initializing a V1 LLM engine (v0.30.0) with config: model='{self.model}', "
            f"max_seq_len={config.max_seq_len}, max_num_seqs={config.max_batch}, "
            f"max_num_batched_tokens={config.hard_tokens}, max_num_scheduled_tokens={config.step_tokens}",
        )

    def starting(self, engine: Engine) -> None:
        config = engine.config
        concurrency = config.kv_pool_tokens / config.max_seq_len
        self.say(
            "EngineCore",
            "INFO",
            "kv_cache_utils.py:1087",
            f"{self.device} KV cache size: {config.kv_pool_tokens:,} tokens, "
            f"Maximum concurrency for {config.max_seq_len:,} tokens per request: {concurrency:.2f}x",
        )
        self.say(
            "EngineCore",
            "INFO",
            "core.py:210",
            "init engine (profile, create kv cache, warmup model) took "
            f"{max(0.0, self.clock() - engine.stats.started):.2f} seconds",
        )

    def ready(self, host: str, port: int) -> None:
        self.say("APIServer", "INFO", "api_server.py:1912", f"Starting vLLM API server 0 on http://{host}:{port}")
        super().ready(host, port)

    def timer(self, engine: Engine, seconds: float) -> None:
        now, stats = engine.stats.now, engine.stats
        prompt = (stats.prompt_tokens_seen - self.last[0]) / seconds
        generation = (stats.generation_tokens_seen - self.last[1]) / seconds
        silent = not (prompt or generation or self.last[2] or self.last[3])
        self.last = (stats.prompt_tokens_seen, stats.generation_tokens_seen, prompt, generation)
        if silent:
            return
        hits = 100 * stats.cached_tokens / stats.prompt_tokens_seen if stats.prompt_tokens_seen else 0.0
        parts = [
            f"Avg prompt throughput: {prompt:.1f} tokens/s",
            f"Avg generation throughput: {generation:.1f} tokens/s",
            f"Running: {now.running} reqs",
            f"Waiting: {now.waiting} reqs",
        ]
        if now.fetching or now.fetched:  # both are kept apart from the queue that waits for room only
            parts.append(f"Deferred: {now.fetching + now.fetched} reqs")
        if now.fetching or now.fetched:
            parts.append(f"KV fetch: 0 waiting to start, {now.fetching} in progress, {now.fetched} completed waiting")
        if stats.preemptions:
            parts.append(f"Preemptions: {stats.preemptions}")
        parts.append(f"{self.device} KV cache usage: {100 * now.kv_used / engine.config.kv_blocks:.1f}%")
        parts.append(f"Prefix cache hit rate: {hits:.1f}%")
        self.say("APIServer", "INFO", "loggers.py:257", f"Engine 000: {', '.join(parts)}")

    def forward_error(self, message: str, trace: str) -> None:
        """Not caught here: what ends the loop is the failed step itself."""
        self.say("EngineCore", "ERROR", "core.py:720", f"EngineCore encountered a fatal error.\n{trace}")

    def start_error(self, trace: str) -> None:
        self.say("EngineCore", "ERROR", "core.py:708", f"EngineCore failed to start.\n{trace}")

    def loop_error(self, error: Exception, trace: str) -> None:
        self.say(
            "APIServer",
            "ERROR",
            "async_llm.py:480",
            "AsyncLLM output_handler failed.\nTraceback (most recent call last):\n"
            "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. "
            "See stack trace (above) for the root cause.",
        )

    def lost(self) -> None:
        self.say(
            "APIServer",
            "ERROR",
            "core_client.py:564",
            "Engine core proc EngineCore died unexpectedly, shutting down client.",
        )

    def page(self, engine: Engine) -> str:
        now, stats, config = self.gauges(engine), engine.stats, engine.config
        page = Page(engine="0", model_name=self.model)
        page.gauge("vllm:num_requests_running", "Number of requests in model execution batches.", now.running)
        page.gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.", now.waiting)
        page.gauges(
            "vllm:num_requests_waiting_by_reason",
            "Number of waiting requests by reason.",
            "reason",
            {
                "capacity": now.waiting - now.fetching - now.fetched,
                "deferred": now.fetching + now.fetched,
            },
        )
        if config.rules.offload:
            page.gauges(
                "vllm:num_requests_kv_fetch_by_stage",
                "Number of requests that fetch KV from outside, by stage.",
                "stage",
                {"waiting_to_start": 0, "in_progress": now.fetching, "completed_waiting": now.fetched},
            )
        page.gauge(
            "vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", now.kv_used / config.kv_blocks
        )
        page.counter("vllm:num_preemptions_total", "Cumulative number of preemptions.", stats.preemptions)
        page.counter("vllm:prompt_tokens_total", "Number of prefill tokens processed.", stats.prompt_tokens_seen)
        page.counter(
            "vllm:generation_tokens_total", "Number of generation tokens processed.", stats.generation_tokens_seen
        )
        page.counters(
            "vllm:request_success_total",
            "Count of successfully processed requests.",
            "finished_reason",
            {reason: stats.finished[reason] for reason in ("stop", "length", "abort")} | {"error": stats.errors},
        )
        page.histogram(
            "vllm:iteration_tokens_total", "Histogram of number of tokens per engine_step.", stats.step_tokens
        )
        page.histogram("vllm:e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", stats.e2e)
        page.histogram(
            "vllm:time_to_first_token_seconds", "Histogram of time to first token in seconds.", stats.first_token
        )
        page.labels = {}
        page.gauge("process_start_time_seconds", "Start time of the process since unix epoch.", stats.started)
        return page.render()
