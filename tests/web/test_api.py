"""What each address answers."""

from __future__ import annotations

import io
import json
import math
import tarfile
from dataclasses import replace

import pytest

from agent.model import Secret
from agent.web.jsonable import dump, jsonable
from tests.web.conftest import Client, Serve
from tests.web.scene import NOW, bad_night, deadlock_alert, hostile_alert, incident_of, replica_alert


def test_one_look_tells_the_whole_state(client: Client) -> None:
    reply = client.get("/api/v1/status")
    assert reply.status == 200
    assert reply.headers["content-type"] == "application/json"
    assert [(server["name"], server["state"]) for server in reply.json["servers"]] == [
        ("trtllm-0", "stalled"),
        ("vllm-0", "serving"),
        ("sglang-0", "idle"),
        ("vllm-1", "unknown"),
    ]
    assert reply.json["servers"][0]["since"] == "2026-11-20T09:01:55Z"
    assert reply.json["alerts"][0]["alertname"] == "TokenBudgetDeadlock"
    assert reply.json["now"] == NOW


def test_series_come_since_a_moment_and_thinned(client: Client) -> None:
    everything = client.get("/api/v1/series?server=vllm-0&points=2000").json
    assert {item["engine_index"] for item in everything} == {"0", "1", "2", "3"}
    two = client.get("/api/v1/series?server=vllm-0&server=trtllm-0&signal=requests_running").json
    assert {item["server"] for item in two} == {"vllm-0", "trtllm-0"}
    assert client.get("/api/v1/series?" + "&".join(["server=x"] * 33)).status == 400
    one = client.get("/api/v1/series?server=vllm-0&engine_index=2&signal=requests_running&points=10").json
    assert [(item["engine_index"], item["signal"]) for item in one] == [("2", "requests_running")]
    assert 2 <= len(one[0]["points"]) <= 10
    tail = client.get(f"/api/v1/series?server=vllm-0&since={NOW - 12}").json
    assert all(point[0] > NOW - 12 for item in tail for point in item["points"])
    assert client.get("/api/v1/series?server=vllm-1&signal=requests_running").json[0]["points"][-1][1] is None


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/api/v1/series", "which server"),
        ("/api/v1/series?server=", "at most 32"),
        ("/api/v1/series?server=vllm-0&signal=nonsense", "requests_waiting"),
        ("/api/v1/series?server=vllm-0&since=yesterday", "2026-01-31T12:00:00Z"),
        ("/api/v1/series?server=vllm-0&since=nan", "Unix seconds"),
        ("/api/v1/series?server=vllm-0&points=0", "from 2 to 2000"),
        ("/api/v1/incidents?limit=٣", "from 1 to 500"),
        ("/api/v1/onset", "which server"),
    ],
)
def test_a_wrong_question_is_answered_with_a_sentence(client: Client, path: str, says: str) -> None:
    from urllib.parse import quote

    reply = client.get(quote(path, safe="/?=&%"))
    assert reply.status == 400
    assert says in reply.json["error"]


def test_incidents_brief_then_whole(client: Client) -> None:
    brief = client.get("/api/v1/incidents").json
    assert [item["alert"]["state"] for item in brief] == ["firing", "resolved"]
    assert "context" not in brief[0]
    assert "series" not in brief[0]["alert"]["context"]
    whole = client.get(f"/api/v1/incidents/{brief[0]['id']}").json
    assert [item["name"] for item in whole["evidence"]][:2] == ["alert.json", "log/server.log"]
    assert whole["deliveries"][2]["outcome"] == "pending"
    assert any(line["stage"] == "symptom" for line in whole["context"])
    assert client.get("/api/v1/incidents?server=vllm-0").json[0]["alert"]["alertname"] == "SilentStall"


def test_the_evidence_comes_as_one_tar(client: Client) -> None:
    incident_id = incident_of(deadlock_alert()).id
    reply = client.get(f"/api/v1/incidents/{incident_id}/evidence.tar")
    assert reply.headers["content-disposition"] == f'attachment; filename="wedgewatch-{incident_id}.tar"'
    with tarfile.open(fileobj=io.BytesIO(reply.body)) as tar:
        assert tar.getnames() == ["alert.json"]
    assert client.get("/api/v1/incidents/nothing/evidence.tar").status == 404
    assert client.get("/api/v1/incidents/..%2f..%2fetc%2fpasswd/evidence.tar").status == 404


def test_rules_sources_outbox_onset_health(client: Client) -> None:
    assert client.get("/api/v1/rules").json[0]["stages"][2]["stage"] == "symptom"
    assert "permission denied" in client.get("/api/v1/sources").json[3]["error"]
    assert client.get("/api/v1/outbox").json[0]["next_attempt"] == "2026-11-20T09:05:18Z"
    onset = client.get("/api/v1/onset?server=trtllm-0").json
    assert (onset["low"], onset["threshold"], onset["high"]) == (58, 60.5, 63)
    assert client.get("/api/v1/onset?server=nobody").status == 404
    assert client.get("/api/v1/health").json["matcher"] == "hyperscan"
    assert client.get("/api/v1/servers/sglang-0").json["state"] == "idle"
    assert client.get("/api/v1/servers/nobody").status == 404


