"""What ``python -m reproducer`` understands, and what ``--help`` teaches."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from .amounts import address, count, natural, port, positive, share
from .config import PROFILES
from .lengths import TABLES
from .options import engine_options, serve_options
from .voice import VOICES

__all__ = ["command_line"]

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

TEACHING: Final[dict[str, str]] = {
    "serve": """\
Speaks the OpenAI API (/v1/completions, /v1/chat/completions with streaming, /v1/models), /health, and metrics and log
lines of the engine whose voice it has (--dialect). GET /reproducer/state shows what no real engine shows: who holds
which blocks, and who waits for whom. SIGUSR1 ends the loop and leaves the front end up; SIGTERM ends everything.

  python -m reproducer serve --profile deadlock --port 8000 --log server.log
  python -m reproducer load --url http://127.0.0.1:8000 --profile deadlock --users 20
  wedgewatch run --log server.log --metrics http://127.0.0.1:8000/metrics""",
    "load": """\
Closed loop (--users): each user waits for the answer before asking again, so the number in flight is fixed; this finds
an onset. Open loop (--rate): arrivals do not wait for anybody, so a queue can grow; latency counts from the moment at
which a request was meant to be sent. Both may be given at once.

  python -m reproducer load --url http://127.0.0.1:8000 --users 20 --record load.jsonl
  python -m reproducer load --url http://127.0.0.1:8000 --trace load.jsonl        # the same again, exactly
  python -m reproducer load --url http://127.0.0.1:8000 --rate 5 --burstiness 0.3""",
    "fingerprint": """\
Starts a server, adds users until the scheduler wedges, and goes on watching for a while with clients that know nothing
of it. Leaves server.log, metrics.om (OpenMetrics with timestamps), load.jsonl (what was sent) and result.json (claims
table, wait-for graph, what was predicted).

  python -m reproducer fingerprint --profile deadlock --out out
  wedgewatch scan --metrics out/metrics.om out/server.log
  python -m reproducer replay --profile deadlock --load out/load.jsonl

Exit status: 0 it wedged, 1 it did not within the load offered.""",
    "threshold": """\
Doubles the users until a run wedges, bisects with a sequential test, then runs each level around the onset and fits a
logistic curve. Prints the load at which half of the runs wedge, a 95% interval, the width from 10% to 90%, what was
predicted from the traffic alone, and the load up to which no traffic can wedge it. Says so when more load is not worse.

  python -m reproducer threshold --profile deadlock --plot onset.png
  python -m reproducer threshold --profile deadlock --kv-blocks 1024     # twice the pool""",
    "replay": """\
Is it contention? The same load runs again with one quantity changed at a time: one user; a lower ceiling on what may be
admitted (A with H as it was, or K); a smaller hard capacity (A and H together, or N); more headroom. Contention
survives the lower ceiling and the headroom and not the smaller capacity. A single request wedges with one user, too.
Lowering a knob that is A and H at once (TensorRT-LLM's max_num_tokens) proves nothing: there is no room in it.

  python -m reproducer replay --profile draft
  python -m reproducer replay --profile deadlock --load out/load.jsonl
  python -m reproducer replay --profile deadlock --live --seeds 3        # over HTTP, with the model: minutes

Exit status: 0 contention or a single request, 1 not reproduced or undecided.""",
    "advise": """\
For each ceiling that the mechanism leaves: the largest setting that no legal traffic can wedge (provable), the largest
that survived this traffic so often that a wedge in more than --chance of runs is excluded with --confidence, and the
throughput that it costs.

  python -m reproducer advise --profile deadlock --users 24
  python -m reproducer advise --profile draft --chance 0.01 --confidence 0.99""",
    "verify": """\
Says what it will send, asks, sends, and stops at the first sign of a wedge: a critical alert of wedgewatch, run beside
it with --metrics or --server-log (observing only), or --silence seconds without any answer. Run it before a change of
configuration and after: wedged before and survived after is the proof. It may leave the server wedged.

  python -m reproducer record access.log --out load.jsonl
  python -m reproducer verify --url http://replica:8000 --load load.jsonl --metrics http://replica:8000/metrics

Change a ceiling on claims: max_batch_size (TensorRT-LLM), --max-num-seqs (vLLM), --max-running-requests (SGLang).
Exit status: 0 survived, 1 wedged or unclear or refused, 2 it could not start.""",
    "record": """\
Reads when requests came and, where the source tells, how long they were; prompts themselves are never taken over.
Understood: access logs (combined format, or with an ISO stamp), TensorRT-LLM iteration lines, vLLM "Received request"
and stats lines, and metrics over time (a file that ends in .om), such as metrics.om of fingerprint.

  python -m reproducer record access.log --out load.jsonl
  python -m reproducer verify --url http://replica:8000 --load load.jsonl""",
    "accident": """\
With a real process and the model, a minute each. Leaves server.log and metrics.om for wedgewatch scan. Those that need
no process are faster as a scenario.

  python -m reproducer accident oom --out out
  wedgewatch scan --metrics out/metrics.om out/server.log""",
    "scenario": """\
The real loop, scheduler and voice with a clock that jumps: the same seed gives the same files, on any machine.

  python -m reproducer scenario overload --out out
  wedgewatch scan --metrics out/metrics.om out/server.log""",
    "bandwidth": """\
Each decode reads all weights and the context's keys and values; how near that comes to a plain copy says whether the
engine is bound by memory, as real ones are. On a CUDA card, --large fills a large share of its memory.

  python -m reproducer bandwidth --rows 16 --context 256""",
    "matrix": """\
Each section prints a table of docs/reproducer.md. Those without a model are exact on any machine; end-to-end and
afterwards run real processes and take minutes.

  python -m reproducer matrix --quick bounds replays
  python -m reproducer matrix watched:idle               # one row of a long table
  python -m reproducer matrix --write docs/reproducer.md --plot docs/reproducer-onset.png""",
}


