"""Kill a follower at random instants while logrotate turns the log: is every line matched exactly once?

``python -m bench.kill_rotate --kills 500`` runs the campaign in both of logrotate's modes. A writer appends numbered
lines, some in two halves; real logrotate rotates under it; a follower reads, matches with the log engine and commits
positions, stream state and matched lines in one SQLite transaction; ``kill -9`` ends it at random instants. At the
end what was matched is compared with what was written: none missing, none twice, in order.

Where logrotate itself loses bytes the writer helps: it pauses while copytruncate copies, and in the other mode the log
is not rotated again before the writer has opened the new file (an older one is being compressed then).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from agent.logs.engine import LogEngine
from agent.logs.follow import Batch, Follower, FollowSpec, Notice, follow
from agent.logs.timestamps import YearReference
from agent.logs.wake import make_waker
from agent.rules.model import Condition, Matcher

__all__ = ["MODES", "Result", "Writer", "campaign", "rotate"]

MODES: Final = {
    "create": "create\ncompress\ndelaycompress",
    "copytruncate": "copytruncate\ncompress\ndelaycompress",
    "copytruncate-compress": "copytruncate\ncompress",
}
_SOUGHT: Final = Condition(any=(Matcher("regex", r"^line (?P<number>\d+) wanted$"),))


@dataclass(slots=True)
class Result:
    """What a campaign found. ``problems`` is empty when every wanted line was matched once, in order."""

    mode: str
    kills: int = 0
    rotations: int = 0
    written: int = 0
    commits: int = 0
    missing: list[int] = field(default_factory=list)
    twice: list[int] = field(default_factory=list)
    disorder: int = 0

    @property
    def problems(self) -> str:
        """What is wrong, in words."""
        parts = []
        if self.missing:
            parts.append(f"{len(self.missing)} missing, first {self.missing[:5]}")
        if self.twice:
            parts.append(f"{len(self.twice)} twice, first {self.twice[:5]}")
        if self.disorder:
            parts.append(f"{self.disorder} out of order")
        return "; ".join(parts)

    def __str__(self) -> str:
        return (
            f"{self.mode}: {self.kills} kills, {self.rotations} rotations, {self.written} wanted lines written, "
            f"{self.commits} commits: {self.problems or 'each matched exactly once'}"
        )


class Writer(threading.Thread):
    """Appends lines; reopens the log when it was renamed, as a logger that watches its file does."""

    def __init__(
        self, log: Path, seed: int, *, reopen: bool, share: float = 0.5, pause: float = 0.006, head: str = ""
    ) -> None:
        """``share`` of the lines is wanted; ``pause``: seconds between two bursts of lines, at most. ``head`` begins
        each line: ``{count}`` in it is the number of wanted lines before, ``{time}`` the time as vLLM writes it.
        """
        super().__init__(daemon=True)
        self.head = head
        self.share = share
        self.pace = pause
        self.log = log
        self.reopen = reopen
        self.rng = random.Random(seed)
        self.pause = threading.Lock()
        self.done = threading.Event()
        self.wanted: list[int] = []
        self.inode = 0

    def run(self) -> None:
        handle = self.log.open("ab", buffering=0)
        self.inode = os.fstat(handle.fileno()).st_ino
        number = 0
        while not self.done.is_set():
            with self.pause:
                for _ in range(self.rng.randrange(1, 12)):
                    number += 1
                    wanted = self.rng.random() < self.share
                    text = self._line(number, wanted=wanted)
                    if self.rng.random() < 0.2:
                        cut = self.rng.randrange(1, len(text))
                        handle.write(text[:cut])
                        if self.rng.random() < 0.3:
                            time.sleep(0.002)
                        text = text[cut:]
                    handle.write(text)
                    if wanted:
                        self.wanted.append(number)
            time.sleep(self.rng.random() * self.pace)
            if self.reopen and self.rng.random() < 0.3 and _inode(self.log) != self.inode:
                handle.close()
                handle = self.log.open("ab", buffering=0)
                self.inode = os.fstat(handle.fileno()).st_ino
        handle.close()

    def _line(self, number: int, *, wanted: bool) -> bytes:
        head = self.head.format(count=len(self.wanted), time=time.strftime("%m-%d %H:%M:%S", time.gmtime())).encode()
        what = b"wanted" if wanted else b"ordinary " + b"." * self.rng.randrange(200)
        return head + b"line %d %s\n" % (number, what)


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return 0


def rotate(writer: Writer, config: Path, state: Path) -> None:
    """Let logrotate turn the writer's log: when the writer is in the new file, or while it writes nothing."""
    command = ["logrotate", "--force", "--state", str(state), str(config)]
    if writer.reopen:
        while writer.inode != _inode(writer.log):
            time.sleep(0.001)
        subprocess.run(command, check=True, capture_output=True)
    else:
        with writer.pause:
            subprocess.run(command, check=True, capture_output=True)


# --- the follower that is killed ----------------------------------------------------------------------------


