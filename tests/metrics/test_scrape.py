from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Callable

import pytest

from agent.metrics import scrape as module
from agent.metrics.fetch import Endpoint
from agent.metrics.mapping import SignalMapper
from agent.metrics.scrape import PageFormat, Scraper
from agent.model import Sample, Secret
from tests.metrics.dialects import ALL
from tests.metrics.raw_server import Handler, answer, read_request, serve

PAGE = b'vllm:num_requests_running{engine="0"} 3\nvllm:request_success_total{finished_reason="stop"} 9\n'


def scraper(port: int, format: PageFormat = "prometheus", *, path: str = "/metrics", timeout: float = 5.0) -> Scraper:
    endpoint = Endpoint(f"http://127.0.0.1:{port}{path}", timeout=timeout)
    return Scraper(endpoint, SignalMapper(ALL), server="s", format=format)


def look(handler: Handler, **options: float) -> tuple[Sample, Scraper]:
    with serve(handler) as server:
        one = scraper(server.port, timeout=options.get("timeout", 5.0))
        (sample,) = one.scrape(100.0)
    return sample, one


def pages(*bodies: bytes) -> Handler:
    """One body after the other, the last for ever."""
    left = list(bodies)

    def handle(connection: socket.socket, stop: threading.Event) -> None:
        answer(left.pop(0) if len(left) > 1 else left[0])(connection, stop)

    return handle


def test_a_page_becomes_samples() -> None:
    sample, one = look(answer(PAGE, headers="Content-Type: text/plain; version=0.0.4\r\n"))
    assert (sample.timestamp, sample.server, sample.instance, sample.ok) == (100.0, "s", "0", True)
    assert sample.values == {"up": 1, "requests_running": 3, "requests_finished_total": 9, "requests_aborted_total": 0}
    assert one.mapper.engine == "vllm"
    assert one.last is not None
    assert (one.last.ok, one.last.status, one.last.size, one.last.lines, one.last.series) == (
        True,
        200,
        len(PAGE),
        2,
        2,
    )


def test_openmetrics_is_told_by_its_content_type() -> None:
    body = PAGE + b"vllm:num_requests_waiting 4 1700000000.5\n# EOF\n"
    sample, one = look(answer(body, headers="Content-Type: application/openmetrics-text; version=1.0.0\r\n"))
    assert sample.values["requests_waiting"] == 4
    assert one.last is not None
    assert not one.last.partial


def test_a_packed_page() -> None:
    sample, _ = look(answer(gzip.compress(PAGE), headers="Content-Encoding: gzip\r\n"))
    assert sample.values["requests_running"] == 3


@pytest.mark.parametrize(
    ("handler", "error"),
    [
        (answer(b"<html><body>Sign in</body></html>"), "html: the answer is an HTML page"),
        (answer(b"", status="302 Found", headers="Location: https://u:p@sso.example/login?token=t#f\r\n"),
         "redirect: 302 to https://sso.example/login; redirects are not followed"),
        (answer(b"", status="307 Temporary Redirect"), "redirect: 307 to another address"),
        (answer(b"", status="308 P", headers="Location: http://[::1\r\n"), "redirect: 308 to another address"),
        (answer(b"no", status="404 Not Found"), "http: 404 Not Found; is this the path of the metrics?"),
        (answer(b"no", status="401 Unauthorized"), "http: 401 Unauthorized; check the credentials"),
        (answer(b"no", status="503 Service Unavailable"), "http: 503 Service Unavailable"),
        (answer(b'[{"iter": 1}]', headers="Content-Type: application/json\r\n"), "parse: the answer is JSON"),
        (answer(b"\x89PNG\r\n\x1a\nxxxx" * 50), "parse: no line of the answer is a metric (it begins '\\ufffdPNG"),
        (answer(b"engine is loading, please wait\n" * 3), "parse: no line of the answer is a metric"),
    ],
)  # fmt: skip
def test_what_is_no_page_of_metrics_is_named(handler: Handler, error: str) -> None:
    sample, one = look(handler)
    assert not sample.ok
    assert sample.values == {}
    assert sample.error.startswith(error)
    assert one.last is not None
    assert one.last.reason == error.partition(":")[0]


