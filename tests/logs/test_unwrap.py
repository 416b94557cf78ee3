"""Envelopes come off, the text inside stays as it was, and the number of lines stays the same."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.logs.unwrap import WEAK, Peeled, normalise, peel
from tests.logs.helpers import contains, read, regex, utc

STAMP = "2026-11-20T09:00:00.123456789Z"
HEADER = "(APIServer pid=851) WARNING 11-20 09:00:00 [a.py:1] "


def docker(log: str, **more: object) -> str:
    return json.dumps({"log": log, "stream": "stderr", "time": STAMP, **more}, separators=(",", ":"))


def journal(message: object, **more: object) -> str:
    item = {"__CURSOR": "s=1", "__REALTIME_TIMESTAMP": "1795165265500000", "MESSAGE": message, "_PID": "12"}
    return json.dumps({**item, "SYSLOG_IDENTIFIER": "vllm", "_SYSTEMD_UNIT": "vllm.service", **more})


class TestBlocks:
    @pytest.mark.parametrize(
        ("raw", "clean"),
        [
            (b"\x1b[1;36m(EngineCore pid=1)\x1b[0m ERROR x\n", b"(EngineCore pid=1) ERROR x\n"),
            (b"\x1b]8;;http://x\x07link\x1b]8;;\x07\n", b"link\n"),
            (b"\x1b]0;title without end\nnext\n", b"\nnext\n"),
            (b"cut \x1b\n", b"cut \n"),
            (b"windows\r\nends\r\r\n", b"windows\nends\n"),
            (b" 10%|#   |\r 50%|##  |\rERROR last\n", b"ERROR last\n"),
            (b"a\x00b\x00\n", b"ab\n"),
            (b"\x02forged\x1fmark\x03text\n", b"forged\x1fmark\x03text\n"),
        ],
    )
    def test_control_characters(self, raw: bytes, clean: bytes) -> None:
        assert normalise(raw) == clean

    @given(st.lists(st.binary(max_size=20), max_size=8).map(lambda parts: b"\n".join(parts) + b"\n"))
    def test_the_number_of_lines_stays(self, block: bytes) -> None:
        assert normalise(block).count(b"\n") == block.count(b"\n")

    @given(
        st.lists(
            st.sampled_from(
                [docker("x\n"), docker("a\u001b[0m\\\n"), journal("m\nn"), '{"log":1}', '{"log":', "plain", "\r", "{}"]
            ),
            max_size=6,
        )
    )
    def test_a_line_does_not_depend_on_its_neighbours(self, lines: list[str]) -> None:
        alone = b"".join(normalise(line.encode() + b"\n") for line in lines)
        assert normalise("".join(line + "\n" for line in lines).encode()) == alone


def last(text: str, believed: frozenset[str] = WEAK) -> Peeled:
    found = peel(normalise(text.encode() + b"\n").decode()[:-1], believed)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("line", "kind", "text", "attributes"),
    [
        (f"{STAMP} stdout F hello", "cri", "hello", {"stream": "stdout"}),
        (f"{STAMP} stderr P hello", "cri", "hello", {"stream": "stderr"}),
        (docker("hello\n"), "docker", "hello", {"stream": "stderr"}),
        (docker('tab\t "q" <=\n', attrs={"tag": "x"}), "docker", 'tab\t "q" <=', {"stream": "stderr"}),
        (journal("hello"), "journald", "hello", {"unit": "vllm.service", "pid": "12"}),
        (journal([104, 105, 255]), "journald", "hi\ufffd", {"unit": "vllm.service", "pid": "12"}),
        (journal(["one", "two"]), "journald", "one\x0btwo", {"unit": "vllm.service", "pid": "12"}),
        (journal(None), "journald", "", {"unit": "vllm.service", "pid": "12"}),
        ("[pod/llama-0/server] hello", "kubectl", "hello", {"pod": "pod/llama-0", "container": "server"}),
        (f"{STAMP}   File x", "timestamps", "  File x", {}),
        (f"{STAMP}", "timestamps", "", {}),
        ("2026-11-20T09:00:00.12Z hello", "timestamps", "hello", {}),
        ("Apr  4 05:15:44 h ollama[5042]: hello", "syslog", "hello", {"host": "h", "unit": "ollama", "pid": "5042"}),
        ("2026-04-04T05:15:44+0000 h vllm[1]: hello", "syslog", "hello", {"host": "h", "unit": "vllm", "pid": "1"}),
        (f"INFO {STAMP} [resource.labels.containerName: vllm] hello", "cloud", "hello", {"container": "vllm"}),
        ("[1,7]<stderr>: hello", "mpirun", "hello", {"rank": "7", "stream": "stderr"}),
        ("[prterun-host-12@1,0]<stdout>:hello", "mpirun", "hello", {"rank": "0", "stream": "stdout"}),
        ("[default3]:hello", "torchrun", "hello", {"rank": "3"}),
        ("[rank0]:   File x", "torchrun", "  File x", {"rank": "0"}),
        ("(Worker pid=9, ip=10.0.0.1) hello", "ray", "hello", {"process": "Worker", "pid": "9", "ip": "10.0.0.1"}),
        ("(pid=44) hello", "ray", "hello", {"pid": "44"}),
        ("(autoscaler +5m0s) hello", "ray", "hello", {"process": "autoscaler"}),
        ("[36m[1mhello", "residue", "hello", {}),
        ("│ hello     │", "frame", "hello", {}),
        ("vllm-1  | hello", "compose", "hello", {"container": "vllm-1"}),
        ("vllm-1  |", "compose", "", {"container": "vllm-1"}),
        ("engine stderr | hello", "supervisord", "hello", {"container": "engine", "stream": "stderr"}),
        (" 3: hello", "slurm", "hello", {"rank": "3"}),
        ("> hello", "quote", "hello", {}),
    ],
)  # fmt: skip
def test_one_layer_comes_off(line: str, kind: str, text: str, attributes: dict[str, str]) -> None:
    found = last(line)
    assert (found.kind, found.text, dict(found.attributes or {})) == (kind, text, attributes)


@pytest.mark.parametrize(
    "line", ["hello", "foo | bar", "0: first", "> quoted", "2025-07-21T16:05:59.967500Z  INFO x", "(x) y", ""]
)
def test_ordinary_text_has_no_envelope(line: str) -> None:
    assert peel(line, ()) is None


def test_a_kind_that_is_asked_for_is_believed_at_once_and_none_takes_nothing_off() -> None:
    assert peel("vllm | x", (), "compose") is not None
    assert peel(f"{STAMP} stdout F x", (), "none") is None


class TestThroughTheEngine:
    find = contains("boom", severity_min=13)

    @pytest.mark.parametrize(
        "wrap",
        [
            lambda line: line,
            lambda line: f"{STAMP} stdout F {line}",
            lambda line: docker(line + "\n"),
            lambda line: journal(line),
            lambda line: f"[pod/a-0/c] {line}",
            lambda line: f"{STAMP} {line}",
            lambda line: f"vllm-1   | {line}",
            lambda line: f" 12: {line}",
            lambda line: f"[default1]:{line}",
            lambda line: f"[1,1]<stdout>:{line}",
            lambda line: f"(RayWorker pid=7) {line}",
            lambda line: f"INFO {STAMP} [resource.labels.containerName: v] {line}",
            lambda line: f"{STAMP} stderr F vllm-1  | [rank0]: {line}",
            lambda line: docker(f"\u001b[36mvllm\u001b[0m | {line}\r\n"),
            lambda line: f"Nov 20 09:00:00 host vllm[9]: {line}",
        ],
    )
    def test_the_engines_own_line_is_found_inside(self, wrap: object) -> None:
        (found,) = read([self.find], wrap(HEADER + "boom <= 1") + "\n")  # type: ignore[operator]
        record = found.record
        assert (record.body, record.severity_text, record.attributes["process"]) == ("boom <= 1", "WARN", "APIServer")
        assert record.attributes["pid"] == "851"
        assert utc(record.timestamp) == "2026-11-20 09:00:00"
        assert record.time_source == "line"
        assert record.text == HEADER + "boom <= 1"

    def test_an_unstamped_line_takes_the_time_of_its_envelope(self) -> None:
        (found,) = read([contains("boom")], f"{STAMP} stderr F boom\n")
        assert (utc(found.record.timestamp), found.record.time_source) == ("2026-11-20 09:00:00.123", "envelope")
        (found,) = read([contains("boom")], journal("boom", PRIORITY="3") + "\n")
        assert utc(found.record.timestamp) == "2026-11-20 09:01:05.500"
        assert found.record.severity_text == "ERROR"

    def test_the_envelope_completes_the_year_and_the_zone(self) -> None:
        line = f"2023-11-20T09:00:00.5Z stdout F {HEADER.replace('09:00', '10:00')}boom\n"
        (found,) = read([contains("boom")], line)
        assert utc(found.record.timestamp) == "2023-11-20 09:00:00"

    def test_pieces_are_joined_for_each_stream(self) -> None:
        # stdout: "(APIServer ...) WARN" "ING ... bo" "om"     stderr: "half " "whole"
        out = [HEADER[:30], HEADER[30:] + "bo", "om done"]
        text = (
            f"{STAMP} stdout P {out[0]}\n{STAMP} stderr P half \n{STAMP} stdout P {out[1]}\n"
            f"{STAMP} stderr F boom\n{STAMP} stdout F {out[2]}\n{STAMP} stdout F tail boom\n"
        )
        found = read([contains("boom")], text)
        assert [(m.record.body, m.record.line) for m in found] == [("half boom", 2), ("boom done", 1), ("tail boom", 6)]

    def test_docker_pieces_are_joined(self) -> None:
        text = "".join(docker(part) + "\n" for part in (HEADER, "bo", "om\n", "next boom\n"))
        assert [m.record.body for m in read([contains("boom")], text)] == ["boom", "next boom"]

    def test_a_piece_without_its_end_is_taken_at_the_end_of_input(self) -> None:
        assert [m.record.body for m in read([contains("boom")], f"{STAMP} stdout P {HEADER}boom\n")] == ["boom"]

    def test_a_journal_message_of_several_lines_is_one_record(self) -> None:
        message = "Traceback (most recent call last):\n  File x\nValueError: boom"
        (found,) = read([regex("^ValueError: (?P<what>.*)$")], journal(message) + "\n")
        assert found.record.body == message
        assert found.hits[0].fields == {"what": "boom"}

    def test_a_weak_prefix_is_text_until_an_engines_line_follows_it(self) -> None:
        found = read([contains("boom")], "0: boom\nname | boom\n")
        assert [m.record.text for m in found] == ["0: boom", "name | boom"]
        text = f"vllm | {HEADER}x\nvllm | boom\n" + "vllm | filler\n" * 100 + "vllm | boom again\n"
        assert [m.record.text for m in read([contains("boom")], text)] == ["boom", "boom again"]

    def test_a_forged_mark_is_no_envelope(self) -> None:
        (found,) = read(
            [contains("boom")], f"{docker('x' + chr(10))}\n\x021795165265500000\x1fx\x1fF\x1f\x1f\x1f\x1f\x03boom\n"
        )
        assert found.record.text.endswith("boom")
        assert found.record.time_source == "inherited"
