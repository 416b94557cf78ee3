"""A full disk stops nothing: it is said once, shown, and made up for when there is room again.

A file system that has no room left, where we may mount one; else a limit on what a process may write, which any user
can set. Both refuse the database and the alert log.
"""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.daemon.live import Live, line


@contextlib.contextmanager
def _limit(live: Live) -> Iterator[tuple[Callable[[], None], Callable[[], None]]]:
    def fill() -> None:
        resource.prlimit(live.process.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))

    def make_room() -> None:
        resource.prlimit(live.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    yield fill, make_room


@contextlib.contextmanager
def _small_disk(live: Live) -> Iterator[tuple[Callable[[], None], Callable[[], None]]]:
    disk = live.folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], check=True)
    filler = disk / "filler"

    def fill() -> None:
        with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as handle:
            while True:
                handle.write(bytes(4096))

    try:
        cache = os.readlink(live.folder / "state" / "cache")
        (live.folder / "state" / "cache").unlink()
        (live.folder / "state").rmdir()
        (disk / "state").mkdir()
        (disk / "state" / "cache").symlink_to(cache)
        (live.folder / "state").symlink_to(disk / "state")
        live.alert_log = disk / "alerts.jsonl"
        yield fill, filler.unlink
    finally:
        live.close()
        subprocess.run(["umount", "-l", str(disk)], check=True)


def _can_mount() -> bool:
    return os.geteuid() == 0 and subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0


def test_alerts_go_on_while_the_disk_is_full(live: Live) -> None:
    with (_small_disk if _can_mount() else _limit)(live) as (fill, make_room):
        live.configure()
        live.log.touch()
        live.start("--json")
        live.write(line("I", "engine is set up"), line("W", "queue holds 8 requests"))
        live.counts("source_lines_read_total", 2, source="llama")
        fill()
        live.write(line("E", "engine loop died: no room"))
        live.until("it is printed", lambda: '"alertname": "EngineGone"' in live.stdout)
        live.until("it is shown", lambda: any("state" in text for text in live.api("health")["problems"]))
        assert live.metric("state_errors_total") >= 1
        # The database lets its last page go when it fails, and the alert log may be the one that gets it.
        live.until("its line waits or is written", lambda: "alert log" in live.stderr or live.alerts("firing"))
        make_room()
        live.write(line("I", "take note of room"))
        live.fires("Noted")
        live.until("the disk is used again", lambda: not live.api("health")["problems"], 40)
        assert len(live.alerts("firing")) == 2
        assert live.stderr.count("cannot be written") <= 1
        live.kill()
        live.start()
        assert [alert["alertname"] for alert in live.api("alerts")].count("EngineGone") == 1
        assert live.stop() == 0
        assert len(live.alerts("firing")) == 2


def test_a_state_folder_that_cannot_be_made(live: Live, tmp_path: Path) -> None:
    """It is said, and the servers are watched all the same."""
    live.configure()
    live.log.touch()
    (tmp_path / "file").touch()
    live.start("-c", str(live.config_file), "--state", str(tmp_path / "file" / "state"))
    live.says("cannot write the state database")
    live.dies()
    live.fires("EngineGone")
    assert live.stop() == 0
