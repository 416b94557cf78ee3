"""Evidence before a restart: once, bounded, without credentials, and a probe that waits for it but not for ever."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path

import pytest

from agent.capture import Limits, Target, _py_spy
from agent.evidence import EvidenceStore, eligible, incident_id
from tests.web.scene import CASES, NOW, deadlock_alert

ALERT = deadlock_alert()
LOG = CASES / "trtllm-assertion-wedge" / "server.log"


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


def store(tmp_path: Path, **limits: object) -> EvidenceStore:
    made = Limits(**{"timeout": 10.0, "stacks": False, "gpu": False, **limits})  # type: ignore[arg-type]
    return EvidenceStore(tmp_path / "incidents", made, clock=Clock())


def target(**more: object) -> Target:
    given = {"logs": {"server.log": Target.tail_of(str(LOG))}, "page": lambda _: b"# HELP x\nx 1\n", **more}
    return Target("trtllm-0", **given)  # type: ignore[arg-type]


def folder_of(tmp_path: Path) -> Path:
    return tmp_path / "incidents" / incident_id(ALERT)


def test_everything_that_a_restart_destroys_is_in_the_folder(tmp_path: Path) -> None:
    kept = store(tmp_path)
    captured = kept.capture(ALERT, target(context={"version": "0.1.0"}), series={"requests_waiting": [[NOW, 214]]})
    assert captured is not None
    assert captured.result == "complete"
    names = {piece.name: piece for piece in kept.pieces(captured.id)}
    assert set(names) == {"processes.txt", "metrics.txt", "alert.json", "series.json", "context.json", "log/server.log"}
    folder = folder_of(tmp_path)
    assert "assert total_num_tokens <= self.max_num_tokens" in (folder / "log" / "server.log").read_text()
    assert json.loads((folder / "alert.json").read_bytes())["failure"] == "token_budget_deadlock"
    assert "shareProcessNamespace" in names["processes.txt"].note  # nothing to see, and it says what would help
    assert names["metrics.txt"].sha256


def test_once_per_incident_also_over_a_restart_and_from_many_threads(tmp_path: Path) -> None:
    """
    confirmed -> capture | update -> nothing | daemon restarts -> nothing | fires anew next week -> capture
    """
    kept = store(tmp_path)
    results: list[object] = []
    threads = [threading.Thread(target=lambda: results.append(kept.capture(ALERT, target()))) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(result is not None for result in results) == 1
    assert store(tmp_path).capture(ALERT.with_(severity="critical", starts_at=ALERT.starts_at - 3), target()) is None
    assert store(tmp_path).capture(ALERT.with_(fired_at=NOW + 7 * 86400), target()) is not None


@pytest.mark.parametrize(
    ("change", "due"),
    [
        ({}, True),
        ({"confidence": "probable"}, True),
        ({"confidence": "suspected"}, False),
        ({"state": "pending"}, False),
        ({"state": "resolved"}, False),
        ({"failure": "overload"}, False),
        ({"failure": "engine_dead"}, True),
    ],
)
def test_for_which_alerts(change: dict[str, str], due: bool) -> None:
    assert eligible(ALERT.with_(**change)) is due


def test_a_probe_waits_for_it_but_not_for_ever(tmp_path: Path) -> None:
    clock = Clock()
    kept = EvidenceStore(tmp_path, Limits(timeout=20.0), clock=clock)
    assert kept.pending(ALERT)
    clock.now += 39
    assert kept.pending(ALERT)
    clock.now += 2  # nobody captured: the thread died, the disk is gone
    assert not kept.pending(ALERT)
    assert not kept.pending(ALERT.with_(failure="overload", fingerprint="a" * 16))


def test_after_the_capture_and_after_a_restart_the_probe_is_free(tmp_path: Path) -> None:
    kept = store(tmp_path)
    assert kept.pending(ALERT)
    kept.capture(ALERT, target())
    assert not kept.pending(ALERT)
    assert not store(tmp_path).pending(ALERT)


def test_switched_off(tmp_path: Path) -> None:
    kept = EvidenceStore(tmp_path / "incidents", enabled=False)
    assert not kept.pending(ALERT)
    assert kept.capture(ALERT, target()) is None
    assert not (tmp_path / "incidents").exists()


# ---- bounds ------------------------------------------------------------------------------------------------------


def test_a_source_that_hangs_costs_only_itself(tmp_path: Path) -> None:
    release = threading.Event()

    def hang() -> bytes:
        release.wait(30)
        return b""

    hangs = {"dead-mount.log": lambda _: hang(), "server.log": Target.tail_of(str(LOG))}
    kept = store(tmp_path, timeout=1.0)
    began = time.monotonic()
    captured = kept.capture(ALERT, target(page=lambda _: hang(), logs=hangs))
    elapsed = time.monotonic() - began
    release.set()
    assert captured is not None
    assert captured.result == "partial"
    notes = {piece.name: piece.note for piece in captured.pieces}
    assert notes["metrics.txt"].startswith("failed: not done within")
    assert notes["log/dead-mount.log"].startswith("failed")
    assert elapsed < 5  # the time-out is 1 s; the rest is a busy machine
    assert json.loads((folder_of(tmp_path) / "alert.json").read_bytes())


def test_a_source_that_fails_is_noted_with_its_reason(tmp_path: Path) -> None:
    def refuse(_: float) -> bytes:
        raise ConnectionRefusedError("Bearer abcdef123456 refused")

    kept = store(tmp_path)
    captured = kept.capture(ALERT, target(page=refuse, logs={"gone.log": Target.tail_of(str(tmp_path / "gone.log"))}))
    assert captured is not None
    notes = {piece.name: piece.note for piece in captured.pieces}
    assert "ConnectionRefusedError" in notes["metrics.txt"]
    assert "abcdef123456" not in notes["metrics.txt"]
    assert "No such file" in notes["log/gone.log"]


def test_the_folder_has_a_size(tmp_path: Path) -> None:
    kept = store(tmp_path, incident_bytes=20_000)
    captured = kept.capture(ALERT, target(page=lambda _: b"x" * 1_000_000))
    assert captured is not None
    total = sum(path.stat().st_size for path in folder_of(tmp_path).rglob("*") if path.name != "manifest.json")
    assert total <= 20_000
    assert "size limit" in {piece.name: piece.note for piece in captured.pieces}["metrics.txt"]


def test_only_the_end_of_a_large_log_is_taken(tmp_path: Path) -> None:
    large = tmp_path / "large.log"
    with open(large, "wb") as handle:
        for number in range(60_000):
            handle.write(b"%08d INFO all is well, nothing to see\n" % number)
        handle.write(b"the last words\n")
    kept = store(tmp_path)
    kept.capture(ALERT, target(logs={str(large): Target.tail_of(str(large))}))
    text = kept.context_text(incident_id(ALERT), str(large))
    assert text.endswith("the last words\n")
    assert len(text) <= 1 << 20
    assert text.split("\n", 1)[0].endswith("nothing to see")  # begins with a whole line


def test_old_and_many_folders_are_removed_the_oldest_first(tmp_path: Path) -> None:
    clock = Clock()
    kept = EvidenceStore(
        tmp_path, Limits(stacks=False, gpu=False, total_bytes=40_000, max_age=86400.0), clock=clock
    )  # each folder is about 20 kB
    for number in range(6):
        alert = ALERT.with_(fired_at=NOW + number)
        kept.capture(alert, target())
        os.utime(tmp_path / incident_id(alert), (NOW + number, NOW + number))
    left = sorted(item.name for item in tmp_path.iterdir())
    assert left[-1] == incident_id(ALERT.with_(fired_at=NOW + 5))
    assert 1 <= len(left) <= 3
    clock.now += 2 * 86400
    assert kept.prune(keep={left[-1]}) == len(left) - 1
    assert [item.name for item in tmp_path.iterdir()] == [left[-1]]


def test_a_disk_that_takes_nothing_is_no_reason_to_die(tmp_path: Path) -> None:
    (tmp_path / "incidents").write_text("a file where the folder should be")
    kept = store(tmp_path)
    captured = kept.capture(ALERT, target())
    assert captured is not None
    assert captured.result == "failed"
    assert not kept.pending(ALERT)


# ---- secrets and hostile names -----------------------------------------------------------------------------------


def test_no_credential_gets_into_the_folder(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    secret = "hf_abcdefgh12345678"
    log.write_text(f"INFO started\nINFO Authorization: Bearer {secret}\nINFO http://user:{secret}@host/\n" * 50)
    alert = ALERT.with_(annotations={"summary": f"token={secret}"})
    kept = store(tmp_path)
    kept.capture(alert, target(logs={"server.log": Target.tail_of(str(log))}, context={"url": f"http://u:{secret}@h/"}))
    for path in folder_of(tmp_path).rglob("*"):
        assert path.is_dir() or secret.encode() not in path.read_bytes(), path


@pytest.mark.parametrize("name", ["../../etc/passwd", "/var/log/a b\n.log", "x" * 400, "...", "é/ß.log"])
def test_no_log_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    kept = store(tmp_path)
    kept.capture(ALERT, target(logs={name: lambda _: b"line\n"}))
    inside = list((folder_of(tmp_path) / "log").iterdir())
    assert len(inside) == 1
    assert inside[0].read_bytes() == b"line\n"
    assert sorted(item.name for item in tmp_path.iterdir()) == ["incidents"]


@pytest.mark.parametrize("name", ["../incidents", "", ".", "/etc", "a" * 100, "no-such-incident"])
def test_no_id_leads_elsewhere(tmp_path: Path, name: str) -> None:
    kept = store(tmp_path)
    kept.capture(ALERT, target())
    assert kept.tar(name) is None
    assert kept.pieces(name) == ()
    assert kept.context_text(name, "server.log") == ""


def test_one_tar_to_hand_over(tmp_path: Path) -> None:
    kept = store(tmp_path)
    kept.capture(ALERT, target())
    os.symlink("/etc/passwd", folder_of(tmp_path) / "sneaky")
    found = kept.tar(incident_id(ALERT))
    assert found is not None
    size, blocks = found
    data = b"".join(blocks)
    assert len(data) == size
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        names = tar.getnames()
        member = tar.extractfile(f"wedgewatch-{incident_id(ALERT)}/log/server.log")
        assert member is not None
        assert b"max_num_tokens" in member.read()
    assert f"wedgewatch-{incident_id(ALERT)}/manifest.json" in names
    assert not any("sneaky" in name for name in names)


# ---- processes ---------------------------------------------------------------------------------------------------

SERVER = """
import socket, sys, threading, time
from multiprocessing import get_context
def engine():
    def wait_for_work():
        time.sleep(60)
    wait_for_work()
