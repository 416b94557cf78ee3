"""``wedgewatch run``: from the command line to a running daemon."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from agent import own_log
from agent.cache_folder import cache_folder
from agent.config import Config, default_config, load_config, state_path
from agent.daemon import Daemon, Options
from agent.model import Alert, Position
from agent.pipeline import Pipeline
from agent.reload import Loaded
from agent.rules.cached import is_cached, load_rules_cached
from agent.schema import Fault
from agent.store import StoreLocked

__all__ = ["run"]

log = logging.getLogger("wedgewatch")


def run(arguments: argparse.Namespace) -> int:
    """``wedgewatch run``. Returns the exit code: 0 after a signal, 2 when it cannot start."""
    if not arguments.config and not arguments.log and not arguments.metrics:
        print("wedgewatch: nothing to watch; give -c FILE, or --log PATH and --metrics URL", file=sys.stderr)
        return 2
    if arguments.config and (arguments.log or arguments.metrics):
        print("wedgewatch: give either -c FILE, or --log and --metrics, not both", file=sys.stderr)
        return 2
    try:
        given = _given(arguments)
    except ValueError as error:
        print(f"wedgewatch: {error}", file=sys.stderr)
        return 2

    def load() -> Loaded:
        return _load(arguments, given)

    _warm_up(arguments, given)
    config, ruleset, faults = load()
    errors = [fault for fault in faults if fault.severity == "error"]
    for fault in errors or faults:
        print(fault, file=sys.stderr)
    if errors:
        print(f"wedgewatch: {len(errors)} fault(s), nothing was started", file=sys.stderr)
        return 2
    own_log.set_up(arguments.log_level or config.log.level, config.log.format)
    options = Options(
        config_file=arguments.config or "",
        observe=arguments.observe,
        alert_log=arguments.alert_log or "",
        printer=_printer(as_json=arguments.json),
    )
    try:
        daemon = Daemon(config, ruleset, options, state=_state(config, arguments), load=load)
    except StoreLocked as error:
        print(f"wedgewatch: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"wedgewatch: {error.filename or 'state'}: {error.strerror}", file=sys.stderr)
        return 2
    return daemon.run()


def _given(arguments: argparse.Namespace) -> Config:
    """The configuration that the command line alone describes."""
    if arguments.config:
        return Config()
    return default_config(
        tuple(arguments.log),
        arguments.metrics or "",
        engine=arguments.engine or "auto",
        server=arguments.server or "server",
        from_start=arguments.from_start,
    )


def _warm_up(arguments: argparse.Namespace, given: Config) -> None:
    """Rules that were never read here before are read and compiled by a child: what that takes in memory (10 MiB, for
    a moment) would stay with us for ever. We then find them in the cache; if not, we read them ourselves."""
    config = _override(load_config(arguments.config)[0] if arguments.config else given, arguments)
    folder = cache_folder(_state(config, arguments))
    files, off = config.rule_files, config.disabled_rules
    if folder is None or is_cached(files, config.bundled_rules, disabled=off, cache_dir=folder):
        return
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        _, ruleset, faults = _load(arguments, given)
        if not faults:
            Pipeline(ruleset, [], cache_dir=folder)
    finally:
        os._exit(0)


def _load(arguments: argparse.Namespace, given: Config) -> Loaded:
    config, faults = load_config(arguments.config) if arguments.config else (given, [])
    config = _override(config, arguments)
    ruleset, rule_faults = load_rules_cached(
        config.rule_files,
        config.bundled_rules,
        check_expr=_check_expr,
        disabled=config.disabled_rules,
        cache_dir=cache_folder(_state(config, arguments)),
    )
    return config, ruleset, [*faults, *_unread(config, arguments.config or "command line"), *rule_faults]


def _state(config: Config, arguments: argparse.Namespace) -> Path | None:
    """Where state is kept; without a configuration or ``--state`` none is left on the disk."""
    return state_path(config) if arguments.config or arguments.state else None


def _check_expr(text: str) -> Iterable[str | tuple[int, str]]:
    from agent.detect.promql import check_expr  # the parser is only needed for rules that were never seen before

    return check_expr(text)


def _unread(config: Config, file: str) -> list[Fault]:
    """Sources that the schema knows and this version cannot read."""
    return [
        Fault(
            Position(file, 1, 1),
            f"server '{server.name}': logs are not read from Loki by this version; "
            "give the path of the log, 'journald' or 'kubernetes'",
        )
        for server in config.servers
        if any(source.loki is not None for source in server.logs)
    ]


def _override(config: Config, arguments: argparse.Namespace) -> Config:
    """Command-line words that go over the file's."""
    if arguments.listen is not None:
        web = replace(config.web, enabled=bool(arguments.listen))
        config = replace(config, web=replace(web, listen_address=arguments.listen) if arguments.listen else web)
    if arguments.state:
        config = replace(config, state=replace(config.state, path=arguments.state))
    return config


def _printer(*, as_json: bool) -> Callable[[Alert], None]:
    """How alerts appear on standard output. A reader that went away does not end the watching."""
    gone = False

    def show(text: str) -> None:
        nonlocal gone
        if gone:
            return
        try:
            print(text, flush=True)
        except OSError as error:
            gone = True
            log.warning("standard output is gone (%s); alerts are printed no longer", error.strerror)

    def in_json(alert: Alert) -> None:
        show(json.dumps(alert.to_json(), ensure_ascii=False))

    def for_people(alert: Alert) -> None:
        if alert.state == "pending" or (alert.state == "resolved" and alert.fired_at is None):
            return
        from integrations.terminal import render_terminal

        is_terminal = sys.stdout.isatty()
        width = os.get_terminal_size().columns if is_terminal else 100
        color = is_terminal and "NO_COLOR" not in os.environ
        show(render_terminal(alert, color=color, width=max(60, min(width, 120))))

    return in_json if as_json else for_people
