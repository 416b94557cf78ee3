"""Whether a log is read as fast with all receivers hung as with all well: time from a line to its durable decision.

The real core (streams, matcher, detector, store) is handed one line after another, for many servers; now and then one
makes an alert fire. Receivers answer at once, or take each request and never answer. Measured is what one line costs
the thread that reads logs, its commit included. Run by ``python -m bench.delivery``; alone it prints its figures.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from agent.config import Config
from agent.config.model import GlobalConfig
from agent.config.routing import NotificationsConfig, ReceiverConfig, Route
from agent.config.servers import LogSource, ServerConfig
from agent.core import Core
from agent.log_edge import LogBytes
from agent.model import Secret
from agent.notify import Dispatcher
from agent.rules.load import load_rules
from agent.store import Store
from integrations.local_receiver import LocalReceiver, Reply
from integrations.webhook import WebhookConfig

__all__ = ["Lag", "measure"]

RULE = """
rules:
  - alert: BenchFault
    failure: crash
    fingerprint:
      within: 5m
      by: [server]
      stages: [{stage: symptom, terminal: true, any: [{contains: "BENCH FAULT"}]}]
    for: 0s
    labels: {severity: critical}
    annotations: {summary: "bench"}
"""
RECEIVERS = 3
EVERY = 100
"""One line in so many makes an alert fire, each of another server."""


@dataclass(frozen=True, slots=True)
class Lag:
    """Seconds a line: median, 99th percentile, worst; ``alerts`` that fired, ``sent`` messages that were accepted."""

    median: float
    p99: float
    worst: float
    alerts: int
    sent: int


def measure(lines: int, *, hung: bool) -> Lag:
    """Hands ``lines`` lines to a fresh core."""
    gate = threading.Event()
    accepted: list[int] = []

    def before(handler: BaseHTTPRequestHandler, data: bytes) -> Reply | None:
        if hung:
            gate.wait(60)
            return Reply(0)
        accepted.append(1)
        return None

    servers = tuple(
        ServerConfig(name=f"server-{number:03d}", engine="vllm", logs=(LogSource(path=f"/nowhere/{number}.log"),))
        for number in range(max(1, lines // EVERY))
    )
    with tempfile.TemporaryDirectory() as folder, LocalReceiver(before=before) as service:
        names = [f"hook-{number}" for number in range(RECEIVERS)]
        config = Config(
            global_=GlobalConfig(),
            servers=servers,
            route=Route(
                receiver=names[0],
                group_wait=0.0,  # type: ignore[arg-type]
                group_by=("server",),
                routes=tuple(Route(receiver=name, continue_=True) for name in names),
            ),
            receivers=tuple(
                ReceiverConfig(
                    name=name, configs={"webhook_configs": (WebhookConfig(url=Secret(f"{service.url}/{name}")),)}
                )
                for name in names
            ),
            notifications=NotificationsConfig(storm_limit=100_000),
        )
        rule_file = Path(folder, "bench.yaml")
        rule_file.write_text(RULE)
        ruleset, faults = load_rules([rule_file])
        assert not faults, faults
        with Store(Path(folder, "state")) as store:
            dispatcher = Dispatcher(config, store)
            core = Core(config, ruleset, store, clock=time.time, emit=dispatcher.take)
            dispatcher.start()
            took = _feed(core, lines)
            alerts = len(store.alerts(open=True, limit=100_000))
            gate.set()
            dispatcher.stop(0.6)
    took.sort()
    return Lag(
        statistics.median(took), took[min(len(took) - 1, int(len(took) * 0.99))], took[-1], alerts, len(accepted)
    )


def _feed(core: Core, lines: int) -> list[float]:
    took = []
    for number in range(lines):
        server = f"server-{number // EVERY:03d}"
        fault = number % EVERY == EVERY // 2
        stamp = time.strftime("%m-%d %H:%M:%S", time.gmtime())
        text = "BENCH FAULT" if fault else f"Added request cmpl-{number}."
        line = f"(EngineCore_0 pid=7) {'ERROR' if fault else 'INFO'} {stamp} [core.py:{number}] {text}\n"
        item = LogBytes(
            key=server, server=server, file=f"{server}.log", data=line.encode(), position={"offset": number}
        )
        began = time.perf_counter()
        core.on_log(item)
        core.tick()
        took.append(time.perf_counter() - began)
        time.sleep(0.001)  # a log of about a thousand lines a second
    return took


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    for hung in (False, True):
        print("hung" if hung else "well", measure(count, hung=hung))
