"""TensorRT-LLM (trtllm-serve): the assertion that ends the loop, the one that does not, and the rest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta, timezone
from typing import Any

from tests.incidents.envelopes import Line
from tests.incidents.hostile import PROMPTS
from tests.incidents.incident import ADMISSION, HANG, STALL, Plan, at, seed
from tests.incidents.openmetrics import Page
from tests.incidents.tell import Verdict, dead, healthy, plan, stalled
from tests.incidents.tensorrt_llm_voice import BENIGN, Voice
from tests.incidents.world import Fault, History, World, bursts, steps

T0 = at("2026-10-03 14:20:00")
PLAIN = Voice()
RANK = Voice(era="rank")
MODULE = Voice(era="module")
MPI = Voice(era="mpi")
QUIET = Voice(iterations=False)
BUDGET = ("token_budget_deadlock",)


def _world(name: str, seconds: int = 700, rate: Any = 1.5, **more: Any) -> World:
    return World(
        seed=seed(name), start=T0, seconds=seconds, rate=rate, **{"output": (100, 600), "pool": 264_192, **more}
    )


def _plan(
    name: str,
    why: str,
    verdict: Verdict,
    world: World | list[World],
    voice: Voice = PLAIN,
    *,
    metrics: str = "full",
    **more: Any,
) -> Plan:
    def page(world: World, index: int) -> Page:
        return voice.page(world.pool, five=metrics == "five")

    return plan(
        f"trtllm-{name}", "tensorrt_llm", why, verdict, world, voice, page if metrics != "none" else None, **more
    )


def plans() -> Iterable[Plan]:
    """All of them."""
    yield from _assertion()
    yield from _recovered()
    yield from _stalls()
    yield from _deaths()
    yield from _healthy()


def _assertion() -> Iterable[Plan]:
    cases: tuple[tuple[Any, ...], ...] = (
        ("plain", PLAIN, {}, "full", 5),
        ("plain-no-numbers", PLAIN, {"numbers": False}, "full", 10),
        ("rank", RANK, {}, "full", 2),
        ("module", MODULE, {}, "full", 15),
        ("module-no-trace", MODULE, {"trace": False}, "full", 5),
        ("mpi", MPI, {"numbers": False}, "none", 5),
        ("quiet", QUIET, {}, "none", 5),
        ("quiet-no-numbers", QUIET, {"numbers": False}, "none", 5),
        ("quiet-metrics", QUIET, {"numbers": False}, "full", 30),
        ("five", QUIET, {}, "five", 10),
        ("threading-only", PLAIN, {"numbers": False, "threading_only": True}, "none", 5),
        ("many-in-flight", PLAIN, {"failed": 60}, "full", 5),
    )
    for suffix, voice, options, metrics, interval in cases:
        name = f"assertion-{suffix}"
        more: dict[str, Any] = (
            {"confidence": "confirmed"}
            if metrics == "full"
            else {"confidence": "probable"}
            if metrics == "none"
            else {}
        )
        names = BUDGET if metrics == "full" else (*BUDGET, "engine_dead")
        yield _plan(
            name,
            "a step of more tokens than the budget: the loop's thread dies, later requests wait for ever",
            stalled(*names, patience=40.0, **more),
            _world(name, faults=[Fault("dead", 300)]),
            voice,
            metrics=metrics,
            interval=interval,
            extra=lambda histories, voice=voice, options=options: voice.overshoot(
                T0 + 300, voice.budget + 22, **options
            ),
        )
    for envelope in ("cri", "docker", "compose", "slurm", "journald", "kubectl"):
        name = f"assertion-in-{envelope}"
        yield _plan(
            name,
            f"the same through {envelope}, the log alone",
            stalled(*BUDGET, "engine_dead", patience=60.0),
            _world(name, faults=[Fault("dead", 300)]),
            QUIET,
            metrics="none",
            envelope=envelope,
            extra=lambda histories: QUIET.overshoot(T0 + 300, 6986),
        )
    name = "assertion-one-rank-of-four"
    voice = replace(RANK, ranks=4)
    yield _plan(
        name,
        "rank 2 of four dies; the others' iteration lines stand between its lines, then stop too",
        stalled(*BUDGET, patience=40.0),
        _world(name, faults=[Fault("dead", 300)]),
        voice,
        extra=lambda histories: [
            *voice.overshoot(T0 + 300, 4100, rank=2),
            *(voice.say(T0 + 300.4, "I", f"iter = 99{n}, global_rank = {n}, rank = {n}", n) for n in (0, 1, 3)),
        ],
    )
    name = "assertion-interleaved-ranks"
    yield _plan(
        name,
        "all four ranks die at once and their records are cut into one another",
        stalled(*BUDGET, "engine_dead", patience=60.0),
        _world(name, faults=[Fault("dead", 300)]),
        voice,
        metrics="none",
        extra=_interleaved,
    )
    name = "assertion-cold"
    yield _plan(
        name,
        "on the third request since the start",
        stalled(*BUDGET, patience=40.0),
        _world(name, rate=0.4, faults=[Fault("dead", 9)]),
        extra=lambda histories: PLAIN.overshoot(T0 + 9, 4097),
    )
    name = "assertion-killed"
    voice = replace(MODULE, ranks=8)
    yield _plan(
        name,
        "1.3: the rank that died takes the others with it ten seconds later; 503 for ever",
        stalled(*BUDGET, "engine_dead", patience=60.0),
        _world(name, faults=[Fault("dead", 300, 310), Fault("refusing", 310)]),
        voice,
        metrics="none",
        extra=lambda histories: [*voice.overshoot(T0 + 300, 6986), *_killed(voice, T0 + 301)],
    )
    name = "assertion-killed-metrics"
    yield _plan(
        name,
        "the same with metrics, which count the refusals",
        stalled(*BUDGET, "engine_dead", patience=60.0),
        _world(name, faults=[Fault("dead", 300, 310), Fault("refusing", 310)]),
        voice,
        extra=lambda histories: [*voice.overshoot(T0 + 300, 6986), *_killed(voice, T0 + 301)],
    )
    name = "assertion-restarted"
    yield _plan(
        name,
        "killed by its operator after two minutes, serves again",
        stalled(*BUDGET, patience=40.0, resolved=True),
        _world(name, seconds=1300, faults=[Fault("dead", 300, 420), Fault("restart", 420, 480)]),
        extra=lambda histories: PLAIN.overshoot(T0 + 300, 4118),
    )
    name = "assertion-twice"
    yield _plan(
        name,
        "it dies, is restarted, dies again",
        stalled(*BUDGET, patience=40.0, episodes=2),
        _world(name, seconds=1500, faults=[Fault("dead", 300, 420), Fault("restart", 420, 480), Fault("dead", 1000)]),
        extra=lambda histories: [*PLAIN.overshoot(T0 + 300, 4118), *PLAIN.overshoot(T0 + 1000, 4099)],
    )
    name = "assertion-recovered-then-dies"
    yield _plan(
        name,
        "the assertion fails a batch twice, and the third time the loop with it",
        stalled(*BUDGET, fault=0, patience=40.0),
        _world(name, seconds=1200, faults=[Fault("dead", 900)]),
        extra=lambda histories: [
            *PLAIN.overshoot(T0 + 300, 4118, dies=False),
            *PLAIN.overshoot(T0 + 600, 4100, dies=False),
            *PLAIN.overshoot(T0 + 900, 4099),
        ],
    )
    for name, voice, metrics in (
        ("assertion-berlin", replace(PLAIN, zone=timezone(timedelta(hours=2))), "full"),
        ("assertion-skew", replace(PLAIN, skew=4.0), "full"),
    ):
        berlin = name.endswith("berlin")
        yield _plan(
            name,
            "stamps in local time, told by --timezone" if berlin else "the log's clock is 4 s ahead",
            stalled(*BUDGET, patience=40.0, early=6.0),
            _world(name, faults=[Fault("dead", 300)]),
            voice,
            metrics=metrics,
            extra=lambda histories, voice=voice: voice.overshoot(T0 + 300, 4118),
            arguments=("--timezone", "Europe/Berlin") if berlin else (),
        )
    name = "assertion-new-year"
    eve = at("2026-12-31 23:56:00")
    yield _plan(
        name,
        "a minute before midnight at New Year",
        stalled(*BUDGET, patience=40.0),
        replace(_world(name, faults=[Fault("dead", 200)]), start=eve),
        extra=lambda histories: PLAIN.overshoot(eve + 200, 4118),
    )
    name = "assertion-swapped-streams"
    yield _plan(
        name,
        "stderr was collected after stdout: the loop's end stands before its cause",
        stalled(*BUDGET, "engine_dead", patience=60.0),
        _world(name, faults=[Fault("dead", 300)]),
        metrics="none",
        extra=lambda histories: [
            Line(T0 + 300 + n * 0.01, line.text) for n, line in enumerate(reversed(PLAIN.overshoot(T0 + 300, 4118)))
        ],
    )


def _interleaved(histories: Sequence[History]) -> list[Line]:
    voice = replace(RANK, ranks=4)
    parts = []
    for rank in range(4):
        lines = [
            Line(line.t, text)
            for line in voice.loop_ends(T0 + 300.2, "Sampling failed", "AssertionError", rank)
            for text in line.text.split("\n")
        ]
        parts.append(
            [
                voice.say(
                    T0 + 300,
                    "E",
                    "Encountered an error in forward function: total_num_tokens (4118) should be less than or equal "
                    "to max_num_tokens (4096)",
                    rank,
                ),
                *lines,
            ]
        )
    return [line for row in zip(*parts, strict=True) for line in row]


def _killed(voice: Voice, t: float) -> list[Line]:
    return [
        voice.say(
            t,
            "E",
            "Executor loop crashed on this rank; hard-killing all 8 ranks in 9.99947s (peers cannot make progress "
            "without this rank). Set "
            "TLLM_RANK_CRASH_HARD_KILL_GRACE=-1 to disable.",
        ),
        voice.say(t + 10, "E", "HangDetector: propagating hard-kill to all ranks via MPI_Abort."),
        Line(t + 10, "MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD\nwith errorcode 137."),
    ]


def _recovered() -> Iterable[Plan]:
    cases: tuple[tuple[Any, ...], ...] = (
        ("plain", PLAIN, {}, "full", (300,)),
        ("no-numbers", PLAIN, {"numbers": False}, "full", (300,)),
        ("module", MODULE, {}, "full", (250, 400, 550)),
        ("log-only", PLAIN, {}, "none", (300,)),
        ("log-only-often", RANK, {}, "none", tuple(range(200, 600, 40))),
        ("quiet-log-only", QUIET, {}, "none", (300,)),
        ("five", QUIET, {"numbers": False}, "five", (300, 500)),
        ("many-in-flight", MODULE, {"failed": 60}, "full", (300,)),
    )
    for suffix, voice, options, metrics, times in cases:
        name = f"recovered-{suffix}"
        yield _plan(
            name,
            "the assertion fails a batch and the loop goes on",
            healthy("assertion_recovered"),
            _world(name),
            voice,
            metrics=metrics,
            extra=lambda histories, voice=voice, options=options, times=times: [
                line for t in times for line in voice.overshoot(T0 + t, voice.budget + 1 + t % 7, dies=False, **options)
            ],
        )
    name = "recovered-then-idle"
    yield _plan(
        name,
        "the assertion fails the last batch of a job, then there is no more work",
        healthy("assertion_recovered"),
        _world(name, seconds=1800, cut_off=300, faults=[Fault("abort_all", 301)]),
        extra=lambda histories: PLAIN.overshoot(T0 + 301, 4100, dies=False),
    )
    name = "recovered-at-low-load"
    yield _plan(
        name,
        "one request a minute; the assertion fails one of them, the next comes a minute later and succeeds",
        healthy("assertion_recovered"),
        _world(
            name,
            seconds=1800,
            rate=0.0,
            requests=[(n, 900, 200) for n in range(10, 1750, 60)],
            faults=[Fault("abort_all", 612)],
        ),
        extra=lambda histories: PLAIN.overshoot(T0 + 612, 4100, dies=False, failed=1),
    )
    name = "other-forward-errors"
    yield _plan(
        name,
        "forward errors of other kinds, each failing its batch only",
        healthy("assertion_recovered", "request_rejected"),
        _world(name),
        extra=lambda histories: [
            line
            for t in (200, 350, 500)
            for line in (
                PLAIN.say(
                    T0 + t,
                    "E",
                    "Encountered an error in forward function: The size of tensor a (17) must match the size of "
                    "tensor b (16) at non-singleton dimension 0",
                ),
                PLAIN.say(
                    T0 + t,
                    "E",
                    "Encountered an error in sampling: index 4 is out of bounds for dimension 0 with size 4",
                ),
            )
        ],
    )


def _stalls() -> Iterable[Plan]:
    name = "blocked-metrics-only"
    yield _plan(
        name,
        "a step never returns, no line says so",
        stalled(*STALL, confidence="confirmed"),
        _world(name, faults=[Fault("blocked", 300)]),
        log=False,
        interval=10,
    )
    name = "blocked-iterations-stop"
    yield _plan(
        name,
        "iteration lines stop with thirty scheduled; metrics agree",
        stalled(*STALL),
        _world(name, faults=[Fault("blocked", 300)]),
        interval=15,
    )
    name = "iterations-end"
    yield _plan(
        name,
        "iteration lines stop with requests scheduled; nothing says that these were not the last",
        healthy(),
        _world(name, seconds=310, rate=3.0, faults=[Fault("blocked", 300)]),
        metrics="none",
        until=900,
    )
    name = "hang-detector"
    yield _plan(
        name,
        "the engine's own detector speaks after 300 s; the signals were sooner",
        stalled(*HANG, "engine_dead"),
        _world(name, faults=[Fault("blocked", 200)]),
        MODULE,
        extra=_hang,
    )
    name = "hang-detector-log-only"
    yield _plan(
        name,
        "the same in the log alone",
        stalled(*HANG, "engine_dead", patience=340.0),
        _world(name, faults=[Fault("blocked", 200)]),
        replace(MODULE, iterations=False),
        metrics="none",
        extra=_hang,
    )
    name = "nothing-fits"
    yield _plan(
        name,
        "the old loop's own assertion: nothing can be scheduled",
        stalled("kv_cache_deadlock", "token_budget_deadlock", patience=60.0),
        _world(name, faults=[Fault("dead", 300)]),
        extra=lambda histories: PLAIN.loop_ends(
            T0 + 300, "fail to schedule any pending request, probably run out of resource.", "AssertionError"
        ),
    )
    name = "nothing-fits-log-only"
    yield _plan(
        name,
        "the same in the log alone",
        stalled("kv_cache_deadlock", "token_budget_deadlock", patience=60.0),
        _world(name, faults=[Fault("dead", 300)]),
        RANK,
        metrics="none",
        extra=lambda histories: RANK.loop_ends(
            T0 + 300, "fail to schedule any pending request, probably run out of resource.", "AssertionError"
        ),
    )
    name = "v2-scheduler-deadlock"
    yield _plan(
        name,
        "the second cache manager's scheduler finds its own deadlock",
        stalled("kv_cache_deadlock", "token_budget_deadlock", patience=60.0),
        _world(name, faults=[Fault("dead", 300)]),
        MODULE,
        metrics="none",
        extra=lambda histories: MODULE.loop_ends(
            T0 + 300,
            "V2 scheduler deadlock: 12 generation request(s) active but none could be scheduled or evicted for 1000 "
            "iterations.",
        ),
    )
    for metrics in ("full", "none"):
        name = "disagg-nothing-fits" + ("-log-only" if metrics == "none" else "")
        yield _plan(
            name,
            "disaggregated: one warning a pass, for ever, that nothing fits",
            stalled("transfer_stall", "kv_cache_deadlock", patience=200.0),
            _world(name, faults=[Fault("spin", 300)]),
            QUIET,
            metrics=metrics,
            extra=lambda histories: [
                QUIET.say(
                    T0 + 300 + n,
                    "W",
                    "num_fitting_reqs=0 and fitting_disagg_gen_init_requests is empty, may not have enough kvCache",
                )
                for n in range(390)
            ],
        )
    name = "scheduled-none-debug"
    yield _plan(
        name,
        "at debug level each pass says that nothing of twelve requests was scheduled",
        stalled(*ADMISSION, patience=200.0),
        _world(name, faults=[Fault("spin", 300)]),
        metrics="none",
        extra=lambda histories: [
            PLAIN.say(
                T0 + 300 + n,
                "V",
                f"has {12 + n // 9} active_request, scheduled 0 context requests and 0 generation requests",
            )
            for n in range(390)
        ],
    )
    name = "queue-grows"
    yield _plan(
        name,
        "nothing is admitted any more, gauges live",
        stalled(*ADMISSION),
        _world(name, faults=[Fault("admission", 300)]),
        QUIET,
        interval=10,
    )
    name = "rare-load"
    yield _plan(
        name,
        "a request in two minutes; one of them hangs",
        stalled(*STALL, early=3.0),
        _world(
            name,
            seconds=2400,
            rate=0.0,
            requests=[(n, 900, 1500) for n in range(10, 2300, 120)],
            faults=[Fault("blocked", 1815)],
        ),
        QUIET,
        interval=15,
    )


def _hang(histories: Sequence[History]) -> list[Line]:
    return [
        MODULE.say(T0 + 500, "E", "Hang detected after 300 seconds."),
        MODULE.say(
            T0 + 500,
            "E",
            'Thread 140213 (_event_loop_wrapper):\n  File "/opt/trt/py_executor.py", line 2440, in '
            "_executor_loop_overlap\n    torch.cuda.synchronize()",
        ),
        MODULE.say(T0 + 501, "E", "Hang detected on rank 0 in PyExecutor; hard-killing and propagating to peer ranks."),
    ]


def _deaths() -> Iterable[Plan]:
    def case(
        name: str, why: str, names: tuple[str, ...], lines: list[Line], voice: Voice = PLAIN, metrics: str = "none"
    ) -> Plan:
        return _plan(
            name,
            why,
            dead(*names),
            _world(name, faults=[Fault("dead", 300)]),
            voice,
            metrics=metrics,
            extra=lambda histories: lines,
        )

    yield case(
        "loop-ends-otherwise",
        "the loop dies of an error of its own",
        ("engine_dead", "crash"),
        PLAIN.loop_ends(T0 + 300, "vector::_M_default_append"),
    )
    yield case(
        "loop-ends-on-ranks",
        "the same on four of eight ranks",
        ("engine_dead", "crash"),
        [
            line
            for rank in (5, 7, 0, 3)
            for line in RANK.loop_ends(T0 + 300 + rank / 10, "vector::_M_default_append", "ValueError", rank)
        ],
        RANK,
        "full",
    )
    yield case(
        "mamba-blocks",
        "the loop dies for want of mamba blocks",
        ("engine_dead", "kv_cache_deadlock"),
        MODULE.loop_ends(T0 + 300, "run out of mamba cache blocks"),
        MODULE,
    )
    yield case(
        "error-budget",
        "the error budget is spent: shutdown, and 503 for ever",
        ("engine_dead",),
        [
            MODULE.say(T0 + 300, "E", "Encountered an error in forward function: NCCL error: unhandled system error"),
            MODULE.say(T0 + 300, "E", "Error budget exhausted (budget=-0.100), treating as fatal"),
            MODULE.say(T0 + 301, "E", "Fatal error detected, initiating shutdown: NCCL error: unhandled system error"),
            MODULE.say(T0 + 301, "E", "Drained 7 queued requests on fatal error"),
        ],
        MODULE,
    )
    yield case(
        "out-of-memory",
        "the device's memory is full and the loop dies of it",
        ("out_of_memory",),
        [
            PLAIN.say(
                T0 + 300,
                "E",
                "Encountered an error in forward function: CUDA out of memory. Tried to allocate 1.20 GiB. GPU 0 "
                "has a total capacity of 31.36 GiB",
            ),
            *PLAIN.loop_ends(T0 + 300.5, "Sampling failed", "AssertionError"),
        ],
        metrics="full",
    )
    yield case(
        "rank-killed",
        "a rank crashes and takes the others",
        ("engine_dead", "crash"),
        [
            *MODULE.loop_ends(T0 + 300, "CUDA error: an illegal memory access was encountered"),
            *_killed(MODULE, T0 + 301),
        ],
        MODULE,
    )


def _healthy() -> Iterable[Plan]:
    name = "idle"
    yield _plan(name, "no request", healthy(), _world(name, seconds=3600, rate=0.0), interval=30)
    name = "batch-then-idle"
    yield _plan(
        name,
        "a batch is done, nothing follows; no iteration lines",
        healthy("overload"),
        _world(name, seconds=2400, rate=0.0, requests=[(20, 800, 300)] * 300),
        QUIET,
    )
    name = "five-metrics-bursts"
    yield _plan(
        name,
        "1.1: only finished requests are counted; bursts and silence",
        healthy(),
        _world(name, seconds=3600, rate=bursts(60, 300, 1.5)),
        QUIET,
        metrics="five",
        interval=10,
    )
    name = "overload"
    yield _plan(
        name,
        "twice what it can do for half an hour",
        healthy("overload"),
        _world(name, seconds=2100, rate=steps((0, 0.8), (200, 4.0)), output=(400, 900)),
        interval=10,
    )
    name = "serialised-by-a-reservation"
    yield _plan(
        name,
        "a request with a huge limit reserves the cache, the others go one by one, slowly",
        healthy("overload"),
        _world(name, seconds=1800, rate=0.25, max_running=1, decode_rate=40.0, output=(100, 200), prompt=(100, 300)),
        interval=10,
    )
    name = "long-answers"
    yield _plan(
        name,
        "twelve answers of half an hour: counters of finished requests stand, cache use climbs",
        healthy(),
        _world(name, seconds=2400, rate=0.0, requests=[(5, 400, 60_000)] * 12, pool=2_000_000),
        QUIET,
        interval=10,
    )
    name = "long-prefill"
    yield _plan(
        name,
        "a prompt of 900,000 tokens",
        healthy("overload"),
        _world(name, seconds=1200, rate=0.05, pool=2_000_000, prefill_rate=3000, requests=[(300, 900_000, 100)]),
        interval=15,
    )
    name = "restarts"
    yield _plan(
        name,
        "two rollouts",
        healthy("slow_start"),
        _world(name, seconds=2400, faults=[Fault("restart", 700, 790), Fault("restart", 1500, 1590)]),
        interval=10,
    )
    name = "benign-lines"
    yield _plan(
        name,
        "warnings and errors without meaning, by the dozen",
        healthy(),
        _world(name),
        extra=lambda histories: [PLAIN.say(T0 + 20 + 3 * n, *BENIGN[n % len(BENIGN)]) for n in range(200)],
    )
    name = "too-long-prompts"
    yield _plan(
        name,
        "prompts longer than the budget are rejected, one by one",
        healthy("request_rejected"),
        _world(name),
        metrics="none",
        extra=lambda histories: [
            PLAIN.say(
                T0 + 50 + 40 * n,
                "E",
                'Traceback (most recent call last):\n  File "/opt/trt/serve/openai_server.py", line 388, in '
                "openai_chat\n    promise = self.llm.generate_async(\n"
                f"ValueError: The sum of prompt length ({9351 + n}.0), query length (0) should not exceed "
                f"max_num_tokens (4096)",
                module="serve",
            )
            for n in range(12)
        ],
    )
    for era in (PLAIN, MODULE):
        name = f"hostile-prompts-{era.era}"
        yield _plan(
            name,
            "users quote every line that we look for",
            healthy(),
            _world(name, rate=0.5),
            replace(era, prompts=PROMPTS),
        )
    name = "capture-at-start"
    yield _plan(
        name,
        "seven minutes of graph capture and tuning before it is ready",
        healthy("slow_start"),
        _world(name),
        replace(PLAIN, startup=430),
        metrics="none",
        extra=lambda histories: [
            PLAIN.say(T0 - 300 + 10 * n, "I", f"Running CUDA graph warmup for batch size={128 - 4 * n}, draft_len=0")
            for n in range(28)
        ],
    )
    name = "mass-abort"
    yield _plan(
        name,
        "everyone leaves at once, late cancels are logged as errors, idle",
        healthy(),
        _world(name, seconds=1800, cut_off=400, faults=[Fault("abort_all", 400)]),
        extra=lambda histories: [
            PLAIN.say(
                T0 + 401,
                "E",
                f"Received stop request for requestId {n} but it's not active (might be completed already).",
            )
            for n in range(30)
        ],
    )
    name = "scrape-gaps"
    yield _plan(
        name,
        "the page is lost for ten minutes",
        healthy(),
        _world(name, seconds=1500, faults=[Fault("scrape_gap", 400, 1000)]),
        QUIET,
    )
    name = "cut-after-forward-error"
    yield _plan(
        name,
        "the log ends with the forward error: it may have gone on",
        healthy("assertion_recovered"),
        _world(name),
        metrics="none",
        cut=301,
        extra=lambda histories: PLAIN.overshoot(T0 + 300, 4118, dies=False),
    )
    name = "disagg-warns-now-and-then"
    yield _plan(
        name,
        "disaggregated: a pass in which nothing fits, now and then, and a transfer that is late",
        healthy(),
        _world(name, rate=2.0),
        extra=lambda histories: [
            line
            for t in range(50, 650, 75)
            for line in (
                PLAIN.say(
                    T0 + t,
                    "W",
                    "num_fitting_reqs=0 and fitting_disagg_gen_init_requests is empty, may not have enough kvCache",
                ),
                PLAIN.say(T0 + t + 3, "W", "Timed out waiting for context KV cache transfer after 1000 milliseconds"),
            )
        ],
    )
