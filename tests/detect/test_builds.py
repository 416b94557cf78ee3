"""What counts as another deployment, from lines and from the labels of metrics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.detect.builds import Builds
from agent.logs.timestamps import YearReference
from agent.metrics.mapping import SignalMapper
from agent.metrics.parse import parse_page
from agent.pipeline import Pipeline, ServerSpec
from agent.rules.cached import load_rules_cached
from agent.rules.model import RuleSet

HOUR = 3600.0


@pytest.fixture(scope="module")
def ruleset(tmp_path_factory: pytest.TempPathFactory) -> RuleSet:
    return load_rules_cached(cache_dir=tmp_path_factory.mktemp("cache"))[0]


def test_another_text_is_a_change_and_a_rollback_is_one_too() -> None:
    builds = Builds()
    said = [("1.0", 0), ("1.0", HOUR), ("1.1", 2 * HOUR), ("1.1", 3 * HOUR), ("1.0", 4 * HOUR)]
    assert [builds.see("version", text, at) for text, at in said] == [False, False, True, False, True]
    assert not builds.see("flags", "--x", 5 * HOUR), "the first word of another kind is none"


def test_processes_of_one_start_may_say_different_things() -> None:
    #  rank 0 and rank 1 at 0 s, again at an hour, then both with other flags
    builds = Builds()
    assert not any(builds.see("flags", f"rank={rank}", 2.0 * rank) for rank in range(4))
    assert not any(builds.see("flags", f"rank={rank}", HOUR + rank) for rank in range(4))
    assert [builds.see("flags", f"x rank={rank}", 2 * HOUR + rank) for rank in range(4)] == [True, False, False, False]


def test_what_was_said_survives_a_restart_of_the_daemon_and_is_not_written_down() -> None:
    builds, again = Builds(), Builds()
    builds.see("flags", "--api-key hunter2", 0.0)
    written = json.dumps(builds.snapshot())
    assert "hunter2" not in written
    again.restore(json.loads(written))
    assert again.see("flags", "--api-key hunter3", HOUR)
    again.restore({})
    assert not again.see("flags", "--other", HOUR)


START = {
    "vllm": (
        "INFO 06-21 {time} [api_server.py:1289] vLLM API server version {version}",
        "INFO 06-21 {time} [utils.py:233] non-default args: {{'model': 'm', 'max_num_seqs': {flag}}}",
    ),
    "sglang": ("[2026-06-21 {time}] server_args=ServerArgs(model_path='{version}', random_seed={seed}, tp={flag})",),
    "tensorrt_llm": ("[06/21/2026-{time}] [TRT-LLM] [I] TensorRT-LLM version: {version}",),
}


@pytest.mark.parametrize("engine", START)
def test_start_lines_of_engines_tell_of_deployments(ruleset: RuleSet, engine: str, tmp_path: Path) -> None:
    #  start   the same again   another version
    starts = [("10:00:00", "1.0", 1), ("12:00:00", "1.0", 2), ("14:00:00", "1.1", 3)]
    pipeline = Pipeline(
        ruleset, [ServerSpec("s", engine)], year_reference=YearReference(1_781_000_000.0), cache_dir=tmp_path
    )
    stream = pipeline.stream("s", "s.log")
    for time, version, seed in starts:
        for line in START[engine]:
            text = line.format(time=time, version=version, seed=seed, flag=8)
            for matched in stream.feed(text.encode() + b"\n"):
                pipeline.on_matched(matched, stream.dialect)
    for matched in stream.flush():
        pipeline.on_matched(matched, stream.dialect)
    assert len(pipeline.detectors["s"].ledger.points()["changes"]) == 1


def test_labels_of_an_info_metric_tell_of_a_deployment(ruleset: RuleSet, tmp_path: Path) -> None:
    pipeline = Pipeline(
        ruleset, [ServerSpec("s", "vllm")], year_reference=YearReference(1_781_000_000.0), cache_dir=tmp_path
    )
    mapper = SignalMapper(ruleset.dialects)
    for at, blocks, prefix in ((0.0, 1000, "True"), (HOUR, 1002, "True"), (2 * HOUR, 1001, "False")):
        page = (
            "# TYPE vllm:cache_config_info gauge\n"
            f'vllm:cache_config_info{{engine="0",num_gpu_blocks="{blocks}",enable_prefix_caching="{prefix}"}} 1\n'
            'vllm:num_requests_running{engine="0"} 0\n'
        ).encode()
        parsed = parse_page(page, mapper.wanted(page))
        for sample in mapper.map(parsed, server="s", timestamp=1_781_000_000.0 + at):
            pipeline.on_sample(sample, mapper.engine)
    assert [at for (at,) in pipeline.detectors["s"].ledger.points()["changes"]] == [1_781_000_000.0 + 2 * HOUR]
