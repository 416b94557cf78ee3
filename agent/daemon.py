"""The live shell: threads at the edges, one bounded mailbox, one core.

Readers of logs, scrapers and canaries put what they see into the mailbox; the main thread takes it out, one thing at a
time, and lets the core decide. When the mailbox is full the readers wait (the bytes stay where they are), so a burst
costs time and never memory.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agent import __version__
from agent.aftermath import Aftermath
from agent.alert_log import AlertLog
from agent.cache_folder import cache_folder
from agent.config import Config
from agent.config_watch import ConfigWatch
from agent.core import Core
from agent.gauges import Gauges
from agent.log_sources import LogBytes, ReadToEnd
from agent.mailbox import Mailbox
from agent.model import Alert, Sample
from agent.notify.dispatcher import Dispatcher
from agent.observed import observed, observing_since, report_text
from agent.reload import Loaded, Reloaded, Reloader
from agent.rules.load import expand_paths
from agent.rules.model import RuleSet
from agent.store import Retention, Store
from agent.systemd import SystemdNotifier
from agent.telemetry import Telemetry
from agent.threads import Supervised
from agent.watchers import Watchers
from agent.web.events import EventBus
from agent.web.jsonable import jsonable

if TYPE_CHECKING:
    from agent.web.server import WebServer
    from agent.web.view import Observed

__all__ = ["Daemon", "Options"]

log = logging.getLogger("wedgewatch")

SHUTDOWN: Final = 4.5
"""Seconds after which a shutdown is over, whatever hangs."""
PAUSED: Final = 30.0
"""Seconds without a round of the core after which we were stopped or suspended: the logs have run ahead meanwhile."""
SETTLE: Final = 3.0
"""Seconds that a source gets to bring what it missed, when it cannot say that it has."""
AT_ONCE: Final = 64
"""Things taken out of the mailbox before the core looks up and commits."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says beside the configuration. ``printer`` shows an alert on standard output."""

    config_file: str = ""
    observe: bool = False
    alert_log: str = ""
    matcher: str = "auto"
    printer: Callable[[Alert], None] | None = None


@dataclass(frozen=True, slots=True)
class _Looks:
    samples: Sequence[Sample]
    engine: str


_Item = LogBytes | ReadToEnd | _Looks | Reloaded


