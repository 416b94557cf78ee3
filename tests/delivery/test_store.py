"""What survives: a kill at any moment, a full disk, a damaged file, a second process, years of history."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from agent.database import RETRY_DISK_SECONDS
from agent.model import Alert
from agent.store import OutboxRow, Page, Retention, Silence, Store, StoreLocked
from tests.delivery.build import Clock, T, alert, resolved


def row(target: str = "team/x", page: int = -1, action: str = "open", **changes: object) -> OutboxRow:
    return OutboxRow(target, page, action, {"alerts": []}, T, **changes)  # type: ignore[arg-type]


def page(target: str = "team/x", key: str = "k") -> Page:
    return Page(target, key, "", T, T, {"members": {}})


def test_everything_of_one_commit_is_there_after_a_restart(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        ids = store.commit(
            offsets={"a.log": {"offset": 10, "inode": 5}},
            state={"x": 1},
            named_state={"onset": [1, 2]},
            alerts=[alert()],
            pages=[page()],
            outbox=[row()],
        )
        assert ids == [1]
    with Store(tmp_path) as store:
        assert store.load_offsets() == {"a.log": {"offset": 10, "inode": 5}}
        assert store.load_state() == {"x": 1}
        assert store.load_state("onset") == [1, 2]
        (stored,) = store.alerts(open=True)
        assert stored.alert == alert()
        assert [item.action for item in store.outbox()] == ["open"]
        store.commit(forget_offsets=["a.log"])
        assert store.load_offsets() == {}


def test_nothing_of_a_commit_that_fails_is_there(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        with pytest.raises(TypeError):
            store.commit(offsets={"a": 1}, state={"no json": object()})
        assert store.load_offsets() == {}


def test_an_alert_has_one_row_for_each_episode(tmp_path: Path) -> None:
    """pending -> firing -> resolved, resolved again (no new row), firing anew."""
    clock = Clock()
    with Store(tmp_path, clock=clock) as store:
        store.commit(alerts=[alert(state="pending", fired_at=None)])
        store.commit(alerts=[alert()])
        store.commit(alerts=[resolved(alert(), T + 5)])
        store.commit(alerts=[resolved(alert(), T + 6)])
        assert [item.alert.state for item in store.alerts()] == ["resolved"]
        assert store.alerts(open=True) == []
        clock.advance(60)
        store.commit(alerts=[alert(now=T + 60)])
        assert [(item.id, item.alert.state) for item in store.alerts()] == [(2, "firing"), (1, "resolved")]
        assert store.episodes("fp-trtllm-0", T - 10) == [T, T + 60]
        assert store.episodes("fp-trtllm-0", T + 30) == [T + 60]


def test_secrets_do_not_reach_the_file(tmp_path: Path) -> None:
    leaky = alert(annotations={"summary": "Authorization: Bearer abcdef123"})
    with Store(tmp_path) as store:
        store.commit(alerts=[leaky], pages=[page()], outbox=[row(last_error="")])
        store.retry([1], at=T, error="https://u:hunter2@host/ failed")
        assert "hunter2" not in store.outbox()[0].last_error
    assert all(b"abcdef123" not in path.read_bytes() for path in tmp_path.iterdir())


# -- the outbox ---------------------------------------------------------------------------------------------------


def test_rows_of_a_page_are_claimed_together_and_in_order(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        (number,) = store.commit(pages=[page()], outbox=[row()])
        store.commit(outbox=[row(page=number, action="update"), row(page=number, action="resolve")])
        assert [item.action for item in store.claim("team/x", T)] == ["open", "update", "resolve"]
        store.retry([1], at=T + 10)
        store.retry([2, 3], at=0)
        assert store.claim("team/x", T) == [], "later rows wait for the first"
        assert [item.attempts for item in store.claim("team/x", T + 10)] == [2, 2, 2]


def test_the_urgent_page_goes_first_and_a_poisoned_one_starves_nobody(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        for priority in (1, 0, 1):
            store.commit(pages=[page()], outbox=[row(priority=priority)])
        assert store.claim("team/x", T)[0].page == 2
        store.finish([2])
        assert store.claim("team/x", T)[0].page == 1
        store.retry([1], at=T, error="500")
        assert store.claim("team/x", T)[0].page == 3, "the one that failed has had its turn"
        assert store.claim("other/x", T) == []


def test_what_is_being_sent_is_claimed_by_nobody_else(tmp_path: Path) -> None:
    """A reload starts a second worker while the first is still in an attempt."""
    with Store(tmp_path) as store:
        (number,) = store.commit(pages=[page()], outbox=[row()])
        assert store.claim("team/x", T)
        store.commit(outbox=[row(page=number, action="resolve")])
        assert store.claim("team/x", T) == []
        store.finish([1])
        assert [item.action for item in store.claim("team/x", T)] == ["resolve"]


def test_what_a_dead_process_was_sending_goes_again_and_is_marked(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.commit(pages=[page()], outbox=[row()])
    assert store.claim("team/x", T)[0].uncertain is False
    store.close()
    with Store(tmp_path) as again:
        (claimed,) = again.claim("team/x", T)
        assert claimed.uncertain is True


def test_dead_letters_are_listed_and_revived_with_their_pages(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.commit(pages=[page()], outbox=[row()])
        store.claim("team/x", T)
        store.finish([1], state="dead", error="no_service", page=1, page_state="undelivered")
        assert store.pages() == []
        assert store.outbox_counts() == {"team/x": {"pending": 0.0, "dead": 1.0}}
        assert store.revive([99]) == 0
        assert store.revive() == 1
        assert [item.state for item in store.pages()] == ["open"]
        assert store.next_due("team/x") is not None


def test_a_page_keeps_what_its_receiver_returned(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.commit(pages=[page()], outbox=[row()])
        store.finish([1], page=1, ref={"ts": "1.2", "channel": "C1"})
        kept = store.page(1)
        assert kept is not None
        assert kept.ref == {"ts": "1.2", "channel": "C1"}
        assert store.page(7) is None


# -- silences -----------------------------------------------------------------------------------------------------


def test_silences_have_an_end_and_a_source(tmp_path: Path) -> None:
    clock = Clock()
    with Store(tmp_path, clock=clock) as store:
        store.put_silences([Silence("a", ('server="x"',), T, T + 60, "why", "me")])
        store.put_silences([Silence("b", ('server="y"',), T, T + 90, source="alertmanager:am")])
        assert [item.id for item in store.silences(active_at=T + 70)] == ["b"]
        store.put_silences([], replace_source="alertmanager:am")
        assert [item.id for item in store.silences()] == ["a"]
        clock.advance(10)
        assert store.expire_silence("a")
        assert not store.expire_silence("nobody")
        assert store.silences(active_at=T + 20) == []


# -- limits -------------------------------------------------------------------------------------------------------


def test_old_history_goes_and_open_alerts_stay(tmp_path: Path) -> None:
    clock = Clock()
    keep = Retention(closed_alerts_seconds=100, outbox_seconds=100)
    with Store(tmp_path, clock=clock, retention=keep) as store:
        store.commit(alerts=[alert("open"), resolved(alert("over"), T)], pages=[page()], outbox=[row()])
        store.finish([1])
        clock.advance(1000)
        store.prune(clock.now)
        assert [item.alert.server for item in store.alerts()] == ["open"]
        assert store.outbox(states=("sent",)) == []
        assert store.pages(open=None), "an open page stays"


def test_the_oldest_history_goes_when_the_file_grows_too_large(tmp_path: Path) -> None:
    clock = Clock()
    limit = 512 * 1024
    with Store(tmp_path, clock=clock, retention=Retention(max_bytes=limit)) as store:
        loud = "x" * 8000
        for number in range(200):
            clock.advance(1)
            item = alert(f"s{number}", annotations={"summary": loud})
            store.commit(alerts=[resolved(item, clock.now)])
        store.commit(alerts=[alert("open", annotations={"summary": loud})])
        store.prune(clock.now)
        left = [item.alert.server for item in store.alerts(limit=1000)]
        assert "open" in left
        assert "s199" in left
        assert "s0" not in left
        assert store.size_bytes() < 4 * limit


# -- a disk that fails --------------------------------------------------------------------------------------------


def test_no_folder_at_all_is_said_once_and_work_goes_on(tmp_path: Path) -> None:
    """A file stands where the folder should be; later somebody removes it."""
    blocker = tmp_path / "state"
    blocker.write_text("not a folder")
    said: list[str] = []
    clock = Clock()
    store = Store(blocker, clock=clock, on_problem=said.append)
    assert not store.durable
    for number in range(5):
        store.commit(alerts=[alert(f"s{number}")], offsets={"a": number})
        clock.advance(1)
    assert len(said) == 1
    assert "going on in memory" in said[0]
    assert len(store.alerts(open=True)) == 5
    blocker.unlink()
    clock.advance(RETRY_DISK_SECONDS)
    store.commit(offsets={"a": 9})
    assert store.durable
    assert said[1:] == [""]
    store.close()
    with Store(blocker) as again:
        assert len(again.alerts(open=True)) == 5
        assert again.load_offsets() == {"a": 9}


def test_a_full_disk_costs_durability_and_nothing_else(tmp_path: Path) -> None:
    """SQLite's own limit on pages gives the same error as a disk without room."""
    clock = Clock()
    said: list[str] = []
    store = Store(tmp_path, clock=clock, on_problem=said.append)
    store.commit(offsets={"a": 1}, alerts=[alert("before")], pages=[page()], outbox=[row()])
    store._database._db.execute("PRAGMA max_page_count = 30")
    loud = "y" * 12_000
    for number in range(60):
        store.commit(alerts=[alert(f"s{number}", annotations={"summary": loud})], offsets={"a": number})
    assert "the disk is full" in said[0]
    assert len(said) == 1
    assert not store.durable
    assert len(store.alerts(open=True)) == 61, "what was on the disk came along"
    assert [item.id for item in store.claim("team/x", T)] == [1]
    store.finish([1])
    clock.advance(RETRY_DISK_SECONDS)
    store.commit(offsets={"a": 100})
    assert store.durable, "a new connection has no such limit: there is room again"
    store.close()
    with Store(tmp_path) as again:
        assert len(again.alerts(open=True)) == 61
        assert again.load_offsets() == {"a": 100}
        assert again.outbox() == []


