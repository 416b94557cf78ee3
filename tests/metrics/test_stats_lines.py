from __future__ import annotations

from collections.abc import Mapping

import pytest

from agent.metrics.stats_lines import MAX_TEXT, StatsReader
from agent.model import LogRecord, Sample
from agent.rules.model import Condition, Dialect, Fact, Matcher, StatsField, StatsLine, ValueTest

VLLM = Dialect(
    "vllm",
    stats=(
        StatsLine(
            "engine-stats",
            Condition(any=(Matcher("contains", "Avg prompt throughput:"),)),
            (
                StatsField("prompt_tokens_per_second", r"Avg prompt throughput: (?P<value>[\d.]+)"),
                StatsField("generation_tokens_per_second", r"Avg generation throughput: (?P<value>[\d.]+)"),
                StatsField("requests_running", r"Running: (?P<value>\d+)"),
                StatsField("requests_waiting", r"(?:Waiting|Pending): (?P<value>\d+)"),
                StatsField("requests_deferred", r"Deferred: (?P<value>\d+)", default=0.0),
                StatsField("kv_cache_usage_ratio", r"KV cache usage: (?P<value>[\d.]+)%", scale=0.01),
            ),
            instance=r"Engine (?P<engine_index>\d+)",
            interval=10.0,
            silent_when_idle=True,
        ),
    ),
    facts=(
        Fact("kv_cache_capacity_tokens", r"KV cache size: (?P<value>[\d,]+) tokens"),
        Fact("max_model_len_tokens", r"max_seq_len=(?P<value>\d+)"),
        Fact("max_batched_tokens", r"max_num_batched_tokens=(?P<value>\d+)"),
    ),
)
SGLANG = Dialect(
    "sglang",
    stats=(
        StatsLine(
            "prefill",
            Condition(any=(Matcher("contains", "Prefill batch"),)),
            (
                StatsField("scheduled_tokens", r"#new-token: (?P<value>\d+)"),
                StatsField("requests_running", r"#running-req: (?P<value>\d+)"),
                StatsField("requests_waiting", r"#(?:queue|grammar)-req: (?P<value>\d+)", sum=True),
            ),
            not_progress=(ValueTest("scheduled_tokens", "<=", 1), ValueTest("requests_running", "==", 0)),
        ),
    ),
)
LINE = (
    "Engine 003: Avg prompt throughput: 900.0 tokens/s, Avg generation throughput: 0.5 tokens/s, Running: 12 reqs, "
    "Waiting: 2 reqs, GPU KV cache usage: 61.0%, Prefix cache hit rate: 41.7%"
)


def record(body: str, *, severity: int = 9, text: str = "", **attributes: str) -> LogRecord:
    return LogRecord(50.0, body, server="s", severity_number=severity, attributes=attributes, text=text or body)


def read(body: str, engine: str = "vllm", **attributes: str) -> list[Sample]:
    return StatsReader({"vllm": VLLM, "sglang": SGLANG}).read(record(body, **attributes), engine)


def values(body: str, engine: str = "vllm") -> Mapping[str, float]:
    (sample,) = read(body, engine)
    return sample.values


def test_a_stats_line_becomes_a_sample_of_its_replica() -> None:
    (sample,) = read(LINE)
    assert (sample.timestamp, sample.server, sample.source, sample.instance) == (50.0, "s", "log", "3")
    assert (sample.origin, sample.probe, sample.ok) == ("engine-stats", False, True)
    assert sample.values == {
        "prompt_tokens_per_second": 900,
        "generation_tokens_per_second": 0.5,
        "requests_running": 12,
        "requests_waiting": 2,
        "requests_deferred": 0,
        "kv_cache_usage_ratio": pytest.approx(0.61),
    }


def test_segments_come_and_go_with_versions() -> None:
    old = (
        "Avg prompt throughput: 1.0 tokens/s, Running: 3 reqs, Swapped: 0 reqs, Pending: 4 reqs, KV cache usage: 5.0%."
    )
    assert values(old)["requests_waiting"] == 4
    new = LINE.replace("Waiting: 2 reqs,", "Waiting: 2 reqs, Deferred: 7 reqs, Preemptions: 1,")
    assert values(new)["requests_deferred"] == 7


