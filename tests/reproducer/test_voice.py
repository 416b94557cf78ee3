"""Lines and pages are the engines' own: their formats are checked, and the pages are read by Prometheus's parsers."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from reproducer.openmetrics import Recording
from reproducer.siblings import SCENARIOS
from reproducer.users import Population
from reproducer.virtual import World
from reproducer.voice import VOICES
from reproducer.voice.base import Voice
from reproducer.voice.page import Page

HEADERS = {
    "tensorrt_llm": r"\[\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d\] \[TRT-LLM\] \[[EWI]\] |INFO:     ",
    "vllm": r"\((?:EngineCore|APIServer) pid=100\) "
    r"(?:(?:INFO|WARNING|ERROR) \d\d-\d\d \d\d:\d\d:\d\d \[[\w.]+:\d+\] |INFO:     )",
    "sglang": r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] ",
}


@pytest.fixture(scope="module")
def worlds() -> dict[str, World]:
    return {voice: SCENARIOS[name].build(0).run(2.0) for voice, name in STEADY.items()}


STEADY = {"tensorrt_llm": "steady-trtllm", "vllm": "steady", "sglang": "steady-sglang"}


@pytest.mark.parametrize("voice", list(VOICES))
def test_every_line_of_a_good_day_has_the_engines_header(worlds: dict[str, World], voice: str) -> None:
    lines = worlds[voice].log().splitlines()
    assert len(lines) > 50
    assert [line for line in lines if not re.match(HEADERS[voice], line)] == []


@pytest.mark.parametrize("voice", list(VOICES))
def test_pages_are_read_by_prometheus_parsers(worlds: dict[str, World], voice: str) -> None:
    world = worlds[voice]
    families = {family.name: family for family in read_text(world.voice.page(world.engine))}
    assert len(families) > 8
    assert "process_start_time_seconds" in families
    # prometheus_client drops samples of a histogram that has more than one moment, so those are left to promtool
    plain = "\n".join(
        line for line in world.metrics().splitlines() if "_seconds_" not in line and " histogram" not in line
    )
    plain = "\n".join(line for line in plain.splitlines() if "iteration_tokens_total_" not in line)
    over_time = {family.name: family for family in read_openmetrics(plain)}
    assert len(over_time) > 8
    stamps = [sample.timestamp for sample in over_time["process_start_time_seconds"].samples]
    assert len(stamps) == 21, "five-second scrapes over the hundred seconds that it listens"


@pytest.mark.peer
@pytest.mark.parametrize("voice", list(VOICES))
def test_promtool_makes_blocks_of_what_was_recorded(worlds: dict[str, World], voice: str, tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("needs promtool (Debian package prometheus)")
    (tmp_path / "metrics.om").write_text(worlds[voice].metrics())
    words = [promtool, "tsdb", "create-blocks-from", "openmetrics", str(tmp_path / "metrics.om"), str(tmp_path / "out")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert any((tmp_path / "out").iterdir())


@pytest.mark.parametrize(
    ("voice", "running", "done"),
    [
        ("tensorrt_llm", "trtllm_num_requests_running", "trtllm_request_success"),
        ("vllm", "vllm:num_requests_running", "vllm:request_success"),
        ("sglang", "sglang:num_running_reqs", "sglang:num_requests"),
    ],
)
def test_pages_tell_what_happens(worlds: dict[str, World], voice: str, running: str, done: str) -> None:
    families = {family.name: family for family in read_text(worlds[voice].voice.page(worlds[voice].engine))}
    assert families[running].samples[0].value > 0
    assert sum(sample.value for sample in families[done].samples) > 100


def test_the_vllm_stats_line_falls_silent_while_requests_wait() -> None:
    """INFO only while something was computed in this interval or the one before, whatever runs or waits."""
    world = SCENARIOS["deadlock-early"].build(0).run(3.0)
    lines = [line for line in world.log().splitlines() if "Avg prompt throughput" in line]
    zero = [line for line in lines if "throughput: 0.0 tokens/s, Avg generation throughput: 0.0" in line]
    assert len(zero) == 1
    assert lines[-1] == zero[0]
    assert "KV cache usage: 100.0%" in zero[0]


def test_transfers_are_told_apart_from_waiting_for_room() -> None:
    world = SCENARIOS["transfer"].build(0).run(8.0)
    page = world.voice.page(world.engine)
    assert re.search(r'kv_fetch_by_stage\{[^}]*stage="completed_waiting"\} [1-9]', page)
    assert re.search(r'waiting_by_reason\{[^}]*reason="deferred"\} [1-9]', page)
    assert "KV fetch: 0 waiting to start" in world.log()


def test_a_warning_is_not_repeated_every_step() -> None:
    world = SCENARIOS["deadlock-early"].build(0).run(3.0)
    warnings = [line for line in world.log().splitlines() if " WARNING " in line]
    assert 1 <= len(warnings) <= 20
    assert re.search(r"Request \d+ holds \d+ KV cache blocks and needs 1 more, 0 of 512 are free", warnings[-1])


def test_iteration_records_are_taken_by_reading_them() -> None:
    world = SCENARIOS["steady-trtllm"].build(0).run(1.0)
    first = world.voice.records()
    assert first
    assert {"iter", "numActiveRequests", "kvCacheStats", "inflightBatchingStats"} <= set(first[-1])
    assert world.voice.records() == []


def test_labels_are_escaped() -> None:
    page = Page(model_name='a"b\\c\nd')
    page.gauge("x", "about", 1)
    assert page.render().splitlines()[-1] == 'x{model_name="a\\"b\\\\c\\nd"} 1.0'
    (family,) = read_text(page.render())
    assert family.samples[0].labels == {"model_name": 'a"b\\c\nd'}


def test_an_untyped_family_survives_recording() -> None:
    recording = Recording()
    recording.add("odd 1\n", 5.0)
    assert recording.text() == "# TYPE odd unknown\nodd 1 5.000\n# EOF\n"


def test_sglang_prints_decode_lines_every_forty_steps_and_retractions() -> None:
    world = SCENARIOS["steady-sglang"].build(0).run(2.0)
    assert re.search(r"Prefill batch, #new-seq: \d+, #new-token: \d+, .*#queue-req: \d+", world.log())
    assert re.search(r"Decode batch, #running-req: \d+, .*gen throughput \(token/s\): [\d.]+", world.log())
    crowd = World(SCENARIOS["preemption-storm"].build(0).config, voice="sglang")
    crowd.closed(Population(), range(48), start=25)
    assert "KV cache pool is full. Retract requests. #retracted_reqs: " in crowd.run(1.5).log()


def test_a_voice_without_words_says_which() -> None:
    with pytest.raises(NotImplementedError, match="does not say what its metrics are"):
        Voice(io.StringIO()).page(None)  # type: ignore[arg-type]  # never looked at
