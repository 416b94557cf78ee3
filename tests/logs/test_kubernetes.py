"""Logs through the Kubernetes API: every line once, through disconnections, restarts and refusals."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.logs.batch import Notice
from agent.logs.sources.kubernetes import ApiAccess, PodLogs
from agent.logs.sources.piece import Piece
from tests.logs.helpers import contains, read
from tests.logs.kube_api import KubeApi


def at(second: int, nano: int = 0) -> str:
    return f"2026-11-20T09:00:{second:02d}.{nano:09d}Z"


@pytest.fixture
def api(tmp_path: Path) -> Iterator[KubeApi]:
    server = KubeApi(tmp_path)
    yield server
    server.close()


class Running:
    """Pod logs read in threads; positions are kept as a store would."""

    def __init__(self, api: KubeApi, folder: Path, positions: dict[str, Any] | None = None, **options: Any) -> None:
        access = ApiAccess(api.url, str(folder / "token"), str(folder / "ca.crt"), "ns")
        self.positions = json.loads(json.dumps(positions or {}))
        self.texts: dict[str, list[str]] = {}
        self.data = b""
        self.notices: list[Notice] = []
        self.stop = threading.Event()
        self.changed = threading.Condition()
        self.logs = PodLogs(access, positions=self.positions, **({"pod": "llama-0"} | options))
        self.thread = threading.Thread(
            target=self.logs.run,
            args=(self.stop, self.take, self.note),
            kwargs={"wait": lambda _: self.stop.wait(0.03)},
        )

    def take(self, piece: Piece) -> None:
        with self.changed:
            rows = [row.split(" stdout F ", 1)[1] for row in piece.data.decode().splitlines()]
            self.texts.setdefault(piece.key, []).extend(rows)
            self.positions[piece.key] = piece.position
            self.data += piece.data
            self.changed.notify_all()

    def note(self, notice: Notice) -> None:
        with self.changed:
            self.notices.append(notice)
            self.changed.notify_all()

    def expect(self, *rows: str, key: str = "ns/llama-0/server") -> None:
        self.until(lambda: self.texts.get(key, []) == list(rows))

    def until(self, done: Callable[[], bool]) -> None:
        with self.changed:
            for _ in range(400):
                if done():
                    return
                self.changed.wait(0.05)
            raise AssertionError((self.texts, self.notices))

    def __enter__(self) -> Running:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.logs.close()
        self.thread.join(20.0)
        assert not self.thread.is_alive()


def test_lines_come_as_they_are_written(api: KubeApi, tmp_path: Path) -> None:
    api.write("llama-0", (at(1), "one"))
    with Running(api, tmp_path, from_end=False) as running:
        running.expect("one")
        api.write("llama-0", (at(2), "  two"), (at(2, 5), "(APIServer pid=1) WARNING 11-20 09:00:02 [a.py:1] boom"))
        running.until(lambda: len(running.texts["ns/llama-0/server"]) == 3)
    (found,) = read([contains("boom")], running.data)
    assert (found.record.severity_text, found.record.attributes["stream"]) == ("WARN", "stdout")


def test_a_log_never_seen_is_begun_at_its_end(api: KubeApi, tmp_path: Path) -> None:
    api.write("llama-0", (at(1), "old"))
    with Running(api, tmp_path) as running:
        running.until(lambda: any(query.get("follow") for _, query in api.requests))
        api.write("llama-0", (at(2), "new"))
        running.expect("new")


def test_a_cut_stream_goes_on_without_missing_or_repeating(api: KubeApi, tmp_path: Path) -> None:
    # The second of the cut has lines before and after it, two of them with the very same stamp.
    api.write("llama-0", (at(1), "a"), (at(1, 7), "b"), (at(1, 7), "c"))
    with Running(api, tmp_path, from_end=False) as running:
        running.expect("a", "b", "c")
        api.cut()
        api.write("llama-0", (at(1, 7), "d"), (at(1, 9), "e"))
        running.expect("a", "b", "c", "d", "e")


def test_goes_on_from_a_committed_position(api: KubeApi, tmp_path: Path) -> None:
    api.write("llama-0", (at(1), "a"), (at(2), "b"))
    with Running(api, tmp_path, from_end=False) as running:
        running.expect("a", "b")
    api.write("llama-0", (at(2), "c"), (at(3), "d"))
    with Running(api, tmp_path, running.positions) as later:
        later.expect("c", "d")


def test_the_rest_of_a_container_that_restarted_comes_first(api: KubeApi, tmp_path: Path) -> None:
    api.write("llama-0", (at(1), "a"))
    with Running(api, tmp_path, from_end=False) as running:
        running.expect("a")
    api.write("llama-0", (at(2), "last words"))
    api.restart("llama-0")
    api.write("llama-0", (at(3), "new"))
    with Running(api, tmp_path, running.positions) as later:
        later.expect("last words", "new")
        api.restart("llama-0")  # while it is followed
        api.write("llama-0", (at(4), "newer"))
        later.expect("last words", "new", "newer")


def test_pods_by_label_and_those_that_come_later(api: KubeApi, tmp_path: Path) -> None:
    api.labels = {"llama-0": "app=llama", "llama-1": "app=llama", "other": "app=other"}
    api.write("llama-0", (at(1), "zero"))
    api.write("other", (at(1), "other"))
    with Running(api, tmp_path, pod="", selector="app=llama", from_end=False) as running:
        running.expect("zero")
        api.write("llama-1", (at(2), "one"))
        api.write("llama-1", (at(2), "sidecar"), container="proxy")
        running.expect("one", key="ns/llama-1/server")
        running.expect("sidecar", key="ns/llama-1/proxy")
    assert "ns/other/server" not in running.texts


def test_refusals_are_said_once_and_recovered_from(api: KubeApi, tmp_path: Path) -> None:
    api.write("llama-0", (at(1), "a"))
    api.refuse = (403, 'pods "llama-0" is forbidden')
    with Running(api, tmp_path, from_end=False) as running:
        running.until(lambda: bool(running.notices) and len(api.requests) > 3)
        assert [(notice.kind, "forbidden" in notice.text) for notice in running.notices] == [("denied", True)]
        api.refuse = None
        running.expect("a")
        running.until(lambda: running.notices[-1].kind == "recovered")


def test_a_pod_that_is_not_there_is_waited_for(api: KubeApi, tmp_path: Path) -> None:
    with Running(api, tmp_path, from_end=False) as running:
        running.until(lambda: bool(running.notices))
        assert running.notices[0].kind == "waiting"
        api.write("llama-0", (at(1), "a"))
        running.expect("a")


def test_the_token_is_read_anew(api: KubeApi, tmp_path: Path) -> None:
    api.write("llama-0", (at(1), "a"))
    with Running(api, tmp_path, from_end=False) as running:
        running.expect("a")
        api.token = "second"
        (tmp_path / "token").write_text("second")
        api.cut()
        api.write("llama-0", (at(2), "b"))
        running.expect("a", "b")


def test_a_server_that_the_ca_does_not_know_is_refused(api: KubeApi, tmp_path: Path) -> None:
    import trustme

    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.crt")
    with Running(api, tmp_path) as running:
        running.until(lambda: bool(running.notices))
    assert "CERTIFICATE_VERIFY_FAILED" in running.notices[0].text
    assert api.requests == []


def test_where_the_api_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    assert ApiAccess().address() == ("fd00::1", 6443)
    assert ApiAccess("https://api.example:8443").address() == ("api.example", 8443)
    with pytest.raises(Exception, match="no https address"):
        ApiAccess("http://api.example").address()
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    with pytest.raises(Exception, match="KUBERNETES_SERVICE_HOST is not set"):
        ApiAccess().address()
    with pytest.raises(Exception, match="no namespace"):
        ApiAccess().own_namespace()
