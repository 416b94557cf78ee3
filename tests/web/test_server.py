"""The wire: what strangers, slow clients and broken clients can do to us, and what they cannot."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.model import Secret
from agent.web.connections import LIMITS, Connections
from agent.web.server import TlsFiles, WebServer, parse_address
from tests.web.conftest import Client, Serve


def dial(client: Client) -> socket.socket:
    return socket.create_connection(client.server.address, timeout=30)


def read_all(sock: socket.socket) -> bytes:
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while chunk := sock.recv(65536):
            data += chunk
    return data


def ask(client: Client, raw: bytes) -> bytes:
    with dial(client) as sock:
        sock.sendall(raw)
        sock.shutdown(socket.SHUT_WR)
        return read_all(sock)


def wait_until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


# ---- addresses ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "address"),
    [("127.0.0.1:9464", ("127.0.0.1", 9464)), ("[::1]:0", ("::1", 0)), (":80", ("", 80)), ("box:1", ("box", 1))],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "9464", "::1:80", "box:http", "box:70000", "box:-1", "box:٣"])
def test_no_addresses(text: str) -> None:
    with pytest.raises(ValueError, match=r"HOST:PORT|brackets"):
        parse_address(text)


def test_it_listens_on_this_machine_unless_told_otherwise(serve: Serve) -> None:
    assert serve().server.address[0] == "127.0.0.1"


def test_ipv6(serve: Serve) -> None:
    client = serve(listen_address="[::1]:0")
    assert client.server.url.startswith("http://[::1]:")
    assert client.get("/api/v1/status").status == 200


# ---- protocol ----------------------------------------------------------------------------------------------------


def test_one_connection_serves_many_requests(client: Client) -> None:
    with dial(client) as sock:
        for _ in range(3):
            sock.sendall(b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert sock.recv(65536).startswith(b"HTTP/1.1 200")


def test_http_1_0_is_answered_and_closed(client: Client) -> None:
    reply = ask(client, b"GET /-/healthy HTTP/1.0\r\n\r\n")
    assert reply.startswith(b"HTTP/1.1 200")
    assert reply.endswith(b"wedgewatch is healthy.\n")


def test_head_has_the_length_and_no_body(client: Client) -> None:
    reply = client("HEAD", "/api/v1/rules")
    assert reply.body == b""
    assert int(reply.headers["content-length"]) > 100


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "PATCH"])
def test_another_method_names_the_right_ones(client: Client, method: str) -> None:
    reply = client(method, "/api/v1/rules")
    assert reply.status == 405
    assert reply.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"\r\n", b""),
        (b"GET\r\n\r\n", b"400"),
        (b"GET  HTTP/1.1\r\n\r\n", b"505"),
        (b"GET / HTTP/9.9\r\n\r\n", b"505"),
        (b"GET http://evil.example/ HTTP/1.1\r\nHost: x\r\n\r\n", b"200"),
        (b"GET * HTTP/1.1\r\n\r\n", b"400"),
        (b"GET //etc/passwd HTTP/1.1\r\n\r\n", b"4"),
        (b"GET /../../etc/passwd HTTP/1.1\r\n\r\n", b"404"),
        (b"GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\n\r\n", b"404"),
        (b"GET /index.html%00.js HTTP/1.1\r\n\r\n", b"404"),
        (b"BREW /coffee HTTP/1.1\r\n\r\n", b"501"),
        (b"GET /" + b"a" * 70000 + b" HTTP/1.1\r\n\r\n", b"4"),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n", b"431"),
        (b"GET / HTTP/1.1\r\nX: " + b"y" * 40000 + b"\r\n\r\n", b"431"),
        (b"POST /-/reload HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"501"),
        (b"POST /-/reload HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"400"),
        (b"POST /-/reload HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", b"400"),
        (b"POST /-/reload HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", b"413"),
        (b"POST /-/reload HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b""),
    ],
)
def test_broken_requests(client: Client, raw: bytes, status: bytes) -> None:
    reply = ask(client, raw)
    first = reply.split(b"\r\n", 1)[0]
    assert not status or first.split(b" ")[1].startswith(status), first
    assert b"Traceback" not in reply
    assert client.get("/-/healthy").status == 200


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=st.binary(max_size=400))
def test_random_bytes_leave_it_standing(client: Client, raw: bytes) -> None:
    ask(client, raw)
    assert client.get("/-/healthy").status == 200


def test_security_headers_on_everything(client: Client) -> None:
    for path in ("/", "/api/v1/status", "/nothing", "/metrics"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe-inline" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in headers
        assert "python" not in headers["server"].lower()


def test_large_answers_are_packed_for_who_can_unpack_them(client: Client) -> None:
    plain = client.get("/api/v1/incidents")
    packed = client.get("/api/v1/incidents", Accept_Encoding="gzip, br")
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body
    assert "content-encoding" not in plain.headers


def test_the_page_is_not_sent_twice(client: Client) -> None:
    first = client.get("/")
    assert first.headers["content-type"].startswith("text/html")
    again = client.get("/", If_None_Match=first.headers["etag"])
    assert (again.status, again.body) == (304, b"")


# ---- bounds ------------------------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_dripping_client_is_cut_off_in_time(serve: Serve) -> None:
    """
    t=0 one request, answered . . . t=29 a byte (still the first line) . . . t=31 cut, although no read waited long
    """
    clock = Clock()
    client = serve(clock=clock)
    with dial(client) as sock:
        sock.sendall(b"GET /-/healthy HTTP/1.1\r\n\r\nGET / HT")
        assert b"200 OK" in sock.recv(65536)
        cut = threading.Event()
        threading.Thread(target=lambda: (read_all(sock), cut.set()), daemon=True).start()
        assert not cut.wait(0.05)
        for _ in range(200):  # the wait begins a moment after the answer: move the clock until the cut comes
            clock.now += LIMITS["idle"] / 4
            sock.sendall(b"T")
            if cut.wait(0.05):
                break
        assert cut.is_set()


def test_a_client_that_drips_its_headers_has_less_time(serve: Serve) -> None:
    clock = Clock()
    client = serve(clock=clock)
    with dial(client) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: local")
        # the deadline counts from the first line, which the server must have seen: ask until the cut comes
        cut = threading.Event()
        threading.Thread(target=lambda: (read_all(sock), cut.set()), daemon=True).start()
        for _ in range(200):
            clock.now += 1
            if cut.wait(0.05):
                break
        assert cut.is_set()


def test_a_newcomer_gets_its_answer_although_every_place_is_taken(serve: Serve) -> None:
    client = serve(max_connections=3)
    with dial(client) as first, dial(client) as second, dial(client) as third:
        for sock in (first, second, third):  # all idle in keep-alive
            sock.sendall(b"GET /-/healthy HTTP/1.1\r\n\r\n")
            assert b"200 OK" in sock.recv(65536)
        answer = [0]

        def idle_again() -> bool:  # a thread says that its connection is idle a moment after the answer
            answer[0] = client.get("/api/v1/servers/trtllm-0/live").status
            return answer[0] == 503

        wait_until(idle_again)


def test_the_newcomer_takes_the_place_of_the_longest_idle() -> None:
    clock = Clock()
    connections = Connections(3, clock)
    pairs = [socket.socketpair() for _ in range(5)]
    try:
        for ours, _ in pairs[:3]:
            assert connections.admit(ours)
            clock.now += 1
        connections.enter(pairs[0][0], "idle")  # asked again since: now the second has idled longest
        assert connections.admit(pairs[3][0])
        assert pairs[1][1].recv(1) == b""
        connections.enter(pairs[2][0], "answering")
        assert connections.admit(pairs[4][0])
        assert pairs[0][1].recv(1) == b""
    finally:
        for pair in pairs:
            for sock in pair:
                sock.close()


def test_when_all_are_busy_a_newcomer_is_told_so() -> None:
    clock = Clock()
    connections = Connections(2, clock)
    pairs = [socket.socketpair() for _ in range(3)]
    try:
        assert connections.admit(pairs[0][0])
        assert connections.admit(pairs[1][0])
        connections.enter(pairs[0][0], "streaming")
        connections.enter(pairs[1][0], "answering")
        assert not connections.admit(pairs[2][0])
        clock.now += LIMITS["answering"] + 1
        assert connections.reap() == 1
        assert connections.admit(pairs[2][0])
        assert len(connections) == 2
    finally:
        for pair in pairs:
            for sock in pair:
                sock.close()


def test_a_full_house_answers_503(serve: Serve) -> None:
    client = serve(max_connections=1)
    with dial(client) as sock:
        sock.sendall(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200 OK" in sock.recv(65536)
        assert client.get("/-/healthy").status == 503


@pytest.mark.campaign  # a loaded machine answers too late for it
def test_a_connection_that_is_gone_leaves_its_place(serve: Serve) -> None:
    client = serve(max_connections=2)
    for _ in range(20):
        assert client.get("/-/healthy").status == 200


def test_closing_ends_every_connection(serve: Serve) -> None:
    client = serve()
    with dial(client) as idle, dial(client) as stream:
        stream.sendall(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        stream.recv(65536)
        idle.sendall(b"GET /-/healthy HTTP/1.1\r\n\r\n")
        idle.recv(65536)
        client.server.close()
        read_all(idle)
        read_all(stream)


# ---- events ------------------------------------------------------------------------------------------------------


def events(sock: socket.socket, wanted: int) -> list[str]:
    data = ""
    while data.count("data: ") < wanted:
        chunk = sock.recv(65536).decode()
        assert chunk, "the stream ended"
        data += chunk
    return [line[6:] for line in data.splitlines() if line.startswith("data: ")]


def test_a_change_reaches_the_page(client: Client) -> None:
    with dial(client) as sock:
        sock.sendall(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head = sock.recv(65536)
        assert b"text/event-stream" in head
        wait_until(lambda: client.server.events.subscribers == 1)
        client.server.events.publish("alerts", "servers")
        assert json.loads(events(sock, 1)[0])["topics"] == ["alerts", "servers"]


def test_a_burst_is_told_as_one(serve: Serve) -> None:
    """
    publish x100 while the page is busy -> one line with every topic, no queue that grows
    """
    client = serve()
    with client.server.events.subscribe() as slow:
        for _ in range(100):
            client.server.events.publish("servers")
            client.server.events.publish("outbox")
        assert slow.wait(0) == {"servers", "outbox"}
        assert slow.wait(0) == frozenset()
    assert client.server.events.subscribers == 0


def test_the_stream_shows_that_it_lives(serve: Serve) -> None:
    client = serve(keep_alive=0.01)
    with dial(client) as sock:
        sock.sendall(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        data = b""
        while b": still here" not in data:
            data += sock.recv(65536)


def test_an_unknown_topic_is_a_fault_of_ours(client: Client) -> None:
    with pytest.raises(ValueError, match="unknown topic: nonsense"):
        client.server.events.publish("nonsense")


def test_the_number_of_streams_is_bounded(serve: Serve) -> None:
    client = serve()
    subscriptions = [client.server.events.subscribe() for _ in range(32)]
    reply = client.get("/api/v1/events")
    assert (reply.status, reply.headers["retry-after"]) == (503, "10")
    for subscription in subscriptions:
        client.server.events.drop(subscription)


# ---- who is let in -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:9464", 200),
        ("localhost", 200),
        ("wedge.localhost:1", 200),
        ("[::1]:9464", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example:9464", 421),
        ("watch.example", 200),
    ],
)
def test_a_strangers_name_that_points_here_reads_nothing(serve: Serve, host: str, status: int) -> None:
    client = serve(hosts=["watch.example"])
    assert client.get("/api/v1/status", Host=host).status == status
    assert client.get("/-/healthy", Host=host).status == 200


def test_with_a_token_any_name_will_do(serve: Serve) -> None:
    client = serve(token=Secret("t"))
    assert client.get("/api/v1/status", Host="evil.example", Authorization="Bearer t").status == 200


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def tls_files(authority: trustme.CA, folder: Path, name: str = "localhost") -> TlsFiles:
    certificate = authority.issue_cert(name, "127.0.0.1")
    folder.mkdir(exist_ok=True)
    certificate.private_key_pem.write_to_path(folder / "key.pem")
    (folder / "cert.pem").write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    return TlsFiles(str(folder / "cert.pem"), str(folder / "key.pem"))


def over_tls(client: Client, authority: trustme.CA, raw: bytes) -> tuple[bytes, dict[str, object]]:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with dial(client) as plain, context.wrap_socket(plain, server_hostname="localhost") as sock:
        certificate = dict(sock.getpeercert() or {})
        sock.sendall(raw)
        return read_all(sock), certificate


def test_tls_and_a_renewed_certificate(serve: Serve, authority: trustme.CA, tmp_path: Path) -> None:
    client = serve(tls=tls_files(authority, tmp_path / "tls"))
    assert client.server.url.startswith("https://")
    raw = b"GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    reply, first = over_tls(client, authority, raw)
    assert reply.startswith(b"HTTP/1.1 200")
    tls_files(authority, tmp_path / "tls")
    assert over_tls(client, authority, raw)[1]["serialNumber"] != first["serialNumber"]


def test_a_broken_renewal_keeps_the_old_certificate(serve: Serve, authority: trustme.CA, tmp_path: Path) -> None:
    files = tls_files(authority, tmp_path / "tls")
    client = serve(tls=files)
    Path(files.cert_file).write_text("no certificate")
    reply, _ = over_tls(client, authority, b"GET /-/healthy HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert reply.startswith(b"HTTP/1.1 200")


def test_plain_http_to_a_tls_port_does_no_harm(serve: Serve, authority: trustme.CA, tmp_path: Path) -> None:
    client = serve(tls=tls_files(authority, tmp_path / "tls"))
    with contextlib.suppress(ConnectionResetError):
        ask(client, b"GET / HTTP/1.1\r\n\r\n")
    reply, _ = over_tls(client, authority, b"GET /-/healthy HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert reply.startswith(b"HTTP/1.1 200")


def test_tls_files_that_are_none_are_told_at_start(tmp_path: Path) -> None:
    from agent.telemetry import Telemetry
    from tests.web.scene import bad_night

    with pytest.raises(OSError, match="No such file"):
        WebServer(
            bad_night(),
            Telemetry(version="1", process=False),
            listen_address="127.0.0.1:0",
            tls=TlsFiles(f"{tmp_path}/c", f"{tmp_path}/k"),
        )
