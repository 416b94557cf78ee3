"""A thousand alerts through receivers that misbehave, while the sending process is killed again and again.

    python -m bench.delivery [--alerts 1000] [--faults 0.2] [--seed 1] [--write docs/bench-delivery.md]

Four receivers (PagerDuty, a webhook, Slack, Alertmanager) time out, drip, reset before and after doing what was asked,
answer 429 and 503, redirect and lie. The process that sends (bench/delivery_child.py) is killed with SIGKILL at random
moments and started anew on the same state. In the end every alert must have been told as firing and as over, in that
order, everywhere; where the service has a key no incident may exist twice. Exit 1 when that does not hold.
"""

from __future__ import annotations

import argparse
import platform
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from bench.delivery_child import OPEN_FOR
from bench.delivery_lag import Lag, measure
from integrations.local_receiver import Arrival, Desk, LocalReceiver, Reply

__all__ = ["main"]

TIMEOUT = 0.5
FAULTS = ("hang", "drip", "reset", "reset after", "429", "503", "redirect", "lie")


class Chaos:
    """Decides what happens to each request. ``after`` faults do what was asked first: they look like failures and are
    none, which is what makes repeats."""

    def __init__(self, desk: Desk, rate: float, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self.calm = threading.Event()
        self._desk = desk
        self._rate = rate
        self._rng = random.Random(seed)
        self._lock = threading.Lock()

    def before(self, handler: BaseHTTPRequestHandler, data: bytes) -> Reply | None:
        with self._lock:
            fault = "none" if self.calm.is_set() or self._rng.random() >= self._rate else self._rng.choice(FAULTS)
            self.counts[fault] += 1
        if fault == "none":
            return None
        return getattr(self, "_" + fault.replace(" ", "_"), self._answer)(handler, data, fault)  # type: ignore[no-any-return]

    def _answer(self, handler: BaseHTTPRequestHandler, data: bytes, fault: str) -> Reply:
        return {
            "429": Reply(429, b"", {"Retry-After": "1"}),
            "503": Reply(503, b"down for maintenance"),
            "redirect": Reply(302, b"", {"Location": "https://sso.example.com/login"}),
            "lie": Reply(200, b"<html>Sign in</html>", content_type="text/html"),
        }[fault]

    def _hang(self, handler: BaseHTTPRequestHandler, data: bytes, fault: str) -> Reply:
        time.sleep(2 * TIMEOUT)
        return Reply(0)

    def _drip(self, handler: BaseHTTPRequestHandler, data: bytes, fault: str) -> Reply:
        ends = time.monotonic() + 3 * TIMEOUT
        try:
            for byte in b"HTTP/1.1 200 OK\r\nX-Filler: " + b"x" * 10_000:
                handler.wfile.write(bytes([byte]))
                time.sleep(0.02)
                if time.monotonic() > ends:
                    break
        except OSError:
            pass  # the client had enough
        return Reply(0)

    def _reset(self, handler: BaseHTTPRequestHandler, data: bytes, fault: str) -> Reply:
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        handler.connection.close()
        return Reply(0)

    def _reset_after(self, handler: BaseHTTPRequestHandler, data: bytes, fault: str) -> Reply:
        self._desk.answer(handler.command, handler.path, dict(handler.headers.items()), data)
        return self._reset(handler, data, fault)


@dataclass
class Tally:
    """What one service saw of each alert."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    disordered: list[str] = field(default_factory=list)
    repeats: int = 0
    accepted: int = 0
    most: int = 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.delivery", description=__doc__.split("\n")[0])
    parser.add_argument("--alerts", type=int, default=1000)
    parser.add_argument("--faults", type=float, default=0.2, help="share of requests that go wrong")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lag-lines", type=int, default=2000, help="lines for the measure of log lag, 0: none")
    parser.add_argument("--write", default="", help="file for the result, as Markdown")
    options = parser.parse_args(arguments)
    rng = random.Random(options.seed)
    desk = Desk()
    chaos = Chaos(desk, options.faults, options.seed)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, LocalReceiver(desk=desk, before=chaos.before) as service:
        kills = _campaign(folder, service.url, options.alerts, rng)
    took = time.monotonic() - began
    tallies = {
        "PagerDuty (dedup key)": _pagerduty(desk.arrivals, options.alerts),
        "webhook (idempotency key)": _webhook(desk.arrivals, options.alerts),
        "Slack webhook (no key)": _slack(desk.arrivals, options.alerts),
        "Alertmanager (level)": _alertmanager(desk.arrivals, options.alerts),
    }
    lags = (
        (measure(options.lag_lines, hung=False), measure(options.lag_lines, hung=True)) if options.lag_lines else None
    )
    text = _report(options, chaos.counts, kills, took, tallies, lags)
    print(text)
    if options.write:
        with open(options.write, "w", encoding="utf-8") as handle:
            handle.write(text)
    bad = any(tally.lost or tally.doubled or tally.disordered for tally in tallies.values())
    return 1 if bad else 0


def _campaign(folder: str, url: str, alerts: int, rng: random.Random) -> int:
    """Runs the child until it is done, killing it at random moments. Returns how often."""
    command = [sys.executable, "-m", "bench.delivery_child", folder, url, str(alerts), str(TIMEOUT)]
    kills, last = 0, time.monotonic()
    while True:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        with child.stdout:
            assert child.stdout.readline() == "ready\n"
            try:
                child.wait(rng.uniform(0.2, 8.0))
            except subprocess.TimeoutExpired:
                child.send_signal(signal.SIGKILL)
                child.wait()
            if child.stdout.read() == "done\n":
                return kills
        kills += 1
        if time.monotonic() - last > 30:
            print(f"  {kills} kills so far", file=sys.stderr, flush=True)
            last = time.monotonic()


# -- what arrived -------------------------------------------------------------------------------------------------


def _servers(count: int) -> list[str]:
    return [f"server-{number:04d}" for number in range(count)]


def _pagerduty(arrivals: Sequence[Arrival], count: int) -> Tally:
    """An incident is opened by a trigger while none is open under its key."""
    tally, seen = Tally(), defaultdict[str, list[str]](list)
    for arrival in arrivals:
        if arrival.service == "pagerduty" and arrival.accepted:
            seen[arrival.body["dedup_key"].split("/")[2]].append(arrival.body["event_action"])
    for server in _servers(count):
        events = seen[server]
        tally.accepted += len(events)
        opened = sum(1 for before, event in zip(["resolve", *events], events, strict=False)
                     if event == "trigger" and before == "resolve")  # fmt: skip
        if "trigger" not in events or events[-1] != "resolve":
            tally.lost.append(f"{server}: {events}")
        if opened > 1:
            tally.doubled.append(f"{server}: {events}")
        if events and events[0] != "trigger":
            tally.disordered.append(f"{server}: {events}")
        tally.repeats += len(events) - len(set(events))
        tally.most = max(tally.most, *Counter(events).values(), 0)
    return tally


def _webhook(arrivals: Sequence[Arrival], count: int) -> Tally:
    """With the key a receiver drops what it has; here it must then be one firing and one resolved, in order."""
    tally, seen = Tally(), defaultdict[str, list[tuple[str, str]]](list)
    for arrival in arrivals:
        if arrival.path == "/hook" and arrival.accepted:
            for alert in arrival.body["alerts"]:
                seen[alert["labels"]["server"]].append((arrival.headers["Idempotency-Key"], alert["status"]))
    for server in _servers(count):
        events = seen[server]
        distinct = list(dict.fromkeys(events))
        states = [state for _, state in distinct]
        tally.accepted += len(events)
        tally.repeats += len(events) - len(distinct)
        tally.most = max(tally.most, *Counter(events).values(), 0)
        if not states or states[-1] != "resolved":
            tally.lost.append(f"{server}: {events}")
        if len(set(states)) != len(states):
            tally.doubled.append(f"{server}: {events}")
        if states and states != sorted(states):
            tally.disordered.append(f"{server}: {events}")
    return tally


def _slack(arrivals: Sequence[Arrival], count: int) -> Tally:
    """No key: repeats are possible where an answer was cut off, and counted. Both states, or one that says both."""
    tally, seen = Tally(), defaultdict[str, list[str]](list)
    for arrival in arrivals:
        if arrival.service == "slack" and arrival.accepted:
            first = arrival.body["text"].split("\n")[0]
            state = "resolved" if first.startswith("[RESOLVED]") else "firing"
            seen[first.split("] ")[1].split(":")[0]].append(state)
    for server in _servers(count):
        states = seen[server]
        tally.accepted += len(states)
        tally.repeats += len(states) - len(set(states))
        tally.most = max(tally.most, *Counter(states).values(), 0)
        if not states or states[-1] != "resolved":
            tally.lost.append(f"{server}: {states}")
        if states != sorted(states):
            tally.disordered.append(f"{server}: {states}")
    return tally


def _alertmanager(arrivals: Sequence[Arrival], count: int) -> Tally:
    """Level-triggered: repeats are its way; after the first ``endsAt`` no firing may come."""
    tally, seen = Tally(), defaultdict[str, list[str]](list)
    for arrival in arrivals:
        if arrival.path.startswith("/am") and arrival.accepted and isinstance(arrival.body, list):
            for item in arrival.body:
                seen[item["labels"]["server"]].append("resolved" if "endsAt" in item else "firing")
    for server in _servers(count):
        states = seen[server]
        tally.accepted += len(states)
        if not states or states[-1] != "resolved":
            tally.lost.append(f"{server}: {states}")
        if states != sorted(states):
            tally.disordered.append(f"{server}: {states}")
    return tally


# -- report -------------------------------------------------------------------------------------------------------


def _report(
    options: argparse.Namespace,
    faults: Counter[str],
    kills: int,
    took: float,
    tallies: dict[str, Tally],
    lags: tuple[Lag, Lag] | None,
) -> str:
    wrong = sum(faults.values()) - faults["none"]
    lines = [
        "# Delivery under faults",
        "",
        f"`python -m bench.delivery --alerts {options.alerts} --faults {options.faults} --seed {options.seed}`",
        "",
        f"{options.alerts} alerts, each firing for {OPEN_FOR} steps of the script, to four receivers. "
        f"{sum(faults.values())} requests, of which {wrong} went wrong: "
        + ", ".join(f"{count} {name}" for name, count in sorted(faults.items()) if name != "none")
        + f". The sending process was killed with SIGKILL {kills} times in {took:.0f} s. "
        f"Python {platform.python_version()}, {platform.machine()}.",
        "",
        "| receiver | accepted | lost | doubled | out of order | repeats | most often the same |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, tally in tallies.items():
        level = name.startswith("Alertmanager")
        doubled = "-" if level or "no key" in name else len(tally.doubled)
        repeats, most = ("its way", "-") if level else (tally.repeats, tally.most)
        lost, order = len(tally.lost), len(tally.disordered)
        lines.append(f"| {name} | {tally.accepted} | {lost} | {doubled} | {order} | {repeats} | {most} |")
    lines += [
        "",
        "*lost*: an alert that was never told, or not told as over in the end. *doubled*: a second incident for one "
        "alert after applying the service's key. *repeats*: the same message accepted again, because its first answer "
        'was cut off ("reset after", a kill between answer and commit); with a key the service drops them.',
        "",
    ]
    if lags is not None:
        lines += _lag_lines(options.lag_lines, lags)
    for name, tally in tallies.items():
        for what in ("lost", "doubled", "disordered"):
            lines += [f"- {name}: {what}: {item}" for item in getattr(tally, what)[:5]]
    return "\n".join(lines) + "\n"


def _lag_lines(count: int, lags: tuple[Lag, Lag]) -> list[str]:
    well, hung = lags

    def row(name: str, lag: Lag) -> str:
        figures = " | ".join(f"{1000 * value:.2f}" for value in (lag.median, lag.p99, lag.worst))
        return f"| {name} | {figures} | {lag.alerts} | {lag.sent} |"

    return [
        "## Log lag",
        "",
        f"Time from handing a line to the core until its decision is durable, in ms ({count} lines; one in ten makes "
        "an alert fire).",
        "",
        "| receivers | median | p99 | worst | alerts | delivered |",
        "|---|---|---|---|---|---|",
        row("all well", well),
        row("all hung", hung),
        "",
        f"Ratio of p99, hung to well: {hung.p99 / well.p99:.2f}.",
        "",
    ]


if __name__ == "__main__":
    sys.exit(main())
