"""What the daemon says of itself, on a live one."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from tests.daemon.live import RULES, Live, MetricsServer, vllm_page


@pytest.mark.peer
def test_promtool_finds_nothing_to_say(live: Live, server: MetricsServer) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed (apt-get install prometheus)")
    server.page = vllm_page(running=2, waiting=1, finished=3, tokens=70)
    servers = f"servers: [{{name: llama, logs: [{{path: {live.log}}}], metrics: {{url: '{server.url}/metrics'}}}}]\n"
    live.configure(servers=servers)
    live.log.touch()
    live.start()
    live.dies()
    live.fires("EngineGone")
    live.counts("scrapes_total", 2, server="llama")
    page = live.get("/metrics")
    checked = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")
    for name, labels in {
        "rule_matches_total": {"rule": "EngineGone", "stage": "symptom"},
        "incidents_open": {"rule": "EngineGone", "severity": "critical"},
        "source_lines_read_total": {"source": "llama"},
        "scrape_last_success_timestamp_seconds": {"server": "llama"},
        "state_db_size_bytes": {},
        "config_hash": {},
        "config_last_reload_successful": {},
        "thread_up": {"thread": "scrape llama"},
        "incident_detection_delay_seconds_count": {},
    }.items():
        assert live.metric(name, **labels) > 0, name
    assert live.metric("server_requests_waiting", server="llama") == 1
    assert live.metric("server_progress", server="llama") == 1  # one state holds
    # Series that are known in advance exist before anything happens, so that a first increase is seen.
    for known in (
        b'scrape_failures_total{reason="tls",server="llama"} 0',
        b'incidents_total{confidence="confirmed",rule="',
    ):
        assert known in page
    assert live.stop() == 0


def test_a_rule_of_another_engine_takes_no_credit_for_its_name(live: Live, server: MetricsServer) -> None:
    """Packs of several engines call a rule alike; only that of the watched engine was matched."""
    both = RULES.replace("failure: engine_dead\n", "failure: engine_dead\n    engines: [vllm]\n", 1)
    stranger = both.partition("rules:\n")[2].partition("  - alert: Noted")[0].replace("[vllm]", "[sglang]")
    server.page = vllm_page(running=2, waiting=1, finished=3, tokens=70)
    logs, metrics = f"[{{path: {live.log}}}]", f"{{url: '{server.url}/metrics'}}"
    servers = f"servers: [{{name: llama, engine: vllm, logs: {logs}, metrics: {metrics}}}]\n"
    live.configure(servers=servers, rules=both + stranger)
    live.log.touch()
    live.start()
    live.dies()
    live.fires("EngineGone")
    seen = {tuple(r["engines"]): r for r in json.loads(live.get("/api/v1/rules")) if r["name"] == "EngineGone"}
    ours, others = seen[("vllm",)], seen[("sglang",)]
    assert (ours["fired"], ours["last_match"] is None) == (1, False)
    assert (others["fired"], others["last_match"], others["last_fired"]) == (0, None, None)
    assert [stage["count"] for stage in others["stages"]] == [0, 0, 0]
    assert live.stop() == 0
