"""Run one incident as a user does and say in words what is wrong with the answer."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

from agent.cli import main
from agent.model import parse_rfc3339
from agent.model import rfc3339 as _rfc3339
from tests.incidents.build import write
from tests.incidents.incident import Incident


def scan(arguments: list[str]) -> tuple[int, list[dict[str, Any]]]:
    """The exit code and the objects of ``wedgewatch scan --json``."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        status = main(["scan", "--json", *arguments])
    return status, [json.loads(line) for line in out.getvalue().splitlines()]


def faults(incident: Incident, folder: Path, *, engine_given: bool = False) -> list[str]:
    """Everything in the answer that is not right; empty where all is."""
    given = ["--engine", incident.engine] if engine_given else []
    status, objects = scan([*given, *write(incident, folder)])
    summary = objects.pop()
    firing = [item for item in objects if item["state"] == "firing"]
    last = {item["fingerprint"]: item for item in firing}
    wrong = []
    if status != (1 if last else 0):
        wrong.append(f"exit code {status} with {len(last)} alerts")
    if summary["kind"] != "summary" or summary["alerts"] != len(last):
        wrong.append(f"summary {summary}")
    if summary["engine"] != incident.engine:
        wrong.append(f"engine {summary['engine']}, not {incident.engine}")
    critical = {key: item for key, item in last.items() if item["severity"] == "critical"}
    warnings = {item["failure"] for item in last.values() if item["severity"] == "warning"}
    if not incident.page:
        wrong += [f"paged: {_short(item)}" for item in critical.values()]
        wrong += [f"warned: {name}" for name in sorted(warnings - set(incident.may_warn_of))]
        return wrong
    if len(critical) != incident.alerts:
        wrong.append(f"{len(critical)} pages, not {incident.alerts}: {[_short(item) for item in critical.values()]}")
    for key, item in critical.items():
        first = next(each for each in firing if each["fingerprint"] == key)
        wrong += _page_faults(incident, item, parse_rfc3339(first["fired_at"]))
        wrong += _life_faults(incident, [each for each in objects if each["fingerprint"] == key])
    return wrong


def _page_faults(incident: Incident, item: dict[str, Any], fired: float) -> list[str]:
    """What is wrong with a page by its last word (`item`) and the time at which it first fired."""
    wrong = []
    if item["failure"] not in incident.failure_any_of:
        wrong.append(f"named {item['failure']}, not one of {list(incident.failure_any_of)}")
    if incident.confidence is not None and item["confidence"] != incident.confidence:
        wrong.append(f"{item['confidence']}, not {incident.confidence}")
    if incident.fires_by is not None and fired > incident.fires_by:
        wrong.append(f"fired {fired - incident.fires_by:.0f} s late, at {_rfc3339(fired)}")
    if incident.not_before is not None and fired < incident.not_before:
        wrong.append(f"fired {incident.not_before - fired:.0f} s before there was trouble, at {_rfc3339(fired)}")
    if parse_rfc3339(item["starts_at"]) > parse_rfc3339(item["fired_at"]):
        wrong.append(f"starts at {item['starts_at']}, after it fired at {item['fired_at']}")
    wrong += [
        f"label {name} is {item['labels'].get(name)}, not {value}"
        for name, value in incident.labels.items()
        if item["labels"].get(name) != value
    ]
    return wrong


def _life_faults(incident: Incident, objects: list[dict[str, Any]]) -> list[str]:
    states = [item["state"] for item in objects]
    episodes = sum(1 for before, now in zip(["", *states], states, strict=False) if now == "firing" != before)
    wrong = []
    if episodes != incident.episodes:
        wrong.append(f"fired {episodes} times, not {incident.episodes}: {states}")
    if incident.resolved is not None and (states[-1] == "resolved") != incident.resolved:
        wrong.append(f"ends {states[-1]}")
    return wrong


def _short(item: dict[str, Any]) -> str:
    replica = item["labels"].get("engine_index")
    return f"{item['failure']} {item['confidence']}" + (f" of {replica}" if replica else "") + f" at {item['fired_at']}"
