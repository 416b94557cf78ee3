"""Prefixes and JSON keys that no list foresees: the same records come out as from the bare log."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from agent.logs.engine import LogEngine
from agent.logs.frames import Frames
from agent.logs.stream import LogStream, Matched
from agent.logs.timestamps import YearReference
from agent.rules.load import load_rules
from agent.rules.model import Condition, Dialect, Matcher

_LINES = (
    "[11/20/2026-09:00:00] [TRT-LLM] [I] PyTorchConfig(max_num_tokens=4096, max_batch_size=64)",
    "[11/20/2026-09:00:01] [TRT-LLM] [I] max_seq_len=32768, max_num_requests=64, max_num_tokens=4096",
    "INFO:     Application startup complete.",
    *(f"[11/20/2026-09:01:{n:02}] [TRT-LLM] [I] iter = {n}, num_scheduled_requests: 31" for n in range(59)),
    *(f'INFO:     10.0.0.{n}:40868 - "POST /v1/chat/completions HTTP/1.1" 200 OK' for n in range(9)),
    "Traceback (most recent call last):",
    '  File "/opt/app/py_executor.py", line 2291, in _forward_step',
    "    assert total_num_tokens <= self.max_num_tokens",
    "AssertionError: total_num_tokens (6986) should be less than or equal to max_num_tokens (4096)",
    "[11/20/2026-09:02:01] [TRT-LLM] [E] Error in event loop: Sampling failed",
    "[11/20/2026-09:02:01] [TRT-LLM] [E] Traceback (most recent call last):",
    '  File "/opt/app/py_executor.py", line 520, in _event_loop_wrapper',
    "AssertionError: Sampling failed",
    "[11/20/2026-09:03:01] [TRT-LLM] [I] [serve] the front end is still there",
)
_CLOCK = "2026-11-20T09:02:01"
_CONDITIONS = (
    Condition(any=(Matcher("regex", r"^Error in event loop"),)),
    Condition(any=(Matcher("regex", r"AssertionError: total_num_tokens \((?P<total>\d+)\)"),)),
    Condition(any=(Matcher("contains", "Application startup complete"),)),
)

FRAMES: dict[str, Callable[[str], str]] = {
    "stern": lambda line: f"trtllm-5c9d-abc server {line}",
    "stern with an arrow": lambda line: f"trtllm-5c9d-abc › server {line}",
    "ts of moreutils": lambda line: f"Nov 20 09:02:01 {line}",
    "a stamp without a zone": lambda line: f"{_CLOCK} {line}",
    "a stamp with a blank": lambda line: f"{_CLOCK.replace('T', ' ')},123 {line}",
    "seconds": lambda line: f"1795165321.123456 {line}",
    "milliseconds and a tab": lambda line: f"1795165321123\t{line}",
    "journalctl -o short-full": lambda line: f"Fri 2026-11-20 09:02:01 UTC gpu7 trtllm-serve[4242]: {line}",
    "journalctl -o short-unix": lambda line: f"1795165321.123456 gpu7 trtllm-serve[4242]: {line}",
    "RFC 5424": lambda line: f"<14>1 {_CLOCK}.123Z gpu7 trtllm-serve 4242 - - {line}",
    "RFC 3164 with its priority": lambda line: f"<14>Nov 20 09:02:01 gpu7 trtllm-serve[4242]: {line}",
    "aws logs tail": lambda line: f"{_CLOCK}+00:00 ecs/server/0a1b2c {line}",
    "logcli": lambda line: f'{_CLOCK}Z {{app="trtllm", pod="x-0"}} {line}',
    "a tab": lambda line: f"\t{line}",
    "airflow": lambda line: f"[2026-11-20, 09:02:01 UTC] {{subprocess.py:93}} INFO - {line}",
    "loguru": lambda line: f"{_CLOCK.replace('T', ' ')}.123 | INFO     | launcher:pump:42 - {line}",
    "pm2": lambda line: f"0|trtllm  | {line}",
    "docker service logs": lambda line: f"trtllm_server.1.x8k2j3h4g5f6@gpu7    | {line}",
    "pdsh": lambda line: f"gpu7: {line}",
    "a shipper's JSON": lambda line: json.dumps(
        {"@timestamp": f"{_CLOCK}.123Z", "message": line, "kubernetes": {"pod": {"name": "x"}}}
    ),
    "Google's JSON": lambda line: json.dumps(
        {"textPayload": line, "insertId": "x", "timestamp": f"{_CLOCK}.1Z", "severity": "INFO"}
    ),
    "JSON without a time": lambda line: json.dumps({"log": line, "stream": "stdout"}),
    "nested JSON with seconds": lambda line: json.dumps({"event": {"original": line}, "ts": 1795165321.5}),
}


@pytest.fixture(scope="module")
def dialects() -> dict[str, Dialect]:
    rules, faults = load_rules((), bundled=True)
    assert not faults
    return dict(rules.dialects)


def _read(text: str, dialects: dict[str, Dialect], pieces: int = 1) -> tuple[LogStream, list[Matched]]:
    engine = LogEngine(_CONDITIONS, dialects, year_reference=YearReference(1795165400.0), matcher="python")
    stream = engine.stream(server="s", file="f")
    data, out = text.encode(), []
    step = len(data) // pieces + 1
    for start in range(0, len(data), step):
        out += stream.feed(data[start : start + step])
    return stream, [*out, *stream.flush()]


def _told(found: list[Matched]) -> list[tuple[str, str, int, list[tuple[int, dict[str, str]]]]]:
    return [
        (
            item.record.body,
            item.record.severity_text,
            item.record.line,
            [(h.condition, dict(h.fields)) for h in item.hits],
        )
        for item in found
    ]


@pytest.mark.parametrize("frame", FRAMES)
def test_a_frame_changes_nothing(frame: str, dialects: dict[str, Dialect]) -> None:
    plain, expected = _read("\n".join(_LINES) + "\n", dialects)
    stream, found = _read("\n".join(map(FRAMES[frame], _LINES)) + "\n", dialects)
    assert stream.dialect == plain.dialect == "tensorrt_llm"
    assert _told(found) == _told(expected)
    assert stream.records == plain.records
    assert found[-1].record.timestamp == expected[-1].record.timestamp


def test_a_frame_is_kept_over_a_restart(dialects: dict[str, Dialect]) -> None:
    lines = [FRAMES["stern"](line) + "\n" for line in _LINES]
    engine = LogEngine(_CONDITIONS, dialects, year_reference=YearReference(1795165400.0), matcher="python")
    first = engine.stream(server="s", file="f")
    out = first.feed("".join(lines[:65]).encode())
    second = engine.stream(server="s", file="f")
    second.restore(json.loads(json.dumps(first.snapshot())))
    out += [*second.feed("".join(lines[65:]).encode()), *second.flush()]
    assert _told(out) == _told(_read("".join(lines), dialects)[1])


def test_a_quoted_header_is_no_frame() -> None:
    #  the engine's own lines are in the majority; what one of its readers wrote is not
    frames = Frames()
    for _ in range(4):
        frames.bare()
    assert not frames.learn("Q: why [11/20/2026-09:00:00] [TRT-LLM] [E] Error", lambda text: text.startswith("[11"))


def test_one_word_is_no_frame() -> None:
    frames = Frames()
    for _ in range(4):
        assert not frames.learn("note INFO 11-20 09:00:00 x", lambda text: text.startswith("INFO"))
    assert frames.peel("note well") is None