if __name__ == "__main__":
    sock = socket.socket(); sock.bind(("127.0.0.1", 0)); sock.listen()
    child = get_context("fork").Process(target=engine, daemon=True); child.start()
    print(sock.getsockname()[1], child.pid, flush=True)
    sys.stdin.read()
    child.terminate()
"""


@pytest.fixture
def running(tmp_path: Path) -> object:
    script = tmp_path / "toy_server.py"
    script.write_text(SERVER)
    with subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        port, child = process.stdout.readline().split()
        yield process.pid, int(child), int(port)
        assert process.stdin is not None
        process.stdin.close()


def test_the_process_tree_behind_a_port(tmp_path: Path, running: tuple[int, int, int]) -> None:
    pid, child, port = running
    kept = store(tmp_path)
    kept.capture(ALERT, target(port=port))
    lines = (folder_of(tmp_path) / "processes.txt").read_text().splitlines()
    assert [int(line.split()[0]) for line in lines[1:]] == [pid, child]
    assert "toy_server.py" in lines[1]
    assert "  " in lines[2].split(";")[0]


def test_a_process_by_its_command_line_or_pid_file(tmp_path: Path, running: tuple[int, int, int]) -> None:
    from agent import processes

    pid, child, port = running
    assert processes.find(str(tmp_path / "toy_server.py"), None) == [pid, child]
    file = tmp_path / "server.pid"
    file.write_text(f"{pid}\n")
    assert processes.find(str(file), None) == [pid]
    assert processes.find(str(pid), None) == [pid]
    assert processes.find("", port) == [pid, child]  # a forked child holds the socket too
    assert processes.find("", None) == []
    assert processes.find("no such command line anywhere", None) == []
    assert processes.read(2**22 + 1) is None


@pytest.mark.parametrize(
    ("url", "port"),
    [
        ("http://127.0.0.1:8000/metrics", 8000),
        ("http://localhost/metrics", 80),
        ("https://[::1]:9/x", 9),
        ("http://10.0.0.7:8000/metrics", None),
        ("http://127.example:8000/", None),
        ("", None),
        ("http://[", None),
    ],
)
def test_only_a_server_on_this_machine_has_a_process_here(url: str, port: int | None) -> None:
    from agent.processes import local_port

    assert local_port(url) == port


@pytest.mark.skipif(_py_spy() == "py-spy", reason="py-spy is not installed")
def test_python_stacks(tmp_path: Path, running: tuple[int, int, int]) -> None:
    _, child, port = running
    kept = store(tmp_path, stacks=True)
    kept.capture(ALERT, target(port=port))
    assert "wait_for_work" in (folder_of(tmp_path) / "stacks" / f"{child}.txt").read_text()


def test_what_is_not_installed_is_said(
    tmp_path: Path, running: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    _, _, port = running
    kept = store(tmp_path, stacks=True, gpu=True)
    captured = kept.capture(ALERT, target(port=port))
    assert captured is not None
    notes = [piece.note for piece in captured.pieces]
    assert "py-spy is not installed here" in notes
    assert "nvidia-smi is not installed here" in notes
    assert captured.result == "complete"
