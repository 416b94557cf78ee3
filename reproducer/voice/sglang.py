"""SGLang (0.5): ``[2026-11-20 09:00:00] Decode batch, ...`` without a level, and ``sglang:*`` metrics.

Formats: https://github.com/sgl-project/sglang, python/sglang/srt/managers. No batch, no line, and no new gauge either.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from reproducer.stats import Gauges

from .base import Voice
from .page import Page

if TYPE_CHECKING:
    from reproducer.batch import Claim
    from reproducer.engine import AfterCrash, Engine

__all__ = ["SGLang"]

DECODE_LOG_INTERVAL = 40  # steps, as in the engine


class SGLang(Voice):
    name = "sglang"
    after_crash: ClassVar[AfterCrash] = "exit"

    def loading(self, engine: Engine) -> None:
        self.shown = Gauges()
        self.decodes, self.tokens, self.since, self.preemptions = 0, 0, self.clock(), 0
        self.say(f"server_args=ServerArgs(model_path='{self.model}', tp_size=1, schedule_policy='fcfs')")

    def starting(self, engine: Engine) -> None:
        config = engine.config
        self.say(
            f"max_total_num_tokens={config.kv_pool_tokens}, chunked_prefill_size={config.step_tokens}, "
            f"max_prefill_tokens={config.hard_tokens}, max_running_requests={config.max_batch}, "
            f"context_len={config.max_seq_len}"
        )

    def ready(self, host: str, port: int) -> None:
        super().ready(host, port)
        self.say("The server is fired up and ready to roll!")

    def say(self, message: str) -> None:
        self.raw(f"[{self.stamp('%Y-%m-%d %H:%M:%S')}] {message}")

    def front(self, level: str, message: str) -> None:
        self.say(f"{level}:{' ' * (9 - len(level))}{message}")

    def warning(self, message: str) -> None:
        self.say(message)

    def iteration(self, engine: Engine, claims: Sequence[Claim]) -> None:
        now, stats = engine.stats.now, engine.stats
        usage = now.kv_used / engine.config.kv_blocks
        if now.scheduled:
            self.shown = now
        if now.context_requests:
            pending = sum(request.remaining for request in engine.scheduler.waiting)
            self.say(
                f"Prefill batch, #new-seq: {now.context_requests}, #new-token: {now.context_tokens}, #cached-token: 0, "
                f"token usage: {usage:.2f}, #running-req: {now.generation_requests}, #queue-req: {now.waiting}, "
                f"#pending-token: {pending}, cuda graph: False, "
                f"input throughput (token/s): {now.context_tokens / max(now.step_seconds, 1e-6):.2f}"
            )
        self.decodes += now.generation_requests > 0
        if now.generation_requests and self.decodes % DECODE_LOG_INTERVAL == 0:
            rate = (stats.generation_tokens_seen - self.tokens) / max(self.clock() - self.since, 1e-6)
            self.tokens, self.since = stats.generation_tokens_seen, self.clock()
            self.say(
                f"Decode batch, #running-req: {now.generation_requests}, "
                f"#token: {now.kv_used * engine.config.block_tokens}, token usage: {usage:.2f}, cuda graph: False, "
                f"gen throughput (token/s): {rate:.2f}, #queue-req: {now.waiting}"
            )
        if stats.preemptions > self.preemptions:
            self.say(
                f"KV cache pool is full. Retract requests. #retracted_reqs: {stats.preemptions - self.preemptions}, "
                f"#new_tokens_gained: {(engine.config.kv_blocks - now.kv_used) * engine.config.block_tokens}, "
                "#new_token_ratio: 0.0000 -> 0.0000"
            )
            self.preemptions = stats.preemptions
        super().iteration(engine, claims)

    def forward_error(self, message: str, trace: str) -> None:
        self.say(f"Scheduler hit an exception: {trace}")

    def loop_error(self, error: Exception, trace: str) -> None:
        self.say("Received sigquit from a child process. It usually means the child failed.")

    def page(self, engine: Engine) -> str:
        now = self.shown if self.gauge_mode == "step" else self.gauges(engine)
        stats, config = engine.stats, engine.config
        page = Page(model_name=self.model, engine_type="unified", tp_rank="0", pp_rank="0")
        page.gauge("sglang:num_running_reqs", "The number of running requests.", now.running)
        page.gauge("sglang:num_queue_reqs", "The number of requests in the waiting queue.", now.waiting)
        page.gauge("sglang:num_used_tokens", "The number of used tokens.", now.kv_used * config.block_tokens)
        page.gauge("sglang:token_usage", "The token usage.", now.kv_used / config.kv_blocks)
        page.gauge(
            "sglang:max_total_num_tokens", "Maximum total number of tokens in the KV cache pool.", config.kv_pool_tokens
        )
        page.counter("sglang:num_retracted_requests_total", "Retracted requests.", stats.preemptions)
        page.counter("sglang:prompt_tokens_total", "Number of prefill tokens processed.", stats.prompt_tokens_done)
        page.counter(
            "sglang:generation_tokens_total", "Number of generation tokens processed.", stats.generation_tokens_done
        )
        page.counter("sglang:num_requests_total", "Number of requests processed.", stats.completed)
        page.counter("sglang:num_aborted_requests_total", "Number of requests aborted.", stats.finished["abort"])
        page.counters(
            "sglang:realtime_tokens_total",
            "Tokens as they are computed.",
            "mode",
            {"prefill_compute": stats.prompt_tokens_computed, "decode": stats.generation_tokens_seen},
        )
        page.histogram("sglang:e2e_request_latency_seconds", "Histogram of end-to-end request latency.", stats.e2e)
        page.histogram("sglang:time_to_first_token_seconds", "Histogram of time to first token.", stats.first_token)
        page.labels = {}
        page.gauge("process_start_time_seconds", "Start time of the process since unix epoch.", stats.started)
        return page.render()