def test_a_server_that_does_not_answer_in_time() -> None:
    sample, one = look(lambda connection, stop: stop.wait(30) and None, timeout=0.2)
    assert sample.error == "timeout: no whole answer within 0.2 s (connected and asked, no answer)"
    assert one.last is not None
    assert one.last.seconds > 0


def test_a_page_with_too_many_wanted_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SERIES", 10)
    sample, _ = look(answer(b"vllm:num_requests_running 1\n" * 100))
    assert sample.error.startswith("too_large: ")


def test_one_bad_line_does_not_blind() -> None:
    sample, one = look(answer(PAGE + b"vllm:num_requests_waiting one\nvllm:num_requests_waiting{a= 2\n"))
    assert sample.ok
    assert sample.values["requests_running"] == 3
    assert "requests_waiting" not in sample.values
    assert one.last is not None
    assert (one.last.bad_lines, one.last.faults[0].line) == (2, 3)


def test_a_broken_off_page_gives_what_is_whole() -> None:
    body = PAGE + b"# TYPE vllm:generation_tokens counter\nvllm:generation_tokens_total 123"
    sample, one = look(answer(body, length=len(body) + 500))
    assert sample.values["requests_running"] == 3
    assert "generation_tokens_total" not in sample.values
    assert one.last is not None
    assert one.last.partial


def test_an_empty_page_is_a_server_without_metrics_yet() -> None:
    sample, _ = look(answer(b""))
    assert (sample.ok, sample.values) == (True, {"up": 1})


def test_a_page_that_stands_still_is_counted() -> None:
    #  look       1  2  3  4  5  6
    #  page       A  A  A  B  -  B
    #  repeats    0  1  2  0  -  0
    other = PAGE.replace(b" 3", b" 4")
    with serve(pages(PAGE, PAGE, PAGE, other, b"<html>", other)) as server:
        one = scraper(server.port)
        samples = [one.scrape(float(step))[0] for step in range(6)]
    assert [sample.repeats for sample in samples if sample.ok] == [0, 1, 2, 0, 0]
    assert one.last is not None
    assert len(one.last.digest) == 32


def test_a_page_with_its_own_stamps_standing_still_is_counted() -> None:
    bodies = [f"vllm:num_requests_running 1 1700000000000\nother {step}\n".encode() for step in range(3)]
    with serve(pages(*bodies, b"vllm:num_requests_running 1 1700000005000\n")) as server:
        one = scraper(server.port)
        assert [one.scrape(float(step))[0].repeats for step in range(4)] == [0, 1, 2, 0]


def test_json_records_only_where_they_are_configured() -> None:
    body = b'[{"iter": 5, "numActiveRequests": 2, "numQueuedRequests": 1, "numCompletedRequests": 3}]'
    with serve(answer(body)) as server:
        (sample,) = scraper(server.port, "trtllm_json").scrape(1.0)
        (plain,) = scraper(server.port).scrape(1.0)
    assert sample.values["requests_finished_total"] == 3
    assert plain.error.startswith("parse: the answer is JSON; for TensorRT-LLM use")


def test_no_secret_is_in_any_error() -> None:
    handlers: list[Callable[[socket.socket, threading.Event], None]] = [
        answer(b"", status="401 Unauthorized"),
        answer(b"<html>"),
        lambda connection, stop: connection.close(),
    ]
    for handler in handlers:
        with serve(handler) as server:
            endpoint = Endpoint(f"http://127.0.0.1:{server.port}/", bearer=Secret("hunter2"), username="u")
            one = Scraper(endpoint, SignalMapper(ALL), server="s")
            assert "hunter2" not in repr((one.scrape(0.0), one.last, endpoint))


def test_the_text_format_is_asked_for_first() -> None:
    seen: list[bytes] = []

    def handle(connection: socket.socket, stop: threading.Event) -> None:
        seen.append(read_request(connection))
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    look(handle)
    assert b"Accept: text/plain;version=0.0.4" in seen[0]
