"""Which name a stall gets when several rules explain it, and that it keeps it."""

from __future__ import annotations

import json

from agent.authoring.testing import run_case
from agent.detect.server import ServerDetector
from agent.model import Alert, LogRecord
from tests.packs.corpus import loaded

HEAD = """\
(EngineCore_DP0 pid=912) INFO 11-20 09:00:00 [core.py:78] Initializing a V1 LLM engine (v0.11.0) with config: model='m', max_seq_len=131072
(APIServer pid=851) INFO:     Application startup complete.
(APIServer pid=851) INFO 11-20 09:02:00 [loggers.py:257] Engine 000: Avg prompt throughput: 900.0 tokens/s, Avg generation throughput: 800.0 tokens/s, Running: 40 reqs, Waiting: 4 reqs, GPU KV cache usage: 97.0%, Prefix cache hit rate: 41.7%
"""  # noqa: E501  # lines as the engine writes them
WAIT = (
    "(EngineCore_DP0 pid=912) INFO 11-20 09:0{}:04 [shm_broadcast.py:466] No available shared memory broadcast block"
    " found in 60 seconds. This typically happens when some processes are hanging\n"
)
SERIES = {
    'vllm:num_requests_running{engine="0"}': "40x80",
    'vllm:num_requests_waiting{engine="0"}': "4x80",
    'vllm:kv_cache_usage_perc{engine="0"}': "0.7+0.012x22 0.97x57",
    'vllm:generation_tokens_total{engine="0"}': "9000+900x22 28800x57",
    'vllm:request_success_total{engine="0",finished_reason="stop"}': "100+2x22 144x57",
}


def _fired(log: str) -> list[Alert]:
    alerts = run_case(
        loaded().ruleset,
        log=log,
        metrics=SERIES,
        engine="vllm",
        start="2026-11-20T09:00:20Z",
        until="2026-11-20T09:06:00Z",
    )
    return [alert for alert in alerts if alert.state == "firing" and alert.severity == "critical"]


#  09:02:10          09:02:40                     09:03:04        09:04:04
#  last token        page: the cache is full      wait line       second wait line: the device is named
def test_lines_that_tell_the_cause_replace_what_the_signals_alone_suggest() -> None:
    names = [alert.failure for alert in _fired(HEAD + WAIT.format(3) + WAIT.format(4) + WAIT.format(5))]
    assert names[0] == "kv_cache_deadlock"
    assert names[-1] == "device_hang"


def test_without_such_lines_the_name_stays() -> None:
    fired = _fired(HEAD)
    assert {alert.failure for alert in fired} == {"kv_cache_deadlock"}
    assert len({alert.fingerprint for alert in fired}) == 1


def test_rules_of_one_name_in_several_packs_keep_their_own_evidence_over_a_restart() -> None:
    rules = loaded().ruleset.rules
    index = next(i for i, rule in enumerate(rules) if rule.alert == "DeviceHang" and "vllm" in rule.engines)
    detector = ServerDetector("server", rules, engine="vllm")
    for minute in range(2):
        record = LogRecord(1_796_000_000.0 + 60 * minute, "No available block found in 60 seconds.")
        detector.on_stages(record, {index: {0: {"seconds": "60"}}})
    after = ServerDetector("server", rules, engine="vllm")
    after.restore(json.loads(json.dumps(detector.snapshot())))
    assert json.loads(json.dumps(after.snapshot())) == json.loads(json.dumps(detector.snapshot()))
    assert [alert.alertname for alert in detector.open_alerts()] == ["DeviceHang"]
