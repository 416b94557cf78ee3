from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.metrics.fetch import FetchError
from agent.metrics.trtllm_json import IterationReader
from agent.model import Sample


def record(iteration: int, **more: Any) -> dict[str, Any]:
    batch = {
        "numScheduledRequests": more.pop("scheduled", 2),
        "numContextRequests": 1,
        "numGenRequests": more.pop("generating", 1),
        "numCtxTokens": more.pop("context", 100),
        "avgNumDecodedTokensPerIter": more.pop("decoded", 1.0),
        "numPausedRequests": 0,
        "microBatchId": 0,
    }
    return {
        "iter": iteration,
        "timestamp": "11-20-2026 09:00:00.000001",
        "numActiveRequests": 2,
        "numQueuedRequests": 7,
        "numCompletedRequests": 1,
        "maxNumActiveRequests": 64,
        "maxNumTokensRuntime": 4096,
        "kvCacheStats": {"maxNumBlocks": 200, "usedNumBlocks": 50, "freeNumBlocks": 150, "tokensPerBlock": 32},
        "inflightBatchingStats": batch,
        **more,
    }


def read(reader: IterationReader, *records: object, at: float = 0.0) -> list[Sample]:
    return reader.read(json.dumps(records).encode(), server="s", timestamp=at)


def test_records_are_added_up_over_readings() -> None:
    reader = IterationReader()
    (sample,) = read(reader, record(1), record(2, generating=4, decoded=2.0))
    assert sample.values == {
        "up": 1,
        "requests_running": 2,
        "requests_waiting": 7,
        "max_batched_tokens": 4096,
        "max_running_requests": 64,
        "scheduled_requests": 2,
        "scheduled_tokens": 104,
        "kv_cache_usage_ratio": 0.25,
        "kv_cache_capacity_tokens": 6400,
        "requests_finished_total": 2,
        "iterations_total": 2,
        "prompt_tokens_total": 200,
        "generation_tokens_total": 9,
    }
    (sample,) = read(reader, record(3), at=5.0)
    assert (sample.timestamp, sample.values["requests_finished_total"]) == (5.0, 3)


def test_an_empty_answer_keeps_the_gauges_and_moves_nothing() -> None:
    reader = IterationReader()
    (before,) = read(reader, record(1))
    (after,) = read(reader)
    assert after.values == before.values


def test_before_the_first_record_only_the_page_is_known() -> None:
    (sample,) = read(IterationReader())
    assert sample.values == {"up": 1}


def test_a_spinning_loop_is_no_work() -> None:
    #  a record each pass, nothing scheduled: the wedge's own shape
    reader = IterationReader()
    (before,) = read(reader, record(1))
    (after,) = read(reader, *(record(n, scheduled=0, generating=0, context=0, numCompletedRequests=0) for n in (2, 3)))
    for counter in ("iterations_total", "requests_finished_total", "prompt_tokens_total", "generation_tokens_total"):
        assert after.values[counter] == before.values[counter]
    assert after.values["requests_running"] == 2


def test_a_restart_is_a_counter_reset() -> None:
    reader = IterationReader()
    read(reader, record(100), record(101))
    (sample,) = read(reader, record(1))
    assert sample.values["requests_finished_total"] == 1


def test_ranks_are_told_apart_once_there_are_several() -> None:
    reader = IterationReader()
    assert [sample.instance for sample in read(reader, record(1, rank=0))] == [""]
    samples = read(reader, record(2, rank=0), record(2, rank=1))
    assert [(sample.instance, sample.values["requests_finished_total"]) for sample in samples] == [("0", 2), ("1", 1)]


@pytest.mark.parametrize("body", [b"", b"<html>", b"{}", b'"x"', b"[" * 100_000, b"\xff\xfe"])
def test_what_is_no_list_of_records_is_refused(body: bytes) -> None:
    with pytest.raises(FetchError) as caught:
        IterationReader().read(body, server="s", timestamp=0.0)
    assert caught.value.reason == "parse"


VALUES = st.none() | st.booleans() | st.text(max_size=3) | st.floats() | st.integers(-(10**400), 10**400)
RECORDS = st.dictionaries(
    st.sampled_from(
        ("iter", "numActiveRequests", "numCompletedRequests", "rank", "kvCacheStats", "inflightBatchingStats")
    ),
    VALUES | st.dictionaries(st.sampled_from(("maxNumBlocks", "usedNumBlocks", "numCtxTokens")), VALUES),
)


@given(st.lists(RECORDS | VALUES, max_size=4))
def test_no_record_makes_it_raise(records: list[object]) -> None:
    for sample in read(IterationReader(), *records):
        assert all(value - value == 0 for value in sample.values.values())