class _Help(argparse.RawDescriptionHelpFormatter):
    """Descriptions as written; defaults where there are any."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if not action.help or action.default in (None, False, 0, []) or "default" in action.help:
            return action.help
        return action.help if action.default is argparse.SUPPRESS else f"{action.help} (default: %(default)s)"


def command_line(runs: Mapping[str, Callable[[argparse.Namespace], int]]) -> argparse.ArgumentParser:
    """The parser; ``runs`` says what each command does."""
    profiles = "\n".join(f"  {name:9} {profile.about}" for name, profile in PROFILES.items())
    parser = argparse.ArgumentParser(
        prog="python -m reproducer",
        description=ABOUT + profiles,
        formatter_class=_Help,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    def command(name: str, about: str) -> argparse.ArgumentParser:
        added: argparse.ArgumentParser = commands.add_parser(
            name,
            help=about,
            description=f"{about[0].upper()}{about[1:]}{'' if about[-1] == '?' else '.'}\n\n{TEACHING[name]}",
            formatter_class=_Help,
        )
        added.set_defaults(run=runs[name])
        return added

    serve = command("serve", "run the engine behind an OpenAI-compatible port")
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on")
    serve.add_argument("--port", type=port, default=8000, help="0 picks a free one")
    serve.add_argument("--log", type=Path, metavar="FILE", help="append stdout and stderr to this file")
    serve.add_argument("--announce", type=Path, metavar="FILE", help="write URL and pid here once it listens")
    engine_options(serve)
    serve_options(serve)

    _load_options(command("load", "drive a server with users or with arrivals"))

    find = command("fingerprint", "raise the load until it wedges; keep log, metrics and result")
    find.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for what it leaves")
    find.add_argument("--level-seconds", type=positive, default=6.0, help="how long each number of users is tried")
    find.add_argument("--after", type=positive, default=45.0, metavar="SECONDS", help="go on watching after the wedge")
    find.add_argument("--interval", type=positive, default=1.0, help="seconds between readings of the metrics page")
    engine_options(find)
    serve_options(find)

    onset = command("threshold", "the load at which it begins, with its uncertainty")
    onset.add_argument("--steps", type=count, default=3000, help="steps of one run")
    onset.add_argument("--runs", type=count, default=12, help="runs at each level around the onset")
    onset.add_argument("--plot", type=Path, metavar="PNG", help="draw the curve")
    onset.add_argument("--json", action="store_true", help="print JSON")
    engine_options(onset)

    again = command("replay", "two-sided headroom replay: is it contention?")
    again.add_argument("--users", type=count, help="users at once (default: well above the profile's onset)")
    again.add_argument("--load", type=Path, metavar="FILE", help="a recorded load instead")
    again.add_argument(
        "--step-ms", type=positive, default=10.0, help="milliseconds of a step, for arrivals in a load file"
    )
    again.add_argument("--seeds", type=count, default=10, help="runs of each replay")
    again.add_argument("--steps", type=count, default=3000)
    again.add_argument("--live", action="store_true", help="end to end over HTTP instead of without a model")
    again.add_argument("--seconds", type=positive, default=15.0, help="length of a live run")
    again.add_argument("--json", action="store_true", help="print JSON")
    engine_options(again)

    advice = command("advise", "the ceilings that are safe, and what they cost")
    advice.add_argument("--users", type=count, help="users at once to be survived")
    advice.add_argument("--chance", type=share, default=0.05, help="tolerated chance of a wedge per run")
    advice.add_argument("--confidence", type=share, default=0.95, help="with which that chance is excluded")
    advice.add_argument("--steps", type=count, default=2000)
    advice.add_argument("--json", action="store_true", help="print JSON")
    engine_options(advice)

    _verify_options(command("verify", "a recorded load against a real server, watched, stopped at a first sign"))

    keep = command("record", "an access log, engine log or metrics history as a load file")
    keep.add_argument("source", type=Path, nargs="+", help="log files, or .om for OpenMetrics with timestamps")
    keep.add_argument("--out", type=Path, required=True, metavar="FILE", help="the load file")
    keep.add_argument("--table", choices=TABLES, default="azure-conv", help="for lengths that the source does not tell")
    keep.add_argument("--prompt-scale", type=positive, default=1.0, help="prompts this many times as long")
    keep.add_argument("--output-scale", type=positive, default=1.0, help="answers this many times as long")
    keep.add_argument("--max-prompt", type=count, default=8192, help="cut longer prompts")
    keep.add_argument("--max-output", type=count, default=1024, help="cut longer answers")
    keep.add_argument("--year", type=int, help="of stamps that carry none (default: of the file)")

    from .accidents import ACCIDENTS

    mishap = command("accident", "the siblings: what looks like a wedge and is something else")
    mishap.add_argument(
        "name", choices=ACCIDENTS, metavar="NAME", help="; ".join(f"{name}: {text}" for name, text in ACCIDENTS.items())
    )
    mishap.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for what it leaves")
    mishap.add_argument("--seconds", type=positive, default=60.0, help="how long it lasts")
    mishap.add_argument("--dialect", choices=VOICES, default="vllm", help="whose log lines and metrics")

    from .siblings import SCENARIOS

    world = command("scenario", "ten virtual minutes of a server, in seconds: log and metrics")
    world.add_argument(
        "name",
        choices=SCENARIOS,
        metavar="NAME",
        help="; ".join(f"{name}: {scenario.about}" for name, scenario in SCENARIOS.items()),
    )
    world.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for what it leaves")
    world.add_argument("--seed", type=int, default=0, help="another seed, another traffic")

    speed = command("bandwidth", "decode bandwidth against the memory's copy bandwidth")
    speed.add_argument("--rows", type=count, default=16, help="sequences in the batch")
    speed.add_argument("--context", type=count, default=64, help="tokens before each")
    engine_options(speed)
    serve_options(speed)

    from .matrix import SECTIONS

    table = command("matrix", "measure everything that docs/reproducer.md states")
    table.add_argument("section", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)} (default: all)")
    table.add_argument("--quick", action="store_true", help="fewer seeds, for a look")
    table.add_argument("--write", type=Path, metavar="MD", help="put the tables into this file, between its markers")
    table.add_argument("--plot", type=Path, metavar="PNG", help="draw the onset curves")
    return parser


def _load_options(load: argparse.ArgumentParser) -> None:
    load.add_argument("--url", type=address, required=True, help="base URL, for example http://127.0.0.1:8000")
    load.add_argument("--profile", choices=PROFILES, default="deadlock", help="whose traffic to send")
    load.add_argument("--users", type=natural, default=0, help="closed loop: users who wait for their answer")
    load.add_argument("--rate", type=positive, default=0.0, help="open loop: requests per second")
    load.add_argument(
        "--burstiness", type=positive, default=1.0, help="gamma shape of the gaps: 1 is Poisson, below bursts"
    )
    load.add_argument("--trace", type=Path, help="a load file, or a trace in Azure, Mooncake or BurstGPT columns")
    load.add_argument("--speed", type=positive, default=1.0, help="run a trace this many times faster")
    load.add_argument("--table", choices=TABLES, help="lengths from this table instead of the profile's traffic")
    load.add_argument("--seconds", type=positive, default=60.0, help="how long it lasts")
    load.add_argument(
        "--timeout", type=positive, default=3600.0, help="seconds after which a client gives up and leaves"
    )
    load.add_argument("--max-total", type=count, default=384, help="cut outputs so that prompt and output fit this")
    load.add_argument("--record", type=Path, metavar="FILE", help="write what was sent, to run it again exactly")
    load.add_argument("--seed", type=int, default=0, help="another seed, another traffic")


def _verify_options(check: argparse.ArgumentParser) -> None:
    check.add_argument("--url", type=address, required=True, help="base URL of an OpenAI-compatible server")
    check.add_argument(
        "--load", type=Path, required=True, metavar="FILE", help="what to send; see record and load --record"
    )
    check.add_argument("--model", default="any", help="model name to ask for")
    check.add_argument("--metrics", metavar="URL", help="the server's metrics page, for wedgewatch beside it")
    check.add_argument(
        "--server-log", type=Path, action="append", default=[], metavar="FILE", help="its log, for wedgewatch beside it"
    )
    check.add_argument("--engine", default="auto", help="engine id, for wedgewatch")
    check.add_argument("--seconds", type=positive, default=300.0, help="send for at most this long")
    check.add_argument("--requests", type=count, default=2000, help="send at most so many")
    check.add_argument("--at-once", type=count, default=256, help="at most so many open")
    check.add_argument("--silence", type=positive, default=60.0, help="seconds without any answer that count as a sign")
    check.add_argument("--yes", action="store_true", help="do not ask before it starts")
    check.add_argument("--json", action="store_true", help="print JSON")
