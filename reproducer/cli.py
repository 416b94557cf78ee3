"""The commands. Each is a few lines over a module of the same name."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .config import PROFILES, Config, ConfigError, preset
from .engine import AFTER_CRASH

__all__ = ["main"]

ABOUT = """\
A small inference engine whose scheduler really deadlocks under load. Use it to prove that your alerting works before
the night you need it, and that a cure cures. On a CPU everything below takes seconds to a minute or two.

Start here:
  python -m reproducer fingerprint --out out        make the wedge, keep its log and metrics
  wedgewatch scan --metrics out/metrics.om out/server.log

Look at it live:
  python -m reproducer serve --port 8000 --log server.log
  python -m reproducer load --url http://127.0.0.1:8000 --users 32

Four quantities are called "the token budget"; keep them apart:
  H  --hard-tokens   what fits one step's buffers; the assertion compares with it
  A  --step-tokens   how full the packer fills a step, by its own estimate
  N  --kv-blocks     the KV pool
  K  --kv-ceiling, --max-batch   how much may be claimed at once
Lowering A below H, or K, leaves room for claims to grow. Lowering a knob that is A and H at once leaves none.

Profiles (--profile):
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit 0: done; 1: the thing looked for was not reached; 2: usage."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if not hasattr(options, "run"):
        parser.print_help()
        return 2
    try:
        return int(options.run(options))
    except (ConfigError, ValueError, OSError) as error:
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

    serve = _command(commands, "serve", _serve, "run the engine behind an OpenAI-compatible port")
    _engine_options(serve)
    _serve_options(serve)
    serve.add_argument("--host", default="127.0.0.1")
    serve.add_argument("--port", type=int, default=8000, help="0 picks a free one")
    serve.add_argument("--log", type=Path, metavar="FILE", help="append stdout and stderr to this file")
    serve.add_argument("--announce", type=Path, metavar="FILE", help="write URL and pid here once it listens")

    load = _command(commands, "load", _load, "drive a server with users or with arrivals")
    load.add_argument("--url", required=True, help="base URL, for example http://127.0.0.1:8000")
    load.add_argument("--profile", choices=PROFILES, default="deadlock", help="whose traffic to send")
    load.add_argument("--users", type=int, default=0, help="closed loop: users who wait for their answer")
    load.add_argument("--rate", type=float, default=0.0, help="open loop: requests per second")
    load.add_argument(
        "--burstiness", type=float, default=1.0, help="open loop: gamma shape, 1 is Poisson, below bursts"
    )
    load.add_argument(
        "--trace", type=Path, help="open loop from a file: recorded here, Azure, Mooncake or BurstGPT columns"
    )
    load.add_argument("--speed", type=float, default=1.0, help="run a trace this many times faster")
    load.add_argument("--table", help="lengths from this table instead of the profile's traffic")
    load.add_argument("--seconds", type=float, default=60.0)
    load.add_argument("--timeout", type=float, default=3600.0, help="seconds after which a client gives up and leaves")
    load.add_argument("--max-total", type=int, default=384, help="cut outputs so that prompt and output fit this")
    load.add_argument("--record", type=Path, metavar="FILE", help="write what was sent, to run it again exactly")
    load.add_argument("--seed", type=int, default=0)

    find = _command(commands, "fingerprint", _fingerprint, "raise the load until it wedges; keep log, metrics, result")
    _engine_options(find)
    _serve_options(find)
    find.add_argument("--out", type=Path, required=True, metavar="DIR")
    find.add_argument("--level-seconds", type=float, default=6.0, help="how long each number of users is tried")
    find.add_argument("--after", type=float, default=45.0, metavar="SECONDS", help="go on watching after the wedge")
    find.add_argument("--interval", type=float, default=1.0, help="seconds between readings of the metrics page")
    return parser


def _command(commands: Any, name: str, run: Callable[[argparse.Namespace], int], about: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=about, description=about)
    parser.set_defaults(run=run)
    return parser


_KNOBS = {
    "hard_tokens": "H: tokens that fit one step",
    "step_tokens": "A: tokens up to which a step is packed",
    "kv_blocks": "N: blocks in the pool",
    "block_tokens": "tokens per block",
    "max_batch": "K: requests at once",
    "max_seq_len": "longest legal request",
    "max_draft": "longest draft",
    "link_blocks": "blocks that a transfer moves per step",
}


def _engine_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--profile", choices=PROFILES, default="draft")
    for knob, about in _KNOBS.items():
        parser.add_argument(f"--{knob.replace('_', '-')}", type=int, help=f"{about} (default: the profile's)")
    parser.add_argument("--kv-ceiling", type=float, help="K: share of the pool that admission may fill")
    parser.add_argument("--seed", type=int, default=0)


