"""The live shell: threads at the edges, one queue, one core.

Readers of logs, scrapers and canaries put what they see into one bounded queue; the main thread takes it out, one
thing at a time, and lets the core decide. When the queue is full the readers of files wait (the bytes stay where they
are), so a burst costs time and never memory.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agent import __version__
from agent.aftermath import Aftermath
from agent.config import Config, default_config, load_config, state_path
from agent.core import AlertLog, Core
from agent.detect.promql import check_expr
from agent.edges import CanaryEdge, ScrapeEdge, cache_folder
from agent.log_edge import LogBytes, LogEdge
from agent.model import Alert, Sample
from agent.notify.dispatcher import Dispatcher
from agent.rules.load import load_rules
from agent.rules.model import RuleSet
from agent.schema import Fault
from agent.store import Store, StoreLocked
from agent.systemd import SystemdNotifier
from agent.telemetry import Telemetry
from agent.threads import Supervised
from agent.web.events import EventBus

if TYPE_CHECKING:
    from agent.web.server import WebServer

__all__ = ["Daemon", "Options", "run"]

log = logging.getLogger("wedgewatch")

QUEUE: Final = 256
"""Items between the edges and the core."""
SHUTDOWN: Final = 5.0
"""Seconds in which a shutdown must be over."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says beside the configuration."""

    config_file: str = ""
    observe: bool = False
    as_json: bool = False
    alert_log: str = ""
    matcher: str = "auto"


@dataclass(frozen=True, slots=True)
class _Looks:
    samples: Sequence[Sample]
    engine: str


class _Wake:
    """Put into the queue to make the core look up."""


