"""The commands. Each is a few lines over a module of the same name."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from .config import CONTROLS
from .console import bar, teller
from .options import config_from, serve_arguments
from .usage import command_line

if TYPE_CHECKING:
    from .load import Load
    from .simulate import Outcome

__all__ = ["main"]

_USERS: Final = {"draft": 27, "reuse": 9, "deadlock": 18, "prefill": 18, "oversize": 8, "transfer": 8}


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit 0: done; 1: what was looked for was not reached, or a server wedged; 2: usage or input."""
    parser = command_line(_RUNS)
    options = parser.parse_args(arguments)
    if not hasattr(options, "run"):
        parser.print_help()
        return 2
    try:
        return int(options.run(options))
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
        print(f"reproducer {options.command}: {what}", file=sys.stderr)
        return 2
    except (ValueError, RuntimeError) as error:
        print(f"reproducer {options.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


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
    return 0 if load.completed else 1


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
    why = f"; the last that failed: {load.trouble}" if load.failed else ""
    print(
        f"\n{load.completed} completed, {load.failed} failed, {load.in_flight} without an answer yet{why}",
        file=sys.stderr,
    )


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
        why = "it is a control, and never does" if options.profile in CONTROLS else "raise it (--level-seconds)"
        print(f"\nno wedge within the load offered; {why}", file=sys.stderr)
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

    if options.plot and not options.plot.absolute().parent.is_dir():
        raise ValueError(f"--plot {options.plot}: there is no such folder")
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
        if options.yes:
            return True
        try:
            return input("Type yes to start: ").strip().lower() == "yes"
        except EOFError:
            raise ValueError("there is nobody to say yes; --yes starts without asking") from None

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
    from .lengths import Lengths
    from .record import Arrival, record, record_asks, recorded
    from .users import write_load

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


_RUNS: Final[dict[str, Callable[[argparse.Namespace], int]]] = {
    "serve": _serve,
    "load": _load,
    "fingerprint": _fingerprint,
    "threshold": _threshold,
    "replay": _replay,
    "advise": _advise,
    "verify": _verify,
    "record": _record,
    "accident": _accident,
    "scenario": _scenario,
    "bandwidth": _bandwidth,
    "matrix": _matrix,
}
