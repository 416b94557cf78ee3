"""Programs that hang, flood, or do not exist."""

from __future__ import annotations

import sys
import time

from agent.commands import run_bounded


def test_output_and_code() -> None:
    done = run_bounded(
        [sys.executable, "-c", "import sys; print(sys.stdin.read()[::-1]); sys.exit(3)"], timeout=20, stdin=b"abc"
    )
    assert (done.output, done.code, done.fault, done.ok) == (b"cba\n", 3, "", False)


def test_no_such_program() -> None:
    done = run_bounded(["/no/such/program"], timeout=1)
    assert (done.code, done.fault) == (None, "/no/such/program is not installed here")


def test_not_executable() -> None:
    assert "cannot be run" in run_bounded(["/etc/passwd"], timeout=1).fault


def test_one_that_hangs_is_ended_with_its_children() -> None:
    script = "import subprocess, time; subprocess.Popen(['sleep', '99']); time.sleep(99)"
    began = time.monotonic()
    done = run_bounded([sys.executable, "-c", script], timeout=0.5)
    assert done.code is None
    assert "did not end within 0.5 s" in done.fault
    assert time.monotonic() - began < 20


def test_one_that_ignores_the_first_signal() -> None:
    script = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('x', flush=True); time.sleep(99)"
    )
    done = run_bounded([sys.executable, "-c", script], timeout=1.0)
    assert done.fault
    assert done.output in (b"", b"x\n")


def test_a_flood_is_cut() -> None:
    done = run_bounded([sys.executable, "-c", "while True: print('x' * 1000)"], timeout=20, max_bytes=100_000)
    assert (len(done.output), done.cut, done.fault) == (100_000, True, "")


def test_one_that_never_reads_a_large_input() -> None:
    done = run_bounded([sys.executable, "-c", "print('hello')"], timeout=20, stdin=b"x" * 5_000_000)
    assert (done.output, done.code) == (b"hello\n", 0)


def test_our_environment_is_not_handed_on(monkeypatch: object) -> None:
    import os

    os.environ["SLACK_TOKEN_OF_TEST"] = "xoxb-1"
    try:
        done = run_bounded(
            [sys.executable, "-c", "import os; print(sorted(os.environ))"], timeout=20, environment={"A": "b"}
        )
    finally:
        del os.environ["SLACK_TOKEN_OF_TEST"]
    assert b"SLACK_TOKEN" not in done.output
    assert b"'A'" in done.output
