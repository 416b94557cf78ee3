"""Woken by events, kept true by the clock: the loop around the follower, on real directories."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.logs.follow import Batch, Follower, FollowSpec, Notice, follow
from agent.logs.wake import InotifyWaker, PollWaker, Waker, make_waker


@pytest.fixture
def inotify() -> Iterator[InotifyWaker]:
    waker = InotifyWaker()
    yield waker
    waker.close()


class TestInotify:
    def test_names_the_files_that_changed(self, inotify: InotifyWaker, tmp_path: Path) -> None:
        inotify.watch([str(tmp_path)])
        assert inotify.wait(0.0) == set()
        (tmp_path / "a").write_text("x")
        (tmp_path / "b").mkdir()
        assert inotify.wait(1.0) == {str(tmp_path / "a"), str(tmp_path / "b")}
        (tmp_path / "a").rename(tmp_path / "c")
        assert inotify.wait(1.0) == {str(tmp_path / "a"), str(tmp_path / "c")}
        (tmp_path / "c").unlink()
        assert inotify.wait(1.0) == {str(tmp_path / "c")}

    def test_a_directory_that_goes_means_look_at_everything_and_may_come_back(
        self, inotify: InotifyWaker, tmp_path: Path
    ) -> None:
        folder = tmp_path / "x"
        folder.mkdir()
        inotify.watch([str(folder), str(tmp_path / "missing")])
        folder.rmdir()
        assert inotify.wait(1.0) is None
        folder.mkdir()
        inotify.watch([str(folder)])
        (folder / "a").write_text("")
        assert inotify.wait(1.0) == {str(folder / "a")}

    def test_lost_events_mean_look_at_everything(self, inotify: InotifyWaker, tmp_path: Path) -> None:
        limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
        inotify.watch([str(tmp_path)])
        paths = [str(tmp_path / name) for name in "ab"]
        for path in paths:
            Path(path).touch()
        for n in range(limit + 10):
            os.utime(paths[n % 2])  # in turn, since equal events one after the other are one
        assert inotify.wait(1.0) is None
        assert inotify.wait(0.0) == set()

    def test_another_thread_may_end_the_wait(self, inotify: InotifyWaker) -> None:
        threading.Timer(0.05, inotify.wake).start()
        assert inotify.wait(10.0) is None

    def test_growth_that_no_event_told_of_makes_it_unreliable(self, inotify: InotifyWaker, tmp_path: Path) -> None:
        inotify.watch([str(tmp_path)])
        (tmp_path / "a").write_text("x")
        inotify.wait(1.0)
        inotify.missed([str(tmp_path)])  # it did tell once: a look and an event only crossed
        assert not inotify.unreliable
        inotify.missed(["/somewhere/on/nfs"])
        assert inotify.unreliable

    def test_a_limit_of_watches_is_said(self, inotify: InotifyWaker, monkeypatch: pytest.MonkeyPatch) -> None:
        def no_space(*_: object) -> int:
            import ctypes
            import errno

            ctypes.set_errno(errno.ENOSPC)
            return -1

        monkeypatch.setattr(inotify, "_add", no_space)
        inotify.watch(["/tmp"])
        assert "max_user_watches" in inotify.refused
        assert inotify.unreliable


def test_without_inotify_the_clock_wakes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("agent.logs.wake.ctypes.CDLL", refuse)
    waker, problem = make_waker()
    assert isinstance(waker, PollWaker)
    assert "Too many open files" in problem
    waker.watch(["/tmp"])
    waker.missed([])
    assert waker.wait(0.0) == ()
    waker.wake()
    assert waker.wait(10.0) is None
    waker.close()


class Loop:
    """The loop in a thread, and what it delivered with the moment it came."""

    def __init__(self, spec: FollowSpec, waker: Waker, poll_interval: float) -> None:
        self.follower = Follower(spec)
        self.waker = waker
        self.text = ""
        self.arrived = threading.Condition()
        self.notices: list[Notice] = []
        self.stopped = threading.Event()
        self.started = threading.Event()
        self.thread = threading.Thread(
            target=follow,
            args=(self.follower, waker, self.take, self.stopped.is_set),
            kwargs={"poll_interval": poll_interval, "rest": self.stopped.wait},
        )

    def take(self, batches: list[Batch], notices: list[Notice]) -> None:
        with self.arrived:
            self.text += "".join(batch.data.decode() for batch in batches)
            self.notices += notices
            self.arrived.notify_all()
        self.started.set()

    def expect(self, text: str) -> None:
        with self.arrived:
            assert self.arrived.wait_for(lambda: self.text == text, timeout=10.0), self.text

    def __enter__(self) -> Loop:
        self.thread.start()
        assert self.started.wait(10.0)
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        self.waker.wake()
        self.thread.join(10.0)
        self.follower.close()
        self.waker.close()


def append(path: Path, text: str) -> None:
    with path.open("a") as handle:
        handle.write(text)


def test_events_alone_bring_every_line(tmp_path: Path) -> None:
    # The clock would look only once in ten minutes.
    log = tmp_path / "a.log"
    log.write_text("old\n")
    waker, _ = make_waker()
    with Loop(FollowSpec((str(tmp_path / "*.log"),)), waker, 600.0) as loop:
        append(log, "1\n")
        loop.expect("1\n")
        (tmp_path / "b.log").write_text("2\n")
        loop.expect("1\n2\n")
        log.rename(tmp_path / "a.log.1")
        log.write_text("3\n")
        loop.expect("1\n2\n3\n")


def test_events_of_the_directory_that_a_link_points_into(tmp_path: Path) -> None:
    (tmp_path / "pods").mkdir()
    target, link = tmp_path / "pods" / "0.log", tmp_path / "x.log"
    target.write_text("")
    link.symlink_to(target)
    waker, _ = make_waker()
    with Loop(FollowSpec((str(link),)), waker, 600.0) as loop:
        append(target, "1\n")
        loop.expect("1\n")


def test_the_clock_alone_brings_every_line(tmp_path: Path) -> None:
    # As on a file system that tells of nothing (NFS, some bind mounts).
    log = tmp_path / "a.log"
    log.write_text("")
    with Loop(FollowSpec((str(log),)), PollWaker(), 0.01) as loop:
        append(log, "1\n")
        loop.expect("1\n")
        log.unlink()
        log.write_text("2\n")
        loop.expect("1\n2\n")


class Deaf(PollWaker):
    """Promises events and never has any."""

    unreliable = False

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[float] = []

    def wait(self, timeout: float) -> object:  # type: ignore[override]
        self.asked.append(timeout)
        return super().wait(min(timeout, 0.01))

    def missed(self, directories: object) -> None:
        self.unreliable = True


def test_growth_without_events_makes_the_clock_faster(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("")
    now = [0.0]

    def stopped() -> bool:
        now[0] += 1.0
        if now[0] == 5.0:
            append(log, "1\n")
        return now[0] > 40.0

    waker = Deaf()
    follower = Follower(FollowSpec((str(log),)), clock=lambda: now[0])
    got: list[Batch] = []
    follow(follower, waker, lambda batches, _: got.extend(batches), stopped, poll_interval=10.0, rest=lambda _: None)
    follower.close()
    assert "".join(batch.data.decode() for batch in got) == "1\n"
    assert waker.unreliable
    # Ten seconds between looks while events were hoped for, then a look in each round of one second.
    assert max(waker.asked) > 5.0
    assert len(waker.asked) < 20


def test_a_flood_is_read_in_gulps(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("")
    rests: list[float] = []
    rounds = [0]

    def stopped() -> bool:
        rounds[0] += 1
        append(log, "line\n")
        return rounds[0] > 5

    waker, _ = make_waker()
    follower = Follower(FollowSpec((str(log),)))
    follow(follower, waker, lambda *_: None, stopped, rest=rests.append)
    follower.close()
    waker.close()
    assert set(rests) == {0.05}
