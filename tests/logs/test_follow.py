"""Files that grow, turn and vanish: every line comes once, in order, whatever happens between two looks.

Real files in real directories; only the clock is ours. The picture above a test reads from left to right; ``|`` is a
look of the follower.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.logs.follow import Batch, Follower, FollowSpec
from agent.logs.rotation import is_rotated_name
from agent.logs.tail import VANISHED


@dataclass
class Reader:
    """A follower with a clock of its own, and what it has read."""

    patterns: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)
    positions: dict[str, Any] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    batches: list[Batch] = field(default_factory=list)
    said: list[tuple[str, str]] = field(default_factory=list)
    now: float = 100.0

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """As after kill -9: only the committed positions are left."""
        self.close()
        spec = FollowSpec(self.patterns, **{"from_end": False, **self.options})
        self.follower = Follower(spec, json.loads(json.dumps(self.positions)), lambda: self.now)

    def close(self) -> None:
        """Let all files go."""
        if hasattr(self, "follower"):
            self.follower.close()

    def look(self, after: float = 0.0) -> str:
        """Let time pass, read what is there; gives the text that is new."""
        self.now += after
        out = ""
        while True:
            batches = self.follower.poll()
            self.said += [(notice.kind, Path(notice.path).name) for notice in self.follower.take_notices()]
            for batch in batches:
                text = batch.data.decode()
                out += text
                self.texts[batch.key] = self.texts.get(batch.key, "") + text
                if batch.ended:
                    self.positions.pop(batch.key)
                else:
                    self.positions[batch.key] = batch.position
            self.batches += batches
            if not batches:
                return out

    def settle(self) -> str:
        """Long enough for a renamed file to be let go."""
        return self.look() + self.look(1.0) + self.look(1.0)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "app.log"


_readers: list[Reader] = []


@pytest.fixture(autouse=True)
def _close_readers() -> Iterator[None]:
    yield
    while _readers:
        _readers.pop().close()


def reader(*paths: Path | str, **options: Any) -> Reader:
    _readers.append(Reader(tuple(map(str, paths)), options))
    return _readers[-1]


def append(path: Path, text: str) -> None:
    with path.open("a") as handle:
        handle.write(text)


def shift(log: Path, *, compress: bool = False) -> None:
    """What logrotate does before it renames: 2 becomes 3, 1 becomes 2."""
    for number in range(8, 0, -1):
        for ending in ("", ".gz"):
            old = log.with_name(f"{log.name}.{number}{ending}")
            if old.exists():
                old.rename(log.with_name(f"{log.name}.{number + 1}{ending}"))


def rename_and_create(log: Path) -> None:
    shift(log)
    log.rename(log.with_name(log.name + ".1"))
    log.touch()


def copytruncate(log: Path, between: Callable[[], None] = lambda: None) -> None:
    shift(log)
    shutil.copyfile(log, log.with_name(log.name + ".1"))
    between()
    os.truncate(log, 0)


def compress(path: Path) -> None:
    status = path.stat()
    packed = path.with_name(path.name + ".gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    os.utime(packed, ns=(status.st_atime_ns, status.st_mtime_ns))
    path.unlink()


class TestAppending:
    def test_what_is_appended_comes_once(self, log: Path) -> None:
        log.write_text("1\n")
        r = reader(log)
        assert r.look() == "1\n"
        append(log, "2\n3")
        assert r.look() == "2\n3"
        append(log, "3\n")
        assert (r.look(), r.look()) == ("3\n", "")

    def test_a_known_log_is_begun_at_its_end_after_the_last_whole_line(self, log: Path) -> None:
        log.write_text("old\nolder\nhalf")
        r = reader(log, from_end=True)
        assert r.look() == "half"
        assert r.batches[0].first_line == 3
        append(log, " done\n")
        assert r.look() == " done\n"

    def test_a_log_without_any_line_end_is_begun_at_its_start(self, log: Path) -> None:
        log.write_text("half")
        assert reader(log, from_end=True).look() == "half"

    def test_a_missing_log_is_waited_for_and_said_once(self, log: Path) -> None:
        r = reader(log, from_end=True)
        assert [r.look(1.0) for _ in range(3)] == [""] * 3
        log.write_text("new\n")
        assert r.look(1.0) == "new\n"  # it is new, so it is read from its start
        assert r.said == [("waiting", "app.log"), ("found", "app.log")]

    def test_lines_written_while_we_were_away(self, log: Path) -> None:
        log.write_text("1\n")
        r = reader(log, from_end=True)
        assert r.look() == ""
        append(log, "2\n")
        r.restart()
        assert r.look() == "2\n"

    def test_a_large_backlog_comes_in_bounded_pieces(self, log: Path) -> None:
        log.write_bytes(b"x" * 99 + b"\n" * 1)
        with log.open("ab") as handle:
            handle.write((b"y" * 99 + b"\n") * 100_000)
        r = reader(log)
        sizes = []
        while batches := r.follower.poll():
            sizes.append(sum(len(batch.data) for batch in batches))
        assert sum(sizes) == 10_000_100
        assert max(sizes) <= 4 << 20

    def test_a_pipe_or_a_directory_is_said_and_left_alone(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "folder").mkdir()
        r = reader(tmp_path / "pipe", tmp_path / "folder")
        assert r.look() == r.look(60.0) == ""
        assert sorted(r.said) == [("error", "folder"), ("error", "pipe")]


class TestRename:
    # A: 1 2 | 3 -> A.1,  B: 4 | 5
    def test_the_rest_of_the_old_file_comes_first(self, log: Path) -> None:
        log.write_text("1\n2\n")
        r = reader(log)
        r.look()
        append(log, "3\n")
        rename_and_create(log)
        append(log, "4\n")
        assert r.settle() == "3\n4\n"
        append(log, "5\n")
        assert r.look() == "5\n"
        assert ("rotated", "app.log") in r.said

    # A | -> A.1, writer goes on with A for a second, then B
    def test_a_writer_that_keeps_the_old_file_open(self, log: Path) -> None:
        log.write_text("1\n")
        r = reader(log)
        r.look()
        with log.open("a") as held:
            rename_and_create(log)
            for n in (2, 3, 4):
                held.write(f"{n}\n")
                held.flush()
                assert r.look(0.4) == f"{n}\n"
        append(log, "5\n")
        assert r.settle() == "5\n"

    # A | -> A.1   B: 5 |   A.1: late |
    def test_a_late_line_in_a_file_that_was_let_go(self, log: Path) -> None:
        log.write_text("1\n")
        r = reader(log)
        r.look()
        with log.open("a") as held:
            rename_and_create(log)
            append(log, "5\n")
            assert r.settle() == "5\n"
            held.write("late\n")
            held.flush()
            assert r.look(1.0) == "late\n"
        r.restart()
        assert r.settle() == ""

    # A | -> A.1, B -> B.1 (A.2), C -> C.1 (B.2, A.3), D |
    def test_several_rotations_between_two_looks(self, log: Path) -> None:
        log.write_text("a1\n")
        r = reader(log)
        r.look()
        append(log, "a2\n")
        for name in "bcd":
            rename_and_create(log)
            append(log, f"{name}\n")
        assert r.settle() == "a2\nb\nc\nd\n"

    def test_the_same_while_we_were_away(self, log: Path) -> None:
        log.write_text("a1\n")
        r = reader(log)
        r.look()
        append(log, "a2\n")
        for name in "bcd":
            rename_and_create(log)
            append(log, f"{name}\n")
        r.restart()
        assert r.settle() == "a2\nb\nc\nd\n"
        r.restart()
        assert r.settle() == ""

    def test_a_kill_after_every_batch_of_a_catch_up(self, log: Path) -> None:
        log.write_text("a1\n")
        r = reader(log)
        r.look()
        append(log, "a2\n")
        for name in "bcd":
            rename_and_create(log)
            append(log, f"{name}\n")
        out = ""
        for _ in range(40):
            r.restart()
            r.now += 1.0
            for _ in range(3):
                r.now += 1.0
                batches = r.follower.poll()
                if batches:
                    # Committed one by one; killed after the first.
                    r.positions[str(log)] = batches[0].position
                    out += batches[0].data.decode()
                    break
        assert out == "a2\nb\nc\nd\n"

    def test_the_rotated_file_was_compressed_before_we_looked(self, log: Path) -> None:
        log.write_text("a1\n" * 1000)
        r = reader(log)
        r.look()
        append(log, "a2\n")
        rename_and_create(log)
        append(log, "b\n")
        compress(log.with_name("app.log.1"))
        r.restart()
        assert r.settle() == "a2\nb\n"

    def test_a_file_is_not_read_again_once_it_is_compressed(self, log: Path) -> None:
        r = reader(log)
        for name in "abcdef":
            append(log, f"{name}\n" * 3)
            assert r.settle() == f"{name}\n" * 3
            rename_and_create(log)
            if log.with_name("app.log.2").exists():
                compress(log.with_name("app.log.2"))
            assert r.settle() == ""
        r.restart()
        assert r.settle() == ""

    def test_a_file_older_than_our_first_look_is_never_read(self, log: Path) -> None:
        log.with_name("app.log.1").write_text("ancient\n")
        log.write_text("a\n")
        r = reader(log)
        assert r.look() == "a\n"
        rename_and_create(log)
        append(log, "b\n")
        assert r.settle() == "b\n"

    def test_dated_names(self, log: Path) -> None:
        log.write_text("a1\n")
        r = reader(log)
        r.look()
        append(log, "a2\n")
        log.rename(log.with_name("app-20261120.log"))
        log.write_text("b\n")
        log.rename(log.with_name("app.log-20261121-0930"))
        log.write_text("c\n")
        assert r.settle() == "a2\nb\nc\n"

    def test_what_was_written_late_is_read_from_the_compressed_file(self, log: Path) -> None:
        """::

        A ==|== renamed, written to once more -- compressed
        B       ==|==  kill -9  renamed                    | C
        """
        append(log, "a\n" * 200)
        follower = reader(log)
        follower.look()
        first = log.rename(log.with_name("app.log.1"))
        append(log, "b\n")
        follower.settle()
        append(first, "late\n")
        append(log, "more\n")
        os.utime(log, ns=(os.stat(first).st_mtime_ns + 1_000_000,) * 2)
        follower.restart()
        second = first.rename(log.with_name("app.log.2"))
        compress(second)
        log.rename(first)
        append(log, "c\n")
        assert sorted(follower.settle().split()) == ["c", "late", "more"]
        follower.restart()
        assert follower.settle() == ""

    def test_a_line_cut_by_a_rename_ends_there(self, log: Path) -> None:
        log.write_text("1\nhalf")
        r = reader(log)
        r.look()
        rename_and_create(log)
        append(log, "2\n")
        assert r.settle() == "\n2\n"

    def test_lines_count_anew_in_each_file(self, log: Path) -> None:
        log.write_text("1\n")
        r = reader(log)
        r.look()
        rename_and_create(log)
        append(log, "2\n")
        r.settle()
        append(log, "3\n")
        r.look()
        assert [(b.data, b.new_file) for b in r.batches] == [
            (b"", True),
            (b"1\n", False),
            (b"2\n", True),
            (b"3\n", False),
        ]


class TestCopytruncate:
    def test_the_new_content_is_shorter(self, log: Path) -> None:
        log.write_text("1\n2\n3\n")
        r = reader(log)
        r.look()
        copytruncate(log)
        append(log, "4\n")
        assert r.look() == "4\n"
        assert ("truncated", "app.log") in r.said

    def test_the_new_content_is_longer_than_the_old(self, log: Path) -> None:
        log.write_text("1\n")
        r = reader(log)
        r.look()
        copytruncate(log)
        append(log, "2\n" * 50)
        assert r.look() == "2\n" * 50

    def test_the_new_content_is_as_long_as_the_old(self, log: Path) -> None:
        log.write_text("1\n")
        r = reader(log)
        r.look()
        copytruncate(log)
        append(log, "2\n")
        assert r.look() == "2\n"

    # 1 | 2 copy truncate 3 |
    def test_what_was_not_read_before_is_read_from_the_copy(self, log: Path) -> None:
        log.write_text("1\n")
        r = reader(log)
        r.look()
        append(log, "2\n")
        copytruncate(log)
        append(log, "3\n")
        assert r.look() == "2\n3\n"

    # 1 | 2 copy | 2' truncate 3 |
    def test_what_was_read_after_the_copy_is_not_read_again_from_it(self, log: Path) -> None:
        log.write_text("1\n")
        r = reader(log)
        r.look()
        append(log, "2\n")
        r.look()

        def meanwhile() -> None:
            append(log, "2'\n")
            assert r.look() == "2'\n"

        copytruncate(log, meanwhile)
        append(log, "3\n")
        assert r.look() == "3\n"

    @pytest.mark.parametrize("away", [False, True])
    def test_several_between_two_looks(self, log: Path, away: bool) -> None:
        log.write_text("a1\n")
        r = reader(log)
        r.look()
        append(log, "a2\n")
        for name in "bcd":
            copytruncate(log)
            append(log, f"{name}\n" * 2)
        if away:
            r.restart()
        assert r.settle() == "a2\nb\nb\nc\nc\nd\nd\n"
        r.restart()
        assert r.settle() == ""

    def test_the_copy_was_compressed_before_we_looked(self, log: Path) -> None:
        log.write_text("1\n" * 100)
        r = reader(log)
        r.look()
        append(log, "2\n")
        copytruncate(log)
        append(log, "3\n")
        compress(log.with_name("app.log.1"))
        assert r.settle() == "2\n3\n"

    def test_a_compressed_copy_that_is_still_being_written_is_waited_for(self, log: Path) -> None:
        log.write_text("".join(f"{n}\n" for n in range(5000)))
        r = reader(log)
        r.look()
        append(log, "last\n")
        packed = gzip.compress(log.read_bytes())
        copytruncate(log)
        append(log, "next\n")
        log.with_name("app.log.1").unlink()
        target = log.with_name("app.log.1.gz")
        target.write_bytes(packed[:200])
        assert r.look() == r.look(1.0) == ""
        target.write_bytes(packed)
        assert r.look(1.0) == "last\nnext\n"

    def test_a_compressed_copy_that_never_ends_is_given_up(self, log: Path) -> None:
        log.write_text("".join(f"{n}\n" for n in range(5000)))
        r = reader(log)
        r.look()
        packed = gzip.compress(log.read_bytes())
        os.truncate(log, 0)
        append(log, "next\n")
        log.with_name("app.log.1.gz").write_bytes(packed[:200])
        assert r.look() == ""
        assert r.look(6.0) + r.look(1.0) == "next\n"
        assert ("lost", "app.log") in r.said

    # 1 | copy truncate 2, copy (killed here: not truncated yet) | 3 truncate 4 |
    @pytest.mark.parametrize("lines", [1, 100])
    def test_a_copy_that_is_not_truncated_yet_is_not_read_twice(self, log: Path, lines: int) -> None:
        log.write_text("1\n" * 200)
        r = reader(log)
        r.look()
        copytruncate(log)
        append(log, "2\n" * lines)

        def meanwhile() -> None:
            r.restart()
            assert r.look() == "2\n" * lines
            append(log, "3\n")
            assert r.look() == "3\n"

        copytruncate(log, meanwhile)
        append(log, "4\n")
        assert r.settle() == "4\n"

    def test_a_line_cut_by_the_copy_goes_on_after_the_truncation(self, log: Path) -> None:
        log.write_text("1\nha")
        r = reader(log)
        r.look()
        copytruncate(log)
        append(log, "lf\n2\n")
        assert r.look() == "lf\n2\n"

    def test_a_log_that_its_writer_empties(self, log: Path) -> None:
        log.write_text("1\nhalf")
        r = reader(log)
        r.look()
        log.write_text("2\n")
        assert r.look() == "\n2\n"  # the half line goes nowhere

    def test_the_same_start_again_and_again(self, log: Path) -> None:
        banner = "=== start ===\n"
        log.write_text(banner)
        r = reader(log)
        r.look()
        for n in range(3):
            rename_and_create(log)
            append(log, f"{banner}{n}\n")
            assert r.settle() == f"{banner}{n}\n"


class TestRecreate:
    def test_deleted_and_made_anew(self, log: Path) -> None:
        log.write_text("1\n")
        r = reader(log)
        r.look()
        append(log, "2\n")
        log.unlink()
        log.write_text("3\n")
        assert r.settle() == "2\n3\n"

    def test_deleted_for_a_while_the_writer_goes_on(self, log: Path) -> None:
        log.write_text("1\n")
        r = reader(log)
        r.look()
        with log.open("a") as held:
            log.unlink()
            held.write("2\n")
            held.flush()
            assert r.look(1.0) == "2\n"
            assert r.look(1.0) == ""
        assert ("missing", "app.log") in r.said
        assert r.look(VANISHED + 1) == ""
        assert not r.follower.tails[str(log)].is_open  # the disk space is free again
        log.write_text("3\n")
        assert r.look(1.0) + r.settle() == "3\n"
        assert r.said[-1] == ("found", "app.log")

    def test_a_file_lost_while_we_were_away_is_said(self, log: Path) -> None:
        log.write_text("1\n")
        r = reader(log)
        r.look()
        log.unlink()
        log.with_name("other").write_text("x")  # takes the inode on some file systems
        log.write_text("2\n")
        r.restart()
        assert r.settle() == "2\n"
        assert ("lost", "app.log") in r.said

    def test_an_inode_that_is_used_again_is_another_file(self, log: Path) -> None:
        log.write_text("1\n" * 10)
        r = reader(log)
        r.look()
        position = r.positions[str(log)]
        log.write_text("2\n" * 20)  # same inode, other content, longer
        assert position["file"]["inode"] == log.stat().st_ino
        r.restart()
        assert r.settle() == "2\n" * 20


class TestLinks:
    # containers/x.log -> pods/0.log | 0.log renamed, new 0.log | link -> 1.log
    def test_kubelet_rotation_and_container_restart(self, tmp_path: Path) -> None:
        pods, containers = tmp_path / "pods", tmp_path / "containers"
        pods.mkdir()
        containers.mkdir()
        link, target = containers / "x.log", pods / "0.log"
        target.write_text("1\n")
        link.symlink_to(target)
        r = reader(link)
        assert r.look() == "1\n"
        append(target, "2\n")
        target.rename(pods / "0.log.20261120-093000")
        target.write_text("3\n")
        assert r.settle() == "2\n3\n"
        append(target, "4\n")
        (pods / "1.log").write_text("5\n")
        link.unlink()
        link.symlink_to(pods / "1.log")
        assert r.settle() == "4\n5\n"

    def test_a_link_that_was_turned_while_we_were_away(self, tmp_path: Path) -> None:
        link, target = tmp_path / "x.log", tmp_path / "0.log"
        target.write_text("1\n")
        link.symlink_to(target)
        r = reader(link)
        r.look()
        append(target, "2\n")
        (tmp_path / "1.log").write_text("3\n")
        link.unlink()
        link.symlink_to(tmp_path / "1.log")
        r.restart()
        assert r.settle() == "2\n3\n"

    def test_a_link_to_nothing_is_waited_for(self, log: Path) -> None:
        log.symlink_to(log.with_name("later"))
        r = reader(log)
        assert r.look() == ""
        log.with_name("later").write_text("1\n")
        assert r.look(1.0) == "1\n"


class TestGlobs:
    def test_files_found_while_running_are_read_from_their_start(self, tmp_path: Path) -> None:
        (tmp_path / "a.log").write_text("old\n")
        r = reader(tmp_path / "*.log", from_end=True)
        assert r.look() == ""
        (tmp_path / "b.log").write_text("new\n")
        append(tmp_path / "a.log", "more\n")
        r.look(1.1)
        assert {Path(key).name: text for key, text in r.texts.items()} == {"a.log": "more\n", "b.log": "new\n"}

    def test_no_match_is_said_once(self, tmp_path: Path) -> None:
        r = reader(tmp_path / "**" / "*.log")
        r.look()
        r.look(1.1)
        (tmp_path / "deep" / "er").mkdir(parents=True)
        (tmp_path / "deep" / "er" / "x.log").write_text("1\n")
        assert r.look(1.1) == "1\n"
        assert r.said == [("waiting", "*.log"), ("found", "*.log")]

    def test_rotated_files_that_match_are_no_logs_of_their_own(self, tmp_path: Path) -> None:
        log = tmp_path / "app.log"
        log.write_text("1\n")
        r = reader(tmp_path / "*.log*")
        r.look()
        for n in (2, 3):
            append(log, f"{n}\n")
            rename_and_create(log)
            append(log, f"new {n}\n")
            r.look(1.1)
            r.settle()
        assert r.texts == {str(log): "1\n2\nnew 2\n3\nnew 3\n"}

    def test_a_numbered_log_is_a_log(self, tmp_path: Path) -> None:
        for n in range(3):
            (tmp_path / f"worker-{n}.log").write_text(f"{n}\n")
        (tmp_path / "worker.log").write_text("x\n")
        r = reader(tmp_path / "worker*.log")
        r.look()
        assert sorted(r.texts.values()) == ["0\n", "1\n", "2\n", "x\n"]

    def test_excluded_files(self, tmp_path: Path) -> None:
        (tmp_path / "a.log").write_text("a\n")
        (tmp_path / "b.log").write_text("b\n")
        r = reader(tmp_path / "*.log", exclude=(str(tmp_path / "b*"),))
        assert r.look() == "a\n"

    def test_a_file_that_is_gone_for_good_is_forgotten(self, tmp_path: Path) -> None:
        (tmp_path / "a.log").write_text("a\n")
        r = reader(tmp_path / "*.log")
        r.look()
        (tmp_path / "a.log").unlink()
        for _ in range(20):
            r.look(60.0)
        assert r.positions == {}
        assert r.batches[-1].ended
        assert not r.follower.tails

    def test_one_flood_does_not_starve_the_others(self, tmp_path: Path) -> None:
        (tmp_path / "flood.log").write_bytes(b"x" * (8 << 20))
        (tmp_path / "quiet.log").write_text("1\n")
        r = reader(tmp_path / "*.log")
        first = [Path(batch.key).name for batch in r.follower.poll() if batch.data]
        assert "quiet.log" in first
        assert r.follower.more
        assert r.follower.lag()[str(tmp_path / "flood.log")] > 0


class TestTrouble:
    def test_permission_denied_is_said_once_and_recovered_from(self, log: Path) -> None:
        log.write_text("1\n")
        log.chmod(0)
        r = reader(log)
        root = os.geteuid() == 0
        if root:
            os.seteuid(65534)  # root may read everything
        try:
            for _ in range(5):
                assert r.look(1.0) == ""
        finally:
            if root:
                os.seteuid(0)
        log.chmod(0o600)
        assert r.look(60.0) == "1\n"
        assert r.said == [("denied", "app.log"), ("recovered", "app.log")]

    def test_an_error_is_said_once_with_pauses_that_grow(self, log: Path) -> None:
        log.mkdir()
        r = reader(log)
        for _ in range(5):
            r.look(1.0)
        log.rmdir()
        log.write_text("1\n")
        assert r.look(60.0) == "1\n"
        assert r.said == [("error", "app.log"), ("recovered", "app.log")]

    def test_a_directory_that_vanishes_and_comes_back(self, tmp_path: Path) -> None:
        folder = tmp_path / "logs"
        folder.mkdir()
        (folder / "a.log").write_text("1\n")
        r = reader(folder / "a.log")
        r.look()
        shutil.rmtree(folder)
        assert r.look(1.0) == ""
        folder.mkdir()
        (folder / "a.log").write_text("2\n")
        assert r.look(1.0) + r.settle() == "2\n"
        assert [kind for kind, _ in r.said] == ["missing", "rotated", "found"] or ("missing", "a.log") in r.said


@pytest.mark.parametrize(
    ("name", "base", "expected"),
    [
        ("app.log.1", "app.log", True),
        ("app.log.12.gz", "app.log", True),
        ("app.log-20251120", "app.log", True),
        ("app-2025-11-20.log.zst", "app.log", True),
        ("app.1.log", "app.log", True),
        ("0.log.20251120-090000.gz", "0.log", True),
        ("app.log.old", "app.log", True),
        ("app.log-2025112003.backup", "app.log", True),
        ("app-1.log", "app.log", False),
        ("app.log", "app.log", False),
        ("app.log.lock", "app.log", False),
        ("app.log2", "app.log", False),
    ],
)
def test_names_that_rotation_gives(name: str, base: str, expected: bool) -> None:
    assert is_rotated_name(name, base) is expected


STEPS = ("write", "write", "write", "look", "rename", "copytruncate", "compress", "recreate", "kill", "half", "wait")


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(STEPS), max_size=30))
def test_any_history_gives_every_line_once_in_order(tmp_path_factory: pytest.TempPathFactory, steps: list[str]) -> None:
    log = tmp_path_factory.mktemp("log") / "app.log"
    r = reader(log)
    written: list[str] = []
    text = ""

    def line() -> str:
        written.append(f"line {len(written)}")
        return written[-1] + "\n"

    append(log, "")
    r.look()
    for step in steps:
        r.now += 0.3
        if step == "write":
            append(log, line())
        elif step == "half":
            whole = line()
            append(log, whole[:4])
            text += r.look()
            append(log, whole[4:])
        elif step == "look":
            text += r.look()
        elif step == "wait":
            text += r.settle()
        elif step == "rename":
            rename_and_create(log)
        elif step == "copytruncate":
            copytruncate(log)
        elif step == "recreate":
            text += r.settle() + r.settle()  # what nobody read before is gone with the file
            log.unlink()
            log.touch()
        elif step == "compress":
            for name in ("app.log.2", "app.log.3"):
                if log.with_name(name).exists():
                    compress(log.with_name(name))
        elif step == "kill":
            r.restart()
    for _ in range(12):
        text += r.settle()
    assert [row for row in text.split("\n") if row] == written, steps
