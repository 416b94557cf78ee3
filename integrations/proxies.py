"""Which requests go through a proxy: ``HTTP_PROXY`` and friends, ``NO_PROXY`` with names, suffixes and CIDR blocks.

Loopback never goes to a proxy: the server we watch stands on 127.0.0.1, and a corporate proxy cannot reach it.
"""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from urllib.parse import urlsplit

__all__ = ["ProxyRules"]


@dataclass(frozen=True, slots=True, repr=False)
class ProxyRules:
    """A proxy and what bypasses it. The proxy's URL may hold a password, so this prints nothing of it."""

    proxy: str
    no_proxy: str = ""

    @classmethod
    def from_environment(cls, scheme: str, extra_no_proxy: str = "") -> ProxyRules:
        """The usual variables, lower case first. ``HTTP_PROXY`` in capitals is ignored in a CGI-like environment."""
        proxy = os.environ.get(f"{scheme}_proxy", "")
        if not proxy and not (scheme == "http" and "REQUEST_METHOD" in os.environ):
            proxy = os.environ.get(f"{scheme.upper()}_PROXY", "")
        proxy = proxy or os.environ.get("ALL_PROXY", "")
        listed = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
        return cls(proxy, ",".join(part for part in (listed, extra_no_proxy) if part))

    def proxy_for(self, url: str) -> str:
        """The proxy's URL for a request, empty for a direct one."""
        if not self.proxy:
            return ""
        parts = urlsplit(url)
        host = (parts.hostname or "").rstrip(".").lower()
        port = parts.port or (443 if parts.scheme == "https" else 80)
        if _loopback(host) or any(_matches(entry, host, port) for entry in self.no_proxy.replace(" ", ",").split(",")):
            return ""
        return self.proxy if "://" in self.proxy else f"http://{self.proxy}"


def _loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _matches(entry: str, host: str, port: int) -> bool:
    entry = entry.strip().lower()
    if not entry:
        return False
    if entry == "*":
        return True
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        pass
    name, _, wanted = entry.rpartition(":")
    if name and wanted.isdigit():
        if int(wanted) != port:
            return False
        entry = name
    entry = entry.removeprefix("*").removeprefix(".")
    return bool(entry) and (host == entry or host.endswith(f".{entry}"))
