"""One exchange against servers that misbehave; every wait ends at one deadline."""

from __future__ import annotations

import gzip
import socket
import ssl
import threading
from pathlib import Path

import pytest
import trustme

from agent.metrics import lookup as module
from agent.metrics.fetch import Endpoint, FetchError, Tls, fetch, printable
from agent.model import Secret
from tests.metrics.raw_server import answer, read_request, serve

SHORT = 0.3
"""Seconds for exchanges that must run into their deadline."""


def failed(endpoint: Endpoint) -> FetchError:
    with pytest.raises(FetchError) as caught:
        fetch(endpoint)
    return caught.value


def test_a_plain_answer() -> None:
    seen: list[bytes] = []
    with serve(answer(b"a 1\n", headers="Content-Type: text/plain\r\n", seen=seen)) as server:
        response = fetch(Endpoint(f"http://127.0.0.1:{server.port}/metrics?x=1"), headers={"Accept": "text/plain"})
    assert (response.status, response.body, response.partial) == (200, b"a 1\n", False)
    assert response.headers["content-type"] == "text/plain"
    head = seen[0].decode()
    assert head.startswith("GET /metrics?x=1 HTTP/1.1\r\n")
    for line in (f"Host: 127.0.0.1:{server.port}", "Accept: text/plain", "Accept-Encoding: gzip", "Connection: close"):
        assert f"\r\n{line}\r\n" in head
    assert "Authorization" not in head


def test_a_server_that_drips_is_cut_off() -> None:
    def drip(connection: socket.socket, stop: threading.Event) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while not stop.wait(0.02):
            connection.sendall(b"a")

    with serve(drip) as server:
        error = failed(Endpoint(f"http://127.0.0.1:{server.port}/", timeout=SHORT))
    assert error.reason == "timeout"
    assert "bytes of the answer read" in error.text


def test_a_head_that_drips_is_cut_off() -> None:
    def drip(connection: socket.socket, stop: threading.Event) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        while not stop.wait(0.02):
            connection.sendall(b"X-A: b\r\n"[:4])

    with serve(drip) as server:
        assert failed(Endpoint(f"http://127.0.0.1:{server.port}/", timeout=SHORT)).reason == "timeout"


def test_a_server_that_accepts_and_says_nothing() -> None:
    with serve(lambda connection, stop: stop.wait(30) and None) as server:
        error = failed(Endpoint(f"http://127.0.0.1:{server.port}/", timeout=SHORT))
    assert (error.reason, error.text) == ("timeout", "no whole answer within 0.3 s (connected and asked, no answer)")


def test_a_handshake_that_never_comes() -> None:
    with serve(lambda connection, stop: stop.wait(30) and None) as server:
        error = failed(Endpoint(f"https://127.0.0.1:{server.port}/", timeout=SHORT))
    assert error.reason == "timeout"
    assert "in the TLS handshake" in error.text


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    error = failed(Endpoint(f"http://127.0.0.1:{port}/"))
    assert error.reason == "refused"
    assert str(port) in error.text


def test_a_name_that_is_none() -> None:
    error = failed(Endpoint("http://no-such-host.invalid/", timeout=20))
    assert error.reason in ("refused", "timeout")  # a resolver that is not there may take its time
    assert failed(Endpoint(f"http://{'a' * 70}.b/")).reason == "refused"


def test_a_look_up_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    asked: list[str] = []

    def hang(host: str, port: int, **kwargs: object) -> list[object]:
        asked.append(host)
        release.wait(30)
        raise socket.gaierror(-2, "late")

    monkeypatch.setattr(module.socket, "getaddrinfo", hang)
    endpoint = Endpoint("http://slow.invalid/", timeout=0.05)
    assert failed(endpoint).reason == "timeout"
    assert failed(endpoint).reason == "timeout"
    assert asked == ["slow.invalid"]  # one look-up at a time for a name
    release.set()


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"garbage\r\n\r\n", "http"),
        (b"", "http"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Encoding: br\r\n\r\naaaaa", "http"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Encoding: gzip\r\n\r\naaaaa", "http"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n", "http"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70000 + b"\r\n\r\n", "http"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", None),
    ],
)
def test_answers_that_are_no_http(raw: bytes, reason: str | None) -> None:
    def handle(connection: socket.socket, stop: threading.Event) -> None:
        read_request(connection)
        connection.sendall(raw)

    with serve(handle) as server:
        endpoint = Endpoint(f"http://127.0.0.1:{server.port}/")
        if reason is None:
            assert fetch(endpoint).partial
        else:
            assert failed(endpoint).reason == reason


def test_a_broken_transfer_is_partial() -> None:
    with serve(answer(b"a 1\nb", length=100)) as server:
        response = fetch(Endpoint(f"http://127.0.0.1:{server.port}/"))
    assert (response.body, response.partial) == (b"a 1\nb", True)


