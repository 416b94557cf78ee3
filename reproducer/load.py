"""Load over HTTP: users who wait for their answer (closed loop), or arrivals that do not wait for anybody (open loop).

In an open loop each request carries the time at which it was *meant* to be sent; latency is counted from there, so that
a slow server cannot hide its slowness by making its clients late.
"""

from __future__ import annotations

import http.client
import json
import random
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from .users import Ask, Users

__all__ = ["Answer", "Load", "arrivals"]


@dataclass(frozen=True, slots=True)
class Answer:
    """How one request went; times are Unix seconds, ``status`` 0 means that no answer came."""

    ask: Ask
    intended: float
    sent: float
    ended: float
    status: int
    tokens: int = 0

    @property
    def latency(self) -> float:
        return self.ended - self.intended


@dataclass
class Load:
    """Everything sent to one server. Threads are daemons: a client that waits for ever does not keep the program."""

    url: str
    timeout: float = 3600.0
    model: str = "any"
    max_output: int = 1 << 30
    max_total: int = 1 << 30
    answers: list[Answer] = field(default_factory=list)
    asked: list[Ask] = field(default_factory=list)
    in_flight: int = 0
    stopping: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0
    at_once: threading.Semaphore | None = None  # of an open loop; more than this wait at the client
    began: float = field(default_factory=time.time)
    trouble: str = ""  # why the last request that failed did

    def closed(self, population: Users, users: int) -> None:
        """Raise the number of users who each send, wait, and send again to ``users``."""
        for user in range(self.users, users):
            threading.Thread(target=self._user, args=(population.asks(user),), daemon=True).start()
        self.users = max(self.users, users)

    def open(self, asks: Iterable[Ask]) -> threading.Thread:
        """Send each request at its ``at`` seconds from now; the thread ends when the last one is sent."""
        thread = threading.Thread(target=self._arrivals, args=(iter(asks),), daemon=True)
        thread.start()
        return thread

    def stop(self) -> None:
        self.stopping.set()

    close = stop

    @property
    def completed(self) -> int:
        return sum(1 for answer in list(self.answers) if answer.status == 200)

    @property
    def failed(self) -> int:
        return sum(1 for answer in list(self.answers) if answer.status != 200)

    def _user(self, asks: Iterator[Ask]) -> None:
        for ask in asks:
            if self.stopping.is_set():
                return
            if not self._send(ask, time.time()):
                self.stopping.wait(0.2)

    def _arrivals(self, asks: Iterator[Ask]) -> None:
        start = time.time()
        for ask in asks:
            intended = start + (ask.at or 0.0)
            if self.stopping.wait(max(0.0, intended - time.time())):
                return
            if self.at_once:
                self.at_once.acquire()
            threading.Thread(target=self._arrive, args=(ask, intended), daemon=True).start()

    def _arrive(self, ask: Ask, intended: float) -> None:
        self._send(ask, intended)
        if self.at_once:
            self.at_once.release()

    def _send(self, ask: Ask, intended: float) -> bool:
        """One request, from the intended time to its end. True when it was answered with 200."""
        output = max(1, min(ask.output_tokens, self.max_output, self.max_total - ask.prompt_tokens))
        body = {
            "model": self.model,
            "prompt": ask.prompt.decode("latin-1"),
            "max_tokens": output,
            "ignore_eos": True,
            "temperature": 0,
        }
        sent, status, tokens = time.time(), 0, 0
        with self.lock:
            self.in_flight += 1
            self.asked.append(ask)
        try:
            status, data = post_json(self.url, "/v1/completions", body, self.timeout)
            if status == 200:
                tokens = int(data.get("usage", {}).get("completion_tokens", 0))
            else:
                self.trouble = f"HTTP {status} {json.dumps(data)[:300]}"
        except (OSError, http.client.HTTPException, ValueError) as error:
            status = 0
            self.trouble = str(error) or type(error).__name__
        with self.lock:
            self.in_flight -= 1
            self.answers.append(Answer(ask, intended, sent, time.time(), status, tokens))
        return status == 200


def post_json(url: str, path: str, body: dict[str, Any], timeout: float) -> tuple[int, dict[str, Any]]:
    """POST JSON and read JSON. Raises OSError, HTTPException or ValueError."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "127.0.0.1", parts.port, timeout=timeout)
    try:
        connection.request("POST", parts.path + path, json.dumps(body), {"Content-Type": "application/json"})
        if connection.sock:
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        response = connection.getresponse()
        return response.status, json.loads(response.read() or b"{}")
    finally:
        connection.close()


def arrivals(population: Users, rate: float, seconds: float, *, burstiness: float = 1.0, seed: int = 0) -> list[Ask]:
    """Arrivals for an open loop: gamma gaps of mean ``1 / rate``; shape ``burstiness`` 1 is Poisson, below 1 bursts."""
    draw = random.Random(f"{seed}/open")
    asks: list[Ask] = []
    now = 0.0
    while (now := now + draw.gammavariate(burstiness, 1 / (rate * burstiness))) < seconds:
        ask = next(population.asks(1_000_000 + len(asks)))
        asks.append(Ask(ask.user, ask.turn, ask.prompt_tokens, ask.output_tokens, ask.prompt, at=now))
    return asks
