from __future__ import annotations

import json
import socket
import threading

import pytest

from agent.metrics.canary import Canary, CanaryCost
from agent.metrics.fetch import Endpoint
from agent.model import Sample, Secret
from tests.metrics.raw_server import Handler, answer, read_request, serve

COMPLETION = json.dumps({"choices": [{"text": "x"}], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}).encode()
MODELS = json.dumps({"data": [{"id": "llama"}]}).encode()


def api(seen: list[bytes], completion: bytes = COMPLETION, status: str = "200 OK") -> Handler:
    def handle(connection: socket.socket, stop: threading.Event) -> None:
        request = read_request(connection)
        seen.append(request)
        if request.startswith(b"GET /v1/models "):
            body, line = MODELS, "200 OK"
        else:
            body, line = completion, status
        connection.sendall(f"HTTP/1.1 {line}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)

    return handle


def canary(port: int, *, base: str = "", model: str = "m", timeout: float = 5.0, **more: float) -> Canary:
    endpoint = Endpoint(f"http://127.0.0.1:{port}{base}", timeout=timeout, bearer=Secret("key"))
    return Canary(endpoint, server="s", model=model, **more)


def asked(one: Canary) -> Sample:
    sample = one.ask(100.0)
    assert sample is not None
    assert (sample.source, sample.server, sample.timestamp >= 100.0) == ("canary", "s", True)
    return sample


@pytest.mark.parametrize("base", ["", "/", "/v1", "/v1/"])
def test_an_answer_is_proof_of_life_and_its_cost_is_counted(base: str) -> None:
    seen: list[bytes] = []
    with serve(api(seen)) as server:
        one = canary(server.port, base=base)
        for _ in range(2):
            assert asked(one).values == {"canary_success": 1}
    assert one.cost == CanaryCost(requests=2, answered=2, prompt_tokens=6, completion_tokens=2)
    head, _, body = seen[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/completions HTTP/1.1\r\n")
    assert b"\r\nAuthorization: Bearer key" in head
    assert json.loads(body) == {"model": "m", "prompt": "ping", "max_tokens": 1, "temperature": 0, "stream": False}


def test_the_model_is_asked_for_once_unless_it_goes() -> None:
    seen: list[bytes] = []
    with serve(api(seen)) as server:
        one = canary(server.port, model="")
        asked(one)
        asked(one)
    assert [request.split()[1] for request in seen] == [b"/v1/models", b"/v1/completions", b"/v1/completions"]
    assert json.loads(seen[2].partition(b"\r\n\r\n")[2])["model"] == "llama"
    seen.clear()
    with serve(api(seen, b"{}", "404 Not Found")) as server:
        one = canary(server.port, model="")
        asked(one)
        asked(one)
    assert [request.split()[1] for request in seen] == [b"/v1/models", b"/v1/completions"] * 2


def test_a_time_out_is_evidence() -> None:
    with serve(lambda connection, stop: stop.wait(30) and None) as server:
        one = canary(server.port, timeout=0.2)
        sample = asked(one)
    assert (sample.ok, sample.values) == (True, {"canary_success": 0})
    assert one.cost == CanaryCost(requests=1)


@pytest.mark.parametrize(
    ("handler", "error"),
    [
        (answer(b"", status="401 Unauthorized"), "http: 401 Unauthorized for /v1/completions"),
        (answer(b"", status="429 Too Many Requests"), "http: 429"),
        (answer(b"", status="302 Found"), "http: 302"),
        (answer(b"<html>"), "parse: the answer is no JSON"),
        (answer(b"[]"), "parse: the answer is no JSON object"),
        (answer(b"{}"), "parse: the answer is no completion"),
        (answer(b"x" * 3_000_000), "too_large"),
        (lambda connection, stop: connection.close(), "http"),
    ],
)
def test_a_refusal_says_nothing_about_progress(handler: Handler, error: str) -> None:
    with serve(handler) as server:
        sample = asked(canary(server.port))
    assert (sample.ok, sample.values) == (False, {})
    assert sample.error.startswith(error) or "refused" in sample.error


def test_a_server_without_models_is_said() -> None:
    with serve(answer(b'{"data": []}')) as server:
        assert "names no model" in asked(canary(server.port, model="")).error


def test_it_is_due_only_in_silence_and_after_its_interval() -> None:
    #  t        0        100      150      161
    #  asked             ask
    one = canary(9, interval=60.0, quiet=30.0)
    assert one.due(0.0, None)
    assert not one.due(100.0, 80.0)
    assert one.due(100.0, 70.0)
    one.ask(100.0)
    assert not one.due(150.0, None)
    assert one.due(160.0, None)
    assert one.due(50.0, None)  # the clock went back: the old time means nothing


def test_never_more_than_one_in_flight() -> None:
    arrived, go = threading.Event(), threading.Event()

    def slow(connection: socket.socket, stop: threading.Event) -> None:
        read_request(connection)
        arrived.set()
        go.wait(10)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(COMPLETION), COMPLETION))

    with serve(slow) as server:
        one = canary(server.port)
        first: list[Sample | None] = []
        thread = threading.Thread(target=lambda: first.append(one.ask(100.0)))
        thread.start()
        assert arrived.wait(10)
        assert one.ask(101.0) is None
        assert not one.due(1000.0, None)
        go.set()
        thread.join(10)
        assert server.connections == 1
    assert first[0] is not None
    assert first[0].values == {"canary_success": 1}
