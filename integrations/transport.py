"""One HTTP request over ``requests`` with a total deadline. Only :mod:`integrations.http` uses this.

The deadline is a timer that shuts the connection down. ``shutdown`` acts on the connection itself, whichever wrapper
(TLS, a proxy's tunnel) holds the descriptor by then, so a duplicate of it made right after connecting is enough. Name
lookup cannot be interrupted, so it runs in a thread that is left behind when time is up; the resolver's own limits end
it.
"""

from __future__ import annotations

import contextlib
import email.utils
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import requests
import requests.adapters
import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from integrations.base import ConfigFault, DeadlineExceeded, DeliveryError, Redirected, TlsFailed, Unreachable
from integrations.http import HttpResponse, origin

__all__ = ["Request", "send"]

# urllib3 logs paths, which hold credentials: at DEBUG each request, as a warning each odd header. Our own errors say
# what there is to say.
logging.getLogger("urllib3").setLevel(logging.CRITICAL)


@dataclass(frozen=True, slots=True, repr=False)
class Request:
    """What to send, and what may be said of it (``where``)."""

    method: str
    url: str
    where: str
    headers: Mapping[str, str]
    body: bytes | None
    timeout: float
    body_limit: int
    proxies: dict[str, str]
    verify: bool | str
    certificate: tuple[str, str] | None
    server_name: str = ""


@dataclass(slots=True)
class _Attempt:
    """The state of the request that this thread is making."""

    ends: float
    sent: bool = False
    expired: bool = False
    sockets: list[socket.socket] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def remaining(self) -> float:
        return self.ends - time.monotonic()

    def watch(self, connection: socket.socket) -> None:
        with self.lock:
            self.sockets.append(connection.dup())
        if self.expired:
            self.cut()

    def cut(self) -> None:
        with self.lock:
            self.expired = True
            for connection in self.sockets:
                with contextlib.suppress(OSError):  # already closed by the peer
                    connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with self.lock:
            for connection in self.sockets:
                connection.close()
            self.sockets.clear()


_current = threading.local()


def _connect(host: str, port: int) -> socket.socket:
    attempt: _Attempt = _current.attempt
    last: OSError = OSError("no address")
    for family, kind, proto, _, address in _resolve(host, port, attempt.remaining()):
        left = attempt.remaining()
        if left <= 0:
            raise TimeoutError("connecting took too long")
        connection = socket.socket(family, kind, proto)
        try:
            connection.settimeout(left)
            connection.connect(address)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            attempt.watch(connection)
        except OSError as error:
            connection.close()
            last = error
            continue
        return connection
    raise last


def _resolve(host: str, port: int, timeout: float) -> list[Any]:
    found: list[Any] = []
    fault: list[OSError] = []

    def lookup() -> None:
        try:
            found.extend(socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:  # UnicodeError: a label too long for IDNA
            fault.append(error if isinstance(error, OSError) else socket.gaierror(socket.EAI_NONAME, "no such name"))

    with contextlib.suppress(OSError):
        return socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM, 0, socket.AI_NUMERICHOST)
    thread = threading.Thread(target=lookup, name=f"lookup {host[:40]}", daemon=True)
    thread.start()
    thread.join(max(0.0, timeout))
    if fault:
        raise fault[0]
    if not found:
        raise TimeoutError("the name lookup took too long")
    return found


class _Http(HTTPConnection):
    def _new_conn(self) -> socket.socket:
        return _connect(self._dns_host.strip("[]"), self.port or 80)

    def getresponse(self, *args: Any, **kwargs: Any) -> Any:
        _current.attempt.sent = True
        return super().getresponse(*args, **kwargs)


class _Https(HTTPSConnection):
    def _new_conn(self) -> socket.socket:
        return _connect(self._dns_host.strip("[]"), self.port or 443)

    def getresponse(self, *args: Any, **kwargs: Any) -> Any:
        _current.attempt.sent = True
        return super().getresponse(*args, **kwargs)


class _HttpPool(HTTPConnectionPool):
    ConnectionCls = _Http


class _HttpsPool(HTTPSConnectionPool):
    ConnectionCls = _Https

    def _validate_conn(self, conn: Any) -> None:
        # The original also warns about insecure_skip_verify at each request; whoever set it knows.
        if conn.is_closed:
            conn.connect()


_POOLS = {"http": _HttpPool, "https": _HttpsPool}


class _Adapter(requests.adapters.HTTPAdapter):
    """Pools whose connections know the attempt they belong to."""

    def __init__(self, server_name: str) -> None:
        self._server_name = server_name
        super().__init__(max_retries=0)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        if self._server_name:
            kwargs.update(assert_hostname=self._server_name, server_hostname=self._server_name)
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        manager = super().proxy_manager_for(*args, **kwargs)
        manager.pool_classes_by_scheme = _POOLS
        return manager