class Daemon:
    """Everything that runs while servers are watched. :meth:`run` returns the exit code.

    ``load`` reads the configuration anew, for a reload. Raises StoreLocked when another daemon has the state folder,
    OSError when the alert log cannot be opened.
    """

    def __init__(
        self, config: Config, ruleset: RuleSet, options: Options, *, state: Path | None, load: Callable[[], Loaded]
    ) -> None:
        self.options = options
        self.state = state
        self.config = config
        self.clock = time.time
        self.started = self.clock()
        self.alert_changes = 0
        self.lock = threading.RLock()
        """Held while the core works; a view that reads the core's state takes it."""
        self._mailbox: Mailbox[_Item] = Mailbox()
        self._stopping = False
        self._hung_up = False
        self._report_asked = False
        self._beat = time.monotonic()
        self._offset = self.clock() - self._beat
        self._turn = 1
        self._lines = (self._beat, 0, 0.0)
        self.telemetry = Telemetry(version=__version__)
        self.alert_log = AlertLog(options.alert_log) if options.alert_log else None
        self.store = Store(state, retention=_retention(config))
        self.dispatcher = Dispatcher(
            config, self.store, meter=self.telemetry, observe=options.observe, alive=self._alive
        )
        self.core = Core(
            config,
            ruleset,
            self.store,
            clock=self.clock,
            emit=self._emit,
            deliver=self._deliver,
            alert_log=self.alert_log,
            cache_dir=cache_folder(state),
            matcher=options.matcher,
        )
        self.watchers = Watchers(self._post, self._put_looks, self.core.last_completion, self.telemetry)
        self.events = EventBus()
        self.web_url = ""
        self._web: WebServer | None = None
        self._notifier = SystemdNotifier()
        self.aftermath = self._build_aftermath(state)
        self.reloader = Reloader(
            load,
            self.core.build,
            lambda taken: self._post(taken, 0, lambda: self._stopping),
            ConfigWatch(self._config_files),
            begin=self._notifier.reloading,
            end=self._reload_ended,
        )
        self._observe_since = observing_since(self.store, self.started, observe=options.observe)
        self.gauges = Gauges(self)
        self._threads = [Supervised("reload", self.reloader.work)]
        if self.aftermath is not None:
            self._threads.append(Supervised("aftermath", self.aftermath.work))

    # -- life ------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Watch until a signal says stop."""
        self._handle_signals()
        self._announce()
        self.gauges.configured()
        self.gauges.restored([stored.alert for stored in self.store.alerts(open=True)])
        self.dispatcher.start()
        for thread in self._threads:
            thread.start()
        self._start_watching()
        self._start_web()
        release_memory()
        self._notifier.ready(f"watching {len(self.config.servers)} server(s)")
        try:
            while not self._stopping:
                self._round()
        finally:
            self.shutdown()
        return 0

    def _round(self) -> None:
        item = self._mailbox.take(self.core.wait())
        self._answer_signals()
        now = time.monotonic()
        with self.lock:
            if now - self._beat > PAUSED:
                self._look_again(now - self._beat)
            offset = self.clock() - now
            if abs(offset - self._offset) > PAUSED:
                log.warning(
                    "the clock was set by %.0f s; silence across that is not held against any server",
                    offset - self._offset,
                )
                self.core.pipeline.clock_set()
            self._offset = offset
            for _ in range(AT_ONCE):
                if item is None:
                    break
                self._handle(item)
                item = self._mailbox.take(0.0)
            if item is not None:
                self._handle(item)
            self.core.tick()
        self._beat = time.monotonic()
        self._notifier.alive()

    def _handle(self, item: _Item) -> None:
        if isinstance(item, LogBytes):
            self.core.on_log(item)
        elif isinstance(item, _Looks):
            self.core.on_samples(item.samples, item.engine)
            self.events.publish("servers")
        elif isinstance(item, ReadToEnd):
            if item.turn >= self._turn and not item.source.retired:
                self.core.read_to_end(item.source.server, item.source.name)
        else:
            self._take_over(item)

    def _start_watching(self) -> None:
        with self.lock:
            dialects = self.core.pipeline.ruleset.dialects
            self.watchers.apply(self.config, self.core.positions(), dialects)
            self._hold(self.core.positions())
        self.watchers.start()

    def _hold(self, positions: Any) -> None:
        """What happens is told in order once the logs are read to their ends."""
        self.core.catch_up(self.watchers.tell_ends(self._turn))
        # The journal and pods cannot say so; where they have a position, there is something to be caught up with.
        late = {s.server: [s.name] for s in self.watchers.logs.sources if not s.tells_its_end and s.kind != "stdin"}
        resumed = {key.partition("\x1f")[0] for key in positions}
        self.core.catch_up({server: names for server, names in late.items() if server in resumed}, SETTLE)

    def _look_again(self, seconds: float) -> None:
        log.warning("nothing was done for %.0f s (stopped, suspended, or the machine was busy); reading on", seconds)
        self._turn += 1
        self.core.catch_up(self.watchers.tell_ends(self._turn), SETTLE)

    def shutdown(self) -> None:
        """Commit, deliver what can be delivered at once, end the threads."""
        self._stopping = True
        limit = threading.Timer(SHUTDOWN, _give_up)
        limit.daemon = True
        limit.start()
        self._notifier.stopping()
        self.watchers.stop()
        with self.lock:
            deadline = time.monotonic() + 1.0
            while time.monotonic() < deadline and (item := self._mailbox.take(0.0)) is not None:
                if not isinstance(item, Reloaded):
                    self._handle(item)
            self.core.tick()
            self.core.commit(last=True)
        self.dispatcher.stop(2.0)
        self.reloader.stop()
        for thread in self._threads:
            thread.stop()
        if self.aftermath is not None:
            self.aftermath.wake()
        if self._web is not None:
            self._web.close()
        if self.options.observe:
            self._print_report()
        self.watchers.join(0.5)
        if self.alert_log is not None:
            self.alert_log.close()
        self.store.close()
        limit.cancel()
        log.info("stopped")

    def _alive(self) -> bool:
        """For the heartbeat: did the core get round lately?"""
        return time.monotonic() - self._beat < 30.0

    # -- edges -----------------------------------------------------------------------------------------------

    def _post(self, item: _Item, size: int, given_up: Callable[[], bool]) -> None:
        self._mailbox.put(item, size, given_up)

    def _put_looks(self, samples: Sequence[Sample], engine: str) -> None:
        if not self._mailbox.put(_Looks(samples, engine), 0, lambda: self._stopping, timeout=5.0):
            for server in {sample.server for sample in samples}:
                if not self._stopping:
                    log.warning("the core is behind; a look at %s was dropped", server)
                    self.telemetry.inc("scrape_failures_total", 1.0, server=server, reason="other")

    def _start_web(self) -> None:
        web = self.config.web
        if not web.enabled:
            return
        from agent.live_view import LiveView
        from agent.web.server import WebServer
        from agent.web.tls import TlsFiles

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
                poll_interval=5.0,
            )
        except (OSError, ValueError) as error:
            # A page that cannot be served is no reason not to watch.
            log.error("no page: %s cannot be served (%s); watching goes on", web.listen_address, error)
            return
        self.web_url = server.url
        log.info("page, API and metrics at %s", server.url)
        server.start()
        self._web = server

    def _build_aftermath(self, state: Path | None) -> Aftermath | None:
        if state is None:
            return None  # nothing may be left on the disk
        ruleset = self.core.pipeline.ruleset
        context = {"version": __version__, "rules": ruleset.digest}
        return Aftermath(
            self.config,
            state,
            self.telemetry,
            self.watchers.logs.files,
            ruleset.dialects,
            observe=self.options.observe,
            context=context,
        )

    @property
    def threads(self) -> list[Supervised]:
        """All supervised threads, for the daemon's own health."""
        return [*self.watchers.threads(), *self._threads, *self.dispatcher.threads()]

    def line_rate(self) -> float:
        """Log lines a second since this was asked last, or a moment ago."""
        then, before, rate = self._lines
        now, lines = time.monotonic(), sum(source.lines for source in self.watchers.logs.sources)
        if now - then < 1.0:
            return rate
        rate = max(0, lines - before) / (now - then)
        self._lines = (now, lines, rate)
        return rate

    # -- alerts ----------------------------------------------------------------------------------------------

    def _deliver(self, alerts: Sequence[Alert]) -> None:
        self.dispatcher.take(alerts)
        if self.aftermath is not None:
            for alert in alerts:
                self.aftermath.take(alert)

    def _emit(self, alerts: Sequence[Alert]) -> None:
        self.gauges.alerts(alerts)
        for alert in alerts:
            if self.options.printer is not None:
                self.options.printer(alert)
        self.alert_changes += 1
        self.events.publish("alerts", "incidents", "servers")

    def observed(self) -> Observed:
        """What would have paged since observing began; without ``--observe``, what did page since the start."""
        return observed(
            self.store,
            self._observe_since,
            self.clock(),
            observe=self.options.observe,
            told=self.dispatcher.receivers_of,
        )

    def _print_report(self) -> None:
        try:
            sys.stdout.write(report_text(jsonable(self.observed())))
            sys.stdout.flush()
        except OSError as error:
            log.warning("the report cannot be printed: %s", error)

    # -- signals and reload ----------------------------------------------------------------------------------

    def _handle_signals(self) -> None:
        # A handler runs between any two instructions of the core: it sets a flag and takes no lock.
        def stop(_number: int, _frame: Any) -> None:
            self._stopping = True
            self._mailbox.wake()

        def reload(_number: int, _frame: Any) -> None:
            self._hung_up = True
            self._mailbox.wake()

        def report(_number: int, _frame: Any) -> None:
            self._report_asked = True
            self._mailbox.wake()

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        signal.signal(signal.SIGHUP, reload)
        signal.signal(signal.SIGUSR1, report)

    def _answer_signals(self) -> None:
        if self._hung_up:
            self._hung_up = False
            if self.alert_log is not None:
                self.alert_log.reopen()
            self.reloader.request()
        if self._report_asked:
            self._report_asked = False
            self._print_report()

    def _config_files(self) -> list[str]:
        files, _ = expand_paths(self.config.rule_files)
        return [self.options.config_file, *files] if self.options.config_file else files

    def _take_over(self, new: Reloaded) -> None:
        """A checked configuration comes into force; runs in the core's thread, under its lock."""
        old, self.config = self.config, new.config
        self.core.reload(new.config, new.pipeline)
        self.watchers.apply(new.config, self.core.positions(), new.ruleset.dialects)
        self.dispatcher.reload(new.config)
        if self.aftermath is not None:
            self.aftermath.apply(new.config, new.ruleset.dialects)
        self.watchers.start()
        if old.web != new.config.web or old.state != new.config.state:
            log.warning("changes of 'web' and 'state' come into force with the next start")
        self.alert_changes += 1
        new.taken.set()

    def _reload_ended(self, problem: str) -> None:
        if problem:
            self.telemetry.set("config_last_reload_successful", 0.0)
            self._notifier.ready("reload refused, the old configuration is in force")
        else:
            self.gauges.configured()
            self._notifier.ready("configuration reloaded")
            release_memory()
        self.events.publish("servers", "alerts")

    def _announce(self) -> None:
        where = self.state if self.state is not None else "memory only: offsets and alerts do not survive a restart"
        log.info("wedgewatch %s watches %d server(s); state in %s", __version__, len(self.config.servers), where)
        log.info("matcher: %s", self.core.pipeline.engine.describe())
        for fault in self.core.pipeline.engine.faults:
            log.warning("%s", fault)
        for server in self.config.servers:
            words = [
                source.path or source.journald or ("standard input" if source.stdin else "pods")
                for source in server.logs
            ]
            log.info(
                "server %s: engine %s, logs %s, metrics %s",
                server.name,
                server.engine,
                ", ".join(words) or "none",
                server.metrics.url if server.metrics is not None else "none",
            )
        if self.options.observe:
            log.info("observing only: everything is decided and shown, nothing is sent")


def _give_up() -> None:
    log.error("something hangs; ending without it (what was decided is committed)")
    logging.shutdown()
    os._exit(0)


def _retention(config: Config) -> Retention:
    return Retention(closed_alerts_seconds=config.state.retention, max_bytes=config.state.max_size_mib << 20)


def release_memory() -> None:
    """Give back to the system what reading rules and configuration needed for a moment."""
    import ctypes
    import gc

    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):  # another C library
        return
