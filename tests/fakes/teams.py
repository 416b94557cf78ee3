"""A fake Teams workflow: takes an adaptive card up to its size, answers 202 before it would post."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any

from agent.model import Secret
from integrations.local_receiver import Arrival, Reply
from integrations.msteams import MsTeamsConfig
from tests.fakes.server import FakeService

__all__ = ["FakeTeams"]

# 28 KB after re-encoding, which makes quotes and angle brackets longer; a request of 24453 bytes was seen to fail.
_LIMIT = 28 * 1024


class FakeTeams(FakeService):
    """``config()`` points here; ``cards`` are what would be shown."""

    def config(self, **options: object) -> MsTeamsConfig:
        url = f"{self.url}/workflows/abc/triggers/manual/paths/invoke?sig=s3cr3t-sig"
        return MsTeamsConfig(webhook_url=Secret(url), **options)  # type: ignore[arg-type]

    def _before(self, handler: BaseHTTPRequestHandler, data: bytes) -> Reply | None:
        reply = super()._before(handler, data)
        return reply if reply is not None else self._workflow(handler, data)

    def _workflow(self, handler: BaseHTTPRequestHandler, data: bytes) -> Reply:
        body = json.loads(data)
        encoded = json.dumps(body).replace("<", "\\u003c").replace(">", "\\u003e").replace("'", "\\u0027")
        fault = self._fault(body) if len(encoded) <= _LIMIT else "too large"
        status = 413 if fault == "too large" else 400 if fault else 202
        self.arrivals.append(Arrival("teams", "POST", handler.path, {}, body, status, 0.0))
        return Reply.text(status, fault)

    @property
    def cards(self) -> list[dict[str, Any]]:
        return [body["attachments"][0]["content"] for body in self.bodies]

    @staticmethod
    def _fault(body: Any) -> str:
        attachments = body.get("attachments") if isinstance(body, Mapping) else None
        if not isinstance(attachments, list) or body.get("type") != "message":
            return "no attachments"
        content = attachments[0].get("content", {})
        if attachments[0].get("contentType") != "application/vnd.microsoft.card.adaptive":
            return "no adaptive card"
        if content.get("type") != "AdaptiveCard" or not content.get("body"):
            return "an empty card"
        return "" if all(block["type"] == "RichTextBlock" for block in content["body"]) else "an unknown block"
