"""The one HTTP layer: everything that leaves this process by HTTP goes through :class:`HttpClient`.

What it promises, because each of these has cost somebody a page:

- an attempt ends within its total time, name lookup, handshake and a dripping answer included (a library's ``timeout``
  is per read: a peer that sends a byte a second holds it for ever);
- redirects are not followed (a 302 to a login page is not success), answers are read up to a bound;
- neither ``.netrc`` nor the environment changes a request behind our back; proxies are used when asked for, never for
  loopback;
- no error text holds a path, a query, a header or any other place where a credential could stand.

``requests`` is imported when the first request is made, not before.
"""

from __future__ import annotations

import email.utils
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from agent import __version__
from agent.model import Secret
from agent.redact import redact
from integrations.base import ConfigFault
from integrations.proxies import ProxyRules

__all__ = [
    "BODY_LIMIT",
    "Authorization",
    "BasicAuth",
    "HttpClient",
    "HttpConfig",
    "HttpHeader",
    "HttpResponse",
    "TlsConfig",
    "origin",
    "parse_retry_after",
    "reveal",
]

BODY_LIMIT: Final = 64 * 1024
RETRY_AFTER_MIN: Final = 1.0
RETRY_AFTER_MAX: Final = 300.0
USER_AGENT: Final = f"wedgewatch/{__version__}"


@dataclass(frozen=True, kw_only=True)
class BasicAuth:
    """User name and password of HTTP Basic."""

    username: str = ""
    password: Secret | None = None


@dataclass(frozen=True, kw_only=True)
class Authorization:
    """The Authorization header: ``type`` and ``credentials``."""

    type: str = "Bearer"
    credentials: Secret | None = None


@dataclass(frozen=True, kw_only=True)
class TlsConfig:
    """How the peer's certificate is checked, and the certificate we show."""

    ca_file: str = field(default="", metadata={"doc": "CA bundle (PEM) instead of the usual one"})
    cert_file: str = field(default="", metadata={"doc": "our certificate (PEM), with key_file"})
    key_file: str = ""
    server_name: str = field(default="", metadata={"doc": "name expected in the certificate"})
    insecure_skip_verify: bool = False

    def check(self) -> Iterable[tuple[str, str]]:
        if bool(self.cert_file) != bool(self.key_file):
            missing = "key_file" if self.cert_file else "cert_file"
            yield missing, "cert_file and key_file go together, give both"
        for name in ("ca_file", "cert_file", "key_file"):
            path = getattr(self, name)
            if path and not os.path.isfile(path):
                yield name, f"no such file: {path}"


@dataclass(frozen=True, kw_only=True)
class HttpHeader:
    """Values of one extra header; ``secrets`` are shown nowhere, ``files`` are read at each request."""

    values: tuple[str, ...] = ()
    secrets: tuple[Secret, ...] = ()
    files: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class HttpConfig:
    """Alertmanager's ``http_config``: https://prometheus.io/docs/alerting/latest/configuration/#http_config."""

    basic_auth: BasicAuth | None = None
    authorization: Authorization | None = None
    proxy_url: Secret | None = field(default=None, metadata={"doc": "proxy for http and https, may hold user:password"})
    proxy_from_environment: bool = field(
        default=False, metadata={"doc": "take HTTP_PROXY, HTTPS_PROXY and NO_PROXY from the environment"}
    )
    no_proxy: str = field(default="", metadata={"doc": "names, suffixes and CIDR blocks that go direct, with commas"})
    tls_config: TlsConfig = field(default_factory=TlsConfig)
    http_headers: Mapping[str, HttpHeader] = field(default_factory=dict)

    def check(self) -> Iterable[tuple[str, str]]:
        if self.basic_auth is not None and self.authorization is not None:
            yield "authorization", "give either basic_auth or authorization, not both"
        if self.proxy_url is not None and self.proxy_from_environment:
            yield "proxy_url", "give either proxy_url or proxy_from_environment, not both"
        for name in self.http_headers:
            if name.lower() in {"authorization", "host", "content-length", "content-type"}:
                yield f"http_headers.{name}", f"{name} is set by wedgewatch, use authorization for credentials"


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An answer. ``body`` is its beginning; ``complete`` is false when time or bound cut it off. Header names are
    lower case. ``skew`` is the peer's clock less ours in seconds, None without a usable Date."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    complete: bool = True
    elapsed: float = 0.0
    skew: float | None = None

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    def text(self, limit: int = 256) -> str:
        """The beginning of the body as one safe line."""
        from integrations.text import clip, one_line

        return clip(redact(one_line(self.body[: limit * 4].decode("utf-8", "replace"))), limit)

    def json(self) -> Any:
        """The body as JSON, None when it is none."""
        import json

        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    def retry_after(self, now: float | None = None) -> float | None:
        return parse_retry_after(self.headers.get("retry-after"), now)


