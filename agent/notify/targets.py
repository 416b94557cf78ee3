"""Targets and their receivers, built from a configuration."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from agent.config import Config
from agent.notify.values import Target
from integrations.base import Receiver, ReceiverOptions
from integrations.http import HttpConfig
from integrations.registry import Context, build, kind_of, secrets_of

__all__ = ["Built", "build_targets"]


@dataclass(frozen=True)
class Built:
    """A target with its receiver. ``config`` and ``default`` tell whether a reload changed it."""

    target: Target
    receiver: Receiver
    config: Any
    default: HttpConfig | None

    def same_as(self, other: Built) -> bool:
        """Whether nothing that matters for sending differs."""
        return self.config == other.config and self.default == other.default

    def secrets_digest(self) -> str:
        """Changes when a secret's file does. Kept in memory only."""
        digest = hashlib.sha256()
        for path, secret in secrets_of(self.config):
            try:
                digest.update(f"{path}={secret.reveal()}".encode())
            except (OSError, UnicodeDecodeError) as error:
                digest.update(f"{path}!{type(error).__name__}".encode())
        return digest.hexdigest()


def build_targets(config: Config) -> dict[str, Built]:
    """Every configured destination by its id, ``<receiver>/<integration>``, numbered where a receiver has several."""
    context = Context(http_config=config.global_.http_config, external_url=config.global_.external_url)
    found: dict[str, Built] = {}
    for receiver_name, name, item in _destinations(config):
        receiver = build(item, context)
        options = item if isinstance(item, ReceiverOptions) else ReceiverOptions()
        target = Target(
            id=name,
            receiver=receiver_name,
            kind=receiver.kind,
            traits=receiver.traits,
            send_resolved=options.send_resolved,
            wants_changes=bool(getattr(receiver, "wants_changes", False)),
            max_age=None if options.max_age is None else float(options.max_age),
        )
        found[name] = Built(target, receiver, item, context.http_config)
    return found


def _destinations(config: Config) -> Iterator[tuple[str, str, Any]]:
    for receiver in config.receivers:
        for items in receiver.configs.values():
            for index, item in enumerate(items):
                number = f"[{index}]" if len(items) > 1 else ""
                yield receiver.name, f"{receiver.name}/{kind_of(item)}{number}", item
