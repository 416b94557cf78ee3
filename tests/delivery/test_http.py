"""The one HTTP layer, against real sockets: deadlines, redirects, TLS, proxies, what errors say and what they hide."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trustme

from agent.model import Secret
from integrations.base import ConfigFault, DeadlineExceeded, DeliveryError, Outcome, TlsFailed, Unreachable
from integrations.http import (
    Authorization,
    BasicAuth,
    HttpClient,
    HttpConfig,
    HttpHeader,
    TlsConfig,
    encode_json,
    origin,
)
from integrations.local_receiver import Reply
from integrations.proxies import ProxyRules
from tests.fakes import server as faults
from tests.fakes.server import FakeService


def post(url: str, config: HttpConfig | None = None, *, timeout: float = 5.0):  # type: ignore[no-untyped-def]
    return HttpClient(config).request("POST", url, timeout=timeout, body=b"{}")


# -- answers ------------------------------------------------------------------------------------------------------


def test_an_answer_has_status_headers_body_and_the_peers_clock() -> None:
    with FakeService(Reply(200, b"hello", {"Retry-After": "7"})) as service:
        answer = post(service.url + "/x")
        assert (answer.status, answer.ok, answer.body, answer.complete) == (200, True, b"hello", True)
        assert answer.retry_after() == 7.0
        assert answer.skew is not None
        assert abs(answer.skew) < 5
        assert answer.json() is None
        sent = service.attempts[0][2]
        assert sent["User-Agent"].startswith("wedgewatch/")
        assert sent["Connection"] == "close"


@pytest.mark.parametrize("behaviour", [faults.reset, faults.not_http], ids=["reset", "not http"])
def test_a_broken_answer_is_unreachable_and_may_have_arrived(behaviour: faults.Behaviour) -> None:
    with FakeService(behaviour) as service:
        with pytest.raises(Unreachable) as caught:
            post(service.url + "/secret/path?token=abc")
        assert caught.value.sent
        assert Outcome.from_error(caught.value).uncertain
        assert "127.0.0.1" in str(caught.value)
        assert "secret" not in str(caught.value)


def test_nobody_listening_has_not_arrived() -> None:
    with pytest.raises(Unreachable, match="connection refused") as caught:
        post("http://127.0.0.1:9/x")
    assert not caught.value.sent


def test_a_name_that_does_not_exist_is_said() -> None:
    with pytest.raises(Unreachable, match="the name cannot be resolved"):
        post("http://no-such-host.invalid/x")


def test_a_name_lookup_that_hangs_ends_with_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The resolver cannot be interrupted; the attempt goes on without it."""
    from integrations import transport

    let_go = threading.Event()
    real = socket.getaddrinfo

    def slow(host: str, *args: object) -> object:
        if host == "slow.example" and len(args) == 3:
            let_go.wait(30)
        return real(host, *args)  # type: ignore[call-overload]

    monkeypatch.setattr(transport.socket, "getaddrinfo", slow)
    with pytest.raises(DeadlineExceeded, match=r"http://slow\.example"):
        post("http://slow.example/x", timeout=0.2)
    let_go.set()


@pytest.mark.parametrize(
    "url", ["", "ftp://x/y", "http://", "http://[::1", "http://x:port/", "javascript:1", "http://a b/", "//x/y"]
)
def test_what_is_no_url_is_a_fault_of_configuration(url: str) -> None:
    with pytest.raises(ConfigFault):
        post(url)


def test_a_status_of_204_without_a_body_is_fine() -> None:
    with FakeService(Reply(204)) as service:
        assert post(service.url + "/x").ok


def test_the_origin_is_all_that_is_said_of_a_url() -> None:
    assert origin("https://user:pw@host.example:8443/secret?x=y#z") == "https://host.example:8443"
    assert origin("http://[::1]:80/x") == "http://[::1]:80"
    assert origin("nonsense") == ""


def test_json_is_always_encodable() -> None:
    assert (
        encode_json({"a": float("nan"), "b": [float("inf"), "\ud800"], 3: (1,)}) == b'{"a":null,"b":[null,"?"],"3":[1]}'
    )


# -- credentials --------------------------------------------------------------------------------------------------


def test_credentials_and_headers_are_sent(tmp_path: Path) -> None:
    extra = tmp_path / "tenant"
    extra.write_text("team-a\n")
    headers = {
        "X-Api-Key": HttpHeader(secrets=(Secret("k1"),)),
        "X-Scope-OrgID": HttpHeader(files=(str(extra),)),
        "X-Many": HttpHeader(values=("a", "b")),
        "X-Nothing": HttpHeader(),
    }
    with FakeService() as service:
        post(
            service.url + "/x", HttpConfig(authorization=Authorization(credentials=Secret("t0k")), http_headers=headers)
        )
        post(service.url + "/x", HttpConfig(basic_auth=BasicAuth(username="u", password=Secret("p"))))
        first, second = service.attempts[0][2], service.attempts[1][2]
        assert first["Authorization"] == "Bearer t0k"
        assert (first["X-Api-Key"], first["X-Scope-OrgID"], first["X-Many"]) == ("k1", "team-a", "a, b")
        assert "X-Nothing" not in first
        assert second["Authorization"] == "Basic dTpw"


