"""Nothing of this machine's own proxies, certificates or pods reaches these tests."""

from __future__ import annotations

import os

import pytest

_OURS = ("_proxy", "ssl_cert", "requests_ca", "pod_", "kubernetes_", "node_name")


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if any(part in name.lower() for part in _OURS):
            monkeypatch.delenv(name)
