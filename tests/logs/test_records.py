"""A traceback is one record: bare, chained, with a header on each line, and with others writing in between."""

from __future__ import annotations

import pytest

from agent.logs.records import is_exception_line, starts_group
from tests.logs.helpers import contains, read, read_all, regex, stream, utc

TRACE = """\
Traceback (most recent call last):
  File "/app/executor.py", line 12, in step
    assert total <= budget
           ^^^^^^^^^^^^^^^
AssertionError: total 12 > 4
"""
ANY = contains("AssertionError", "KeyError", "boom")


def bodies(text: str, **options: object) -> list[str]:
    return [matched.record.body for matched in read([ANY], text, **options)]


def prefixed(header: str, text: str) -> str:
    return "".join(f"{header}{line}\n" for line in text.splitlines())


def test_bare() -> None:
    (found,) = read([ANY], "[11/20/2026-09:00:00] [TRT-LLM] [I] up\n" + TRACE + "after\n")
    record = found.record
    assert record.body == TRACE.rstrip()
    assert (record.line, record.severity_text, record.time_source) == (2, "ERROR", "inherited")
    assert utc(record.timestamp) == "2026-11-20 09:00:00"


def test_after_a_header_with_no_header_on_the_other_lines() -> None:
    text = prefixed("[11/20/2026-09:00:00] [TRT-LLM] [RANK 3] [E] ", TRACE.splitlines()[0]) + TRACE.split("\n", 1)[1]
    (found,) = read([ANY], text + "[11/20/2026-09:00:01] [TRT-LLM] [RANK 3] [I] next\n")
    assert found.record.body == TRACE.rstrip()
    assert found.record.attributes["rank"] == "3"


def test_with_the_header_on_every_line() -> None:
    header = "(EngineCore pid=912) ERROR 11-20 09:00:00 [core.py:7] "
    (found,) = read([ANY], prefixed(header, "EngineCore failed\n" + TRACE) + f"{header}next\n")
    assert found.record.body == TRACE.rstrip()
    assert found.record.text.splitlines()[1].startswith(header)
    assert found.record.line == 2


@pytest.mark.parametrize(
    "between",
    [
        "\nDuring handling of the above exception, another exception occurred:\n\n",
        "\nThe above exception was the direct cause of the following exception:\n\n",
    ],
)
@pytest.mark.parametrize("header", ["", "(EngineCore pid=912) ERROR 11-20 09:00:00 [core.py:7] "])
def test_chained(between: str, header: str) -> None:
    chained = TRACE + between + TRACE.replace("AssertionError: total", "RuntimeError: boom")
    (found,) = bodies(prefixed(header, chained) + "after\n")
    assert found == chained.rstrip()


def test_a_blank_line_that_chains_nothing_is_no_part_of_it() -> None:
    assert bodies(TRACE + "\nafter boom\n") == [TRACE.rstrip(), "after boom"]


def test_two_in_a_row_are_two() -> None:
    assert bodies(TRACE + TRACE) == [TRACE.rstrip()] * 2


def test_the_line_of_the_thread_that_died_belongs_to_it() -> None:
    text = "Exception in thread Thread-3 (_event_loop_wrapper):\n" + TRACE
    assert bodies(text + "after\n") == [text.rstrip()]


def test_an_exception_group() -> None:
    text = """\
  + Exception Group Traceback (most recent call last):
  |   File "x.py", line 1, in <module>
  |     raise ExceptionGroup("two", [ValueError(1), KeyError(2)])
  | ExceptionGroup: two (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | ValueError: 1
    +---------------- 2 ----------------
    | KeyError: 2
    +------------------------------------
"""
    assert bodies(text + "after\n") == [text.rstrip()]


def test_a_remote_traceback() -> None:
    text = TRACE + '"""\n\nThe above exception was the direct cause of the following exception:\n\n' + TRACE
    assert bodies(text + "after\n") == [text.rstrip()]


def test_a_header_that_ends_in_the_first_line_of_a_traceback() -> None:
    text = "Scheduler hit an exception: " + TRACE
    assert bodies(text + "after\n") == [text.rstrip()]


