"""A fake Slack: incoming webhook and Web API, with the documented limits. See integrations.contracts for those."""

from __future__ import annotations

from agent.model import Secret
from integrations.local_receiver import Desk
from integrations.slack import SlackConfig
from tests.fakes.server import FakeService

__all__ = ["FakeSlack"]


class FakeSlack(FakeService):
    """``webhook()`` and ``bot()`` are configurations that point here."""

    path = "/services/T0/B0/s3cr3t-webhook-path"

    def webhook(self, **options: object) -> SlackConfig:
        return SlackConfig(api_url=Secret(self.url + self.path), **options)  # type: ignore[arg-type]

    def bot(self, **options: object) -> SlackConfig:
        return SlackConfig(
            bot_token=Secret("xoxb-1234567890-s3cr3t"),
            channel="#ops",
            base_url=f"{self.url}/api",
            **options,  # type: ignore[arg-type]
        )

    @property
    def texts(self) -> list[str]:
        """First lines of what was posted, in order."""
        return [str(body["text"]).split("\n")[0] for body in self.bodies]

    def delete(self, timestamp: str) -> None:
        """Somebody removes a message."""
        del self.desk.messages[timestamp]

    def new_desk(self) -> Desk:
        return Desk()
