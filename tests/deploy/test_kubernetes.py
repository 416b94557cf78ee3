"""The Kubernetes assets: built by kustomize, valid to the letter, and safe for the server that they stand beside."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from agent.config import load_config
from agent.telemetry import Telemetry
from agent.web.api import Api
from agent.web.events import EventBus
from agent.web.http import Request
from tests.deploy.conftest import DEPLOY, Tool
from tests.web.scene import bad_night

pytestmark = pytest.mark.peer
KUBERNETES = DEPLOY / "kubernetes"
VERSIONS = ("1.29", "1.33")


def build(tool: Tool, folder: Path) -> list[dict[str, Any]]:
    built = tool("kubectl", "kustomize", folder)
    return [item for item in yaml.safe_load_all(built) if item]


def with_liveness(tool: Tool, tmp_path: Path) -> list[dict[str, Any]]:
    for name in ("example", "sidecar", "liveness"):
        shutil.copytree(KUBERNETES / name, tmp_path / name)
    file = tmp_path / "example" / "kustomization.yaml"
    file.write_text(file.read_text().replace("components: [../sidecar]", "components: [../sidecar, ../liveness]"))
    return build(tool, tmp_path / "example")


def of_kind(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [item for item in objects if item["kind"] == kind]


def watchers(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The wedgewatch containers of all workloads."""
    found = []
    for item in objects:
        if item["kind"] in ("Deployment", "DaemonSet", "StatefulSet"):
            spec = item["spec"]["template"]["spec"]
            both = [*spec.get("initContainers", []), *spec["containers"]]
            found += [container for container in both if container["name"] == "wedgewatch"]
    return found


@pytest.mark.parametrize("folder", ["example", "standalone", "daemonset"])
@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_valid(tool: Tool, folder: str, version: str) -> None:
    objects = build(tool, KUBERNETES / folder)
    assert len(objects) >= 2
    for item in objects:
        kubernetes_validate.validate(item, version, strict=True)


@pytest.mark.parametrize("folder", ["example", "standalone", "daemonset"])
def test_the_configuration_inside_has_no_faults(tool: Tool, folder: str, tmp_path: Path) -> None:
    maps = [
        item for item in of_kind(build(tool, KUBERNETES / folder), "ConfigMap") if "wedgewatch.yaml" in item["data"]
    ]
    assert len(maps) == 1
    (tmp_path / "wedgewatch.yaml").write_text(maps[0]["data"]["wedgewatch.yaml"])
    config, faults = load_config(tmp_path / "wedgewatch.yaml", env={})
    assert [str(fault) for fault in faults] == []
    assert config.web.token is not None  # it listens beyond loopback, so reading needs the token


@pytest.mark.parametrize("folder", ["example", "standalone", "daemonset"])
def test_it_asks_for_little_and_may_do_little(tool: Tool, folder: str) -> None:
    (container,) = watchers(build(tool, KUBERNETES / folder))
    security = container["securityContext"]
    assert security["readOnlyRootFilesystem"] is True
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"]["drop"] == ["ALL"]
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert folder == "daemonset" or (security["runAsNonRoot"], security["runAsUser"]) == (True, 65532)
    assert security["capabilities"].get("add", []) == (["DAC_READ_SEARCH"] if folder == "daemonset" else [])
    assert "cpu" not in container["resources"]["limits"]
    writable = [mount for mount in container["volumeMounts"] if not mount.get("readOnly")]
    assert [mount["mountPath"] for mount in writable] == ["/var/lib/wedgewatch"]


def test_the_sidecar_starts_before_the_server_and_never_holds_it_up(tool: Tool) -> None:
    objects = build(tool, KUBERNETES / "example")
    (deployment,) = of_kind(objects, "Deployment")
    (sidecar,) = watchers(objects)
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar in deployment["spec"]["template"]["spec"]["initContainers"]
    assert "readinessProbe" not in sidecar
    spec = deployment["spec"]["template"]["spec"]
    secrets = [volume for volume in spec["volumes"] if "secret" in volume]
    assert all(volume["secret"]["optional"] for volume in secrets)  # a missing secret must not keep the model down
    assert spec["shareProcessNamespace"] is True
    # what the server had is still there
    (server,) = spec["containers"]
    assert server["image"] == "vllm/vllm-openai:v0.11.0"
    assert {mount["mountPath"] for mount in server["volumeMounts"]} == {"/var/log/server", "/opt/wedgewatch"}
    assert "livenessProbe" not in server