def test_two_ranks_line_by_line() -> None:
    # rank 7:  T  F        A
    # rank 5:        T  F     A     each with its header on every line
    lines = TRACE.splitlines()
    order = [(7, 0), (7, 1), (5, 0), (5, 1), (7, 2), (7, 3), (7, 4), (5, 2), (5, 3), (5, 4)]
    text = "".join(f"(Worker rank={rank} pid={rank}) ERROR 11-20 09:00:00 [w.py:1] {lines[n]}\n" for rank, n in order)
    found = read([ANY], text)
    assert [(m.record.body, m.record.attributes["rank"], m.record.line) for m in found] == [
        (TRACE.rstrip(), "7", 1),
        (TRACE.rstrip(), "5", 3),
    ]


def test_a_line_of_another_rank_inside_does_not_end_it() -> None:
    lines = TRACE.splitlines()
    text = (
        f"[11/20/2026-09:00:00] [TRT-LLM] [RANK 7] [E] {lines[0]}\n{lines[1]}\n"
        "[11/20/2026-09:00:00] [TRT-LLM] [RANK 5] [E] boom of rank 5\n" + "\n".join(lines[2:]) + "\n"
    )
    assert bodies(text) == ["boom of rank 5", TRACE.rstrip()]


def test_stdout_does_not_end_a_traceback_on_stderr() -> None:
    stamp = "2026-11-20T09:00:00.123456789Z"
    lines = TRACE.splitlines()
    text = "".join(f"{stamp} stderr F {line}\n{stamp} stdout F boom {n}\n" for n, line in enumerate(lines))
    assert bodies(text) == [f"boom {n}" for n in range(5)] + [TRACE.rstrip()]


def test_a_bare_traceback_survives_a_header_of_its_own_process_in_the_middle() -> None:
    lines = TRACE.splitlines()
    header = "(EngineCore pid=912) INFO 11-20 09:00:00 [core.py:7] "
    text = f"{header}x\n{lines[0]}\n{lines[1]}\n{header}y\n" + "\n".join(lines[2:]) + f"\n{header}z\n"
    assert bodies(text) == [TRACE.rstrip()]


def test_one_that_is_never_finished_is_taken_after_a_while() -> None:
    cut = TRACE.rsplit("\n", 2)[0] + "  # boom\n"
    header = "(EngineCore pid=912) INFO 11-20 09:00:0%d [core.py:7] x\n"
    target = stream([ANY])
    assert target.feed((header % 0 + cut + header % 1).encode()) == []
    (found,) = target.feed((header % 4).encode())
    assert found.record.body.endswith("# boom")


def test_the_last_words_come_with_the_flush() -> None:
    target = stream([ANY])
    assert target.feed(TRACE.encode()) == []
    assert target.is_open
    (found,) = target.flush()
    assert found.record.body == TRACE.rstrip()
    assert not target.is_open


def test_a_runaway_traceback_is_bounded_and_counted() -> None:
    frames = "".join(f"  File {n}\n" for n in range(5000))
    target = stream([contains("Traceback")])
    (found,) = read_all(target, [f"Traceback (most recent call last):\n{frames}ValueError: x\nnext\n".encode()])
    assert found.record.body.count("\n") < 2000
    assert target.cut_lines == 1
    assert (target.lines, target.records) == (5003, 2)


def test_a_quoted_traceback_in_one_line_opens_nothing() -> None:
    assert bodies('request {"text": "Traceback (most recent call last):\\n boom"}\n  indented boom\n') == [
        'request {"text": "Traceback (most recent call last):\\n boom"}',
        "  indented boom",
    ]


def test_a_pattern_may_span_the_lines_of_a_record() -> None:
    (found,) = read([regex(r"(?s)^Traceback.*executor\.py.*^AssertionError: total (?P<total>\d+)")], TRACE)
    assert found.hits[0].fields == {"total": "12"}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("AssertionError", True),
        ("torch.OutOfMemoryError: CUDA out of memory.", True),
        ("KeyboardInterrupt", True),
        ("vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue", True),
        ("ERROR: something", False),
        ("Error: something", False),
        ("INFO:     x", False),
        ("An AssertionError: x", False),
        ("UserWarning: x", False),
        ("", False),
    ],
)
def test_what_is_an_exception_line(line: str, expected: bool) -> None:
    assert is_exception_line(line) is expected


def test_an_exception_line_on_its_own_is_an_error() -> None:
    (found,) = read([contains("AssertionError", severity_min=17)], "AssertionError: total 12 > 4\n")
    assert found.record.severity_text == "ERROR"


def test_starts_group() -> None:
    assert starts_group("Traceback (most recent call last):  ")
    assert starts_group("Exception in thread Thread-1:")
    assert not starts_group('{"exc": "Traceback (most recent call last):\\n"}')
