"""One HTTP exchange with a deadline over the whole of it: name, connect, handshake, send, every byte of the answer.

Time-outs per read are not enough: a server that drips a byte a second, or one whose handler hangs after the header,
would hold the thread for ever, and a wedged inference server does exactly that. So each wait is given what is left of
one total. Also bounded: the size of the answer, packed and unpacked. Redirects are not followed (the answer would come
from an address nobody configured), ``~/.netrc`` and proxy variables of the environment are not read, and a proxy is
never used for a loopback address.
"""

from __future__ import annotations

import base64
import http.client
import io
import ipaddress
import os
import socket
import ssl
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from agent import __version__
from agent.metrics.lookup import LookupFailed, Lookups
from agent.model import Secret

__all__ = ["Endpoint", "FetchError", "Reason", "Response", "Tls", "fetch", "printable"]

Reason = Literal["timeout", "refused", "http", "parse", "html", "tls", "redirect", "too_large", "config"]
"""Why an exchange failed; ``config``: a credential or certificate file of ours cannot be read."""

_BLOCK: Final = 65536


@dataclass(frozen=True, slots=True)
class Tls:
    """How the server's certificate is checked and which of ours it is shown; paths of PEM files."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    server_name: str = ""
    insecure_skip_verify: bool = False


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where and how to ask. ``timeout`` is seconds for the whole exchange, ``max_bytes`` bounds the unpacked answer.

    Secrets are read again at each use. Raises ValueError when ``url`` is not a plain ``http(s)://host[:port]/path``.
    """

    url: str
    timeout: float = 3.0
    max_bytes: int = 32 << 20
    tls: Tls = Tls()
    username: str = ""
    password: Secret | None = None
    bearer: Secret | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    proxy_url: str = ""

    def __post_init__(self) -> None:
        _split(self.url)
        if self.proxy_url and _split(self.proxy_url).scheme != "http":
            raise ValueError("the proxy's own address must be http://host:port")
        for name, value in self.headers.items():
            if not name.isascii() or any(char <= " " or char == ":" for char in name):
                raise ValueError(f"{printable(name)!r} is no name of an HTTP header")
            if any(char < " " or char > "~" for char in value):
                raise ValueError(f"the value of header {name} holds characters that no HTTP header can carry")


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer; ``partial`` when the connection ended before the length that was promised."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes
    partial: bool = False


class FetchError(Exception):
    """The exchange failed: ``reason`` is its class, ``text`` a sentence without any credential."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(f"{reason}: {text}")
        self.reason: Reason = reason
        self.text = text


def printable(text: str, limit: int = 120) -> str:
    """A piece of somebody else's text made safe to print: escapes shown, length bounded."""
    shown = text[:limit].encode("unicode_escape").decode("ascii")
    return f"{shown}..." if len(text) > limit else shown


