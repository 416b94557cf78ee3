"""HTTP as a client sees it, over the real loop with drawn tokens."""

from __future__ import annotations

import http.client
import io
import itertools
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from reproducer.config import preset
from reproducer.lengths import Lengths
from reproducer.load import Load, arrivals, post_json
from reproducer.server import Server
from reproducer.users import Ask, Population, Recorded

Maker = Callable[..., tuple[Server, io.StringIO]]
LONG = Population(Lengths(output_scale=1e6, max_prompt=150, max_output=200))  # this engine is faster than its clients


def get(url: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(url, timeout=60) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def events(url: str, path: str, body: dict[str, Any]) -> Iterator[Any]:
    """The data of server-sent events."""
    head = {"Content-Type": "application/json"}
    request = urllib.request.Request(url + path, json.dumps(body).encode(), head)
    with urllib.request.urlopen(request, timeout=60) as response:
        assert response.headers["Content-Type"].startswith("text/event-stream")
        for line in response:
            if line.startswith(b"data: "):
                data = line[6:].strip()
                yield "done" if data == b"[DONE]" else json.loads(data)


def wait_for(true: Callable[[], bool], seconds: float = 300.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.02)


def inside(server: Server) -> Any:
    return json.loads(get(server.url + "/reproducer/state")[1])


def stuck(server: Server) -> bool:
    """The loop has looked again, and again, and found nothing that could be scheduled."""
    before = inside(server)
    time.sleep(0.03)
    after = inside(server)
    return bool(after["passes"] > before["passes"] + 1 and after["steps"] == before["steps"])


def test_a_completion(light_server: Maker) -> None:
    server, log = light_server(preset("preempt"))
    status, body = post_json(
        server.url, "/v1/completions", {"prompt": "hello", "max_tokens": 6, "ignore_eos": True}, 60
    )
    assert status == 200
    assert body["object"] == "text_completion"
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"] == {"prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 11}
    wait_for(lambda: '"POST /v1/completions HTTP/1.1" 200 OK' in log.getvalue())


def test_a_chat(light_server: Maker) -> None:
    server, _ = light_server(preset("preempt"))
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]
    status, body = post_json(server.url, "/v1/chat/completions", {"messages": messages, "max_completion_tokens": 3}, 60)
    assert status == 200
    assert body["choices"][0]["message"]["role"] == "assistant"
    assert body["usage"]["completion_tokens"] == 3


def test_numbers_are_a_prompt_as_well(light_server: Maker) -> None:
    server, _ = light_server(preset("preempt"))
    status, body = post_json(server.url, "/v1/completions", {"prompt": [104, 105], "max_tokens": 1}, 60)
    assert (status, body["usage"]["prompt_tokens"]) == (200, 2)


@pytest.mark.parametrize("chat", [False, True])
def test_streams_end_with_a_reason_and_done(light_server: Maker, chat: bool) -> None:
    server, _ = light_server(preset("preempt"))
    path = "/v1/chat/completions" if chat else "/v1/completions"
    what = {"messages": [{"role": "user", "content": "hi"}]} if chat else {"prompt": "hi"}
    got = list(events(server.url, path, {**what, "max_tokens": 4, "stream": True, "ignore_eos": True}))
    assert got[-1] == "done"
    assert got[-2]["choices"][0]["finish_reason"] == "length"
    assert len(got) >= 4
    assert got[0]["object"] == ("chat.completion.chunk" if chat else "text_completion")


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/v1/completions", {"prompt": "x" * 500, "max_tokens": 1}, 400, "maximum context length is 384"),
        ("/v1/completions", {"prompt": ""}, 400, "at least one token"),
        ("/v1/completions", {"prompt": [999]}, 400, "from 0 to 255"),
        ("/v1/completions", ["no object"], 400, "JSON object"),
        ("/v1/nothing", {}, 404, "no such path"),
    ],
)
def test_what_is_wrong_is_said(light_server: Maker, path: str, body: Any, status: int, words: str) -> None:
    server, _ = light_server(preset("preempt"))
    got, answer = post_json(server.url, path, body, 60)
    assert got == status
    assert words in answer["message"]


def test_models_health_metrics_and_the_inside(light_server: Maker) -> None:
    server, _ = light_server(preset("preempt"))
    assert get(server.url + "/health") == (200, b"")
    assert json.loads(get(server.url + "/v1/models")[1])["data"][0]["id"] == "harbour"
    assert b"vllm:num_requests_running" in get(server.metrics_url)[1]
    inside = json.loads(get(server.url + "/reproducer/state")[1])
    assert inside["loop_alive"] is True
    assert inside["kv"] == {"free": 512, "held": 0, "cached": 0}
    assert get(server.url + "/other")[0] == 404


def test_the_json_records_of_tensorrt_llm_beside_its_prometheus_page(light_server: Maker) -> None:
    server, _ = light_server(preset("reserve"), "tensorrt_llm")
    post_json(server.url, "/v1/completions", {"prompt": "hi", "max_tokens": 3}, 60)
    records = json.loads(get(server.url + "/metrics")[1])
    assert len(records) >= 3
    assert json.loads(get(server.url + "/metrics")[1]) == [], "read once, gone"
    assert b"trtllm_num_requests_running" in get(server.url + "/prometheus/metrics")[1]