def send(request: Request, clock: Callable[[], float]) -> HttpResponse:
    """Makes the request. Raises DeliveryError with a text that is safe anywhere."""
    attempt = _Attempt(ends=time.monotonic() + request.timeout)
    timer = threading.Timer(request.timeout, attempt.cut)
    timer.daemon = True
    timer.name = "http deadline"
    started = time.monotonic()
    _current.attempt = attempt
    session = requests.Session()
    session.trust_env = False
    session.mount("https://", _Adapter(request.server_name))
    session.mount("http://", _Adapter(""))
    timer.start()
    try:
        with (
            session,
            session.request(
                request.method,
                request.url,
                data=request.body,
                headers=dict(request.headers),
                allow_redirects=False,
                stream=True,
                timeout=request.timeout,
                proxies=request.proxies,
                verify=request.verify,
                cert=request.certificate,
            ) as answer,
        ):
            received = clock()
            if attempt.expired:  # cut off between status line and end of headers: no answer, whatever it began with
                raise DeadlineExceeded(f"{request.where}: no complete answer within {request.timeout:g} s", sent=True)
            if 300 <= answer.status_code < 400 and answer.status_code != 304:
                raise _redirected(request, answer)
            body, complete = _read(answer, request.body_limit)
            return HttpResponse(
                status=answer.status_code,
                headers={name.lower(): value for name, value in answer.headers.items()},
                body=body,
                complete=complete and not attempt.expired,
                elapsed=time.monotonic() - started,
                skew=_skew(answer.headers.get("Date"), received),
            )
    except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        raise _described(error, request, attempt) from None
    finally:
        timer.cancel()
        attempt.close()
        _current.attempt = None


def _read(answer: requests.Response, limit: int) -> tuple[bytes, bool]:
    """The body's beginning. The status has been seen by now, so a body cut short is no error of the attempt."""
    body = b""
    try:
        while len(body) <= limit:
            part = answer.raw.read(min(65536, limit + 1 - len(body)), decode_content=False)
            if not part:
                return body, True
            body += part
    except (urllib3.exceptions.HTTPError, OSError):
        return body[:limit], False
    return body[:limit], False


def _skew(date: str | None, received: float) -> float | None:
    if not date or len(date) > 64:
        return None
    try:
        # Date has whole seconds: half a second is the best guess at the rest.
        return email.utils.parsedate_to_datetime(date).timestamp() + 0.5 - received
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _redirected(request: Request, answer: requests.Response) -> Redirected:
    target = origin(answer.headers.get("Location", ""))
    elsewhere = f" to {target}" if target and target != request.where else ""
    return Redirected(
        f"{request.where}: answered {answer.status_code}, a redirect{elsewhere}, which is not followed; "
        "give the final URL, or let this path past the login"
    )


def _described(error: Exception, request: Request, attempt: _Attempt) -> DeliveryError:
    """What went wrong, from the innermost cause outwards. Library texts are not used: they hold URLs."""
    where = f"{request.where} through the proxy" if request.proxies else request.where
    causes = _causes(error)
    if attempt.expired or attempt.remaining() <= 0:
        return DeadlineExceeded(f"{where}: no complete answer within {request.timeout:g} s", sent=attempt.sent)
    for cause in causes:
        if isinstance(cause, ssl.SSLError):
            tried = f"CA file {request.verify}" if isinstance(request.verify, str) else "the built-in CA list"
            return TlsFailed(
                f"{where}: TLS failed ({_tls_reason(cause)}); checked against {tried}; "
                "set tls_config.ca_file or SSL_CERT_FILE for a private CA"
            )
        if isinstance(cause, socket.gaierror):
            return Unreachable(f"{where}: the name cannot be resolved")
        if isinstance(cause, TimeoutError | urllib3.exceptions.TimeoutError):
            return DeadlineExceeded(f"{where}: no answer within {request.timeout:g} s", sent=attempt.sent)
    for cause in causes:
        if isinstance(cause, OSError) and cause.errno is not None and cause.strerror:
            if isinstance(cause, FileNotFoundError | PermissionError | IsADirectoryError):
                return ConfigFault(f"{where}: a TLS file cannot be read ({cause.strerror})")
            return Unreachable(f"{where}: {cause.strerror.lower()}", sent=attempt.sent)
    if any(isinstance(cause, requests.exceptions.InvalidURL | requests.exceptions.InvalidSchema) for cause in causes):
        return ConfigFault(f"{where}: the URL is malformed")
    if any(isinstance(cause, OSError) and "CA certificate bundle" in str(cause) for cause in causes):
        return ConfigFault(f"{where}: the CA file {request.verify} cannot be read")
    if any(isinstance(cause, urllib3.exceptions.ProxyError) for cause in causes):
        return Unreachable(f"{where}: the proxy refused")
    return Unreachable(f"{where}: the connection broke ({type(causes[0]).__name__})", sent=attempt.sent)


def _causes(error: BaseException) -> list[BaseException]:
    """The chain of an exception, innermost first; urllib3 also hides causes in ``reason`` and ``args``."""
    seen: list[BaseException] = []
    queue: list[BaseException] = [error]
    while queue and len(seen) < 32:
        item = queue.pop(0)
        if any(item is known for known in seen):
            continue
        seen.append(item)
        inner = [item.__cause__, item.__context__, getattr(item, "reason", None), *item.args]
        queue += [cause for cause in inner if isinstance(cause, BaseException)]
    return seen[::-1]


def _tls_reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate not accepted: {error.verify_message}"
    return (error.reason or "handshake failure").replace("_", " ").lower()