def test_health_is_about_ourselves_only(serve: Serve) -> None:
    view = bad_night()
    client = serve(view)
    assert client.get("/-/healthy").status == 200
    assert client.get("/-/ready").status == 200
    view.health = replace(view.health, ready=False)
    assert client.get("/-/ready").status == 503
    assert client.get("/-/healthy").status == 200


def test_metrics_page_counts_what_was_asked(client: Client) -> None:
    client.get("/api/v1/rules")
    client.get("/nothing-here")
    reply = client.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain")
    assert b'wedgewatch_web_requests_total{code="2xx",handler="api"} 1.0' in reply.body
    assert b'wedgewatch_web_requests_total{code="4xx",handler="other"} 1.0' in reply.body


# ---- the watched server's probe ----------------------------------------------------------------------------------


def test_a_confirmed_stall_turns_the_probe(client: Client) -> None:
    reply = client.get("/api/v1/servers/trtllm-0/live")
    assert reply.status == 503
    assert reply.json["status"] == "stalled"
    assert reply.json["why"] == "token_budget_deadlock, confirmed, for 195 s."
    assert reply.json["alerts"][0]["fingerprint"] == deadlock_alert().fingerprint
    # nothing of the log is in an answer that needs no token and ends up in cluster events
    assert b"assert" not in reply.body


@pytest.mark.parametrize(
    ("server", "status"), [("vllm-0", "ok"), ("sglang-0", "idle"), ("vllm-1", "ok"), ("no-such-server", "unknown")]
)
def test_anything_else_keeps_the_server_alive(client: Client, server: str, status: str) -> None:
    reply = client.get(f"/api/v1/servers/{server}/live")
    assert (reply.status, reply.json["status"]) == (200, status)


@pytest.mark.parametrize(
    "change",
    [
        {"confidence": "probable"},
        {"confidence": "suspected", "state": "pending"},
        {"state": "pending"},
        {"state": "resolved"},
        {"failure": "overload", "severity": "warning"},
        {"failure": "assertion_recovered"},
    ],
)
def test_less_than_a_confirmed_stall_never_turns_the_probe(serve: Serve, change: dict[str, str]) -> None:
    view = bad_night()
    view.alert_list = [deadlock_alert().with_(**change)]
    assert serve(view).get("/api/v1/servers/trtllm-0/live").status == 200


def test_a_death_turns_it_as_well(serve: Serve) -> None:
    view = bad_night()
    view.alert_list = [deadlock_alert().with_(failure="engine_dead")]
    assert serve(view).get("/api/v1/servers/trtllm-0/live").status == 503


def test_the_probe_waits_for_the_evidence(serve: Serve) -> None:
    view = bad_night()
    view.pending_evidence = {deadlock_alert().fingerprint}
    client = serve(view)
    held = client.get("/api/v1/servers/trtllm-0/live")
    assert (held.status, held.json["status"]) == (200, "held")
    view.pending_evidence = set()
    assert client.get("/api/v1/servers/trtllm-0/live").status == 503


def test_probable_counts_when_the_operator_says_so(serve: Serve) -> None:
    view = bad_night()
    view.alert_list = [deadlock_alert().with_(confidence="probable")]
    client = serve(view, probe_confidences={"confirmed", "probable"})
    assert client.get("/api/v1/servers/trtllm-0/live").status == 503


def test_a_sidecar_answers_for_its_only_server(serve: Serve) -> None:
    view = bad_night()
    client = serve(view)
    several = client.get("/api/v1/live")
    assert (several.status, several.json["status"]) == (200, "unknown")
    assert "4 servers are watched" in several.json["why"]
    view.server_list = view.server_list[:1]
    assert client.get("/api/v1/live").status == 503
    view.alert_list = []
    assert client.get("/api/v1/live").status == 200


def test_server_names_with_odd_characters(serve: Serve) -> None:
    view = bad_night()
    view.alert_list = [deadlock_alert().with_(server="a/b c#?%é")]
    view.server_list = [replace(view.server_list[0], name="a/b c#?%é")]
    assert serve(view).get("/api/v1/servers/a%2Fb%20c%23%3F%25%C3%A9/live").status == 503


# ---- what changes something --------------------------------------------------------------------------------------

CHANGES = [
    ("POST", "/api/v1/mutes", b'{"matchers": ["server=\\"vllm-0\\""], "for_s": 60}'),
    ("DELETE", "/api/v1/mutes/m1", None),
    ("POST", "/api/v1/outbox/91/retry", b""),
    ("POST", "/-/reload", b""),
]


@pytest.mark.parametrize(("method", "path", "body"), CHANGES)
def test_nothing_changes_without_a_token(client: Client, method: str, path: str, body: bytes | None) -> None:
    reply = client(method, path, body)
    assert reply.status == 403
    assert "web.token_file" in reply.json["error"]
    assert (client.view.mute_list, client.view.reloads, client.view.retried) == ([], 0, [])


