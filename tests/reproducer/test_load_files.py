"""Lengths, users, traces and recordings: what goes in comes out, and a wrong line is named."""

from __future__ import annotations

import itertools
import statistics
from pathlib import Path

import pytest

from reproducer.lengths import TABLES, Lengths
from reproducer.record import Arrival, record, record_asks, recorded
from reproducer.trace import read_trace
from reproducer.users import Ask, Population, Recorded, corpus, read_load, write_load


@pytest.mark.parametrize("table", list(TABLES))
def test_quantiles_rise_and_end_where_the_trace_ends(table: str) -> None:
    whole = Lengths(table, 1, 1, 1 << 30, 1 << 30)
    for draw, values in ((whole.prompt, TABLES[table][0]), (whole.output, TABLES[table][1])):
        drawn = [draw(share / 500) for share in range(500)]
        assert drawn == sorted(drawn)
        assert (draw(0.0), draw(1.0)) == (values[0], values[-1])
        assert draw(0.5) == values[12]


def test_means_are_those_of_the_trace() -> None:
    """Azure conversations of 2023: 1155 tokens in, 211 out, on average; the table keeps both within 5 %."""
    whole = Lengths("azure-conv", 1, 1, 1 << 30, 1 << 30)
    shares = [(i + 0.5) / 2000 for i in range(2000)]
    assert statistics.fmean(map(whole.prompt, shares)) == pytest.approx(1155, rel=0.05)
    assert statistics.fmean(map(whole.output, shares)) == pytest.approx(211, rel=0.05)


def test_a_user_asks_the_same_every_time() -> None:
    people = Population(seed=3)
    first, second = ([ask for ask, _ in zip(people.asks(5), range(9), strict=False)] for _ in range(2))
    assert first == second
    assert all(len(ask.prompt) == ask.prompt_tokens for ask in first)
    assert next(Population(seed=4).asks(5)) != first[0]


def test_a_turn_repeats_the_conversation_before_it() -> None:
    people = Population(Lengths(max_prompt=2000), turns=4, system_tokens=32)
    turns = list(itertools.islice(people.asks(0), 5))
    for before, after in itertools.pairwise(turns[:4]):
        assert after.prompt.startswith(before.prompt)
    assert not turns[4].prompt.startswith(turns[3].prompt), "the fifth begins anew"
    assert turns[4].prompt[:32] == turns[0].prompt[:32], "under the same system text"


def test_a_load_file_comes_back_as_it_was(tmp_path: Path) -> None:
    asks = [Ask(1, 0, 3, 7, b"a\xffz", at=1.5), Ask(2, 1, 2, 4, b"hi")]
    write_load(tmp_path / "load.jsonl", asks)
    assert read_load(tmp_path / "load.jsonl") == asks
    assert Recorded(tuple(asks)).users == 3
    assert Recorded(tuple(asks)).timed


def test_a_wrong_line_of_a_load_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "load.jsonl"
    path.write_text('{"user": 1, "turn": 0, "prompt_tokens": 3, "output_tokens": 7, "prompt": "abc"}\n{"user": 1}\n')
    with pytest.raises(ValueError, match=r"load.jsonl:2: not a recorded request"):
        read_load(path)


