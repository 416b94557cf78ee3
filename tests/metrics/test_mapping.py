from __future__ import annotations

import pytest

from agent.metrics.mapping import SignalMapper
from agent.metrics.parse import parse_page
from agent.model import Sample
from agent.rules.model import Dialect, MetricMap, MetricSource
from tests.metrics.dialects import ALL, SGLANG


def look(text: str, mapper: SignalMapper | None = None, *, partial: bool = False) -> list[Sample]:
    mapper = mapper or SignalMapper(ALL)
    data = text.encode()
    return mapper.map(parse_page(data, mapper.wanted(data), partial=partial), server="s", timestamp=100.0)


def one(text: str, **kwargs: bool) -> dict[str, float]:
    (sample,) = look(text, **kwargs)
    assert sample.ok
    assert (sample.timestamp, sample.server, sample.source) == (100.0, "s", "metrics")
    return dict(sample.values)


@pytest.mark.parametrize(
    ("text", "engine"),
    [
        ("vllm:num_requests_running 1\n", "vllm"),
        ('ray_vllm_num_requests_running{engine="0"} 1\n', "vllm"),
        ("sglang_num_running_reqs 1\n", "sglang"),
        ("trtllm:num_requests_running 1\n", "tensorrt_llm"),
        ('nv_trt_llm_request_metrics{request_type="active"} 1\n', "triton"),
        ("\ufeffvllm:num_requests_running 1\n", "vllm"),
        ("# a\n#b\n# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 1\n", "vllm"),
        ('{"vllm:num_requests_running"} 1\n', "vllm"),
        ("process_start_time_seconds 1\n", ""),
        ("myvllm:num_requests_running 1\n", ""),
    ],
)
def test_the_engine_is_recognised_by_its_metrics(text: str, engine: str) -> None:
    mapper = SignalMapper(ALL)
    (sample,) = look(text, mapper)
    assert mapper.engine == engine
    assert ("requests_running" in sample.values) == bool(engine)
    assert sample.values["up"] == 1


def test_of_two_engines_on_a_page_the_one_with_more_signals_is_taken() -> None:
    mapper = SignalMapper(ALL)
    look("sglang:num_queue_reqs 1\nvllm:num_requests_running 1\nvllm:num_requests_waiting 1\n", mapper)
    assert mapper.engine == "vllm"


def test_recognition_survives_a_page_without_the_engine_and_follows_a_new_one() -> None:
    mapper = SignalMapper(ALL)
    look("vllm:num_requests_running 1\n", mapper)
    assert look("python_info 1\n", mapper)[0].values == {"up": 1.0}
    look("sglang:num_running_reqs 1\n", mapper)
    assert mapper.engine == "sglang"


def test_a_given_engine_is_kept() -> None:
    mapper = SignalMapper(ALL, "vllm")
    assert look("sglang:num_running_reqs 1\n", mapper)[0].values == {"up": 1.0}
    assert mapper.engine == "vllm"


def test_an_unknown_engine_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'vlm' is not known, use auto or one of: sglang, tensorrt_llm, triton, vllm"):
        SignalMapper(ALL, "vlm")


def test_sources_are_tried_in_order_and_scaled() -> None:
    assert one("vllm:gpu_cache_usage_perc 0.5\n")["kv_cache_usage_ratio"] == 0.5
    assert one("vllm:gpu_cache_usage_perc 0.5\nvllm:kv_cache_usage_perc 0.7\n")["kv_cache_usage_ratio"] == 0.7
    assert one("trtllm_kv_cache_percent 40\n")["kv_cache_usage_ratio"] == pytest.approx(0.4)


def test_labels_select_add_up_and_exclude() -> None:
    got = one(
        'vllm:request_success_total{finished_reason="stop"} 5\n'
        'vllm:request_success_total{finished_reason="length"} 7\n'
        'vllm:request_success_total{finished_reason="abort"} 100\n'
    )
    assert (got["requests_finished_total"], got["requests_aborted_total"]) == (12, 100)


