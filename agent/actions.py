"""What is done after the evidence was taken: a command or an HTTP hook. Off unless configured, a trial run by default.

Never twice for one incident, not even over a crash: the journal says "begun" on disk before anything is begun, so a
run that was cut off counts as done. And not too often: between two runs for one server lies the action's cooldown.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agent.commands import run_bounded
from agent.config.matchers import all_match, parse_matchers
from agent.config.model import ActionConfig
from agent.evidence import eligible, incident_id
from agent.model import Alert, rfc3339
from agent.redact import redact, redact_json

__all__ = ["ActionRunner", "ActionTaken"]

log = logging.getLogger("wedgewatch.actions")

Post = Callable[[str, Any, float], str]
"""``post(url, value, timeout)``: sends JSON, returns "" or why it failed."""

_ORDER: Final = {"suspected": 0, "probable": 1, "confirmed": 2}
_JOURNAL_LINES: Final = 5000


@dataclass(frozen=True, slots=True)
class ActionTaken:
    """What one action did. ``result`` is a label value of ``wedgewatch_actions_total``; ``text`` a sentence."""

    action: str
    incident: str
    server: str
    timestamp: float
    result: str
    text: str


class ActionRunner:
    """Runs the configured actions; :meth:`consider` blocks for their time-outs, so call it from a thread of its own.

    With ``observe`` everything is a trial run. Raises ValueError when the matchers of an action cannot be read.
    """

    def __init__(
        self,
        actions: Sequence[ActionConfig],
        journal: Path,
        *,
        observe: bool = False,
        clock: Callable[[], float] = time.time,
        post: Post | None = None,
    ) -> None:
        self._actions = [(action, [m for text in action.matchers for m in parse_matchers(text)]) for action in actions]
        self._journal = journal
        self._observe = observe
        self._clock = clock
        self._post = post or _post
        self._lock = threading.Lock()
        self._begun: set[tuple[str, str]] = set()
        self._last: dict[tuple[str, str], float] = {}
        self._taken: dict[str, list[ActionTaken]] = {}
        self._load()

    def consider(self, alert: Alert) -> list[ActionTaken]:
        """Runs the actions that are due for this alert, each at most once an incident."""
        return [taken for action, matchers in self._actions if (taken := self._one(action, matchers, alert))]

    def taken(self, incident: str) -> tuple[ActionTaken, ...]:
        """What was done for an incident."""
        return tuple(self._taken.get(incident, ()))

    def _one(self, action: ActionConfig, matchers: list[Any], alert: Alert) -> ActionTaken | None:
        name, now = incident_id(alert), self._clock()
        if not eligible(alert) or _ORDER[alert.confidence] < _ORDER[action.confidence]:
            return None
        labels = {**alert.labels, "alertname": alert.alertname, "server": alert.server, "severity": alert.severity}
        if not (all_match(matchers, labels) if matchers else alert.severity == "critical"):
            return None
        what = _describe(action)
        with self._lock:
            if (action.name, name) in self._begun:
                return None
            last = self._last.get((action.name, alert.server))
            if last is not None and now - last < action.cooldown:
                wait = round(action.cooldown - (now - last))
                text = f"not run: {action.name} ran for {alert.server} {round(now - last)} s ago; again in {wait} s"
                return self._record(action, name, alert, now, "rate_limited", text, begun=False)
            try:
                self._record(action, name, alert, now, "begun", what)
            except OSError as error:
                log.warning("action %s is not run: its journal cannot be written: %s", action.name, error)
                return None
        if action.dry_run or self._observe:
            why = "observing only" if self._observe else "dry run"
            return self._record(action, name, alert, now, "dry_run", f"{why}: would {what}")
        fault = self._run(action, alert)
        text = f"failed: {what}: {fault}" if fault else f"done: {what}"
        log.info("action %s for %s: %s", action.name, alert.server, text)
        return self._record(action, name, alert, now, "failed" if fault else "ok", text)

    def _run(self, action: ActionConfig, alert: Alert) -> str:
        value = redact_json(alert.to_json(context=True))
        if action.url is not None:
            try:
                return self._post(action.url.reveal().strip(), value, action.timeout)
            except OSError as error:
                return f"the file of its url cannot be read ({error.strerror})"
        done = run_bounded(
            action.command,
            timeout=action.timeout,
            max_bytes=65536,
            stdin=json.dumps(value).encode(),
            environment={
                "WEDGEWATCH_SERVER": alert.server,
                "WEDGEWATCH_FAILURE": alert.failure,
                "WEDGEWATCH_INCIDENT": incident_id(alert),
            },
        )
        if done.ok:
            return ""
        output = redact(done.output.decode(errors="replace")).strip().splitlines()
        return done.fault or f"exit code {done.code}" + (f" ({output[-1][:200]})" if output else "")

    def _record(
        self, action: ActionConfig, name: str, alert: Alert, now: float, result: str, text: str, *, begun: bool = True
    ) -> ActionTaken:
        taken = ActionTaken(action.name, name, alert.server, now, result, text)
        if begun or not any(item.result == result for item in self._taken.get(name, ())):
            line = {"time": rfc3339(now), "at": now, **{key: getattr(taken, key) for key in ("action", "incident")}}
            line |= {"server": alert.server, "result": result, "text": text}
            self._journal.parent.mkdir(parents=True, exist_ok=True)
            with open(self._journal, "ab") as handle:
                handle.write(json.dumps(line).encode() + b"\n")
                handle.flush()
                os.fsync(handle.fileno())
            self._remember(taken)
        return taken

    def _remember(self, taken: ActionTaken) -> None:
        if taken.result != "rate_limited":
            self._begun.add((taken.action, taken.incident))
        if taken.result in ("begun", "ok", "failed"):
            self._last[taken.action, taken.server] = max(
                taken.timestamp, self._last.get((taken.action, taken.server), taken.timestamp)
            )
        if taken.result != "begun":
            self._taken.setdefault(taken.incident, []).append(taken)

    def _load(self) -> None:
        try:
            lines = self._journal.read_bytes().splitlines()[-_JOURNAL_LINES:]
        except OSError:
            return
        for line in lines:
            try:
                item = json.loads(line)
                self._remember(
                    ActionTaken(
                        item["action"],
                        item["incident"],
                        item["server"],
                        float(item["at"]),
                        item["result"],
                        item["text"],
                    )
                )
            except (ValueError, KeyError, TypeError):  # the line that a crash cut off
                continue


def _describe(action: ActionConfig) -> str:
    if action.command:
        return redact("run " + " ".join(action.command))[:300]
    return "call its url"


def _post(url: str, value: Any, timeout: float) -> str:
    from integrations.base import DeliveryError
    from integrations.http import HttpClient

    try:
        answer = HttpClient().post_json(url, value, timeout=timeout)
    except DeliveryError as error:
        return str(error)
    return "" if answer.ok else f"HTTP {answer.status} {answer.text(120)}"
