"""What is older than we are never pages; what is written now does."""

from __future__ import annotations

import json
import time

from tests.daemon.live import Live, MetricsServer, line, until
from tests.fakes.server import FakeService

ROUTED = """\
route: {receiver: all, group_wait: 0s, group_interval: 1s}
receivers: [{name: all, webhook_configs: [{url: "%s/hook"}]}]
"""


def test_history_read_from_the_start_does_not_page(live: Live) -> None:
    """::

    -1 h: I W E        | we start, read from the beginning |    now: take note
    """
    with FakeService() as receiver:
        servers = (
            f"servers: [{{name: llama, logs: [{{path: {live.log}, start_at: beginning, poll_interval: 50ms}}]}}]\n"
        )
        live.configure(ROUTED % receiver.url, servers=servers)
        live.dies(moment=time.time() - 3600)
        live.start()
        alert = live.fires("EngineGone")
        live.write(line("I", "take note of today"))
        until("the warning of now arrives", lambda: "Noted" in json.dumps(receiver.bodies))
        assert live.stop() == 0
        assert "EngineGone" not in json.dumps(receiver.bodies)
        assert alert["fired_at"] < alert["detected_at"]


def test_without_from_start_the_past_is_not_read(live: Live) -> None:
    live.configure()
    live.dies(moment=time.time() - 3600)
    live.start()
    live.write(line("I", "take note of today"))
    live.fires("Noted")
    assert live.stop() == 0
    assert {alert["alertname"] for alert in live.alerts()} == {"Noted"}
    assert live.alerts()[0]["stages"][0]["line"] == 4


def test_a_server_that_is_found_dead_pages_though_its_log_is_old(live: Live) -> None:
    """Its last words are history, but our own look finds that nobody answers::

    -1 h: I W E        | we start, read from the beginning | its metrics: connection refused
             probable                                        confirmed
    """
    with MetricsServer() as gone:
        url = gone.url
    with FakeService() as receiver:
        metrics = f"metrics: {{url: '{url}/metrics'}}"
        servers = f"servers: [{{name: llama, logs: [{{path: {live.log}, start_at: beginning}}], {metrics}}}]\n"
        live.configure(ROUTED % receiver.url, servers=servers)
        live.dies(moment=time.time() - 3600)
        live.start()
        until("it arrives", lambda: "EngineGone" in json.dumps(receiver.bodies), about=lambda: live.stderr)
        assert live.fires("EngineGone")["confidence"] == "confirmed"
        assert live.stop() == 0