def test_the_whole_server_speaks_where_no_replica_is_named() -> None:
    (sample,) = read("8 Engines Aggregated: Avg prompt throughput: 1.0 tokens/s, Running: 3 reqs")
    assert sample.instance == ""
    (sample,) = read("Avg prompt throughput: 1.0 tokens/s", engine_index="07")
    assert sample.instance == "7"


def test_a_health_probe_proves_nothing() -> None:
    line = "Prefill batch, #new-seq: 1, #new-token: {}, token usage: 0.97, #running-req: {}, #queue-req: 5"
    assert read(line.format(1, 0), "sglang")[0].probe
    assert not read(line.format(2, 0), "sglang")[0].probe
    assert not read(line.format(1, 3), "sglang")[0].probe
    assert not read("Prefill batch, #new-token: 1", "sglang")[0].probe  # what is not said is not known


def test_several_matches_are_added_up_where_the_dialect_says_so() -> None:
    assert values("Prefill batch. #queue-req: 5, #grammar-req: 2", "sglang")["requests_waiting"] == 7


def test_facts_of_the_start_block() -> None:
    (sample,) = read("GPU KV cache size: 1,076,224 tokens")
    assert (sample.values, sample.origin) == ({"kv_cache_capacity_tokens": 1076224}, "")
    (sample,) = read("config: max_seq_len=131072, max_num_batched_tokens=8192")
    assert sample.values == {"max_model_len_tokens": 131072, "max_batched_tokens": 8192}


@pytest.mark.parametrize(
    "body",
    [
        "",
        "Received request: Avg prompt throughput: none",
        "Avg prompt throughput: " + "x" * 100_000,
        "nothing of the kind",
    ],
)
def test_lines_without_numbers_give_nothing(body: str) -> None:
    assert read(body) == []


def test_an_unknown_engine_gives_nothing() -> None:
    assert read(LINE, "tgi") == []


def test_only_the_beginning_of_a_huge_record_is_read() -> None:
    assert read("x" * MAX_TEXT + LINE) == []


def one(condition: Condition) -> StatsReader:
    line = StatsLine("n", condition, (StatsField("requests_running", r"run (?P<value>\S+)"),))
    return StatsReader({"e": Dialect("e", stats=(line,))})


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        (Condition(), True),
        (Condition(any=(Matcher("contains", "RUN"),)), False),
        (Condition(any=(Matcher("contains", "RUN", ignore_case=True),)), True),
        (Condition(any=(Matcher("regex", r"^RUN \d", ignore_case=True),)), True),
        (Condition(all=(Matcher("contains", "run"), Matcher("contains", "fast"))), False),
        (Condition(none=(Matcher("regex", r"\d"),)), False),
        (Condition(any=(Matcher("contains", "header"),)), True),
        (Condition(severity_min=9), True),
        (Condition(severity_min=13), False),
        (Condition(severity_max=5), False),
        (Condition(attributes={"rank": ("0", "1")}), True),
        (Condition(attributes={"rank": ("2",)}), False),
        (Condition(attributes={"pid": ("2",)}), False),
    ],
)
def test_conditions_of_a_stats_line(condition: Condition, holds: bool) -> None:
    found = one(condition).read(record("run 5", text="header: run 5", rank="0"), "e")
    assert bool(found) is holds


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("1,234.5", 1234.5),
        ("61%", 61),
        ("1e3", 1000),
        ("nan", None),
        ("inf", None),
        ("five", None),
        ("５", None),
    ],
)
def test_numbers_as_engines_print_them(text: str, value: float | None) -> None:
    found = one(Condition()).read(record(f"run {text}"), "e")
    assert [sample.values["requests_running"] for sample in found] == ([] if value is None else [value])


def test_a_pattern_that_backtracks_for_ever_is_given_up() -> None:
    line = StatsLine(
        "slow", Condition(any=(Matcher("regex", r"^(?:a|a)*b$"),)), (StatsField("requests_running", r"(?P<value>\d)"),)
    )
    assert StatsReader({"e": Dialect("e", stats=(line,))}).read(record("a" * 60 + "5"), "e") == []
    line = StatsLine("slow", Condition(), (StatsField("requests_running", r"(?P<value>(?:1|1)*)x"),))
    assert StatsReader({"e": Dialect("e", stats=(line,))}).read(record("1" * 60), "e") == []
