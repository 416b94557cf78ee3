"""The commands. Each is a few lines over a module of the same name."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .config import PROFILES
from .console import bar, teller
from .options import config_from, engine_options, serve_arguments, serve_options

if TYPE_CHECKING:
    from .load import Load
    from .simulate import Outcome

__all__ = ["main"]

ABOUT = """\
A small inference engine whose scheduler really deadlocks under load. Use it to prove that your alerting works before
the night you need it, and that a cure cures. On a CPU everything below takes seconds to a few minutes.

Start here:
  python -m reproducer fingerprint --out out        make the wedge, keep its log and metrics
  wedgewatch scan --metrics out/metrics.om out/server.log

Look at it live:
  python -m reproducer serve --port 8000 --log server.log
  python -m reproducer load --url http://127.0.0.1:8000 --users 32

Ask it questions (no model, no GPU, seconds):
  python -m reproducer threshold --profile deadlock    at which load does it begin?
  python -m reproducer replay --profile draft          is it contention, or one bad request?
  python -m reproducer advise --profile deadlock       which ceiling is safe, and what does it cost?

Against your own server (a replica without users):
  python -m reproducer record access.log --out load.jsonl
  python -m reproducer verify --url http://replica:8000 --load load.jsonl --metrics http://replica:8000/metrics

Four quantities are called "the token budget"; keep them apart:
  H  --hard-tokens   what fits one step's buffers; the assertion compares with it
  A  --step-tokens   how full the packer fills a step, by its own estimate
  N  --kv-blocks     the KV pool
  K  --kv-ceiling, --max-batch   how much may be claimed at once
Lowering A below H, or K, leaves room for claims to grow. Lowering a knob that is A and H at once leaves none.

