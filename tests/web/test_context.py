"""Log lines around the evidence."""

from __future__ import annotations

from agent.model import StageEvidence
from agent.web.context import lines_around

LOG = [f"09:00:{number % 60:02} INFO line {number}" for number in range(1, 401)]


def stage(name: str, number: int, body: str = "", at: float | None = None) -> StageEvidence:
    return StageEvidence(
        name, float(number) if at is None else at, body or f"line {number}", "server.log", number, "ERROR"
    )


def around(*stages: StageEvidence, text: str = "\n".join(LOG)) -> list[tuple[int, str, str]]:
    return [(line.line, line.text[14:], line.stage) for line in lines_around(stages, lambda _: text, before=2, after=1)]


def test_a_line_with_its_neighbours() -> None:
    assert around(stage("symptom", 399)) == [
        (397, "line 397", ""),
        (398, "line 398", ""),
        (399, "line 399", "symptom"),
        (400, "line 400", ""),
    ]


def test_pieces_far_apart_have_a_gap_and_near_ones_are_one() -> None:
    """
    log   1 . . . . 100(pressure) . . . 200(symptom) 201(end) . .
    shown          98..101     ...    198..202
    """
    shown = around(stage("pressure", 100), stage("symptom", 200), stage("end", 201))
    assert [number for number, _, _ in shown] == [98, 99, 100, 101, 0, 198, 199, 200, 201, 202]
    assert [name for _, _, name in shown if name] == ["pressure", "symptom", "end"]


def test_the_end_of_a_log_keeps_its_numbers() -> None:
    assert around(stage("symptom", 390), text="\n".join(LOG[380:]))[2] == (390, "line 390", "symptom")


def test_the_same_text_twice_is_found_where_it_came_last() -> None:
    text = "\n".join(["boom", "a", "boom", "b"])
    lines = lines_around([stage("symptom", 3, "boom")], lambda _: text, before=0, after=0)
    assert [(line.line, line.text) for line in lines] == [(3, "boom")]


def test_a_traceback_is_found_by_its_first_line() -> None:
    body = "Traceback (most recent call last):\n  File x\nAssertionError: y"
    lines = lines_around([stage("symptom", 7, body)], lambda _: f"09:00 {body}\nend", before=0, after=3)
    assert [line.text for line in lines][:2] == ["09:00 Traceback (most recent call last):", "  File x"]


def test_a_traceback_is_shown_to_its_last_line() -> None:
    body = "\n".join(["Traceback (most recent call last):", *(f"  File {n}" for n in range(15)), "AssertionError: y"])
    lines = lines_around([stage("symptom", 1, body)], lambda _: f"{body}\nend\nof\nlog", before=0, after=1)
    assert [line.text for line in lines][-2:] == ["AssertionError: y", "end"]


def test_of_tracebacks_that_begin_alike_the_one_that_was_meant_is_found() -> None:
    head = "Traceback (most recent call last):"
    body = f"{head}\n  File x\nAssertionError: y"
    text = "\n".join([body, "I say", f"E {head}", "  File z", "ValueError: later"])
    lines = lines_around([stage("symptom", 1, body)], lambda _: text, before=0, after=0)
    assert [(line.line, line.text) for line in lines] == [(1, head), (2, "  File x"), (3, "AssertionError: y")]


def test_what_is_older_than_the_capture_or_gone_is_left_out() -> None:
    assert around(stage("start", 5), text="\n".join(LOG[100:])) == []
    assert around(stage("start", 5), text="") == []
    assert around(StageEvidence("start", 1.0, "  ", "server.log", 1)) == []


def test_it_is_bounded() -> None:
    stages = [stage(f"s{number}", number) for number in range(1, 400)]
    lines = lines_around(stages, lambda _: "\n".join(line + "x" * 9000 for line in LOG))
    assert len(lines) == 240
    assert max(len(line.text) for line in lines) <= 2000
