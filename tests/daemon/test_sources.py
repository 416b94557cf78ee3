"""Sources that are no files, the canary, several servers."""

from __future__ import annotations

import os
import subprocess
import time

from tests.daemon.live import Live, MetricsServer, line, vllm_page


def test_standard_input(live: Live) -> None:
    """``kubectl logs -f pod | wedgewatch run --log -``; what is read last has no end of line."""
    live.start("-c", _stdin(live), stdin=subprocess.PIPE)
    pipe = live.process.stdin
    assert pipe is not None
    pipe.write((line("I", "engine is set up") + line("W", "queue holds 2 requests")).encode())
    pipe.flush()
    live.counts("source_lines_read_total", 2, source="llama")
    pipe.write(line("E", "engine loop died: piped").rstrip("\n").encode())
    pipe.flush()
    alert = live.fires("EngineGone")  # a silence decides the last line
    assert (alert["stages"][2]["file"], alert["stages"][2]["line"]) == ("-", 3)
    pipe.close()
    live.says("standard input has ended")
    assert live.stop() == 0


def _stdin(live: Live) -> str:
    live.configure(servers="servers: [{name: llama, logs: [{stdin: true}]}]\n")
    return str(live.config_file)


def test_the_canary_is_proof_of_life_and_its_cost_is_shown(live: Live, server: MetricsServer) -> None:
    """It is asked when nothing else completes, one at a time; a canary without answer is no fault of the page."""
    live.configure(
        servers=f"servers: [{{name: llama, metrics: {{url: '{server.url}/metrics'}}, "
        f"canary: {{url: '{server.url}', interval: 5s, quiet: 0s, timeout: 1s}}}}]\n"
    )
    live.start()
    shown = live.until("it was answered", lambda: live.api("servers")[0]["canary"]["answered"])
    assert shown == 1
    canary = live.api("servers")[0]["canary"]
    assert (canary["prompt_tokens"], canary["completion_tokens"]) == (2, 1)
    asked = [path for _, path, _, _ in server.asked if path.startswith("/v1/")]
    assert asked == ["/v1/models", "/v1/completions"]
    assert live.stop() == 0


def test_two_servers_are_told_apart(live: Live, server: MetricsServer) -> None:
    """One dies, the other works: one alert, with the right name."""
    other = live.folder / "other.log"
    server.page = vllm_page(running=2, finished=1, tokens=5)
    live.configure(
        servers="servers:\n"
        f"  - {{name: one, logs: [{{path: {live.log}}}]}}\n"
        f"  - {{name: two, logs: [{{path: {other}}}], metrics: {{url: '{server.url}/metrics'}}, labels: {{team: b}}}}\n"
    )
    live.log.touch()
    other.touch()
    live.start()
    live.write(line("I", "engine is set up"), line("W", "queue holds 2 requests"))
    live.write(line("E", "engine loop died: theirs"), path=other)  # half of a fingerprint in each: no alert
    live.counts("source_lines_read_total", 1, source="two")
    live.dies()
    alert = live.fires("EngineGone")
    assert alert["server"] == "one"
    states = {view["name"]: view for view in live.api("servers")}
    assert set(states) == {"one", "two"}
    assert states["two"]["labels"] == {"team": "b"}
    assert live.stop() == 0
    assert {alert["server"] for alert in live.alerts()} == {"one"}


def test_a_server_in_another_time_zone(live: Live) -> None:
    """Stamps without a zone, nine hours ahead: lines written now happen now, and it is said once."""
    live.configure()
    live.log.touch()
    live.start()
    live.dies(moment=time.time() + 9 * 3600)
    alert = live.fires("EngineGone")
    now = time.time()
    assert abs(_seconds(alert["fired_at"]) - now) < 60
    assert live.metric("source_timestamps_adjusted_total", source="llama") == 3
    assert live.stderr.count("9.0 hours ahead of the clock") == 1
    assert live.stop() == 0


def test_its_time_zone_is_configured(live: Live) -> None:
    source = f"{{path: {live.log}, timezone: Asia/Tokyo, poll_interval: 50ms}}"
    live.configure(servers=f"servers: [{{name: llama, logs: [{source}]}}]\n")
    live.log.touch()
    live.start()
    live.dies(moment=time.time() + 9 * 3600)
    alert = live.fires("EngineGone")
    assert abs(_seconds(alert["fired_at"]) - time.time()) < 60
    assert live.metric("source_timestamps_adjusted_total", source="llama") == 0
    assert live.stop() == 0


def test_a_thousand_files(live: Live) -> None:
    """One glob, one thread; each file is read, and a new one is found."""
    logs = live.folder / "logs"
    logs.mkdir()
    for number in range(1000):
        (logs / f"{number}.log").touch()
    live.configure(servers=f"servers: [{{name: llama, logs: [{{path: '{logs}/*.log'}}]}}]\n")
    live.start()
    live.counts("source_files", 1000, source="llama")
    for number in range(0, 1000, 50):
        live.write(line("I", "nothing"), path=logs / f"{number}.log")
    live.write(line("I", "take note of late"), path=logs / "new.log")
    assert os.path.basename(live.fires("Noted")["stages"][0]["file"]) == "new.log"
    live.counts("source_lines_read_total", 21, source="llama")
    assert len([t for t in live.api("health")["threads"] if t["name"].startswith("log ")]) == 1
    assert live.stop() == 0


def _seconds(text: str) -> float:
    from agent.model import parse_rfc3339

    return parse_rfc3339(text)