Profiles (--profile):
"""
_USERS: Final = {"draft": 27, "reuse": 9, "deadlock": 18, "prefill": 18, "oversize": 8, "transfer": 8}


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit 0: done; 1: what was looked for was not reached, or a server wedged; 2: usage or input."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if not hasattr(options, "run"):
        parser.print_help()
        return 2
    try:
        return int(options.run(options))
    except (ValueError, OSError, RuntimeError) as error:
        print(f"reproducer {options.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    profiles = "\n".join(f"  {name:9} {profile.about}" for name, profile in PROFILES.items())
    parser = argparse.ArgumentParser(
        prog="python -m reproducer",
        description=ABOUT + profiles,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], int], about: str) -> argparse.ArgumentParser:
        added: argparse.ArgumentParser = commands.add_parser(name, help=about, description=about)
        added.set_defaults(run=run)
        return added

    serve = command("serve", _serve, "run the engine behind an OpenAI-compatible port")
    serve.add_argument("--host", default="127.0.0.1")
    serve.add_argument("--port", type=int, default=8000, help="0 picks a free one")
    serve.add_argument("--log", type=Path, metavar="FILE", help="append stdout and stderr to this file")
    serve.add_argument("--announce", type=Path, metavar="FILE", help="write URL and pid here once it listens")
    engine_options(serve)
    serve_options(serve)

    _load_options(command("load", _load, "drive a server with users or with arrivals"))

    find = command("fingerprint", _fingerprint, "raise the load until it wedges; keep log, metrics and result")
    find.add_argument("--out", type=Path, required=True, metavar="DIR")
    find.add_argument("--level-seconds", type=float, default=6.0, help="how long each number of users is tried")
    find.add_argument("--after", type=float, default=45.0, metavar="SECONDS", help="go on watching after the wedge")
    find.add_argument("--interval", type=float, default=1.0, help="seconds between readings of the metrics page")
    engine_options(find)
    serve_options(find)

    onset = command("threshold", _threshold, "the load at which it begins, with its uncertainty")
    onset.add_argument("--steps", type=int, default=3000, help="steps of one run")
    onset.add_argument("--runs", type=int, default=12, help="runs at each level around the onset")
    onset.add_argument("--plot", type=Path, metavar="PNG", help="draw the curve")
    onset.add_argument("--json", action="store_true")
    engine_options(onset)

    again = command("replay", _replay, "two-sided headroom replay: is it contention?")
    again.add_argument("--users", type=int, help="users at once (default: well above the profile's onset)")
    again.add_argument("--load", type=Path, metavar="FILE", help="a recorded load instead")
    again.add_argument(
        "--step-ms", type=float, default=10.0, help="milliseconds of a step, for arrivals in a load file"
    )
    again.add_argument("--seeds", type=int, default=10)
    again.add_argument("--steps", type=int, default=3000)
    again.add_argument("--live", action="store_true", help="end to end over HTTP instead of without a model")
    again.add_argument("--seconds", type=float, default=15.0, help="length of a live run")
    again.add_argument("--json", action="store_true")
    engine_options(again)

    advice = command("advise", _advise, "the ceilings that are safe, and what they cost")
    advice.add_argument("--users", type=int, help="users at once to be survived")
    advice.add_argument("--chance", type=float, default=0.05, help="tolerated chance of a wedge per run")
    advice.add_argument("--confidence", type=float, default=0.95)
    advice.add_argument("--steps", type=int, default=2000)
    advice.add_argument("--json", action="store_true")
    engine_options(advice)

    _verify_options(
        command("verify", _verify, "a recorded load against a real server, watched, stopped at a first sign")
    )

    keep = command("record", _record, "an access log, engine log or metrics history as a load file")
    keep.add_argument("source", type=Path, nargs="+", help="log files, or .om for OpenMetrics with timestamps")
    keep.add_argument("--out", type=Path, required=True, metavar="FILE")
    keep.add_argument("--table", default="azure-conv", help="for lengths that the source does not tell")
    keep.add_argument("--prompt-scale", type=float, default=1.0)
    keep.add_argument("--output-scale", type=float, default=1.0)
    keep.add_argument("--max-prompt", type=int, default=8192)
    keep.add_argument("--max-output", type=int, default=1024)
    keep.add_argument("--year", type=int, help="of stamps that carry none (default: of the file)")

    from .accidents import ACCIDENTS

    mishap = command("accident", _accident, "the siblings: what looks like a wedge and is something else")
    mishap.add_argument(
        "name", choices=ACCIDENTS, help="; ".join(f"{name}: {text}" for name, text in ACCIDENTS.items())
    )
    mishap.add_argument("--out", type=Path, required=True, metavar="DIR")
    mishap.add_argument("--seconds", type=float, default=60.0)
    mishap.add_argument("--dialect", default="vllm")

    from .siblings import SCENARIOS

    world = command("scenario", _scenario, "ten virtual minutes of a server, in seconds: log and metrics")
    world.add_argument("name", choices=SCENARIOS)
    world.add_argument("--out", type=Path, required=True, metavar="DIR")
    world.add_argument("--seed", type=int, default=0)

    speed = command("bandwidth", _bandwidth, "decode bandwidth against the memory's copy bandwidth")
    speed.add_argument("--rows", type=int, default=16)
    speed.add_argument("--context", type=int, default=64)
    engine_options(speed)
    serve_options(speed)

    from .matrix import SECTIONS

    table = command("matrix", _matrix, "measure everything that docs/reproducer.md states")
    table.add_argument("section", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)} (default: all)")
    table.add_argument("--quick", action="store_true", help="fewer seeds, for a look")
    table.add_argument("--write", type=Path, metavar="MD", help="put the tables into this file, between its markers")
    table.add_argument("--plot", type=Path, metavar="PNG", help="draw the onset curves")
    return parser


def _load_options(load: argparse.ArgumentParser) -> None:
    load.add_argument("--url", required=True, help="base URL, for example http://127.0.0.1:8000")
    load.add_argument("--profile", choices=PROFILES, default="deadlock", help="whose traffic to send")
    load.add_argument("--users", type=int, default=0, help="closed loop: users who wait for their answer")
    load.add_argument("--rate", type=float, default=0.0, help="open loop: requests per second")
    load.add_argument(
        "--burstiness", type=float, default=1.0, help="gamma shape of the gaps: 1 is Poisson, below bursts"
    )
    load.add_argument("--trace", type=Path, help="a load file, or a trace in Azure, Mooncake or BurstGPT columns")
    load.add_argument("--speed", type=float, default=1.0, help="run a trace this many times faster")
    load.add_argument("--table", help="lengths from this table instead of the profile's traffic")
    load.add_argument("--seconds", type=float, default=60.0)
    load.add_argument("--timeout", type=float, default=3600.0, help="seconds after which a client gives up and leaves")
    load.add_argument("--max-total", type=int, default=384, help="cut outputs so that prompt and output fit this")
    load.add_argument("--record", type=Path, metavar="FILE", help="write what was sent, to run it again exactly")
    load.add_argument("--seed", type=int, default=0)


def _verify_options(check: argparse.ArgumentParser) -> None:
    check.add_argument("--url", required=True, help="base URL of an OpenAI-compatible server")
    check.add_argument(
        "--load", type=Path, required=True, metavar="FILE", help="what to send; see record and load --record"
    )
    check.add_argument("--model", default="any", help="model name to ask for")
    check.add_argument("--metrics", metavar="URL", help="the server's metrics page, for wedgewatch beside it")
    check.add_argument("--server-log", type=Path, action="append", default=[], metavar="FILE")
    check.add_argument("--engine", default="auto", help="engine id, for wedgewatch")
    check.add_argument("--seconds", type=float, default=300.0, help="send for at most this long")
    check.add_argument("--requests", type=int, default=2000, help="send at most so many")
    check.add_argument("--at-once", type=int, default=256, help="at most so many open")
    check.add_argument("--silence", type=float, default=60.0, help="seconds without any answer that count as a sign")
    check.add_argument("--yes", action="store_true", help="do not ask before it starts")
    check.add_argument("--json", action="store_true")


def _serve(options: argparse.Namespace) -> int:
    from .serve import serve

    return serve(options)


def _load(options: argparse.Namespace) -> int:
    from .lengths import Lengths
    from .load import Load, arrivals
    from .trace import read_trace
    from .users import Population, Recorded, population_for, write_load

    population = population_for(options.profile, options.max_total, options.seed)
    if options.table:
        population = Population(Lengths(options.table, max_prompt=options.max_total * 3 // 4), options.seed)
    if not (options.users or options.rate or options.trace):
        raise ValueError("say what to send: --users N, --rate R or --trace FILE")
    load = Load(options.url, timeout=options.timeout, max_total=options.max_total)
    if options.users:
        load.closed(population, options.users)
    if options.rate:
        load.open(arrivals(population, options.rate, options.seconds, burstiness=options.burstiness, seed=options.seed))
    if options.trace:
        asks = read_trace(options.trace, population, speed=options.speed)
        if any(ask.at is not None for ask in asks):
            load.open(asks)
        else:
            load.closed(Recorded(tuple(asks)), Recorded(tuple(asks)).users)
    _watch(load, options.seconds)
    load.stop()
    if options.record:
        write_load(options.record, load.asked)
    return 0


def _watch(load: Load, seconds: float) -> None:
    """The progress of a load, until its time is over."""
    tell = teller(10.0)
    end = time.monotonic() + seconds
    last = 0
    while (left := end - time.monotonic()) > 0:
        done = load.completed
        tell(
            f"{bar(1 - left / seconds)} {done} completed ({done - last}/s), {load.failed} failed, {load.in_flight} open"
        )
        last = done
        time.sleep(min(1.0, left))
    print(f"\n{load.completed} completed, {load.failed} failed, {load.in_flight} never answered", file=sys.stderr)


def _fingerprint(options: argparse.Namespace) -> int:
    from .fingerprint import fingerprint

    result = fingerprint(
        config_from(options),
        options.out,
        serve_arguments=serve_arguments(options),
        level_seconds=options.level_seconds,
        after_seconds=options.after,
        interval=options.interval,
        tell=teller(5.0),
    )
    wedge = result["wedge"]
    if not wedge:
        print("\nno wedge within the load offered; raise it (--level-seconds) or lower the pool", file=sys.stderr)
        return 1
    zone = "" if time.localtime().tm_gmtoff == 0 else f"--timezone {datetime.now().astimezone().strftime('%z')} "
    print(
        f"\nwedged ({wedge['mode']}) with {wedge['users']} users after {wedge['seconds']} s, "
        f"{result['completed']} requests completed before; since then {wedge['accepted_since']} accepted, "
        f"{wedge['completed_since']} completed, /health says {wedge['http_after']['/health']}\n"
        f"wedgewatch scan {zone}--metrics {options.out}/metrics.om {options.out}/server.log"
    )
    return 0


def _threshold(options: argparse.Namespace) -> int:
    from .threshold import onset, plot

    curve = onset(config_from(options), steps=options.steps, runs=options.runs, tell=teller())
    print(json.dumps(curve.to_json()) if options.json else f"\n{curve.sentence()}")
    if options.plot and curve.c50 == curve.c50:
        plot([curve], options.plot)
    return 0 if curve.c50 == curve.c50 else 1


def _replay(options: argparse.Namespace) -> int:
    from .live import run_live
    from .replay import replay
    from .users import Recorded, read_load

    config = config_from(options)
    load = Recorded(tuple(read_load(options.load))) if options.load else None
    users = options.users or (load.users if load else _USERS.get(config.profile, 24))

    def live(changed: Any, count: int, seed: int) -> Outcome:
        return run_live(changed, count, seed, seconds=options.seconds, population=load, traffic=config.profile)

    result = replay(
        config,
        users,
        seeds=options.seeds,
        steps=options.steps,
        load=load,
        step_ms=options.step_ms,
        run=live if options.live else None,
        tell=teller(),
    )
    result.unit = "ms" if options.live else "steps"
    if options.json:
        print(json.dumps(result.to_json()))
    else:
        print(f"\n{users} users, profile {config.profile}\n\n{result.table()}\n\n{result.answer}")
    return 0 if result.verdict in ("contention", "single request") else 1


def _advise(options: argparse.Namespace) -> int:
    from .advise import advise

    config = config_from(options)
    users = options.users or _USERS.get(config.profile, 24)
    advices = advise(
        config, users, chance=options.chance, confidence=options.confidence, steps=options.steps, tell=teller()
    )
    if options.json:
        print(json.dumps([advice.to_json() for advice in advices]))
    else:
        print(f"\nfor {users} users at once, profile {config.profile}, one of these is enough:")
        for advice in advices:
            print(f"  {advice.sentence()}")
    return 0


def _verify(options: argparse.Namespace) -> int:
    from .users import read_load
    from .verify import Limits, verify

    def confirm(plan: str) -> bool:
        print(plan, file=sys.stderr)
        return options.yes or input("Type yes to start: ").strip().lower() == "yes"

    words = ["--engine", options.engine]
    words += ["--metrics", options.metrics] if options.metrics else []
    for path in options.server_log:
        words += ["--log", str(path)]
    verdict = verify(
        options.url,
        read_load(options.load),
        model=options.model,
        confirm=confirm,
        daemon=words if options.metrics or options.server_log else None,
        limits=Limits(options.seconds, options.requests, options.at_once, options.silence),
        tell=teller(),
    )
    print(json.dumps(verdict.to_json()) if options.json else f"\n{verdict.sentence()}")
    return 0 if verdict.outcome == "survived" else 1


def _record(options: argparse.Namespace) -> int:
    from .lengths import TABLES, Lengths
    from .record import Arrival, record, record_asks, recorded
    from .users import write_load

    if options.table not in TABLES:
        raise ValueError(f"no table {options.table!r}; there are {', '.join(TABLES)}")
    arrivals: list[Arrival] = []
    for path in options.source:
        year = options.year or datetime.fromtimestamp(path.stat().st_mtime, UTC).year
        if path.suffix == ".om":
            arrivals += recorded(path.read_text(encoding="utf-8", errors="replace"))
        else:
            with path.open(encoding="utf-8", errors="replace") as lines:
                arrivals += record(lines, year=year, table=options.table)
    if not arrivals:
        raise ValueError(
            f"no request found in {', '.join(map(str, options.source))}; docs/reproducer.md says what is read"
        )
    arrivals.sort(key=lambda arrival: arrival.at)
    lengths = Lengths(options.table, options.prompt_scale, options.output_scale, options.max_prompt, options.max_output)
    asks = record_asks(arrivals, lengths)
    write_load(options.out, asks)
    told = sum(1 for arrival in arrivals if arrival.prompt is not None)
    print(
        f"{len(asks)} requests over {asks[-1].at:.0f} s; lengths of {told} found, "
        f"of the rest drawn from {options.table}"
    )
    return 0


def _accident(options: argparse.Namespace) -> int:
    from .accidents import accident

    state = accident(options.name, options.out, seconds=options.seconds, voice=options.dialect, tell=teller())
    keys = ("started", "health", "loop_alive", "down", "completed", "running", "waiting", "preemptions")
    print("\n" + ", ".join(f"{key}: {state[key]}" for key in keys if key in state))
    return 0


def _scenario(options: argparse.Namespace) -> int:
    from .siblings import SCENARIOS

    scenario = SCENARIOS[options.name]
    world = scenario.build(options.seed).run(scenario.minutes)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "server.log").write_text(world.log())
    (options.out / "metrics.om").write_text(world.metrics())
    print(json.dumps({"scenario": options.name, "about": scenario.about, **world.summary()}))
    return 0


def _bandwidth(options: argparse.Namespace) -> int:
    import io

    from .bandwidth import decode_bandwidth
    from .build import build, device_report

    built = build(config_from(options), io.StringIO(), device=options.device, large=options.large, cache=options.cache)
    measured = decode_bandwidth(built.runner, built.engine.config, rows=options.rows, context=options.context)
    print(json.dumps({**device_report(built), **measured.to_json()}, indent=2))
    return 0


def _matrix(options: argparse.Namespace) -> int:
    from .matrix import matrix

    return matrix(options.section, quick=options.quick, write=options.write, plot_to=options.plot, tell=teller(10.0))