def test_a_file_size_limit_behaves_as_a_full_disk(tmp_path: Path) -> None:
    """The kernel refuses to let the file grow: a real write error in the middle of a transaction."""
    code = f"""
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
from agent.store import Store
from tests.delivery.build import alert
said = []
store = Store({str(tmp_path)!r}, on_problem=said.append)
for number in range(100):
    store.commit(alerts=[alert(f"s{{number}}", annotations={{"summary": "z" * 9000}})], offsets={{"a": number}})
assert not store.durable and len(said) == 1, said
assert len(store.alerts(open=True)) == 100
assert store.load_offsets() == {{"a": 99}}
print("went on")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "went on\n", done.stderr


@pytest.mark.parametrize("what", ["garbage", "empty", "truncated", "middle"])
def test_a_damaged_file_is_kept_aside_and_a_new_one_begun(what: str, tmp_path: Path) -> None:
    clock = Clock()
    with Store(tmp_path, clock=clock) as store:
        for number in range(80):
            store.commit(alerts=[alert(f"s{number}")], offsets={"a": number})
    file = tmp_path / "state.db"
    whole = file.read_bytes()
    file.write_bytes(
        {
            "garbage": os.urandom(50_000),
            "empty": b"",
            "truncated": whole[: len(whole) // 2],
            "middle": whole[:4096] + os.urandom(len(whole) - 8192) + whole[-4096:],
        }[what]
    )
    with Store(tmp_path, clock=clock) as store:
        for number in range(20):
            store.commit(alerts=[alert(f"t{number}")], offsets={"a": number}, pages=[page()], outbox=[row()])
            store.alerts(open=True)
            clock.advance(RETRY_DISK_SECONDS)
        store.commit(offsets={"a": 99})
        assert store.durable
        assert {f"t{number}" for number in range(20)} <= {item.alert.server for item in store.alerts(limit=1000)}
        assert store.load_offsets()["a"] == 99
    with Store(tmp_path) as again:
        assert again.load_offsets()["a"] == 99
    if what in ("garbage", "middle"):
        assert list(tmp_path.glob("state.db.damaged-*"))


def test_a_newer_schema_is_left_alone(tmp_path: Path) -> None:
    with Store(tmp_path):
        pass
    db = sqlite3.connect(tmp_path / "state.db")
    db.execute("PRAGMA user_version = 99")
    db.close()
    said: list[str] = []
    with Store(tmp_path, on_problem=said.append) as store:
        assert "a newer wedgewatch wrote it" in said[0]
        store.commit(offsets={"a": 1})
    db = sqlite3.connect(tmp_path / "state.db")
    assert db.execute("PRAGMA user_version").fetchone() == (99,)
    db.close()


# -- other processes and threads ----------------------------------------------------------------------------------


def test_two_daemons_do_not_share_a_folder(tmp_path: Path) -> None:
    with Store(tmp_path):
        with pytest.raises(StoreLocked, match="another wedgewatch uses this state folder"):
            Store(tmp_path)
        with Store(tmp_path, exclusive=False) as helper:
            helper.put_silences([Silence("m", ('server="x"',), T, T + 60)])
    with Store(tmp_path) as store:
        assert [item.id for item in store.silences()] == ["m"]


def test_a_helper_does_not_take_up_what_the_daemon_is_sending(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.commit(pages=[page()], outbox=[row()])
        store.claim("team/x", T)
        with Store(tmp_path, exclusive=False) as helper:
            assert helper.outbox()[0].state == "sending"


def test_threads_may_use_it_at_once(tmp_path: Path) -> None:
    faults: list[BaseException] = []
    with Store(tmp_path) as store:

        def work(name: str) -> None:
            try:
                for number in range(30):
                    store.commit(alerts=[alert(f"{name}-{number}")], pages=[page(name)], outbox=[row(name)])
                    for item in store.claim(name, T):
                        store.finish([item.id])
            except BaseException as error:  # noqa: BLE001  # handed to the test's own thread
                faults.append(error)

        threads = [threading.Thread(target=work, args=(f"t{i}",)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert faults == []
        assert len(store.alerts(open=True)) == 120
        assert store.outbox() == []


_WRITER = """
import sys
from agent.store import OutboxRow, Page, Store
from tests.delivery.build import T, alert
store = Store(sys.argv[1])
start = int(store.load_offsets().get("log", 0))
print("ready", flush=True)
for number in range(start + 1, 100000):
    store.commit(
        offsets={"log": number},
        state={"seen": number},
        alerts=[alert(f"s{number}")],
        pages=[Page("team/x", f"k{number}", "", T, T, {"n": number})],
        outbox=[OutboxRow("team/x", -1, "open", {"n": number}, T)],
    )