def _serve_options(parser: argparse.ArgumentParser) -> None:
    from .voice import VOICES

    parser.add_argument("--dialect", choices=VOICES, help="whose log lines and metrics (default: the profile's)")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--large", action="store_true", help="a model and pool that fill a large share of a card")
    eras = "; ".join(f"{name}: {about}" for name, about in AFTER_CRASH.items())
    parser.add_argument("--after-crash", choices=AFTER_CRASH, help=f"what follows the assertion, by era. {eras}")
    parser.add_argument("--nothing-fits", choices=("spin", "assert"), default="spin", help="assert: as in 2025")
    parser.add_argument("--print-iter-log", action="store_true", help="one INFO line for each step (TensorRT-LLM)")
    parser.add_argument(
        "--gauge-mode", choices=("step", "live"), default="step", help="step: gauges as the last step left them"
    )
    parser.add_argument("--cache", type=Path, help="folder for trained weights")


def config_from(options: argparse.Namespace) -> Config:
    names = [*_KNOBS, "kv_ceiling"]
    given = {name: getattr(options, name) for name in names if getattr(options, name, None) is not None}
    return preset(options.profile, seed=options.seed, **given)


def serve_arguments(options: argparse.Namespace) -> list[str]:
    """The engine options again, for a server in a process of its own."""
    words: list[str] = ["--profile", options.profile, "--seed", str(options.seed)]
    for name in [*_KNOBS, "kv_ceiling", "dialect", "device", "after_crash", "nothing_fits", "gauge_mode", "cache"]:
        if getattr(options, name, None) is not None:
            words += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    return words + [f"--{n.replace('_', '-')}" for n in ("large", "print_iter_log") if getattr(options, n, False)]


def _serve(options: argparse.Namespace) -> int:
    config = config_from(options)
    if options.log:
        to = os.open(options.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(to, 1)
        os.dup2(to, 2)  # tracebacks that a runtime prints belong to a server's log, too
    from .build import build, device_report
    from .server import Server

    built = build(
        config,
        sys.stdout,
        voice=options.dialect,
        device=options.device,
        large=options.large,
        after_crash=options.after_crash,
        nothing_fits=options.nothing_fits,
        print_iterations=options.print_iter_log,
        gauge_mode=options.gauge_mode,
        cache=options.cache,
        say=lambda line: print(line, file=sys.stderr, flush=True),
    )
    server = Server(
        built.engine, built.voice, host=options.host, port=options.port, device=lambda: device_report(built)
    )
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    server.start()
    if options.announce:
        where = {"url": server.url, "metrics_url": server.metrics_url, "pid": os.getpid()}
        unfinished = options.announce.with_suffix(".part")
        unfinished.write_text(json.dumps(where))
        unfinished.replace(options.announce)
    over.wait()
    server.stop()
    sys.stdout.flush()
    os._exit(1 if built.engine.down else 0)  # connections that wait for a dead loop would hold an ordinary exit


def _load(options: argparse.Namespace) -> int:
    from .lengths import Lengths
    from .load import Load, arrivals
    from .trace import read_trace
    from .users import Population, population_for, write_load

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
        load.open(read_trace(options.trace, population, speed=options.speed))
    _watch(load, options.seconds)
    load.stop()
    if options.record:
        write_load(options.record, load.asked)
    return 0


def _watch(load: Any, seconds: float) -> None:
    """The progress of a load: a line that renews itself on a terminal, or one every ten seconds elsewhere."""
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

    config = config_from(options)
    result = fingerprint(
        config,
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
    zone = "" if time.localtime().tm_gmtoff == 0 else f"--timezone {time.strftime('%z')} "
    print(
        f"\nwedged ({wedge['mode']}) with {wedge['users']} users after {wedge['seconds']} s, "
        f"{result['completed']} requests completed before; since then {wedge['accepted_since']} accepted, "
        f"{wedge['completed_since']} completed, /health says {wedge['http_after']['/health']}\n"
        f"wedgewatch scan {zone}--metrics {options.out}/metrics.om {options.out}/server.log"
    )
    return 0


def bar(share: float, width: int = 24) -> str:
    full = round(max(0.0, min(1.0, share)) * width)
    return f"[{'#' * full}{'.' * (width - full)}]"


def teller(seconds: float) -> Callable[[str], None]:
    """A printer of progress to stderr: renews one line on a terminal, else prints at most every ``seconds``."""
    last = [float("-inf")]

    def tell(line: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
        elif time.monotonic() - last[0] >= seconds:
            last[0] = time.monotonic()
            print(line, file=sys.stderr, flush=True)

    return tell
