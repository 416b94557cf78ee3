"""Apprise, an optional extra, for the hundred services that have no integration here.

Title and body only: no keys, no edits, no retry classes; a failure is a failure. ``pip install wedgewatch[apprise]``.
https://github.com/caronc/apprise
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from agent.model import Secret
from integrations.base import ConfigFault, DeliveryError, Notification, Outcome, ReceiverOptions, Traits
from integrations.http import reveal
from integrations.message import build, shorten
from integrations.plain import render_plain
from integrations.text import clip

__all__ = ["AppriseConfig", "AppriseReceiver"]

_BODY: Final = 20_000


@dataclass(frozen=True, kw_only=True)
class AppriseConfig(ReceiverOptions):
    """Apprise URLs; each is a credential."""

    url: Secret = field(metadata={"doc": "one Apprise URL, for example tgram://token/chat"})

    def check(self) -> Iterable[tuple[str, str, str]]:
        from importlib.util import find_spec

        if find_spec("apprise") is None:
            yield "", "Apprise is not installed; pip install 'wedgewatch[apprise]'", "error"


class AppriseReceiver:
    """Hands title and body to Apprise."""

    kind = "apprise"
    traits = Traits()

    def __init__(self, config: AppriseConfig) -> None:
        self._config = config

    def notify(self, notification: Notification) -> Outcome:
        message = shorten(build(notification, self._config), min(6, notification.degraded * 3))
        body = clip(render_plain(message), _BODY)
        kind = "success" if not notification.firing else "failure" if message.severity == "critical" else "warning"
        try:
            return self._send(clip(message.headline, 200), body, kind)
        except DeliveryError as error:
            return Outcome.from_error(error)

    def _send(self, title: str, body: str, kind: str) -> Outcome:
        url = reveal(self._config.url, "url")
        try:
            import apprise
        except ImportError:
            raise ConfigFault("Apprise is not installed; pip install 'wedgewatch[apprise]'") from None
        sender = apprise.Apprise()
        if not sender.add(url):
            raise ConfigFault("Apprise does not know this URL")
        done: list[Any] = []

        def send() -> None:
            done.append(sender.notify(body=body, title=title, notify_type=kind, body_format="text"))

        # Apprise has no total time limit; the thread is left behind when it takes too long.
        thread = threading.Thread(target=send, name="apprise", daemon=True)
        thread.start()
        thread.join(self._config.timeout)
        if thread.is_alive():
            return Outcome.retry(f"not done within {self._config.timeout:g} s", reason="timeout", uncertain=True)
        return Outcome.success() if done and done[0] else Outcome.retry("Apprise could not deliver")
