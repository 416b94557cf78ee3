"""Triton with the tensorrtllm backend: glog lines, and an iteration counter that is a heartbeat."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tests.incidents.envelopes import Line
from tests.incidents.incident import ADMISSION, STALL, Plan, at, seed
from tests.incidents.openmetrics import Page, Point, bare_counter, gauge
from tests.incidents.tell import Verdict, dead, healthy, plan, stalled
from tests.incidents.world import Fault, History, Second, World, bursts, steps

T0 = at("2026-04-02 08:30:00")


@dataclass(frozen=True, slots=True)
class Voice:
    """glog; the C++ runtime's lines carry no time. `tail`: the log was cut before the server's own first lines."""

    tail: bool = False

    def say(self, t: float, severity: str, place: str, message: str) -> Line:
        stamp = datetime.fromtimestamp(t, UTC).strftime("%m%d %H:%M:%S")
        return Line(t, f"{severity}{stamp}.568955 1 {place}] {message}")

    def log(self, *histories: History) -> list[Line]:
        head = [
            self.say(
                T0 - 75,
                "I",
                "pinned_memory_manager.cc:277",
                "\"Pinned memory pool is created at '0x7f2c6e000000' with size 268435456\"",
            ),
            self.say(T0 - 74, "I", "model_lifecycle.cc:472", '"loading: tensorrt_llm:1"'),
        ]
        body = [
            Line(
                T0 - 60,
                "[TensorRT-LLM][INFO] Engine version 0.19.0 found in the config file, assuming engine(s) built by "
                "new builder API.",
            ),
            Line(T0 - 50, "[TensorRT-LLM][INFO] TRTGptModel maxNumSequences: 64"),
            Line(T0 - 50, "[TensorRT-LLM][INFO] TRTGptModel maxNumTokens: 8192"),
            Line(T0 - 49, "[TensorRT-LLM][INFO] Capacity Scheduler Policy: MAX_UTILIZATION"),
            Line(
                T0 - 40,
                "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 8.65 GiB for max tokens in paged KV cache (264192).",
            ),
            self.say(T0 - 3, "I", "model_lifecycle.cc:849", "\"successfully loaded 'tensorrt_llm'\""),
            self.say(T0 - 2, "I", "grpc_server.cc:2558", '"Started GRPCInferenceService at 0.0.0.0:8001"'),
            self.say(T0 - 2, "I", "http_server.cc:4725", '"Started HTTPService at 0.0.0.0:8000"'),
            self.say(T0 - 1, "I", "http_server.cc:358", '"Started Metrics Service at 0.0.0.0:8002"'),
        ]
        return body if self.tail else head + body


VOICE = Voice()


def _page(pool: int) -> Page:
    base = {"model": "tensorrt_llm", "version": "1"}

    def points(second: Second) -> list[Point]:
        used = int(second.held) // 64
        out = [
            bare_counter("nv_inference_request_success", second.finished, base),
            bare_counter("nv_inference_request_failure", second.error, {**base, "reason": "BACKEND"}),
            bare_counter("nv_inference_count", second.finished, base),
            gauge("nv_inference_pending_request_count", 0, base),
        ]
        for kind, value in (
            ("active", second.running + second.waiting),
            ("scheduled", second.scheduled),
            ("context", 0),
            ("waiting", second.waiting),
            ("max", 64),
        ):
            out.append(gauge("nv_trt_llm_request_metrics", value, {**base, "request_type": kind}))
        for kind, value in (("max", pool // 64), ("free", pool // 64 - used), ("used", used), ("tokens_per", 64)):
            out.append(gauge("nv_trt_llm_kv_cache_block_metrics", value, {**base, "kv_cache_block_type": kind}))
        out.append(gauge("nv_trt_llm_general_metrics", second.passes, {**base, "general_type": "iteration_counter"}))
        out.append(
            gauge(
                "nv_trt_llm_inflight_batcher_metrics",
                second.scheduled,
                {**base, "inflight_batcher_specific_metric": "generation_requests"},
            )
        )
        return out

    return points


def _world(name: str, seconds: int = 700, rate: Any = 1.5, **more: Any) -> World:
    return World(
        seed=seed(name), start=T0, seconds=seconds, rate=rate, **{"output": (100, 500), "pool": 264_192, **more}
    )


def _plan(
    name: str, why: str, verdict: Verdict, world: World, voice: Voice = VOICE, *, metrics: bool = True, **more: Any
) -> Plan:
    return plan(
        f"triton-{name}",
        "triton",
        why,
        verdict,
        world,
        voice,
        (lambda world, index: _page(world.pool)) if metrics else None,
        **more,
    )


def plans() -> Iterable[Plan]:
    """All of them."""
    for interval in (5, 15):
        name = f"batcher-freezes-{interval}s"
        yield _plan(
            name,
            "the in-flight batcher freezes with no word: the iteration counter stands with requests active",
            stalled(*STALL),
            _world(name, faults=[Fault("blocked", 300)]),
            interval=interval,
        )
    name = "batcher-freezes-metrics-only"
    yield _plan(
        name,
        "the same, no log",
        stalled(*STALL, confidence="confirmed"),
        _world(name, faults=[Fault("blocked", 300)]),
        log=False,
    )
    name = "batcher-freezes-tail"
    yield _plan(
        name,
        "the same; the log begins with lines of the engine inside, the page says who hosts it",
        stalled(*STALL),
        _world(name, faults=[Fault("blocked", 300)]),
        Voice(tail=True),
    )
    name = "spins"
    yield _plan(
        name,
        "the counter turns, nothing is scheduled, the queue grows",
        stalled(*ADMISSION),
        _world(name, faults=[Fault("evict", 300)]),
    )
    name = "crashes"
    yield _plan(
        name,
        "a signal and a stack",
        dead("crash", "engine_dead"),
        _world(name, seconds=302, faults=[Fault("refusing", 300)]),
        metrics=False,
        envelope="cri",
        extra=lambda histories: [
            Line(T0 + 300, "Signal (11) received."),
            Line(
                T0 + 300,
                " 0# 0x000055D7 in tritonserver\n 1# 0x00007F2C42 in /usr/lib/x86_64-linux-gnu/libc.so.6\n 2# "
                "0x00007F2B11 in /opt/tritonserver/backends/tensorrtllm/libtriton_tensorrtllm.so",
            ),
            Line(
                T0 + 301,
                "--------------------------------------------------------------------------\nMPI_ABORT was invoked "
                "on rank 0 in communicator MPI_COMM_WORLD\nwith errorcode 1.",
            ),
        ],
    )
    name = "fails-to-load"
    yield _plan(
        name,
        "the model is not loaded",
        lambda histories, interval: {"page": True, "failure_any_of": ("startup_failure",), "fires_by": T0 + 60},
        _world(name, seconds=5, rate=0.0),
        metrics=False,
        cut=-15,
        extra=lambda histories: [
            VOICE.say(
                T0 - 30,
                "E",
                "backend_model.cc:692",
                '"ERROR: Failed to create instance: unexpected error when creating modelInstanceState: '
                'maxTokensInPagedKvCache must be large enough to process at least 1 sequence to completion"',
            ),
            VOICE.say(
                T0 - 30,
                "E",
                "model_lifecycle.cc:654",
                "\"failed to load 'tensorrt_llm' version 1: Internal: unexpected error when creating "
                'modelInstanceState"',
            ),
            VOICE.say(T0 - 29, "E", "main.cc:382", '"error: creating server: Internal - failed to load all models"'),
        ],
    )
    name = "too-long-prompts"
    yield _plan(
        name,
        "single prompts are too long",
        healthy("request_rejected"),
        _world(name),
        extra=lambda histories: [
            VOICE.say(
                T0 + 60 + 50 * n,
                "E",
                "pb_stub.cc:737",
                f"\"Failed to process the request(s) for model 'tensorrt_llm_0_0', message: ValueError: The sum of "
                f"prompt length ({9351 + n}.0), query length (0) should not exceed max_num_tokens "
                f'(8192)\\n\\nAt:\\n  /models/tensorrt_llm/1/model.py(311): execute\\n"',
            )
            for n in range(10)
        ],
    )
    name = "survives-step-errors"
    yield _plan(
        name,
        "the batch manager's step fails and continues",
        healthy("assertion_recovered", "request_rejected"),
        _world(name),
        extra=lambda histories: [
            Line(
                T0 + 200 + 100 * n,
                "[TensorRT-LLM][ERROR] Encountered an error in forward function: slot 3 is already in "
                "use\n[TensorRT-LLM][ERROR] Encountered error for requestId 1804289384: Encountered an error in "
                "forward function: slot 3 is already in use\n[TensorRT-LLM][WARNING] Step function failed, continuing.",
            )
            for n in range(4)
        ],
    )
    name = "idle"
    yield _plan(name, "nothing to do; the counter stands", healthy(), _world(name, seconds=3600, rate=0.0), interval=30)
    name = "bursts"
    yield _plan(
        name, "bursts and silence", healthy(), _world(name, seconds=3600, rate=bursts(60, 300, 1.5)), interval=10
    )
    name = "overload"
    yield _plan(
        name,
        "half an hour of too much",
        healthy("overload"),
        _world(name, seconds=2000, rate=steps((0, 1.0), (200, 4.0)), output=(400, 900)),
        interval=15,
    )
    name = "long-answers"
    yield _plan(
        name,
        "long answers: no completion, the counter turns",
        healthy(),
        _world(name, seconds=1500, rate=0.0, requests=[(5, 300, 30_000)] * 4, pool=500_000),
        interval=10,
    )
