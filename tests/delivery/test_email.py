"""Mail, through a real SMTP server."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from email import message_from_bytes, policy
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword

from agent.model import Secret
from integrations.email import EmailConfig, EmailReceiver
from integrations.http import TlsConfig
from tests.delivery.build import T, alert, notification, resolved

# aiosmtpd warns about its own defaults
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:aiosmtpd")


class Mailbox:
    """What a server does with a session: ``refuse`` maps a command to an answer."""

    def __init__(self) -> None:
        self.mails: list[Message] = []
        self.refuse: dict[str, str] = {}

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        if "RCPT" in self.refuse:
            return self.refuse["RCPT"]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        if "DATA" in self.refuse:
            return self.refuse["DATA"]
        self.mails.append(message_from_bytes(envelope.content, policy=policy.default))
        return "250 OK"


def check_login(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
    good = isinstance(data, LoginPassword) and data.password == b"s3cr3t"
    return AuthResult(success=good, handled=False) if not good else AuthResult(success=True)


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def box() -> Mailbox:
    return Mailbox()


@pytest.fixture
def plain(box: Mailbox) -> Iterator[int]:
    controller = Controller(box, hostname="127.0.0.1", port=0)
    yield from _run(controller)


@pytest.fixture
def starttls(box: Mailbox, ca: trustme.CA) -> Iterator[int]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ca.issue_cert("127.0.0.1", "localhost").configure_cert(context)
    controller = Controller(
        box, hostname="127.0.0.1", port=0, tls_context=context, require_starttls=True, authenticator=check_login
    )
    yield from _run(controller)


def _run(controller: Controller) -> Iterator[int]:
    def first_contact() -> None:
        # the controller would knock at port 0, which is what it was given
        with socket.create_connection(("127.0.0.1", controller.server.sockets[0].getsockname()[1])) as knock:
            knock.recv(1024)

    controller._trigger_server = first_contact
    controller.start()
    yield controller.server.sockets[0].getsockname()[1]
    controller.stop()


def receiver(port: int, **options: Any) -> EmailReceiver:
    base: dict[str, Any] = {"to": "a@example.com, b@example.com", "from_": "w@example.com", "timeout": 5.0}
    return EmailReceiver(EmailConfig(smarthost=f"127.0.0.1:{port}", **{**base, **options}))


def trusting(ca: trustme.CA, tmp_path: Path) -> TlsConfig:
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return TlsConfig(ca_file=str(tmp_path / "ca.pem"))


def test_a_page_is_one_conversation(plain: int, box: Mailbox) -> None:
    mailer = receiver(plain, require_tls=False)
    assert mailer.notify(notification()).kind == "success"
    over = resolved(alert(), T + 900)
    assert mailer.notify(notification(over, action="resolve", seq=2)).kind == "success"
    first, second = box.mails
    assert first["Subject"] == "[FIRING] trtllm-0: scheduler deadlocked, no completions for 2m10s (214 waiting)"
    assert second["Subject"].startswith("[RESOLVED] trtllm-0: recovered after 17m")
    assert second["In-Reply-To"] == first["Message-ID"]
    assert second["Message-ID"] != first["Message-ID"]
    assert first["To"] == "a@example.com, b@example.com"
    text = first.get_payload(decode=True)
    assert isinstance(text, bytes)
    assert "AssertionError: total_num_tokens (9001)" in text.decode()
    assert first.get_content_type() == "text/plain"


def test_hostile_text_writes_no_header_and_no_second_message(plain: int, box: Mailbox) -> None:
    loud = alert("x\r\nBcc: evil@example.com", annotations={"summary": "a\r\n.\r\nMAIL FROM:<evil@example.com>\r\n"})
    assert receiver(plain, require_tls=False).notify(notification(loud)).kind == "success"
    (mail,) = box.mails
    assert mail["Bcc"] is None
    assert "evil" in str(mail["Subject"])


def test_starttls_and_login(starttls: int, box: Mailbox, ca: trustme.CA, tmp_path: Path) -> None:
    tls = trusting(ca, tmp_path)
    good = receiver(starttls, auth_username="u", auth_password=Secret("s3cr3t"), tls_config=tls)
    assert good.notify(notification()).kind == "success"
    assert len(box.mails) == 1
    bad = receiver(starttls, auth_username="u", auth_password=Secret("wrong"), tls_config=tls).notify(notification())
    assert (bad.kind, bad.reason) == ("permanent", "auth")
    assert "wrong" not in bad.detail
    untrusted = receiver(starttls, auth_username="u", auth_password=Secret("s3cr3t")).notify(notification())
    assert (untrusted.kind, untrusted.reason) == ("retry", "tls")
    assert "tls_config.ca_file" in untrusted.detail


def test_without_tls_nothing_is_sent_in_the_clear(plain: int, box: Mailbox) -> None:
    outcome = receiver(plain).notify(notification())
    assert (outcome.kind, outcome.reason) == ("permanent", "config")
    assert "require_tls" in outcome.detail
    assert box.mails == []


@pytest.mark.parametrize(
    ("command", "answer", "kind"),
    [
        ("RCPT", "550 no such user", "permanent"),
        ("RCPT", "450 later", "retry"),
        ("DATA", "451 later token=abc123", "retry"),
        ("DATA", "552 too large", "degrade"),
        ("DATA", "554 refused", "degrade"),
        ("DATA", "550 refused", "permanent"),
    ],
)
def test_answers(command: str, answer: str, kind: str, plain: int, box: Mailbox) -> None:
    box.refuse[command] = answer
    outcome = receiver(plain, require_tls=False).notify(notification())
    assert outcome.kind == kind
    assert "abc123" not in outcome.detail


def test_nobody_there_and_nobody_answering() -> None:
    refused = receiver(9, require_tls=False).notify(notification())
    assert (refused.kind, refused.reason) == ("retry", "network")
    listener = socket.create_server(("127.0.0.1", 0))
    with listener:
        silent = receiver(listener.getsockname()[1], require_tls=False, timeout=0.3).notify(notification())
    assert (silent.kind, silent.reason) == ("retry", "timeout")


def test_a_dripping_server_ends_with_the_deadline() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def drip() -> None:
        connection, _ = listener.accept()
        with connection:
            while not stop.wait(0.02):
                try:
                    connection.send(b"2")
                except OSError:
                    return

    thread = threading.Thread(target=drip, daemon=True)
    thread.start()
    with listener:
        outcome = receiver(listener.getsockname()[1], require_tls=False, timeout=0.3).notify(notification())
        stop.set()
        thread.join(5)
    assert (outcome.kind, outcome.reason) == ("retry", "timeout")


def test_configuration_is_checked() -> None:
    assert list(EmailConfig(to="a@x", from_="b@x", smarthost="h:25").check()) == []
    wrong = EmailConfig(to="nobody", from_="b@x", smarthost="host", auth_username="u")
    assert [path for path, _ in wrong.check()] == ["smarthost", "auth_username", "to"]
