"""Apprise: an optional extra, handed title and body; what happens without it."""

from __future__ import annotations

import importlib.util
import json
import sys

import pytest

from agent.model import Secret
from integrations.apprise import AppriseConfig, AppriseReceiver
from integrations.local_receiver import Reply
from tests.delivery.build import alert, notification
from tests.fakes.server import FakeService, hang

HAVE = importlib.util.find_spec("apprise") is not None


def test_without_it_the_configuration_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    outcome = AppriseReceiver(AppriseConfig(url=Secret("json://127.0.0.1"))).notify(notification())
    assert (outcome.kind, outcome.reason) == ("permanent", "config")
    assert "wedgewatch[apprise]" in outcome.detail


@pytest.mark.skipif(not HAVE, reason="apprise is not installed: pip install 'wedgewatch[apprise]'")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
class TestWithApprise:
    def test_title_and_body_arrive(self) -> None:
        with FakeService() as service:
            receiver = AppriseReceiver(AppriseConfig(url=Secret(f"json://127.0.0.1:{service.port}/x")))
            assert receiver.notify(notification()).kind == "success"
            (body,) = service.bodies
            assert body["title"].startswith("[FIRING] trtllm-0: scheduler deadlocked")
            assert "AssertionError" in body["message"]
            assert list(AppriseConfig(url=Secret("json://x")).check()) == []

    def test_a_failure_is_tried_again_and_an_unknown_url_is_not(self) -> None:
        with FakeService(Reply.text(500, "x")) as service:
            outcome = AppriseReceiver(AppriseConfig(url=Secret(f"json://127.0.0.1:{service.port}/"))).notify(
                notification()
            )
            assert outcome.kind == "retry"
        unknown = AppriseReceiver(AppriseConfig(url=Secret("nonsense"))).notify(notification(alert()))
        assert unknown.kind == "permanent"
        assert "nonsense" not in json.dumps(unknown.detail)

    def test_it_has_a_total_time_limit(self) -> None:
        with FakeService(hang) as service:
            config = AppriseConfig(url=Secret(f"json://127.0.0.1:{service.port}/"), timeout=0.3)  # type: ignore[arg-type]
            outcome = AppriseReceiver(config).notify(notification())
            assert (outcome.kind, outcome.reason, outcome.uncertain) == ("retry", "timeout", True)
            service.closing.set()