def _follow_and_commit(folder: Path, until: Path | None = None) -> None:
    """Follow ``folder``/app.log and commit what was matched; ends when ``until`` exists and nothing more comes."""
    database = sqlite3.connect(folder / "state.db", isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=OFF")  # we kill the process, not the machine
    database.execute("CREATE TABLE IF NOT EXISTS matched (number INTEGER, line INTEGER, body TEXT)")
    database.execute("CREATE TABLE IF NOT EXISTS state (key TEXT PRIMARY KEY, value TEXT)")
    saved = dict(database.execute("SELECT key, value FROM state"))
    positions = json.loads(saved.get("positions", "{}"))
    engine = LogEngine([_SOUGHT], {}, year_reference=YearReference(0.0))
    log = str(folder / "app.log")
    stream = engine.stream(server="s", file=log)
    if "stream" in saved:
        stream.restore(json.loads(saved["stream"]))
    quiet_since = [time.monotonic()]

    def deliver(batches: list[Batch], notices: list[Notice]) -> None:
        for batch in batches:
            if batch.new_file:
                stream.restart_lines(first_line=batch.first_line)
            matched = stream.feed(batch.data)
            positions[batch.key] = batch.position
            database.execute("BEGIN")
            database.executemany(
                "INSERT INTO matched VALUES (?, ?, ?)",
                [(int(item.hits[0].fields["number"]), item.record.line, item.record.body) for item in matched],
            )
            rows: dict[str, Any] = {"positions": positions, "stream": stream.snapshot()}
            database.executemany(
                "INSERT OR REPLACE INTO state VALUES (?, ?)", [(key, json.dumps(value)) for key, value in rows.items()]
            )
            database.execute("COMMIT")
            quiet_since[0] = time.monotonic()

    def stopped() -> bool:
        return until is not None and until.exists() and time.monotonic() - quiet_since[0] > 2.0

    waker, _ = make_waker()
    follower = Follower(FollowSpec((log,), from_end=False, rotate_wait=1.0), positions)
    follow(follower, waker, deliver, stopped, poll_interval=0.2, quiet=0.005)
    follower.close()


def _zygote(folder: Path) -> None:
    """Forks a follower for each line on standard input and says its pid: nothing is imported anew."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                _follow_and_commit(folder, folder / "done" if line.strip() == "drain" else None)
            finally:
                os._exit(0)
        print(pid, flush=True)


# --- the campaign -------------------------------------------------------------------------------------------


def campaign(mode: str, kills: int, folder: Path, *, seed: int = 1, longest: float = 0.15) -> Result:
    """Run one campaign in ``folder``. ``longest``: seconds a follower may live at most."""
    log, config = folder / "app.log", folder / "rotate.conf"
    log.touch()
    config.write_text(f"{log} {{\nrotate 1000\nmissingok\n{MODES[mode]}\n}}\n")
    config.chmod(0o644)
    folder.chmod(0o755)  # logrotate refuses a folder that others may write to
    rng = random.Random(seed)
    writer = Writer(log, seed, reopen=mode == "create")
    result = Result(mode)
    with subprocess.Popen(
        [sys.executable, "-m", "bench.kill_rotate", "--zygote", str(folder)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1],
    ) as zygote:  # fmt: skip
        assert zygote.stdin is not None
        assert zygote.stdout is not None

        def spawn(how: str) -> int:
            zygote.stdin.write(f"{how}\n")  # type: ignore[union-attr]  # asserted above
            zygote.stdin.flush()  # type: ignore[union-attr]
            return int(zygote.stdout.readline())  # type: ignore[union-attr]

        writer.start()
        # Until the first commit nothing says where to begin.
        pid = spawn("run")
        while not _has_begun(folder):
            time.sleep(0.01)
        os.kill(pid, signal.SIGKILL)
        while result.kills < kills:
            pid = spawn("run")
            time.sleep(rng.random() * longest)
            if rng.random() < 0.5:
                rotate(writer, config, folder / "rotate.state")
                result.rotations += 1
            os.kill(pid, signal.SIGKILL)
            result.kills += 1
        writer.done.set()
        writer.join()
        pid = spawn("drain")
        (folder / "done").touch()
        _wait_for_end(pid)
        zygote.stdin.close()
    return _compare(result, folder, writer.wanted)


def _has_begun(folder: Path) -> bool:
    try:
        with closing(sqlite3.connect(f"file:{folder}/state.db?mode=ro", uri=True)) as database:
            return bool(database.execute("SELECT count(*) FROM state").fetchone()[0])
    except sqlite3.OperationalError:
        return False  # not even the tables are there


def _wait_for_end(pid: int, longest: float = 120.0) -> None:
    deadline = time.monotonic() + longest
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    raise TimeoutError("the last follower did not come to an end")


def _compare(result: Result, folder: Path, wanted: list[int]) -> Result:
    database = sqlite3.connect(folder / "state.db")
    got = [number for (number,) in database.execute("SELECT number FROM matched ORDER BY rowid")]
    database.close()
    counts = Counter(got)
    result.written = len(wanted)
    result.commits = len(got)
    result.missing = [number for number in wanted if not counts[number]]
    result.twice = [number for number, count in counts.items() if count > 1]
    result.disorder = sum(later < earlier for earlier, later in pairwise(got))
    return result


def main(arguments: list[str] | None = None) -> int:
    """Run the campaign of the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.kill_rotate", description=__doc__)
    parser.add_argument("--kills", type=int, default=500, help="in all modes together")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--zygote", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.zygote is not None:
        _zygote(options.zygote)
        return 0
    print(f"seed {options.seed}")
    failed = False
    for number, mode in enumerate(MODES):
        share = options.kills // len(MODES) + (number < options.kills % len(MODES))
        with tempfile.TemporaryDirectory(prefix="kill-rotate-") as folder:
            result = campaign(mode, share, Path(folder), seed=options.seed + number)
        print(result, flush=True)
        failed = failed or bool(result.problems)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
