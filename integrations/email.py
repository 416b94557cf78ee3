"""Mail by SMTP, STARTTLS by default; all mails of a page are one conversation.

The first has a Message-ID made of the page's key, later ones refer to it. A subject is one line whatever a log line in
it says: a line break there would let it write headers.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import smtplib
import socket
import ssl
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.utils import formatdate
from typing import Any, Final

from agent.model import Secret
from agent.redact import redact
from integrations.base import (
    ConfigFault,
    DeadlineExceeded,
    DeliveryError,
    Notification,
    Outcome,
    ReceiverOptions,
    TlsFailed,
    Traits,
    Unreachable,
)
from integrations.http import TlsConfig, reveal
from integrations.message import build, fit
from integrations.picture import FILE_NAME, draw_for
from integrations.plain import render_plain
from integrations.text import clip, one_line

__all__ = ["EmailConfig", "EmailReceiver"]

_BODY_BYTES: Final = 256 * 1024


@dataclass(frozen=True, kw_only=True)
class EmailConfig(ReceiverOptions):
    """Alertmanager's ``email_config``: https://prometheus.io/docs/alerting/latest/configuration/#email_config."""

    to: str = field(metadata={"doc": "addresses, with commas", "nonempty": True})
    from_: str = field(metadata={"name": "from", "doc": "sender", "nonempty": True})
    smarthost: str = field(metadata={"doc": "host:port of the mail server; port 465 is TLS from the start"})
    hello: str = field(default="", metadata={"doc": "name given to the server; default: this machine's"})
    auth_username: str = ""
    auth_password: Secret | None = None
    require_tls: bool = field(default=True, metadata={"doc": "refuse to send without STARTTLS"})
    tls_config: TlsConfig = field(default_factory=TlsConfig)
    picture: bool = field(default=False, metadata={"doc": "attach a small picture of the course around the onset"})

    def check(self) -> Iterable[tuple[str, str]]:
        host, _, port = self.smarthost.rpartition(":")
        if not host or not port.isdigit():
            yield (
                "smarthost",
                f"'{self.smarthost[:60]}' is no address, write host:port, as in smtp.example.com:587",
            )
        if bool(self.auth_username) != (self.auth_password is not None):
            yield "auth_username", "auth_username and auth_password go together, give both"
        for name in ("to", "from_"):
            if any("@" not in part for part in getattr(self, name).split(",")):
                yield name, f"'{getattr(self, name)[:60]}' is no mail address"