def test_tritons_one_metric_is_told_apart_by_label() -> None:
    got = one(
        'nv_trt_llm_request_metrics{model="m",request_type="active",version="1"} 9\n'
        'nv_trt_llm_request_metrics{model="m",request_type="waiting",version="1"} 4\n'
        'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max"} 200\n'
        'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used"} 50\n'
        'nv_trt_llm_general_metrics{general_type="iteration_counter"} 77\n'
    )
    assert got == {
        "up": 1,
        "requests_running": 9,
        "requests_waiting": 4,
        "kv_cache_usage_ratio": 0.25,
        "iterations_total": 77,
    }


def test_a_ratio_needs_something_below_it() -> None:
    assert one("sglang:num_used_tokens 5\nsglang:max_total_num_tokens 10\n")["kv_cache_usage_ratio"] == 0.5
    assert "kv_cache_usage_ratio" not in one("sglang:num_used_tokens 5\nsglang:max_total_num_tokens 0\n")
    assert "kv_cache_usage_ratio" not in one("sglang:num_used_tokens 5\n")


def test_a_histogram_whose_name_ends_in_total_is_counted_by_its_count() -> None:
    got = one(
        'vllm:iteration_tokens_total_bucket{le="1"} 3\nvllm:iteration_tokens_total_sum 9000\n'
        "vllm:iteration_tokens_total_count 41\nvllm:iteration_tokens_total_created 1.7e9\n"
    )
    assert got["iterations_total"] == 41


def test_a_counter_is_found_with_and_without_total() -> None:
    assert one("vllm:generation_tokens_total 3\n")["generation_tokens_total"] == 3
    assert one("vllm:generation_tokens 3\n")["generation_tokens_total"] == 3
    assert one("vllm:generation_tokens_created 3\nvllm:num_requests_running 1\n").get("generation_tokens_total") is None


def test_replicas_are_told_apart() -> None:
    text = "".join(
        f'vllm:num_requests_running{{engine="{engine}"}} {engine}\nvllm:num_requests_waiting{{engine="{engine}"}} 0\n'
        for engine in (0, 1, 2, 10)
    )
    samples = look(text)
    assert [(sample.instance, sample.values["requests_running"]) for sample in samples] == [
        ("0", 0),
        ("1", 1),
        ("2", 2),
        ("10", 10),
    ]


def test_what_belongs_to_the_whole_page_goes_to_the_only_replica_or_apart() -> None:
    whole = "sglang:generation_tokens_total 9\n"
    (sample,) = look(f'sglang:num_running_reqs{{dp_rank="0"}} 1\n{whole}')
    assert (sample.instance, sample.values["generation_tokens_total"]) == ("0", 9)
    marks = 'sglang:gen_throughput{dp_rank="0"} 9.5\nsglang:gen_throughput{dp_rank="1"} 8.5\n'
    both = 'sglang:num_running_reqs{dp_rank="0"} 1\nsglang:num_running_reqs{dp_rank="1"} 2\n'
    samples = look(both + marks + whole)
    assert [(sample.instance, sample.values.get("generation_tokens_total")) for sample in samples] == [
        ("", 9),
        ("0", None),
        ("1", None),
    ]


def test_replicas_whose_work_is_counted_together_are_looked_at_as_one() -> None:
    #  each of them would look as if nothing came of its work
    text = (
        'sglang:num_running_reqs{dp_rank="0"} 1\nsglang:num_running_reqs{dp_rank="1"} 2\n'
        'sglang:token_usage{dp_rank="0"} 0.5\nsglang:token_usage{dp_rank="1"} 0.25\n'
        "sglang:generation_tokens_total 9\n"
    )
    (sample,) = look(text)
    assert sample.instance == ""
    assert (sample.values["requests_running"], sample.values["kv_cache_usage_ratio"]) == (3, 0.5)


