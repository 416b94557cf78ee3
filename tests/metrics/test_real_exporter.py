"""The page of a real exporter: prometheus_client, which vLLM, SGLang and TensorRT-LLM all use."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, make_wsgi_app

from agent.metrics.fetch import Endpoint
from agent.metrics.mapping import SignalMapper
from agent.metrics.scrape import Scraper
from tests.metrics.dialects import ALL


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def exporter(registry: CollectorRegistry) -> Iterator[str]:
    with make_server("127.0.0.1", 0, make_wsgi_app(registry), handler_class=Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/metrics"
        finally:
            server.shutdown()
            thread.join(10)


def test_from_before_the_first_completion_to_a_restart() -> None:
    registry = CollectorRegistry()
    running = Gauge("vllm:num_requests_running", "running", ["engine"], registry=registry)
    finished = Counter("vllm:request_success", "finished", ["engine", "finished_reason"], registry=registry)
    steps = Histogram("vllm:iteration_tokens_total", "tokens of a step", ["engine"], registry=registry)
    running.labels("0").set(5)
    with exporter(registry) as url:
        one = Scraper(Endpoint(url), SignalMapper(ALL), server="s")
        (before,) = one.scrape(0.0)
        finished.labels("0", "stop").inc(3)
        finished.labels("0", "abort").inc(2)
        steps.labels("0").observe(17)
        (after,) = one.scrape(5.0)
        (again,) = one.scrape(10.0)
    assert before.instance == "0"
    assert before.values == {
        "up": 1,
        "requests_running": 5,
        "requests_finished_total": 0,
        "requests_aborted_total": 0,
        "iterations_total": 0,
    }
    assert after.values == {
        "up": 1,
        "requests_running": 5,
        "requests_finished_total": 3,
        "requests_aborted_total": 2,
        "iterations_total": 1,
    }
    assert (after.repeats, again.repeats) == (0, 1)
    assert one.last is not None
    assert (one.last.bad_lines, one.last.partial) == (0, False)
