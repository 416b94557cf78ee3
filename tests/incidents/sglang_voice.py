"""How SGLang tells a history: lines without a level, one a batch and none without a batch; three eras of wording.

Formats: https://github.com/sgl-project/sglang (srt/managers/scheduler_metrics_mixin.py, srt/metrics/collector.py).
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

Version = Literal["0.4.6", "0.5.3", "0.5.8"]


@dataclass(frozen=True, slots=True)
class Voice:
    """One deployment's way of logging."""

    version: Version = "0.5.8"
    rank: str = "TP0"
    bracketed: bool = False
    """The custom log configuration: ``[time][file:line][LEVEL]: message``."""
    milliseconds: bool = False
    probes: int = 0
    """Seconds between health probes of one token; 0 for none."""
    context: int = 131_072
    startup: int = 60
    zone: tzinfo = UTC
    prompts: tuple[str, ...] = ()
    access: float = 1.0

    def say(self, t: float, message: str, rank: str | None = None) -> Line:
        moment = datetime.fromtimestamp(t, self.zone)
        stamp = moment.strftime("%Y-%m-%d %H:%M:%S") + (f".{int(t % 1 * 1000):03d}" if self.milliseconds else "")
        if self.bracketed:
            return Line(t, f"[{stamp}][scheduler_metrics_mixin.py:424][INFO]: {message}")
        chosen = self.rank if rank is None else rank
        return Line(t, f"[{stamp}{' ' + chosen if chosen else ''}] {message}")

    def start(self, ready: float, pool: int) -> list[Line]:
        lines = [
            self.say(
                ready - self.startup,
                "server_args=ServerArgs(model_path='Qwen/Qwen3-32B', tokenizer_mode='auto', tp_size=4, "
                "enable_metrics=True)",
                "",
            ),
            self.say(ready - self.startup * 0.9, "Load weight begin. avail mem=78.60 GB"),
            Line(
                ready - self.startup * 0.7,
                "Loading safetensors checkpoint shards:  50% Completed | 4/8 [00:05<00:05,  1.3s/it]",
            ),
            self.say(
                ready - self.startup * 0.5,
                "Load weight end. type=Qwen3ForCausalLM, dtype=torch.bfloat16, avail mem=61.80 GB, mem usage=16.80 GB.",
            ),
            self.say(
                ready - self.startup * 0.45,
                f"KV Cache is allocated. #tokens: {pool}, K size: 24.00 GB, V size: 24.00 GB",
            ),
            self.say(
                ready - self.startup * 0.4,
                "Capture cuda graph begin. This can take up to several minutes. avail mem=12.70 GB",
            ),
            self.say(
                ready - self.startup * 0.1,
                "Capture cuda graph end. Time elapsed: 18.30 s. mem usage=1.10 GB. avail mem=11.60 GB.",
            ),
            self.say(
                ready - 3,
                f"max_total_num_tokens={pool}, chunked_prefill_size=8192, max_prefill_tokens=16384, "
                f"max_running_requests=128, "
                f"context_len={self.context}, available_gpu_mem=11.60 GB",
            ),
        ]
        said = (
            "Started server process [2201]",
            "Application startup complete.",
            "Uvicorn running on http://0.0.0.0:30000 (Press CTRL+C to quit)",
        )
        lines += [self.say(ready - 2, f"INFO:     {text}", "") for text in said]
        lines.append(self.say(ready - 1, "The server is fired up and ready to roll!", ""))
        return lines

    def log(self, *histories: History) -> list[Line]:
        lines = self.start(histories[0].start, histories[0].pool)
        for index, history in enumerate(histories):
            rank = self.rank if len(histories) == 1 else f"DP{index} TP0"
            lines += self._batches(history, rank)
            lines += self._events(history)
        return lines

    def _batches(self, history: History, rank: str) -> Iterable[Line]:
        mark = "," if self.version == "0.5.8" else "."
        last = history.seconds[0]
        spoke = -1e9
        probe = 0.0
        for second in history.seconds[1:]:
            if not second.up or second.silent:
                last = second
                continue
            new = second.computed - last.computed
            usage = second.held / history.pool
            tail = ""
            if self.version == "0.5.8":
                tail = f", #pending-token: {second.pending}, cuda graph: False, input throughput (token/s): {new:.2f}"
            if new > 0 and second.started == last.started:
                yield self.say(
                    second.t + 0.1,
                    f"Prefill batch{mark} #new-seq: {max(1, new // 4000)}, #new-token: {new}, #cached-token: "
                    f"{new // 5}, token usage: {usage:.2f}, "
                    f"#running-req: {max(0, second.running - 1)}, #queue-req: {second.waiting}{tail}",
                    rank,
                )
            decoded = second.gen - last.gen
            if decoded > 0 and second.started == last.started and second.t - spoke >= 4:
                spoke = second.t
                graph = "" if self.version == "0.4.6" else "cuda graph: True, "
                yield self.say(
                    second.t + 0.3,
                    f"Decode batch{mark} #running-req: {second.running}, #token: {int(second.held)}, token usage: "
                    f"{usage:.2f}, {graph}"
                    f"gen throughput (token/s): {decoded:.2f}, #queue-req: {second.waiting}",
                    rank,
                )
            if self.probes and second.t - probe >= self.probes and second.running == 0:
                probe = second.t
                yield self.say(
                    second.t + 0.5,
                    f"Prefill batch{mark} #new-seq: 1, #new-token: 1, #cached-token: 0, token usage: {usage:.2f}, "
                    f"#running-req: 0, "
                    f"#queue-req: {second.waiting}{tail}",
                    rank,
                )
                yield self.say(second.t + 0.6, 'INFO:     10.0.9.1:41022 - "GET /health_generate HTTP/1.1" 200 OK', "")
            last = second

    def _events(self, history: History) -> Iterable[Line]:
        rng = random.Random(history.seconds[-1].accepted)
        for event in history.events:
            if event.kind == "finished" and (self.access >= 1 or rng.random() < self.access):
                yield self.say(
                    event.t + 0.7,
                    f'INFO:     10.0.9.{rng.randint(2, 40)}:{rng.randint(30000, 60000)} - "POST /generate HTTP/1.1" '
                    f"200 OK",
                    "",
                )
            elif event.kind == "accepted" and self.prompts:
                prompt = rng.choice(self.prompts)
                yield self.say(
                    event.t + 0.1,
                    f"Receive: obj=GenerateReqInput(rid='{event.t:.0f}', text={prompt!r}, "
                    f"sampling_params={{'max_new_tokens': 64}})",
                    "",
                )
            elif event.kind == "refused":
                yield self.say(
                    event.t + 0.7, 'INFO:     10.0.9.8:40022 - "POST /generate HTTP/1.1" 500 Internal Server Error', ""
                )
            elif event.kind == "down":
                yield self.say(event.t, "INFO:     Shutting down", "")
                yield self.say(
                    event.t + 1, "Gracefully exiting... Remaining number of requests 0. Remaining requests []", ""
                )
                yield self.say(
                    event.t + 2,
                    "Subprocess scheduler_0 (pid=2301) crashed with exit code -15. Triggering SIGQUIT for cleanup...",
                    "",
                )
            elif event.kind == "up":
                yield from self.start(event.t, history.pool)

    # -- lines of trouble -------------------------------------------------------------------------------------

    def watchdog(self, t: float, second: Second, ranks: int = 4) -> list[Line]:
        """After 300 s in one batch, on each rank."""
        head = (
            "Watchdog timeout (self.watchdog_timeout=300)"
            if self.version != "0.5.8"
            else "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)"
        )
        lines = []
        for rank in range(ranks):
            lines += [
                self.say(
                    t + rank * 0.1,
                    f"self.cur_batch.batch_size()={second.running}, self.cur_batch.reqs=[...], "
                    f"self.token_to_kv_pool_allocator.available_size()=1421, self.tree_cache.evictable_size()=0",
                    f"TP{rank}",
                ),
                self.say(t + rank * 0.1 + 0.01, head, f"TP{rank}"),
                self.say(
                    t + 1,
                    f'Pyspy dump for PID {2301 + rank}:\nThread 2301 (idle): "MainThread"\n    synchronize '
                    f"(torch/cuda/streams.py:229)",
                    f"TP{rank}",
                ),
            ]
        lines.append(self.say(t + 6, "Received sigquit from a child process. It usually means the child failed.", ""))
        return lines

    def exception(self, t: float, error: str) -> list[Line]:
        """The scheduler process dies of an error."""
        return [
            self.say(
                t,
                "Scheduler hit an exception: Traceback (most recent call last):\n"
                '  File "/opt/sglang/srt/managers/scheduler.py", line 2612, in run_scheduler_process\n    '
                "scheduler.event_loop_overlap()\n"
                f'  File "/opt/sglang/srt/managers/scheduler.py", line 870, in event_loop_overlap\n    result = '
                f"self.run_batch(batch)\n{error}\n",
            ),
            self.say(t + 1, "Received sigquit from a child process. It usually means the child failed.", ""),
        ]

    # -- metrics ----------------------------------------------------------------------------------------------

    def page(self, pool: int, *, index: int | None = None, http: bool = False) -> Page:
        """The page of one engine, or of one data-parallel rank."""
        labels = {"model_name": "qwen3-32b", "engine_type": "unified", "tp_rank": "0", "pp_rank": "0"}
        if index is not None:
            labels["dp_rank"] = str(index)

        def points(second: Second) -> list[Point]:
            out = [
                gauge("sglang:num_running_reqs", second.running, labels, "The number of running requests."),
                gauge("sglang:num_queue_reqs", second.waiting, labels, "The number of requests in the waiting queue."),
                gauge("sglang:num_used_tokens", int(second.held), labels, "The number of used tokens."),
                gauge("sglang:token_usage", round(second.held / pool, 4), labels, "The token usage."),
                gauge(
                    "sglang:gen_throughput",
                    0.0 if not second.scheduled else 900.0 + second.gen % 50,
                    labels,
                    "The generation throughput (token/s).",
                ),
                counter("sglang:prompt_tokens", second.prompt_done, labels, "Number of prefill tokens processed."),
                counter("sglang:generation_tokens", second.gen_done, labels, "Number of generation tokens processed."),
                counter("sglang:num_requests", second.finished, labels, "Number of requests processed."),
                counter("sglang:num_aborted_requests", second.abort, labels, "Number of aborted requests."),
                *histogram("sglang:e2e_request_latency_seconds", second.finished, 5.2, labels, (1.0, 10.0, 60.0)),
            ]
            if self.version == "0.5.8":
                out += [
                    counter("sglang:realtime_tokens", second.computed, {**labels, "mode": "prefill_compute"}),
                    counter("sglang:realtime_tokens", second.gen, {**labels, "mode": "decode"}),
                    gauge("sglang:num_retracted_reqs", min(2, second.preempted), labels),
                    counter("sglang:num_retracted_requests", second.preempted, labels),
                    gauge("sglang:max_total_num_tokens", pool, labels),
                ]
            if http:
                out.append(
                    gauge(
                        "sglang:http_requests_active",
                        second.connections,
                        {"method": "POST", "endpoint": "/v1/chat/completions"},
                    )
                )
            return out + process(second) if index in (None, 0) else out

        return points