def test_tensor_parallel_ranks_of_one_replica_are_not_added_up() -> None:
    text = "".join(
        f'sglang:num_running_reqs{{dp_rank="{dp}",tp_rank="{tp}",pp_rank="0"}} {5 + dp}\n'
        for dp in (0, 1)
        for tp in (0, 1, 2, 3)
    )
    assert [(sample.instance, sample.values["requests_running"]) for sample in look(text)] == [("0", 5), ("1", 6)]


def test_models_on_one_page_are_added_up() -> None:
    got = one('vllm:num_requests_running{model_name="a"} 2\nvllm:num_requests_running{model_name="b"} 3\n')
    assert got["requests_running"] == 5


def test_a_series_given_twice_counts_once() -> None:
    assert one('vllm:num_requests_running{a="b"} 2\nvllm:num_requests_running{a="b"} 3\n')["requests_running"] == 2


def test_a_declared_counter_without_series_is_zero() -> None:
    # prometheus_client writes the declaration of a labelled counter before its first event, and no series
    got = one(
        "# TYPE trtllm_request_success counter\n# TYPE trtllm_prefill_batch_tokens histogram\n"
        "trtllm_num_requests_running 3\n"
    )
    assert (got["requests_finished_total"], got["iterations_total"]) == (0, 0)
    assert "requests_finished_total" not in one("trtllm_num_requests_running 3\n")
    assert "requests_waiting" not in one("# TYPE trtllm_num_requests_waiting gauge\ntrtllm_num_requests_running 3\n")


def test_a_counter_that_another_replica_has_is_zero_here() -> None:
    samples = look(
        'vllm:num_requests_running{engine="0"} 1\nvllm:num_requests_running{engine="1"} 1\n'
        'vllm:request_success_total{engine="0",finished_reason="stop"} 4\n'
    )
    assert [sample.values["requests_finished_total"] for sample in samples] == [4, 0]


def test_a_counter_with_only_aborts_has_finished_nothing() -> None:
    assert one('vllm:request_success_total{finished_reason="abort"} 4\n')["requests_finished_total"] == 0


def test_a_gauge_whose_labels_do_not_fit_is_not_seen() -> None:
    assert "sleeping" not in one('vllm:engine_sleep_state{sleep_state="awake"} 1\nvllm:num_requests_running 1\n')
    assert (
        one('vllm:engine_sleep_state{sleep_state="awake"} 0\nvllm:engine_sleep_state{sleep_state="discard_all"} 1\n')[
            "sleeping"
        ]
        == 1
    )


def test_a_family_with_a_lost_line_is_not_summed() -> None:
    # a sum over what is left would look like a restart
    text = (
        'vllm:request_success_total{finished_reason="stop"} 5\nvllm:request_success_total{finished_reason=x} 7\n'
        "vllm:num_requests_running 1\n"
    )
    got = one(text)
    assert "requests_finished_total" not in got
    assert got["requests_running"] == 1


def test_on_a_cut_page_nothing_that_is_absent_is_taken_for_zero() -> None:
    text = "trtllm_num_requests_running 3\n# TYPE trtllm_request_success counter\n"
    assert one(text)["requests_finished_total"] == 0
    got = one(text + 'trtllm_request_success_total{finished_reason="st', partial=True)
    assert got == {"up": 1, "requests_running": 3}


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf"])
def test_what_is_no_measurement_is_not_seen(value: str) -> None:
    got = one(f"vllm:num_requests_running {value}\nvllm:num_requests_waiting 1\n")
    assert got == {"up": 1, "requests_waiting": 1}


def test_the_start_of_the_process_goes_to_every_replica() -> None:
    samples = look(
        "process_start_time_seconds 1700000000\n"
        'vllm:num_requests_running{engine="0"} 1\nvllm:num_requests_running{engine="1"} 1\n'
    )
    assert [sample.values["process_start_time_seconds"] for sample in samples] == [1.7e9, 1.7e9]


