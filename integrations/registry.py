"""All integrations by their key in the configuration. A new one is a module and a line in :data:`_MODULES`.

Modules are imported when their configuration class or receiver is asked for: :data:`CONFIGS` needs all of them (the
schema does), a daemon that only posts to Slack imports nothing else.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Final

from agent.model import Secret
from integrations.base import Receiver
from integrations.http import HttpClient, HttpConfig

__all__ = ["CONFIGS", "Context", "build", "kind_of", "secrets_of"]


@dataclass(frozen=True, slots=True)
class Context:
    """What receivers share: the default ``http_config``, the address of our own page."""

    http_config: HttpConfig | None = None
    external_url: str = ""


def _with_client(name: str) -> Callable[[Any, Any, Context], Receiver]:
    def make(module: Any, config: Any, context: Context) -> Receiver:
        receiver: Receiver = getattr(module, name)(config, HttpClient(config.http_config or context.http_config))
        return receiver

    return make


def _alone(name: str) -> Callable[[Any, Any, Context], Receiver]:
    def make(module: Any, config: Any, context: Context) -> Receiver:
        receiver: Receiver = getattr(module, name)(config)
        return receiver

    return make


def _alertmanager(module: Any, config: Any, context: Context) -> Receiver:
    client = HttpClient(config.http_config or context.http_config)
    receiver: Receiver = module.AlertmanagerReceiver(config, client, context.external_url)
    return receiver


def _kubernetes(module: Any, config: Any, context: Context) -> Receiver:
    if config.http_config is None and context.http_config is not None:
        config = replace(config, http_config=context.http_config)
    receiver: Receiver = module.KubernetesEventReceiver(config)
    return receiver


_MODULES: Final[Mapping[str, tuple[str, str, Callable[[Any, Any, Context], Receiver]]]] = {
    "slack_configs": ("slack", "SlackConfig", _with_client("SlackReceiver")),
    "pagerduty_configs": ("pagerduty", "PagerDutyConfig", _with_client("PagerDutyReceiver")),
    "alertmanager_configs": ("alertmanager", "AlertmanagerConfig", _alertmanager),
    "webhook_configs": ("webhook", "WebhookConfig", _with_client("WebhookReceiver")),
    "msteams_configs": ("msteams", "MsTeamsConfig", _with_client("MsTeamsReceiver")),
    "discord_configs": ("discord", "DiscordConfig", _with_client("DiscordReceiver")),
    "email_configs": ("email", "EmailConfig", _alone("EmailReceiver")),
    "kubernetes_event_configs": ("kubernetes_event", "KubernetesEventConfig", _kubernetes),
    "command_configs": ("command", "CommandConfig", _alone("CommandReceiver")),
    "apprise_configs": ("apprise", "AppriseConfig", _alone("AppriseReceiver")),
    "terminal_configs": ("terminal", "TerminalConfig", _alone("TerminalReceiver")),
}


class _Configs(Mapping[str, type]):
    """Key -> configuration class, imported on first use."""

    def __getitem__(self, key: str) -> type:
        module, name, _ = _MODULES[key]
        found: type = getattr(importlib.import_module(f"integrations.{module}"), name)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULES)

    def __len__(self) -> int:
        return len(_MODULES)


CONFIGS: Final[Mapping[str, type]] = _Configs()
"""YAML key (``slack_configs``) -> configuration class."""


def build(config: object, context: Context | None = None) -> Receiver:
    """The receiver of a configuration object. Raises TypeError for anything that is none."""
    for module, name, make in _MODULES.values():
        if type(config).__module__ == f"integrations.{module}" and type(config).__name__ == name:
            return make(importlib.import_module(f"integrations.{module}"), config, context or Context())
    raise TypeError(f"{type(config).__name__} is no receiver configuration")


def kind_of(config: object) -> str:
    """``slack`` for a SlackConfig: the integration's name in metrics and on the page."""
    return type(config).__module__.rpartition(".")[2]


def secrets_of(config: object) -> Iterator[tuple[str, Secret]]:
    """Every secret in a configuration object with its path, nested ones included."""
    yield from _secrets(config, "")


def _secrets(value: object, path: str) -> Iterator[tuple[str, Secret]]:
    if isinstance(value, Secret):
        yield path, value
    elif is_dataclass(value) and not isinstance(value, type):
        for item in fields(value):
            yield from _secrets(getattr(value, item.name), f"{path}.{item.name}" if path else item.name)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _secrets(item, f"{path}.{key}")
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _secrets(item, f"{path}[{index}]")
