"""Everything between the store and the receivers: the planner's thread, the workers, silences, our own alerts.

The daemon commits alerts to the store and calls :meth:`Dispatcher.take`; nothing here is on its path. The dispatcher
looks at the store (:meth:`tick`), commits pages and outbox rows, and wakes the workers. :meth:`reload` takes another
configuration: a target that is gone lives on until those whom it told of an alert have heard that it is over.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from agent.config import Config
from agent.model import Alert
from agent.notify.health import Health
from agent.notify.heartbeat import Heartbeat
from agent.notify.level import LevelWorker
from agent.notify.mutes import add_mute
from agent.notify.plan import Planner
from agent.notify.quiet import Inhibitor, Quiet
from agent.notify.routing import build_tree
from agent.notify.selfalerts import SelfAlerts
from agent.notify.targets import Built, build_targets
from agent.notify.values import Plan, Rules
from agent.notify.worker import Event, Meter, NoMeter, Settings, Worker
from agent.store import Silence, Store, StoredAlert
from agent.threads import Supervised
from integrations.alertmanager import RESOLVED_FOR, AlertmanagerReceiver, RemoteSilence

__all__ = ["Dispatcher"]

_log = logging.getLogger(__name__)

LONGEST_LOOK: Final = 15.0
"""Seconds between two looks when nothing is known to be due: a mute may have ended or been added by another process."""
_MANY: Final = 100_000


class Dispatcher:
    """See the module. ``start`` makes threads; tests call :meth:`tick` and the workers' ``step`` themselves."""

    def __init__(
        self,
        config: Config,
        store: Store,
        clock: Callable[[], float] = time.time,
        *,
        meter: Meter | None = None,
        observe: bool = False,
        alive: Callable[[], bool] = lambda: True,
        rng: random.Random | None = None,
        targets: Callable[[Config], dict[str, Built]] = build_targets,
    ) -> None:
        self._build_targets = targets
        self.workers: dict[str, Worker] = {}
        self.level_workers: dict[str, LevelWorker] = {}
        self.heartbeat: Heartbeat | None = None
        self._store = store
        self._clock = clock
        self._meter: Meter = meter or NoMeter()
        self._observe = observe
        self._alive = alive
        self._rng = rng or random.Random()
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._built: dict[str, Built] = {}
        self._threads: dict[str, Supervised] = {}
        self._running = False
        self._config = config
        self._planner: Planner
        self.self_alerts = SelfAlerts(store, clock, self._wake.set)
        self._health = Health(self.self_alerts)
        self._configure(config)
        self.self_alerts_enabled = config.notifications.self_alerts

    # -- life --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the threads: one that plans, one for each target and peer, the heartbeat."""
        with self._lock:
            self._running = True
            self._start_thread("notify", self._run)
            self._start_workers()

    def stop(self, timeout: float = 2.0) -> None:
        """Says what can still be said within ``timeout`` seconds and ends the threads; the rest stays in the store."""
        ends = time.monotonic() + timeout
        if self._running:
            self.tick(self._clock(), hurry=True)
            while time.monotonic() < ends - 0.5 and self._due_now():
                time.sleep(0.02)
        with self._lock:
            self._running = False
            threads = list(self._threads.values())
            self._threads.clear()
        for thread in threads:
            thread.stop()
        self._wake_all()
        for thread in threads:
            thread.join(max(0.05, ends - time.monotonic()))

    def reload(self, config: Config) -> None:
        """Another configuration, from now on. Alerts that were refused for a fault of the old one are planned anew."""
        with self._lock:
            self._configure(config)
            if self._running:
                self._start_workers()
        self._wake.set()

    # -- for the daemon ----------------------------------------------------------------------------------------------

    def take(self, alerts: Sequence[Alert]) -> None:
        """These alerts changed and are in the store: look at once. Never blocks."""
        if alerts:
            self._wake.set()

    def receivers_of(self, alert: Alert) -> list[str]:
        """Names of the receivers that the routes lead an alert to, whether or not anything holds it back."""
        with self._lock:
            found = [target.receiver for _, target in self._planner.targets_of(alert)]
        return list(dict.fromkeys(found))

    def change(self, text: str, labels: Mapping[str, str] | None = None) -> None:
        """Tells change-event receivers of a start, a restart, a changed configuration."""
        with self._lock:
            self._commit(self._planner.change(self._clock(), text, labels or {}))

    def acknowledge(self, fingerprint: str, who: str = "") -> int:
        """Somebody works on this alert: told where that means something. Returns to how many targets."""
        with self._lock:
            plan = self._planner.acknowledge(self._clock(), fingerprint, who, self._store.pages(open=True))
            self._commit(plan)
            return len(plan.rows)

    def mute(self, matchers: Sequence[str], seconds: float, *, comment: str = "", created_by: str = "") -> Silence:
        """Nobody is told of alerts that match, for so long. Raises ValueError for a text that is no matcher."""
        return add_mute(self._store, matchers, seconds, now=self._clock(), comment=comment, created_by=created_by)

    def unmute(self, silence_id: str) -> bool:
        """Ends a mute; False when there is none of that id."""
        done = self._store.expire_silence(silence_id)
        self._wake.set()
        return done

    def status(self) -> list[dict[str, Any]]:
        """Each target (and peer) for page and API: id, kind, whether it works, what waits. No secrets."""
        counts = self._store.outbox_counts()
        found: list[dict[str, Any]] = []
        with self._lock:
            for name, worker in sorted(self.workers.items()):
                waiting = counts.get(name, {})
                found.append(
                    {
                        "receiver": worker.target.receiver,
                        "target": name,
                        "integration": worker.target.kind,
                        "up": worker.failures == 0 and not worker.last_error,
                        "failures": worker.failures,
                        "last_error": worker.last_error,
                        "pending": int(waiting.get("pending", 0)),
                        "dead": int(waiting.get("dead", 0)),
                        "oldest": waiting.get("oldest"),
                        "retired": worker.target.retired,
                    }
                )
            for name, level in sorted(self.level_workers.items()):
                found.append(
                    {
                        "receiver": level.target.receiver,
                        "target": name,
                        "integration": level.target.kind,
                        "up": level.failures == 0,
                        "failures": level.failures,
                        "last_error": level.last_error,
                        "last_success": level.last_success,
                        "clock_skew_seconds": level.peer.skew,
                        "pending": 0,
                        "dead": 0,
                    }
                )
        return found

    # -- one look ----------------------------------------------------------------------------------------------------

    def tick(self, now: float, *, hurry: bool = False) -> float:
        """Plans what has to be said and commits it. Returns when to look again."""
        with self._lock:
            self._mend(now)
            alerts = self._store.alerts(open=True, limit=_MANY)
            alerts += self._store.alerts(open=False, planned=False, limit=_MANY)
            plan = self._planner.plan(
                now,
                alerts,
                self._store.pages(open=True),
                self._quiet(now),
                episodes=self._store.episodes,
                latest=self._latest,
                hurry=hurry,
            )
            self._commit(plan)
            self._measure()
            later = now + LONGEST_LOOK
            return later if plan.next_at is None else max(now + 0.05, min(later, plan.next_at))

    def level_alerts(self, target: str, now: float) -> list[Alert]:
        """What an Alertmanager is to be told now: what fires and is not muted here, what resolved lately."""
        with self._lock:
            planner = self._planner
            if planner.rules.observe:
                return []
            # What an Alertmanager silenced it must still be told: it shows it as silenced, and lifts it by itself.
            quiet = self._quiet(now, remote=False)
            stored = self._store.alerts(open=True, limit=_MANY)
            stored += self._store.alerts(open=False, since=now - RESOLVED_FOR, limit=_MANY)
            found: dict[str, Alert] = {}
            for item in stored:
                alert = item.alert
                over = item.closed is not None and item.closed < now - RESOLVED_FOR
                if alert.fingerprint in found or alert.state == "pending" or alert.fired_at is None or over:
                    continue
                alert = alert.with_(labels={**planner.rules.external_labels, **alert.labels})
                nodes = [node for node, chosen in planner.targets_of(alert) if chosen.id == target]
                if not nodes or not quiet.route_open(nodes[0], now) or quiet.reason(alert, now):
                    continue
                found[alert.fingerprint] = alert
            return list(found.values())

    # -- inside ------------------------------------------------------------------------------------------------------

    def _configure(self, config: Config) -> None:
        built = self._build_targets(config)
        for name, old in self._built.items():
            if name not in built and self._still_needed(name):
                built[name] = replace(old, target=replace(old.target, retired=True))
        settings = Settings(config.global_.external_url, len(config.servers))
        keep = {name for name, item in built.items() if name in self._built and item.same_as(self._built[name])}
        ended = [name for name, worker in self.workers.items() if worker.target.id not in keep]
        ended += [name for name, level in self.level_workers.items() if level.target.id not in keep]
        for name in ended:
            self._end_worker(name)
        self._built = built
        limits = config.notifications
        rules = Rules(
            storm_limit=limits.storm_limit,
            flap_window=limits.flap_window,
            flap_limit=limits.flap_limit,
            external_labels=config.global_.external_labels,
            observe=self._observe,
        )
        targets = {name: item.target for name, item in built.items()}
        self._planner = Planner(build_tree(config.route), targets, Inhibitor(config.inhibit_rules), rules)
        peers = {
            name: len(item.receiver.peers)
            for name, item in built.items()
            if isinstance(item.receiver, AlertmanagerReceiver)
        }
        self._health.reset({name: peers.get(name, 1) for name in targets})
        for name, item in built.items():
            if isinstance(item.receiver, AlertmanagerReceiver):
                self._add_peers(name, item)
            elif name not in self.workers:
                self._add_worker(name, item, settings)
            else:
                self.workers[name].target = item.target
        self._config = config
        if config.heartbeat is not None:
            self.heartbeat = Heartbeat(
                config.heartbeat,
                default=config.global_.http_config,
                alive=self._alive,
                clock=self._clock,
                meter=self._meter,
            )
        else:
            self.heartbeat = None

    def _add_worker(self, name: str, item: Built, settings: Settings) -> None:
        self.workers[name] = Worker(
            item.target,
            item.receiver,
            self._store,
            clock=self._clock,
            on_event=self._event,
            settings=settings,
            meter=self._meter,
            rng=self._rng,
        )

    def _add_peers(self, name: str, item: Built) -> None:
        receiver = item.receiver
        assert isinstance(receiver, AlertmanagerReceiver)
        for peer in receiver.peers:
            known = f"{name}/{peer.peer}"
            if known not in self.level_workers:
                self.level_workers[known] = LevelWorker(
                    item.target,
                    peer,
                    lambda now, target=name: self.level_alerts(target, now),  # type: ignore[misc]  # binds the name
                    clock=self._clock,
                    on_event=self._event,
                    on_silences=self._remote_silences if receiver.honor_silences else None,
                    meter=self._meter,
                    rng=self._rng,
                )

    def _end_worker(self, name: str) -> None:
        worker = self.workers.pop(name, None) or self.level_workers.pop(name, None)
        thread = self._threads.pop(f"notify {name}", None)
        if thread is not None:
            thread.stop()
        if worker is not None:
            worker.wake()

    def _start_workers(self) -> None:
        for name, worker in self.workers.items():
            self._start_thread(f"notify {name}", worker.run)
        for name, level in self.level_workers.items():
            self._start_thread(f"notify {name}", level.run)
        beat = self._threads.pop("heartbeat", None)
        if beat is not None:
            beat.stop()
        if self.heartbeat is not None:
            self._start_thread("heartbeat", self.heartbeat.run)

    def _start_thread(self, name: str, work: Callable[[threading.Event], None]) -> None:
        if name not in self._threads:
            self._threads[name] = Supervised(name, work)
            self._threads[name].start()

    def threads(self) -> list[Supervised]:
        """The running threads, for the daemon's own health."""
        with self._lock:
            return list(self._threads.values())

    def _run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            due = self.tick(self._clock())
            self._wake.wait(max(0.05, min(LONGEST_LOOK, due - self._clock())))
            self._wake.clear()

    def _commit(self, plan: Plan) -> None:
        for reason, count in plan.suppressed.items():
            self._meter.inc("notifications_suppressed_total", float(count), reason=reason)
        if plan:
            for page in plan.pages:
                if page.id == 0 and page.closed is None:
                    plan.drop += [
                        old.id
                        for old in self._store.pages(receiver=page.receiver, open=False)
                        if old.state == "undelivered" and old.key == page.key
                    ]
            self._store.commit(pages=plan.pages, outbox=plan.rows, planned=plan.planned, drop=plan.drop)
        for page in plan.orphans:
            _log.error(
                "receiver %s is not configured any more, so nobody there hears that %s is over; close it by hand",
                page.receiver,
                page.key,
            )
        for name in {row.receiver for row in plan.rows}:
            if name in self.workers:
                self.workers[name].wake()
        for level in self.level_workers.values():
            if plan.planned:
                level.wake()

    def _mend(self, now: float) -> None:
        """Targets that refused for good get another chance after a while, or when a secret's file has changed."""
        for name in list(self._planner.broken):
            built = self._built.get(name)
            changed = built is not None and self._health.secrets_changed(name, built.secrets_digest())
            if changed or self._planner.broken[name] <= now:
                del self._planner.broken[name]

    def _event(self, event: Event) -> None:
        # Workers call this: no lock of ours is held while a store's is taken, and the other way round.
        if event.kind == "broken" and not event.peer:
            built = self._built.get(event.target)
            self._planner.broken[event.target] = self._clock() + Health.BROKEN_SECONDS
            if built is not None:
                self._health.remember_secrets(event.target, built.secrets_digest())
        elif event.kind == "ok" and self._planner.broken.pop(event.target, None) is not None:
            self._wake.set()
        if self.self_alerts_enabled:
            self._health.note(event, self._clock())

    def _remote_silences(self, peer: str, silences: Sequence[RemoteSilence]) -> None:
        source = f"alertmanager:{peer}"
        kept = [
            Silence(item.id, item.matchers, item.starts_at, item.ends_at, item.comment, item.created_by, source)
            for item in silences
        ]
        known = {item.id for item in self._store.silences() if item.source == source}
        if kept or known:
            self._store.put_silences(kept, replace_source=source)
            if {item.id for item in kept} != known:
                self._wake.set()

    def _quiet(self, now: float, *, remote: bool = True) -> Quiet:
        config = self._config
        silences = self._store.silences(active_at=now)
        if not remote:
            silences = [silence for silence in silences if not silence.source.startswith("alertmanager:")]
        return Quiet.of(silences, config.maintenance, config.time_intervals)

    def _latest(self, fingerprint: str) -> StoredAlert | None:
        """How an alert that does not fire now ended: its last episode that fired, not one that is only pending."""
        found = self._store.alerts(fingerprint=fingerprint, fired=True, limit=1)
        return found[0] if found else None

    def _still_needed(self, name: str) -> bool:
        return bool(self._store.pages(receiver=name)) or self._store.next_due(name) is not None

    def _due_now(self) -> bool:
        now = self._clock()
        dues = [self._store.next_due(name) for name in self.workers]
        return any(due is not None and due <= now for due in dues)

    def _wake_all(self) -> None:
        self._wake.set()
        for worker in self.workers.values():
            worker.wake()
        for level in self.level_workers.values():
            level.wake()

    def _measure(self) -> None:
        counts = self._store.outbox_counts()
        for name in self.workers:
            waiting = counts.get(name, {})
            self._meter.set("outbox_pending", waiting.get("pending", 0.0), receiver=name)
            self._meter.set("outbox_oldest_pending_timestamp_seconds", waiting.get("oldest", 0.0), receiver=name)
