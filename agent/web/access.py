"""Who may ask what: the token, changes only over a safe way, and no page of a stranger reading through a browser."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Collection

from agent.model import Secret
from agent.web.api import Access
from agent.web.http import HttpError, Request

__all__ = ["Guard", "is_loopback"]


class Guard:
    """Decides on a request before its route runs.

    ``loopback`` says that we listen on this machine only. Then, while no token is set, the ``Host`` header must name
    this machine (or one of ``hosts``): a web page of a stranger that lets its own name point at 127.0.0.1 would
    otherwise read everything through the operator's browser (DNS rebinding).
    """

    def __init__(self, token: Secret | None, *, loopback: bool, hosts: Collection[str] = ()) -> None:
        self._token = token
        self._loopback = loopback
        self._hosts = frozenset(host.lower() for host in hosts)

    def check(self, access: Access, request: Request) -> None:
        """Raises HttpError 401, 403, 421 or 503."""
        if access == "open":
            return
        if self._token is None:
            if access == "write":
                raise HttpError(403, "Changes are off: set web.token_file in the configuration to allow them.")
            if self._loopback and not self._names_us(request.headers.get("host", "")):
                raise HttpError(
                    421,
                    "This address is served to this machine only. Ask for 127.0.0.1 or localhost, "
                    "or set web.token_file, or name the host in web.hosts.",
                )
            return
        try:
            token = self._token.reveal().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise HttpError(503, "The token file cannot be read, so nobody is let in; see web.token_file.") from error
        given = request.headers.get("authorization", "")
        scheme, _, credential = given.partition(" ")
        if not token or scheme.lower() != "bearer" or not _same(credential.strip(), token):
            hint = {"WWW-Authenticate": 'Bearer realm="wedgewatch"'}
            raise HttpError(401, "This needs the token: Authorization: Bearer TOKEN.", hint)
        if access == "write" and not request.secure and not is_loopback(request.peer):
            raise HttpError(
                403, "Over plain HTTP the token can be read on its way: turn on web.tls, or call from this machine."
            )

    def _names_us(self, host: str) -> bool:
        name = host.lower()
        if name.startswith("["):
            name = name[1:].partition("]")[0]
        elif name.count(":") == 1:
            name = name.partition(":")[0]
        return name in ("", "localhost") or name.endswith(".localhost") or name in self._hosts or _is_address(name)


def is_loopback(address: str) -> bool:
    """Whether an address (or ``localhost``) is this machine's own."""
    if address == "localhost":
        return True
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)
    return bool((mapped or parsed).is_loopback)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), token.encode())
