"""vLLM: stalls, deaths, and everything that looks like them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta, timezone
from typing import Any

from tests.incidents.envelopes import Line
from tests.incidents.hostile import PROMPTS
from tests.incidents.incident import ADMISSION, HANG, STALL, Plan, at, seed
from tests.incidents.openmetrics import Page
from tests.incidents.tell import Verdict, dead, healthy, plan, stalled
from tests.incidents.vllm_voice import Voice
from tests.incidents.world import Fault, History, World, bursts, steps

T0 = at("2026-11-20 09:00:00")
V1 = Voice()
V0 = Voice(style="v0", version="0.6.6")
V0_NEW = Voice(style="v0-new", version="0.8.5")
BARE = Voice(style="v1-bare", version="0.9.2")
JSON = Voice(style="v1-json", version="0.33.0")
DEBUG = Voice(debug=True)


def _world(name: str, seconds: int = 900, rate: Any = 1.0, **more: Any) -> World:
    return World(seed=seed(name), start=T0, seconds=seconds, rate=rate, **more)


def _page(voice: Voice, **more: Any) -> Callable[[World, int], Page]:
    def page(world: World, index: int) -> Page:
        return voice.page(world.pool, engine=index if not voice.v0 else None, **more)

    return page


def _plan(
    name: str,
    why: str,
    verdict: Verdict,
    world: World | list[World],
    voice: Voice = V1,
    *,
    metrics: bool = True,
    **more: Any,
) -> Plan:
    options = {key: more.pop(key) for key in ("deferred", "asleep") if key in more}
    return plan(
        f"vllm-{name}", "vllm", why, verdict, world, voice, _page(voice, **options) if metrics else None, **more
    )


def plans() -> Iterable[Plan]:
    """All of them."""
    yield from _admission()
    yield from _hangs()
    yield from _shapes()
    yield from _formats()
    yield from _deaths()
    yield from _quiet()
    yield from _busy()
    yield from _interrupted()
    yield from _words()


def _admission() -> Iterable[Plan]:
    for interval in (1, 2, 5, 10, 15, 30):
        name = f"admission-stops-every-{interval}s"
        world = _world(name, rate=1.5, faults=[Fault("admission", 420)])
        yield _plan(
            name,
            f"nothing is admitted any more, what runs finishes, the queue grows; scraped each {interval} s",
            stalled(*ADMISSION, confidence="confirmed"),
            world,
            interval=interval,
        )
    for name, voice, interval in (("v0", V0, 5), ("v0-new", V0_NEW, 10), ("bare", BARE, 15), ("json", JSON, 5)):
        name = f"requeued-{name}"
        world = _world(name, rate=2.0, faults=[Fault("evict", 300)])
        yield _plan(
            name,
            "the loop turns with everything waiting, nothing running, an empty cache",
            stalled(*ADMISSION, confidence="confirmed"),
            world,
            voice,
            interval=interval,
        )
    name = "spin-with-running"
    yield _plan(
        name,
        "four requests stay admitted and none is scheduled; the queue behind them grows; gauges live",
        stalled(*ADMISSION),
        _world(name, rate=0.8, max_running=4, faults=[Fault("spin", 300)]),
    )
    name = "spin-no-queue"
    yield _plan(
        name,
        "everything is admitted, nothing waits, nothing is scheduled",
        stalled(*STALL),
        _world(name, rate=1.2, cut_off=310, faults=[Fault("spin", 300)]),
    )
    name = "admission-metrics-only"
    yield _plan(
        name,
        "the same seen through the metrics page alone",
        stalled(*ADMISSION, confidence="confirmed"),
        _world(name, faults=[Fault("evict", 400)]),
        log=False,
        interval=15,
    )
    name = "admission-debug-log-only"
    yield _plan(
        name,
        "the same seen in the log alone, at DEBUG, where the zero line repeats",
        stalled(*ADMISSION),
        _world(name, faults=[Fault("evict", 400)]),
        DEBUG,
        metrics=False,
    )
    name = "admission-old-log-only"
    yield _plan(
        name,
        "0.6.1 prints its zero line for ever",
        stalled(*ADMISSION),
        _world(name, faults=[Fault("evict", 400)]),
        replace(V0, version="0.6.1", always=True),
        metrics=False,
    )
    name = "admission-log-only-requests-logged"
    yield _plan(
        name,
        "at INFO the stats line falls silent with five in the queue; the log of arriving requests says that time "
        "goes on",
        stalled(*ADMISSION, patience=180),
        _world(name, faults=[Fault("evict", 400)]),
        replace(V1, requests_logged=True),
        metrics=False,
    )
    name = "admission-log-said-whole"
    yield _plan(
        name,
        "the log alone, silent after one zero line with work in it, and said to be whole for ten minutes more",
        stalled(*ADMISSION, patience=180),
        _world(name, seconds=430, rate=2.0, faults=[Fault("evict", 400)]),
        metrics=False,
        until=1030,
    )
    name = "cache-full-nobody-moves"
    yield _plan(
        name,
        "every sequence needs one more block, none is free and none is preempted",
        stalled("kv_cache_deadlock", "silent_stall", "token_budget_deadlock"),
        _world(name, rate=1.5, pool=14_000, prompt=(600, 1800), output=(300, 900), faults=[Fault("spin", 400)]),
    )
    for name, rate in (("oversize-busy", 1.0), ("oversize-lonely", 0.01)):
        world = _world(name, rate=rate, pool=76_640, seconds=1200, requests=[(400, 101_000, 500)])
        world.faults = [Fault("admission", 400)]
        yield _plan(
            name,
            "a prompt of 101,000 tokens, allowed by the maximum length, larger than the pool of 76,640: it heads "
            "the queue for ever",
            stalled("request_never_fits", "silent_stall", "kv_cache_deadlock", "token_budget_deadlock"),
            world,
            replace(V1, max_len=262_144),
            interval=10,
        )
    name = "clients-give-up"
    yield _plan(
        name,
        "clients time out after a minute and others come: aborts move, nothing else does",
        stalled(*ADMISSION),
        _world(name, rate=1.0, patience=60, faults=[Fault("evict", 300)]),
    )
    name = "by-capacity"
    yield _plan(
        name,
        "0.33 says why they wait: capacity, with an empty cache",
        stalled(*ADMISSION),
        _world(name, rate=0.5, faults=[Fault("evict", 300)]),
        replace(V1, version="0.33.0"),
        deferred="capacity",
    )


def _hangs() -> Iterable[Plan]:
    for interval, envelope in ((5, "plain"), (15, "cri"), (30, "docker")):
        name = f"worker-hangs-{envelope}"
        yield _plan(
            name,
            "a step never returns: gauges frozen, the wait line each minute",
            stalled(*HANG, confidence="confirmed"),
            _world(name, rate=2.0, faults=[Fault("blocked", 420)]),
            interval=interval,
            envelope=envelope,
            extra=lambda histories: V1.shm_wait(T0 + 480, T0 + 890),
        )
    name = "worker-hangs-log-only"
    yield _plan(
        name,
        "the wait line repeats after the server was ready, the last stats line had work in it; no metrics",
        stalled(*HANG, patience=260),
        _world(name, rate=2.0, faults=[Fault("blocked", 420)]),
        metrics=False,
        extra=lambda histories: V1.shm_wait(T0 + 480, T0 + 890),
    )
    name = "worker-hangs-v0-log-only"
    yield _plan(
        name,
        "the same in V0, where the line is a WARNING",
        stalled(*HANG, patience=260),
        _world(name, rate=2.0, faults=[Fault("blocked", 420)]),
        V0,
        metrics=False,
        extra=lambda histories: V0.shm_wait(T0 + 480, T0 + 890),
    )
    name = "worker-hangs-metrics-only"
    yield _plan(
        name,
        "gauges bit for bit the same with nine running; process and scrape counters go on",
        stalled(*STALL),
        _world(name, rate=2.0, faults=[Fault("blocked", 420)]),
        log=False,
        interval=10,
    )
    name = "worker-hangs-then-times-out"
    yield _plan(
        name,
        "the call times out after 300 s and the engine dies of it: the stall was there first",
        stalled(*HANG),
        _world(name, rate=2.0, faults=[Fault("blocked", 300)]),
        extra=_timed_out,
    )
    name = "worker-hangs-then-times-out-log-only"
    yield _plan(
        name,
        "the same in the log alone",
        stalled("device_hang", "collective_hang", patience=320),
        _world(name, rate=2.0, faults=[Fault("blocked", 300)]),
        metrics=False,
        extra=_timed_out,
    )
    name = "collective-times-out"
    yield _plan(
        name,
        "one rank left the collective; NCCL's watchdog says so after ten minutes",
        stalled(*HANG),
        _world(name, rate=2.0, seconds=1200, faults=[Fault("blocked", 300)]),
        extra=_collective,
    )
    name = "collective-times-out-log-only"
    yield _plan(
        name,
        "the same in the log alone",
        stalled("collective_hang", "device_hang", patience=640),
        _world(name, rate=2.0, seconds=1200, faults=[Fault("blocked", 300)]),
        metrics=False,
        extra=_collective,
    )
    name = "hang-after-idle"
    yield _plan(
        name,
        "ten minutes idle, then the first request hangs",
        stalled(*STALL),
        _world(name, seconds=1500, rate=steps((0, 1.0), (240, 0.0), (900, 0.5)), faults=[Fault("spin", 900)]),
    )


def _timed_out(histories: Sequence[History]) -> list[Line]:
    second = histories[0].at(T0 + 300)
    return [
        *V1.shm_wait(T0 + 360, T0 + 590),
        *V1.dump(T0 + 600, second, 200_000),
        *V1.fatal(T0 + 600, "TimeoutError: RPC call to execute_model timed out."),
    ]


def _collective(histories: Sequence[History]) -> list[Line]:
    text = (
        "[rank{rank}]:[E1120 09:15:0{rank}.267261276 ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught "
        "collective operation "
        "timeout: WorkNCCL(SeqNum={number}, OpType=ALLREDUCE, NumelIn=4096, NumelOut=4096, Timeout(ms)=600000) ran "
        "for 600020 "
        "milliseconds before timing out."
    )
    lines = V1.shm_wait(T0 + 360, T0 + 890)
    for rank, number in ((0, 203_441), (1, 203_441), (2, 203_440), (3, 203_441)):
        lines.append(
            V1.say(
                T0 + 900 + rank,
                "ERROR",
                "multiproc_executor.py:140",
                text.format(rank=rank, number=number),
                f"Worker_TP{rank}",
            )
        )
    return lines


def _shapes() -> Iterable[Plan]:
    name = "cold-five-seconds"
    yield _plan(
        name,
        "wedged five seconds into the first traffic: no completion was ever seen",
        stalled(*STALL),
        _world(name, rate=2.0, output=(400, 800), faults=[Fault("spin", 5)]),
    )
    name = "cold-few-completions"
    yield _plan(
        name,
        "wedged before the tenth completion with one request in it, which might be compiling: more patience; "
        "scraped each 15 s",
        stalled(*STALL, patience=300.0),
        _world(
            name,
            rate=0.0,
            requests=[(n, 600, 150) for n in range(2, 20, 3)] + [(20, 900, 800)],
            faults=[Fault("blocked", 22)],
        ),
        interval=15,
    )
    name = "start-up-traffic"
    yield _plan(
        name,
        "a burst stands before the door when it opens; half of it is served",
        stalled(*ADMISSION),
        _world(name, requests=[(2, 800, 200)] * 60, rate=0.5, faults=[Fault("evict", 14)]),
        interval=2,
    )
    for rate, interval, seconds in ((0.02, 15, 3000), (0.1, 10, 2000), (5.0, 5, 700), (20.0, 1, 500)):
        name = f"rate-{rate:g}"
        at_second = seconds - 400
        world = _world(
            name, seconds=seconds, rate=rate, output=(60, 250), max_running=256, decode_total=8000, prefill_rate=60_000
        )
        world.faults = [Fault("spin", at_second)]
        if rate < 0.1:
            world.requests = [(at_second - 1, 900, 200)]
        yield _plan(
            name,
            f"{rate:g} completions a second, then none",
            stalled(*STALL, early=10.0),
            world,
            replace(V1, access=0.2 if rate > 4 else 1.0),
            interval=interval,
        )
    name = "slow-server-stops"
    yield _plan(
        name,
        "a CPU server whose steps take 40 to 90 s stops for good",
        stalled(*STALL, patience=480.0, early=95.0),
        _world(
            name,
            seconds=6000,
            rate=0.02,
            pace=(40, 90),
            decode_rate=0.1,
            prefill_rate=40,
            prompt=(100, 400),
            output=(5, 20),
            requests=[(n, 200, 15) for n in range(0, 4000, 60)],
            faults=[Fault("blocked", 4200)],
        ),
        interval=15,
    )
    for size, broken, interval in ((8, 5, 5), (4, 0, 15)):
        name = f"one-of-{size}"
        worlds = [_world(f"{name}-{index}", rate=0.8) for index in range(size)]
        worlds[broken].faults = [Fault("spin", 400)]
        yield _plan(
            name,
            f"data-parallel replica {broken} of {size} stops, the sums still move",
            stalled(*STALL, replica=broken, labels={"engine_index": str(broken)}),
            worlds,
            interval=interval,
        )
    name = "one-of-two-hangs-log-only"
    worlds = [_world(f"{name}-{index}", rate=1.0) for index in range(2)]
    worlds[1].faults = [Fault("evict", 400)]
    yield _plan(
        name,
        "two engines in one DEBUG log, the second one stands",
        stalled(*STALL, replica=1, labels={"engine_index": "1"}),
        worlds,
        DEBUG,
        metrics=False,
    )
    name = "all-of-four"
    worlds = [_world(f"{name}-{index}", rate=1.0, faults=[Fault("blocked", 400)]) for index in range(4)]
    yield _plan(name, "every replica stops at once", stalled(*STALL, alerts=4), worlds)
    name = "frees-itself"
    yield _plan(
        name,
        "after six minutes a client gives up and the queue moves again: told, then resolved",
        stalled(*ADMISSION, resolved=True),
        _world(name, seconds=1500, rate=0.7, faults=[Fault("evict", 300, 660)]),
    )
    name = "restarted-after-stall"
    yield _plan(
        name,
        "restarted seven minutes into the stall, serves again: told once, resolved",
        stalled(*ADMISSION, resolved=True),
        _world(name, seconds=1500, faults=[Fault("evict", 300, 720), Fault("restart", 720, 800)]),
    )
    name = "twice-with-a-restart-between"
    yield _plan(
        name,
        "it stops, is restarted, and stops again",
        stalled(*ADMISSION, episodes=2),
        _world(name, seconds=2100, faults=[Fault("evict", 300, 720), Fault("restart", 720, 800), Fault("evict", 1300)]),
    )
    for level, rate in ((0.5, 0.4), (1.0, 2.0)):
        name = f"trickle-{level:g}"
        yield _plan(
            name,
            f"{level:g} tokens a second, no completion, the queue grows",
            stalled(*ADMISSION, "transfer_stall", patience=420.0),
            _world(name, seconds=1500, rate=rate, faults=[Fault("trickle", 500, level=level)]),
        )
    name = "trickle-deferred"
    voice = replace(V1, version="0.33.0")
    yield _plan(
        name,
        "deferred requests hold the sequence slots: #53130",
        stalled("transfer_stall", "silent_stall", "token_budget_deadlock", "kv_cache_deadlock", patience=420.0),
        _world(name, seconds=1500, rate=0.6, faults=[Fault("trickle", 500, level=0.48)]),
        voice,
        interval=10,
        deferred="deferred",
    )
    for level, interval, voice, metrics in (
        (40, 5, V1, True),
        (150, 15, V0, True),
        (90, 5, replace(V0, always=True), False),
    ):
        name = f"livelock-{level}"
        yield _plan(
            name,
            "requests preempt one another for ever: cache use flaps, preemptions climb, nothing is delivered",
            stalled("preemption_livelock", "kv_cache_deadlock", patience=150.0),
            _world(name, seconds=1000, rate=0.6, pool=30_000, faults=[Fault("livelock", 400, level=level)]),
            voice,
            metrics=metrics,
            interval=interval,
            extra=None if not voice.v0 else _preempted,
        )
    name = "connector-never-delivers"
    yield _plan(
        name,
        "remote cache loads never finish: deferred requests, a fetch that stands still",
        stalled("transfer_stall", "silent_stall", patience=180.0),
        _world(name, rate=1.0, faults=[Fault("evict", 400)]),
        replace(V1, version="0.33.0"),
        deferred="deferred",
        extra=_fetching,
    )


def _preempted(histories: Sequence[History]) -> list[Line]:
    return [
        V0.say(
            T0 + 400 + n,
            "WARNING",
            "scheduler.py:1754",
            f"Sequence group chatcmpl-{n % 3:08x} is preempted by PreemptionMode.RECOMPUTE mode because there is "
            f"not enough KV cache "
            "space. This can affect the end-to-end performance. Increase gpu_memory_utilization or "
            "tensor_parallel_size to provide "
            f"more KV cache memory. total_num_cumulative_preemption={1 + 50 * n}",
            "engine",
        )
        for n in range(0, 600, 2)
    ]


def _fetching(histories: Sequence[History]) -> list[Line]:
    return [
        V1.say(
            T0 + 410 + 10 * n,
            "INFO",
            "loggers.py:257",
            f"Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 0 "
            f"reqs, Waiting: {8 + n} "
            f"reqs, Deferred: {8 + n} reqs, KV fetch: 0 waiting to start, 6 in progress, 0 completed waiting, GPU "
            f"KV cache usage: 0.0%, "
            "Prefix cache hit rate: 38.2%",
        )
        for n in range(2)
    ]


def _formats() -> Iterable[Plan]:
    for envelope in ("kubectl", "journald", "journald-json", "compose", "compose-coloured", "slurm", "crlf"):
        name = f"wrapped-{envelope}"
        voice = replace(V1, colour=envelope == "compose-coloured")
        yield _plan(
            name,
            f"a worker hangs; the log comes through {envelope}",
            stalled(*HANG),
            _world(name, rate=1.5, faults=[Fault("blocked", 300)]),
            voice,
            envelope=envelope,
            extra=lambda histories, voice=voice: voice.shm_wait(T0 + 360, T0 + 890),
        )
    for envelope, voice in (("cri", V1), ("docker", BARE), ("kubectl", JSON), ("journald", V0)):
        name = f"dies-in-{envelope}"
        yield _plan(
            name,
            f"the engine dies at once; the log alone, through {envelope}",
            dead("engine_dead", "crash"),
            _world(name, seconds=500, faults=[Fault("refusing", 300)]),
            voice,
            metrics=False,
            envelope=envelope,
            extra=lambda histories, voice=voice: voice.fatal(
                T0 + 300, "RuntimeError: CUDA error: an illegal memory access was encountered"
            ),
        )
    name = "gz"
    yield _plan(
        name,
        "a rotated log: gzip, then the plain rest",
        stalled(*HANG),
        _world(name, rate=1.5, faults=[Fault("blocked", 300)]),
        extra=lambda histories: V1.shm_wait(T0 + 360, T0 + 890),
        names=("server.log.1.gz", "server.log"),
        split=lambda line: int(line.t > T0 + 200),
    )
    name = "two-files"
    yield _plan(
        name,
        "the front end and the engine log to files of their own",
        stalled(*HANG),
        _world(name, rate=1.5, faults=[Fault("blocked", 300)]),
        extra=lambda histories: V1.shm_wait(T0 + 360, T0 + 890),
        names=("api.log", "engine.log"),
        split=lambda line: int("EngineCore" in line.text),
    )
    for skew in (-5.0, 5.0):
        name = f"skew{skew:+.0f}"
        voice = replace(V1, skew=skew)
        yield _plan(
            name,
            f"the log's clock is {skew:+.0f} s off the metrics'",
            stalled(*HANG, early=7.0),
            _world(name, rate=1.5, faults=[Fault("blocked", 300)]),
            voice,
            extra=lambda histories, voice=voice: voice.shm_wait(T0 + 360, T0 + 890),
        )
    name = "india"
    voice = replace(V1, zone=timezone(timedelta(hours=5, minutes=30)))
    yield _plan(
        name,
        "stamps in local time, told by --timezone",
        stalled(*HANG),
        _world(name, rate=1.5, faults=[Fault("blocked", 300)]),
        voice,
        extra=lambda histories: voice.shm_wait(T0 + 360, T0 + 890),
        arguments=("--timezone", "Asia/Kolkata"),
    )
    eve = at("2025-12-31 23:55:00")
    for metrics in (True, False):
        name = "new-year" + ("" if metrics else "-log-only")
        world = replace(_world(name, rate=1.5, faults=[Fault("blocked", 270)]), start=eve)
        yield _plan(
            name,
            "the year turns between the start block and the wait lines; the file was copied months later"
            if metrics
            else "the same, dated by the file",
            stalled(*HANG, patience=120 if metrics else 260),
            world,
            metrics=metrics,
            extra=lambda histories: V1.shm_wait(eve + 330, eve + 890),
            written=at("2026-07-01 12:00:00") if metrics else None,
        )


def _deaths() -> Iterable[Plan]:
    def case(
        name: str,
        why: str,
        names: tuple[str, ...],
        lines: list[Line],
        voice: Voice = V1,
        *,
        metrics: bool = False,
        **more: Any,
    ) -> Plan:
        world = _world(name, seconds=520, faults=[Fault("refusing", 300)])
        return _plan(name, why, dead(*names, **more), world, voice, metrics=metrics, extra=lambda histories: lines)

    illegal = "RuntimeError: CUDA error: an illegal memory access was encountered"
    yield case(
        "engine-dies",
        "the core dies at once, the front end answers 500",
        ("engine_dead", "crash"),
        V1.fatal(T0 + 300, illegal),
        metrics=True,
    )
    yield case(
        "engine-dies-bare",
        "the same without process tags",
        ("engine_dead", "crash"),
        BARE.fatal(T0 + 300, illegal),
        BARE,
    )
    yield case(
        "engine-dies-json", "the same as JSON lines", ("engine_dead", "crash"), JSON.fatal(T0 + 300, illegal), JSON
    )
    yield case(
        "worker-dies",
        "a worker process is gone",
        ("engine_dead", "crash"),
        [
            V1.say(
                T0 + 300,
                "ERROR",
                "multiproc_executor.py:220",
                "Worker proc VllmWorker-3 died unexpectedly, shutting down executor.",
                "engine",
            ),
            V1.say(
                T0 + 302,
                "ERROR",
                "core_client.py:564",
                "Engine core proc EngineCore_DP0 died unexpectedly, shutting down client.",
            ),
        ],
    )
    yield case(
        "background-loop-dead",
        "V0: the background loop has errored",
        ("engine_dead", "crash"),
        [
            V0.say(
                T0 + 300,
                "ERROR",
                "async_llm_engine.py:65",
                "Engine background task failed\nTraceback (most recent call last):\n"
                '  File "/opt/vllm/engine/async_llm_engine.py", line 55, in _log_task_completion\n    return_value '
                "= task.result()\n"
                "RuntimeError: CUDA error: device-side assert triggered",
            ),
            Line(T0 + 301, "vllm.engine.async_llm_engine.AsyncEngineDeadError: Background loop has errored already."),
        ],
        V0,
        metrics=True,
    )
    yield case(
        "engine-process-died",
        "V0 with a process of its own",
        ("engine_dead", "crash"),
        [
            V0_NEW.say(T0 + 300, "ERROR", "client.py:300", "RuntimeError('Engine process (pid 77) died.')"),
            V0_NEW.say(
                T0 + 301, "CRITICAL", "launcher.py:116", "MQLLMEngine is already dead, terminating server process"
            ),
        ],
        V0_NEW,
    )
    yield case(
        "out-of-memory",
        "the device's memory is full, the engine dies of it",
        ("out_of_memory",),
        V1.fatal(
            T0 + 300,
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.20 GiB. GPU 0 has a total capacity of "
            "79.11 GiB of which 1.02 GiB is free.",
        ),
        metrics=True,
    )
    yield case(
        "budget-assertion",
        "V0's own assertion of the token budget ends the loop",
        ("token_budget_deadlock", "engine_dead"),
        [
            V0.say(
                T0 + 300,
                "ERROR",
                "async_llm_engine.py:65",
                "Engine background task failed\nTraceback (most recent call last):\n"
                '  File "/opt/vllm/core/scheduler.py", line 1210, in _schedule_default\n'
                "    assert budget.num_batched_tokens <= self.scheduler_config.max_num_batched_tokens\nAssertionError",
            ),
            Line(T0 + 301, "vllm.engine.async_llm_engine.AsyncEngineDeadError: Background loop has errored already."),
        ],
        V0,
    )
    name = "never-starts"
    world = _world(name, seconds=5, rate=0.0)
    yield _plan(
        name,
        "the core fails before it was ever ready",
        lambda histories, interval: {"page": True, "failure_any_of": ("startup_failure",), "fires_by": T0 + 60},
        world,
        replace(V1, start_block=False),
        metrics=False,
        extra=lambda histories: [
            V1.say(
                T0 - 60,
                "INFO",
                "core.py:78",
                "Initializing a V1 LLM engine (v0.11.0) with config: model='m', max_seq_len=131072",
                "engine",
            ),
            V1.say(
                T0 - 5,
                "ERROR",
                "core.py:710",
                "EngineCore failed to start.\nTraceback (most recent call last):\n"
                '  File "/opt/vllm/v1/engine/core.py", line 699, in run_engine_core\n    engine_core = '
                "EngineCoreProc(*args, **kwargs)\n"
                "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
                "initializing the engine.",
                "engine",
            ),
            Line(
                T0 - 3,
                "(APIServer pid=851) RuntimeError: Engine core initialization failed. See root cause above. Failed "
                "core proc(s): {'EngineCore_DP0': 1}",
            ),
        ],
    )


def _quiet() -> Iterable[Plan]:
    name = "idle-two-hours"
    yield _plan(name, "no request at all", healthy(), _world(name, seconds=7200, rate=0.0), interval=30)
    name = "idle-after-batch"
    yield _plan(
        name,
        "a batch job finishes and nothing follows",
        healthy("overload"),
        _world(name, seconds=3600, rate=0.0, requests=[(30, 900, 300)] * 400),
        interval=15,
    )
    name = "idle-after-batch-log-only"
    yield _plan(
        name,
        "the same, in the log alone, said to be whole for an hour more",
        healthy("overload"),
        _world(name, seconds=900, rate=0.0, requests=[(30, 900, 300)] * 200),
        metrics=False,
        until=4500,
    )
    for interval in (5, 30):
        name = f"bursts-every-{interval}s"
        yield _plan(
            name,
            "bursts of a minute, four minutes of nothing, for two hours",
            healthy(),
            _world(name, seconds=7200, rate=bursts(60, 240, 1.5)),
            interval=interval,
        )
    name = "night"
    yield _plan(
        name,
        "twenty a second by day, one in fifty seconds by night",
        healthy(),
        _world(
            name,
            seconds=5400,
            rate=steps((0, 20.0), (600, 0.02)),
            output=(60, 250),
            max_running=256,
            decode_total=8000,
            prefill_rate=60_000,
        ),
        replace(V1, access=0.1),
        interval=15,
    )
    name = "rare-requests"
    yield _plan(
        name,
        "a request each two minutes, each a minute long",
        healthy(),
        _world(name, seconds=7200, rate=0.008, output=(1500, 2500)),
        interval=10,
    )
    name = "idle-replicas"
    yield _plan(
        name,
        "of four replicas only one gets work",
        healthy(),
        [_world(f"{name}-{n}", rate=1.0 if n == 1 else 0.0) for n in range(4)],
        interval=10,
    )
    name = "log-cut"
    yield _plan(
        name,
        "the log ends ten seconds after the last tokens: a cut log proves nothing",
        healthy(),
        _world(name, seconds=600, rate=1.5, faults=[Fault("blocked", 300)]),
        metrics=False,
        cut=316,
    )
    name = "zero-line-and-cut"
    yield _plan(
        name,
        "one zero line with work in it, and the log is at its end",
        healthy(),
        _world(name, seconds=600, rate=2.0, faults=[Fault("evict", 300)]),
        metrics=False,
        cut=325,
    )
    name = "drained"
    yield _plan(
        name,
        "asked to stop: requests end, the server shuts down, silence",
        healthy(),
        _world(name, seconds=1200, cut_off=590, faults=[Fault("restart", 620, 1200)]),
    )
    for metrics, log in ((True, True), (True, False), (False, True)):
        name = "mass-abort" + ("" if metrics and log else "-metrics-only" if metrics else "-log-only")
        yield _plan(
            name,
            "every client is gone at once; gauges keep their last values for ever",
            healthy(),
            _world(name, seconds=2400, rate=3.0, cut_off=600, faults=[Fault("abort_frozen", 600)]),
            metrics=metrics,
            log=log,
            interval=10,
            until=None if metrics else 3000,
        )
    name = "asleep-mode"
    yield _plan(
        name,
        "put to sleep by its owner with three requests held; awake after a quarter of an hour",
        healthy(),
        _world(name, seconds=2400, rate=steps((0, 1.0), (600, 0.0), (1500, 1.0)), faults=[Fault("hold", 606, 1500)]),
        asleep=True,
        extra=lambda histories: [
            V1.say(T0 + 606, "INFO", "block_pool.py:378", "Successfully reset prefix cache", "engine"),
            V1.say(
                T0 + 607,
                "INFO",
                "gpu_worker.py:117",
                "Sleep mode freed 61.20 GiB memory, 3.10 GiB memory is still in use.",
                "Worker_TP0",
            ),
            V1.say(T0 + 607, "INFO", "executor_base.py:205", "It took 1.083421 seconds to fall asleep.", "engine"),
            V1.say(
                T0 + 1500,
                "INFO",
                "executor_base.py:221",
                "It took 0.411210 seconds to wake up tags {'weights', 'kv_cache'}.",
                "engine",
            ),
        ],
    )
    name = "config-risk"
    yield _plan(
        name,
        "the start block says that one request of the maximum length cannot fit; nothing else is wrong",
        healthy("config_risk"),
        _world(name, pool=76_640),
        replace(V1, max_len=262_144),
    )


def _busy() -> Iterable[Plan]:
    for interval, voice in ((5, V1), (15, V0), (30, JSON)):
        name = f"overload-half-an-hour-{voice.style}"
        yield _plan(
            name,
            "twice what it can do, for thirty minutes: slow, but it completes",
            healthy("overload"),
            _world(name, seconds=2400, rate=steps((0, 0.8), (300, 3.0), (2100, 0.5)), output=(400, 1000)),
            voice,
            interval=interval,
        )
    name = "overload-log-only"
    yield _plan(
        name,
        "the same in the log alone",
        healthy("overload"),
        _world(name, seconds=2400, rate=steps((0, 0.8), (300, 3.0)), output=(400, 1000)),
        metrics=False,
    )
    for rate, interval in ((4000, 5), (1200, 15)):
        name = f"million-tokens-{rate}"
        yield _plan(
            name,
            "a prompt of a million tokens is prefilled in chunks: counters stand, cache use climbs",
            healthy("overload"),
            _world(
                name,
                seconds=2000,
                rate=steps((0, 0.5), (290, 0.0)),
                pool=2_200_000,
                prefill_rate=rate,
                requests=[(300, 1_000_000, 300)],
            ),
            replace(V1, max_len=1_048_576),
            interval=interval,
        )
    name = "million-tokens-others-wait"
    yield _plan(
        name,
        "the same, with others behind it whose prefill starves",
        healthy("overload"),
        _world(name, seconds=1500, rate=0.3, pool=2_200_000, prefill_rate=3000, requests=[(300, 1_000_000, 300)]),
        replace(V1, max_len=1_048_576),
        interval=10,
    )
    name = "million-tokens-log-only"
    yield _plan(
        name,
        "the same in the log alone: one zero line with one running, four minutes of nothing, then tokens",
        healthy("overload"),
        _world(
            name,
            seconds=1200,
            rate=steps((0, 0.5), (290, 0.0)),
            pool=2_200_000,
            prefill_rate=4000,
            requests=[(300, 1_000_000, 300)],
        ),
        replace(V1, max_len=1_048_576),
        metrics=False,
    )
    name = "hour-long-answers"
    yield _plan(
        name,
        "sixteen answers of an hour each: no completion, tokens flow",
        healthy(),
        _world(name, seconds=3600, rate=0.0, requests=[(5, 500, 120_000)] * 16, pool=4_000_000),
        interval=15,
    )
    name = "one-long-answer"
    yield _plan(
        name,
        "one answer at three tokens a second for half an hour",
        healthy(),
        _world(name, seconds=2400, rate=0.0, decode_rate=3.0, requests=[(5, 500, 6000)]),
        interval=10,
    )
    name = "preempts-and-delivers"
    yield _plan(
        name,
        "preemptions by the hundred, and completions all the while",
        healthy("overload", "config_risk"),
        _world(name, seconds=1800, rate=0.9, pool=16_000, prompt=(300, 900), output=(500, 1500), max_running=24),
        interval=5,
    )
    name = "preempts-and-delivers-v0"
    yield _plan(
        name,
        "the same in V0, which warns of each fiftieth",
        healthy("overload", "config_risk"),
        _world(name, seconds=1800, rate=0.9, pool=16_000, prompt=(300, 900), output=(500, 1500), max_running=24),
        V0,
        metrics=False,
    )
    name = "disconnect-storm"
    yield _plan(
        name,
        "clients leave all the time, some answers are delivered",
        healthy("overload"),
        _world(name, seconds=1500, rate=2.5, abort_rate=0.06),
    )
    name = "mass-abort-goes-on"
    yield _plan(
        name,
        "everyone disconnects, new ones come at once",
        healthy(),
        _world(name, rate=2.0, faults=[Fault("abort_all", 400)]),
    )
    name = "slow-server"
    yield _plan(
        name,
        "a CPU server: 40 to 90 s between signs of progress, for two hours",
        healthy("overload"),
        _world(
            name,
            seconds=7200,
            pace=(40, 90),
            decode_rate=0.1,
            prefill_rate=40,
            prompt=(100, 400),
            output=(5, 20),
            requests=[(n, 200, 15) for n in range(0, 7000, 60)],
            rate=0.0,
        ),
        interval=15,
    )
    name = "slow-server-starts-cold"
    yield _plan(
        name,
        "the same from its first request on, with 60 to 100 s between signs, scraped each 5 s",
        healthy("overload"),
        _world(
            name,
            seconds=2400,
            pace=(60, 100),
            decode_rate=0.1,
            prefill_rate=40,
            prompt=(100, 400),
            output=(5, 20),
            requests=[(n, 200, 15) for n in range(0, 2300, 120)],
            rate=0.0,
        ),
        interval=5,
    )
    for length, interval in ((45, 5), (300, 15)):
        name = f"weight-updates-{length}s"
        begins = range(300, 2400, 500)
        faults = [Fault("hold", begin, begin + length) for begin in begins]
        yield _plan(
            name,
            f"its trainer pauses it by the API for {length} s each few minutes, requests in flight stay",
            healthy("overload"),
            _world(name, seconds=2900, rate=1.5, faults=faults),
            interval=interval,
            extra=lambda histories, begins=begins, length=length: [
                line for begin in begins for line in _paused(T0 + begin, length)
            ],
        )
    name = "short-pauses"
    yield _plan(
        name,
        "fifteen seconds of nothing each few minutes, unannounced",
        healthy(),
        _world(
            name, seconds=2400, rate=1.5, faults=[Fault("hold", begin, begin + 15) for begin in range(200, 2300, 250)]
        ),
    )
    name = "first-request-compiles"
    yield _plan(
        name,
        "the first request compiles kernels for 80 s; the wait line comes once",
        healthy("slow_start"),
        _world(name, seconds=900, rate=0.3, faults=[Fault("blocked", 10, 92)]),
        extra=lambda histories: V1.shm_wait(T0 + 72, T0 + 72),
    )
    name = "wait-line-now-and-then"
    yield _plan(
        name,
        "the wait line once in a while, tokens before and after",
        healthy(),
        _world(name, seconds=1800, rate=1.0, faults=[Fault("blocked", 400, 468), Fault("blocked", 1200, 1270)]),
        extra=lambda histories: [*V1.shm_wait(T0 + 461, T0 + 461), *V1.shm_wait(T0 + 1261, T0 + 1261)],
    )
    name = "wait-line-idle"
    yield _plan(
        name,
        "the front end prints the wait line each minute with nothing to do",
        healthy(),
        _world(name, seconds=1800, rate=steps((0, 1.0), (300, 0.0))),
        extra=lambda histories: V1.shm_wait(T0 + 400, T0 + 1700, "api"),
    )


def _paused(begin: float, length: float) -> list[Line]:
    return [
        V1.raw(begin + 0.1, 'INFO:     10.0.9.1:41022 - "POST /pause?mode=keep HTTP/1.1" 200 OK'),
        V1.raw(begin + length - 2, 'INFO:     10.0.9.1:41022 - "POST /update_weights HTTP/1.1" 200 OK'),
        V1.raw(begin + length - 1, 'INFO:     10.0.9.1:41022 - "POST /resume HTTP/1.1" 200 OK'),
    ]


def _interrupted() -> Iterable[Plan]:
    name = "rollouts"
    yield _plan(
        name,
        "three planned restarts with long starts",
        healthy("slow_start"),
        _world(name, seconds=4500, faults=[Fault("restart", begin, begin + 240) for begin in (900, 2100, 3300)]),
        interval=15,
    )
    name = "rollouts-log-only"
    yield _plan(
        name,
        "the same in the log alone",
        healthy("slow_start"),
        _world(name, seconds=3000, faults=[Fault("restart", begin, begin + 120) for begin in (900, 1900)]),
        metrics=False,
    )
    name = "resets-metrics-only"
    yield _plan(
        name,
        "counters fall to zero twice; no log",
        healthy(),
        _world(name, seconds=2400, faults=[Fault("restart", begin, begin + 40) for begin in (700, 1500)]),
        log=False,
    )
    name = "restart-while-busy"
    yield _plan(
        name,
        "restarted under load: what was in flight is lost and nothing else",
        healthy("slow_start", "overload"),
        _world(name, seconds=1800, rate=3.0, faults=[Fault("restart", 700, 760)]),
        interval=10,
    )
    for minutes in (2, 8, 20):
        name = f"gap-{minutes}-minutes"
        yield _plan(
            name,
            f"the page cannot be read for {minutes} minutes; the server works",
            healthy(),
            _world(name, seconds=1200 + 60 * minutes, rate=1.5, faults=[Fault("scrape_gap", 500, 500 + 60 * minutes)]),
            log=minutes != 8,
        )
    name = "gap-with-a-stall-in-it"
    yield _plan(
        name,
        "wedged at 300 s, the page unreadable from 330 s to 630 s: told once it can be seen",
        stalled(*ADMISSION, seen_from=630.0),
        _world(name, rate=1.5, seconds=1200, faults=[Fault("evict", 300), Fault("scrape_gap", 330, 630)]),
        log=False,
    )
    name = "gaps-all-day"
    yield _plan(
        name,
        "each second scrape is lost, now and then twenty in a row",
        healthy(),
        _world(
            name,
            seconds=3600,
            rate=0.5,
            faults=[
                Fault("scrape_gap", begin, begin + (100 if begin % 600 == 0 else 8)) for begin in range(0, 3600, 15)
            ],
        ),
    )
    name = "frozen-exporter"
    yield _plan(
        name,
        "the page repeats a copy for twenty minutes, process counters and all; the stats lines go on",
        healthy(),
        _world(name, seconds=2400, rate=1.5, faults=[Fault("exporter", 600, 1800)]),
    )
    name = "metrics-vanish"
    yield _plan(
        name,
        "all vLLM metrics vanish from the page, the process's stay; no log",
        healthy(),
        _world(name, seconds=1500, rate=1.5),
        log=False,
        skip=lambda family, t: t > T0 + 600 and family.startswith("vllm"),
    )
    name = "counters-vanish"
    yield _plan(
        name,
        "token and completion counters vanish, the gauges stay: half blind is blind; the log goes on",
        healthy(),
        _world(name, seconds=1500, rate=1.5),
        skip=lambda family, t: (
            t > T0 + 600
            and family.startswith("vllm")
            and family not in ("vllm:num_requests_running", "vllm:num_requests_waiting")
        ),
    )
    name = "metrics-vanish-in-a-hang"
    yield _plan(
        name,
        "the page is lost as the worker hangs; the wait lines are left",
        stalled(*HANG, patience=260),
        _world(name, rate=1.5, seconds=900, faults=[Fault("blocked", 300), Fault("scrape_gap", 302, 900)]),
        extra=lambda histories: V1.shm_wait(T0 + 360, T0 + 890),
    )
    name = "host-paused"
    yield _plan(
        name,
        "the host stands still for ten minutes and goes on",
        healthy(),
        _world(name, seconds=1800, rate=1.5, faults=[Fault("asleep", 600, 1200)]),
    )
    name = "host-paused-log-only"
    yield _plan(
        name,
        "the same in the log alone",
        healthy(),
        _world(name, seconds=1800, rate=1.5, faults=[Fault("asleep", 600, 1200)]),
        metrics=False,
    )
    name = "short-stall"
    yield _plan(
        name,
        "fifty seconds of nothing, then on: too short for anyone to act on",
        healthy(),
        _world(name, seconds=1500, rate=0.5, faults=[Fault("spin", 700, 750)]),
        interval=15,
    )


def _words() -> Iterable[Plan]:
    for name, voice in (("v0", V0), ("v1", V1), ("json", JSON)):
        name = f"hostile-prompts-{name}"
        yield _plan(
            name,
            "users quote every line that we look for",
            healthy(),
            _world(name, seconds=900, rate=0.5),
            replace(voice, requests_logged=True, prompts=PROMPTS),
            metrics=voice is V1,
        )
    name = "bad-requests"
    yield _plan(
        name,
        "single bad requests: too long, malformed, rejected by the grammar",
        healthy("request_rejected"),
        _world(name, seconds=900),
        extra=_rejected,
    )
    name = "bad-requests-log-only"
    yield _plan(
        name,
        "the same in the log alone",
        healthy("request_rejected"),
        _world(name, seconds=900),
        metrics=False,
        extra=_rejected,
    )
    name = "grammar-storm"
    yield _plan(
        name,
        "a storm of grammar errors; the requests fail, the engine goes on",
        healthy("request_rejected"),
        _world(name, seconds=900, rate=1.5),
        extra=lambda histories: [
            V1.say(
                T0 + 300 + n * 0.5,
                "ERROR",
                "backend_xgrammar.py:165",
                f"Failed to advance FSM for request chatcmpl-{n:08x} for tokens {n}. Please file an issue.",
                "engine",
            )
            for n in range(200)
        ],
    )
    name = "wait-line-while-loading"
    yield _plan(
        name,
        "the wait line while it compiles, four times before it is ready",
        healthy("slow_start"),
        _world(name, seconds=600, rate=1.0),
        replace(V1, startup=420),
        extra=lambda histories: V1.shm_wait(T0 - 290, T0 - 60),
    )
    name = "slow-load"
    yield _plan(
        name,
        "half an hour of loading, with progress lines",
        healthy("slow_start"),
        _world(name, seconds=600, rate=1.0),
        replace(V1, startup=1800),
        metrics=False,
        extra=lambda histories: [
            Line(
                T0 - 1750 + 100 * n,
                f"Loading safetensors checkpoint shards:  {6 * n}% Completed | {n}/16 [{n}:40<{16 - n}:20, 100.2s/it]",
            )
            for n in range(16)
        ],
    )


def _rejected(histories: list[History]) -> list[Line]:
    lines = []
    for t in range(int(T0) + 100, int(T0) + 800, 90):
        lines += [
            V1.say(
                t,
                "ERROR",
                "serving_chat.py:257",
                "Error in preprocessing prompt inputs\nTraceback (most recent call last):\n"
                '  File "/opt/vllm/entrypoints/openai/serving_chat.py", line 240, in create_chat_completion\n    ) '
                "= await self._preprocess_chat(\n"
                "ValueError: This model's maximum context length is 131072 tokens. However, you requested 140,512 "
                "tokens in the messages. "
                "Please reduce the length of the messages.",
            ),
            V1.raw(t + 0.2, 'INFO:     10.0.3.7:51234 - "POST /v1/chat/completions HTTP/1.1" 400 Bad Request'),
            V1.raw(t + 9, 'INFO:     10.0.3.9:40022 - "POST /v1/completions HTTP/1.1" 422 Unprocessable Entity'),
            V1.say(
                t + 20,
                "WARNING",
                "protocol.py:82",
                "The following fields were present in the request but ignored: {'best_off'}",
            ),
            V1.say(
                t + 30,
                "ERROR",
                "backend_xgrammar.py:165",
                "Failed to advance FSM for request chatcmpl-00000af1 for tokens 128009. Please file an issue.",
                "engine",
            ),
        ]
    return lines
