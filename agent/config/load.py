"""A configuration file -> :class:`Config`, with every fault at its place."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent.config.model import Config
from agent.config.routing import ReceiverConfig, Route
from agent.config.servers import LogSource, MetricsSource, ServerConfig
from agent.schema import Bound, Fault, bind, did_you_mean, read_document, sort_faults

__all__ = ["check_config", "default_config", "load_config", "read_config", "state_path"]


def load_config(path: str | Path, *, env: Mapping[str, str] | None = None) -> tuple[Config, list[Fault]]:
    """The configuration of a file and its faults; with an error among them the configuration must not be used.

    ``env``: the environment for ``${VAR}``; default: the process's own. Relative paths of rule files and secrets start
    from the file's folder.
    """
    bound = read_config(path, env=env)
    return bound.value or Config(), sort_faults(bound.faults)


def read_config(path: str | Path, *, env: Mapping[str, str] | None = None) -> Bound[Config]:
    """As :func:`load_config`, with the places of things, for tools that look further."""
    folder = os.path.dirname(os.path.abspath(path))
    document = read_document(path)
    bound = bind(Config, document, env=os.environ if env is None else env, base=folder)
    if bound.value is not None:
        check_config(bound)
        files = tuple(os.path.join(folder, os.path.expanduser(name)) for name in bound.value.rule_files)
        bound.rebase(replace(bound.value, rule_files=files))
    return bound


def default_config(
    logs: tuple[str, ...] = (),
    metrics: str = "",
    *,
    engine: str = "auto",
    server: str = "server",
    from_start: bool = False,
) -> Config:
    """The configuration of ``run --log ... --metrics ...`` without a file. Raises ValueError with a sentence."""
    sources = tuple(
        LogSource(stdin=True)
        if path == "-"
        else LogSource(path=os.path.expanduser(path), start_at="beginning" if from_start else "end")
        for path in logs
    )
    watched = ServerConfig(
        name=server, engine=engine, logs=sources, metrics=MetricsSource(url=metrics) if metrics else None
    )
    for part in (*sources, *((watched.metrics,) if watched.metrics else ()), watched):
        for _, message, *_rest in part.check():
            raise ValueError(message)
    return Config(servers=(watched,))


def state_path(config: Config, env: Mapping[str, str] | None = None) -> Path:
    """The folder for what survives a restart: as configured, else systemd's, else the usual place for this user."""
    environment = os.environ if env is None else env
    if config.state.path:
        return Path(config.state.path).expanduser()
    if environment.get("STATE_DIRECTORY"):
        return Path(environment["STATE_DIRECTORY"].split(":")[0])
    system = Path("/var/lib/wedgewatch")
    if os.access(system, os.W_OK) or (not system.exists() and os.access(system.parent, os.W_OK)):
        return system
    home = environment.get("XDG_STATE_HOME") or os.path.join(environment.get("HOME", "/"), ".local", "state")
    return Path(home) / "wedgewatch"


# -- faults between parts ---------------------------------------------------------------------------------------


def check_config(bound: Bound[Config]) -> None:
    """Adds what no part can see by itself: names that refer to nothing, names given twice."""
    config = bound.value
    if config is None:
        return
    _twice(bound, config.servers, "server")
    _twice(bound, config.receivers, "receiver")
    _twice(bound, config.time_intervals, "time interval")
    _twice(bound, config.actions, "action")
    _engines(bound, config)
    _zones(bound, config)
    _labels(bound, config)
    _routes(bound, config)
    if not config.servers:
        bound.fault(bound.position(config), "no server is watched, give 'servers'", "warning")


def _twice(bound: Bound[Config], items: tuple[Any, ...], what: str) -> None:
    first: dict[str, Any] = {}
    for item in items:
        if item.name in first:
            line = bound.position(first[item.name], "name").line
            bound.fault(bound.position(item, "name"), f"{what} '{item.name}' is given twice, first in line {line}")
        else:
            first[item.name] = item


def _engines(bound: Bound[Config], config: Config) -> None:
    from agent.rules.dialect_spec import ENGINES

    known = {*ENGINES, "auto"}
    for server in config.servers:
        if server.engine in known:
            continue
        own = _own_dialects(bound, config)
        if server.engine not in own:
            near = did_you_mean(server.engine, known | own) or f", known: {', '.join(sorted(known | own))}"
            bound.fault(bound.position(server, "engine"), f"unknown engine '{server.engine[:40]}'{near}")


