"""openapi.yaml tells the truth: its addresses are ours, and random requests made from it get the answers it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.model import Secret
from agent.telemetry import Telemetry
from agent.web.api import Api
from agent.web.events import EventBus
from agent.web.view import PLOT_SIGNALS
from tests.web.conftest import Client, Serve
from tests.web.scene import bad_night

SPEC = Path("agent/web/static/openapi.yaml")


def spec() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((Path(__file__).parents[2] / SPEC).read_text())
    return loaded


def test_it_lists_exactly_our_addresses() -> None:
    api = Api(bad_night(), EventBus(), Telemetry(version="1", process=False))
    ours = {(route.method, "/".join(("", *route.parts))) for route in api.routes}
    listed = set()
    for path, operations in spec()["paths"].items():
        parts = ["*" if part.startswith("{") else part for part in path.split("/")]
        listed |= {(method.upper(), "/".join(parts)) for method in operations if method != "parameters"}
    assert listed == ours


def test_access_is_as_it_says() -> None:
    api = Api(bad_night(), EventBus(), Telemetry(version="1", process=False))
    said = {
        (method.upper(), "/".join("*" if part.startswith("{") else part for part in path.split("/"))): {
            "[]": "open",
            "[{'token': []}]": "write",
            "None": "read",
        }[str(operation.get("security"))]
        for path, operations in spec()["paths"].items()
        for method, operation in operations.items()
        if method != "parameters"
    }
    assert said == {(route.method, "/".join(("", *route.parts))): route.access for route in api.routes}


def test_the_signals_are_ours() -> None:
    assert set(spec()["components"]["schemas"]["PlotSignal"]["enum"]) == set(PLOT_SIGNALS)


def test_it_is_served(client: Client) -> None:
    reply = client.get("/openapi.yaml")
    assert reply.headers["content-type"] == "application/yaml"
    assert yaml.safe_load(reply.body) == spec()


@pytest.mark.filterwarnings("default")
def test_random_requests_get_the_answers_it_says(serve: Serve) -> None:
    schemathesis = pytest.importorskip("schemathesis")
    from hypothesis import HealthCheck, Phase, given, settings
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

    checks = [not_a_server_error, content_type_conformance, response_schema_conformance]
    client = serve(token=Secret("t"), keep_alive=0.01)
    schema = schemathesis.openapi.from_path(str(Path(__file__).parents[2] / SPEC))
    operations = 0
    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.path == "/api/v1/events":  # it never ends
            continue
        operations += 1

        @settings(
            max_examples=12,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def fuzz(case: Any) -> None:
            case.headers = {**(case.headers or {}), "Authorization": "Bearer t"}
            response = case.call(base_url=client.server.url)
            if response.status_code == 503 and case.path.endswith(("/live", "/-/ready")):
                return
            case.validate_response(response, checks=checks)

        fuzz()
    assert operations == len(Api(bad_night(), EventBus(), Telemetry(version="1", process=False)).routes) - 1
