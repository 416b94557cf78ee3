"""What has to be said to whom, decided from what fires now and what was said so far. No clock, no I/O.

The plan is made from levels, not from events: alerts that are open, pages that are open, and the difference. So it does
not matter at which moment a process died; the next look finds what is missing, and finds nothing that was said already.

A **page** is what one target was told in one go. Alerts of one group (``group_by``) that fire within ``group_wait``
share a page: one message for many servers that fail together. One that fires later gets its own page: for a server that
fails an hour later somebody has to be woken, however the first one stands. A page lives until its last alert is over,
whatever the routes say by then: who was told that it fires is told that it is over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from agent.model import Alert
from agent.notify.pages import closed_page, digest, key_for, members_of, new_page, row, snapshot
from agent.notify.quiet import Inhibitor, Quiet
from agent.notify.routing import RouteNode, matching_labels
from agent.notify.values import Group, Plan, Rules, Sent, Target
from agent.store import OutboxRow, Page, StoredAlert
from integrations.base import Action
from integrations.text import duration
from integrations.wording import place

__all__ = ["Plan", "Planner", "Rules", "Target"]

LATE_CRITICAL: Final = 3600.0
LATE_OTHER: Final = 900.0
"""How old news may be that was over before anybody could be told."""


class Planner:
    """Plans for one configuration. What it remembers may be forgotten: when it first saw an alert, how much it sent."""

    def __init__(
        self, tree: RouteNode | None, targets: Mapping[str, Target], inhibitor: Inhibitor, rules: Rules | None = None
    ) -> None:
        self.tree = tree
        self.targets = dict(targets)
        self.rules = rules or Rules()
        self._inhibitor = inhibitor
        self._by_receiver: dict[str, list[Target]] = {}
        for target in targets.values():
            if target.retired:
                continue
            self._by_receiver.setdefault(target.receiver, []).append(target)
        self._seen: dict[tuple[str, str], float] = {}
        self._sent = Sent(self.rules.storm_limit)
        self._counted: dict[tuple[str, str], str] = {}
        self.broken: dict[str, float] = {}
        """Targets that refused for good -> until when nothing new is planned for them."""

    def plan(
        self,
        now: float,
        alerts: Sequence[StoredAlert],
        pages: Sequence[Page],
        quiet: Quiet,
        *,
        episodes: Callable[[str, float], Sequence[float]],
        latest: Callable[[str], StoredAlert | None],
        hurry: bool = False,
    ) -> Plan:
        """The difference between what holds and what was said.

        ``alerts``: those that are open, and closed ones nobody dealt with yet. ``pages``: the open ones.
        ``episodes(fingerprint, since)`` tells when an alert's episodes began, ``latest`` how it last stood. ``hurry``:
        nothing waits for its group any more (the process is about to end).
        """
        plan = Plan()
        firing = {item.alert.fingerprint: self._labelled(item) for item in alerts if _fires(item)}
        told = self._follow_up(plan, now, firing, pages, quiet, episodes, latest)
        groups = self._waiting(plan, now, firing, told, quiet, hurry)
        self._send_first(plan, now, groups, firing, episodes)
        self._late(plan, now, [item for item in alerts if item.closed is not None and not item.planned], told, quiet)
        self._forget(firing)
        return plan

    def targets_of(self, alert: Alert) -> list[tuple[RouteNode, Target]]:
        """Where an alert goes: each target once, by the first route that names it. Its own trouble is not told to the
        target that has it; if nothing is left by that, every other target hears of it."""
        if self.tree is None:
            return []
        labels = matching_labels(alert)
        found: dict[str, tuple[RouteNode, Target]] = {}
        for node in self.tree.match(labels):
            for target in self._by_receiver.get(node.receiver, ()):
                found.setdefault(target.id, (node, target))
        troubled = alert.context.get("target")
        if troubled:
            found.pop(str(troubled), None)
            if not found:
                others = (item for item in self.targets.values() if item.id != troubled and not item.retired)
                found = {item.id: (self.tree, item) for item in others}
        return list(found.values())

    def change(self, now: float, text: str, labels: Mapping[str, str]) -> Plan:
        """A change event (a start, a restart, new configuration) for the targets that want those."""
        plan = Plan()
        for target in self.targets.values():
            if target.wants_changes and not target.retired and not self.rules.observe:
                page = Page(target.id, f"wedgewatch/change/{int(now)}", "", now, now, {}, state="closed", closed=now)
                plan.pages.append(page)
                body = {"seq": 1, "notes": [text], "group_labels": dict(labels), "alerts": []}
                plan.rows.append(OutboxRow(target.id, -len(plan.pages), "change", body, now, priority=2))
        return plan

    def acknowledge(self, now: float, fingerprint: str, who: str, pages: Sequence[Page]) -> Plan:
        """Somebody works on an alert: for PagerDuty, which knows the word, in every open page with that alert."""
        plan = Plan()
        for page in pages:
            target = self.targets.get(page.receiver)
            if target is None or target.kind != "pagerduty" or fingerprint not in members_of(page):
                continue
            seq = int(page.body.get("seq", 0)) + 1
            plan.pages.append(replace(page, body={**page.body, "seq": seq}, updated=now))
            said = {"seq": seq, "notes": [f"acknowledged by {who}" if who else "acknowledged"], "alerts": []}
            plan.rows.append(OutboxRow(page.receiver, page.id, "acknowledge", said, now))
        return plan

    # -- pages that are open ---------------------------------------------------------------------------------------

    def _follow_up(
        self,
        plan: Plan,
        now: float,
        firing: Mapping[str, StoredAlert],
        pages: Sequence[Page],
        quiet: Quiet,
        episodes: Callable[[str, float], Sequence[float]],
        latest: Callable[[str], StoredAlert | None],
    ) -> set[tuple[str, str]]:
        """Updates, repeats and resolves. Returns which (target, alert) have an open page."""
        told: set[tuple[str, str]] = set()
        for page in pages:
            target = self.targets.get(page.receiver)
            if target is None:
                plan.orphans.append(page)
                plan.pages.append(replace(page, state="undelivered", closed=now, updated=now))
                continue
            members = members_of(page)
            told.update((target.id, fingerprint) for fingerprint in members)
            alerts = []
            for fingerprint in members:
                stored = firing.get(fingerprint) or latest(fingerprint)
                if stored is not None:
                    alerts.append(self._labelled(stored).alert)
            over = [alert for alert in alerts if alert.fingerprint not in firing]
            changed = [alert for alert in alerts if members.get(alert.fingerprint) != digest(alert, firing)]
            if len(over) == len(alerts):
                self._resolve(plan, now, page, target, over, episodes)
            elif changed:
                self._update(plan, now, page, target, alerts, changed, firing)
            else:
                self._repeat(plan, now, page, target, alerts, firing, quiet)
        return told

    def _resolve(
        self,
        plan: Plan,
        now: float,
        page: Page,
        target: Target,
        over: Sequence[Alert],
        episodes: Callable[[str, float], Sequence[float]],
    ) -> None:
        rules = self.rules
        if not over:  # every member is older than what is kept
            plan.pages.append(closed_page(page, now))
            return
        for alert in over:
            began = episodes(alert.fingerprint, now - rules.flap_window)
            quiet_until = (alert.ends_at or page.updated) + rules.flap_window / 4
            if len(began) > rules.flap_limit and now < quiet_until:
                self._hold(plan, now, page, target, over, f"flapping: {len(began)} times in {duration(now - began[0])}")
                plan.at(quiet_until)
                return
        closed = closed_page(page, now)
        if target.send_resolved and not rules.observe:
            self._say(plan, now, closed, "resolve", over, news=over)
        else:
            plan.pages.append(closed)

    def _hold(self, plan: Plan, now: float, page: Page, target: Target, over: Sequence[Alert], note: str) -> None:
        """A page stays open while its alert comes and goes; that is said once."""
        if page.body.get("held"):
            return
        held = replace(page, body={**page.body, "held": True}, updated=now)
        if target.traits.editable or target.traits.partial:
            # Told as firing: a receiver that heard "resolved" now would take the next episode for a new incident.
            still = [alert.with_(state="firing", ends_at=None) for alert in over]
            self._say(plan, now, held, "update", still, news=still, notes=[f"{note}; resolved when it stays quiet"])
        else:
            plan.pages.append(held)

    def _update(
        self,
        plan: Plan,
        now: float,
        page: Page,
        target: Target,
        alerts: Sequence[Alert],
        changed: Sequence[Alert],
        firing: Mapping[str, StoredAlert],
    ) -> None:
        due = float(page.body.get("last", page.opened)) + float(page.body.get("interval", 60.0))
        if now < due:
            plan.at(due)
            return
        still = [alert for alert in changed if alert.fingerprint in firing]
        known = members_of(page)
        updated = {**known, **{alert.fingerprint: digest(alert, firing) for alert in changed}}
        page = replace(page, body={**page.body, "members": updated}, updated=now)
        wanted = bool(still) or target.traits.partial or target.traits.editable
        if page.body.get("held") and still:  # it came back: that was said as "flapping"
            wanted = target.traits.editable
        if wanted and not self.rules.observe:
            self._say(plan, now, page, "update", alerts, news=changed)
        else:
            plan.pages.append(page)

    def _repeat(
        self,
        plan: Plan,
        now: float,
        page: Page,
        target: Target,
        alerts: Sequence[Alert],
        firing: Mapping[str, StoredAlert],
        quiet: Quiet,
    ) -> None:
        due = float(page.body.get("last", page.opened)) + float(page.body.get("repeat", 4 * 3600.0))
        if now < due:
            plan.at(due)
            return
        loud = [alert for alert in alerts if alert.fingerprint in firing and not quiet.reason(alert, now)]
        if loud and not self.rules.observe:
            self._say(plan, now, page, "repeat", alerts, news=())
            self._sent.spend(target.id, now)

    # -- alerts without a page -----------------------------------------------------------------------------------------

    def _waiting(
        self,
        plan: Plan,
        now: float,
        firing: Mapping[str, StoredAlert],
        told: set[tuple[str, str]],
        quiet: Quiet,
        hurry: bool,
    ) -> list[Group]:
        groups: dict[tuple[str, str], Group] = {}
        everyone = [item.alert for item in firing.values()]
        for stored in firing.values():
            alert = stored.alert
            destinations = [(node, target) for node, target in self.targets_of(alert) if not target.traits.level]
            if not destinations:
                self._done(plan, stored)
            for node, target in destinations:
                known = (target.id, alert.fingerprint)
                if known in told:
                    self._done(plan, stored)
                    continue
                reason = self._held_back(now, alert, node, target, everyone, quiet)
                if reason:
                    if self._counted.get(known) != reason:  # once for each reason, not once a second
                        self._counted[known] = reason
                        plan.suppressed[reason] += 1
                    continue
                self._counted.pop(known, None)
                first = self._seen.setdefault(known, min(now, stored.updated))
                labels = node.group_labels(matching_labels(alert))
                key = _group_key(node, labels)
                group = groups.setdefault((target.id, key), Group(target, node, labels, key, first))
                group.first = min(group.first, first)
                group.alerts.append(stored)
        ready = []
        for group in groups.values():
            due = group.first + group.node.group_wait
            if now >= due or hurry:
                ready.append(group)
            else:
                plan.at(due)
        return sorted(ready, key=lambda group: (not group.urgent, group.first, group.key))

    def _held_back(
        self, now: float, alert: Alert, node: RouteNode, target: Target, everyone: Sequence[Alert], quiet: Quiet
    ) -> str:
        if self.rules.observe:
            return "observe"
        reason = quiet.reason(alert, now)
        if reason:
            return reason
        if not quiet.route_open(node, now):
            return "silence"
        if self._inhibitor.silent(alert, everyone):
            return "inhibited"
        if self.broken.get(target.id, 0.0) > now:
            return "stale"
        return ""

    def _send_first(
        self,
        plan: Plan,
        now: float,
        groups: Sequence[Group],
        firing: Mapping[str, StoredAlert],
        episodes: Callable[[str, float], Sequence[float]],
    ) -> None:
        by_target: dict[str, list[Group]] = {}
        for group in groups:
            by_target.setdefault(group.target.id, []).append(group)
        for target_id, ready in by_target.items():
            room = self._sent.room(target_id, now)
            if room <= 0:
                plan.at(self._sent.free_at(target_id, now))
                continue
            alone = ready if len(ready) <= room else ready[: room - 1]
            for group in alone:
                self._open(plan, now, group, firing, episodes)
            if len(ready) > room:
                rest = ready[room - 1 :]
                together = replace(rest[0], labels={}, key="storm", alerts=[a for group in rest for a in group.alerts])
                plan.suppressed["storm"] += len(rest) - 1
                self._open(plan, now, together, firing, episodes)

    def _open(
        self,
        plan: Plan,
        now: float,
        group: Group,
        firing: Mapping[str, StoredAlert],
        episodes: Callable[[str, float], Sequence[float]],
    ) -> None:
        alerts = [stored.alert for stored in group.alerts]
        page = new_page(
            group.target.id,
            key_for(alerts),
            group.key,
            now,
            group_labels=group.labels,
            members={alert.fingerprint: digest(alert, firing) for alert in alerts},
            interval=group.node.group_interval,
            repeat=group.node.repeat_interval,
        )
        notes = []
        if len(alerts) == 1:
            began = episodes(alerts[0].fingerprint, now - self.rules.flap_window)
            if len(began) > 1:
                notes.append(f"fired {len(began)} times in {duration(now - began[0])}")
        mine = {alert.fingerprint for alert in alerts}
        others = [
            f"{place(item.alert)} ({item.alert.failure.replace('_', ' ')})"
            for key, item in sorted(firing.items(), key=lambda pair: pair[1].id)
            if key not in mine and group.labels and group.node.group_labels(matching_labels(item.alert)) == group.labels
        ]
        self._say(plan, now, page, "open", alerts, news=alerts, notes=notes, others=others)
        self._sent.spend(group.target.id, now)
        for stored in group.alerts:
            self._done(plan, stored)
            self._seen.pop((group.target.id, stored.alert.fingerprint), None)

    def _late(
        self, plan: Plan, now: float, closed: Sequence[StoredAlert], told: set[tuple[str, str]], quiet: Quiet
    ) -> None:
        """Alerts that fired and were over before anybody was told (within group_wait, or while we were down)."""
        for item in closed:
            stored = self._labelled(item)
            alert = stored.alert
            plan.planned.append(stored.id)
            limit = LATE_CRITICAL if alert.severity == "critical" else LATE_OTHER
            if alert.fired_at is None or now - (stored.closed or now) > limit or self.rules.observe:
                continue
            for node, target in self.targets_of(alert):
                if target.traits.level or (target.id, alert.fingerprint) in told:
                    continue
                if quiet.reason(alert, now) or not quiet.route_open(node, now) or not target.traits.late:
                    continue
                labels = node.group_labels(matching_labels(alert))
                page = new_page(
                    target.id, key_for([alert]), _group_key(node, labels), now, group_labels=labels, members={}
                )
                plan.pages.append(closed_page(page, now))
                for seq, action in enumerate(("open", "resolve"), 1):
                    said = {
                        "seq": seq,
                        "alerts": snapshot([alert]),
                        "news": [alert.fingerprint],
                        "group_labels": labels,
                    }
                    plan.rows.append(row(plan.pages, page, action, said, now, [alert]))
                self._sent.spend(target.id, now)

    # -- small things --------------------------------------------------------------------------------------------------

    def _say(
        self,
        plan: Plan,
        now: float,
        page: Page,
        action: Action,
        alerts: Sequence[Alert],
        *,
        news: Sequence[Alert],
        notes: Sequence[str] = (),
        others: Sequence[str] = (),
    ) -> None:
        seq = int(page.body.get("seq", 0)) + 1
        body: dict[str, Any] = {**page.body, "seq": seq, "last": now}
        plan.pages.append(replace(page, body=body, updated=now))
        said = {
            "seq": seq,
            "alerts": snapshot(alerts),
            "news": [alert.fingerprint for alert in news],
            "notes": list(notes),
            "others": list(others)[:20],
            "group_labels": dict(body.get("group_labels", {})),
        }
        plan.rows.append(row(plan.pages, page, action, said, now, alerts))
        if page.closed is None:
            plan.at(now + float(body.get("repeat", 4 * 3600.0)))

    def _done(self, plan: Plan, stored: StoredAlert) -> None:
        if not stored.planned and stored.id not in plan.planned:
            plan.planned.append(stored.id)

    def _labelled(self, stored: StoredAlert) -> StoredAlert:
        external = self.rules.external_labels
        if not external:
            return stored
        return replace(stored, alert=stored.alert.with_(labels={**external, **stored.alert.labels}))

    def _forget(self, firing: Mapping[str, StoredAlert]) -> None:
        self._seen = {key: value for key, value in self._seen.items() if key[1] in firing}
        self._counted = {key: value for key, value in self._counted.items() if key[1] in firing}


def _fires(item: StoredAlert) -> bool:
    return item.closed is None and item.alert.state == "firing"


def _group_key(node: RouteNode, labels: Mapping[str, str]) -> str:
    """In Alertmanager's manner: ``{}:{failure="token_budget_deadlock"}``."""
    route = ",".join(str(matcher) for matcher in node.matchers)
    group = ", ".join(f'{name}="{value}"' for name, value in sorted(labels.items()))
    return f"{{{route}}}:{{{group}}}"