class EmailReceiver:
    """Sends one mail for each change."""

    kind = "email"
    traits = Traits()

    def __init__(self, config: EmailConfig) -> None:
        self._config = config

    def notify(self, notification: Notification) -> Outcome:
        try:
            return self._send(self._mail(notification))
        except DeliveryError as error:
            return Outcome.from_error(error)

    def _mail(self, notification: Notification) -> EmailMessage:
        config = self._config
        message = build(notification, config)
        text: str = fit(
            message,
            render_plain,
            lambda made: len(made.encode("utf-8", "replace")) <= _BODY_BYTES,
            notification.degraded * 3,
        )
        mail = EmailMessage()
        mail["Subject"] = clip(one_line(message.headline), 200)
        mail["From"] = one_line(config.from_)
        mail["To"] = one_line(config.to)
        mail["Date"] = formatdate(notification.now)
        thread = hashlib.sha256(notification.key.encode("utf-8", "replace")).hexdigest()[:32]
        first = f"<{thread}@wedgewatch.invalid>"
        if notification.action == "open":
            mail["Message-ID"] = first
        else:
            mail["Message-ID"] = f"<{thread}.{notification.seq}@wedgewatch.invalid>"
            mail["In-Reply-To"] = first
            mail["References"] = first
        mail["Auto-Submitted"] = "auto-generated"
        mail["X-Wedgewatch-Key"] = clip(one_line(notification.key).encode("ascii", "replace").decode(), 200)
        mail.set_content(text)
        picture = draw_for(notification) if config.picture else None
        if picture is not None:
            mail.add_attachment(picture, maintype="image", subtype="png", filename=FILE_NAME)
        return mail

    def _send(self, mail: EmailMessage) -> Outcome:
        config = self._config
        host, _, port = config.smarthost.rpartition(":")
        where = f"smtp://{host}:{port}"
        deadline = _Deadline(config.timeout)
        try:
            with deadline, self._session(host.strip("[]"), int(port), deadline) as session:
                if config.auth_password is not None:
                    session.login(config.auth_username, reveal(config.auth_password, "auth_password"))
                deadline.sending = True
                refused = session.send_message(mail)
            detail = f"{len(refused)} of the recipients refused" if refused else ""
            return Outcome.success(detail)
        except (smtplib.SMTPException, OSError, ValueError) as error:
            if deadline.expired:
                raise self._described(error, where, deadline) from None
            outcome = _refusal(error, where)
            if outcome is None:
                raise self._described(error, where, deadline) from None
            return outcome

    def _session(self, host: str, port: int, deadline: _Deadline) -> smtplib.SMTP:
        config = self._config
        context = self._context()
        name = config.hello or None
        session: smtplib.SMTP
        if port == 465:
            session = _SmtpTls(deadline, host, port, local_hostname=name, timeout=config.timeout, context=context)
        else:
            session = _Smtp(deadline, host, port, local_hostname=name, timeout=config.timeout)
            try:
                session.ehlo()
                if session.has_extn("starttls"):
                    session.starttls(context=context)
                    session.ehlo()
                elif config.require_tls:
                    raise ConfigFault(
                        f"smtp://{host}:{port}: offers no STARTTLS; set require_tls: false to send in the clear"
                    )
            except BaseException:
                session.close()
                raise
        return session

    def _context(self) -> ssl.SSLContext:
        tls = self._config.tls_config
        ca = tls.ca_file or os.environ.get("SSL_CERT_FILE")
        try:
            context = ssl.create_default_context(cafile=ca or None)
            if tls.cert_file:
                context.load_cert_chain(tls.cert_file, tls.key_file)
        except OSError as error:
            raise ConfigFault(f"a TLS file cannot be read ({error.strerror or type(error).__name__})") from None
        if tls.insecure_skip_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def _described(self, error: Exception, where: str, deadline: _Deadline) -> DeliveryError:
        if deadline.expired or isinstance(error, TimeoutError):
            return DeadlineExceeded(f"{where}: not done within {self._config.timeout:g} s", sent=deadline.sending)
        if isinstance(error, ssl.SSLError):
            reason = getattr(error, "verify_message", "") or error.reason or "handshake failure"
            return TlsFailed(f"{where}: TLS failed ({reason}); set tls_config.ca_file for a private CA")
        if isinstance(error, socket.gaierror):
            return Unreachable(f"{where}: the name cannot be resolved")
        if isinstance(error, OSError) and error.strerror:
            return Unreachable(f"{where}: {error.strerror.lower()}", sent=deadline.sending)
        return Unreachable(f"{where}: the session broke ({type(error).__name__})", sent=deadline.sending)


def _refusal(error: Exception, where: str) -> Outcome | None:
    """The class of what the server said; None when it said nothing."""
    if isinstance(error, smtplib.SMTPAuthenticationError):
        return Outcome.permanent(f"{where}: login refused ({error.smtp_code})", reason="auth")
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        codes = [code for code, _ in error.recipients.values()]
        text = f"{where}: every recipient refused ({', '.join(map(str, codes))})"
        passing = bool(codes) and all(400 <= code < 500 for code in codes)
        return Outcome.retry(text, reason="server") if passing else Outcome.permanent(text)
    if isinstance(error, smtplib.SMTPNotSupportedError):
        return Outcome.permanent(f"{where}: {redact(one_line(str(error)))[:120]}", reason="config")
    if isinstance(error, smtplib.SMTPResponseException):
        text = f"{where}: {error.smtp_code} {redact(one_line(_decoded(error.smtp_error)))[:120]}"
        if error.smtp_code in {552, 554}:
            return Outcome.degrade(text)
        return Outcome.permanent(text) if error.smtp_code >= 500 else Outcome.retry(text, reason="server")
    return None


class _Deadline:
    """Shuts the connection when the time of the whole session is up."""

    def __init__(self, seconds: float) -> None:
        self.expired = False
        self.sending = False
        self._sockets: list[socket.socket] = []
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True

    def watch(self, connection: socket.socket) -> None:
        self._sockets.append(socket.socket(fileno=os.dup(connection.fileno())))
        if self.expired:
            self._cut()

    def _cut(self) -> None:
        self.expired = True
        for connection in self._sockets:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> _Deadline:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        for connection in self._sockets:
            connection.close()
        self._sockets.clear()


class _Smtp(smtplib.SMTP):
    def __init__(self, deadline: _Deadline, host: str, port: int, **options: Any) -> None:
        self._deadline = deadline
        super().__init__(host, port, **options)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        connection = socket.create_connection((host, port), timeout)
        self._deadline.watch(connection)
        return connection


class _SmtpTls(smtplib.SMTP_SSL):
    def __init__(self, deadline: _Deadline, host: str, port: int, **options: Any) -> None:
        self._deadline = deadline
        super().__init__(host, port, **options)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        connection = socket.create_connection((host, port), timeout)
        self._deadline.watch(connection)
        return self.context.wrap_socket(connection, server_hostname=host)


def _decoded(text: bytes | str) -> str:
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text
