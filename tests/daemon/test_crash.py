"""Killed at any instant, it says everything once.

::

    writer  1 2 3 ........................................ 40
    us      |--- kill -9 ---- kill -9 -- kill -9 ---- ... ---|
    log     1 firing line for each of them, no more, no less
"""

from __future__ import annotations

import random
import time
from collections import Counter

from tests.daemon.live import Live, line

KILLS = 5
FAULTS = 40
RULES = "rules:\n" + "".join(
    f"""\
  - alert: Fault{number:02}
    failure: config_risk
    fingerprint: {{stages: [{{stage: line, any: [{{contains: "fault {number:02} "}}]}}]}}
    for: 0s
    annotations: {{summary: "fault {number:02}"}}
"""
    for number in range(FAULTS)
)


def test_killed_again_and_again(live: Live) -> None:
    chance = random.Random(5)
    live.configure(rules=RULES)
    live.log.touch()
    live.start()
    left = list(range(FAULTS))
    for _ in range(KILLS):
        for _ in range(FAULTS // KILLS):
            live.write(line("W", f"fault {left.pop(0):02} is here"))
            time.sleep(chance.uniform(0, 0.03))  # a writer's pace, not a wait for anything
        live.kill()
        if chance.random() < 0.5:  # the writer goes on meanwhile, and logs are rotated
            live.log.rename(live.folder / f"server.log.{len(left)}")
            live.log.touch()
        live.start()
    live.fires(f"Fault{FAULTS - 1:02}")
    live.until("all are told", lambda: len(live.alerts("firing")) >= FAULTS)
    assert live.stop() == 0
    told = Counter(alert["alertname"] for alert in live.alerts("firing"))
    assert told == {f"Fault{number:02}": 1 for number in range(FAULTS)}


def test_killed_in_the_middle_of_an_incident(live: Live) -> None:
    """The open alert survives, and is not told again."""
    live.configure()
    live.log.touch()
    live.start()
    live.dies()
    first = live.fires("EngineGone")
    live.kill()
    live.start()
    live.until("it is still open", lambda: [a["fingerprint"] for a in live.api("alerts")] == [first["fingerprint"]])
    live.write(line("I", "take note of this"))
    live.fires("Noted")
    assert live.metric("incidents_open", rule="EngineGone", severity="critical") == 1
    assert live.metric("incidents_total", rule="EngineGone") == 0  # it did not fire in this life
    assert live.stop() == 0
    assert len([alert for alert in live.alerts("firing") if alert["alertname"] == "EngineGone"]) == 1
