"""Mutes: silences of our own, kept in the store, so that a command and a running daemon share them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from agent.config.matchers import parse_matchers
from agent.store import Silence, Store

__all__ = ["add_mute"]


def add_mute(
    store: Store, matchers: Sequence[str], seconds: float, *, now: float, comment: str = "", created_by: str = ""
) -> Silence:
    """A mute in the store; a running daemon sees it at its next look. Raises ValueError for a text that is no matcher,
    and when there is none: a mute of everything must be written as such (``alertname=~".+"``)."""
    parsed = [str(matcher) for text in matchers for matcher in parse_matchers(text)]
    if not parsed:
        raise ValueError('give a matcher, for example server="llama-0"')
    if seconds <= 0:
        raise ValueError("give a duration, for example 30m")
    silence = Silence(uuid.uuid4().hex[:12], tuple(parsed), now, now + seconds, comment, created_by)
    store.put_silences([silence])
    return silence
