"""One run end to end: a server in its own process, users over HTTP, and the same kind of outcome as a simulated run."""

from __future__ import annotations

import tempfile
import time
from contextlib import closing
from pathlib import Path

from .config import Config
from .fingerprint import Watch
from .load import Load
from .process import ServeProcess
from .simulate import Outcome
from .users import Recorded, Users, population_for
from .verify import Daemon

__all__ = ["arguments_for", "paged_live", "run_live"]


def arguments_for(config: Config) -> list[str]:
    """The words that make ``serve`` run exactly this configuration."""
    words = []
    for name, value in config.to_json().items():
        if name != "host_blocks":
            words += [f"--{name.replace('_', '-')}", str(value)]
    return words


def run_live(
    config: Config,
    users: int,
    seed: int,
    *,
    seconds: float = 20.0,
    population: Users | None = None,
    traffic: str = "",
    folder: Path | None = None,
    extra: tuple[str, ...] = (),
) -> Outcome:
    """Times are in milliseconds from the first request; what counts as a wedge is told in :mod:`.fingerprint`."""
    who = population or population_for(traffic or config.profile, config.max_seq_len, seed)
    with tempfile.TemporaryDirectory() as scratch:
        with ServeProcess(folder or Path(scratch), [*arguments_for(config.with_(seed=seed)), *extra]) as server:
            load = Load(server.url, max_total=config.max_seq_len)
            watch = Watch(server, load, 0.5)
            if isinstance(who, Recorded) and who.timed:
                load.open(who.at_steps(1.0))
            else:
                load.closed(who, users)
            wedged = watch.until(seconds, stop_at_wedge=True, tell=lambda _: None)
            load.stop()
            last = watch.last
        ended = watch.moved if wedged else time.time()
        outcome = Outcome(
            steps=round(1000 * (ended - load.began)),
            completed=last["completed"],
            accepted=last["accepted"],
            preemptions=last["preemptions"],
            waiting=last["waiting"] + last["unanswered"],
            running=last["running"],
            latencies=[round(1000 * answer.latency) for answer in load.answers if answer.status == 200],
        )
        if wedged:
            outcome.step = outcome.steps
            outcome.wedged = "assertion" if last["crash"] else "deadlock"
            outcome.total_num_tokens = (last["crash"] or {}).get("total_num_tokens", 0)
        return outcome


def paged_live(
    config: Config, users: int, seed: int, *, calm: int = 4, calm_seconds: float = 45.0, patience: float = 300.0
) -> tuple[str, str, float]:
    """wedgewatch run beside a live server: what it pages, how sure it is, and seconds from the last step; or nothing.

    ``calm`` users work first, for ``calm_seconds``; then come ``users``.
    """
    config = config.with_(seed=seed)
    people = population_for(config.profile, config.max_seq_len, seed)
    with (
        tempfile.TemporaryDirectory() as scratch,
        ServeProcess(Path(scratch), arguments_for(config)) as server,
        closing(Daemon(["--metrics", server.metrics_url, "--log", str(server.log)])) as daemon,
        closing(Load(server.url, max_total=config.max_seq_len)) as load,
    ):
        watch = Watch(server, load, 0.5)
        load.closed(people, calm)
        watch.until(calm_seconds, stop_at_wedge=True, tell=lambda _: None)
        load.closed(people, users)
        end = time.monotonic() + patience
        while time.monotonic() < end:
            watch.look()
            if alert := daemon.critical("firing"):
                return str(alert["failure"]), str(alert["confidence"]), time.time() - watch.moved
            time.sleep(0.5)
    return "", "", patience