def test_a_deployment_without_the_label_is_left_alone(tool: Tool, tmp_path: Path) -> None:
    for name in ("example", "sidecar"):
        shutil.copytree(KUBERNETES / name, tmp_path / name)
    server = tmp_path / "example" / "server.yaml"
    server.write_text(server.read_text().replace(", wedgewatch: sidecar", ""))
    assert watchers(build(tool, tmp_path / "example")) == []


def test_a_stateful_set_gets_it_too(tool: Tool, tmp_path: Path) -> None:
    for name in ("example", "sidecar"):
        shutil.copytree(KUBERNETES / name, tmp_path / name)
    server = tmp_path / "example" / "server.yaml"
    text = server.read_text().replace("kind: Deployment", "kind: StatefulSet")
    server.write_text(text.replace("  replicas: 2\n", "  replicas: 2\n  serviceName: llama\n"))
    objects = build(tool, tmp_path / "example")
    (stateful,) = of_kind(objects, "StatefulSet")
    assert stateful["metadata"]["name"] == "llama"
    kubernetes_validate.validate(stateful, VERSIONS[-1], strict=True)
    assert len(watchers(objects)) == 1


def test_the_restart_of_a_confirmed_stall_is_opt_in(tool: Tool, tmp_path: Path) -> None:
    objects = with_liveness(tool, tmp_path)
    (deployment,) = of_kind(objects, "Deployment")
    kubernetes_validate.validate(deployment, VERSIONS[-1], strict=True)
    (server,) = deployment["spec"]["template"]["spec"]["containers"]
    assert server["livenessProbe"]["httpGet"] == {"path": "/api/v1/live", "port": 9464}


def test_every_probe_asks_an_address_that_exists_and_needs_no_token(tool: Tool, tmp_path: Path) -> None:
    api = Api(bad_night(), EventBus(), Telemetry(version="1", process=False))
    objects = with_liveness(tool, tmp_path)
    objects += [item for folder in ("standalone", "daemonset") for item in build(tool, KUBERNETES / folder)]
    paths = set()
    for item in objects:
        template = item.get("spec", {}).get("template", {}).get("spec", {})
        for container in [*template.get("initContainers", []), *template.get("containers", [])]:
            if container["name"] == "server":
                paths.add(container.get("livenessProbe", {}).get("httpGet", {}).get("path"))
                continue
            names = {port["name"]: port["containerPort"] for port in container["ports"]}
            for probe in ("startupProbe", "livenessProbe"):
                get = container[probe]["httpGet"]
                paths.add(get["path"])
                assert names[get["port"]] == 9464
    paths.discard(None)
    assert paths == {"/-/ready", "/-/healthy", "/api/v1/live"}
    for path in paths:
        assert api.find(Request.parse("GET", path, headers={})).access == "open"


def test_monitoring(tool: Tool) -> None:
    objects = build(tool, KUBERNETES / "monitoring")
    (monitor,) = of_kind(objects, "PodMonitor")
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    selected = monitor["spec"]["selector"]["matchLabels"]
    for folder in ("example", "standalone", "daemonset"):
        built = build(tool, KUBERNETES / folder)
        (container,) = watchers(built)
        assert endpoint["port"] in [port["name"] for port in container["ports"]]
        workload = next(item for item in built if item["kind"] in ("Deployment", "DaemonSet"))
        assert selected.items() <= workload["spec"]["template"]["metadata"]["labels"].items()
    (rule,) = of_kind(objects, "PrometheusRule")
    plain = [
        group
        for name in ("wedgewatch", "stalled")
        for group in yaml.safe_load((DEPLOY / "prometheus" / f"{name}.rules.yaml").read_text())["groups"]
    ]
    assert rule["spec"]["groups"] == plain
