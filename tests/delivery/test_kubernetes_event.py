"""Kubernetes Events, against a stand-in for the API that keeps events by name."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from agent.model import Secret
from integrations.kubernetes_event import KubernetesEventConfig, KubernetesEventReceiver
from integrations.local_receiver import Reply
from tests.delivery.build import T, alert, notification, resolved
from tests.fakes.server import FakeService

BASE = "/apis/events.k8s.io/v1/namespaces/prod/events"


class FakeApi(FakeService):
    """Creates, patches, refuses what exists; checks what the API requires of an event."""

    def __init__(self, *script: Any) -> None:
        super().__init__(*script)
        self.events: dict[str, dict[str, Any]] = {}

    def _before(self, handler: BaseHTTPRequestHandler, data: bytes) -> Reply | None:
        reply = super()._before(handler, data)
        return reply if reply is not None else self._api(handler, json.loads(data))

    def _api(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> Reply:
        if handler.headers["Authorization"] != "Bearer tok":
            return Reply.json(401, {"message": "Unauthorized"})
        name = handler.path.rpartition("/")[2]
        if handler.command == "PATCH":
            if handler.headers["Content-Type"] != "application/merge-patch+json":
                return Reply.json(415, {})
            if name not in self.events:
                return Reply.json(404, {"message": f'events "{name}" not found'})
            self.events[name].update(body)
            return Reply.json(200, self.events[name])
        name = body["metadata"]["name"]
        needed = ("reportingController", "reportingInstance", "action", "reason", "type", "eventTime")
        if any(not body.get(key) for key in needed) or len(body["note"]) > 1024 or "." not in body["eventTime"]:
            return Reply.json(422, {"message": "invalid"})
        if name in self.events:
            return Reply.json(409, {"message": "exists"})
        self.events[name] = body
        return Reply.json(201, body)


def receiver(api: FakeApi, **options: Any) -> KubernetesEventReceiver:
    config = KubernetesEventConfig(api_url=api.url, namespace="prod", token=Secret("tok"), pod="trtllm-0", **options)
    return KubernetesEventReceiver(config)


def test_one_event_a_page_with_a_series_and_another_for_the_end() -> None:
    with FakeApi() as api:
        sender = receiver(api)
        assert sender.notify(notification()).kind == "success"
        assert sender.notify(notification()).kind == "success", "a repeated create is an event that exists"
        assert sender.notify(notification(action="repeat", seq=2)).kind == "success"
        over = resolved(alert(), T + 60)
        assert sender.notify(notification(over, action="resolve", seq=3)).kind == "success"
        firing, end = api.events.values()
        assert (firing["reason"], firing["type"]) == ("InferenceServerStalled", "Warning")
        assert firing["series"]["count"] == 2
        assert firing["regarding"] == {"apiVersion": "v1", "kind": "Pod", "namespace": "prod", "name": "trtllm-0"}
        assert firing["note"].startswith("trtllm-0: scheduler deadlocked, no completions for 2m10s")
        assert (end["reason"], end["type"]) == ("InferenceServerRecovered", "Normal")


def test_a_forgotten_event_is_made_anew() -> None:
    """The API forgets events after an hour."""
    with FakeApi() as api:
        assert receiver(api).notify(notification(action="update")).kind == "success"
        assert len(api.events) == 1


def test_refusals_have_their_class() -> None:
    with FakeApi(Reply.json(403, {}), Reply.json(500, {}), Reply.json(422, {})) as api:
        forbidden, broken, invalid = (receiver(api).notify(notification()) for _ in range(3))
        assert forbidden.kind == "permanent"
        assert "RBAC" in forbidden.detail
        assert (broken.kind, invalid.kind) == ("retry", "degrade")


def test_everything_defaults_to_what_a_pod_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("tok")
    (tmp_path / "namespace").write_text("prod")
    with FakeApi() as api:
        monkeypatch.setenv("POD_NAME", "llama-7")
        sender = KubernetesEventReceiver(KubernetesEventConfig(api_url=api.url), account=str(tmp_path))
        assert sender.notify(notification()).kind == "success"
        assert next(iter(api.events.values()))["regarding"]["name"] == "llama-7"
        assert api.attempts[0][1] == BASE


def test_outside_a_cluster_it_says_what_is_missing(tmp_path: Path) -> None:
    nowhere = KubernetesEventReceiver(KubernetesEventConfig(), account=str(tmp_path)).notify(notification())
    assert (nowhere.kind, nowhere.reason) == ("permanent", "config")
    assert "POD_NAMESPACE" in nowhere.detail
    config = KubernetesEventConfig(namespace="x")
    assert "not in a cluster" in KubernetesEventReceiver(config, account=str(tmp_path)).notify(notification()).detail
    config = KubernetesEventConfig(namespace="x", api_url="http://127.0.0.1:9")
    assert "token" in KubernetesEventReceiver(config, account=str(tmp_path)).notify(notification()).detail