class HttpClient:
    """Requests with one configuration. Stateless between requests and thread-safe: a connection serves one request.

    Raises :class:`~integrations.base.DeliveryError` (and nothing else) where there is no answer.
    """

    def __init__(self, config: HttpConfig | None = None, *, clock: Any = time.time) -> None:
        self._config = config or HttpConfig()
        self._clock = clock

    def request(
        self,
        method: str,
        url: str,
        *,
        timeout: float,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        body_limit: int = BODY_LIMIT,
    ) -> HttpResponse:
        """One request within ``timeout`` seconds in all.

        Raises Unreachable, TlsFailed, DeadlineExceeded, Redirected (a 3xx answer) or ConfigFault.
        """
        where = origin(url)
        if not where:
            raise ConfigFault("the URL is not an http(s) URL with a host")
        from integrations import transport  # brings in requests

        sent = {"User-Agent": USER_AGENT, "Accept": "*/*", "Accept-Encoding": "identity", "Connection": "close"}
        sent.update(self._extra_headers())
        sent.update(headers or {})
        for name, value in sent.items():
            if "\n" in value or "\r" in value:
                raise ConfigFault(f"the value of header {name} holds a line break")
        return transport.send(
            transport.Request(
                method=method,
                url=url,
                where=where,
                headers=sent,
                body=body,
                timeout=timeout,
                body_limit=body_limit,
                proxies=self._proxies(url),
                verify=self._verify(),
                certificate=self._certificate(),
                server_name=self._config.tls_config.server_name,
            ),
            self._clock,
        )

    def post_json(
        self, url: str, value: Any, *, timeout: float, headers: Mapping[str, str] | None = None
    ) -> HttpResponse:
        """POST of a JSON value."""
        return self.request(
            "POST",
            url,
            timeout=timeout,
            body=encode_json(value),
            headers={"Content-Type": "application/json", **(headers or {})},
        )

    def _extra_headers(self) -> Iterator[tuple[str, str]]:
        config = self._config
        for name, header in config.http_headers.items():
            values = [*header.values, *(reveal(secret, f"header {name}") for secret in header.secrets)]
            values += [reveal(Secret(path=path), f"header {name}") for path in header.files]
            if values:
                yield name, ", ".join(values)
        if config.basic_auth is not None:
            import base64

            auth = config.basic_auth
            password = reveal(auth.password, "basic_auth password") if auth.password is not None else ""
            yield "Authorization", "Basic " + base64.b64encode(f"{auth.username}:{password}".encode()).decode()
        if config.authorization is not None and config.authorization.credentials is not None:
            credentials = reveal(config.authorization.credentials, "authorization credentials")
            yield "Authorization", f"{config.authorization.type} {credentials}"

    def _proxies(self, url: str) -> dict[str, str]:
        config = self._config
        if config.proxy_url is not None:
            rules = ProxyRules(reveal(config.proxy_url, "proxy_url"), config.no_proxy)
        elif config.proxy_from_environment:
            rules = ProxyRules.from_environment(urlsplit(url).scheme, config.no_proxy)
        else:
            return {}
        chosen = rules.proxy_for(url)
        return {"http": chosen, "https": chosen} if chosen else {}

    def _verify(self) -> bool | str:
        tls = self._config.tls_config
        if tls.insecure_skip_verify:
            return False
        # requests ignores SSL_CERT_FILE, which everything built on OpenSSL honours.
        return tls.ca_file or os.environ.get("SSL_CERT_FILE") or os.environ.get("REQUESTS_CA_BUNDLE") or True

    def _certificate(self) -> tuple[str, str] | None:
        tls = self._config.tls_config
        return (tls.cert_file, tls.key_file) if tls.cert_file else None


def encode_json(value: Any) -> bytes:
    """JSON as UTF-8 bytes; what cannot be encoded (NaN, lone surrogates) is replaced, never an error at send time."""
    import json

    return json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def reveal(secret: Secret, what: str) -> str:
    """A secret's text for one request. Raises ConfigFault that names ``what`` and the reason, never the text."""
    try:
        text = secret.reveal().strip()
    except OSError as error:
        raise ConfigFault(f"{what}: its file cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise ConfigFault(f"{what}: its file is no text") from None
    if not text:
        raise ConfigFault(f"{what}: its file is empty")
    return text


def origin(url: str) -> str:
    """``https://host:port`` of a URL: what may be said of it. Empty when it is no http(s) URL."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return ""
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        return ""
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port}" if port else f"{parts.scheme}://{host}"


def parse_retry_after(value: str | float | None, now: float | None = None) -> float | None:
    """Seconds to wait, within 1..300; None when the value says nothing usable.

    Takes seconds (``3``, ``1.5``) and HTTP dates; negative numbers, words, and numbers beyond all sense are None, so
    that the caller's own backoff applies. https://www.rfc-editor.org/rfc/rfc9110#field.retry-after
    """
    if value is None or isinstance(value, bool):
        return None
    text = str(value).strip()
    if not text or len(text) > 64:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            moment = email.utils.parsedate_to_datetime(text)
            seconds = moment.timestamp() - (time.time() if now is None else now)
        except (ValueError, TypeError, OverflowError, IndexError):
            return None
        return min(max(seconds, RETRY_AFTER_MIN), RETRY_AFTER_MAX)
    if not math.isfinite(seconds) or seconds < 0:
        return None
    return min(max(seconds, RETRY_AFTER_MIN), RETRY_AFTER_MAX)