class Daemon:
    """Everything that runs while servers are watched. :meth:`run` returns the exit code."""

    def __init__(self, config: Config, ruleset: RuleSet, options: Options, *, state: Path | None) -> None:
        self.options = options
        self.state = state
        self.config = config
        self.started = time.time()
        self.reload_error = ""
        self.config_loaded = self.started
        self._queue: queue.Queue[LogBytes | _Looks | _Wake] = queue.Queue(QUEUE)
        self._stop = threading.Event()
        self._reload = threading.Event()
        self._lock = threading.RLock()
        self.telemetry = Telemetry(version=__version__)
        self.store = Store(state)
        self.dispatcher = Dispatcher(
            config, self.store, meter=self.telemetry, observe=options.observe, alive=self._alive
        )
        self._alert_log = AlertLog(options.alert_log) if options.alert_log else None
        self.core = Core(
            config,
            ruleset,
            self.store,
            clock=time.time,
            emit=self._emit,
            alert_log=self._alert_log,
            cache_dir=cache_folder(state),
            matcher=options.matcher,
        )
        self.log_edge = LogEdge(config, self.core.positions(), self._put_log, self.telemetry)
        self.scrapes: list[ScrapeEdge] = []
        self.canaries: list[CanaryEdge] = []
        self._edge_threads: list[Supervised] = []
        self._threads: list[Supervised] = []
        self._notifier = SystemdNotifier()
        self.aftermath = self._build_aftermath(config, state)
        self.events = EventBus()
        self.web_url = ""
        self._beat = time.monotonic()
        self._web: WebServer | None = None
        self.printer: Callable[[Alert], None] = _printer(options)

    # -- life ------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Watch until a signal says stop."""
        self._handle_signals()
        self._announce()
        self.dispatcher.start()
        self._start_edges()
        self._start_aftermath()
        self._start_web()
        self._notifier.ready(f"watching {len(self.config.servers)} server(s)")
        try:
            while not self._stop.is_set():
                self._step()
        finally:
            self.shutdown()
        return 0

    def _step(self) -> None:
        if self._reload.is_set():
            self._reload.clear()
            self.reload()
        try:
            item = self._queue.get(timeout=self.core.wait())
        except queue.Empty:
            item = _Wake()
        with self._lock:
            self._handle(item)
            # What has piled up is taken in one go, so that one commit serves it.
            for _ in range(64):
                try:
                    self._handle(self._queue.get_nowait())
                except queue.Empty:
                    break
            self.core.tick()
        self._beat = time.monotonic()
        self._notifier.alive()

    def _handle(self, item: LogBytes | _Looks | _Wake) -> None:
        if isinstance(item, LogBytes):
            self.core.on_log(item)
        elif isinstance(item, _Looks):
            self.core.on_samples(item.samples, item.engine)
            self.events.publish("servers")

    def shutdown(self) -> None:
        """Commit, deliver what can be delivered at once, end the threads."""
        self._notifier.stopping()
        for thread in self._edge_threads:
            thread.stop()
        self.log_edge.close()
        with self._lock:
            deadline = time.monotonic() + 1.0
            while time.monotonic() < deadline:
                try:
                    self._handle(self._queue.get_nowait())
                except queue.Empty:
                    break
            self.core.commit()
        self.dispatcher.stop(2.0)
        for thread in self._threads:
            thread.stop()
        if self._web is not None:
            self._web.close()
        if self._alert_log is not None:
            self._alert_log.close()
        self.store.close()
        log.info("stopped")

    def _alive(self) -> bool:
        """For the heartbeat: did the core get round lately?"""
        return time.monotonic() - self._beat < 30.0

    # -- edges -----------------------------------------------------------------------------------------------

    def _put_log(self, item: LogBytes) -> None:
        while not self._stop.is_set():
            try:
                self._queue.put(item, timeout=1.0)
            except queue.Full:
                continue
            return

    def _put_looks(self, samples: Sequence[Sample], engine: str) -> None:
        try:
            self._queue.put(_Looks(samples, engine), timeout=5.0)
        except queue.Full:
            log.warning("the core is behind; a look at %s was dropped", samples[0].server if samples else "a server")

    def _start_edges(self) -> None:
        dialects = self.core.pipeline.ruleset.dialects
        works = self.log_edge.works()
        self.scrapes = [
            ScrapeEdge(self.config, server, server.metrics, dialects, self._put_looks)
            for server in self.config.servers
            if server.metrics is not None
        ]
        self.canaries = [
            CanaryEdge(server, server.canary, self.core.last_completion, self._put_looks)
            for server in self.config.servers
            if server.canary is not None
        ]
        works += [(f"scrape {edge.server}", edge.work) for edge in self.scrapes]
        works += [(f"canary {edge.server}", edge.work) for edge in self.canaries]
        self._edge_threads = [Supervised(name, work) for name, work in works]
        for thread in self._edge_threads:
            thread.start()

    def _start_web(self) -> None:
        if not self.config.web.enabled:
            return
        from agent.live_view import LiveView
        from agent.web.server import WebServer
        from agent.web.tls import TlsFiles

        web = self.config.web
        try:
            server = WebServer(
                LiveView(self),
                self.telemetry,
                events=self.events,
                listen_address=web.listen_address,
                token=web.token,
                tls=TlsFiles(web.tls.cert_file, web.tls.key_file, web.tls.client_ca_file) if web.tls else None,
                hosts=web.hosts,
                probe_confidences=web.probe_confidences,
                max_connections=web.max_connections,
            )
        except (OSError, ValueError) as error:
            # A page that cannot be served is no reason not to watch.
            log.error("no page: %s cannot be served (%s); watching goes on", web.listen_address, error)
            return
        self.web_url = server.url
        log.info("page, API and metrics at %s", server.url)
        server.start()
        self._web = server

    def _build_aftermath(self, config: Config, state: Path | None) -> Aftermath | None:
        if state is None:
            return None  # nothing may be left on the disk
        context = {"version": __version__, "rules": self.core.pipeline.ruleset.digest}
        return Aftermath(config, state, self.telemetry, self._followed, observe=self.options.observe, context=context)

    def _followed(self, server: str) -> Sequence[str]:
        return self.log_edge.files(server)

    def _start_aftermath(self) -> None:
        if self.aftermath is not None:
            thread = Supervised("aftermath", self.aftermath.work)
            thread.start()
            self._threads.append(thread)

    @property
    def threads(self) -> list[Supervised]:
        """All supervised threads, for the daemon's own health."""
        return [*self._edge_threads, *self._threads, *self.dispatcher.threads()]

    @property
    def lock(self) -> threading.RLock:
        """Held while the core works; a view that reads the core's state takes it."""
        return self._lock

    # -- alerts ----------------------------------------------------------------------------------------------

    def _emit(self, alerts: Sequence[Alert]) -> None:
        self.dispatcher.take(alerts)
        for alert in alerts:
            if self.aftermath is not None:
                self.aftermath.take(alert)
            self.printer(alert)
        self.events.publish("alerts", "incidents", "servers")

    # -- signals and reload ----------------------------------------------------------------------------------

    def _handle_signals(self) -> None:
        def stop(_number: int, _frame: Any) -> None:
            self._stop.set()

        def reload(_number: int, _frame: Any) -> None:
            self._reload.set()

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        signal.signal(signal.SIGHUP, reload)

    def request_reload(self) -> None:
        """Read the configuration anew as soon as the core gets round to it."""
        self._reload.set()

    def reload(self) -> str:
        """Read configuration and rules anew. A set with a fault changes nothing; returns the reason, or ``""``."""
        self._notifier.reloading()
        config, ruleset, faults = _load(self.options.config_file, self.config)
        errors = [fault for fault in faults if fault.severity == "error"]
        if errors:
            for fault in errors:
                log.error("%s", fault)
            self.reload_error = f"{errors[0]} ({len(errors)} faults in all); the old configuration stays"
            self.telemetry.set("config_last_reload_successful", 0.0)
            log.error("reload refused: the old configuration stays in force")
            self._notifier.ready("reload refused, old configuration in force")
            return self.reload_error
        for thread in self._edge_threads:
            thread.stop()
        self.log_edge.close()
        with self._lock:
            while True:
                try:
                    self._handle(self._queue.get_nowait())
                except queue.Empty:
                    break
            self.core.reload(config, ruleset)
            self.config = config
            self.log_edge = LogEdge(config, self.core.positions(), self._put_log, self.telemetry)
        self.dispatcher.reload(config)
        self._start_edges()
        self.reload_error, self.config_loaded = "", time.time()
        self.telemetry.set("config_last_reload_successful", 1.0)
        self.telemetry.set("config_last_reload_success_timestamp_seconds", self.config_loaded)
        log.info("configuration reloaded: %d servers, %d rules", len(config.servers), len(ruleset.rules))
        self._notifier.ready("configuration reloaded")
        return ""

    def _announce(self) -> None:
        where = self.state if self.state is not None else "memory only: offsets and alerts do not survive a restart"
        log.info("wedgewatch %s watches %d server(s); state in %s", __version__, len(self.config.servers), where)
        for server in self.config.servers:
            sources = [
                source.path or source.journald or ("stdin" if source.stdin else "other") for source in server.logs
            ]
            log.info(
                "server %s: engine %s, logs %s, metrics %s",
                server.name,
                server.engine,
                ", ".join(sources) or "none",
                server.metrics.url if server.metrics is not None else "none",
            )
        if self.options.observe:
            log.info("observing only: everything is decided and shown, nothing is sent")


