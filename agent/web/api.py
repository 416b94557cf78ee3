"""The routes: what an address means. A function from Request to Response over a View; openapi.yaml describes it.

Three kinds of access. ``open``: the page's own files, probes and health, which hold no log text. ``read``: needs the
token when one is configured. ``write``: refused unless a token is configured and given, over TLS or from this machine.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from agent.telemetry import Telemetry
from agent.web.assets import asset
from agent.web.events import EventBus
from agent.web.http import HttpError, Request, Response, json_response, text_response
from agent.web.jsonable import dump, jsonable
from agent.web.probes import DEFAULT_CONFIDENCES, LiveAnswer, live
from agent.web.view import PLOT_SIGNALS, Incident, View

__all__ = ["Access", "Api", "Route"]

Access = Literal["open", "read", "write"]
INCIDENT_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,80}")
MAX_SUBSCRIBERS: Final = 32
MAX_SERVERS: Final = 32
"""Servers whose series one request may ask for."""
_PAGE: Final = "index.html"


@dataclass(frozen=True, slots=True)
class Route:
    """``parts`` is the path, ``*`` standing for one segment that is handed to ``answer``."""

    method: str
    parts: tuple[str, ...]
    access: Access
    handler: str
    answer: Callable[..., Response]


class Api:
    """Every address of the server. ``keep_alive`` is how often, in seconds, an event stream shows that it lives."""

    def __init__(
        self,
        view: View,
        events: EventBus,
        telemetry: Telemetry,
        *,
        probe_confidences: Collection[str] = DEFAULT_CONFIDENCES,
        keep_alive: float = 15.0,
        event_gap: float = 2.0,
    ) -> None:
        self._view = view
        self._events = events
        self._telemetry = telemetry
        self._probe_confidences = frozenset(probe_confidences)
        self._keep_alive = keep_alive
        self._event_gap = event_gap
        v1: tuple[tuple[str, str, Access, str, Callable[..., Response]], ...] = (
            ("GET", "/-/healthy", "open", "health", self._healthy),
            ("GET", "/-/ready", "open", "health", self._ready),
            ("POST", "/-/reload", "write", "health", self._reload),
            ("GET", "/metrics", "read", "metrics", self._metrics),
            ("GET", "/openapi.yaml", "open", "page", lambda _: self._file("openapi.yaml")),
            ("GET", "/api/v1/status", "read", "api", self._status),
            ("GET", "/api/v1/servers", "read", "api", self._servers),
            ("GET", "/api/v1/servers/*", "read", "api", self._server),
            ("GET", "/api/v1/servers/*/live", "open", "live", self._live),
            ("GET", "/api/v1/live", "open", "live", self._live_only),
            ("GET", "/api/v1/series", "read", "api", self._series),
            ("GET", "/api/v1/alerts", "read", "api", lambda _: json_response(self._view.alerts())),
            ("GET", "/api/v1/incidents", "read", "api", self._incidents),
            ("GET", "/api/v1/incidents/*", "read", "api", self._incident),
            ("GET", "/api/v1/incidents/*/evidence.tar", "read", "api", self._incident_tar),
            ("GET", "/api/v1/rules", "read", "api", lambda _: json_response(self._view.rules())),
            ("GET", "/api/v1/sources", "read", "api", lambda _: json_response(self._view.sources())),
            ("GET", "/api/v1/outbox", "read", "api", lambda _: json_response(self._view.outbox())),
            ("POST", "/api/v1/outbox/*/retry", "write", "api", self._retry),
            ("GET", "/api/v1/onset", "read", "api", self._onset),
            ("GET", "/api/v1/health", "read", "api", lambda _: json_response(self._view.self_health())),
            ("GET", "/api/v1/mutes", "read", "api", lambda _: json_response(self._view.mutes())),
            ("POST", "/api/v1/mutes", "write", "api", self._mute),
            ("DELETE", "/api/v1/mutes/*", "write", "api", self._unmute),
            ("GET", "/api/v1/events", "read", "events", self._stream),
        )
        self.routes = tuple(
            Route(method, tuple(path.split("/")[1:]), access, handler, answer)
            for method, path, access, handler, answer in v1
        )

    def find(self, request: Request) -> Route:
        """The route of a request. Raises HttpError 404, or 405 with ``Allow``."""
        method = "GET" if request.method == "HEAD" else request.method
        allowed = []
        for route in self.routes:
            if _fits(route.parts, request.segments):
                if route.method == method:
                    return route
                allowed.append(route.method)
        if not allowed and len(request.segments) == 1:
            name = request.segments[0] or _PAGE
            if asset(name) is not None:
                if method != "GET":
                    raise HttpError(405, f"{request.method} is not possible here.", {"Allow": "GET, HEAD"})
                return Route("GET", (name,), "open", "page", lambda _: self._file(name))
        if allowed:
            names = sorted({*allowed, *(["HEAD"] if "GET" in allowed else [])})
            raise HttpError(405, f"{request.method} is not possible here.", {"Allow": ", ".join(names)})
        raise HttpError(404, "There is nothing at this address; /openapi.yaml lists what there is.")

    def answer(self, route: Route, request: Request) -> Response:
        """Runs the route; the segments that stand for ``*`` are its arguments."""
        stars = [segment for part, segment in zip(route.parts, request.segments, strict=False) if part == "*"]
        return route.answer(request, *stars)

    # health and metrics

    def _healthy(self, _: Request) -> Response:
        return text_response("wedgewatch is healthy.\n")

    def _ready(self, _: Request) -> Response:
        ready = self._view.self_health().ready
        return text_response(*(("wedgewatch is ready.\n", 200) if ready else ("wedgewatch is starting.\n", 503)))

    def _reload(self, _: Request) -> Response:
        fault = self._view.reload()
        if fault:
            raise HttpError(422, f"The configuration in force stays: {fault}")
        return json_response({"reloaded": True})

    def _metrics(self, request: Request) -> Response:
        content_type, body = self._telemetry.render(request.headers.get("accept", ""))
        return Response(200, content_type, body, {"Cache-Control": "no-store"})

    def _file(self, name: str) -> Response:
        found = asset(name)
        if found is None:
            raise HttpError(404, f"The package lacks its file {name}; install it anew.")
        return Response(200, found.content_type, found.body, {"ETag": found.etag, "Cache-Control": "no-cache"})

    # what is seen

    def _status(self, _: Request) -> Response:
        view = self._view
        return json_response(
            {
                "now": _clock(view.now()),
                "revision": self._events.revision,
                "health": view.self_health(),
                "servers": view.servers(),
                "alerts": view.alerts(),
                "observed": view.observed(),
            }
        )

    def _servers(self, _: Request) -> Response:
        return json_response(self._view.servers())

    def _server(self, _: Request, name: str) -> Response:
        for server in self._view.servers():
            if server.name == name:
                return json_response(server)
        raise HttpError(404, "No server of this name is watched here; /api/v1/servers lists those that are.")

    def _live(self, _: Request, name: str) -> Response:
        answer = live(self._view, name, self._probe_confidences)
        known = name if answer.status != "unknown" else "other"
        self._telemetry.inc("probe_requests_total", server=known, result=answer.status)
        return json_response(answer, answer.code)

    def _live_only(self, request: Request) -> Response:
        """For a sidecar: a probe's address cannot hold the pod's name."""
        names = [server.name for server in self._view.servers()]
        if len(names) == 1:
            return self._live(request, names[0])
        why = f"{len(names)} servers are watched; ask /api/v1/servers/NAME/live."
        self._telemetry.inc("probe_requests_total", server="other", result="unknown")
        return json_response(LiveAnswer("", True, "unknown", why))

    def _series(self, request: Request) -> Response:
        servers = [name for name in request.query.get("server", ()) if name]
        if not 0 < len(servers) <= MAX_SERVERS:
            raise HttpError(400, f"Say which server, at most {MAX_SERVERS}: /api/v1/series?server=NAME&server=NAME.")
        signal = request.text("signal")
        if signal and signal not in PLOT_SIGNALS:
            raise HttpError(400, f"signal must be one of {', '.join(PLOT_SIGNALS)}.")
        until = request.time("until", self._view.now())
        since = request.time("since", max(0.0, until - 900))
        points = request.integer("points", 360, 2, 2000)
        engine = request.text("engine_index")
        return json_response(
            [item for name in servers for item in self._view.series(name, engine, signal, since, until, points)]
        )

    def _incidents(self, request: Request) -> Response:
        limit = request.integer("limit", 50, 1, 500)
        found = self._view.incidents(limit, request.text("server"))
        return json_response([_brief(incident) for incident in found])

    def _incident(self, _: Request, incident_id: str) -> Response:
        incident = self._view.incident(incident_id) if INCIDENT_ID.fullmatch(incident_id) else None
        if incident is None:
            raise HttpError(404, "No such incident; it may be older than what is kept.")
        return json_response(incident)

    def _incident_tar(self, _: Request, incident_id: str) -> Response:
        found = self._view.incident_tar(incident_id) if INCIDENT_ID.fullmatch(incident_id) else None
        if found is None:
            raise HttpError(404, "No evidence is kept for this incident.")
        size, blocks = found
        headers = {
            "Content-Length": str(size),
            "Content-Disposition": f'attachment; filename="wedgewatch-{incident_id}.tar"',
            "Cache-Control": "no-store",
        }
        return Response(200, "application/x-tar", blocks, headers)

    def _onset(self, request: Request) -> Response:
        server = request.text("server")
        if not server:
            raise HttpError(400, "Say which server: /api/v1/onset?server=NAME.")
        found = self._view.onset(server)
        if found is None:
            raise HttpError(404, "No server of this name is watched here.")
        return json_response(found)

    # what changes something

    def _mute(self, request: Request) -> Response:
        body = _json_object(request)
        matchers, comment = body.get("matchers"), body.get("comment", "")
        seconds = body.get("for_s")
        if not isinstance(matchers, list) or not matchers or not all(isinstance(item, str) for item in matchers):
            raise HttpError(400, 'matchers must be a list of texts such as "server=\\"llama-0\\"".')
        if len(matchers) > 20 or any(len(item) > 500 for item in matchers):
            raise HttpError(400, "At most 20 matchers of at most 500 characters.")
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 1 <= seconds <= 30 * 86400:
            raise HttpError(400, "for_s must be a number of seconds from 1 to 2592000 (30 days).")
        if not isinstance(comment, str) or len(comment) > 1000:
            raise HttpError(400, "comment must be a text of at most 1000 characters.")
        try:
            muted = self._view.mute(tuple(matchers), float(seconds), comment)
        except ValueError as error:
            raise HttpError(400, str(error)) from error
        return json_response(muted, 201)

    def _unmute(self, _: Request, mute_id: str) -> Response:
        if not self._view.unmute(mute_id):
            raise HttpError(404, "No mute of this id is in force.")
        return json_response({"unmuted": mute_id})

    def _retry(self, _: Request, item: str) -> Response:
        if not (item.isascii() and item.isdigit() and len(item) < 19 and self._view.retry_outbox(int(item))):
            raise HttpError(404, "No undelivered notification of this id.")
        return json_response({"retried": int(item)})

    # live

    def _stream(self, request: Request) -> Response:
        if request.method == "HEAD":
            return Response(200, "text/event-stream")
        if self._events.subscribers >= MAX_SUBSCRIBERS:
            raise HttpError(503, "Too many pages listen at once; ask again, or poll.", {"Retry-After": "10"})
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return Response(200, "text/event-stream", self._events_of(), headers)

    def _events_of(self) -> Iterator[bytes]:
        with self._events.subscribe() as subscription:
            yield b"retry: 3000\n\n"
            while not self._events.closed:
                topics = subscription.wait(self._keep_alive)
                if topics:
                    news = {"topics": sorted(topics), "revision": self._events.revision}
                    yield b"event: change\ndata: " + dump(news) + b"\n\n"
                    self._events.rest(self._event_gap)
                else:
                    yield b": still here\n\n"


def _clock(now: float) -> float | None:
    """The daemon's clock, in Unix seconds with milliseconds: the page counts on from it."""
    return round(now, 3) if math.isfinite(now) else None


def _fits(parts: tuple[str, ...], segments: tuple[str, ...]) -> bool:
    return len(parts) == len(segments) and all(
        part == segment or (part == "*" and segment != "") for part, segment in zip(parts, segments, strict=True)
    )


def _brief(incident: Incident) -> dict[str, Any]:
    brief: dict[str, Any] = jsonable(incident)
    for key in ("context", "evidence"):
        brief.pop(key)
    brief["alert"].get("context", {}).pop("series", None)
    return brief


def _json_object(request: Request) -> dict[str, Any]:
    try:
        body = json.loads(request.body or b"null")
    except (ValueError, RecursionError) as error:
        raise HttpError(400, "The body is no JSON.") from error
    if not isinstance(body, dict):
        raise HttpError(400, "The body must be a JSON object.")
    return body
