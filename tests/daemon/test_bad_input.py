"""Nothing that a log or a page holds ends the watching; it is counted, and said once."""

from __future__ import annotations

import json
import os

from tests.daemon.live import Live, MetricsServer, line, vllm_page

NOISE = os.urandom(1 << 20).replace(b"\n", b"\0")


def test_hostile_bytes_in_a_log(live: Live) -> None:
    """A binary blob, broken UTF-8, a line of 100 MB, escape codes; then a fault that must still be seen."""
    live.configure()
    live.log.touch()
    live.start()
    with open(live.log, "ab") as log:
        log.write(NOISE + b"\n")
        log.write(b"\xff\xfe broken \xc3\x28 \xe2\x82\n")
        log.write(b"\x1b]0;title\x07\x1b[2J\x1b[31mred\x1b[0m\n")
        for _ in range(100):
            log.write(b"x" * (1 << 20))
        log.write(b"\n")
    live.dies(why="\x1b[2J <script>alert(1)</script> @channel")
    alert = live.fires("EngineGone")
    assert "\x1b" not in json.dumps(alert, ensure_ascii=False)
    assert alert["stages"][2]["line"] == 7
    live.counts("source_lines_dropped_total", 1, source="llama", reason="too_long")
    assert live.metric("source_decode_errors_total", source="llama") >= 1
    health = live.api("health")
    assert all(thread["alive"] and not thread["restarts"] for thread in health["threads"])
    assert health["rss_bytes"] < 140 << 20
    assert live.stop() == 0


def test_pages_that_are_none(live: Live, server: MetricsServer) -> None:
    """HTML, then a server that hangs, then garbage, then it works again; each trouble has its name."""
    servers = f"servers: [{{name: llama, logs: [{{path: {live.log}}}], metrics: {{url: '{server.url}/metrics'}}}}]\n"
    live.configure(servers=servers)
    live.log.touch()
    server.kind, server.page = "text/html", b"<!doctype html><title>Sign in</title><p>please"
    live.start()
    live.counts("scrape_failures_total", 1, server="llama", reason="parse")
    live.says("HTML page")
    seen = live.until("the page says why", lambda: live.api("servers")[0]["scrape_error"])
    assert "HTML" in seen
    assert live.api("servers")[0]["state"] == "unknown"

    server.hang.set()
    live.counts("scrape_failures_total", 2, server="llama", reason="timeout")
    live.write(line("I", "take note of logs"))  # a page that hangs delays no log
    live.fires("Noted")

    server.hang.clear()
    server.kind, server.page = "text/plain", NOISE
    live.counts("scrape_failures_total", 2, server="llama", reason="parse")
    server.page = vllm_page(running=1, finished=5, tokens=50) + b"garbage {{{ here\nvllm:x{ 1\n"
    live.says("can be read again")
    live.until("it is seen", lambda: live.api("servers")[0]["state"] not in ("unknown", "starting"))
    assert live.metric("server_requests_running", server="llama") == 1
    assert live.metric("server_requests_finished_total", server="llama") == 5
    assert len([row for row in live.stderr.splitlines() if "HTML page" in row]) == 1  # once, not at each look
    assert live.stop() == 0


def test_a_log_that_may_not_be_read_or_is_a_folder(live: Live) -> None:
    """It is said once, shown, and mended without a restart."""
    live.configure()
    live.log.mkdir()
    live.start()
    live.says("cannot be read")
    live.until("it is shown", lambda: any("cannot be read" in text for text in live.api("health")["problems"]))
    live.log.rmdir()
    live.log.touch()
    live.says("server.log is read")
    live.dies()
    live.fires("EngineGone")
    live.until("nothing is wrong any more", lambda: not live.api("health")["problems"])
    assert live.stderr.count("cannot be read") == 1
    assert live.stop() == 0
