"""SGLang: the admission latch, the watchdog, and a log that is quiet whenever no batch runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from tests.incidents.envelopes import Line
from tests.incidents.hostile import PROMPTS
from tests.incidents.incident import ADMISSION, HANG, STALL, Plan, at, seed
from tests.incidents.openmetrics import Page
from tests.incidents.sglang_voice import Voice
from tests.incidents.tell import Verdict, dead, healthy, plan, stalled
from tests.incidents.world import Fault, History, World, bursts, steps

T0 = at("2026-08-14 02:10:00")
OLD = Voice(version="0.4.6")
MID = Voice(version="0.5.3")
NEW = Voice(version="0.5.8")


def _world(name: str, seconds: int = 800, rate: Any = 1.5, **more: Any) -> World:
    return World(
        seed=seed(name), start=T0, seconds=seconds, rate=rate, **{"output": (100, 600), "pool": 300_000, **more}
    )


def _plan(
    name: str,
    why: str,
    verdict: Verdict,
    world: World | list[World],
    voice: Voice = NEW,
    *,
    metrics: bool = True,
    http: bool = False,
    **more: Any,
) -> Plan:
    several = not isinstance(world, World)

    def page(world: World, index: int) -> Page:
        return voice.page(world.pool, index=index if several else None, http=http)

    return plan(f"sglang-{name}", "sglang", why, verdict, world, voice, page if metrics else None, **more)


def plans() -> Iterable[Plan]:
    """All of them."""
    yield from _stalls()
    yield from _deaths()
    yield from _healthy()


def _stalls() -> Iterable[Plan]:
    for voice, interval in ((OLD, 5), (MID, 10), (NEW, 15)):
        name = f"latch-{voice.version}"
        yield _plan(
            name,
            "nothing is admitted any more; probes of one token are all that is batched",
            stalled(*ADMISSION),
            _world(name, faults=[Fault("evict", 300)]),
            replace(voice, probes=10),
            interval=interval,
        )
        yield _plan(
            f"{name}-log-only",
            "the same in the log alone: the queue grows on the probes' lines",
            stalled(*ADMISSION, patience=180.0),
            _world(name, faults=[Fault("evict", 300)]),
            replace(voice, probes=10),
            metrics=False,
        )
    name = "latch-without-probes"
    yield _plan(
        name,
        "the same without a probe: the log falls silent, the gauges tell",
        stalled(*ADMISSION),
        _world(name, faults=[Fault("evict", 300)]),
        MID,
    )
    name = "latch-idle-host"
    yield _plan(
        name,
        "ten minutes idle with probes, then requests are queued and none is admitted",
        stalled(*ADMISSION),
        _world(name, seconds=1600, rate=steps((0, 1.5), (200, 0.0), (900, 1.0)), faults=[Fault("evict", 899)]),
        replace(NEW, probes=10),
    )
    name = "strict-less-than"
    yield _plan(
        name,
        "one request on an empty pool is never admitted: it needs exactly what there is (#28530)",
        stalled(*ADMISSION),
        _world(
            name,
            rate=0.0,
            requests=[(n, 400, 100) for n in range(5, 200, 20)] + [(300, 4084, 10)],
            pool=4096,
            faults=[Fault("admission", 299)],
        ),
        replace(NEW, probes=10, context=4096),
        interval=10,
    )
    for voice in (OLD, NEW):
        name = f"watchdog-{voice.version}"
        yield _plan(
            name,
            "a batch never returns; the engine's watchdog speaks after 300 s, the signals before",
            stalled(*HANG),
            _world(name, faults=[Fault("blocked", 200)]),
            voice,
            extra=lambda histories, voice=voice: voice.watchdog(T0 + 500, histories[0].at(T0 + 200)),
        )
        yield _plan(
            f"{name}-log-only",
            "the watchdog's line is all there is",
            stalled(*HANG, patience=360.0),
            _world(name, faults=[Fault("blocked", 200)]),
            voice,
            metrics=False,
            extra=lambda histories, voice=voice: voice.watchdog(T0 + 500, histories[0].at(T0 + 200)),
        )
    name = "watchdog-in-cri"
    yield _plan(
        name,
        "the same through a container runtime",
        stalled(*HANG, patience=360.0),
        _world(name, faults=[Fault("blocked", 200)]),
        metrics=False,
        envelope="cri",
        extra=lambda histories: NEW.watchdog(T0 + 500, histories[0].at(T0 + 200)),
    )
    name = "blocked-metrics-only"
    yield _plan(
        name,
        "gauges stand with work in them; no log",
        stalled(*STALL, confidence="confirmed"),
        _world(name, faults=[Fault("blocked", 300)]),
        OLD,
        log=False,
    )
    name = "oversize"
    yield _plan(
        name,
        "a prompt of 837,717 tokens heads the queue of a pool of 756,736",
        stalled("request_never_fits", "silent_stall", "kv_cache_deadlock", "token_budget_deadlock"),
        _world(name, pool=756_736, requests=[(300, 837_717, 100)], faults=[Fault("admission", 300)]),
        replace(NEW, context=1_048_576),
        interval=10,
    )
    name = "retract-livelock"
    yield _plan(
        name,
        "the pool is full, requests are retracted and recomputed for ever, none is finished",
        stalled("preemption_livelock", "kv_cache_deadlock", patience=180.0),
        _world(name, rate=0.8, pool=30_000, faults=[Fault("livelock", 300, level=3)]),
        interval=5,
        extra=_retracted,
    )
    name = "detokenizer-dies"
    yield _plan(
        name,
        "batches run on, answers reach nobody; the health probe says so",
        stalled("lost_replies", "silent_stall", "engine_dead", patience=180.0, early=2.0),
        _world(name, faults=[Fault("mute", 300)]),
        http=True,
        extra=lambda histories: [
            NEW.say(
                T0 + 330 + 30 * n,
                "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. tic "
                "start time: 02:15:10. last_heartbeat time: 02:14:59",
                "",
            )
            for n in range(14)
        ],
    )
    name = "replies-lost"
    yield _plan(
        name,
        "the engine idles, a hundred connections stay open and grow: no line says so",
        stalled("lost_replies", "silent_stall", patience=240.0, early=2.0),
        _world(name, seconds=1200, faults=[Fault("mute", 300)]),
        http=True,
        interval=10,
    )
    name = "transfer-stalls"
    yield _plan(
        name,
        "a decode node: transfers never finish, the preallocation queue grows",
        stalled("transfer_stall", "silent_stall", "kv_cache_deadlock", patience=200.0),
        _world(name, faults=[Fault("evict", 300)]),
        extra=lambda histories: [
            NEW.say(
                T0 + 300 + 10 * n,
                f"Decode batch, #running-req: 0, #token: 0, token usage: 0.00, pre-allocated usage: 0.31, "
                f"#prealloc-req: {5 + n}, #transfer-req: 12, "
                f"#retracted-req: 0, cuda graph: True, gen throughput (token/s): 0.00, #queue-req: {12 + n}",
            )
            for n in range(45)
        ],
    )
    for size, broken in ((4, 3),):
        name = f"one-of-{size}"
        worlds = [_world(f"{name}-{index}", rate=0.8) for index in range(size)]
        worlds[broken].faults = [Fault("evict", 400)]
        yield _plan(
            name,
            "one data-parallel rank stops",
            stalled(*STALL, replica=broken, labels={"engine_index": str(broken)}),
            worlds,
        )
    name = "cold"
    yield _plan(
        name,
        "the second request ever blocks",
        stalled(*STALL),
        _world(name, rate=0.5, faults=[Fault("blocked", 6)]),
        OLD,
    )
    name = "cut"
    yield _plan(
        name,
        "the log ends half a minute into the stall",
        healthy(),
        _world(name, faults=[Fault("blocked", 200)]),
        metrics=False,
        cut=235,
    )
    name = "said-whole"
    yield _plan(
        name,
        "the last batch line has a queue; the log is said to be whole for ten minutes more",
        stalled(*STALL, patience=240.0),
        _world(name, seconds=250, rate=4.0, faults=[Fault("blocked", 200)]),
        metrics=False,
        until=900,
    )


def _retracted(histories: Sequence[History]) -> list[Line]:
    return [
        line
        for n in range(0, 480, 3)
        for line in (
            NEW.say(
                T0 + 300 + n,
                f"KV cache pool is full. Retract requests. #retracted_reqs: 2, #new_tokens_gained: 812, "
                f"#new_token_ratio: 0.{60 + n % 30} -> 0.{70 + n % 25}",
            ),
            NEW.say(
                T0 + 301 + n,
                f"Prefill batch, #new-seq: 2, #new-token: 8192, #cached-token: 0, token usage: 0.9{n % 9}, "
                f"#running-req: 1, #queue-req: {20 + n // 5}, "
                f"#pending-token: {40000 + 700 * n}, cuda graph: False, input throughput (token/s): 8010.20",
            ),
        )
    ]


def _deaths() -> Iterable[Plan]:
    def case(
        name: str, why: str, names: tuple[str, ...], lines: list[Line], voice: Voice = NEW, metrics: bool = False
    ) -> Plan:
        return _plan(
            name,
            why,
            dead(*names),
            _world(name, seconds=500, faults=[Fault("refusing", 300)]),
            voice,
            metrics=metrics,
            extra=lambda histories: lines,
        )

    yield case(
        "scheduler-dies",
        "the scheduler hits an exception",
        ("engine_dead", "crash"),
        NEW.exception(T0 + 300, "RuntimeError: CUDA error: device-side assert triggered"),
        metrics=True,
    )
    yield case(
        "scheduler-dies-old",
        "the same in 0.4.6",
        ("engine_dead", "crash"),
        OLD.exception(T0 + 300, "AttributeError: 'NoneType' object has no attribute 'prefix_indices'"),
        OLD,
    )
    yield case(
        "scheduler-dies-leak",
        "its own accounting does not add up",
        ("engine_dead", "crash"),
        NEW.exception(
            T0 + 300,
            "ValueError: token_to_kv_pool_allocator memory leak detected! available_size=1021, protected_size=0, "
            "self.max_total_num_tokens=300000",
        ),
    )
    yield case(
        "out-of-memory",
        "the device's memory is full",
        ("out_of_memory",),
        NEW.exception(
            T0 + 300,
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.10 GiB. GPU 0 has a total capacity of "
            "79.11 GiB",
        ),
    )
    name = "never-starts"
    yield _plan(
        name,
        "the scheduler dies while it loads",
        lambda histories, interval: {
            "page": True,
            "failure_any_of": ("startup_failure", "out_of_memory"),
            "fires_by": T0 + 90,
        },
        _world(name, seconds=5, rate=0.0),
        metrics=False,
        cut=-30,
        extra=lambda histories: [
            NEW.say(
                T0 - 32,
                "Scheduler hit an exception: Traceback (most recent call last):\n  File "
                '"/opt/sglang/srt/managers/scheduler.py", line 2605, in run_scheduler_process\n'
                "    scheduler = Scheduler(server_args, port_args, gpu_id, tp_rank)\nRuntimeError: Not enough "
                "memory. Please try to increase --mem-fraction-static.\n",
            ),
            NEW.say(T0 - 31, "Received sigquit from a child process. It usually means the child failed.", ""),
        ],
    )


def _healthy() -> Iterable[Plan]:
    name = "idle-with-probes"
    yield _plan(
        name,
        "two hours of nothing but health probes",
        healthy(),
        _world(name, seconds=7200, rate=0.0),
        replace(NEW, probes=10),
        interval=30,
    )
    name = "idle-with-probes-log-only"
    yield _plan(
        name,
        "the same in the log alone",
        healthy(),
        _world(name, seconds=3600, rate=0.0),
        replace(OLD, probes=15),
        metrics=False,
    )
    name = "batch-then-idle"
    yield _plan(
        name,
        "a batch is done; the log falls silent, said to be whole for an hour",
        healthy("overload"),
        _world(name, seconds=900, rate=0.0, requests=[(10, 900, 300)] * 200),
        MID,
        metrics=False,
        until=4500,
    )
    name = "bursts"
    yield _plan(
        name,
        "a minute of work, five of none",
        healthy(),
        _world(name, seconds=3600, rate=bursts(60, 300, 2.0)),
        interval=15,
    )
    name = "overload"
    yield _plan(
        name,
        "half an hour of twice what it can do",
        healthy("overload"),
        _world(name, seconds=2100, rate=steps((0, 1.0), (200, 4.0)), output=(400, 900)),
        replace(MID, access=0.3),
    )
    name = "retracts-and-delivers"
    yield _plan(
        name,
        "requests are retracted all the time and finished all the time",
        healthy("overload", "config_risk"),
        _world(name, seconds=1500, rate=0.9, pool=16_000, prompt=(300, 900), output=(500, 1500), max_running=24),
        metrics=False,
        extra=lambda histories: [
            NEW.say(
                T0 + 40 + 7 * n,
                "KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_tokens_gained: 512, "
                "#new_token_ratio: 0.6100 -> 0.7300",
            )
            for n in range(200)
        ],
    )
    for metrics in (True, False):
        name = "long-prefill" + ("" if metrics else "-log-only")
        yield _plan(
            name,
            "a prompt of 600,000 tokens in chunks: pending tokens fall",
            healthy("overload", "config_risk"),
            _world(name, seconds=1200, rate=0.02, pool=1_000_000, prefill_rate=2000, requests=[(300, 600_000, 100)]),
            replace(NEW, context=1_048_576),
            metrics=metrics,
            interval=10,
        )
    name = "long-answers"
    yield _plan(
        name,
        "eight answers of half an hour, in a version that counts tokens when a request ends",
        healthy(),
        _world(name, seconds=2400, rate=0.0, requests=[(5, 400, 60_000)] * 8, pool=2_000_000),
        OLD,
        interval=10,
    )
    name = "slow-server"
    yield _plan(
        name,
        "a CPU server: a line each 40 to 90 s",
        healthy("overload"),
        _world(
            name,
            seconds=6000,
            pace=(40, 90),
            decode_rate=0.1,
            prefill_rate=40,
            prompt=(100, 400),
            output=(5, 20),
            requests=[(n, 200, 15) for n in range(0, 5800, 60)],
            rate=0.0,
        ),
        interval=15,
    )
    name = "weights-updated"
    yield _plan(
        name,
        "the trainer pauses generation for a minute each ten, tells it to load weights, and goes on",
        healthy(),
        _world(name, seconds=2400, rate=1.0, faults=[Fault("hold", begin, begin + 60) for begin in (400, 1000, 1600)]),
        interval=10,
        extra=lambda histories: [
            line
            for begin in (400, 1000, 1600)
            for line in (
                NEW.say(T0 + begin, 'INFO:     10.0.9.1:41022 - "POST /pause_generation HTTP/1.1" 200 OK', ""),
                NEW.say(T0 + begin + 2, "Update engine weights online from disk begin. avail mem=9.40 GB"),
                NEW.say(T0 + begin + 57, "Update weights end."),
                NEW.say(
                    T0 + begin + 58, 'INFO:     10.0.9.1:41022 - "POST /update_weights_from_disk HTTP/1.1" 200 OK', ""
                ),
                NEW.say(T0 + begin + 59, 'INFO:     10.0.9.1:41022 - "POST /continue_generation HTTP/1.1" 200 OK', ""),
            )
        ],
    )
    name = "restarts"
    yield _plan(
        name,
        "two rollouts; at each the parent calls its own clean-up a crash",
        healthy("slow_start"),
        _world(name, seconds=2400, faults=[Fault("restart", 700, 790), Fault("restart", 1500, 1590)]),
        interval=10,
    )
    name = "restarts-log-only"
    yield _plan(
        name,
        "the same in the log alone",
        healthy("slow_start"),
        _world(name, seconds=2400, faults=[Fault("restart", 700, 790), Fault("restart", 1500, 1590)]),
        metrics=False,
    )
    name = "hostile-prompts"
    yield _plan(
        name,
        "users quote every line that we look for",
        healthy(),
        _world(name, rate=0.5),
        replace(NEW, prompts=PROMPTS),
    )
    name = "disconnects"
    yield _plan(
        name,
        "clients leave all the time",
        healthy("overload"),
        _world(name, seconds=1500, rate=2.5, abort_rate=0.06),
        OLD,
    )
    name = "idle-rank"
    yield _plan(
        name, "of two ranks one gets nothing", healthy(), [_world(f"{name}-0", rate=1.0), _world(f"{name}-1", rate=0.0)]
    )
    name = "bracketed"
    yield _plan(
        name,
        "a log configuration of the owner's own",
        healthy(),
        _world(name),
        replace(NEW, bracketed=True),
        metrics=False,
    )
    name = "one-bad-probe"
    yield _plan(
        name,
        "a health probe fails once under a long prefill",
        healthy("overload"),
        _world(name, requests=[(300, 150_000, 50)], prefill_rate=4000, rate=0.3),
        extra=lambda histories: [
            NEW.say(
                T0 + 325,
                "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. tic "
                "start time: 02:15:05. last_heartbeat time: 02:15:01",
                "",
            )
        ],
    )
    name = "capture-at-start"
    yield _plan(
        name,
        "ten minutes of loading and capture",
        healthy("slow_start"),
        _world(name),
        replace(NEW, startup=600),
        metrics=False,
    )
    name = "gap"
    yield _plan(
        name,
        "the page is lost for ten minutes",
        healthy(),
        _world(name, seconds=1500, faults=[Fault("scrape_gap", 400, 1000)]),
        MID,
        log=False,
    )
