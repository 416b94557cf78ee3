"""A fake Discord webhook with the documented limits; messages can be edited."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any

from agent.model import Secret
from integrations.discord import DiscordConfig
from integrations.local_receiver import Arrival, Reply
from tests.fakes.server import FakeService

__all__ = ["FakeDiscord"]


class FakeDiscord(FakeService):
    """``config()`` points here; ``messages`` are what the channel shows, by id."""

    path = "/api/webhooks/123/s3cr3t-token"

    def __init__(self, *script: Any, **options: Any) -> None:
        super().__init__(*script, **options)
        self.messages: dict[str, dict[str, Any]] = {}

    def config(self, **options: object) -> DiscordConfig:
        return DiscordConfig(webhook_url=Secret(self.url + self.path), **options)  # type: ignore[arg-type]

    def _before(self, handler: BaseHTTPRequestHandler, data: bytes) -> Reply | None:
        reply = super()._before(handler, data)
        return reply if reply is not None else self._discord(handler, data)

    def _discord(self, handler: BaseHTTPRequestHandler, data: bytes) -> Reply:
        body = json.loads(data)
        path = handler.path.partition("?")[0]
        reply = self._answer(handler.command, path, body)
        self.arrivals.append(Arrival("discord", handler.command, path, {}, body, reply.status, 0.0))
        return reply

    def _answer(self, method: str, path: str, body: Any) -> Reply:
        if not path.startswith(self.path):
            return Reply.json(404, {"code": 10015, "message": "Unknown Webhook"})
        fault = fault_of(body)
        if fault:
            return Reply.json(400, {"code": 50035, "message": "Invalid Form Body", "errors": fault})
        known = path.rpartition("/messages/")[2] if "/messages/" in path else ""
        if method == "PATCH":
            if known not in self.messages:
                return Reply.json(404, {"code": 10008, "message": "Unknown Message"})
            self.messages[known].update(body)
            return Reply.json(200, {"id": known})
        made = str(9000 + len(self.messages))
        self.messages[made] = dict(body)
        return Reply.json(200, {"id": made})


def fault_of(body: Any) -> str:
    """What Discord would refuse; lengths in UTF-16 units."""
    if not isinstance(body, Mapping):
        return "not an object"
    embeds = body.get("embeds", [])
    if not body.get("content") and not embeds:
        return "empty message"
    if _size(body.get("content") or "") > 2000 or len(embeds) > 10:
        return "content"
    if body.get("allowed_mentions") != {"parse": []}:
        return "mentions would be followed"
    total = 0
    for embed in embeds:
        parts = [(embed.get("title", ""), 256), (embed.get("description", ""), 4096)]
        parts.append((embed.get("footer", {}).get("text", ""), 2048))
        if len(embed.get("fields", ())) > 25:
            return "fields"
        for field in embed.get("fields", ()):
            if not field.get("name") or not field.get("value"):
                return "an empty field"
            parts += [(field["name"], 256), (field["value"], 1024)]
        if any(_size(text) > limit for text, limit in parts):
            return "too long"
        total += sum(_size(text) for text, _ in parts)
    return "total" if total > 6000 else ""


def _size(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2
