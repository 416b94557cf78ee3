"""Small dialects for the tests of this room; the real ones are data and have tests of their own."""

from __future__ import annotations

from agent.rules.model import Dialect, MetricMap, MetricSource

VLLM = Dialect(
    "vllm",
    detect_metrics=("vllm:",),
    metrics=MetricMap(
        "/metrics",
        ("engine",),
        {
            "requests_running": (MetricSource("vllm:num_requests_running"),),
            "requests_waiting": (MetricSource("vllm:num_requests_waiting"),),
            "kv_cache_usage_ratio": (
                MetricSource("vllm:kv_cache_usage_perc"),
                MetricSource("vllm:gpu_cache_usage_perc"),
            ),
            "requests_finished_total": (MetricSource("vllm:request_success_total", {"finished_reason": "!abort"}),),
            "requests_aborted_total": (MetricSource("vllm:request_success_total", {"finished_reason": "abort"}),),
            "generation_tokens_total": (MetricSource("vllm:generation_tokens"),),
            "iterations_total": (MetricSource("vllm:iteration_tokens_total_count"),),
            "sleeping": (MetricSource("vllm:engine_sleep_state", {"sleep_state": "!awake"}, agg="max"),),
        },
    ),
)

SGLANG = Dialect(
    "sglang",
    detect_metrics=("sglang:",),
    metrics=MetricMap(
        "/metrics",
        ("dp_rank",),
        {
            "requests_running": (MetricSource("sglang:num_running_reqs"),),
            "requests_waiting": (MetricSource("sglang:num_queue_reqs"),),
            "generation_tokens_total": (MetricSource("sglang:generation_tokens_total"),),
            "progress_mark": (MetricSource("sglang:gen_throughput"),),
            "kv_cache_usage_ratio": (
                MetricSource("sglang:token_usage"),
                MetricSource("sglang:num_used_tokens", per="sglang:max_total_num_tokens"),
            ),
        },
    ),
)

TRITON = Dialect(
    "triton",
    detect_metrics=("nv_trt_llm_",),
    metrics=MetricMap(
        "/metrics",
        (),
        {
            "requests_running": (MetricSource("nv_trt_llm_request_metrics", {"request_type": "active"}),),
            "requests_waiting": (MetricSource("nv_trt_llm_request_metrics", {"request_type": "waiting|queued"}),),
            "kv_cache_usage_ratio": (
                MetricSource(
                    "nv_trt_llm_kv_cache_block_metrics",
                    {"kv_cache_block_type": "used"},
                    per="nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=max}",
                ),
            ),
            "iterations_total": (MetricSource("nv_trt_llm_general_metrics", {"general_type": "iteration_counter"}),),
        },
    ),
)

TENSORRT_LLM = Dialect(
    "tensorrt_llm",
    detect_metrics=("trtllm_",),
    metrics=MetricMap(
        "/prometheus/metrics",
        (),
        {
            "requests_running": (MetricSource("trtllm_num_requests_running"),),
            "requests_waiting": (MetricSource("trtllm_num_requests_waiting"),),
            "requests_finished_total": (MetricSource("trtllm_request_success_total"),),
            "iterations_total": (MetricSource("trtllm_prefill_batch_tokens_count"),),
            "kv_cache_usage_ratio": (MetricSource("trtllm_kv_cache_percent", scale=0.01),),
        },
    ),
)

ALL = {dialect.engine: dialect for dialect in (VLLM, SGLANG, TRITON, TENSORRT_LLM)}
