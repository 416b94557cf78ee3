"""The journal: a real journald in a namespace of its own, and children that misbehave."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.logs.batch import Notice
from agent.logs.sources.journald import Journal
from agent.logs.sources.piece import Piece
from tests.logs.helpers import contains, read

JOURNALD = "/lib/systemd/systemd-journald"


class Running:
    """A journal read in a thread."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.pieces: list[Piece] = []
        self.notices: list[Notice] = []
        self.stop = threading.Event()
        self.changed = threading.Condition()
        self.thread = threading.Thread(
            target=journal.run, args=(self.stop, self.take, self.note), kwargs={"wait": lambda _: self.stop.wait(0.05)}
        )

    def take(self, piece: Piece) -> None:
        with self.changed:
            self.pieces.append(piece)
            self.changed.notify_all()

    def note(self, notice: Notice) -> None:
        with self.changed:
            self.notices.append(notice)
            self.changed.notify_all()

    def messages(self) -> list[str]:
        rows = b"".join(piece.data for piece in self.pieces).splitlines()
        return [json.loads(row)["MESSAGE"] for row in rows]

    def expect(self, done: Callable[[], bool]) -> None:
        with self.changed:
            for _ in range(400):
                if done():
                    return
                self.changed.wait(0.05)
            raise AssertionError((self.messages(), self.notices))

    def __enter__(self) -> Running:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.journal.close()
        self.thread.join(10.0)
        assert not self.thread.is_alive()


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def entry(number: int) -> str:
    return json.dumps({"__CURSOR": f"c{number}", "__REALTIME_TIMESTAMP": "1795165265500000", "MESSAGE": f"m{number}"})


class TestChild:
    def test_a_child_that_ends_starts_again_after_the_last_whole_entry(self, tmp_path: Path) -> None:
        # It gives two entries and half of a third, dies, and is then asked for what comes after the second.
        command = script(
            tmp_path / "journalctl",
            f'echo "$@" >> {tmp_path}/calls\n'
            f"case \"$*\" in *after-cursor=c2*) echo '{entry(3)}'; exec sleep 60;; esac\n"
            f"echo '{entry(1)}'; echo '{entry(2)}'; printf '%s' '{entry(3)[:20]}'; echo broken pipe >&2; exit 1",
        )
        with Running(Journal("k", ["-u", "x.service"], command=command)) as running:
            running.expect(lambda: running.messages() == ["m1", "m2", "m3"])
            running.expect(lambda: len(running.notices) == 2)
        calls = (tmp_path / "calls").read_text().splitlines()
        assert "--lines=0" in calls[0]
        assert calls[0].endswith("-u x.service")
        assert "--no-tail --after-cursor=c2" in calls[1]
        assert [notice.kind for notice in running.notices] == ["error", "recovered"]
        assert "broken pipe" in running.notices[0].text
        assert running.pieces[-1].position == {"cursor": "c3"}

    def test_a_missing_journalctl_is_said_once(self, tmp_path: Path) -> None:
        with Running(Journal("k", [], command=str(tmp_path / "nothing"))) as running:
            running.expect(lambda: bool(running.notices))
            time.sleep(0.2)  # several attempts
        assert len(running.notices) == 1
        assert "cannot be started: No such file" in running.notices[0].text

    def test_from_a_committed_position_and_from_the_oldest(self, tmp_path: Path) -> None:
        command = script(tmp_path / "journalctl", f"echo \"$@\" >> {tmp_path}/calls; echo '{entry(9)}'; exec sleep 60")
        for position, options in (({"cursor": "c8"}, {}), (None, {"from_end": False})):
            with Running(Journal("k", [], position, command=command, **options)) as running:  # type: ignore[arg-type]
                running.expect(lambda: bool(running.pieces))
        first, second = (tmp_path / "calls").read_text().splitlines()
        assert first.endswith("--no-tail --after-cursor=c8")
        assert second.endswith("--no-tail")


@pytest.fixture
def namespace(tmp_path: Path) -> Iterator[str]:
    if not os.path.exists(JOURNALD) or os.geteuid() != 0 or shutil.which("journalctl") is None:
        pytest.skip("needs systemd-journald and root, to start one in a namespace of its own")
    name = f"ww{os.getpid()}"
    server = subprocess.Popen([JOURNALD, name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    sock = Path(f"/run/systemd/journal.{name}/socket")
    deadline = time.monotonic() + 20.0
    while not sock.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    yield name
    server.terminate()
    server.wait(20.0)
    shutil.rmtree(sock.parent, ignore_errors=True)
    for root in ("/var/log/journal", "/run/log/journal"):
        for left in Path(root).glob(f"*.{name}"):
            shutil.rmtree(left, ignore_errors=True)


def log(namespace: str, *messages: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        for message in messages:
            body = message.encode()
            # The native protocol: a value with newlines follows its length.
            field = b"MESSAGE\n" + len(body).to_bytes(8, "little") + body + b"\n"
            sock.sendto(field + b"SYSLOG_IDENTIFIER=vllm\nPRIORITY=6\n", f"/run/systemd/journal.{namespace}/socket")


@pytest.mark.peer
def test_a_real_journal_comes_once_and_goes_on_where_it_was(namespace: str) -> None:
    arguments = [f"--namespace={namespace}", "-t", "vllm"]
    log(namespace, "before")
    with Running(Journal("k", arguments, from_end=False)) as running:
        running.expect(lambda: running.messages() == ["before"])
        trace = "Traceback (most recent call last):\n  File x\nValueError: " + "long " * 3000
        log(namespace, trace, "(APIServer pid=851) WARNING 11-20 09:00:00 [a.py:1] boom")
        running.expect(lambda: len(running.messages()) == 3)
        assert running.messages()[1] == trace
    log(namespace, "while away")
    with Running(Journal("k", arguments, running.pieces[-1].position)) as later:
        later.expect(lambda: later.messages() == ["while away"])
    found = read([contains("boom"), contains("ValueError")], b"".join(piece.data for piece in running.pieces))
    assert [(m.record.body[:9], m.record.severity_text) for m in found] == [("Traceback", "ERROR"), ("boom", "WARN")]
