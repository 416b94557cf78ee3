"""The whole way from bytes to matched records: what comes out, and that nothing about the input can break it."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.logs.engine import LogEngine, Matched
from agent.logs.framing import MAX_LINE
from agent.logs.timestamps import YearReference
from agent.rules.load import load_rules
from agent.rules.model import Condition, Dialect, LineFormat, Matcher
from tests.logs.helpers import DIALECTS, NOVEMBER, contains, engine, read, read_all, regex, stream, utc

# Those that begin at nine o'clock and are named after their engine; the others say when they were written.
CASES = [
    path
    for path in sorted((Path(__file__).parents[1] / "cases").glob("*/server.log"))
    if "\nwritten:" not in path.with_name("expect.yaml").read_text()
]
HEADER = "(APIServer pid=851) {} 11-20 09:00:{:02d} [a.py:1] "


def line(text: str, severity: str = "INFO", second: int = 0) -> str:
    return HEADER.format(severity, second) + text + "\n"


class TestRecords:
    def test_a_header_gives_time_severity_and_attributes(self) -> None:
        (found,) = read([contains("boom")], "(Worker rank=3 pid=7) ERROR 11-20 09:00:05 [w.py:9] boom\n")
        record = found.record
        assert (record.body, record.severity_text, record.severity_number) == ("boom", "ERROR", 17)
        assert utc(record.timestamp) == "2026-11-20 09:00:05"
        assert dict(record.attributes) == {
            "process": "Worker", "rank": "3", "pid": "7", "code": "w.py:9", "format": "tagged",
        }  # fmt: skip
        assert (record.server, record.file, record.line) == ("s", "f.log", 1)
        assert record.text == "(Worker rank=3 pid=7) ERROR 11-20 09:00:05 [w.py:9] boom"

    def test_lines_are_counted_from_the_first(self) -> None:
        found = read([contains("boom")], "x\n" * 99 + "boom\n" + "y\n" * 3000 + "boom\nboom", first_line=10)
        assert [m.record.line for m in found] == [109, 3110, 3111]

    def test_a_line_without_header_inherits_time_and_writer(self) -> None:
        text = line("up", second=7) + "(APIServer pid=9) INFO:     no time\n" + "x\n" * 200 + "boom\n"
        (found,) = read([contains("boom")], text)
        assert utc(found.record.timestamp) == "2026-11-20 09:00:07"
        assert found.record.time_source == "inherited"
        assert found.record.attributes["pid"] == "851"  # of the line that told the time
        assert found.record.severity_number == 0

    def test_without_any_time_it_is_the_moment_of_reading(self) -> None:
        target = stream([contains("boom")])
        (found,) = target.feed(b"boom\n", observed=NOVEMBER + 5)
        assert (found.record.timestamp, found.record.time_source) == (NOVEMBER + 5, "observed")
        assert found.record.observed_timestamp == NOVEMBER + 5
        (found,) = read([contains("boom")], "boom\n")
        assert (found.record.timestamp, found.record.time_source) == (NOVEMBER, "observed")

    def test_the_clock_is_the_newest_time_seen_also_where_nothing_matched(self) -> None:
        target = stream([contains("boom")])
        target.feed("".join(line("x", second=n) for n in range(3)).encode())
        assert (utc(target.first_timestamp), utc(target.clock)) == ("2026-11-20 09:00:00", "2026-11-20 09:00:02")
        target.feed((line("x", second=40) + "no time\n" * 500).encode())
        assert utc(target.clock) == "2026-11-20 09:00:40"
        target.feed((line("x", second=9)).encode())
        assert utc(target.clock) == "2026-11-20 09:00:40"

    def test_json_lines(self) -> None:
        item = {
            "asctime": "2026-11-20 09:00:01,250",
            "levelname": "ERROR",
            "message": 'say "boom" <now>',
            "exc_info": None,
        }
        (found,) = read([contains('"boom"')], json.dumps(item) + "\n", engine="vllm")
        assert (found.record.body, found.record.severity_text) == ('say "boom" <now>', "ERROR")
        assert utc(found.record.timestamp) == "2026-11-20 09:00:01.250"

    def test_a_json_escape_far_into_the_log_is_seen(self) -> None:
        plain, item = '{"message": "x"}\n', {"message": "tab\tboom", "exc_info": "Traceback\nValueError: late"}
        found = read([contains("tab\tboom"), regex("^ValueError: (?P<w>.*)")], plain * 100 + json.dumps(item) + "\n")
        assert [(m.record.line, [h.fields for h in m.hits]) for m in found] == [(101, [{}, {"w": "late"}])]

    def test_json_that_is_none_is_text(self) -> None:
        assert [m.record.body for m in read([contains("boom")], '{"boom\n{"other": "boom"}\n[1]\n')] == [
            '{"boom', '{"other": "boom"}',
        ]  # fmt: skip


class TestConditions:
    def found(self, condition: Condition, text: str, **options: Any) -> list[int]:
        return [m.record.line for m in read([condition], text, **options)]

    def test_any_all_none(self) -> None:
        text = "red green\nred\ngreen\nred green blue\n"
        red, green, blue = (Matcher("contains", word) for word in ("red", "green", "blue"))
        assert self.found(Condition(any=(red, green)), text) == [1, 2, 3, 4]
        assert self.found(Condition(all=(red, green)), text) == [1, 4]
        assert self.found(Condition(any=(red,), all=(green,), none=(blue,)), text) == [1]

    def test_severity_range(self) -> None:
        text = line("boom", "INFO") + line("boom", "WARNING") + line("boom", "ERROR") + "boom\n"
        assert self.found(contains("boom", severity_min=13), text) == [2, 3]
        assert self.found(contains("boom", severity_min=13, severity_max=13), text) == [2]
        assert self.found(contains("boom"), text) == [1, 2, 3, 4]

    def test_attributes(self) -> None:
        text = (
            "".join(f"(Worker rank={rank} pid=7) ERROR 11-20 09:00:05 [w.py:9] boom\n" for rank in range(4)) + "boom\n"
        )
        assert self.found(contains("boom", attributes={"rank": ("1", "3")}), text) == [2, 4, 5]
        assert self.found(contains("boom", attributes={"none": ("1",)}), text) == []

    def test_a_condition_without_text_is_tried_on_every_line(self) -> None:
        target = stream([Condition(severity_min=17)])
        assert [m.record.line for m in read_all(target, [(line("a") + line("b", "ERROR")).encode() * 200])] == [
            2 * n for n in range(1, 201)
        ]
        assert engine([Condition(severity_min=17)]).tried_on_every_line == 1
        assert "tried on every line" in engine([Condition(severity_min=17)]).describe()

    def test_an_empty_condition_never_holds(self) -> None:
        assert self.found(Condition(), "x\n") == []
        assert self.found(Condition(none=(Matcher("contains", "x"),)), "x\ny\n") == [2]

    def test_the_body_first_then_the_header(self) -> None:
        (found,) = read([regex(r"pid=(?P<pid>\d+)")], line("child pid=7 died"))
        assert found.hits[0].fields == {"pid": "7"}
        (found,) = read([regex(r"pid=(?P<pid>\d+)")], line("x"))
        assert found.hits[0].fields == {"pid": "851"}

    def test_anchors_are_of_the_body(self) -> None:
        assert self.found(regex("^boom$"), line("boom") + line("a boom") + "boom\n" + line("boom!")) == [1, 3]

    def test_fields_of_every_pattern_that_was_found(self) -> None:
        condition = Condition(
            any=(
                Matcher("contains", "tokens"),
                Matcher("regex", r"total (?P<total>\d+)"),
                Matcher("regex", r"x(?P<no>\d)?y"),
            ),
            all=(Matcher("regex", r"max (?P<max>\d+)"),),
        )
        (found,) = read([condition], "tokens xy total 12 max 4\n")
        assert found.hits[0].fields == {"total": "12", "max": "4"}

    def test_ignore_case_is_ascii(self) -> None:
        condition = Condition(any=(Matcher("contains", "Größe K", ignore_case=True),))
        assert self.found(condition, "GRößE k\nGRÖSSE K\ngröße \u212a\n") == [1]

    def test_each_index_of_an_equal_condition_is_hit(self) -> None:
        (found,) = read([contains("boom"), contains("zzz"), contains("boom")], "boom\n")
        assert [hit.condition for hit in found.hits] == [0, 2]

    def test_characters_beyond_ascii_count_as_one(self) -> None:
        assert self.found(regex("^a.b$"), "a日b\na日日b\naéb\n") == [1, 3]


class TestQuotedText:
    def test_what_a_user_wrote_is_not_the_engine_speaking(self) -> None:
        text = line("Received request cmpl-1: prompt: 'ERROR boom'", "ERROR")
        assert read([contains("boom"), regex("ERROR.boom")], text) == []

    def test_what_the_engine_says_before_it_counts(self) -> None:
        (found,) = read([contains("boom"), contains("Received request"), regex(r"\[a\.py:(?P<n>\d)\]")],
                        line("Received request cmpl-1: prompt: 'boom'"))  # fmt: skip
        assert [hit.condition for hit in found.hits] == [1, 2]

    def test_the_words_of_one_engine_do_not_silence_another(self) -> None:
        text = "[11/20/2026-09:00:00] [TRT-LLM] [E] Received request: boom\n"
        assert len(read([contains("boom")], text)) == 1
        assert read([contains("boom")], "Received request: boom\n", engine="vllm") == []
        assert read([contains("boom")], "Received request: boom\n") == []


class TestDialect:
    def test_is_recognised_by_its_lines(self) -> None:
        target = stream([contains("boom")])
        target.feed(b"hello\n")
        assert target.dialect is None
        target.feed(line("x").encode())
        assert target.dialect == "vllm"

    def test_is_recognised_far_into_a_log(self) -> None:
        target = stream([contains("boom")])
        found = read_all(target, [b"hello\n" * 5000 + (line("x") + line("boom", "ERROR")).encode() * 2])
        assert target.dialect == "vllm"
        assert [m.record.body for m in found] == ["boom", "boom"]

    def test_is_taken_as_given(self) -> None:
        target = stream([contains("boom")], engine="tensorrt_llm")
        target.feed(line("x").encode())
        assert target.dialect == "tensorrt_llm"

    def test_lines_of_another_engine_are_still_read(self) -> None:
        text = "[11/20/2026-09:00:00] [TRT-LLM] [I] up\n" * 3 + line("boom", "ERROR", 9)
        (found,) = read([contains("boom")], text)
        assert (found.record.severity_text, found.record.body) == ("ERROR", "boom")

    def test_a_condition_that_only_recognises_is_not_sought_any_more_once_known(self) -> None:
        detect = DIALECTS["vllm"].detect_lines[0]
        found = read([detect, contains("boom")], line("x") + line("y") + line("boom"))
        assert [[hit.condition for hit in m.hits] for m in found] == [[0], [1]]

    def test_an_unknown_dialect_reads_all_formats(self) -> None:
        (found,) = read([contains("boom")], line("boom", "ERROR"), engine="unheard_of")
        assert found.record.severity_text == "ERROR"

    def test_faulty_formats_and_patterns_are_named_and_the_rest_works(self) -> None:
        bad = Dialect("bad", formats=(LineFormat("a", "(", ""), LineFormat("b", "x", "%Q"), LineFormat("c")))
        made = LogEngine(
            [regex("("), contains("boom")], {**DIALECTS, "bad": bad}, year_reference=YearReference(NOVEMBER)
        )
        assert [str(fault.message).split(":")[0] for fault in made.faults] == [
            "pattern '(' is not used", "format a", "format b", "format c",
        ]  # fmt: skip
        found = read_all(made.stream(server="s", file="f"), [line("boom").encode()])
        assert [hit.condition for hit in found[0].hits] == [1]

    def test_an_unknown_envelope_is_refused(self) -> None:
        with pytest.raises(ValueError, match="envelope 'paper' is unknown"):
            engine([]).stream(server="s", file="f", envelope="paper")


class TestBadInput:
    find = contains("boom")

    def test_a_line_of_100_mb(self) -> None:
        target = stream([self.find])
        found: list[Matched] = []
        chunk = b"x" * (1 << 20)
        begin = target.feed(b"boom ")
        for _ in range(100):
            found += target.feed(chunk)
        found += target.feed(b" boom\nboom after\n")
        assert begin == []
        assert [(len(m.record.body), m.record.line) for m in found] == [(MAX_LINE, 1), (10, 2)]
        assert (target.cut_lines, target.lines) == (1, 2)
        assert target.bytes == (100 << 20) + 22

    def test_a_long_line_costs_the_same_in_one_piece(self) -> None:
        data = b"boom " + b"x" * (3 << 20) + b"\nboom\n"
        whole, cut = stream([self.find]), stream([self.find])
        assert read_all(whole, [data]) == read_all(cut, [data[: 2 << 20], data[2 << 20 :]])
        assert whole.cut_lines == cut.cut_lines == 1

    def test_a_line_of_exactly_the_limit_is_whole(self) -> None:
        target = stream([self.find])
        (found,) = read_all(target, [b"boom" + b"x" * (MAX_LINE - 4) + b"\n"])
        assert (len(found.record.body), target.cut_lines) == (MAX_LINE, 0)

    def test_a_binary_blob(self) -> None:
        blob = bytes(range(256)) * 4000
        target = stream([self.find])
        (found,) = read_all(target, [blob + b"\nboom\n"])
        assert found.record.body == "boom"
        assert target.decode_errors > 0

    def test_invalid_utf8_is_replaced_and_counted(self) -> None:
        target = stream([self.find])
        found = read_all(target, [b"boom \xff\xfe\nboom \xe6\x97\nfine boom\n"])
        assert [m.record.body for m in found] == ["boom \ufffd\ufffd", "boom \ufffd", "fine boom"]
        assert target.decode_errors == 2

    def test_half_a_character_at_a_border(self) -> None:
        data = "größe 日本 boom\n".encode()
        for cut in range(len(data)):
            target = stream([self.find])
            (found,) = read_all(target, [data[:cut], data[cut:]])
            assert found.record.body == "größe 日本 boom"
            assert target.decode_errors == 0

    def test_nuls_and_a_byte_order_mark(self) -> None:
        assert [m.record.body for m in read([self.find], b"\xef\xbb\xbf" + line("boom").encode())] == ["boom"]
        assert [m.record.body for m in read([self.find], b"\x00" * 5000 + line("b\x00oom").encode())] == ["boom"]

    def test_an_empty_input(self) -> None:
        target = stream([self.find])
        assert read_all(target, [b"", b""]) == []
        assert (target.lines, target.bytes, target.clock) == (0, 0, None)

    def test_a_last_line_without_its_end_waits_and_is_decided_by_the_flush(self) -> None:
        target = stream([self.find])
        assert target.feed(b"boo") == []
        assert target.feed(b"m") == []
        assert [m.record.body for m in target.flush()] == ["boom"]
        assert target.flush() == []

    @settings(max_examples=60, deadline=None)
    @given(st.binary(max_size=400))
    def test_any_bytes_are_survived(self, data: bytes) -> None:
        target = stream([self.find, Condition(severity_min=1)])
        read_all(target, [data])
        assert target.bytes == len(data)


class TestSlowPatterns:
    EVIL = regex("(a|aa)+$")
    TEXT = "a" * 60 + "!\n"

    def test_it_is_stopped_named_and_set_aside_and_the_others_go_on(self) -> None:
        made = engine([self.EVIL, contains("!")])
        target = made.stream(server="s", file="f")
        begin = time.process_time()
        found = target.feed(self.TEXT.encode() * 50)
        assert [len(m.hits) for m in found] == [1] * 50
        assert time.process_time() - begin < 3.0  # three time limits of 50 ms, not fifty
        assert made.timeouts == 3
        assert [fault.message for fault in made.faults] == ["pattern '(a|aa)+$' is set aside: it took too long 3 times"]

    def test_a_pattern_only_regex_understands_works(self) -> None:
        made = engine([regex(r"^\p{Lu}+$")])
        assert made.tried_on_every_line == 1
        found = read_all(made.stream(server="s", file="f"), [b"UP\nDown\n\nx\n"])
        assert [m.record.body for m in found] == ["UP"]

    def test_look_around_and_back_references_are_verified(self) -> None:
        found = read([regex(r"(?<!no )boom(?!er)"), regex(r"(?P<w>\w+) (?P=w)")], "boom\nno boom\nboomer\nthe the\n")
        assert [(m.record.line, m.hits[0].condition) for m in found] == [(1, 0), (4, 1)]


def compact(found: list[Matched]) -> list[tuple[Any, ...]]:
    return [(m.record, [(h.condition, dict(h.fields)) for h in m.hits]) for m in found]


MIXED = [
    line("x").encode(),
    line("boom", "ERROR", 3).encode(),
    b"plain boom\n",
    b"Traceback (most recent call last):\n",
    b'  File "a.py", line 1\n',
    b"ValueError: boom\n",
    b"\n",
    b"During handling of the above exception, another exception occurred:\n",
    line("Traceback (most recent call last):", "ERROR", 4).encode(),
    line("  File x", "ERROR", 4).encode(),
    line("KeyError: 1", "ERROR", 4).encode(),
    b"(Worker rank=1 pid=2) ERROR 11-20 09:00:09 [w.py:1] boom\n",
    b"2026-11-20T09:00:07.1Z stderr P half a bo\n",
    b"2026-11-20T09:00:08.1Z stderr F om\n",
    json.dumps({"log": "boom\n", "stream": "stdout", "time": "2026-11-20T09:00:06.1Z"}).encode() + b"\n",
    b"\xff\xfe boom\r\n",
    "日本 boom\n".encode(),
    b"10%\r20% boom\r\n",
]
SOUGHT = [contains("boom"), regex(r"^(?P<kind>\w+)Error", severity_min=17), contains("File", "half")]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(MIXED), max_size=25).map(b"".join),
    st.lists(st.integers(0, 1500), max_size=6),
    st.integers(0, 80),
)
def test_the_result_does_not_depend_on_how_the_bytes_are_cut(data: bytes, cuts: list[int], filler: int) -> None:
    data = line("up").encode() + b"filler\n" * filler + data  # past the lines that are all decoded, or not
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    pieces = [data[a:b] for a, b in pairwise(places)]
    whole, cut = stream(SOUGHT), stream(SOUGHT)
    assert compact(read_all(whole, [data])) == compact(read_all(cut, pieces))
    assert (whole.lines, whole.records, whole.bytes) == (cut.lines, cut.records, cut.bytes)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(MIXED), max_size=20).map(b"".join), st.integers(0, 1500))
def test_a_stream_goes_on_from_its_snapshot(data: bytes, cut: int) -> None:
    cut %= len(data) + 1
    made = engine(SOUGHT)
    first, second, whole = (made.stream(server="s", file="f") for _ in range(3))
    before = first.feed(data[:cut])
    second.restore(json.loads(json.dumps(first.snapshot())))
    after = second.feed(data[cut:]) + second.flush()
    assert compact(before + after) == compact(read_all(whole, [data]))
    assert second.snapshot() == whole.snapshot()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(MIXED), max_size=25).map(b"".join))
def test_every_scan_engine_gives_the_same_records(data: bytes) -> None:
    results = [compact(read(SOUGHT, b"filler\n" * 70 + data, matcher=name)) for name in ("hyperscan", "re2", "python")]
    assert results[0] == results[1] == results[2]


ORACLE_LINES = [
    "CUDA out of memory", "total_num_tokens (12) should be less", "Waiting: 77 reqs, Running: 4 reqs",
    "watchdog CAUGHT it", "größe 日本", "nothing", "", "a.b", "aéb", "Error in event loop: x",
    "INFO:     GET /health 200",
]  # fmt: skip
ORACLE_PATTERNS = [
    Matcher("contains", "out of memory"), Matcher("contains", "WATCHDOG", ignore_case=True),
    Matcher("contains", "größe"), Matcher("regex", r"total_num_tokens (?:\((?P<t>\d+)\) )?should"),
    Matcher("regex", r"^Error in (?P<where>.*):"), Matcher("regex", r"Waiting: (?P<w>\d+) reqs(?=, Running)"),
    Matcher("regex", r"a.b"), Matcher("regex", r"(?i)\bhealth\b"),
    Matcher("regex", r"[^\x00-\x7f]{2}"), Matcher("regex", r"(\w)\1"),
]  # fmt: skip


def naive(text: str) -> list[tuple[int, int, dict[str, str]]]:
    """The loop everybody writes first: each pattern on each line."""
    out = []
    for number, row in enumerate(text.split("\n")[:-1], 1):
        for index, matcher in enumerate(ORACLE_PATTERNS):
            pattern = re.escape(matcher.pattern) if matcher.kind == "contains" else matcher.pattern
            flags = re.ASCII | re.MULTILINE | (re.IGNORECASE if matcher.ignore_case else 0)
            body = re.sub(r"^\(\w+ pid=\d+\) [A-Z]+ [\d-]+ [\d:]+ \[[^\]]*\] ?|^[A-Z]+: {2,9}", "", row)
            match = re.search(pattern, body, flags) or re.search(pattern, row, flags)
            if match:
                out.append((number, index, {k: v for k, v in match.groupdict().items() if v is not None}))
    return out


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(ORACLE_LINES), st.booleans()), max_size=40), st.booleans())
def test_the_engine_finds_what_a_naive_loop_finds(rows: list[tuple[str, bool]], known: bool) -> None:
    text = "".join((line(row) if headed else row + "\n") for row, headed in rows)
    text = ("ordinary\n" * 70 if known else "") + text
    found = read([Condition(any=(matcher,)) for matcher in ORACLE_PATTERNS], text)
    assert [(m.record.line, h.condition, dict(h.fields)) for m in found for h in m.hits] == naive(text)


class TestRotation:
    def test_lines_count_anew_in_a_new_file(self) -> None:
        target = stream([contains("boom")])
        target.feed(b"x\nboom\n")
        target.restart_lines("g.log")
        (found,) = target.feed(b"boom\n")
        assert (found.record.file, found.record.line) == ("g.log", 1)


@pytest.fixture(scope="module")
def bundled() -> LogEngine:
    ruleset, _ = load_rules([], bundled=True)
    conditions = [
        stage.condition for rule in ruleset.rules if rule.fingerprint is not None for stage in rule.fingerprint.stages
    ]
    conditions += [stats.condition for dialect in ruleset.dialects.values() for stats in dialect.stats]
    conditions += [item.condition for dialect in ruleset.dialects.values() for item in dialect.lifecycle]
    return LogEngine(conditions, ruleset.dialects, year_reference=YearReference(NOVEMBER))


class TestBundledDialects:
    def test_compile_without_faults_and_never_need_every_line(self, bundled: LogEngine) -> None:
        assert bundled.faults == []
        assert bundled.tried_on_every_line == 0

    @pytest.mark.parametrize("path", CASES, ids=lambda path: path.parent.name)
    def test_every_case_is_recognised_and_decoded(self, path: Path, bundled: LogEngine) -> None:
        target = bundled.stream(server="s", file=str(path))
        found = read_all(target, [path.read_bytes()])
        expected = {"trtllm": "tensorrt_llm", "hostile": "vllm"}
        prefix = path.parent.name.split("-")[0]
        assert target.dialect == expected.get(prefix, prefix)
        assert utc(target.first_timestamp) == "2026-11-20 09:00:00"
        assert target.clock is not None
        assert found
        assert all(m.record.time_source in ("line", "inherited") for m in found)
        assert all(m.record.timestamp <= target.clock for m in found)

    @pytest.mark.parametrize("path", CASES, ids=lambda path: path.parent.name)
    def test_a_case_in_a_container_says_the_same(self, path: Path, bundled: LogEngine) -> None:
        data = path.read_text()
        plain = read_all(bundled.stream(server="s", file="f"), [data.encode()])
        wrapped = "".join(
            json.dumps({"log": row + "\n", "stream": "stdout", "time": "2026-11-20T09:00:00.0Z"}) + "\n"
            for row in data.splitlines()
        )
        inside = read_all(bundled.stream(server="s", file="f"), [wrapped.encode()])
        assert [_without_time(m) for m in inside] == [_without_time(m) for m in plain]

    def test_the_hostile_log_speaks_for_itself_only(self, bundled: LogEngine) -> None:
        (path,) = (case for case in CASES if case.parent.name == "hostile-log-text")
        for found in read_all(bundled.stream(server="s", file="f"), [path.read_bytes()]):
            if found.record.body.startswith("Received request"):
                assert all("budget" not in hit.fields for hit in found.hits)


def _without_time(found: Matched) -> tuple[Any, ...]:
    record = replace(found.record, timestamp=0.0, attributes={}, time_source="line")
    return record, [(hit.condition, dict(hit.fields)) for hit in found.hits]


def test_each_input_may_have_its_own_zone() -> None:
    made = engine([contains("boom")])
    times = []
    for zone in (None, ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")):
        target = made.stream(server="s", file="f", timezone=zone)
        times += [utc(m.record.timestamp) for m in read_all(target, [line("boom").encode()])]
    assert times == ["2026-11-20 09:00:00", "2026-11-20 08:00:00", "2026-11-20 14:00:00"]


@pytest.mark.parametrize("name", ["raw", "docker_json", "json", "cri"])
def test_envelopes_by_the_names_of_a_configuration(name: str) -> None:
    assert len(read([contains("boom")], "boom\n", envelope=name)) == 1
