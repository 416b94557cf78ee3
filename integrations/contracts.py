"""What Slack and PagerDuty accept, checked as they document it: the other side of the wire, for the local receiver.

These are the services' numbers, not ours (those are in :mod:`integrations.limits`, and below these).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

__all__ = ["pagerduty_change_faults", "pagerduty_faults", "slack_fault"]

SLACK_TOTAL: Final = 13_172
"""The smallest sum over all blocks that was seen to fail: https://github.com/slackapi/bolt-js/issues/2509"""
_PLAIN: Final = "plain_text"
_ACTIONS: Final = frozenset({"trigger", "acknowledge", "resolve"})
_SEVERITIES: Final = frozenset({"critical", "error", "warning", "info"})
EVENT_BYTES: Final = 512_000


def slack_fault(payload: Any) -> str:
    """The error word with which Slack refuses a message, empty when it takes it."""
    if not isinstance(payload, Mapping):
        return "invalid_payload"
    text, blocks = payload.get("text"), payload.get("blocks")
    if text is not None and not isinstance(text, str):
        return "invalid_payload"
    if not text and not blocks and not payload.get("attachments"):
        return "no_text"
    if text and len(text) > 40_000:
        return "msg_too_long"
    if blocks is None:
        return ""
    if not isinstance(blocks, list):
        return "invalid_blocks_format"
    if len(blocks) > 50 or any(not _block_ok(block) for block in blocks):
        return "invalid_blocks"
    total = sum(len(part) for block in blocks for part in _texts(block))
    return "msg_blocks_too_long" if total >= SLACK_TOTAL else ""


def _block_ok(block: Any) -> bool:
    if not isinstance(block, Mapping):
        return False
    kind = block.get("type")
    if len(str(block.get("block_id", ""))) > 255:
        return False
    if kind == "header":
        return _text_ok(block.get("text"), 150, (_PLAIN,))
    if kind == "section":
        fields = block.get("fields")
        if "text" in block and not _text_ok(block["text"], 3000):
            return False
        if fields is None:
            return "text" in block
        return isinstance(fields, list) and 1 <= len(fields) <= 10 and all(_text_ok(field, 2000) for field in fields)
    if kind == "context":
        elements = block.get("elements")
        return (
            isinstance(elements, list) and 1 <= len(elements) <= 10 and all(_text_ok(item, 3000) for item in elements)
        )
    if kind == "actions":
        elements = block.get("elements")
        return isinstance(elements, list) and 1 <= len(elements) <= 25 and all(_button_ok(item) for item in elements)
    if kind == "image":
        return 1 <= len(str(block.get("image_url", ""))) <= 3000 and 1 <= len(str(block.get("alt_text", ""))) <= 2000
    return kind == "divider"


def _text_ok(text: Any, limit: int, kinds: tuple[str, ...] = (_PLAIN, "mrkdwn")) -> bool:
    if not isinstance(text, Mapping) or text.get("type") not in kinds:
        return False
    return isinstance(text.get("text"), str) and 1 <= len(text["text"]) <= limit


def _button_ok(item: Any) -> bool:
    if not isinstance(item, Mapping) or item.get("type") != "button":
        return False
    return (
        _text_ok(item.get("text"), 75, (_PLAIN,))
        and len(str(item.get("url", ""))) <= 3000
        and len(str(item.get("value", ""))) <= 2000
    )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key in {"text", "fields", "elements"}:
                yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value


def pagerduty_faults(event: Any) -> list[str]:
    """The errors with which PagerDuty's Events API v2 refuses an event; empty when it takes it."""
    if not isinstance(event, Mapping):
        return ["Event object is invalid"]
    faults = _routing_key_faults(event)
    action, key = event.get("event_action"), event.get("dedup_key")
    if action not in _ACTIONS:
        faults.append("'event_action' must be one of trigger, acknowledge, resolve")
    if key is not None and (not isinstance(key, str) or len(key) > 255):
        faults.append("'dedup_key' is too long (maximum is 255 characters)")
    if action in {"acknowledge", "resolve"} and not key:
        faults.append("'dedup_key' is missing or blank")
    if action == "trigger":
        faults += _payload_faults(event.get("payload"))
    for name, wanted in (("links", "href"), ("images", "src")):
        items = event.get(name, [])
        if not isinstance(items, list) or any(not isinstance(item, Mapping) or not item.get(wanted) for item in items):
            faults.append(f"'{name}' is invalid")
        elif name == "images" and any(not str(item["src"]).startswith("https://") for item in items):
            faults.append("'images' must be served over https")
    return faults


def pagerduty_change_faults(event: Any) -> list[str]:
    """The same for a change event."""
    if not isinstance(event, Mapping):
        return ["Event object is invalid"]
    faults = _routing_key_faults(event)
    payload = event.get("payload")
    if not isinstance(payload, Mapping) or not payload.get("summary"):
        faults.append("'payload.summary' is missing or blank")
    elif len(str(payload["summary"])) > 1024:
        faults.append("'payload.summary' is too long (maximum is 1024 characters)")
    return faults


def _routing_key_faults(event: Mapping[str, Any]) -> list[str]:
    key = event.get("routing_key")
    if not isinstance(key, str) or not key:
        return ["'routing_key' is missing or blank"]
    return [] if re.fullmatch(r"\w{32}", key) else ["Length of 'routing_key' is incorrect (should be 32 characters)"]


def _payload_faults(payload: Any) -> list[str]:
    if not isinstance(payload, Mapping):
        return ["'payload' is missing or blank"]
    faults = [
        f"'payload.{name}' is missing or blank" for name in ("summary", "source", "severity") if not payload.get(name)
    ]
    if len(str(payload.get("summary", ""))) > 1024:
        faults.append("'payload.summary' is too long (maximum is 1024 characters)")
    if payload.get("severity") and payload["severity"] not in _SEVERITIES:
        faults.append("'payload.severity' must be one of critical, warning, error, info")
    if payload.get("timestamp"):
        try:
            datetime.fromisoformat(str(payload["timestamp"]))
        except ValueError:
            faults.append("'payload.timestamp' is invalid")
    details = payload.get("custom_details")
    if details is not None and not isinstance(details, Mapping | str):
        faults.append("'payload.custom_details' is invalid")
    if len(json.dumps(payload, ensure_ascii=False).encode("utf-8", "replace")) > EVENT_BYTES:
        faults.append("'payload' is too large (maximum is 512 KB)")
    return faults
