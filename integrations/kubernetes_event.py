"""A Kubernetes Event about the pod: ``kubectl describe pod`` and ``kubectl get events`` show it.

One Event a page; repeats and updates raise its series. A resolve is an Event of type Normal. Two REST calls by hand:
the client library weighs 128 MB. Needs RBAC: ``create`` and ``patch`` on ``events`` of ``events.k8s.io``.
https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from agent.model import Secret
from integrations.base import ConfigFault, DeliveryError, Notification, Outcome, ReceiverOptions, Traits
from integrations.http import HttpClient, HttpConfig, encode_json, reveal
from integrations.limits import Kubernetes
from integrations.message import build
from integrations.status import by_status
from integrations.text import clip, one_line
from integrations.wording import worst_first

__all__ = ["KubernetesEventConfig", "KubernetesEventReceiver"]

_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_REASONS: Final = {"stalled": "InferenceServerStalled", "dead": "InferenceServerDead"}


@dataclass(frozen=True, kw_only=True)
class KubernetesEventConfig(ReceiverOptions):
    """Events about a pod; everything defaults to what a pod finds around itself."""

    namespace: str = field(default="", metadata={"doc": "default $POD_NAMESPACE, else the service account's"})
    pod: str = field(default="", metadata={"doc": "pod the Event is about; default $POD_NAME, else the server's name"})
    api_url: str = field(default="", metadata={"doc": "default: the cluster's own API"})
    token: Secret | None = field(default=None, metadata={"doc": "default: the service account's token"})
    http_config: HttpConfig | None = None

    def check(self) -> Iterable[tuple[str, str]]:
        if self.api_url and not self.api_url.startswith(("https://", "http://")):
            yield "api_url", "give an http(s) URL"


class KubernetesEventReceiver:
    """Creates and raises Events."""

    kind = "kubernetes_event"
    traits = Traits(keyed=True)

    def __init__(self, config: KubernetesEventConfig, account: str = _ACCOUNT) -> None:
        self._config = config
        self._account = account
        http = config.http_config or HttpConfig()
        ca = f"{account}/ca.crt"
        if not http.tls_config.ca_file and os.path.exists(ca):
            http = replace(http, tls_config=replace(http.tls_config, ca_file=ca))
        self._client = HttpClient(http)

    def notify(self, notification: Notification) -> Outcome:
        try:
            return self._notify(notification)
        except DeliveryError as error:
            return Outcome.from_error(error)

    def _notify(self, notification: Notification) -> Outcome:
        base, namespace = self._place()
        headers = {"Authorization": f"Bearer {self._token()}", "Accept": "application/json"}
        resolved = not notification.firing
        name = self._name(notification, resolved)
        if notification.action in {"update", "repeat"} and not resolved:
            patch = {"series": {"count": notification.seq, "lastObservedTime": _micro(notification.now)}}
            answer = self._client.request(
                "PATCH",
                f"{base}/{name}",
                timeout=self._config.timeout,
                body=encode_json(patch),
                headers={**headers, "Content-Type": "application/merge-patch+json"},
            )
            if answer.status != 404:  # 404: events are forgotten after an hour, then a new one is made
                return by_status(answer)
        answer = self._client.request(
            "POST",
            base,
            timeout=self._config.timeout,
            body=encode_json(self._event(notification, namespace, name, resolved)),
            headers={**headers, "Content-Type": "application/json"},
        )
        if answer.status == 409:  # it exists: an earlier attempt arrived
            return Outcome.success()
        return by_status(answer, content_refused=frozenset({413, 422}), hint="RBAC: create and patch on events")

    def _event(self, notification: Notification, namespace: str, name: str, resolved: bool) -> dict[str, Any]:
        message = build(notification, self._config)
        alert = worst_first(notification.alerts)[0]
        reason = "InferenceServerRecovered" if resolved else _REASONS.get(alert.family, "InferenceServerDegraded")
        text = message.title if notification.degraded else f"{message.title}. {one_line(message.summary)}"
        pod = self._config.pod or os.environ.get("POD_NAME", "") or alert.server
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": _micro(notification.now),
            "reportingController": "wedgewatch.io/wedgewatch",
            "reportingInstance": clip(os.environ.get("HOSTNAME", "") or "wedgewatch", 128),
            "action": "WatchInferenceServer",
            "reason": reason,
            "type": "Normal" if resolved else "Warning",
            "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": clip(one_line(pod), 253)},
            "note": clip(one_line(text), Kubernetes.NOTE),
        }

    def _name(self, notification: Notification, resolved: bool) -> str:
        state = "resolved" if resolved else "firing"
        began = min((alert.starts_at for alert in notification.alerts), default=0.0)
        text = f"{notification.key}|{int(began)}|{state}"
        return f"wedgewatch.{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:16]}"

    def _place(self) -> tuple[str, str]:
        namespace = self._config.namespace or os.environ.get("POD_NAMESPACE", "") or self._read("namespace")
        if not namespace:
            raise ConfigFault("no namespace: set namespace, or POD_NAMESPACE by the downward API")
        base = self._config.api_url.rstrip("/")
        if not base:
            host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
            if not host:
                raise ConfigFault("not in a cluster: set api_url")
            base = f"https://{f'[{host}]' if ':' in host else host}:{port}"
        return f"{base}/apis/events.k8s.io/v1/namespaces/{namespace}/events", namespace

    def _token(self) -> str:
        secret = self._config.token or Secret(path=f"{self._account}/token")
        return reveal(secret, "token")

    def _read(self, name: str) -> str:
        try:
            with open(f"{self._account}/{name}", encoding="utf-8") as handle:
                return handle.read(300).strip()
        except (OSError, UnicodeDecodeError):
            return ""


def _micro(timestamp: float) -> str:
    """MicroTime: six digits of a second are required."""
    return datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