def test_chunks_and_no_length_at_all() -> None:
    def chunked(connection: socket.socket, stop: threading.Event) -> None:
        read_request(connection)
        connection.sendall(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\na 1\n\r\n4\r\nb 2\n\r\n0\r\n\r\n"
        )

    def endless(connection: socket.socket, stop: threading.Event) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.0 200 OK\r\n\r\na 1\nb 2\n")

    def says_close(connection: socket.socket, stop: threading.Event) -> None:
        answer(b"a 1\nb 2\n", headers="Connection: close\r\n")(connection, stop)

    for handler in (chunked, endless, says_close):
        with serve(handler) as server:
            response = fetch(Endpoint(f"http://127.0.0.1:{server.port}/"))
        assert (response.body, response.partial) == (b"a 1\nb 2\n", False)


def test_packed_answers_are_unpacked_within_bounds() -> None:
    page = b"a 1\n" * 50_000
    packed = gzip.compress(page)
    gzipped = "Content-Encoding: gzip\r\n"
    with serve(answer(packed, headers=gzipped)) as server:
        assert fetch(Endpoint(f"http://127.0.0.1:{server.port}/")).body == page
    with serve(answer(packed[:-20], headers=gzipped)) as server:
        assert fetch(Endpoint(f"http://127.0.0.1:{server.port}/")).partial
    bomb = gzip.compress(bytes(30_000_000))
    with serve(answer(bomb, headers=gzipped)) as server:
        error = failed(Endpoint(f"http://127.0.0.1:{server.port}/", max_bytes=1_000_000))
    assert (error.reason, error.text) == ("too_large", "the page is larger than 1000000 bytes")


def test_an_endless_page_is_cut_off() -> None:
    def flood(connection: socket.socket, stop: threading.Event) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while not stop.is_set():
            connection.sendall(b"a 1\n" * 10_000)

    with serve(flood) as server:
        assert failed(Endpoint(f"http://127.0.0.1:{server.port}/", max_bytes=500_000)).reason == "too_large"


def test_redirects_come_back_as_they_are() -> None:
    with serve(answer(b"", status="302 Found", headers="Location: http://elsewhere/\r\n")) as server:
        response = fetch(Endpoint(f"http://127.0.0.1:{server.port}/"))
        assert (response.status, response.headers["location"]) == (302, "http://elsewhere/")
        assert server.connections == 1


def test_credentials_are_sent_and_read_anew_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine 127.0.0.1 login wrong password wrong\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(netrc))
    token = tmp_path / "token"
    seen: list[bytes] = []
    with serve(answer(b"", seen=seen)) as server:
        url = f"http://127.0.0.1:{server.port}/"
        fetch(Endpoint(url, username="u", password=Secret("p:w")))
        rotating = Endpoint(url, bearer=Secret(path=str(token)))
        for text in ("first\n", "second\n"):
            token.write_text(text)
            fetch(rotating)
        fetch(Endpoint(url))
    lines = [[line for line in head.split(b"\r\n") if line.startswith(b"Authorization")] for head in seen]
    assert lines == [
        [b"Authorization: Basic dTpwOnc="],
        [b"Authorization: Bearer first"],
        [b"Authorization: Bearer second"],
        [],
    ]


def test_a_credential_that_cannot_be_read_or_sent(tmp_path: Path) -> None:
    with serve(answer(b"")) as server:
        url = f"http://127.0.0.1:{server.port}/"
        error = failed(Endpoint(url, bearer=Secret(path=str(tmp_path / "absent"))))
        assert error.reason == "config"
        error = failed(Endpoint(url, bearer=Secret("two\nlines")))
        assert error.reason == "config"
        assert "two" not in str(error)
        binary = tmp_path / "binary"
        binary.write_bytes(b"\xff\xfe")
        assert failed(Endpoint(url, bearer=Secret(path=str(binary)))).reason == "config"
        assert server.connections == 0


