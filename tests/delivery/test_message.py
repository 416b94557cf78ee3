"""What a person reads: the first sixty characters, the numbers, the lines, how it gets shorter; and in a terminal."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys

import pytest

from agent.model import Checklist, ProgressSummary, StageEvidence
from integrations.base import ReceiverOptions
from integrations.limits import Text
from integrations.message import LEVELS, build, clock, fit, safe_url, shorten
from integrations.plain import render_plain
from integrations.series import sparks
from integrations.terminal import TerminalConfig, TerminalReceiver, render_terminal
from integrations.text import clip_middle, duration, head_and_tail, number
from integrations.wording import group_headline, headline
from tests.delivery.build import T, alert, notification, resolved

EXPECTED = """\
[FIRING] trtllm-0: scheduler deadlocked, no completions for 2m10s (214 waiting)

The scheduler's loop ended

Verdict      token-budget deadlock (confirmed)
Severity     critical
Server       trtllm-0, tensorrt_llm, prod-eu1
Since        01:37:48 UTC
Queue        214 waiting / 64 running (was 3 waiting)
Completions  0/min (was 31/min)
Tokens       0/s (was 4.1k/s)

waiting  ▁▁▂▃▃▄▅▆▆▇██  3 -> 29   -4m50s .. now

Evidence
  01:35:42 INFO  max_num_tokens=8192 max_batch_size=64  server.log:10412
  01:37:31 WARN  214 requests waiting  server.log:11877
  01:37:48 ERROR AssertionError: total_num_tokens (9001) should be less than or equal to max_num_tokens (8192)  (x3)  server.log:11902

Checks
  [yes] completions stopped while the queue is not empty
  [yes] onset follows load, not a restart or a change of configuration: rate 1.9x over 5m; no restart for 6h12m
  [not run] a smaller budget survives the same load

Not this: overload (would still finish slowly)

Do now
  1. Keep evidence: py-spy dump --pid 1
  2. Restart the pod

Runbook: https://example.com/runbooks/x

