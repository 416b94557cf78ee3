"""Asks a running daemon over its API; for the commands of the terminal.

The token, where the daemon has one, comes from the environment: ``WEDGEWATCH_TOKEN_FILE`` (a path) or
``WEDGEWATCH_TOKEN``. On a command line other users of the machine could read it.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

__all__ = ["ApiUnreachable", "ask"]

_MOST: Final = 16 << 20


class ApiUnreachable(Exception):
    """No usable answer; its text is a sentence for the terminal."""


def ask(
    url: str,
    path: str,
    *,
    method: str = "GET",
    body: Any = None,
    timeout: float = 5.0,
    environment: Mapping[str, str] | None = None,
) -> tuple[int, Any]:
    """Status and JSON of one request to the daemon at ``url``. Raises ApiUnreachable.

    No proxy and no redirect: it is our own daemon, most often on this machine.
    """
    environment = os.environ if environment is None else environment
    try:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        port = parts.port
    except ValueError as error:
        raise ApiUnreachable(f"{url!r} is no address; write for example http://127.0.0.1:9464") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ApiUnreachable(f"{url!r} is no address; write for example http://127.0.0.1:9464")
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        connection = http.client.HTTPSConnection(
            parts.hostname, port, timeout=timeout, context=ssl.create_default_context()
        )
    else:
        connection = http.client.HTTPConnection(parts.hostname, port, timeout=timeout)
    where = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    try:
        data = None if body is None else json.dumps(body).encode()
        connection.request(method, parts.path.rstrip("/") + path, data, _headers(environment))
        response = connection.getresponse()
        status, text = response.status, response.read(_MOST)
    except ssl.SSLError as error:
        raise ApiUnreachable(f"{where}: no TLS connection ({error.reason or error}); SSL_CERT_FILE may help") from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise ApiUnreachable(f"{where} does not answer ({reason}); does `wedgewatch run` run there?") from error
    finally:
        connection.close()
    if status == 401:
        raise ApiUnreachable(f"{where} wants its token: set WEDGEWATCH_TOKEN_FILE to the file that holds it")
    try:
        return status, json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ApiUnreachable(f"{where} answered {status} with something that is not wedgewatch's") from error


def _headers(environment: Mapping[str, str]) -> dict[str, str]:
    headers = {"Accept": "application/json", "Content-Type": "application/json", "Connection": "close"}
    token = environment.get("WEDGEWATCH_TOKEN", "")
    if file := environment.get("WEDGEWATCH_TOKEN_FILE", ""):
        try:
            with open(file, encoding="utf-8") as handle:
                token = handle.read()
        except (OSError, UnicodeDecodeError) as error:
            raise ApiUnreachable(f"WEDGEWATCH_TOKEN_FILE: {file} cannot be read ({error})") from error
    if token.strip():
        headers["Authorization"] = f"Bearer {token.strip()}"
    return headers
