"""The real thing: server process, model, HTTP, load, wedge. What is left behind must be readable by others."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families as read_text

pytest.importorskip("torch", reason="the reproducer extra (torch) is not installed")

from reproducer.config import preset
from reproducer.fingerprint import fingerprint
from reproducer.live import arguments_for, run_live
from reproducer.load import Load
from reproducer.process import ServeProcess, StartError
from reproducer.users import Population, read_load

pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("reproducer-processes")]


def words(profile: str, cache: Path, *more: str, **knobs: Any) -> list[str]:
    return [*arguments_for(preset(profile, **knobs)), "--cache", str(cache), *more]


def test_a_fingerprint_of_the_assertion(tmp_path: Path, cache: Path) -> None:
    config = preset("draft")
    result = fingerprint(
        config,
        tmp_path,
        serve_arguments=words("draft", cache),
        levels=(4, *[26] * 30),  # one level after the other, until it wedges
        level_seconds=8,
        after_seconds=4,
        interval=0.5,
    )
    wedge = result["wedge"]
    assert wedge["mode"] == "assertion"
    assert wedge["overshoot"] > 0
    assert wedge["users"] == 26
    assert wedge["http_after"] == {"/health": 200, "/v1/models": 200}
    assert (wedge["completed_since"], wedge["accepted_since"] > 0) == (0, True)
    assert result["completed"] > 0
    assert result["device"]["device"] in ("cpu", "cuda")
    assert result["predicted"]["low"] == 17
    saved = json.loads((tmp_path / "result.json").read_text())
    assert saved == json.loads(json.dumps(result))
    log = (tmp_path / "server.log").read_text()
    order = [
        "max_num_tokens=256",
        "Application startup complete.",
        "assert total_num_tokens <= self.max_num_tokens",
        "[TRT-LLM] [E] Encountered an error in forward function: total_num_tokens (",
        "[TRT-LLM] [E] Error in event loop: Sampling failed",
    ]
    places = [log.index(text) for text in order]
    assert places == sorted(places)
    assert "Exception in thread Thread-" in log
    assert (tmp_path / "metrics.om").read_text().endswith("# EOF\n")
    assert len(read_load(tmp_path / "load.jsonl")) > 20


def test_a_deadlock_a_restart_and_the_same_load_again(tmp_path: Path, cache: Path) -> None:
    config = preset("deadlock")
    for attempt in ("first", "second"):
        outcome = run_live(config, 18, 3, seconds=300, folder=tmp_path / attempt, extra=("--cache", str(cache)))
        assert outcome.wedged == "deadlock"
        assert outcome.completed > 0
        log = (tmp_path / attempt / "server.log").read_text()
        assert "CPU KV cache size: 2,048 tokens, Maximum concurrency for 384 tokens per request: 5.33x" in log
        assert "ERROR" not in log
        assert "Traceback" not in log


def test_the_process_that_ends_itself(tmp_path: Path, cache: Path) -> None:
    with ServeProcess(tmp_path, words("draft", cache, "--after-crash", "exit", "--dialect", "tensorrt_llm")) as server:
        load = Load(server.url, max_total=384)
        load.closed(Population(), 26)
        assert server.process is not None
        assert server.process.wait(timeout=300) == 1
        load.stop()
    assert "[E] Fatal error detected, initiating shutdown: Sampling failed" in (tmp_path / "server.log").read_text()


def health(server: ServeProcess, wanted: int, patience: float = 300.0) -> None:
    """Wait until ``/health`` says that."""
    end = time.monotonic() + patience
    while (said := server.get("/health", timeout=2.0)[0]) != wanted:
        assert time.monotonic() < end, f"/health says {said}, not {wanted}"
        time.sleep(0.1)


def test_a_killed_loop_and_a_stopped_process(tmp_path: Path, cache: Path) -> None:
    with ServeProcess(tmp_path, words("preempt", cache)) as server:
        assert {family.name for family in read_text(server.page())} >= {"vllm:num_requests_running"}
        server.signal(signal.SIGSTOP)
        health(server, 0)
        server.signal(signal.SIGCONT)
        health(server, 200)
        server.signal(signal.SIGUSR1)
        health(server, 503)
        assert "died unexpectedly" in (tmp_path / "server.log").read_text()


def test_a_start_without_room_says_why(tmp_path: Path, cache: Path) -> None:
    server = ServeProcess(tmp_path, words("preempt", cache, "--memory-limit", "6000", kv_blocks=1 << 20))
    with pytest.raises(StartError, match="the server did not start"):
        server.start()
    log = (tmp_path / "server.log").read_text()
    assert "EngineCore failed to start." in log
    assert "allocate" in log


def run(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "reproducer", *arguments], capture_output=True, text=True, **more)


def test_help_teaches() -> None:
    done = run("--help")
    assert done.returncode == 0
    for word in ("fingerprint --out", "hard-tokens", "A below H", "hold and wait", "verify --url"):
        assert word in done.stdout


def test_no_command_is_a_usage_error() -> None:
    assert run().returncode == 2


def test_a_scenario_and_a_recording_of_it(tmp_path: Path) -> None:
    done = run("scenario", "idle", "--out", str(tmp_path))
    assert json.loads(done.stdout)["completed"] > 50
    done = run("record", str(tmp_path / "metrics.om"), "--out", str(tmp_path / "load.jsonl"))
    assert done.returncode == 0, done.stderr
    assert len(read_load(tmp_path / "load.jsonl")) > 50


def test_commands_print_json(tmp_path: Path) -> None:
    done = run("replay", "--profile", "draft", "--seeds", "2", "--steps", "300", "--json")
    assert json.loads(done.stdout)["verdict"] == "contention"


def test_nothing_to_record_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty.log").write_text("nothing\n")
    done = run("record", str(tmp_path / "empty.log"), "--out", str(tmp_path / "load.jsonl"))
    assert done.returncode == 2
    assert "no request found" in done.stderr