# -- the command ---------------------------------------------------------------------------------------------


def run(arguments: argparse.Namespace) -> int:
    """``wedgewatch run``. Returns the exit code: 0 after a signal, 2 when the configuration is wrong."""
    _own_log(arguments.log_level)
    if not arguments.config and not arguments.log and not arguments.metrics:
        print("wedgewatch: nothing to watch; give -c FILE, or --log PATH and --metrics URL", file=sys.stderr)
        return 2
    try:
        base = default_config(
            tuple(arguments.log),
            arguments.metrics or "",
            engine=arguments.engine or "auto",
            server=arguments.server or "server",
            from_start=arguments.from_start,
        ) if not arguments.config else Config()  # fmt: skip
    except ValueError as error:
        print(f"wedgewatch: {error}", file=sys.stderr)
        return 2
    config, ruleset, faults = _load(arguments.config or "", base)
    errors = [fault for fault in faults if fault.severity == "error"]
    for fault in errors or faults:
        print(fault, file=sys.stderr)
    if errors:
        print(f"wedgewatch: {len(errors)} fault(s), nothing was started", file=sys.stderr)
        return 2
    config = _override(config, arguments)
    options = Options(
        config_file=arguments.config or "",
        observe=arguments.observe,
        as_json=arguments.json,
        alert_log=arguments.alert_log or "",
    )
    state = _state_folder(config, arguments)
    try:
        daemon = Daemon(config, ruleset, options, state=state)
    except StoreLocked as error:
        print(f"wedgewatch: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"wedgewatch: {error.filename or 'state'}: {error.strerror}", file=sys.stderr)
        return 2
    return daemon.run()


def _load(config_file: str, fallback: Config) -> tuple[Config, RuleSet, list[Fault]]:
    config, faults = load_config(config_file) if config_file else (fallback, [])
    ruleset, rule_faults = load_rules(
        config.rule_files, config.bundled_rules, check_expr=check_expr, disabled=config.disabled_rules
    )
    if config.disabled_rules:
        off = set(config.disabled_rules)
        ruleset = replace(ruleset, rules=tuple(rule for rule in ruleset.rules if rule.alert not in off))
    return config, ruleset, [*faults, *rule_faults]


def _override(config: Config, arguments: argparse.Namespace) -> Config:
    """Command-line words that go over the file's."""
    if arguments.listen is not None:
        web = replace(config.web, enabled=bool(arguments.listen))
        config = replace(config, web=replace(web, listen_address=arguments.listen) if arguments.listen else web)
    elif not arguments.config:
        # A first try beside a server must not fail because another one listens already.
        config = replace(config, web=replace(config.web, enabled=config.web.enabled))
    if arguments.state:
        config = replace(config, state=replace(config.state, path=arguments.state))
    return config


def _state_folder(config: Config, arguments: argparse.Namespace) -> Path | None:
    """Where state is kept. Without a configuration or --state nothing is left on the disk."""
    if not arguments.config and not arguments.state:
        return None
    return state_path(config)


def _own_log(level: str) -> None:
    logging.basicConfig(
        level=level.upper(),
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S%z",
    )


def _printer(options: Options) -> Callable[[Alert], None]:
    """How alerts appear on standard output."""
    if options.as_json:

        def as_json(alert: Alert) -> None:
            print(json.dumps(alert.to_json(), ensure_ascii=False), flush=True)

        return as_json
    from integrations.terminal import render_terminal

    color = sys.stdout.isatty() and "NO_COLOR" not in os.environ

    def as_text(alert: Alert) -> None:
        if alert.state == "pending" or (alert.state == "resolved" and alert.fired_at is None):
            return
        width = os.get_terminal_size().columns if sys.stdout.isatty() else 100
        print(render_terminal(alert, color=color, width=max(60, min(width, 120))), flush=True)

    return as_text
