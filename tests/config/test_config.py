"""The configuration: read with all its faults, defaults, printed without a secret."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from agent.config import Config, default_config, load_config, render, state_path
from agent.config.servers import ProgressConfig
from agent.detect.deadline import ProgressLimits
from agent.model import Secret
from agent.schema import errors

EXAMPLE = """
global: {scrape_interval: 5s, scrape_timeout: 3s, external_labels: {cluster: eu1}}
state: {path: /var/lib/wedgewatch}
web: {listen_address: "127.0.0.1:9464"}
rule_files: [rules.d/*.yaml]
servers:
  - name: ${POD_NAME:-llama-0}
    engine: auto
    logs: [{path: /var/log/server/*.log}]
    metrics: {url: "http://127.0.0.1:8000/prometheus/metrics"}
    labels: {model: llama-3-70b}
route:
  receiver: chat
  group_by: [failure, model]
  routes: [{matchers: ['severity="critical"'], receiver: oncall, continue: true}]
receivers:
  - name: chat
    slack_configs: [{api_url_file: /run/secrets/slack}]
  - name: oncall
    pagerduty_configs: [{routing_key_file: /run/secrets/pagerduty}]
    alertmanager_configs: [{urls: ["http://am-0:9093", "http://am-1:9093"]}]
heartbeat: {url_file: secrets/deadman, interval: 1m}
"""


def load(tmp_path: Path, text: str, env: Mapping[str, str] | None = None) -> tuple[Config, list[str]]:
    path = tmp_path / "wedgewatch.yaml"
    path.write_text(text, encoding="utf-8")
    config, faults = load_config(path, env=env or {})
    return config, [str(fault).removeprefix(f"{path}:") for fault in faults]


def test_the_example_of_the_docs_is_read_whole(tmp_path: Path) -> None:
    config, faults = load(tmp_path, EXAMPLE, {"POD_NAME": "pod-7"})
    assert faults == []
    (server,) = config.servers
    assert (server.name, server.engine, server.labels) == ("pod-7", "auto", {"model": "llama-3-70b"})
    assert server.logs[0].path == "/var/log/server/*.log"
    assert server.metrics is not None
    assert server.metrics.url == "http://127.0.0.1:8000/prometheus/metrics"
    assert config.global_.scrape_timeout == 3.0
    assert config.route is not None
    assert config.route.routes[0].continue_
    assert sorted(config.receivers[1].configs) == ["alertmanager_configs", "pagerduty_configs"]
    assert config.heartbeat is not None


def test_paths_start_from_the_file_that_names_them(tmp_path: Path) -> None:
    config, _ = load(tmp_path, EXAMPLE)
    assert config.rule_files == (f"{tmp_path}/rules.d/*.yaml",)
    assert config.heartbeat is not None
    assert config.heartbeat.url == Secret(path=f"{tmp_path}/secrets/deadman")


def test_a_file_with_faults_gives_what_can_be_used_and_every_fault(tmp_path: Path) -> None:
    config, faults = load(
        tmp_path, EXAMPLE.replace("interval: 1m", "interval: 1").replace("receiver: chat", "receiver: chta")
    )
    assert config.servers
    assert len(faults) == 3
    assert "has no unit" in " ".join(faults)
    assert "unknown receiver 'chta', did you mean 'chat'?" in " ".join(faults)
    assert "no route goes to receiver 'chat'" in " ".join(faults)


def test_a_missing_file_is_a_fault(tmp_path: Path) -> None:
    config, faults = load_config(tmp_path / "none.yaml")
    assert config == Config()
    assert [str(fault) for fault in faults] == [f"{tmp_path}/none.yaml:1:1: cannot be read: No such file or directory"]


def test_an_engine_that_only_the_users_dialect_knows_is_known(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("dialect: my_engine\n", encoding="utf-8")
    text = "rule_files: [mine.yaml]\nservers: [{name: a, engine: my_engine, logs: [{stdin: true}]}]\n"
    assert load(tmp_path, text)[1] == []
    assert (
        "unknown engine 'my_engne', did you mean 'my_engine'?"
        in load(tmp_path, text.replace("engine: my_engine", "engine: my_engne"))[1][0]
    )


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        ("{path: /a.log}", ""),
        ("{stdin: true}", ""),
        ("{journald: vllm.service}", ""),
        ("{kubernetes: {namespace: prod, pod: llama-0, container: server}}", ""),
        ("{kubernetes: {}}", ""),
        ("{path: /a.log, timezone: Europe/Berlin, start_at: beginning, format: cri}", ""),
        ("{kubernetes: {pod: a, selector: b=c}}", "give either 'pod' or 'selector', not both"),
        ("{path: ''}", "must not be empty"),
        ("{loki: {url: 'http://l'}}", "wants 'url' and 'query'"),
        ("{file: /a.log}", "unknown key 'file', write 'path'"),
        ("{path: /a.log, timezone: Mars/Base}", "unknown time zone 'Mars/Base'"),
    ],
)
def test_log_sources(source: str, wrong: str, tmp_path: Path) -> None:
    _, faults = load(tmp_path, f"servers: [{{name: a, logs: [{source}]}}]\n")
    assert (not faults) if not wrong else any(wrong in fault for fault in faults), faults


class TestDefaults:
    def test_without_a_file_log_and_metrics_are_enough(self) -> None:
        config = default_config(("a.log", "-"), "http://127.0.0.1:8000/metrics", engine="vllm", from_start=True)
        (server,) = config.servers
        assert [(source.path, source.stdin, source.start_at) for source in server.logs] == [
            ("a.log", False, "beginning"),
            (None, True, "end"),
        ]
        assert server.metrics is not None
        assert server.name == "server"

    @pytest.mark.parametrize(
        ("logs", "metrics", "words"),
        [((), "", "watches nothing"), (("-", "-"), "", "only once"), ((), "localhost:8000", "begin it with http://")],
    )
    def test_nonsense_on_the_command_line_is_refused(self, logs: tuple[str, ...], metrics: str, words: str) -> None:
        with pytest.raises(ValueError, match=words):
            default_config(logs, metrics)

    def test_an_empty_configuration_only_warns(self, tmp_path: Path) -> None:
        path = tmp_path / "c.yaml"
        path.write_text("{}", encoding="utf-8")
        assert errors(load_config(path)[1]) == []

    @pytest.mark.parametrize(
        ("configured", "env", "path"),
        [
            ("/data/ww", {"STATE_DIRECTORY": "/var/lib/x"}, "/data/ww"),
            ("", {"STATE_DIRECTORY": "/var/lib/x:/var/lib/y"}, "/var/lib/x"),
        ],
    )
    def test_state_goes_where_it_is_told(self, configured: str, env: dict[str, str], path: str) -> None:
        from agent.config.model import StateConfig

        assert state_path(Config(state=StateConfig(path=configured)), env) == Path(path)

    def test_limits_of_progress_have_the_names_and_values_of_the_detector(self) -> None:
        limits = {item.name: item.default for item in fields(ProgressLimits)}
        assert {item.name: item.default for item in fields(ProgressConfig)} == limits


class TestRender:
    def test_it_is_yaml_that_reads_back_the_same(self, tmp_path: Path) -> None:
        first, _ = load(tmp_path, EXAMPLE)
        again, faults = load(tmp_path, render(first))
        assert faults == []
        assert again.servers == first.servers
        assert again.route == first.route
        assert again.global_ == first.global_

    def test_no_secret_is_in_it(self, tmp_path: Path) -> None:
        text = """
web: {token: T0K3N}
servers:
  - name: a
    metrics:
      url: http://10.0.0.1/metrics
      authorization: {credentials: T0K3N}
  - name: b
    metrics:
      url: http://10.0.0.1/metrics
      basic_auth: {username: me, password: T0K3N}
route: {receiver: chat}
receivers: [{name: chat, slack_configs: [{api_url: "https://hooks.slack.com/services/T0K3N"}]}]
heartbeat: {url: "https://hc.example.com/T0K3N"}
actions: [{name: restart, url: "https://x/T0K3N"}]
"""
        config, faults = load(tmp_path, text)
        assert faults == []
        shown = render(config)
        assert "T0K3N" not in shown
        assert shown.count("<secret>") == 6
        assert yaml.safe_load(shown)["servers"][1]["metrics"]["basic_auth"]["username"] == "me"


class TestRoutes:
    text = (
        "servers: [{name: a, logs: [{stdin: true}]}]\nreceivers: [{name: chat, webhook_configs: [{url: 'http://x'}]}]\n"
    )

    def test_receivers_without_a_route_are_warned_of(self, tmp_path: Path) -> None:
        assert load(tmp_path, self.text)[1] == ["2:20: warning: there is no 'route', so nothing is sent here"]

    def test_the_outermost_route_takes_everything(self, tmp_path: Path) -> None:
        _, faults = load(tmp_path, self.text + "route: {matchers: ['a=\"b\"'], routes: [{receiver: chat}]}\n")
        assert faults == [
            "3:8: the outermost route wants a 'receiver'",
            "3:19: the outermost route takes every alert, remove its matchers",
        ]

    def test_a_route_after_one_without_matchers_is_never_tried(self, tmp_path: Path) -> None:
        route = "route: {receiver: chat, routes: [{group_by: [a]}, {matchers: ['a=\"b\"']}]}\n"
        assert load(tmp_path, self.text + route)[1] == [
            "3:51: warning: is never tried: the route in line 3 has no matchers"
        ]
        assert load(tmp_path, self.text + route.replace("[a]}", "[a], continue: true}"))[1] == []