"""


def test_kill_minus_nine_at_any_moment_leaves_a_whole_state(tmp_path: Path) -> None:
    """Offsets, state, alerts, pages and outbox agree: line n was read <=> alert n and its row are there, once."""
    rng = random.Random(4)
    for _ in range(5):
        writer = subprocess.Popen([sys.executable, "-c", _WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        time.sleep(rng.uniform(0.01, 0.15))  # the moment is what is random here
        writer.send_signal(signal.SIGKILL)
        writer.wait(10)
        writer.stdout.close()
        with Store(tmp_path) as store:
            count = store.load_offsets().get("log", 0)
            assert (store.load_state() or {"seen": 0})["seen"] == count
            servers = [item.alert.server for item in store.alerts(open=True, limit=100_000)]
            assert sorted(servers) == sorted(f"s{number}" for number in range(1, count + 1))
            rows = store.outbox(limit=100_000)
            assert [item.body["n"] for item in rows] == list(range(1, count + 1))
            pages = store.pages(limit=100_000)
            assert [item.body["n"] for item in pages] == list(range(1, count + 1))
    assert count > 0


def test_in_memory_nothing_touches_a_disk() -> None:
    with Store(None) as store:
        store.commit(alerts=[alert()], offsets={"a": 1})
        assert store.size_bytes() == 0
        assert not store.durable
        assert store.problem == ""
        assert isinstance(store.alerts()[0].alert, Alert)
