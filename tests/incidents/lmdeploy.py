"""LMDeploy: a stats line that is gone when no token moves, warnings that are printed once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tests.incidents.envelopes import Line
from tests.incidents.incident import ADMISSION, STALL, Plan, at, seed
from tests.incidents.openmetrics import Page, Point, counter, gauge, histogram
from tests.incidents.tell import Verdict, dead, healthy, plan, stalled
from tests.incidents.world import Fault, History, Second, World, bursts, steps

T0 = at("2026-09-09 11:00:00")


@dataclass(frozen=True, slots=True)
class Voice:
    """The Python engine's log."""

    rank: str = ""

    def say(self, t: float, level: str, place: str, message: str) -> Line:
        stamp = datetime.fromtimestamp(t, UTC).strftime("%Y-%m-%d %H:%M:%S")
        return Line(t, f"{stamp},520 - lmdeploy - {level} - {place} - {message}")

    def log(self, *histories: History) -> list[Line]:
        history = histories[0]
        lines = [
            self.say(
                T0 - 40,
                "INFO",
                "async_engine.py:279",
                "input backend=pytorch, backend_config=PytorchEngineConfig(dtype='auto', tp=1, max_batch_size=128)",
            ),
            self.say(
                T0 - 20,
                "INFO",
                "executor.py:171",
                "build CacheEngine with config: CacheConfig(max_batches=128, block_size=64, num_gpu_blocks=3125)",
            ),
            Line(T0 - 2, "INFO:     Application startup complete."),
            Line(T0 - 1, "INFO:     Uvicorn running on http://0.0.0.0:23333 (Press CTRL+C to quit)"),
        ]
        last = history.seconds[0]
        for second in history.seconds[10::10]:
            gen, prompt = second.gen - last.gen, second.prompt - last.prompt
            fresh, last = second.started == last.started and second.up, second
            if not fresh or gen + prompt == 0:
                continue
            stamp = datetime.fromtimestamp(second.t, UTC).strftime("%Y-%m-%d %H:%M:%S")
            lines.append(
                Line(
                    second.t + 0.2,
                    f"[{stamp} DP0] Avg thr (in/out): {prompt / 10:.1f} / {gen / 10:.1f} tokens/s, Server "
                    f"(succeeded/failed/routed/waiting): "
                    f"{second.finished} / {second.error} / {second.running} / 0, Engine (running/waiting): "
                    f"{second.running} / {second.waiting}, "
                    f"KV cache: {100 * second.held / history.pool:.1f}%, ",
                )
            )
        access = 'INFO:     10.0.7.4:50112 - "POST /v1/chat/completions HTTP/1.1" 200 OK'
        return lines + [Line(event.t + 0.5, access) for event in history.events if event.kind == "finished"]


VOICE = Voice()


def _page(pool: int) -> Page:
    labels = {"model_name": "internlm3", "engine": "0"}

    def points(second: Second) -> list[Point]:
        return [
            gauge("lmdeploy:num_requests_running", second.running, labels),
            gauge("lmdeploy:num_requests_waiting", second.waiting, labels),
            gauge("lmdeploy:num_api_requests_waiting", 0, labels),
            gauge("lmdeploy:num_api_requests_routed", second.connections, labels),
            gauge("lmdeploy:gpu_cache_usage_perc", round(second.held / pool, 4), labels),
            counter("lmdeploy:prompt_tokens", second.prompt, labels),
            counter("lmdeploy:generation_tokens", second.gen, labels),
            counter("lmdeploy:request_success", second.stop, {**labels, "finished_reason": "stop"}),
            counter("lmdeploy:request_success", second.length, {**labels, "finished_reason": "length"}),
            *histogram("lmdeploy:iteration_tokens_total", second.steps, 40.0, labels, (8.0, 64.0, 512.0)),
        ]

    return points


def _world(name: str, seconds: int = 700, rate: Any = 1.2, **more: Any) -> World:
    return World(seed=seed(name), start=T0, seconds=seconds, rate=rate, **{"output": (100, 500), **more})


def _plan(name: str, why: str, verdict: Verdict, world: World, *, metrics: bool = True, **more: Any) -> Plan:
    def page(world: World, index: int) -> Page:
        return _page(world.pool)

    return plan(f"lmdeploy-{name}", "lmdeploy", why, verdict, world, VOICE, page if metrics else None, **more)


def plans() -> Iterable[Plan]:
    """All of them."""
    full = (
        "no next prefill running request, Maybe cache is full, free gpu cache blocks: 0, total gpu cache blocks: 3125"
    )
    name = "blocked"
    yield _plan(name, "a step never returns", stalled(*STALL), _world(name, faults=[Fault("blocked", 300)]))
    name = "cache-full-nobody-moves"
    yield _plan(
        name,
        "the cache is full and nobody moves; the warning is printed once",
        stalled("kv_cache_deadlock", "silent_stall"),
        _world(name, pool=12_000, rate=1.5, faults=[Fault("spin", 300)]),
        interval=10,
        extra=lambda histories: [VOICE.say(T0 + 300, "WARNING", "scheduler.py:151", full)],
    )
    name = "queue-grows"
    yield _plan(
        name, "nothing is admitted", stalled(*ADMISSION), _world(name, faults=[Fault("evict", 300)]), interval=15
    )
    name = "main-loop-fails"
    yield _plan(
        name,
        "the engine's main loop has failed",
        dead("engine_dead", "crash"),
        _world(name, seconds=420, faults=[Fault("refusing", 300)]),
        metrics=False,
        extra=lambda histories: [
            VOICE.say(
                T0 + 300,
                "ERROR",
                "engine_loop.py:438",
                "Engine main loop failed.\nTraceback (most recent call last):\n  File "
                '"/opt/lmdeploy/pytorch/engine/engine_loop.py", line 430, in main_loop\n    await '
                "self._main_loop_impl()\nRuntimeError: CUDA error: an illegal memory access was encountered",
            )
        ],
    )
    name = "cache-full-goes-on"
    yield _plan(
        name,
        "the cache is full once, work goes on",
        healthy("overload"),
        _world(name, pool=12_000, rate=1.0),
        extra=lambda histories: [VOICE.say(T0 + 300, "WARNING", "scheduler.py:151", full)],
    )
    name = "overload"
    yield _plan(
        name,
        "half an hour of too much",
        healthy("overload"),
        _world(name, seconds=2000, rate=steps((0, 0.8), (200, 3.5)), output=(400, 900)),
        interval=15,
    )
    name = "bursts-log-only"
    yield _plan(
        name,
        "bursts and silence in the log alone",
        healthy(),
        _world(name, seconds=3000, rate=bursts(60, 240, 1.5)),
        metrics=False,
        until=4000,
    )
    name = "idle"
    yield _plan(name, "nothing to do", healthy(), _world(name, seconds=3600, rate=0.0), interval=30)
    name = "turbomind-steps"
    yield _plan(
        name,
        "TurboMind counts its steps in a log without times",
        healthy(),
        _world(name, rate=0.0),
        metrics=False,
        extra=lambda histories: [
            Line(T0 + n, f"[TM][INFO] ------------------------- step = {10 * n} -------------------------")
            for n in range(60)
        ],
    )
