"""The server as a process: where its output goes, which signals it knows, how it ends."""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
from pathlib import Path

from .options import config_from

__all__ = ["serve"]


def serve(options: argparse.Namespace) -> int:
    """Run until SIGINT or SIGTERM. SIGUSR1 ends the loop thread alone, as the death of an engine's process would."""
    config = config_from(options)
    if options.log:
        to = os.open(options.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(to, 1)
        os.dup2(to, 2)  # tracebacks that the runtime prints belong to a server's log, too
    if options.memory_limit is not None:
        _limit_memory(options.memory_limit << 20)
    from .build import build, device_report
    from .server import Server

    built = build(
        config,
        sys.stdout,
        voice=options.dialect,
        device=options.device,
        large=options.large,
        after_crash=options.after_crash,
        nothing_fits=options.nothing_fits or "spin",
        print_iterations=options.print_iter_log,
        gauge_mode=options.gauge_mode or "step",
        cache=options.cache,
        say=lambda line: print(line, file=sys.stderr, flush=True),
    )
    server = Server(
        built.engine, built.voice, host=options.host, port=options.port, device=lambda: device_report(built)
    )
    numbers = _listen()
    server.start()
    if options.memory_margin is not None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        _limit_memory(pages * os.sysconf("SC_PAGE_SIZE") + (options.memory_margin << 20))
    if options.announce:
        _announce(options.announce, {"url": server.url, "metrics_url": server.metrics_url, "pid": os.getpid()})
    while numbers.recv(1)[0] == signal.SIGUSR1:
        built.engine.kill()
    server.stop()
    sys.stdout.flush()
    os._exit(1 if built.engine.down else 0)  # connections that wait for a dead loop would hold an ordinary exit


def _listen() -> socket.socket:
    """Where the numbers of signals can be read from now on.

    The kernel may hand a signal to any thread, after a SIGCONT above all. Python would run a handler in the main thread
    only, which would sleep on; so what wakes it is a byte (https://docs.python.org/3/library/signal.html).
    """
    ear, mouth = socket.socketpair()
    mouth.setblocking(False)
    signal.set_wakeup_fd(mouth.detach())
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda *_: None)
    return ear


def _announce(path: Path, where: dict[str, object]) -> None:
    unfinished = path.with_suffix(".part")
    unfinished.write_text(json.dumps(where))
    unfinished.replace(path)


def _limit_memory(nbytes: int) -> None:
    """From now on the process may map so many bytes in all."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (nbytes, resource.RLIM_INFINITY))
