"""``wedgewatch send-test RECEIVER``: one firing and one resolved message, marked as a test, through the real path.

The messages go through a store, the outbox and a worker like any alert's, with the receiver's real configuration; only
the routes are left out. What went wrong is said at once instead of being tried again later.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from agent.config import Config
from agent.model import Alert, Checklist, ProgressSummary, StageEvidence, alert_fingerprint
from agent.notify.pages import key_for, new_page, snapshot
from agent.notify.targets import Built, build_targets
from agent.notify.worker import Event, Settings, Worker
from agent.store import OutboxRow, Store
from integrations.alertmanager import AlertmanagerReceiver

__all__ = ["TestResult", "sample_alert", "send_test"]


@dataclass(frozen=True, slots=True)
class TestResult:
    """How one message to one destination went."""

    __test__ = False  # pytest takes every Test... for its own

    target: str
    state: str
    ok: bool
    detail: str = ""

    def __str__(self) -> str:
        if self.ok:
            return f"{self.target}: {self.state} delivered"
        return f"{self.target}: {self.state} not delivered: {self.detail}"


def send_test(config: Config, receiver: str, *, clock: Callable[[], float] = time.time) -> Iterator[TestResult]:
    """Sends the pair to every destination of a receiver, yielding each result as it comes.

    Raises KeyError when there is no receiver of that name."""
    chosen = [built for built in build_targets(config).values() if built.target.receiver == receiver]
    if not chosen:
        raise KeyError(receiver)
    for built in chosen:
        now = clock()
        alert = sample_alert(now, config.global_.external_labels)
        if isinstance(built.receiver, AlertmanagerReceiver):
            yield from _peers(built, built.receiver, alert, clock)
        else:
            yield from _through_outbox(built, alert, config, clock)


def _through_outbox(built: Built, alert: Alert, config: Config, clock: Callable[[], float]) -> Iterator[TestResult]:
    events: list[Event] = []
    settings = Settings(config.global_.external_url, len(config.servers))
    with Store(None, clock=clock) as store:
        worker = Worker(built.target, built.receiver, store, clock=clock, on_event=events.append, settings=settings)
        labels = {"alertname": alert.alertname}
        page = new_page(built.target.id, key_for([alert]), "{}:{}", clock(), group_labels=labels, members={})
        steps = [("open", alert)]
        if built.target.send_resolved:
            steps.append(("resolve", alert.with_(state="resolved", ends_at=clock())))
        page_id = 0
        for seq, (action, shown) in enumerate(steps, 1):
            body = {"seq": seq, "alerts": snapshot([shown]), "group_labels": labels, "test": True}
            row = OutboxRow(built.target.id, page_id or -1, action, body, clock(), priority=0)
            ids = store.commit(pages=[] if page_id else [page], outbox=[row])
            page_id = page_id or ids[0]
            events.clear()
            for _ in range(5):  # a refused message is sent again with less in it
                worker.step(clock())
                if events:
                    break
            done = bool(events) and events[-1].kind == "ok"
            yield TestResult(
                built.target.id, shown.state, done, "" if done else worker.last_error or "nothing was sent"
            )
            if not done:
                return


def _peers(
    built: Built, receiver: AlertmanagerReceiver, alert: Alert, clock: Callable[[], float]
) -> Iterator[TestResult]:
    """A test wants to know of every peer."""
    for peer in receiver.peers:
        for shown in (alert, alert.with_(state="resolved", ends_at=clock())):
            outcome = peer.push([shown], now=clock())
            done = outcome.kind == "success"
            yield TestResult(f"{built.target.id}/{peer.peer}", shown.state, done, outcome.detail)
            if not done:
                break


def sample_alert(now: float, labels: object = None) -> Alert:
    """An alert such as a real one, except for its names."""
    external = dict(labels) if isinstance(labels, dict) else {}
    lines = (
        StageEvidence("start", now - 180, "max_num_tokens=8192 max_batch_size=64", "test.log", 1, "INFO"),
        StageEvidence("symptom", now - 60, "this line was made up by wedgewatch send-test", "test.log", 2, "ERROR"),
    )
    return Alert(
        alertname="WedgewatchTest",
        failure="silent_stall",
        state="firing",
        confidence="confirmed",
        severity="critical",
        server="test-server",
        engine="vllm",
        fingerprint=alert_fingerprint(alertname="WedgewatchTest", at=str(now)),
        starts_at=now - 60,
        fired_at=now,
        stages=lines,
        progress=ProgressSummary("stalled", now - 60, 14, 3, 0, 0),
        checklist=Checklist("yes", "unknown", "not run"),
        labels={**external, "alertname": "WedgewatchTest", "severity": "critical"},
        annotations={"summary": "A test of wedgewatch's delivery. Nothing is wrong, nothing is to be done."},
        context={"actions": ["Nothing: this is a test"], "stalled_for": 60},
    )