def test_a_private_authority_is_trusted_only_when_named(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("metrics.internal").configure_cert(context)
    ca_file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    with serve(answer(b"a 1\n"), context) as server:
        url = f"https://127.0.0.1:{server.port}/"
        trusted = Tls(ca_file=str(ca_file), server_name="metrics.internal")
        assert fetch(Endpoint(url, tls=trusted)).body == b"a 1\n"
        error = failed(Endpoint(url, tls=Tls(server_name="metrics.internal")))
        assert (error.reason, "not accepted" in error.text) == ("tls", True)
        error = failed(Endpoint(url, tls=Tls(ca_file=str(ca_file))))
        assert (error.reason, "127.0.0.1" in error.text) == ("tls", True)
        assert fetch(Endpoint(url, tls=Tls(insecure_skip_verify=True))).body == b"a 1\n"


def test_a_client_certificate_is_shown(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    ca_file, own = tmp_path / "ca.pem", tmp_path / "own.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    authority.issue_cert("client").private_key_and_cert_chain_pem.write_to_path(str(own))
    with serve(answer(b"a 1\n"), context) as server:
        url = f"https://127.0.0.1:{server.port}/"
        shown = Tls(ca_file=str(ca_file), cert_file=str(own))
        assert fetch(Endpoint(url, tls=shown)).body == b"a 1\n"
        assert failed(Endpoint(url, tls=Tls(ca_file=str(ca_file)))).reason in ("tls", "refused", "http")


def test_tls_files_that_are_wrong(tmp_path: Path) -> None:
    bad = tmp_path / "bad.pem"
    bad.write_text("no certificate")
    with serve(answer(b"")) as server:
        url = f"https://127.0.0.1:{server.port}/"
        assert failed(Endpoint(url, tls=Tls(ca_file=str(tmp_path / "absent.pem")))).reason == "config"
        assert failed(Endpoint(url, tls=Tls(ca_file=str(bad)))).reason == "config"


def test_plain_http_where_tls_was_expected() -> None:
    def plain(connection: socket.socket, stop: threading.Event) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with serve(plain) as server:
        assert failed(Endpoint(f"https://127.0.0.1:{server.port}/")).reason == "tls"


def test_a_proxy_is_asked_for_the_whole_address_but_never_for_loopback() -> None:
    seen: list[bytes] = []
    with serve(answer(b"by proxy", seen=seen)) as proxy, serve(answer(b"direct")) as server:
        through = f"http://127.0.0.1:{proxy.port}"
        assert fetch(Endpoint("http://metrics.example:8080/m", proxy_url=through)).body == b"by proxy"
        assert seen[0].startswith(b"GET http://metrics.example:8080/m HTTP/1.1\r\n")
        for host in ("127.0.0.1", "localhost"):
            assert fetch(Endpoint(f"http://{host}:{server.port}/", proxy_url=through)).body == b"direct"
        assert proxy.connections == 1


def test_a_tunnel_through_a_proxy(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("metrics.example").configure_cert(context)
    ca_file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    asked: list[bytes] = []

    def tunnel(connection: socket.socket, stop: threading.Event) -> None:
        asked.append(read_request(connection))
        connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        with context.wrap_socket(connection, server_side=True) as secured:
            answer(b"inside")(secured, stop)

    with serve(tunnel) as proxy:
        endpoint = Endpoint(
            "https://metrics.example/",
            tls=Tls(ca_file=str(ca_file)),
            proxy_url=f"http://127.0.0.1:{proxy.port}",
            bearer=Secret("token"),
        )
        assert fetch(endpoint).body == b"inside"
    assert asked[0].startswith(b"CONNECT metrics.example:443 HTTP/1.1\r\n")
    assert b"token" not in asked[0]
    with serve(answer(b"no", status="407 Proxy Authentication Required")) as proxy:
        refused = Endpoint("https://metrics.example/", proxy_url=f"http://127.0.0.1:{proxy.port}")
        assert "407" in failed(refused).text


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(answer(b"proxy")) as proxy, serve(answer(b"direct")) as server:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert fetch(Endpoint(f"http://127.0.0.1:{server.port}/")).body == b"direct"
        assert proxy.connections == 0


@pytest.mark.parametrize(
    "url",
    ["ftp://host/", "/metrics", "localhost:8000", "http://", "http://u:p@host/", "http://host/a b", "http://host/ä"],
)
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(ValueError, match="address"):
        Endpoint(url)


def test_a_port_that_is_none() -> None:
    with pytest.raises(ValueError, match=r"(?i)port"):
        Endpoint("http://host:99999/")


def test_headers_and_proxies_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="header"):
        Endpoint("http://host/", headers={"X": "a\r\nY: b"})
    with pytest.raises(ValueError, match="header"):
        Endpoint("http://host/", headers={"X: ": "a"})
    with pytest.raises(ValueError, match="proxy"):
        Endpoint("http://host/", proxy_url="https://proxy/")


def test_strange_text_is_made_printable() -> None:
    assert printable("a\x1b[31m\nb\u202e") == "a\\x1b[31m\\nb\\u202e"
    assert printable("x" * 200, 10) == "xxxxxxxxxx..."


def test_addresses_in_brackets() -> None:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6) as listener:
            port = listener.getsockname()[1]
    except OSError:
        port = 9  # no IPv6 on this machine: refused in another way
    assert failed(Endpoint(f"http://[::1]:{port}/")).reason == "refused"
