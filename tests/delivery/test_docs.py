"""The operator's page says what the code does: every receiver is listed, every default is the default."""

from __future__ import annotations

from pathlib import Path

from agent.notify import routing
from agent.notify.worker import MAX_AGE_CRITICAL, MAX_AGE_OTHER
from integrations.registry import CONFIGS
from integrations.text import duration

PAGE = (Path(__file__).parents[2] / "docs" / "notifications.md").read_text(encoding="utf-8")


def test_every_receiver_is_listed() -> None:
    missing = [key for key in CONFIGS if f"`{key}`" not in PAGE and key != "terminal_configs"]
    assert missing == []


def test_defaults_are_as_written() -> None:
    assert f"`group_by: [{', '.join(routing.DEFAULT_GROUP_BY)}]`" in PAGE
    assert f"`group_wait: {duration(routing.GROUP_WAIT)}`" in PAGE
    assert f"`group_interval: {duration(routing.GROUP_INTERVAL)}`" in PAGE
    assert f"`repeat_interval: {duration(routing.REPEAT_INTERVAL)}`" in PAGE
    assert f"({duration(MAX_AGE_CRITICAL)} for critical alerts, else {duration(MAX_AGE_OTHER)})" in PAGE
