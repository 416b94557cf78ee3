"""How vLLM tells a history: the headers of its eras, its stats line with the rule that silences it, its metrics.

Formats: https://github.com/vllm-project/vllm (vllm/logger.py, vllm/v1/metrics/loggers.py, vllm/engine/metrics.py).
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from typing import Literal

from tests.incidents.envelopes import Line
from tests.incidents.openmetrics import Page, Point, counter, gauge, histogram, process
from tests.incidents.world import Event, History, Second

Style = Literal["v0", "v0-new", "v1-bare", "v1", "v1-json"]
_BUCKETS = (1.0, 8.0, 64.0, 512.0, 4096.0)


@dataclass(frozen=True, slots=True)
class Voice:
    """One deployment's way of logging."""

    style: Style = "v1"
    debug: bool = False
    always: bool = False
    """Print zero lines for ever, as 0.2 to 0.6.1 did."""
    version: str = "0.11.0"
    model: str = "meta-llama/Llama-3.1-70B-Instruct"
    max_len: int = 131_072
    startup: int = 60
    engine: int = 0
    requests_logged: bool = False
    prompts: tuple[str, ...] = ("Summarise the following minutes in five points.",)
    access: float = 1.0
    zone: tzinfo = UTC
    skew: float = 0.0
    colour: bool = False
    speculative: bool = False
    engine_process: str = "EngineCore_DP0"
    start_block: bool = True
    extra: tuple[tuple[float, str], ...] = field(default=())

    @property
    def v0(self) -> bool:
        return self.style in ("v0", "v0-new")

    # -- lines ------------------------------------------------------------------------------------------------

    def say(self, t: float, level: str, where: str, message: str, process: str = "api") -> Line:
        """One record with the header of its era on each of its lines; `where` is ``file.py:NNN``."""
        moment = datetime.fromtimestamp(t + self.skew, self.zone)
        stamp = moment.strftime("%m-%d %H:%M:%S")
        name, pid = ("APIServer", 851) if process == "api" else ("EngineCore", 912)
        if process == "engine":
            name = self.engine_process
        elif process not in ("api", "engine"):
            name, pid = process, 1201
        if self.style == "v1-json":
            logger = "vllm.v1." + where.split(".py")[0].replace("/", ".")
            return Line(
                t,
                json.dumps(
                    {
                        "asctime": moment.strftime("%Y-%m-%d %H:%M:%S") + ",417",
                        "levelname": level,
                        "name": logger,
                        "processName": name,
                        "process": pid,
                        "message": message,
                    }
                ),
            )
        place = where if self.style == "v0" else f"[{where}]"
        head = f"{level} {stamp} {place}" + ("]" if self.style == "v0" else "")
        if self.style == "v1":
            tag = f"({name} pid={pid})"
            if self.colour:
                tag = f"\x1b[1;36m{tag}\x1b[0;0m"
            head = f"{tag} {head}"
        return Line(t, "\n".join(f"{head} {part}" for part in message.split("\n")))

    def raw(self, t: float, text: str) -> Line:
        """A line that is not the logger's (uvicorn): only the process tag stands before it, where there is one."""
        if self.style == "v1":
            tag = "(APIServer pid=851)"
            return Line(t, f"\x1b[1;36m{tag}\x1b[0;0m {text}" if self.colour else f"{tag} {text}")
        return Line(t, text)

    def start(self, ready: float, pool: int) -> list[Line]:
        """The start block, ending at `ready`."""
        t = ready - self.startup
        generation = "an LLM" if self.v0 else "a V1 LLM"
        concurrency = pool / self.max_len
        engine = "engine"
        lines = [
            self.say(
                t,
                "INFO",
                "core.py:78" if not self.v0 else "llm_engine.py:234",
                f"Initializing {generation} engine (v{self.version}) with config: model='{self.model}', "
                f"speculative_config=None, dtype=torch.bfloat16, max_seq_len={self.max_len}, tensor_parallel_size=4",
                engine,
            ),
            Line(t + 4, "Loading safetensors checkpoint shards:  25% Completed | 1/4 [00:03<00:09,  3.1s/it]"),
            Line(
                t + self.startup * 0.4,
                "Loading safetensors checkpoint shards: 100% Completed | 4/4 [00:12<00:00,  3.1s/it]",
            ),
        ]
        t = ready - self.startup * 0.3
        if self.v0:
            device = "GPU" if self.style == "v0" else "cuda"
            lines.append(
                self.say(
                    t, "INFO", "executor_base.py:111", f"# {device} blocks: {pool // 16}, # CPU blocks: 2048", engine
                )
            )
            lines.append(
                self.say(
                    t,
                    "INFO",
                    "executor_base.py:116",
                    f"Maximum concurrency for {self.max_len} tokens per request: {concurrency:.2f}x",
                    engine,
                )
            )
        else:
            lines.append(self.say(t, "INFO", "kv_cache_utils.py:1087", f"GPU KV cache size: {pool:,} tokens", engine))
            lines.append(
                self.say(
                    t,
                    "INFO",
                    "kv_cache_utils.py:1091",
                    f"Maximum concurrency for {self.max_len:,} tokens per request: {concurrency:.2f}x",
                    engine,
                )
            )
        lines.append(
            self.say(
                ready - 6,
                "INFO",
                "gpu_model_runner.py:2480",
                "Graph capturing finished in 12 secs, took 0.52 GiB",
                engine,
            )
        )
        lines.append(
            self.say(
                ready - 4,
                "INFO",
                "core.py:210",
                f"init engine (profile, create kv cache, warmup model) took {self.startup * 0.4:.2f} seconds",
                engine,
            )
        )
        lines.append(
            self.say(ready - 2, "INFO", "api_server.py:1971", "Starting vLLM API server 0 on http://0.0.0.0:8000")
        )
        said = (
            "Started server process [851]",
            "Waiting for application startup.",
            "Application startup complete.",
        )
        lines += [self.raw(ready - 1, f"INFO:     {text}") for text in said]
        return lines

    def log(self, *histories: History) -> list[Line]:
        """All lines of one front end over one engine or several."""
        history = histories[0]
        lines = self.start(history.start, history.pool) if self.start_block else []
        for index, each in enumerate(histories):
            lines += self._stats(each, self.engine + index)
            lines += self._events(each)
        for t, text in self.extra:
            lines += [Line(t, text)]
        return lines

    def _stats(self, history: History, engine: int) -> Iterable[Line]:
        interval = 5 if self.v0 else 10
        last: Second | None = None
        was_zero = False
        for second in history.seconds[interval::interval]:
            if not second.up or second.silent:
                last = None
                continue
            if last is None or second.started != last.started:
                last = second
                was_zero = False
                continue
            prompt = (second.prompt - last.prompt) / interval
            gen = (second.gen - last.gen) / interval
            last = second
            zero = prompt == 0 and gen == 0
            quiet = zero and was_zero
            was_zero = zero
            if quiet and not self.debug and not self.always:
                continue
            level = "DEBUG" if quiet and not self.always else "INFO"
            yield self.say(second.t + 0.4, level, self._where(), self._figures(history, second, prompt, gen, engine))
            if self.speculative and not zero:
                yield self.say(
                    second.t + 0.4,
                    "INFO",
                    "metrics.py:96",
                    "SpecDecoding metrics: Mean acceptance length: 2.41, Accepted throughput: 310.20 tokens/s, Drafted "
                    "throughput: 660.10 tokens/s, Accepted: 3102 tokens, Drafted: 6601 tokens",
                )

    def _where(self) -> str:
        name = "metrics.py:341" if self.v0 else "loggers.py:257"
        return f"v1/metrics/{name}" if self.debug and not self.v0 else name

    def _figures(self, history: History, second: Second, prompt: float, gen: float, engine: int) -> str:
        used = 100 * second.held / history.pool
        if self.v0:
            return (
                f"Avg prompt throughput: {prompt:.1f} tokens/s, Avg generation throughput: {gen:.1f} tokens/s, "
                f"Running: {second.running} reqs, Swapped: 0 reqs, Pending: {second.waiting} reqs, "
                f"GPU KV cache usage: {used:.1f}%, CPU KV cache usage: 0.0%."
            )
        preempted = f"Preemptions: {second.preempted}, " if second.preempted and self.version >= "0.19" else ""
        return (
            f"Engine {engine:03d}: Avg prompt throughput: {prompt:.1f} tokens/s, Avg generation throughput: "
            f"{gen:.1f} tokens/s, "
            f"Running: {second.running} reqs, Waiting: {second.waiting} reqs, {preempted}"
            f"GPU KV cache usage: {used:.1f}%, Prefix cache hit rate: 38.2%"
        )

    def _events(self, history: History) -> Iterable[Line]:
        rng = random.Random(history.seconds[-1].accepted)
        preempted = 0
        for event in history.events:
            request = event.request
            if event.kind == "down":
                yield self.raw(event.t, "INFO:     Shutting down")
                yield self.raw(event.t + 1, "INFO:     Waiting for application shutdown.")
                yield self.raw(event.t + 1, "INFO:     Application shutdown complete.")
                yield self.raw(event.t + 1, "INFO:     Finished server process [851]")
            elif event.kind == "up":
                yield from self.start(event.t, history.pool)
            elif event.kind == "accepted" and self.requests_logged and request is not None:
                prompt = rng.choice(self.prompts)
                yield self.say(
                    event.t + 0.1,
                    "INFO",
                    "logger.py:40",
                    f"Received request chatcmpl-{request.number:08x}: prompt: {prompt!r}, params: SamplingParams(n=1, "
                    f"temperature=0.7, max_tokens={request.output}), prompt_token_ids: None, lora_request: None.",
                )
            elif event.kind == "aborted" and request is not None:
                yield self.say(
                    event.t + 0.2, "INFO", "async_llm.py:415", f"Aborted request(s) chatcmpl-{request.number:08x}."
                )
            elif event.kind in ("failed", "refused"):
                yield self._access(event, rng, "500 Internal Server Error")
            elif event.kind == "finished" and (self.access >= 1 or rng.random() < self.access):
                yield self._access(event, rng, "200 OK")
            elif event.kind == "preempted" and self.v0 and request is not None:
                preempted += 1
                if preempted % 50 == 1:
                    yield self.say(
                        event.t + 0.3,
                        "WARNING",
                        "scheduler.py:1754",
                        f"Sequence group chatcmpl-{request.number:08x} is preempted by PreemptionMode.RECOMPUTE "
                        f"mode because "
                        "there is not enough KV cache space. This can affect the end-to-end performance. Increase "
                        "gpu_memory_utilization or tensor_parallel_size to provide more KV cache memory. "
                        f"total_num_cumulative_preemption={preempted}",
                        "engine",
                    )

    def _access(self, event: Event, rng: random.Random, status: str) -> Line:
        return self.raw(
            event.t + 0.5,
            f'INFO:     10.0.3.{rng.randint(2, 40)}:{rng.randint(30000, 60000)} - "POST /v1/chat/completions '
            f'HTTP/1.1" {status}',
        )

    # -- lines of trouble -------------------------------------------------------------------------------------

    def shm_wait(self, first: float, last: float, process: str = "engine") -> list[Line]:
        """The wait for a worker that no longer reads: each minute, and at INFO from V1 on."""
        text = (
            "No available block found in 60 second. "
            if self.style == "v0"
            else "No available shared memory broadcast block found in 60 seconds. This typically happens when some "
            "processes "
            "are hanging or doing some time-consuming work (e.g. compilation)."
        )
        level = "WARNING" if self.v0 else "INFO"
        return [
            self.say(first + 60 * n, level, "shm_broadcast.py:466", text, process)
            for n in range(int((last - first) // 60) + 1)
        ]

    def fatal(self, t: float, error: str, where: str = "engine") -> list[Line]:
        """The engine core's last words and the front end's."""
        trace = (
            "Traceback (most recent call last):\n"
            '  File "/usr/local/lib/python3.12/dist-packages/vllm/v1/engine/core.py", line 711, in run_engine_core\n'
            "    engine_core.run_busy_loop()\n"
            '  File "/usr/local/lib/python3.12/dist-packages/vllm/v1/engine/core.py", line 738, in run_busy_loop\n'
            "    self._process_engine_step()\n"
            f"{error}"
        )
        return [
            self.say(t, "ERROR", "core.py:720", "EngineCore encountered a fatal error.", where),
            self.say(t, "ERROR", "core.py:720", trace, where),
            self.say(t + 1, "ERROR", "async_llm.py:480", "AsyncLLM output_handler failed."),
            self.say(
                t + 1,
                "ERROR",
                "async_llm.py:480",
                "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace "
                "(above) for the root cause.",
            ),
        ]

    def dump(self, t: float, second: Second, pool: int) -> list[Line]:
        """What is written before the fatal error of a step that timed out."""
        return [
            self.say(
                t,
                "ERROR",
                "dump_input.py:69",
                f"Dumping input data for V1 LLM engine (v{self.version}) with config: model='{self.model}'",
                "engine",
            ),
            self.say(
                t,
                "ERROR",
                "dump_input.py:76",
                "Dumping scheduler output for model execution: SchedulerOutput(scheduled_new_reqs=[], "
                f"num_scheduled_tokens={{}}, total_num_scheduled_tokens={second.running})",
                "engine",
            ),
            self.say(
                t,
                "ERROR",
                "dump_input.py:79",
                f"Dumping scheduler stats: SchedulerStats(num_running_reqs={second.running}, "
                f"num_waiting_reqs={second.waiting}, "
                f"step_counter=0, kv_cache_usage={second.held / pool:.4f})",
                "engine",
            ),
        ]

    # -- metrics ----------------------------------------------------------------------------------------------

    def page(self, pool: int, *, engine: int | None = None, deferred: str = "", asleep: bool = False) -> Page:
        """The page of one engine."""
        labels = {"model_name": self.model}
        if not self.v0:
            labels = {"engine": str(self.engine if engine is None else engine), **labels}
        usage = "vllm:gpu_cache_usage_perc" if self.v0 else "vllm:kv_cache_usage_perc"

        def points(second: Second) -> list[Point]:
            out = [
                gauge(
                    "vllm:num_requests_running",
                    second.running,
                    labels,
                    "Number of requests in model execution batches.",
                ),
                gauge(
                    "vllm:num_requests_waiting", second.waiting, labels, "Number of requests waiting to be processed."
                ),
                gauge(usage, round(second.held / pool, 6), labels, "KV-cache usage. 1 means 100 percent usage."),
                counter(
                    "vllm:num_preemptions", second.preempted, labels, "Cumulative number of preemption from the engine."
                ),
                counter("vllm:prompt_tokens", second.prompt, labels, "Number of prefill tokens processed."),
                counter("vllm:generation_tokens", second.gen, labels, "Number of generation tokens processed."),
            ]
            for reason, value in (
                ("stop", second.stop),
                ("length", second.length),
                ("abort", second.abort),
                ("error", second.error),
            ):
                out.append(
                    counter(
                        "vllm:request_success",
                        value,
                        {**labels, "finished_reason": reason},
                        "Count of successfully processed requests.",
                    )
                )
            done = second.stop + second.length
            out += histogram(
                "vllm:e2e_request_latency_seconds",
                done,
                7.3,
                labels,
                (1.0, 10.0, 60.0),
                "Histogram of e2e request latency in seconds.",
            )
            out += histogram(
                "vllm:iteration_tokens_total",
                second.gen // 8,
                12.0,
                labels,
                _BUCKETS,
                "Histogram of number of tokens per engine_step.",
            )
            if self.v0:
                out.append(gauge("vllm:num_requests_swapped", 0, labels, "Number of requests swapped to CPU."))
            else:
                out.append(counter("vllm:prefix_cache_queries", second.prompt, labels))
                out.append(counter("vllm:prefix_cache_hits", second.prompt // 3, labels))
            if deferred:
                for reason in ("capacity", "deferred"):
                    value = second.waiting if reason == deferred else 0
                    out.append(gauge("vllm:num_requests_waiting_by_reason", value, {**labels, "reason": reason}))
            if asleep:
                state_now = "weights_offloaded" if second.holding else "awake"
                for state in ("awake", "weights_offloaded", "discard_all"):
                    value = int(state == state_now)
                    out.append(gauge("vllm:engine_sleep_state", value, {**labels, "sleep_state": state}))
            if engine in (None, 0):
                out += process(second)
                out.append(
                    counter(
                        "http_requests",
                        second.stop + second.length + second.abort,
                        {"handler": "/v1/chat/completions", "method": "POST", "status": "2xx"},
                        "Total number of requests by method, status and handler.",
                    )
                )
                out.append(
                    counter(
                        "http_requests",
                        int(second.scraped // 5),
                        {"handler": "/metrics", "method": "GET", "status": "2xx"},
                    )
                )
            return out

        return points


def spread(texts: Sequence[str], begin: float, every: float) -> tuple[tuple[float, str], ...]:
    """Lines at a regular pace."""
    return tuple((begin + index * every, text) for index, text in enumerate(texts))