key wedgewatch/prod-eu1/trtllm-0/fp
"""  # noqa: E501


def test_the_whole_message() -> None:
    assert render_plain(build(notification())) == EXPECTED


# -- the headline -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "trtllm-0: scheduler deadlocked, no completions for 2m10s (214 waiting)"),
        ({"progress": ProgressSummary()}, "trtllm-0: scheduler deadlocked, no completions for 2m10s"),
        ({"failure": "silent_stall"}, "trtllm-0: stalled, no cause logged, no completions for 2m10s (214 waiting)"),
        ({"failure": "engine_dead"}, "trtllm-0: engine dead for 2m10s (214 waiting)"),
        ({"failure": "assertion_recovered"}, "trtllm-0: assertion, recovered, 2m10s ago (214 waiting)"),
        ({"failure": "users_own_failure"}, "trtllm-0: users own failure for 2m10s (214 waiting)"),
        ({"labels": {"engine_index": "3"}}, "trtllm-0 replica 3: scheduler deadlocked for 2m10s (214 waiting)"),
        ({"labels": {"rank": "1"}}, "trtllm-0 rank 1: scheduler deadlocked for 2m10s (214 waiting)"),
    ],
)
def test_what_where_how_long(changes: dict[str, object], line: str) -> None:
    assert headline(alert(**changes), T) == line
    assert " for 2m10s" in line[: Text.TITLE_HEAD] or " ago" in line[: Text.TITLE_HEAD]


def test_a_long_name_keeps_both_ends() -> None:
    line = headline(alert("llama-3-70b-instruct-deployment-6d8f7b9c4-x2x9z"), T)
    assert line.startswith("llama-3-70b-instr…6d8f7b9c4-x2x9z: scheduler deadlocked") or "…" in line
    assert "for 2m10s" in line[: Text.TITLE_HEAD]
    assert "x2x9z" in line


def test_resolved() -> None:
    over = resolved(alert(), T + 720)
    assert headline(over, T + 9999) == "trtllm-0: recovered after 14m10s, was scheduler deadlocked"
    message = build(notification(over, action="resolve", now=T + 720))
    names = {fact.name: fact.value for fact in message.facts}
    assert message.state == "RESOLVED"
    assert names["Lasted"] == "14m10s"
    assert message.checks == message.actions == ()
    told = resolved(alert(context={"recovered_by": "restart seen", "requests_hit": 214}), T + 720)
    assert {"Recovered by", "Requests hit"} <= {fact.name for fact in build(notification(told)).facts}


def test_several_servers_in_one_line() -> None:
    three = [alert(name) for name in "cab"]
    assert group_headline(three, T, 8) == "3 of 8 servers: scheduler deadlocked for 2m10s: a, b, c"
    assert group_headline(three, T) == "3 servers: scheduler deadlocked for 2m10s: a, b, c"
    mixed = [*three, resolved(alert("d"), T), alert("e", failure="overload", severity="warning")]
    assert group_headline(mixed, T) == "4 servers: 4 alerts, scheduler deadlocked for 2m10s (1 recovered): a, b, c, e"
    assert group_headline([resolved(item, T) for item in three], T).startswith("3 servers: recovered after 2m10s")
    assert len(group_headline([alert(f"server-{i:04d}") for i in range(500)], T)) <= Text.TITLE


# -- parts --------------------------------------------------------------------------------------------------------


def test_the_states() -> None:
    for action, state in (("open", "FIRING"), ("update", "UPDATE"), ("repeat", "STILL FIRING")):
        assert build(notification(action=action)).state == state
    assert build(notification(test=True)).state == "TEST FIRING"


def test_notes_about_the_message_itself() -> None:
    message = build(
        notification(delayed=6720.0, uncertain=True, notes=("flapping: 4 times in 42m",), others=tuple("abcdefg"))
    )
    assert message.notes == (
        "flapping: 4 times in 42m",
        "delayed 1h52m: this receiver could not be reached before",
        "may be a repeat: an earlier attempt was cut off before its answer",
        "also open: a, b, c, d, e and 2 more",
    )


def test_a_long_traceback_keeps_its_beginning_and_its_end() -> None:
    frames = "\n".join(f'  File "x.py", line {i}, in f' for i in range(60))
    line = StageEvidence(
        "symptom", T, f"Traceback (most recent call last):\n{frames}\nTheError: the end", "a/b/server.log", 7, "ERROR"
    )
    (shown,) = build(notification(alert(stages=(line,)))).evidence
    assert shown.text.startswith("Traceback (most recent call last):")
    assert shown.text.endswith("TheError: the end")
    assert "… 55 lines …" in shown.text
    assert shown.place == "server.log:7"


def test_checks_say_what_they_rest_on() -> None:
    checks = build(notification(alert(checklist=Checklist("no", "no: restarted 40 s before", "yes: at 0.75")))).checks
    assert [(check.mark, check.text.partition(": ")[2]) for check in checks] == [
        ("no", ""), ("no", "restarted 40 s before"), ("yes", "at 0.75"),
    ]  # fmt: skip
    odd = build(notification(alert(checklist=Checklist("yes", "perhaps", "")))).checks
    assert [check.mark for check in odd] == ["yes", "unknown", "unknown"]


def test_courses_of_counters_are_rates_and_a_reset_is_no_negative_rate() -> None:
    points = [[T + 10 * i, float(v)] for i, v in enumerate([0, 10, 20, 30, 0, 10, 20])]
    (spark,) = sparks({"requests_finished_total": points})
    assert spark.text == "60/min -> 60/min"
    assert sparks({"requests_waiting": [[T, 1]], "unknown": points, "kv_cache_usage_ratio": "x"}) == ()
    assert sparks(None) == ()


@pytest.mark.parametrize(
    ("url", "safe"),
    [
        ("https://example.com/a?b=c#d", "https://example.com/a?b=c#d"),
        ("http://10.0.0.1:3000/d/x", "http://10.0.0.1:3000/d/x"),
        ("javascript:alert(1)", ""),
        ("https://", ""),
        ("https://e.example/<x>", ""),
        ("https://e.example/a b", ""),
        ("https://e.example/|x", ""),
        ("https://user:pw@e.example/", ""),
        ("https://e.example/?token=abc", ""),
        ("https://e.example/" + "x" * 3000, ""),
        ("https://[::1", ""),
        ("https://ä.example/", ""),
    ],
)
def test_only_safe_links(url: str, safe: str) -> None:
    assert safe_url(url) == safe


def test_it_gets_shorter_step_by_step() -> None:
    message = build(notification())
    assert [line.severity for line in shorten(message, 1).evidence] == ["WARN", "ERROR"]
    assert len(shorten(message, 3).evidence) == 2
    assert shorten(message, 4).sparks == ()
    assert shorten(message, 5).evidence == ()
    last = shorten(message, LEVELS - 1)
    assert (last.facts, last.actions, last.links[0].text) == ((), (), "Runbook")
    assert last.title == message.title
    tried: list[str] = []
    fit(message, render_plain, lambda text: tried.append(text) or False)  # type: ignore[func-returns-value]
    assert [len(text) for text in tried] == sorted((len(text) for text in tried), reverse=True)


def test_templates_have_their_values_and_failures_their_note() -> None:
    given = ReceiverOptions(title="{{ what }} on {{ servers }} x{{ count }}", text="{{ fields.total }}{{ before.x }}")
    message = build(notification(alert("b"), alert("a")), given)
    assert message.title == "scheduler deadlocked on a, b x2"
    assert message.summary == "n/an/a"
    empty = build(notification(), ReceiverOptions(title="{{ rank }}", text="{{ engine_index }}"))
    assert empty.title == headline(alert(), T)
    assert "template gave nothing" in empty.notes[-1]


def test_an_empty_notification_is_no_crash() -> None:
    assert build(notification(*(), alerts=())).state == "CHANGE"


# -- words --------------------------------------------------------------------------------------------------------


def test_durations_and_numbers() -> None:
    spans = (0.2, 0.9996, 4.23, 9.96, 59.6, 130, 3599.6, 6720, 273600, -1, float("nan"))
    assert [duration(s) for s in spans] == [
        "200ms",
        "1s",
        "4.2s",
        "10s",
        "1m",
        "2m10s",
        "1h",
        "1h52m",
        "3d4h",
        "0ms",
        "?",
    ]
    values = (0, 31, 4120, 99950, 0.123, 1.5, 12345678, -5, float("inf"), 1e33)
    assert [number(v) for v in values] == ["0", "31", "4.1k", "100k", "0.12", "1.5", "12.3M", "-5", "?", "1e+33"]
    assert clock(T) == "01:39:58 UTC"
    assert clock(T, now=T + 86400) == "2026-12-01 01:39:58 UTC"
    assert clock(1e300) == "?"
    assert clip_middle("abcdefghij", 5) == "ab…ij"
    assert head_and_tail("x" * 500, 100).startswith("x" * 20)


# -- terminal -----------------------------------------------------------------------------------------------------


def test_in_a_terminal_every_line_fits() -> None:
    wide = alert(annotations={"summary": "漢字" * 60}, labels={"model": "模型" * 30})
    for width in (40, 60, 80, 100):
        from integrations.terminal import visible_width

        text = render_terminal(wide, color=False, width=width)
        too_long = [line for line in text.split("\n") if visible_width(line) > width and "http" not in line]
        assert too_long == []


def test_no_colour_is_needed_to_understand_it() -> None:
    text = render_terminal(alert(), color=False, width=100)
    assert "\x1b" not in text
    assert text.startswith("[FIRING] trtllm-0: scheduler deadlocked, no completions for 2m10s")
    painted = render_terminal(alert(), color=True, width=100)
    assert "\x1b[1;37;41m FIRING \x1b[0m" in painted
    assert "\x1b[30;42m RESOLVED" in render_terminal(resolved(alert(), T + 5), color=True, width=100)
    pending = render_terminal(alert(state="pending", fired_at=None), color=False, width=100)
    assert pending.startswith("[PENDING]")


def test_yesterdays_log_is_reckoned_from_its_own_time() -> None:
    text = render_terminal(alert(), color=False, width=100)
    assert "for 2m10s" in text
    assert "for 2m40s" in render_terminal(alert(), color=False, width=100, now=T + 30)


def test_the_receiver_prints_and_survives_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    assert TerminalReceiver(TerminalConfig(), stream).notify(notification()).kind == "success"
    assert stream.getvalue().startswith("[FIRING]")
    ascii_only = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    assert TerminalReceiver(TerminalConfig(), ascii_only).notify(notification()).kind == "success"
    closed = io.StringIO()
    closed.close()
    assert TerminalReceiver(TerminalConfig(), closed).notify(notification()).kind == "retry"


@pytest.mark.parametrize(
    ("environment", "painted"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colours_only_on_a_real_terminal(environment: dict[str, str], painted: bool) -> None:
    code = (
        "from tests.delivery.build import notification\n"
        "from integrations.terminal import *\n"
        "TerminalReceiver(TerminalConfig(stream='stdout')).notify(notification())"
    )
    clean = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "TERM")}
    leader, follower = pty.openpty()
    with os.fdopen(leader, "rb", buffering=0) as out:
        child = subprocess.Popen(
            [sys.executable, "-c", code], stdout=follower, env={**clean, "TERM": "xterm", **environment}
        )
        os.close(follower)
        seen = b""
        try:
            while part := out.read(65536):
                seen += part
        except OSError:
            pass  # a terminal whose other side is closed gives EIO
        child.wait(20)
    assert b"scheduler deadlocked" in seen
    assert (b"\x1b[" in seen) is painted
    piped = subprocess.run([sys.executable, "-c", code], capture_output=True, env=clean, timeout=30, check=True)
    assert b"\x1b[" not in piped.stdout