@dataclass(frozen=True, slots=True)
class _Address:
    scheme: str
    host: str
    port: int
    target: str

    @property
    def host_and_port(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def authority(self) -> str:
        default = 443 if self.scheme == "https" else 80
        return self.host_and_port.removesuffix(f":{default}") if self.port == default else self.host_and_port


@lru_cache(maxsize=256)
def _split(url: str) -> _Address:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{printable(parts.scheme or url)!r} is no address of a page, write http://host:port/path")
    if parts.username or parts.password:
        raise ValueError("the address holds a user name or password; put them into basic_auth instead")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    target = parts.path or "/"
    if not target.isascii() or any(char <= " " for char in f"{target}{parts.query}") or not parts.query.isascii():
        raise ValueError("the address holds spaces or letters beyond ASCII; write them percent-encoded")
    return _Address(parts.scheme, parts.hostname, port, f"{target}?{parts.query}" if parts.query else target)


def fetch(
    endpoint: Endpoint,
    *,
    method: str = "GET",
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Response:
    """One exchange. Raises :class:`FetchError`; an answer of any status is a :class:`Response` (3xx included)."""
    address = _split(endpoint.url)
    deadline = clock() + endpoint.timeout
    sent = {
        "Host": address.authority,
        "User-Agent": f"wedgewatch/{__version__}",
        "Accept-Encoding": "gzip",
        "Connection": "close",
        **endpoint.headers,
        **(headers or {}),
        **_authorization(endpoint),
    }
    if body is not None:
        sent["Content-Length"] = str(len(body))
    wire: _Wire | None = None
    try:
        proxy = _split(endpoint.proxy_url) if endpoint.proxy_url and not _is_loopback(address.host) else None
        near = proxy or address
        wire = _Wire(_connect(near.host, near.port, deadline, clock), deadline, clock)
        target = address.target
        if proxy is not None and address.scheme == "https":
            _tunnel(wire, address)
        elif proxy is not None:
            target = f"http://{address.authority}{address.target}"
        if address.scheme == "https":
            wire.secure(_context(endpoint.tls), endpoint.tls.server_name or address.host)
        return _exchange(wire, method, target, sent, body, endpoint.max_bytes)
    except TimeoutError:
        phase = wire.phase if wire is not None else "no connection yet"
        raise FetchError("timeout", f"no whole answer within {endpoint.timeout:g} s ({phase})") from None
    except ssl.SSLCertVerificationError as error:
        raise FetchError("tls", f"the certificate is not accepted: {printable(error.verify_message)}") from None
    except ssl.SSLError as error:
        raise FetchError("tls", f"no TLS connection: {printable(error.reason or str(error))}") from None
    except http.client.HTTPException as error:
        raise FetchError("http", f"the answer is no HTTP: {type(error).__name__} {printable(str(error))}") from None
    except OSError as error:
        if wire is not None and wire.handshaking:
            raise FetchError("tls", f"the connection ended in the TLS handshake: {error.strerror or error}") from None
        raise FetchError("refused", f"{near.host}:{near.port}: {printable(error.strerror or str(error))}") from None
    finally:
        if wire is not None:
            wire.hang_up()


def _authorization(endpoint: Endpoint) -> dict[str, str]:
    try:
        if endpoint.bearer is not None:
            value = f"Bearer {endpoint.bearer.reveal()}"
        elif endpoint.username or endpoint.password is not None:
            word = endpoint.password.reveal() if endpoint.password is not None else ""
            value = "Basic " + base64.b64encode(f"{endpoint.username}:{word}".encode()).decode("ascii")
        else:
            return {}
    except OSError as error:
        raise FetchError("config", f"the credential cannot be read: {error.strerror or 'unreadable'}") from None
    except UnicodeDecodeError:
        raise FetchError("config", "the credential cannot be read: its file is no text") from None
    if any(char < " " or char > "~" for char in value):
        raise FetchError("config", "the credential holds characters that no HTTP header can carry")
    return {"Authorization": value}


def _exchange(
    wire: _Wire, method: str, target: str, headers: Mapping[str, str], body: bytes | None, max_bytes: int
) -> Response:
    connection = http.client.HTTPConnection("unused")
    connection.sock = wire
    connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders(body)
    wire.phase = "connected and asked, no answer"
    response = connection.getresponse()
    try:
        wire.phase = "the answer has begun"
        data, partial = _body(response, wire, max_bytes)
        return Response(
            response.status,
            response.reason,
            {name.lower(): value for name, value in response.getheaders()},
            data,
            partial,
        )
    finally:
        response.close()


def _body(response: http.client.HTTPResponse, wire: _Wire, max_bytes: int) -> tuple[bytes, bool]:
    coding = (response.getheader("Content-Encoding") or "identity").strip().lower()
    if coding not in ("identity", "gzip", "x-gzip"):
        raise FetchError("http", f"the answer is encoded as {printable(coding)!r}, which was not asked for")
    unpacker = None if coding == "identity" else zlib.decompressobj(16 + zlib.MAX_WBITS)
    pieces: list[bytes] = []
    size = 0
    partial = False
    while True:
        try:
            block = response.read1(_BLOCK)
        except http.client.IncompleteRead as error:
            block, partial = error.partial, True
        except ConnectionError:
            block, partial = b"", True
        last = partial or not block
        if not block and response.length:
            partial = True  # http.client does not raise when the promised length is not reached
        if unpacker is not None and block:
            try:
                # one byte more than allowed is enough to know; a bomb is never unpacked further
                block = unpacker.decompress(block, max_bytes - size + 1)
            except zlib.error:
                raise FetchError("http", "the answer says gzip and cannot be unpacked") from None
        size += len(block)
        if size > max_bytes:
            raise FetchError("too_large", f"the page is larger than {max_bytes} bytes")
        pieces.append(block)
        wire.phase = f"{size} bytes of the answer read"
        if last:
            break
    if unpacker is not None and not unpacker.eof and size:
        partial = True
    return b"".join(pieces), partial


class _Wire:
    """A connected socket on which every wait ends at the deadline; looks enough like a socket for ``http.client``."""

    def __init__(self, sock: socket.socket, deadline: float, clock: Callable[[], float]) -> None:
        self._sock = sock
        self._deadline = deadline
        self._clock = clock
        self.phase = "connected"
        self.handshaking = False

    def _arm(self) -> None:
        left = self._deadline - self._clock()
        if left <= 0:
            raise TimeoutError
        self._sock.settimeout(left)

    def secure(self, context: ssl.SSLContext, name: str) -> None:
        self.phase, self.handshaking = "in the TLS handshake", True
        self._arm()
        self._sock = context.wrap_socket(self._sock, server_hostname=name)
        self.phase, self.handshaking = "connected", False

    def sendall(self, data: Any) -> None:
        self._arm()
        self._sock.sendall(data)

    def receive(self, buffer: Any) -> int:
        self._arm()
        return self._sock.recv_into(buffer)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_WireReader(self))

    def close(self) -> None:
        """Does nothing: ``http.client`` closes its socket before the answer is read when the server says "close"."""

    def hang_up(self) -> None:
        self._sock.close()


class _WireReader(io.RawIOBase):
    def __init__(self, wire: _Wire) -> None:
        super().__init__()
        self._wire = wire

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._wire.receive(buffer)


def _tunnel(wire: _Wire, address: _Address) -> None:
    """Asks the proxy for a tunnel (RFC 9110, section 9.3.6)."""
    host = address.host_and_port
    wire.phase = "waiting for the proxy"
    wire.sendall(f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode("ascii"))
    answer = bytearray()
    byte = bytearray(1)
    while not answer.endswith(b"\r\n\r\n"):  # byte by byte: what follows belongs to TLS
        if len(answer) > _BLOCK or not wire.receive(byte):
            raise FetchError("refused", "the proxy gives no usable answer")
        answer += byte
    status = bytes(answer).split(b"\r\n", 1)[0].split(b" ", 2)
    if len(status) < 2 or status[1] != b"200":
        line = b" ".join(status).decode("latin-1")
        raise FetchError("refused", f"the proxy refuses the tunnel: {printable(line)}")


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


_LOOKUPS: Final = Lookups()


def _connect(host: str, port: int, deadline: float, clock: Callable[[], float]) -> socket.socket:
    """A connection to the first address of ``host`` that takes one; each gets its share of the time that is left."""
    try:
        addresses = _LOOKUPS.resolve(host, port, deadline - clock())
    except LookupFailed as error:
        raise FetchError("refused", f"the name {printable(host)!r} cannot be resolved: {error}") from None
    failure: OSError = TimeoutError()
    for index, (family, kind, protocol, _, where) in enumerate(addresses):
        left = deadline - clock()
        if left <= 0:
            raise TimeoutError
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(left / (len(addresses) - index))
            sock.connect(where)
        except OSError as error:
            sock.close()
            failure = error
        else:
            return sock
    raise failure


def _context(tls: Tls) -> ssl.SSLContext:
    """The TLS context; built again when one of its files has changed (certificates rotate)."""
    return _build_context(tls, tuple(map(_changed, (tls.ca_file, tls.cert_file, tls.key_file))))


def _changed(path: str) -> float:
    if not path:
        return 0.0
    try:
        return os.stat(path).st_mtime
    except OSError as error:
        raise FetchError("config", f"{path}: cannot be read ({error.strerror})") from None


@lru_cache(maxsize=64)
def _build_context(tls: Tls, _changed_at: tuple[float, ...]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=tls.ca_file or None)
        if tls.insecure_skip_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if tls.cert_file:
            context.load_cert_chain(tls.cert_file, tls.key_file or None)
    except (OSError, ssl.SSLError) as error:
        raise FetchError("config", f"the TLS files cannot be used: {printable(str(error))}") from None
    return context
