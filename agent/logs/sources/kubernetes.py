"""Logs of pods through the Kubernetes API, with the token and the CA that every pod has mounted.

The stream is resumed by timestamp. The API filters by whole seconds and includes them, so lines up to the last one
seen are dropped: those with an older stamp, and as many with the same stamp as were seen. A container that was
restarted meanwhile has its previous log read first.
https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#get-read-log-of-the-specified-pod
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from agent.logs.sources.piece import Deliver, Piece, Say, Trouble, keep_going

__all__ = ["ApiAccess", "PodLogs"]

_MOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_TIMEOUT: Final = 10.0
_CHUNK: Final = 64 << 10
_LONGEST: Final = 1 << 20
_STAMPED: Final = re.compile(rb"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d) ")


class ApiError(Exception):
    """The API refused. ``kind`` is that of the notice."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """Where the API is and how to speak to it; defaults are what is mounted into a pod.

    The token is read anew for each connection, since the kubelet renews its file.
    """

    server: str = ""
    token_file: str = f"{_MOUNT}/token"
    ca_file: str = f"{_MOUNT}/ca.crt"
    namespace: str = ""

    def address(self) -> tuple[str, int]:
        """Host and port. Raises ApiError when nothing says where the API is."""
        url = self.server
        if not url:
            host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
            if not host:
                raise ApiError("error", "no api_server is given and $KUBERNETES_SERVICE_HOST is not set")
            url = f"https://{f'[{host}]' if ':' in host else host}:{os.environ.get('KUBERNETES_SERVICE_PORT', '443')}"
        parts = urlsplit(url)
        if parts.scheme != "https" or not parts.hostname:
            raise ApiError("error", f"api_server {url!r} is no https address")
        return parts.hostname, parts.port or 443

    def own_namespace(self) -> str:
        """The namespace given, or the one this pod is in. Raises ApiError."""
        if self.namespace:
            return self.namespace
        try:
            with open(f"{_MOUNT}/namespace", encoding="utf-8") as handle:
                return handle.read().strip()
        except OSError as error:
            raise ApiError("error", "no namespace is given and none is mounted") from error

    def connect(self) -> http.client.HTTPSConnection:
        """A connection that notices a dead peer. Raises OSError, ApiError."""
        host, port = self.address()
        context = ssl.create_default_context(cafile=self.ca_file or None)
        connection = http.client.HTTPSConnection(host, port, timeout=_TIMEOUT, context=context)
        connection.connect()
        sock = connection.sock
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, option):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        return connection

    def request(self, connection: http.client.HTTPSConnection, path: str) -> http.client.HTTPResponse:
        """A GET with the token. Raises OSError, ApiError for every answer but 200."""
        with open(self.token_file, encoding="utf-8") as handle:
            token = handle.read().strip()
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}", "Accept": "*/*"})
        response = connection.getresponse()
        if response.status != 200:
            body = response.read(4096)
            raise ApiError(*_refusal(response.status, body))
        return response


def _refusal(status: int, body: bytes) -> tuple[str, str]:
    try:
        message = str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        message = body[:200].decode("utf-8", "replace").strip()
    kind = {401: "denied", 403: "denied", 404: "waiting"}.get(status, "error")
    return kind, f"the API says {status}: {message or http.client.responses.get(status, '')}"


class PodLogs:
    """The logs of one pod, or of all pods with a label ``selector``; found anew as they come and go.

    ``positions`` are the committed ones by key (``namespace/pod/container``). Lines come as CRI writes them.
    """

    def __init__(
        self,
        access: ApiAccess,
        *,
        pod: str = "",
        selector: str = "",
        container: str = "",
        positions: Mapping[str, Any] | None = None,
        from_end: bool = True,
    ) -> None:
        self.access = access
        self._pod = pod or ("" if selector else os.environ.get("POD_NAME", "") or socket.gethostname())
        self._selector = selector
        self._container = container
        self._positions = dict(positions or {})
        self._from_end = from_end
        self._streams: dict[str, _PodStream] = {}

    def run(
        self, stop: threading.Event, deliver: Deliver, say: Say, wait: Callable[[float], object] | None = None
    ) -> None:
        """Hand over lines until ``stop`` is set and :meth:`close` is called."""
        trouble = Trouble(f"pods {self._selector or self._pod}", say)
        threads: dict[str, threading.Thread] = {}

        def look() -> bool:
            try:
                found = self._containers()
            except (OSError, ApiError, http.client.HTTPException) as error:
                trouble.begins(getattr(error, "kind", "error"), f"{error}; trying again")
                return False
            trouble.ends()
            for key, stream in found.items():
                thread = threads.get(key)
                if thread is None or not thread.is_alive():
                    self._streams[key] = stream
                    threads[key] = threading.Thread(
                        target=stream.run, args=(stop, deliver, say, wait), name=f"pod {key}", daemon=True
                    )
                    threads[key].start()
            for key in [key for key in threads if key not in found]:
                # The pod is gone; its stream has ended or will be told so by the API.
                self._streams.pop(key, None)
                threads.pop(key)
            return True

        keep_going(look, stop, wait or (lambda pause: stop.wait(max(pause, 10.0))))
        self.close()
        for thread in threads.values():
            thread.join(_TIMEOUT)

    def close(self) -> None:
        """End all waits for lines, from any thread."""
        for stream in list(self._streams.values()):
            stream.close()

    def _containers(self) -> dict[str, _PodStream]:
        namespace = self.access.own_namespace()
        base = f"/api/v1/namespaces/{quote(namespace)}/pods"
        path = (
            f"{base}?{urlencode({'labelSelector': self._selector})}" if self._selector else f"{base}/{quote(self._pod)}"
        )
        with contextlib.closing(self.access.connect()) as connection:
            answer = json.loads(self.access.request(connection, path).read(32 << 20))
        out: dict[str, _PodStream] = {}
        for pod in answer.get("items", []) if self._selector else [answer]:
            name = str(pod["metadata"]["name"])
            containers = [str(item["name"]) for item in pod["spec"]["containers"]]
            for container in [self._container] if self._container else containers:
                key = f"{namespace}/{name}/{container}"
                out[key] = self._streams.get(key) or _PodStream(
                    self.access, f"{base}/{quote(name)}", container, key, self._positions.get(key),
                    from_end=self._from_end and key not in self._positions,
                )  # fmt: skip
        self._from_end = False  # what comes later is new and is read from its start
        return out


class _PodStream:
    """The log of one container."""

    def __init__(
        self,
        access: ApiAccess,
        pod: str,
        container: str,
        key: str,
        position: Mapping[str, Any] | None,
        *,
        from_end: bool,
    ) -> None:
        self._access = access
        self._pod = pod
        self._container = container
        self.key = key
        self._last = str(position["last"]) if position else ""
        self._same = int(position["same"]) if position else 0
        self._restarts = int(position["restarts"]) if position else -1
        self._from_end = from_end
        self._connection: http.client.HTTPSConnection | None = None
        self._lock = threading.Lock()
        self._closed = False

    def run(
        self, stop: threading.Event, deliver: Deliver, say: Say, wait: Callable[[float], object] | None = None
    ) -> None:
        """Follow until ``stop``, through disconnections and restarts of the container."""
        trouble = Trouble(f"pod {self.key}", say)
        keep_going(lambda: self._attempt(stop, deliver, trouble), stop, wait)

    def close(self) -> None:
        """Cut the connection, which ends a read in another thread."""
        with self._lock:
            self._closed = True
            sock = None if self._connection is None else self._connection.sock
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _attempt(self, stop: threading.Event, deliver: Deliver, trouble: Trouble) -> bool:
        came = False
        try:
            restarts = self._restart_count()
            if restarts > self._restarts >= 0:
                came = self._stream(stop, deliver, trouble, previous=True)
            self._restarts = max(restarts, 0)
            came = self._stream(stop, deliver, trouble, previous=False) or came
        except (OSError, ApiError, http.client.HTTPException, ValueError) as error:
            if not stop.is_set():
                reason = str(error) or type(error).__name__
                trouble.begins(getattr(error, "kind", "error"), f"{reason}; trying again")
        return came

    def _restart_count(self) -> int:
        """How often the container was restarted, -1 when we may not know."""
        try:
            with contextlib.closing(self._access.connect()) as connection:
                pod = json.loads(self._access.request(connection, self._pod).read(4 << 20))
        except ApiError as error:
            if error.kind == "denied":
                return -1
            raise
        statuses = pod.get("status", {}).get("containerStatuses", [])
        return next((int(item["restartCount"]) for item in statuses if item["name"] == self._container), 0)

    def _stream(self, stop: threading.Event, deliver: Deliver, trouble: Trouble, *, previous: bool) -> bool:
        query = {"container": self._container, "timestamps": "true"}
        query |= {"previous": "true"} if previous else {"follow": "true"}
        if self._last:
            query["sinceTime"] = _whole_second(self._last)
        elif self._from_end:
            query["tailLines"] = "0"
        came = False
        try:
            with contextlib.closing(self._open()) as connection:
                response = self._access.request(connection, f"{self._pod}/log?{urlencode(query)}")
                if not previous and connection.sock is not None:
                    connection.sock.settimeout(None)  # a log may be silent for hours; keep-alive notices a dead peer
                for data in self._fresh(_whole_lines(response)):
                    came = True
                    trouble.ends()
                    deliver(Piece(self.key, data, self._position()))
                    if stop.is_set():
                        break
        except ApiError as error:
            if not previous:
                raise
            trouble.begins("lost", f"the log before the last restart cannot be read: {error}")
        finally:
            self._connection = None
        self._from_end = False
        return came

    def _open(self) -> http.client.HTTPSConnection:
        connection = self._access.connect()
        with self._lock:
            if self._closed:
                connection.close()
                raise OSError("closed")
            self._connection = connection
        return connection

    def _fresh(self, lines: Iterator[bytes]) -> Iterator[bytes]:
        """Lines that were not seen before, as CRI writes them; moves the position."""
        last, skip, resuming = self._last, self._same, bool(self._last)
        for block in lines:
            out = []
            for line in block.splitlines(keepends=True):
                match = _STAMPED.match(line)
                if match is None:
                    # The API's own words ("unable to retrieve container logs"): they have no stamp.
                    continue
                stamp = _comparable(match)
                if resuming and stamp < last:
                    continue
                if resuming and stamp == last and skip:
                    skip -= 1
                    continue
                resuming = resuming and stamp == last
                if stamp > self._last:
                    self._last, self._same = stamp, 1
                elif stamp == self._last:
                    self._same += 1
                out.append(match[0] + b"stdout F " + line[match.end() :])
            if out:
                yield b"".join(out)

    def _position(self) -> dict[str, Any]:
        return {"last": self._last, "same": self._same, "restarts": self._restarts}


def _comparable(match: re.Match[bytes]) -> str:
    """The stamp with nine digits of fraction: it sorts as text (the API speaks in UTC)."""
    fraction = (match[2] or b".").ljust(10, b"0")
    return (match[1] + fraction + match[3]).decode("ascii")


def _whole_second(stamp: str) -> str:
    return stamp[:19] + "Z"


def _whole_lines(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """What comes, cut after its last newline; a last line that never ended is dropped, it comes again."""
    pending = b""
    while True:
        data = response.read1(_CHUNK)
        if not data:
            return
        lines, newline, pending = (pending + data).rpartition(b"\n")
        if newline:
            yield lines + newline
        elif len(pending) > _LONGEST:
            yield pending[:_LONGEST] + b"\n"
            pending = b""