def _own_dialects(bound: Bound[Config], config: Config) -> set[str]:
    from agent.rules.load import expand_paths, is_dialect

    folder = os.path.dirname(os.path.abspath(bound.document.file))
    files, _ = expand_paths(os.path.join(folder, name) for name in config.rule_files)
    found: set[str] = set()
    for path in files:
        document = read_document(path)
        if is_dialect(document) and document.root is not None:
            found.update(value.value for key, value in document.root.value if key.value == "dialect")
    return found


def _zones(bound: Bound[Config], config: Config) -> None:
    from zoneinfo import ZoneInfo

    def places() -> Iterator[tuple[Any, str]]:
        yield config.global_, "timezone"
        for server in config.servers:
            for source in server.logs:
                yield source, "timezone"
        for interval in config.time_intervals:
            for window in interval.time_intervals:
                yield window, "location"

    for owner, name in places():
        zone = getattr(owner, name)
        if zone is None or zone == "UTC" or not bound.written(owner, name):
            continue
        try:
            ZoneInfo(zone)
        except (ValueError, OSError):  # ZoneInfoNotFoundError is a KeyError, below
            bound.fault(bound.position(owner, name), f"'{zone[:40]}' is no time zone, write for example Europe/Berlin")
        except KeyError:
            bound.fault(
                bound.position(owner, name), f"unknown time zone '{zone[:40]}', write for example Europe/Berlin"
            )


def _labels(bound: Bound[Config], config: Config) -> None:
    import re

    reserved = {"alertname", "failure", "severity", "server", "engine"}
    for owner, name in ((config.global_, "external_labels"), *((server, "labels") for server in config.servers)):
        for label in getattr(owner, name):
            where = bound.key_position(owner, name, label)
            if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", label, re.ASCII):
                bound.fault(
                    where, f"'{label[:40]}' is no label name; letters, digits and '_', not beginning with a digit"
                )
            elif label in reserved:
                bound.fault(where, f"label '{label}' is set by wedgewatch, choose another name")


def _routes(bound: Bound[Config], config: Config) -> None:
    receivers = {receiver.name: receiver for receiver in config.receivers}
    intervals = {interval.name for interval in config.time_intervals}
    used: Counter[str] = Counter()
    if config.route is None:
        for receiver in config.receivers:
            bound.fault(bound.position(receiver, "name"), "there is no 'route', so nothing is sent here", "warning")
        return
    if not config.route.receiver:
        bound.fault(bound.position(config.route), "the outermost route wants a 'receiver'")
    if config.route.matchers:
        bound.fault(
            bound.position(config.route, "matchers"), "the outermost route takes every alert, remove its matchers"
        )
    for route in _walk(config.route):
        if route.receiver:
            used[route.receiver] += 1
            if route.receiver not in receivers:
                known = did_you_mean(route.receiver, receivers)
                listed = "" if known else f", known: {', '.join(sorted(receivers)) or 'none'}"
                where = bound.position(route, "receiver")
                bound.fault(where, f"unknown receiver '{route.receiver[:40]}'{known}{listed}")
        for name in ("mute_time_intervals", "active_time_intervals"):
            for index, interval in enumerate(getattr(route, name)):
                if interval not in intervals:
                    near = did_you_mean(interval, intervals)
                    bound.fault(bound.position(route, name, index), f"unknown time interval '{interval[:40]}'{near}")
        _shadowed(bound, route)
    _unused(bound, receivers, used)


def _walk(route: Route) -> Iterator[Route]:
    yield route
    for child in route.routes:
        yield from _walk(child)


def _shadowed(bound: Bound[Config], route: Route) -> None:
    """A route without matchers takes everything; those after it are never tried."""
    for child, after in zip(route.routes, route.routes[1:], strict=False):
        if not child.matchers and not child.continue_:
            line = bound.position(child).line
            bound.fault(bound.position(after), f"is never tried: the route in line {line} has no matchers", "warning")
            return


def _unused(bound: Bound[Config], receivers: Mapping[str, ReceiverConfig], used: Mapping[str, int]) -> None:
    for name, receiver in receivers.items():
        if not used.get(name):
            bound.fault(bound.position(receiver, "name"), f"no route goes to receiver '{name}'", "warning")
