"""Rules, dashboard and routing: checked by the tools that will read them, and by our own table of metrics."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.telemetry import METRICS
from tests.deploy.conftest import DEPLOY, ROOT, Tool

PROMETHEUS = DEPLOY / "prometheus"
RULES = sorted(PROMETHEUS.glob("*.rules.yaml"))
OURS = {
    f"wedgewatch_{row.name}{suffix}"
    for row in METRICS
    for suffix in (("_bucket", "_sum", "_count") if row.kind == "histogram" else ("",))
}


def every_rule() -> list[dict[str, Any]]:
    return [rule for file in RULES for group in yaml.safe_load(file.read_text())["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((DEPLOY / "grafana" / "wedgewatch.json").read_text())
    return loaded


def expressions() -> list[str]:
    board = dashboard()
    targets = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    return [*targets, *(item["expr"] for item in board["annotations"]["list"])]


@pytest.mark.peer
def test_promtool_accepts_the_rules_and_their_tests_pass(tool: Tool) -> None:
    tool("promtool", "check", "rules", *RULES)
    tool("promtool", "test", "rules", *sorted(PROMETHEUS.glob("*.test.yaml")), cwd=PROMETHEUS)


def test_every_alert_has_a_test_that_fires_or_is_a_plain_counter() -> None:
    tested = {
        case["alertname"]
        for file in PROMETHEUS.glob("*.test.yaml")
        for block in yaml.safe_load(file.read_text())["tests"]
        for case in block["alert_rule_test"]
        if case["exp_alerts"]
    }
    untested = {rule["alert"] for rule in every_rule()} - tested
    assert untested == {"WedgewatchSourceUnreadable", "WedgewatchBytesLost", "WedgewatchStateErrors"}


def test_alerts_follow_the_conventions_and_lead_to_a_page_that_exists() -> None:
    for rule in every_rule():
        assert re.fullmatch(r"(?:[A-Z][a-z0-9]+)+", rule["alert"]), rule["alert"]
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
        assert not rule["annotations"]["summary"].endswith(".")
        path, _, anchor = rule["annotations"]["runbook_url"].partition("/blob/main/")[2].partition("#")
        headings = re.findall(r"^#+ +(.+)$", (ROOT / path).read_text(), re.M)
        assert anchor in {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}, anchor


def test_only_metrics_that_exist_are_asked_for() -> None:
    text = "\n".join([*expressions(), *(rule["expr"] for rule in every_rule())])
    assert set(re.findall(r"\bwedgewatch_\w+", text)) <= OURS


def test_engine_metrics_are_those_of_the_dialects() -> None:
    dialects = "\n".join(file.read_text() for file in (ROOT / "rules" / "dialects").glob("*.yaml"))
    used = set(re.findall(r"\b(?:vllm:|sglang:|trtllm_)\w+", (PROMETHEUS / "stalled.rules.yaml").read_text()))
    assert len(used) == 15
    assert {name for name in used if name not in dialects} == set()


@pytest.mark.peer
def test_promtool_can_read_every_query_of_the_dashboard(tool: Tool, tmp_path: Path) -> None:
    rules = [
        {"record": f"q{index}", "expr": expr.replace("$__rate_interval", "5m").replace("$server", ".*")}
        for index, expr in enumerate(expressions())
    ]
    file = tmp_path / "dashboard.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    tool("promtool", "check", "rules", file)
    assert len(rules) >= 18


def test_the_dashboard_can_be_imported_anywhere() -> None:
    board = dashboard()
    assert board["id"] is None
    assert board["uid"] == "wedgewatch-overview"
    assert board["schemaVersion"] >= 39
    sources = {json.dumps(panel["datasource"]) for panel in board["panels"] if "datasource" in panel}
    assert sources == {json.dumps({"type": "prometheus", "uid": "${datasource}"})}
    assert [variable["name"] for variable in board["templating"]["list"]] == ["datasource", "server"]
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    places = [(p["gridPos"]["y"], p["gridPos"]["x"], p["gridPos"]["w"]) for p in board["panels"]]
    for y in {place[0] for place in places}:
        assert sum(width for row, _, width in places if row == y) <= 24


@pytest.mark.peer
@pytest.mark.parametrize(
    ("labels", "receivers"),
    [
        ("severity=critical failure=token_budget_deadlock server=llama-0", "oncall,chat"),
        ("severity=warning failure=overload server=llama-0", "chat"),
        ("severity=critical alertname=WedgewatchDown", "platform"),
        ("severity=critical alertname=SomethingElse", "chat"),
    ],
)
def test_the_routing_example_routes(tool: Tool, labels: str, receivers: str) -> None:
    file = DEPLOY / "alertmanager" / "alertmanager.yaml"
    tool("amtool", "check-config", file)
    said = tool("amtool", "config", "routes", "test", f"--config.file={file}", *labels.split())
    assert receivers in said.splitlines()
