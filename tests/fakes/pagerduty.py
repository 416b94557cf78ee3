"""A fake PagerDuty Events API v2 that enforces what is documented; the official client is let loose on it in a test."""

from __future__ import annotations

from agent.model import Secret
from integrations.pagerduty import PagerDutyConfig
from tests.fakes.server import FakeService

__all__ = ["KEY", "FakePagerDuty"]

KEY = "0123456789abcdef0123456789abcdef"


class FakePagerDuty(FakeService):
    """``config()`` points here; ``events`` are (action, dedup key) in order; ``open`` the keys of open alerts."""

    def config(self, **options: object) -> PagerDutyConfig:
        url = f"{self.url}/v2/enqueue"
        return PagerDutyConfig(routing_key=Secret(KEY), url=url, **options)  # type: ignore[arg-type]

    @property
    def events(self) -> list[tuple[str, str]]:
        return [(body["event_action"], body.get("dedup_key", "")) for body in self.bodies if "event_action" in body]

    @property
    def open(self) -> set[str]:
        return {key for key, state in self.desk.alerts.items() if state != "resolved"}
