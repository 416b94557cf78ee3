"""The notify protocol, against a real datagram socket."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.systemd import SystemdNotifier


@pytest.fixture(params=["path", "abstract"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    name = f"{tmp_path}/notify" if request.param == "path" else f"\0wedgewatch-test-{os.getpid()}-{id(request)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(name)
        sock.settimeout(5)
        yield sock, name.replace("\0", "@")


def test_the_life_of_a_service(systemd: tuple[socket.socket, str]) -> None:
    sock, address = systemd
    notifier = SystemdNotifier({"NOTIFY_SOCKET": address}, monotonic=lambda: 12.5)
    notifier.ready("watching 3 servers\nand a second line")
    notifier.status("trtllm-0 is stuck")
    notifier.reloading()
    notifier.stopping()
    assert [sock.recv(4096).decode() for _ in range(4)] == [
        "READY=1\nSTATUS=watching 3 servers",
        "STATUS=trtllm-0 is stuck",
        "RELOADING=1\nMONOTONIC_USEC=12500000",
        "STOPPING=1",
    ]


def test_the_watchdog_is_fed_by_work_and_not_at_every_round(systemd: tuple[socket.socket, str]) -> None:
    """
    rounds of work each second, watchdog 30 s -> a sign of life every 10 s; no rounds -> no sign
    """
    sock, address = systemd
    clock = [0.0]
    notifier = SystemdNotifier({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "30000000"}, monotonic=lambda: clock[0])
    assert notifier.watched
    for _ in range(31):
        notifier.alive()
        clock[0] += 1.0
    sock.setblocking(False)
    signs = 0
    while True:
        try:
            assert sock.recv(4096) == b"WATCHDOG=1"
        except BlockingIOError:
            break
        signs += 1
    assert signs == 4


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"NOTIFY_SOCKET": "/no/such/socket", "WATCHDOG_USEC": "1000"},
        {"NOTIFY_SOCKET": "/no/such/socket", "WATCHDOG_USEC": "soon"},
        {"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"},
    ],
)
def test_outside_of_systemd_it_does_nothing(environment: dict[str, str]) -> None:
    notifier = SystemdNotifier(environment)
    notifier.ready("x")
    notifier.alive()
    notifier.stopping()
    assert notifier.watched == (environment.get("WATCHDOG_USEC") == "1000" and "WATCHDOG_PID" not in environment)
