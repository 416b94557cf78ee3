"""Text Generation Inference: one line for each success, counters of forward calls begun and ended."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tests.incidents.envelopes import Line
from tests.incidents.hostile import PROMPTS
from tests.incidents.incident import ADMISSION, STALL, Plan, at, seed
from tests.incidents.openmetrics import Page, Point, bare_counter, gauge, histogram
from tests.incidents.tell import Verdict, dead, healthy, plan, stalled
from tests.incidents.world import Fault, History, Second, World, bursts, steps

T0 = at("2026-05-06 16:40:00")


@dataclass(frozen=True, slots=True)
class Voice:
    """Text or JSON."""

    json: bool = False
    prompts: tuple[str, ...] = ()

    def say(self, t: float, level: str, target: str, message: str, place: str = "") -> Line:
        stamp = datetime.fromtimestamp(t, UTC).strftime("%Y-%m-%dT%H:%M:%S") + ".967500Z"
        if self.json:
            return Line(
                t, json.dumps({"timestamp": stamp, "level": level, "fields": {"message": message}, "target": target})
            )
        return Line(t, f"{stamp} {level:>5} {target}: {place}{message}")

    def start(self, ready: float) -> list[Line]:
        says = (
            (
                -50,
                "text_generation_launcher",
                'Args { model_id: "mistralai/Mistral-7B-Instruct-v0.3", max_concurrent_requests: 128 }',
            ),
            (-45, "text_generation_launcher", "Starting shard rank=0"),
            (-35, "text_generation_launcher", "Waiting for shard to be ready... rank=0"),
            (-25, "text_generation_launcher", "Waiting for shard to be ready... rank=0"),
            (-18, "text_generation_launcher", "Shard ready in 27.4s rank=0"),
            (-15, "text_generation_launcher", "Starting Webserver"),
            (-12, "text_generation_router_v3", "Warming up model"),
            (-3, "text_generation_router_v3", "Setting max batch total tokens to 213793"),
            (-2, "text_generation_router_v3", "Using backend V3"),
            (-1, "text_generation_router::server", "Connected"),
        )
        return [self.say(ready + offset, "INFO", target, message) for offset, target, message in says]

    def log(self, *histories: History) -> list[Line]:
        history = histories[0]
        lines = self.start(history.start)
        rng = random.Random(history.pool)
        for event in history.events:
            request = event.request
            if event.kind == "finished" and request is not None:
                total = event.t - history.start - request.arrived + 0.4
                prompt = f'inputs="{rng.choice(self.prompts)}" ' if self.prompts else ""
                span = (
                    f"compat_generate{{{prompt}default_return_full_text=true}}:generate{{parameters="
                    f"GenerateParameters {{ max_new_tokens: Some({request.output}) }} "
                    f'total_time="{total:.3f}s" validation_time="412.3µs" queue_time="61.2µs" '
                    f'inference_time="{total:.3f}s" time_per_token="23.1ms" seed="None"}}: '
                )
                lines.append(
                    self.say(
                        event.t + 0.4,
                        "INFO",
                        "text_generation_router::server" if self.json else span + "text_generation_router::server",
                        "Success",
                        "" if self.json else "router/src/server.rs:402: ",
                    )
                )
            elif event.kind in ("failed", "refused"):
                lines.append(
                    self.say(
                        event.t + 0.4,
                        "ERROR",
                        "text_generation_router::infer",
                        "Request failed during generation: Server error: transport error",
                    )
                )
            elif event.kind == "down":
                lines.append(self.say(event.t, "INFO", "text_generation_launcher", "Terminating webserver"))
                lines.append(self.say(event.t + 1, "INFO", "text_generation_launcher", "Terminating shard rank=0"))
                lines.append(self.say(event.t + 2, "INFO", "text_generation_launcher", "shard terminated rank=0"))
            elif event.kind == "up":
                lines += self.start(event.t + 50)
        return lines


TEXT = Voice()
JSON = Voice(json=True)


def _page(pool: int, *, overloaded: float | None = None) -> Page:
    def points(second: Second) -> list[Point]:
        stuck = int(second.running > 0 and second.scheduled == 0)
        accepted = second.finished + second.error + second.refused + second.abort + second.connections
        out = [
            gauge("tgi_queue_size", second.waiting, {}),
            gauge("tgi_batch_current_size", second.running, {}),
            gauge("tgi_batch_current_max_tokens", int(second.held), {}),
            gauge("tgi_batch_max_total_tokens", pool, {}),
            bare_counter("tgi_request_count", accepted, {}),
            bare_counter("tgi_request_success", second.finished, {}),
            bare_counter("tgi_request_failure", second.error + second.refused, {"err": "generation"}),
            bare_counter(
                "tgi_request_failure",
                0 if overloaded is None else int(max(0.0, second.t - overloaded) * 0.7),
                {"err": "overloaded"},
            ),
            *histogram("tgi_request_generated_tokens", second.finished, 200.0, {}, (64.0, 512.0, 4096.0)),
        ]
        for method, count in (("prefill", second.prompt // 800), ("decode", second.steps)):
            begun = stuck if method == "decode" else 0
            out.append(bare_counter("tgi_batch_inference_count", count + begun, {"method": method}))
            out.append(bare_counter("tgi_batch_inference_success", count, {"method": method}))
        return out

    return points


def _world(name: str, seconds: int = 700, rate: Any = 1.2, **more: Any) -> World:
    return World(
        seed=seed(name), start=T0, seconds=seconds, rate=rate, **{"output": (100, 500), "pool": 213_793, **more}
    )


def _plan(
    name: str,
    why: str,
    verdict: Verdict,
    world: World,
    voice: Voice = TEXT,
    *,
    metrics: bool = True,
    overloaded: float | None = None,
    **more: Any,
) -> Plan:
    def page(world: World, index: int) -> Page:
        return _page(world.pool, overloaded=overloaded)

    return plan(f"tgi-{name}", "tgi", why, verdict, world, voice, page if metrics else None, **more)


def plans() -> Iterable[Plan]:
    """All of them."""
    for interval, voice in ((5, TEXT), (15, JSON)):
        name = f"forward-never-returns-{interval}s"
        yield _plan(
            name,
            "one forward call more begun than ended; the queue's gauge stands",
            stalled(*STALL),
            _world(name, faults=[Fault("blocked", 300)]),
            voice,
            interval=interval,
        )
    name = "nothing-issued"
    yield _plan(
        name,
        "all calls have ended and none is begun, the queue grows",
        stalled(*ADMISSION),
        _world(name, faults=[Fault("evict", 300)]),
        interval=10,
    )
    name = "nothing-issued-metrics-only"
    yield _plan(name, "the same, no log", stalled(*ADMISSION), _world(name, faults=[Fault("evict", 300)]), log=False)
    for voice in (TEXT, JSON):
        name = "shard-crashes" + ("-json" if voice.json else "")
        yield _plan(
            name,
            "a shard is killed, the launcher takes everything down",
            dead("engine_dead", "crash"),
            _world(name, seconds=330, faults=[Fault("refusing", 300)]),
            voice,
            metrics=False,
            extra=lambda histories, voice=voice: [
                voice.say(
                    T0 + 300,
                    "ERROR",
                    "text_generation_launcher",
                    "Shard process was signaled to shutdown with signal 9 rank=0",
                ),
                voice.say(T0 + 301, "ERROR", "text_generation_launcher", "Shard 0 crashed"),
                voice.say(T0 + 302, "INFO", "text_generation_launcher", "Terminating webserver"),
            ],
        )
    name = "out-of-memory"
    yield _plan(
        name,
        "the shard's memory is full, each request fails of it",
        healthy("request_rejected", "overload"),
        _world(name),
        extra=lambda histories: [
            TEXT.say(
                T0 + 300,
                "ERROR",
                "batch{batch_size=1}:prefill:prefill{id=1 size=1}: text_generation_client",
                "Server error: CUDA out of memory. Tried to allocate 1.10 GiB.",
                "backends/client/src/v3/client.rs:45: ",
            )
        ],
    )
    name = "single-failures"
    yield _plan(
        name,
        "single requests fail of their own faults, others succeed",
        healthy("request_rejected"),
        _world(name),
        extra=lambda histories: [
            TEXT.say(
                T0 + 40 + 60 * n,
                "ERROR",
                "text_generation_router::validation",
                "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4001 `inputs` tokens and 512 "
                "`max_new_tokens`",
            )
            for n in range(10)
        ],
    )
    name = "overloaded"
    yield _plan(
        name,
        "the router sheds load: refused by the hundred, and completing all the while",
        healthy("overload"),
        _world(name, seconds=1800, rate=steps((0, 1.0), (200, 3.5)), output=(300, 900), patience=90),
        overloaded=T0 + 300,
        extra=lambda histories: [
            TEXT.say(
                T0 + 300 + n,
                "ERROR",
                "text_generation_router::infer",
                "Model is overloaded",
                "router/src/infer/mod.rs:146: ",
            )
            for n in range(1400)
        ],
    )
    name = "idle"
    yield _plan(name, "nothing to do", healthy(), _world(name, seconds=3600, rate=0.0), interval=15)
    name = "bursts"
    yield _plan(
        name, "bursts and silence", healthy(), _world(name, seconds=3600, rate=bursts(60, 240, 1.5)), JSON, interval=10
    )
    name = "long-answers"
    yield _plan(
        name,
        "long answers: tokens are counted at the end, decode calls all the time",
        healthy(),
        _world(name, seconds=1500, rate=0.0, requests=[(5, 300, 30_000)] * 4, pool=500_000),
        interval=10,
    )
    name = "hostile-prompts"
    yield _plan(
        name, "users quote every line that we look for", healthy(), _world(name, rate=0.5), Voice(prompts=PROMPTS)
    )
    name = "restart"
    yield _plan(
        name, "a rollout", healthy("slow_start"), _world(name, seconds=1400, faults=[Fault("restart", 600, 660)])
    )
    name = "cold"
    yield _plan(
        name,
        "the first request ever never returns; it might be compiling: more patience",
        stalled(*STALL, patience=300.0),
        _world(name, rate=0.3, faults=[Fault("blocked", 8)], requests=[(5, 900, 400)]),
        interval=10,
    )