@pytest.mark.parametrize(("method", "path", "body"), CHANGES)
@pytest.mark.parametrize(
    "authorization", ["", "Bearer", "Bearer wrong", "Basic czNjcmV0", "bearer s3cret ", "Bearer s3cre"]
)
def test_nor_with_a_wrong_one(serve: Serve, method: str, path: str, body: bytes | None, authorization: str) -> None:
    client = serve(token=Secret("s3cret"))
    reply = client(method, path, body, Authorization=authorization)
    expected = (401,) if "s3cret " not in authorization else (200, 201, 404)
    assert reply.status in expected
    assert b"s3cret" not in reply.body


def test_mute_and_unmute(serve: Serve) -> None:
    client = serve(token=Secret("s3cret"))
    auth = {"Authorization": "Bearer s3cret"}
    body = json.dumps({"matchers": ['server="vllm-0"'], "for_s": 3600, "comment": "planned restart"}).encode()
    made = client("POST", "/api/v1/mutes", body, **auth)
    assert (made.status, made.json["ends"]) == (201, "2026-11-20T10:05:10Z")
    assert client.get("/api/v1/mutes", **auth).json[0]["comment"] == "planned restart"
    assert client("DELETE", "/api/v1/mutes/m1", **auth).status == 200
    assert client("DELETE", "/api/v1/mutes/m1", **auth).status == 404


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"{", b"\xff", b"[" * 5000, b'{"matchers": [], "for_s": 1}', b'{"matchers": "a=b", "for_s": 1}',
        b'{"matchers": ["a=b"], "for_s": 0}', b'{"matchers": ["a=b"], "for_s": true}',
        b'{"matchers": ["a=b"], "for_s": NaN}', b'{"matchers": ["a=b"], "for_s": 1e999}',
        b'{"matchers": ["nothing"], "for_s": 60}', b'{"matchers": ["a=b"], "for_s": 9, "comment": 5}',
    ],
)  # fmt: skip
def test_a_mute_that_cannot_be_read(serve: Serve, body: bytes) -> None:
    client = serve(token=Secret("t"))
    reply = client("POST", "/api/v1/mutes", body, Authorization="Bearer t")
    assert reply.status == 400
    assert reply.json["error"].endswith((".", '"'))
    assert client.view.mute_list == []


def test_reload_tells_why_it_was_refused(serve: Serve) -> None:
    view = bad_night()
    view.reload_fault = "wedgewatch.yaml:4:3: unknown key 'servrs', did you mean 'servers'?"
    client = serve(view, token=Secret("t"))
    reply = client("POST", "/-/reload", b"", Authorization="Bearer t")
    assert reply.status == 422
    assert "did you mean" in reply.json["error"]


def test_a_retry_of_what_is_not_there(serve: Serve) -> None:
    client = serve(token=Secret("t"))
    assert client("POST", "/api/v1/outbox/91/retry", b"", Authorization="Bearer t").status == 200
    for item in ("7", "-1", "x", "9" * 30):
        assert client("POST", f"/api/v1/outbox/{item}/retry", b"", Authorization="Bearer t").status == 404


def test_with_a_token_reading_needs_it_too_but_probes_do_not(serve: Serve) -> None:
    client = serve(token=Secret("t"))
    for path in ("/api/v1/status", "/api/v1/incidents", "/metrics", "/api/v1/events", "/api/v1/health"):
        reply = client.get(path)
        assert reply.status == 401, path
        assert reply.headers["www-authenticate"].startswith("Bearer")
    for path in ("/", "/-/healthy", "/-/ready", "/api/v1/servers/vllm-0/live"):
        assert client.get(path).status == 200, path


def test_a_token_file_that_vanished_lets_nobody_in(serve: Serve, tmp_path: object) -> None:
    client = serve(token=Secret(path=f"{tmp_path}/gone"))
    assert client.get("/api/v1/status", Authorization="Bearer ").status == 503


# ---- JSON --------------------------------------------------------------------------------------------------------


def test_json_is_always_valid() -> None:
    nasty = {
        "a": math.nan,
        "b": [math.inf, -math.inf, 1e300, 0.1],
        "c": "\udcff\x00</script>",
        "d": Secret("hush"),
        "e": {1},
    }
    text = dump(nasty).decode()
    assert json.loads(text, parse_constant=lambda name: pytest.fail(name))["b"][:2] == [None, None]
    assert "hush" not in text
    assert jsonable(replace(incident_of(replica_alert()).history[0], timestamp=1e300))["timestamp"] is None


def test_hostile_text_stays_text(serve: Serve) -> None:
    text = "</script><img src=x onerror=alert(1)>\x1b[31m\u202e\x00" + "A" * 1000
    view = bad_night()
    view.alert_list = [hostile_alert(text)]
    reply = serve(view).get("/api/v1/alerts")
    assert reply.json[0]["annotations"]["summary"] == text
    assert reply.headers["x-content-type-options"] == "nosniff"
