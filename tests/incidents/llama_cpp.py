"""llama.cpp's server: slots, tasks, lines that count minutes since the start."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tests.incidents.envelopes import Line
from tests.incidents.incident import STALL, Plan, at, seed
from tests.incidents.openmetrics import Point, counter, gauge
from tests.incidents.tell import Verdict, dead, healthy, plan, stalled
from tests.incidents.world import Fault, History, Second, World, bursts

T0 = at("2026-06-21 20:00:00")


@dataclass(frozen=True, slots=True)
class Voice:
    """The text of 2024 to 2026, or the modern one with its uptime before each line."""

    modern: bool = False

    def say(self, t: float, level: str, text: str) -> Line:
        if not self.modern:
            return Line(t, text)
        up = t - (T0 - 20)
        return Line(t, f"{int(up // 60)}.{int(up % 60):02d}.{int(up % 1 * 1000):03d}.345 {level} {text}")

    def log(self, *histories: History) -> list[Line]:
        history = histories[0]
        lines = [
            self.say(T0 - 20, "I", "build: 7011 (8b2c1de) with cc for x86_64-linux-gnu"),
            self.say(T0 - 19, "I", "system info: n_threads = 16, n_threads_batch = 16, total_threads = 32"),
            self.say(T0 - 2, "I", "main: model loaded"),
            self.say(T0 - 1, "I", "main: server is listening on http://127.0.0.1:8080 - starting the main loop"),
            self.say(T0 - 1, "I", "srv  update_slots: all slots are idle"),
        ]
        for event in history.events:
            request = event.request
            if request is None:
                continue
            slot = f"id  {request.number % 4} | task {request.number * 7} |"
            if event.kind == "first":
                lines.append(self.say(event.t - 0.8, "I", f"slot launch_slot_: {slot} processing task"))
                lines.append(
                    self.say(
                        event.t - 0.5,
                        "I",
                        f"slot update_slots: {slot} prompt processing progress, n_tokens = {request.prompt}, "
                        f"batch.n_tokens = {request.prompt % 2048}, progress = 1.000000",
                    )
                )
            elif event.kind == "finished":
                lines.append(
                    self.say(
                        event.t + 0.2, "I", f"slot print_timing: {slot} n_decoded = {request.output}, tg = 21.40 t/s"
                    )
                )
                lines.append(
                    self.say(
                        event.t + 0.3,
                        "I",
                        f"slot      release: {slot} stop processing: n_tokens = {request.prompt + request.output}, "
                        f"truncated = 0",
                    )
                )
                if not self.modern:
                    lines.append(
                        self.say(
                            event.t + 0.4, "I", "srv  log_server_r: request: POST /v1/chat/completions 127.0.0.1 200"
                        )
                    )
            elif event.kind == "aborted":
                lines.append(self.say(event.t + 0.2, "W", f"srv  cancel task, id_task = {request.number * 7}"))
        return lines


TEXT = Voice()
MODERN = Voice(modern=True)


def _page(second: Second) -> list[Point]:
    return [
        gauge("llamacpp:requests_processing", second.running, {}, "Number of requests processing."),
        gauge("llamacpp:requests_deferred", second.waiting, {}, "Number of requests deferred."),
        counter("llamacpp:prompt_tokens", second.computed, {}, "Number of prompt tokens processed."),
        counter("llamacpp:tokens_predicted", second.gen, {}, "Number of generation tokens processed."),
        counter("llamacpp:n_decode", second.steps, {}, "Total number of llama_decode() calls"),
        gauge("llamacpp:predicted_tokens_seconds", 21.4 if second.gen else 0, {}),
    ]


def _world(name: str, seconds: int = 900, rate: Any = 0.2, **more: Any) -> World:
    return World(
        seed=seed(name),
        start=T0,
        seconds=seconds,
        rate=rate,
        **{
            "output": (50, 300),
            "max_running": 4,
            "pool": 32_768,
            "prefill_rate": 600.0,
            "decode_rate": 20.0,
            "decode_total": 60.0,
            **more,
        },
    )


def _plan(
    name: str, why: str, verdict: Verdict, world: World, voice: Voice = TEXT, *, metrics: bool = True, **more: Any
) -> Plan:
    more.setdefault("envelope", "plain" if voice.modern else "journald")
    return plan(
        f"llamacpp-{name}",
        "llama_cpp",
        why,
        verdict,
        world,
        voice,
        (lambda world, index: _page) if metrics else None,
        **more,
    )


def plans() -> Iterable[Plan]:
    """All of them."""
    for voice, interval in ((TEXT, 5), (MODERN, 15)):
        name = "slot-hangs" + ("-modern" if voice.modern else "")
        yield _plan(
            name,
            "slots have tasks and nothing is decoded",
            stalled(*STALL),
            _world(name, rate=0.4, faults=[Fault("blocked", 500)]),
            voice,
            interval=interval,
        )
    name = "deferred-for-ever"
    yield _plan(
        name,
        "no slot is busy, requests stay deferred",
        stalled(*STALL, "lost_replies"),
        _world(name, faults=[Fault("evict", 500)]),
        interval=10,
    )
    name = "loop-exits"
    yield _plan(
        name,
        "the main loop ends and the process stays",
        dead("engine_dead", "crash", "kv_cache_deadlock"),
        _world(name, seconds=560, faults=[Fault("refusing", 500)]),
        metrics=False,
        envelope="docker",
        extra=lambda histories: [
            TEXT.say(T0 + 500, "E", "srv  update_slots: failed to decode the batch, n_batch = 1, ret = 1"),
            TEXT.say(T0 + 500, "E", "unexpected error in llama server update_slots - exiting main loop"),
        ],
    )
    name = "ladder-never-ends"
    yield _plan(
        name,
        "no free space in the cache: smaller batches, again and again, nothing is decoded",
        stalled("kv_cache_deadlock", "preemption_livelock", "silent_stall", patience=180.0),
        _world(name, rate=0.4, faults=[Fault("spin", 500)]),
        extra=lambda histories: [
            TEXT.say(
                T0 + 500 + 2 * n,
                "W",
                f"srv  update_slots: failed to find free space in the KV cache, retrying with smaller n_batch = "
                f"{2 ** (8 - n % 9)} … 1",
            )
            for n in range(190)
        ],
    )
    name = "ladder-recovers"
    yield _plan(
        name,
        "the ladder is climbed down now and then and a batch fits",
        healthy("overload"),
        _world(name),
        extra=lambda histories: [
            TEXT.say(
                T0 + 60 + 90 * n + k * 0.1,
                "W",
                f"srv  update_slots: failed to find free space in the KV cache, retrying with smaller batch size, "
                f"off = 0, n_batch = {256 >> k}, ret = 1",
            )
            for n in range(9)
            for k in range(3)
        ],
    )
    for voice in (TEXT, MODERN):
        name = "bursts" + ("-modern" if voice.modern else "")
        yield _plan(
            name,
            "a few requests, long silences, in the log alone",
            healthy(),
            _world(name, seconds=3600, rate=bursts(120, 600, 0.2)),
            voice,
            metrics=False,
        )
    name = "cpu-prefill"
    yield _plan(
        name,
        "forty minutes of prefill on a CPU, with progress lines",
        healthy("overload"),
        _world(name, seconds=2700, rate=0.0, prefill_rate=12.0, requests=[(60, 28_000, 50)]),
        interval=15,
        extra=lambda histories: [
            TEXT.say(
                T0 + 60 + 40 * n,
                "I",
                f"slot update_slots: id  0 | task 7 | prompt processing progress, n_tokens = {480 * n}, "
                f"batch.n_tokens = 480, progress = {480 * n / 28000:.6f}",
            )
            for n in range(1, 58)
        ],
    )
    name = "cpu-prefill-log-only"
    yield _plan(
        name,
        "the same in the log alone",
        healthy(),
        _world(name, seconds=2700, rate=0.0, prefill_rate=12.0, requests=[(60, 28_000, 50)]),
        metrics=False,
        extra=lambda histories: [
            TEXT.say(
                T0 + 60 + 40 * n,
                "I",
                f"slot update_slots: id  0 | task 7 | prompt processing progress, n_tokens = {480 * n}, "
                f"batch.n_tokens = 480, progress = {480 * n / 28000:.6f}",
            )
            for n in range(1, 58)
        ],
    )
    name = "cancelled"
    yield _plan(
        name,
        "a burst of cancelled tasks",
        healthy(),
        _world(name, rate=0.4, faults=[Fault("abort_all", 300), Fault("abort_all", 600)]),
    )
    name = "context-full"
    yield _plan(
        name,
        "single requests exceed the context",
        healthy("request_rejected"),
        _world(name),
        extra=lambda histories: [
            TEXT.say(T0 + 100 + 100 * n, "E", f"slot update_slots: id  1 | task {n} | Context size has been exceeded.")
            for n in range(7)
        ],
    )
    name = "idle"
    yield _plan(name, "nothing to do", healthy(), _world(name, seconds=3600, rate=0.0), interval=30)