@pytest.mark.parametrize(
    "text",
    [
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,1600,44\n2023-11-16 18:15:48.6805900,160,400\n",
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,1600,44,1644,Conversation log\n7,ChatGPT,160,400,560,API log\n",
        '{"timestamp": 1000, "input_length": 1600, "output_length": 44, "hash_ids": [0]}\n'
        '{"timestamp": 3000, "input_length": 160, "output_length": 400, "hash_ids": [0]}\n',
    ],
    ids=["azure", "burstgpt", "mooncake"],
)
def test_public_traces_are_read_by_their_columns(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace"
    path.write_text(text)
    asks = read_trace(path, Population(), speed=2)
    assert [(ask.at, ask.prompt_tokens, ask.output_tokens) for ask in asks] == [(0.0, 100, 11), (1.0, 10, 100)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("when,in,out\n1,2,3\n", ":1: no known columns"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,many,1\n", ":2: not a row of"),
        ('{"timestamp": 1}\n', ":1: not a row of a Mooncake trace"),
    ],
)
def test_a_trace_that_is_none_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_trace(path, Population())


def test_an_access_log_gives_times() -> None:
    lines = [
        '10.0.0.1 - - [20/Nov/2026:10:00:00 +0100] "POST /v1/chat/completions HTTP/1.1" 200 512 "-" "curl"',
        '10.0.0.1 - - [20/Nov/2026:10:00:01 +0100] "GET /health HTTP/1.1" 200 2 "-" "curl"',
        '10.0.0.1 - - [20/Nov/2026:10:00:02 +0100] "POST /v1/completions HTTP/1.1" 503 2 "-" "curl"',
        '[2026-11-20 09:00:03] INFO:     127.0.0.1:8818 - "POST /generate HTTP/1.1" 200 OK',
        '2026-11-20T09:00:04.25Z stdout F INFO:     10.1.1.1:59146 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
        "99/99/9999 nonsense POST",
    ]
    assert [arrival.at for arrival in record(lines, year=2026)] == [1795165200.0, 1795165203.0, 1795165204.25]


# stamped:   10:00:00 stats                10:00:10 stats        10:00:20
# posts:                    P  P                             P      (their lines have no time)
def test_access_lines_without_a_time_lie_between_those_with_one() -> None:
    stats = "INFO 11-20 09:00:{} [loggers.py:257] Engine 000: Avg prompt throughput: 9.0 tokens/s, Avg generation ..."
    post = '(APIServer pid=1) INFO:     127.0.0.1:8818 - "POST /v1/completions HTTP/1.1" 200 OK'
    arrivals = record([stats.format("00"), post, post, stats.format("10"), post, stats.format("20")], year=2026)
    assert [arrival.at - 1795165200 for arrival in arrivals] == [2.5, 7.5, 15.0]


def test_a_request_that_is_told_twice_counts_once() -> None:
    told = (
        "(APIServer pid=1) INFO 11-20 09:00:00 [logger.py:39] Received request cmpl-1: prompt: 'x', params: "
        "SamplingParams(n=1, temperature=0.0, max_tokens=64), prompt_token_ids: [1, 2, 3], lora_request: None."
    )
    post = '(APIServer pid=1) INFO:     127.0.0.1:8818 - "POST /v1/completions HTTP/1.1" 200 OK'
    assert record([told, post, post], year=2026) == [Arrival(1795165200.0, 3, 64)]


def test_iteration_lines_give_arrivals_and_prompt_lengths() -> None:
    line = (
        "[11/20/2026-09:00:35] [TRT-LLM] [I] iter = 400, global_rank = 0, rank = 0, currank_total_requests = 2/2, "
        "host_step_time = 41.20ms, num_scheduled_requests: 30, "
        "states = {'num_ctx_requests': 2, 'num_ctx_tokens': 3000, 'num_generation_tokens': 30}"
    )
    assert record([line, line.replace("2/2", "0/0")], year=2026) == [Arrival(1795165235.0, 1500)] * 2


def test_request_lines_give_everything() -> None:
    line = (
        "(APIServer pid=1) INFO 11-20 09:00:00 [logger.py:39] Received request cmpl-1: prompt: 'x', params: "
        "SamplingParams(n=1, temperature=0.0, max_tokens=64), prompt_token_ids: [1, 2, 3], lora_request: None."
    )
    assert record([line], year=2026) == [Arrival(1795165200.0, 3, 64)]


def test_stats_lines_are_used_only_where_nothing_else_speaks() -> None:
    line = (
        "INFO 11-20 09:00:10 [loggers.py:257] Engine 000: Avg prompt throughput: 1155.0 tokens/s, "
        "Avg generation throughput: 9.0 tokens/s, Running: 1 reqs"
    )
    arrivals = record([line], year=2026)
    assert len(arrivals) == 10
    assert 1795165200 < arrivals[0].at < arrivals[-1].at < 1795165210


def test_metrics_over_time_give_arrivals_and_mean_lengths() -> None:
    page = (
        'vllm:request_success_total{finished_reason="stop"} 0 100.000\n'
        'vllm:request_success_total{finished_reason="stop"} 2 110.000\n'
        'vllm:request_success_total{finished_reason="abort"} 7 110.000\n'
        'vllm:request_success_total{finished_reason="stop"} 0 120.000\n'
        "vllm:prompt_tokens_total 0 100.000\nvllm:prompt_tokens_total 300 110.000\n"
        "vllm:generation_tokens_total 0 100.000\nvllm:generation_tokens_total 50 110.000\n"
    )
    assert recorded(page) == [Arrival(102.5, 150, 25), Arrival(107.5, 150, 25)]


def test_arrivals_become_a_load_with_what_is_missing_drawn() -> None:
    asks = record_asks(
        [Arrival(10.0, 300, 40), Arrival(12.5)], Lengths(prompt_scale=1, output_scale=1, max_prompt=9999)
    )
    assert (asks[0].at, asks[0].prompt_tokens, asks[0].output_tokens) == (0.0, 300, 40)
    assert asks[1].at == 2.5
    assert asks[1].prompt_tokens > 1
    assert all(len(ask.prompt) == ask.prompt_tokens for ask in asks)


def test_the_text_is_plain() -> None:
    assert corpus().decode("ascii").isprintable() is False  # it has lines
    assert set(corpus()) <= {10, *range(32, 127)}