def test_up_zero_in_a_file_is_a_failed_look() -> None:
    (sample,) = look("up 0\nvllm:num_requests_running 3\n")
    assert (sample.ok, sample.values) == (False, {})
    assert "up" in sample.error


def test_a_vanished_signal_is_named() -> None:
    mapper = SignalMapper(ALL)
    look("vllm:num_requests_running 1\nvllm:num_requests_waiting 1\n", mapper)
    assert mapper.vanished == frozenset()
    look("vllm:num_requests_running 1\nvllm:requests_waiting_now 1\n", mapper)
    assert mapper.vanished == {"requests_waiting"}


def test_several_instance_labels_make_one_name() -> None:
    metrics = MetricMap("/metrics", ("model", "engine"), {"requests_running": (MetricSource("x_running"),)})
    mapper = SignalMapper({"x": Dialect("x", detect_metrics=("x_",), metrics=metrics)})
    samples = look('x_running{model="b",engine="02"} 1\nx_running{model="a"} 2\n', mapper)
    assert [sample.instance for sample in samples] == ["a", "b/2"]


def test_aggregations() -> None:
    for agg, value in (("sum", 6.0), ("max", 3.0), ("min", 1.0), ("avg", 2.0)):
        source = MetricSource("x_v", agg=agg)  # type: ignore[arg-type]  # a literal by the loop
        mapper = SignalMapper(
            {"x": Dialect("x", detect_metrics=("x_",), metrics=MetricMap(signals={"requests_running": (source,)}))}
        )
        (sample,) = look('x_v{a="1"} 1\nx_v{a="2"} 2\nx_v{a="3"} 3\n', mapper)
        assert sample.values["requests_running"] == value


def test_a_page_parsed_whole_is_mapped_the_same() -> None:
    text = 'vllm:num_requests_running{engine="0"} 4\nother 1\nvllm:request_success_total{engine="0"} 2\n'
    mapper = SignalMapper(ALL)
    assert mapper.map(parse_page(text.encode(), None), server="s", timestamp=100.0) == look(text)


def test_a_dialect_without_metrics_reads_nothing() -> None:
    mapper = SignalMapper({"plain": Dialect("plain"), "sglang": SGLANG})
    assert look("a 1\n", mapper)[0].values == {"up": 1.0}
    assert look("a 1\n", SignalMapper({"plain": Dialect("plain")}, "plain"))[0].values == {"up": 1.0}


def test_a_source_of_several_metrics_adds_those_that_the_page_has() -> None:
    source = MetricSource("x_a", {"kind": "q"}, scale=2.0, plus=("x_b", "x_c{kind=q|r}"))
    dialect = Dialect("x", detect_metrics=("x_",), metrics=MetricMap("/m", ("dp",), {"requests_deferred": (source,)}))
    mapper = SignalMapper({"x": dialect})

    def deferred(text: str, *, partial: bool = False) -> dict[str, float]:
        samples = look(text, mapper, partial=partial)
        return {s.instance: s.values["requests_deferred"] for s in samples if "requests_deferred" in s.values}

    assert deferred('x_a{kind="q"} 1\nx_b 10\nx_c{kind="r"} 100\nx_c{kind="s"} 1000\n') == {"": 222.0}
    assert deferred("x_b 10\n") == {"": 20.0}
    assert deferred('x_a{kind="z"} 1\nx_b 3\n') == {"": 6.0}, "a metric without a fitting series is not in it"
    assert deferred('x_b{dp="0"} 1\nx_b{dp="1"} 2\nx_c{dp="1",kind="q"} 3\n') == {"0": 2.0, "1": 10.0}
    assert deferred("x_other 1\n") == {}
    assert deferred('x_b 10\nx_c{kind="q" 3\n') == {}, "a sum that lost a part would look like a queue that shrank"
