"""The process that the campaign kills: store, dispatcher and workers, fed by a scripted core.

Step n of the script commits one change (alert n fires, or an earlier one is over) together with its own number, in one
transaction, as the daemon does with log offsets. So after a kill it goes on exactly where the last commit was.
"""

from __future__ import annotations

import sys
import time

from agent.config import Config
from agent.config.model import GlobalConfig
from agent.config.routing import NotificationsConfig, ReceiverConfig, Route
from agent.model import Alert, ProgressSummary, Secret, StageEvidence
from agent.notify import Dispatcher
from agent.store import Store
from integrations.alertmanager import AlertmanagerConfig
from integrations.pagerduty import PagerDutyConfig
from integrations.slack import SlackConfig
from integrations.webhook import WebhookConfig

__all__ = ["KEY", "campaign_config", "main", "script"]

KEY = "bench0123456789abcdef0123456789a"
OPEN_FOR = 60
"""Steps for which an alert fires."""


def script(alerts: int) -> list[tuple[int, str]]:
    """(alert, state) in order: each fires at its step and is over ``OPEN_FOR`` steps later."""
    steps = []
    for number in range(alerts + OPEN_FOR):
        if number < alerts:
            steps.append((number, "firing"))
        if number >= OPEN_FOR:
            steps.append((number - OPEN_FOR, "resolved"))
    return steps


def bench_alert(number: int, now: float) -> Alert:
    return Alert(
        alertname="BenchDeadlock",
        failure="token_budget_deadlock",
        state="firing",
        confidence="confirmed",
        severity="critical",
        server=f"server-{number:04d}",
        engine="vllm",
        fingerprint=f"{number:016x}",
        starts_at=now - 60,
        fired_at=now,
        stages=(StageEvidence("symptom", now - 60, f"AssertionError: number {number}", "server.log", number, "ERROR"),),
        progress=ProgressSummary("stalled", now - 60, 14, 3, 0, 0),
        labels={"alertname": "BenchDeadlock", "severity": "critical"},
    )


def campaign_config(url: str, timeout: float) -> Config:
    """One receiver of each kind, each alert a page of its own."""
    span = {"timeout": timeout, "max_age": 86400.0}
    configs = {
        "pager": {
            "pagerduty_configs": (
                PagerDutyConfig(routing_key=Secret(KEY), url=f"{url}/v2/enqueue", notify_late=True, **span),  # type: ignore[arg-type]
            )
        },
        "chat": {"slack_configs": (SlackConfig(api_url=Secret(f"{url}/slack"), **span),)},  # type: ignore[arg-type]
        "hook": {"webhook_configs": (WebhookConfig(url=Secret(f"{url}/hook"), **span),)},  # type: ignore[arg-type]
        "am": {
            "alertmanager_configs": (
                AlertmanagerConfig(urls=(f"{url}/am",), resend_interval=1.0, honor_silences=False, **span),  # type: ignore[arg-type]
            )
        },
    }
    return Config(
        global_=GlobalConfig(external_labels={"cluster": "bench"}),
        route=Route(
            receiver="pager",
            group_wait=0.0,  # type: ignore[arg-type]
            group_by=("server",),
            routes=tuple(Route(receiver=name, continue_=True) for name in configs),
        ),
        receivers=tuple(ReceiverConfig(name=name, configs=items) for name, items in configs.items()),
        notifications=NotificationsConfig(storm_limit=1_000_000, flap_limit=1000, self_alerts=False),
    )


def main(arguments: list[str]) -> int:
    folder, url, alerts, timeout = arguments[0], arguments[1], int(arguments[2]), float(arguments[3])
    steps = script(alerts)
    store = Store(folder)
    dispatcher = Dispatcher(campaign_config(url, timeout), store)
    dispatcher.start()
    print("ready", flush=True)
    done = int(store.load_offsets().get("script", 0))
    for index in range(done, len(steps)):
        number, state = steps[index]
        now = time.time()
        change = bench_alert(number, now)
        if state == "resolved":
            known = store.alerts(fingerprint=change.fingerprint, limit=1)[0].alert
            change = known.with_(state="resolved", ends_at=now)
        store.commit(offsets={"script": index + 1}, state={"step": index + 1}, alerts=[change])
        dispatcher.take([change])
        time.sleep(0.01)
        while len(store.outbox(states=("pending", "sending"), limit=40)) >= 40:
            time.sleep(0.02)  # most messages are to be sent one by one; what piles up is said in one
    while store.outbox(states=("pending", "sending"), limit=1) or store.pages(limit=1):
        time.sleep(0.1)
    last = time.time()  # Alertmanager has no outbox: one whole round after the last change
    while any((level.last_success or 0.0) < last for level in dispatcher.level_workers.values()):
        time.sleep(0.1)
    dispatcher.stop(1.0)
    store.close()
    print("done", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
