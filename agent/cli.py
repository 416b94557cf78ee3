"""The command line: each command is a few lines over the library below it.

Exit codes: 0 all is well, 1 something was found (or a run-time failure), 2 the input or the usage is wrong.
Imports are made inside the commands, so that ``wedgewatch --version`` and the daemon start fast.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, tzinfo
from typing import TYPE_CHECKING, Any, Final, TextIO
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from agent import __version__

if TYPE_CHECKING:
    from agent.model import Alert
    from agent.rules.model import RuleSet

__all__ = ["main", "parser"]

ENGINES: Final = (
    "auto", "tensorrt_llm", "triton", "vllm", "sglang", "tgi", "lmdeploy", "llama_cpp", "ray_serve", "dynamo", "nim",
    "lightning", "hf_trainer", "deepspeed", "megatron",
)  # fmt: skip
DEFAULT_URL: Final = "http://127.0.0.1:9464"


class UsageError(Exception):
    """Something that the caller of a command must put right; its text says what."""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the ``wedgewatch`` command; returns the exit code."""
    arguments = parser().parse_args(argv)
    try:
        return int(arguments.command(arguments))
    except UsageError as error:
        print(f"wedgewatch: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader of our output went away (`| head`): nothing more to say, and no traceback about it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130


def parser() -> argparse.ArgumentParser:
    """The argument parser; ``wedgewatch completion`` and the docs are made from it."""
    top = argparse.ArgumentParser(
        prog="wedgewatch",
        description="Notices in seconds when an LLM inference server stops issuing work while its health check still "
        "says 200, and pages with proof.",
        epilog="First steps: `wedgewatch scan server.log` on yesterday's log, then "
        "`wedgewatch run --log server.log --metrics http://127.0.0.1:8000/metrics --observe` beside the server.",
    )
    top.add_argument("--version", action="version", version=f"wedgewatch {__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True)

    def command(
        name: str, run: Callable[[argparse.Namespace], int], summary: str, **more: Any
    ) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=summary, description=more.pop("description", summary), **more)
        sub.set_defaults(command=run)
        return sub

    run = command("run", _run, "watch servers: the daemon")
    run.add_argument("-c", "--config", metavar="FILE", help="configuration; without it --log and --metrics are enough")
    run.add_argument(
        "--log", action="append", default=[], metavar="PATH", help="a log to follow (file, glob, or - for stdin)"
    )
    run.add_argument("--metrics", metavar="URL", help="the server's metrics page")
    run.add_argument("--engine", choices=ENGINES, metavar="ID", help=f"one of {', '.join(ENGINES)}")
    run.add_argument("--server", metavar="NAME", help="name of the server in alerts (default: server)")
    run.add_argument(
        "--from-start",
        action="store_true",
        help="read a new file from its beginning; what is older than start-up never pages",
    )
    run.add_argument("--json", action="store_true", help="print alerts as one JSON object a line")
    run.add_argument("--alert-log", metavar="FILE", help="append every transition to FILE as one JSON object a line")
    run.add_argument("--observe", action="store_true", help="decide and show everything, send nothing")
    run.add_argument("--state", metavar="DIR", help="where offsets, alerts and the outbox are kept")
    run.add_argument("--listen", metavar="HOST:PORT", help="address of the page, the API and /metrics; empty: none")
    run.add_argument(
        "--log-level", choices=("debug", "info", "warning", "error"), help="of our own log (default: as configured)"
    )

    scan = command(
        "scan",
        _scan,
        "run the same detection over finished logs",
        epilog="Exit code: 0 nothing fired, 1 an alert fired, 2 the input is wrong.",
    )
    scan.add_argument(
        "logs", nargs="+", metavar="LOG", help="plain, .gz, .zst or .xz; - is stdin; several logs are one server"
    )
    scan.add_argument("--metrics", metavar="FILE", help="series of the same server: OpenMetrics text with timestamps")
    scan.add_argument(
        "--engine", choices=ENGINES, default="auto", metavar="ID", help="default: recognised from the lines"
    )
    scan.add_argument("--server", default="server", metavar="NAME")
    scan.add_argument("--timezone", default="UTC", metavar="TZ", help="of stamps without a zone (default UTC)")
    scan.add_argument("--until", metavar="TIME", help="RFC 3339: the log is whole up to then, so silence counts")
    scan.add_argument("--rules", action="append", default=[], metavar="FILE", help="rules beside the bundled ones")
    scan.add_argument("--json", action="store_true", help="one JSON object a line, a summary last")
    scan.add_argument(
        "--explain", action="store_true", help="which stages matched, which came close, why no alert came"
    )

    check = command("check", _check, "list every fault of configuration and rules", epilog="Exit code: 0 or 2.")
    check.add_argument("-c", "--config", metavar="FILE")
    check.add_argument("rules", nargs="*", metavar="RULES", help="rule files or folders")

    test = command(
        "test",
        _test,
        "run the unit tests of rules",
        epilog="Exit code: 0 all pass, 1 some fail, 2 the files are wrong.",
    )
    test.add_argument("paths", nargs="+", metavar="FILE-OR-FOLDER")
    test.add_argument("-v", "--verbose", action="store_true", help="name passing tests too")

    init = command("init", _init, "look at a running server and write a configuration for it")
    init.add_argument("--log", metavar="PATH")
    init.add_argument("--metrics", metavar="URL")
    init.add_argument("-o", "--output", default="wedgewatch.yaml", metavar="FILE")
    init.add_argument("--force", action="store_true", help="overwrite FILE")

    convert = command("convert", _convert, "read CRE rules into ours, or write our conditions as Prometheus rules")
    convert.add_argument("file", metavar="FILE")
    convert.add_argument("--to", choices=("wedgewatch", "prometheus"), help="default: by what FILE is")
    convert.add_argument("-o", "--output", metavar="FILE", help="default: stdout")

    mute = command("mute", _mute, "silence alerts for a while")
    mute.add_argument("matchers", nargs="+", metavar="MATCHER", help='for example server="llama-0"')
    mute.add_argument("--for", dest="duration", required=True, metavar="D", help="for example 2h")
    mute.add_argument("--comment", default="", metavar="TEXT")
    mute.add_argument("-c", "--config", metavar="FILE")
    mute.add_argument("--state", metavar="DIR")

    completion = command("completion", _completion, "print a completion script")
    completion.add_argument("shell", choices=("bash", "zsh", "fish"))

    status = command("status", _status, "what a running daemon sees")
    status.add_argument("url", nargs="?", default=DEFAULT_URL, metavar="URL")
    status.add_argument("--json", action="store_true")
    status.add_argument("--watch", action="store_true", help="keep the view up to date")

    probe = command(
        "probe",
        _probe,
        "for a liveness probe: exit 1 while a confirmed stalled or dead alert is open",
        epilog="Exit code 0 also when the daemon cannot be reached: our fault must not restart a healthy server.",
    )
    probe.add_argument("server", metavar="SERVER")
    probe.add_argument("url", nargs="?", default=DEFAULT_URL, metavar="URL")

    send = command("send-test", _send_test, "send one marked firing + resolved pair through the real path")
    send.add_argument("receiver", metavar="RECEIVER")
    send.add_argument("-c", "--config", metavar="FILE", default="wedgewatch.yaml")

    onset = command("onset", _onset, "load at each onset against restarts and configuration changes")
    onset.add_argument("-c", "--config", metavar="FILE")
    onset.add_argument("--state", metavar="DIR")
    onset.add_argument("--json", action="store_true")

    outbox = command("outbox", _outbox, "undelivered and dead-lettered notifications")
    outbox.add_argument("action", choices=("list", "retry"))
    outbox.add_argument("-c", "--config", metavar="FILE")
    outbox.add_argument("--state", metavar="DIR")
    outbox.add_argument("--json", action="store_true")

    demo = command("demo", _demo, "reproducer, daemon and page end to end on this machine")
    demo.add_argument("--keep", action="store_true", help="stay up afterwards")
    demo.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    demo.add_argument("--out", metavar="DIR", help="where logs and state go (default: a temporary folder)")
    return top


# -- shared by commands --------------------------------------------------------------------------------------


def _zone(name: str) -> tzinfo:
    if name.upper() in ("UTC", "Z"):
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UsageError(f"time zone {name!r} is not known; write a name such as UTC or Europe/Berlin") from error


def _print_faults(faults: Sequence[Any], out: TextIO) -> bool:
    """Print faults; True when one of them is an error."""
    for fault in faults:
        print(fault, file=out)
    return any(fault.severity == "error" for fault in faults)


def _ruleset(paths: Sequence[str]) -> RuleSet:
    from agent.cache_folder import cache_folder
    from agent.rules.cached import load_rules_cached

    def check_expr(text: str) -> Sequence[str]:
        from agent.detect.promql import check_expr

        return check_expr(text)

    ruleset, faults = load_rules_cached(paths, check_expr=check_expr, cache_dir=cache_folder())
    if _print_faults([fault for fault in faults if fault.severity == "error"], sys.stderr):
        raise UsageError("the rules have faults (above); correct them and try again")
    return ruleset


# -- commands ------------------------------------------------------------------------------------------------


def _run(arguments: argparse.Namespace) -> int:
    from agent.run_command import run

    return run(arguments)


def _scan(arguments: argparse.Namespace) -> int:
    from agent.cache_folder import cache_folder
    from agent.model import parse_rfc3339
    from agent.replay import scan

    for name in arguments.logs:
        if name != "-" and not os.path.exists(name):
            raise UsageError(f"{name}: no such file; give the path of a log, or - for stdin")
        if name != "-" and os.path.isdir(name):
            raise UsageError(f"{name}: is a folder; give the logs inside it")
    until = None
    if arguments.until:
        try:
            until = parse_rfc3339(arguments.until)
        except ValueError as error:
            raise UsageError(
                f"--until {arguments.until!r} is no RFC 3339 time; write for example 2026-11-20T09:06:00Z"
            ) from error
    ruleset = _ruleset(arguments.rules)
    samples, recognised = _samples(arguments, ruleset)
    as_json = arguments.json

    def emit(alert: Alert) -> None:
        print(json.dumps(alert.to_json(), ensure_ascii=False), flush=False)

    bar = None
    if sys.stderr.isatty() and not as_json:
        from agent.scan_report import ProgressBar

        bar = ProgressBar(arguments.logs, sys.stderr)
    try:
        result = scan(
            ruleset,
            arguments.logs,
            samples=samples,
            samples_engine=recognised,
            engine=arguments.engine,
            server=arguments.server,
            timezone=_zone(arguments.timezone),
            until=until,
            cache_dir=cache_folder(),
            progress=bar.update if bar is not None else None,
            on_alert=emit if as_json else None,
        )
    except OSError as error:
        raise UsageError(f"{error.filename or 'input'}: {error.strerror or error}; nothing was decided") from error
    finally:
        if bar is not None:
            bar.close()
    if as_json:
        print(json.dumps(result.summary()))
        for sentence in result.damaged:
            print(f"wedgewatch: {sentence}", file=sys.stderr)
    else:
        from agent.scan_report import print_report

        print_report(result, sys.stdout, color=sys.stdout.isatty() and "NO_COLOR" not in os.environ)
    if arguments.explain:
        from agent.authoring.explain import Trace

        if "-" in arguments.logs:
            raise UsageError("--explain reads the log twice, which standard input does not allow; give a file")
        trace = Trace(ruleset, engine=result.engine, timezone=arguments.timezone)
        for name in arguments.logs:
            trace.read(name, span=(samples[0].timestamp, samples[-1].timestamp) if samples else None)
        print(trace.render(result), file=sys.stderr if as_json else sys.stdout)
    return 1 if result.fired else 0


def _samples(arguments: argparse.Namespace, ruleset: RuleSet) -> tuple[list[Any], str]:
    if not arguments.metrics:
        return [], ""
    from agent.metrics.mapping import SignalMapper
    from agent.metrics.openmetrics import SeriesFileError, read_samples

    mapper = SignalMapper(ruleset.dialects, arguments.engine)
    try:
        samples = read_samples(arguments.metrics, mapper, arguments.server)
    except OSError as error:
        raise UsageError(f"{arguments.metrics}: {error.strerror or error}") from error
    except SeriesFileError as error:
        raise UsageError(str(error)) from error
    return samples, mapper.engine


def _check(arguments: argparse.Namespace) -> int:
    from agent.authoring.lint import lint

    faults = lint(arguments.config, arguments.rules)
    failed = _print_faults(faults, sys.stdout)
    if not faults:
        print("no faults found")
    return 2 if failed else 0


def _test(arguments: argparse.Namespace) -> int:
    from agent.authoring.testing import run_tests

    return run_tests(arguments.paths, sys.stdout, verbose=arguments.verbose)


def _init(arguments: argparse.Namespace) -> int:
    from agent.init_command import init

    return init(arguments.log, arguments.metrics, arguments.output, force=arguments.force)


def _convert(arguments: argparse.Namespace) -> int:
    from agent.authoring.convert import convert

    return convert(arguments.file, arguments.to, arguments.output)


def _mute(arguments: argparse.Namespace) -> int:
    from agent.notify.commands import mute

    return mute(arguments.config, arguments.state, arguments.matchers, arguments.duration, arguments.comment)


def _completion(arguments: argparse.Namespace) -> int:
    from agent.completion import script

    print(script(parser(), arguments.shell))
    return 0


def _status(arguments: argparse.Namespace) -> int:
    from agent.status_view import show

    return show(arguments.url, as_json=arguments.json, watch=arguments.watch)


def _probe(arguments: argparse.Namespace) -> int:
    from agent.status_view import probe

    return probe(arguments.server, arguments.url)


def _send_test(arguments: argparse.Namespace) -> int:
    from agent.notify.commands import send_test

    return send_test(arguments.config, arguments.receiver)


def _onset(arguments: argparse.Namespace) -> int:
    from agent.onset_command import onset

    return onset(arguments.config, arguments.state, as_json=arguments.json)


def _outbox(arguments: argparse.Namespace) -> int:
    from agent.notify.commands import outbox

    return outbox(arguments.config, arguments.state, arguments.action, as_json=arguments.json)


def _demo(arguments: argparse.Namespace) -> int:
    from agent.demo import demo

    return demo(keep=arguments.keep, device=arguments.device, out=arguments.out)
