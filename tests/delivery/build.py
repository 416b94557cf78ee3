"""Alerts, configurations and a rig that runs store, planner and workers by hand, with a clock that only we move."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agent.config import Config
from agent.config.model import GlobalConfig
from agent.config.routing import NotificationsConfig, ReceiverConfig, Route
from agent.model import Alert, Checklist, ProgressSummary, StageEvidence, parse_rfc3339
from agent.notify import Dispatcher
from agent.store import Store
from integrations.base import Notification, Outcome, Traits
from integrations.registry import CONFIGS

__all__ = ["Clock", "Counts", "Rig", "ScriptedReceiver", "T", "alert", "config", "notification", "resolved"]

T = parse_rfc3339("2026-12-01T01:39:58Z")


class Clock:
    """Time that passes only when told to."""

    def __init__(self, now: float = T) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


class Counts:
    """A meter that can be read."""

    def __init__(self) -> None:
        self.counted: dict[tuple[str, ...], float] = {}

    def inc(self, name: str, amount: float = 1.0, **labels: str) -> None:
        key = (name, *sorted(labels.values()))
        self.counted[key] = self.counted.get(key, 0.0) + amount

    def set(self, name: str, value: float, **labels: str) -> None:
        self.counted[(name, *sorted(labels.values()))] = value

    def observe(self, name: str, value: float, **labels: str) -> None:
        self.inc(name, 1.0, **labels)

    def of(self, name: str, *labels: str) -> float:
        return sum(value for key, value in self.counted.items() if key[0] == name and set(labels) <= set(key[1:]))


def alert(server: str = "trtllm-0", now: float = T, **changes: Any) -> Alert:
    """A token-budget deadlock, fired at ``now`` after an onset 130 s before."""
    onset = now - 130
    base: dict[str, Any] = {
        "alertname": "TokenBudgetDeadlock",
        "failure": "token_budget_deadlock",
        "state": "firing",
        "confidence": "confirmed",
        "severity": "critical",
        "server": server,
        "engine": "tensorrt_llm",
        "fingerprint": f"fp-{server}",
        "starts_at": onset,
        "fired_at": now,
        "stages": (
            StageEvidence("start", onset - 126, "max_num_tokens=8192 max_batch_size=64", "server.log", 10412, "INFO"),
            StageEvidence("pressure", onset - 17, "214 requests waiting", "server.log", 11877, "WARN"),
            StageEvidence(
                "symptom",
                onset,
                "AssertionError: total_num_tokens (9001) should be less than or equal to max_num_tokens (8192)",
                "server.log",
                11902,
                "ERROR",
                count=3,
            ),
        ),
        "progress": ProgressSummary("stalled", onset, 214, 64, 0, 0),
        "checklist": Checklist("yes", "yes: rate 1.9x over 5m; no restart for 6h12m", "not run"),
        "labels": {"alertname": "TokenBudgetDeadlock", "severity": "critical", "cluster": "prod-eu1"},
        "annotations": {"summary": "The scheduler's loop ended", "runbook_url": "https://example.com/runbooks/x"},
        "context": {
            "before": {"finished_per_minute": 31, "tokens_per_second": 4100, "requests_waiting": 3},
            "now": {"finished_per_minute": 0, "tokens_per_second": 0, "requests_waiting": 214},
            "stalled_for": 130,
            "excluded": ["overload (would still finish slowly)"],
            "actions": ["Keep evidence: py-spy dump --pid 1", "Restart the pod"],
            "series": {"requests_waiting": [[onset - 300 + 10 * i, float(i)] for i in range(30)]},
        },
    }
    base.update(changes)
    return Alert(**base)


def resolved(fired: Alert, at: float) -> Alert:
    """The same alert when it is over."""
    return fired.with_(state="resolved", ends_at=at)


def notification(*alerts: Alert, **changes: Any) -> Notification:
    base: dict[str, Any] = {
        "receiver": "team",
        "key": "wedgewatch/prod-eu1/trtllm-0/fp",
        "action": "open",
        "alerts": alerts or (alert(),),
        "now": T,
    }
    base.update(changes)
    return Notification(**base)


def config(
    receivers: Mapping[str, Any],
    route: Route | None = None,
    *,
    limits: NotificationsConfig | None = None,
    **more: Any,
) -> Config:
    """A configuration with receivers by name; a receiver is one configuration object or a tuple of them."""
    key_of = {cls: key for key, cls in CONFIGS.items()}
    made = []
    for name, given in receivers.items():
        items: dict[str, tuple[Any, ...]] = {}
        for item in given if isinstance(given, tuple) else (given,):
            key = key_of[type(item)]
            items[key] = (*items.get(key, ()), item)
        made.append(ReceiverConfig(name=name, configs=items))
    return Config(
        global_=more.pop("global_", GlobalConfig(external_labels={"cluster": "prod-eu1"})),
        route=route or Route(receiver=next(iter(receivers), ""), group_wait=1.0),  # type: ignore[arg-type]
        receivers=tuple(made),
        notifications=limits or NotificationsConfig(),
        **more,
    )


class ScriptedReceiver:
    """A receiver in the process: what it is told is kept, how it answers is given."""

    def __init__(self, traits: Traits | None = None, kind: str = "scripted") -> None:
        self.kind = kind
        self.traits = traits or Traits()
        self.told: list[Notification] = []
        self.answers: list[Outcome | BaseException | Callable[[Notification], Outcome]] = []

    def notify(self, notification: Notification) -> Outcome:
        self.told.append(notification)
        answer = self.answers.pop(0) if self.answers else Outcome.success()
        if isinstance(answer, BaseException):
            raise answer
        return answer(notification) if callable(answer) else answer

    @property
    def actions(self) -> list[str]:
        return [item.action for item in self.told]


class Rig:
    """Store, dispatcher and workers without threads. ``run`` lets time pass, attempts being made when they are due."""

    def __init__(
        self,
        config: Config,
        folder: Path | None = None,
        *,
        clock: Clock | None = None,
        seed: int = 1,
        **options: Any,
    ) -> None:
        self.clock = clock or Clock()
        self.config = config
        self.meter = Counts()
        self.store = Store(folder, clock=self.clock)
        self.dispatcher = Dispatcher(
            config, self.store, self.clock, meter=self.meter, rng=random.Random(seed), **options
        )

    def fire(self, *alerts: Alert) -> None:
        """The core commits alerts and says so."""
        self.store.commit(alerts=alerts)
        self.dispatcher.take(alerts)

    def over(self, *alerts: Alert) -> None:
        self.fire(*(resolved(item, self.clock.now) for item in alerts))

    def settle(self) -> float:
        """Everything that is due now. Returns the seconds until something else is."""
        wait = self.dispatcher.tick(self.clock.now) - self.clock.now
        for worker in list(self.dispatcher.workers.values()):
            pause = worker.step(self.clock.now)
            while pause == 0.0:
                pause = worker.step(self.clock.now)
            wait = min(wait, pause)
        after = self.dispatcher.tick(self.clock.now) - self.clock.now
        return max(0.05, min(wait, after))

    def run(self, seconds: float) -> None:
        """Lets so much time pass."""
        ends = self.clock.now + seconds
        while True:
            wait = self.settle()
            if self.clock.now >= ends:
                return
            self.clock.now = min(ends, self.clock.now + wait)

    def restart(self, config: Config | None = None) -> Rig:
        """As after kill -9: nothing is carried over but the folder."""
        folder = self.store.path.parent if self.store.path is not None else None
        assert folder is not None, "a rig that restarts needs a folder"
        self.close()
        return Rig(config or self.config, folder, clock=self.clock)

    def close(self) -> None:
        self.store.close()

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
