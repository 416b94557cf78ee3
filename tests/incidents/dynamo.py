"""NVIDIA Dynamo over vLLM: Rust's time stamps, vLLM's words without their header, a frontend that counts requests."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tests.incidents.envelopes import Line
from tests.incidents.incident import ADMISSION, STALL, Plan, at, seed
from tests.incidents.openmetrics import Page, Point, counter, gauge, histogram
from tests.incidents.tell import Verdict, dead, healthy, plan, stalled
from tests.incidents.vllm_voice import Voice as Vllm
from tests.incidents.world import Fault, History, Second, World, bursts, steps

T0 = at("2026-02-27 13:00:00")
_INNER = Vllm(style="v1-bare")


@dataclass(frozen=True, slots=True)
class Voice:
    """Text, or JSON lines."""

    json: bool = False

    def say(self, t: float, level: str, target: str, message: str) -> Line:
        stamp = datetime.fromtimestamp(t, UTC).strftime("%Y-%m-%dT%H:%M:%S") + ".663655Z"
        if self.json:
            return Line(t, json.dumps({"time": stamp, "level": level, "target": target, "message": message}))
        return Line(t, f"{stamp} {level:>5} {target}: {message}")

    def log(self, *histories: History) -> list[Line]:
        history = histories[0]
        lines = [
            self.say(T0 - 60, "INFO", "dynamo_runtime::distributed", "Initializing Dynamo runtime"),
            self.say(
                T0 - 50,
                "INFO",
                "core.__init__",
                "Initializing a V1 LLM engine (v0.11.0) with config: model='Qwen/Qwen3-32B', max_seq_len=40960",
            ),
            self.say(
                T0 - 20, "INFO", "kv_cache_utils._report_kv_cache_config", f"GPU KV cache size: {history.pool:,} tokens"
            ),
            self.say(
                T0 - 10,
                "INFO",
                "core._initialize_kv_caches",
                "init engine (profile, create kv cache, warmup model) took 21.40 seconds",
            ),
            self.say(T0 - 1, "INFO", "main.register_vllm_model", "VllmWorker for Qwen/Qwen3-32B has been initialized"),
        ]
        for line in _INNER._stats(history, 0):
            level = "DEBUG" if line.text.startswith("DEBUG") else "INFO"
            lines.append(self.say(line.t, level, "loggers.log", line.text.split("] ", 1)[1]))
        for event in history.events:
            if event.kind == "down":
                lines.append(
                    self.say(event.t, "INFO", "dynamo_runtime::worker", "Received SIGTERM, starting graceful shutdown")
                )
                lines.append(
                    self.say(event.t, "WARN", "engine_monitor._shutdown", "Initiating Dynamo Runtime shutdown.")
                )
            elif event.kind == "up":
                lines.append(
                    self.say(
                        event.t,
                        "INFO",
                        "core.__init__",
                        "Initializing a V1 LLM engine (v0.11.0) with config: model='Qwen/Qwen3-32B', max_seq_len=40960",
                    )
                )
        return lines


TEXT = Voice()
JSON = Voice(json=True)


def _page(pool: int, *, passed: bool = True) -> Page:
    inner = _INNER.page(pool, engine=0)
    labels = {"model": "qwen/qwen3-32b"}

    def points(second: Second) -> list[Point]:
        out = [point for point in inner(second) if point.family.startswith("vllm")] if passed else []
        out += [
            counter(
                "dynamo_frontend_requests",
                second.finished,
                {**labels, "endpoint": "chat_completions", "request_type": "stream", "status": "success"},
            ),
            counter(
                "dynamo_frontend_requests",
                second.error + second.refused,
                {**labels, "endpoint": "chat_completions", "request_type": "stream", "status": "error"},
            ),
            gauge("dynamo_frontend_inflight_requests", second.connections, labels),
            gauge("dynamo_frontend_queued_requests", second.waiting, labels),
            counter("dynamo_frontend_output_tokens", second.gen, labels),
            *histogram("dynamo_frontend_time_to_first_token_seconds", second.finished, 0.4, labels, (0.5, 5.0, 50.0)),
        ]
        return out

    return points


def _world(name: str, seconds: int = 800, rate: Any = 1.5, **more: Any) -> World:
    return World(seed=seed(name), start=T0, seconds=seconds, rate=rate, **{"output": (100, 500), **more})


def _plan(
    name: str,
    why: str,
    verdict: Verdict,
    world: World,
    voice: Voice = TEXT,
    *,
    metrics: bool = True,
    passed: bool = True,
    **more: Any,
) -> Plan:
    return plan(
        f"dynamo-{name}",
        "dynamo",
        why,
        verdict,
        world,
        voice,
        (lambda world, index: _page(world.pool, passed=passed)) if metrics else None,
        **more,
    )


def plans() -> Iterable[Plan]:
    """All of them."""
    name = "worker-stalls"
    yield _plan(
        name,
        "the worker schedules nothing, seen in the engine's metrics and the frontend's",
        stalled(*ADMISSION),
        _world(name, faults=[Fault("evict", 300)]),
    )
    name = "worker-stalls-frontend-only"
    yield _plan(
        name,
        "the frontend alone: requests in flight grow, no token comes out",
        stalled(*STALL, "lost_replies"),
        _world(name, faults=[Fault("blocked", 300)]),
        passed=False,
        interval=10,
    )
    name = "worker-stalls-json"
    yield _plan(
        name,
        "the same with JSON lines",
        stalled(*ADMISSION),
        _world(name, faults=[Fault("evict", 300)]),
        JSON,
        interval=15,
    )
    name = "engine-dies"
    yield _plan(
        name,
        "the worker's monitor sees its engine dead and leaves",
        dead("engine_dead", "crash"),
        _world(name, seconds=330, faults=[Fault("refusing", 300)]),
        metrics=False,
        extra=lambda histories: [
            TEXT.say(T0 + 300, "ERROR", "core.run_engine_core", "EngineCore encountered a fatal error."),
            TEXT.say(
                T0 + 302,
                "ERROR",
                "engine_monitor._check_engine_health",
                "vLLM AsyncLLM health check failed: EngineDeadError",
            ),
            TEXT.say(T0 + 302, "WARN", "engine_monitor._shutdown", "Initiating Dynamo Runtime shutdown."),
        ],
    )
    name = "engine-dies-metrics"
    yield _plan(
        name,
        "the worker is gone and not replaced, the frontend answers each request with an error",
        dead("engine_dead", "crash"),
        _world(name, seconds=600, faults=[Fault("refusing", 300)]),
        extra=lambda histories: [
            TEXT.say(T0 + 300, "ERROR", "core.run_engine_core", "EngineCore encountered a fatal error."),
            TEXT.say(
                T0 + 302,
                "ERROR",
                "engine_monitor._check_engine_health",
                "vLLM AsyncLLM health check failed: EngineDeadError",
            ),
            TEXT.say(T0 + 302, "WARN", "engine_monitor._shutdown", "Initiating Dynamo Runtime shutdown."),
        ],
    )
    name = "drained"
    yield _plan(
        name,
        "asked to stop: the shutdown is no death",
        healthy(),
        _world(name, seconds=700, cut_off=380, faults=[Fault("restart", 400, 700)]),
    )
    name = "rollout"
    yield _plan(
        name,
        "a rollout in the log alone",
        healthy("slow_start"),
        _world(name, seconds=1500, faults=[Fault("restart", 600, 700)]),
        metrics=False,
    )
    name = "overload"
    yield _plan(
        name,
        "half an hour of too much",
        healthy("overload"),
        _world(name, seconds=2000, rate=steps((0, 1.0), (200, 4.0)), output=(400, 900)),
        interval=15,
    )
    name = "canary-late"
    yield _plan(
        name,
        "a canary is late once",
        healthy(),
        _world(name),
        extra=lambda histories: [
            TEXT.say(T0 + 300, "WARN", "dynamo_runtime::health_check", "Canary timer expired for generate.")
        ],
    )
    name = "bursts"
    yield _plan(
        name, "bursts and silence", healthy(), _world(name, seconds=2400, rate=bursts(60, 240, 1.5)), interval=10
    )
    name = "idle"
    yield _plan(name, "nothing to do", healthy(), _world(name, seconds=3600, rate=0.0), JSON, interval=30)