def test_a_deadlock_seen_from_outside(light_server: Maker) -> None:
    """Health 200, requests accepted, nothing completed, and a ring of requests that wait for each other."""
    server, _ = light_server(preset("deadlock"), pace=0.004)
    load = Load(server.url, max_total=384)
    load.closed(LONG, 20)

    def here(row: Any) -> int:
        return int(row["running"] + row["waiting"] + row["unanswered"])

    wait_for(lambda: here(inside(server)) == 20 and stuck(server))
    before = inside(server)
    load.open([Ask(99, 0, 2, 2, b"hi", at=0.0)])
    wait_for(lambda: here(inside(server)) == 21)
    after = inside(server)
    assert after["accepted"] == before["accepted"] + 1
    assert get(server.url + "/health")[0] == 200
    assert get(server.url + "/v1/models")[0] == 200
    assert after["completed"] == before["completed"]
    assert after["wait_for"]["can_go_on"] == []
    assert len(after["wait_for"]["cycle"]) == 3
    assert load.in_flight == 21
    load.stop()


def ask(url: str, prompt: str, tokens: int) -> http.client.HTTPConnection:
    """A request whose client can hang up: nobody reads the answer."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    body = json.dumps({"prompt": prompt, "max_tokens": tokens, "ignore_eos": True})
    connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    return connection


def test_a_client_that_leaves_a_deadlock_frees_the_others(light_server: Maker) -> None:
    """Nobody in the engine can be made to let go; a client can.

    Those who only queue leave first, so that what a holder lets go of is not taken by a newcomer; then the holders
    leave one by one, and each time the rest goes on, at the latest the last one to its end.
    """
    server, _ = light_server(preset("deadlock"), pace=0.004)
    stats = server.engine.stats
    clients: dict[int, http.client.HTTPConnection] = {}
    for number in range(16):
        clients[number] = ask(server.url, "x" * 150, 200)
        wait_for(lambda: stats.accepted == len(clients))

    wait_for(lambda: stuck(server))
    holders = [row["request"] for row in inside(server)["claims"]]
    assert len(holders) > 2
    completed, gone = stats.completed, stats.finished["abort"]
    queued = [number for number in clients if number >= completed and number not in holders]
    for number in queued:
        clients.pop(number).close()
    wait_for(lambda: stats.finished["abort"] == gone + len(queued))
    assert stats.completed == completed, "who holds nothing frees nobody"

    def leave(holder: int) -> None:
        before = inside(server)["generation_tokens"]
        clients.pop(holder).close()
        wait_for(lambda: bool(inside(server)["generation_tokens"] > before))
        wait_for(lambda: stats.completed > completed or stuck(server))

    while stats.completed == completed:
        leave(holders.pop())
    for client in clients.values():
        client.close()


@pytest.mark.filterwarnings("ignore:Exception in thread")  # the loop's death is what is tested
def test_after_the_assertion_the_front_end_goes_on_accepting(light_server: Maker) -> None:
    server, log = light_server(preset("draft", kv_blocks=4096), "tensorrt_llm", pace=0.01)
    load = Load(server.url, max_total=384)
    load.closed(LONG, 26)
    wait_for(lambda: not server.engine.alive)
    wait_for(lambda: load.failed > 10)
    assert {answer.status for answer in load.answers} <= {200, 400}
    wait_for(lambda: server.engine.unanswered >= 20)
    assert get(server.url + "/health")[0] == 200
    text = log.getvalue()
    assert text.index("Encountered an error in forward function") < text.index("Error in event loop: Sampling failed")
    assert "reproducer.engine.RequestFailed: total_num_tokens" in text, "one traceback for each failed request"
    load.stop()


@pytest.mark.filterwarnings("ignore:Exception in thread")  # the loop's death is what is tested
def test_where_the_engine_is_known_to_be_dead_health_says_so(light_server: Maker) -> None:
    server, _ = light_server(preset("draft", kv_blocks=4096), "vllm", "unavailable", pace=0.01)
    load = Load(server.url, max_total=384)
    load.closed(LONG, 26)
    wait_for(lambda: bool(server.engine.down))
    assert get(server.url + "/health")[0] == 503
    assert post_json(server.url, "/v1/completions", {"prompt": "x"}, 60)[0] == 503
    load.stop()


def test_latency_counts_from_the_intended_moment(light_server: Maker) -> None:
    """One connection at a time: the second request is late, and its latency says so."""
    server, _ = light_server(preset("preempt"))
    server.engine.idle_tick = 0.0
    load = Load(server.url, max_total=384)
    load.at_once = threading.Semaphore(1)
    load.open([Ask(n, 0, 4, 300, b"abcd", at=0.0) for n in range(3)]).join(timeout=300)
    wait_for(lambda: len(load.answers) == 3)
    first, *_, last = sorted(load.answers, key=lambda answer: answer.ended)
    assert last.intended == pytest.approx(first.intended, abs=0.01)
    assert last.sent > last.intended
    assert last.latency >= last.ended - last.sent


def test_recorded_users_ask_in_their_order_and_stop(light_server: Maker) -> None:
    server, _ = light_server(preset("preempt"))
    rows = tuple(Ask(user, turn, 3, 2 + turn, b"abc") for user in range(3) for turn in range(4))
    load = Load(server.url, max_total=384)
    load.closed(Recorded(rows), 3)
    wait_for(lambda: load.completed == 12)
    assert sorted(load.asked, key=lambda ask: (ask.user, ask.turn)) == list(rows)


def test_open_arrivals_keep_their_rate_and_burst() -> None:
    even = arrivals(Population(), 50.0, 60.0, seed=1)
    bursts = arrivals(Population(), 50.0, 60.0, burstiness=0.1, seed=1)
    assert len(even) == pytest.approx(3000, rel=0.1)
    assert len(bursts) == pytest.approx(3000, rel=0.2)

    def spread(asks: list[Ask]) -> float:
        gaps = [(b.at or 0) - (a.at or 0) for a, b in itertools.pairwise(asks)]
        mean = sum(gaps) / len(gaps)
        return sum((gap - mean) ** 2 for gap in gaps) / len(gaps) / mean**2

    assert spread(even) == pytest.approx(1.0, abs=0.2)
    assert spread(bursts) > 5