def test_a_rotated_secret_needs_no_restart(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old\n")
    client = HttpClient(HttpConfig(authorization=Authorization(credentials=Secret(path=str(file)))))
    with FakeService() as service:
        client.request("POST", service.url, timeout=5, body=b"{}")
        file.write_text("new\r\n")
        client.request("POST", service.url, timeout=5, body=b"{}")
        assert [sent[2]["Authorization"] for sent in service.attempts] == ["Bearer old", "Bearer new"]


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "cannot be read"), (b"\xff\xfe", "is no text"), (b"\n", "is empty"), (b"a\nb", "line break")],
)
def test_a_secret_that_cannot_be_used_is_named_not_shown(content: bytes | None, said: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    client = HttpClient(HttpConfig(authorization=Authorization(credentials=Secret(path=str(file)))))
    with pytest.raises(ConfigFault, match=said):
        client.request("POST", "http://127.0.0.1:9/", timeout=1, body=b"")


def test_faults_of_configuration_are_found_at_load(tmp_path: Path) -> None:
    both = HttpConfig(
        basic_auth=BasicAuth(),
        authorization=Authorization(),
        proxy_url=Secret("http://p"),
        proxy_from_environment=True,
        http_headers={"Host": HttpHeader(values=("x",))},
    )
    assert [path for path, _ in both.check()] == ["authorization", "proxy_url", "http_headers.Host"]
    tls = TlsConfig(cert_file=str(tmp_path / "none"), ca_file=str(tmp_path / "ca"))
    assert [path for path, _ in tls.check()] == ["key_file", "ca_file", "cert_file"]


# -- TLS (cases 33 and 34) ----------------------------------------------------------------------------------------


@contextmanager
def https(certificate: trustme.LeafCert, client_ca: trustme.CA | None = None) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """Clients that do not trust us are the point."""

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate.configure_cert(context)
    if client_ca is not None:
        client_ca.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    server = Server(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def ca_file(ca: trustme.CA, tmp_path: Path) -> str:
    path = tmp_path / "ca.pem"
    ca.cert_pem.write_to_path(str(path))
    return str(path)


def test_a_private_ca_is_trusted_when_given(ca: trustme.CA, ca_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with https(ca.issue_cert("127.0.0.1")) as port:
        url = f"https://127.0.0.1:{port}/x"
        with pytest.raises(TlsFailed, match=r"certificate not accepted.*set tls_config\.ca_file or SSL_CERT_FILE"):
            post(url)
        assert post(url, HttpConfig(tls_config=TlsConfig(ca_file=ca_file))).body == b"ok"
        assert post(url, HttpConfig(tls_config=TlsConfig(insecure_skip_verify=True))).body == b"ok"
        monkeypatch.setenv("SSL_CERT_FILE", ca_file)  # what requests itself ignores
        assert post(url).body == b"ok"


def test_the_name_in_the_certificate_counts_and_can_be_given(ca: trustme.CA, ca_file: str) -> None:
    with https(ca.issue_cert("inside.example")) as port:
        url = f"https://127.0.0.1:{port}/x"
        with pytest.raises(TlsFailed, match="certificate not accepted"):
            post(url, HttpConfig(tls_config=TlsConfig(ca_file=ca_file)))
        named = TlsConfig(ca_file=ca_file, server_name="inside.example")
        assert post(url, HttpConfig(tls_config=named)).body == b"ok"


def test_a_client_certificate_is_shown(ca: trustme.CA, ca_file: str, tmp_path: Path) -> None:
    client = ca.issue_cert("client.example")
    certificate, key = tmp_path / "c.pem", tmp_path / "k.pem"
    client.private_key_pem.write_to_path(str(key))
    client.cert_chain_pems[0].write_to_path(str(certificate))
    with https(ca.issue_cert("127.0.0.1"), client_ca=ca) as port:
        url = f"https://127.0.0.1:{port}/x"
        with pytest.raises(DeliveryError):
            post(url, HttpConfig(tls_config=TlsConfig(ca_file=ca_file)))
        shown = TlsConfig(ca_file=ca_file, cert_file=str(certificate), key_file=str(key))
        assert post(url, HttpConfig(tls_config=shown)).body == b"ok"


def test_a_ca_file_that_is_gone_is_a_fault_of_configuration(tmp_path: Path) -> None:
    gone = HttpConfig(tls_config=TlsConfig(ca_file=str(tmp_path / "gone.pem")))
    with pytest.raises(ConfigFault, match=r"gone\.pem cannot be read"):
        post("https://127.0.0.1:9/x", gone)


def test_tls_to_a_plain_server_is_said() -> None:
    with FakeService() as service, pytest.raises(TlsFailed):
        post(service.url.replace("http", "https", 1) + "/x")


def test_a_tls_handshake_that_hangs_ends_with_the_deadline() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with listener, pytest.raises(DeadlineExceeded):
        post(f"https://127.0.0.1:{listener.getsockname()[1]}/x", timeout=0.2)


# -- proxies ------------------------------------------------------------------------------------------------------


class Proxy(ThreadingHTTPServer):
    """A forward proxy with CONNECT; ``asked`` are the request lines."""

    def __init__(self) -> None:
        asked: list[tuple[str, str | None]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_CONNECT(self) -> None:
                asked.append((f"CONNECT {self.path}", self.headers.get("Proxy-Authorization")))
                self.send_response(407 if self.path.startswith("refused") else 200)
                self.end_headers()
                if self.path.startswith("refused"):
                    return
                port = int(self.path.rpartition(":")[2])
                with socket.create_connection(("127.0.0.1", port)) as far:
                    other = threading.Thread(target=_pump, args=(far, self.connection), daemon=True)
                    other.start()
                    _pump(self.connection, far)
                    other.join(5)
                self.close_connection = True

            def do_POST(self) -> None:
                asked.append((f"POST {self.path}", self.headers.get("Proxy-Authorization")))
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(200)
                self.send_header("Content-Length", "5")
                self.end_headers()
                self.wfile.write(b"proxy")

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        super().__init__(("127.0.0.1", 0), Handler)
        self.asked = asked
        self.daemon_threads = True
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> Proxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join(5)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


def _pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # the other side is gone, so this one ends too


def test_a_proxy_is_used_with_its_credentials_and_hides_them() -> None:
    with Proxy() as proxy:
        given = proxy.url.replace("http://", "http://user:hunter2@")
        answer = post("http://hook.example/x", HttpConfig(proxy_url=Secret(given)))
        assert answer.body == b"proxy"
        assert proxy.asked == [("POST http://hook.example/x", "Basic dXNlcjpodW50ZXIy")]
    with pytest.raises(Unreachable) as caught:
        post("http://hook.example/x", HttpConfig(proxy_url=Secret("http://user:hunter2@127.0.0.1:9")))
    assert "through the proxy" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_https_goes_through_connect(ca: trustme.CA, ca_file: str) -> None:
    with https(ca.issue_cert("tunnel.example")) as port, Proxy() as proxy:
        tunnel = HttpConfig(proxy_url=Secret(proxy.url), tls_config=TlsConfig(ca_file=ca_file))
        assert post(f"https://tunnel.example:{port}/x", tunnel).body == b"ok"
        assert proxy.asked == [(f"CONNECT tunnel.example:{port}", None)]
        with pytest.raises(Unreachable, match="through the proxy"):
            post("https://refused.example/x", tunnel)


def test_a_proxy_that_hangs_ends_with_the_deadline() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with listener, pytest.raises(DeadlineExceeded):
        post("https://x.example/", HttpConfig(proxy_url=Secret(address)), timeout=0.2)


def test_loopback_never_goes_to_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server that is watched stands on 127.0.0.1; a company's proxy cannot reach it."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with FakeService() as service:
        assert post(service.url + "/x", HttpConfig(proxy_from_environment=True)).ok
        assert post(service.url.replace("127.0.0.1", "localhost") + "/x", HttpConfig(proxy_from_environment=True)).ok
        with pytest.raises(Unreachable, match="through the proxy"):
            post("http://elsewhere.example/x", HttpConfig(proxy_from_environment=True))


def test_the_environment_is_ignored_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with pytest.raises(Unreachable, match="cannot be resolved"):
        post("http://elsewhere.invalid/x")


@pytest.mark.parametrize(
    ("no_proxy", "url", "direct"),
    [
        ("", "http://a.example/", False),
        ("*", "http://a.example/", True),
        ("a.example", "http://a.example/", True),
        ("a.example", "http://b.a.example/", True),
        (".a.example", "http://b.a.example/", True),
        ("*.a.example", "http://b.a.example/", True),
        ("a.example", "http://ba.example/", False),
        ("a.example:8080", "http://a.example:8080/", True),
        ("a.example:8080", "http://a.example/", False),
        ("10.0.0.0/8", "http://10.1.2.3:9093/", True),
        ("10.0.0.0/8", "http://11.1.2.3/", False),
        ("x, fd00::/8 ,y", "http://[fd00::1]/", True),
        ("10.1.2.3", "http://10.1.2.3/", True),
        ("", "http://[::1]:80/", True),
        ("", "http://127.9.9.9/", True),
    ],
)
def test_what_goes_around_the_proxy(no_proxy: str, url: str, direct: bool) -> None:
    rules = ProxyRules("proxy.example:3128", no_proxy)
    assert rules.proxy_for(url) == ("" if direct else "http://proxy.example:3128")
    assert "proxy.example" not in repr(rules)


# -- weight -------------------------------------------------------------------------------------------------------


def test_requests_is_imported_with_the_first_request_and_not_before() -> None:
    code = (
        "import sys, integrations.http, integrations.registry, agent.notify\n"
        "heavy = {'requests', 'urllib3', 'prometheus_client', 'torch', 'numpy', 'apprise', 'smtplib'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
