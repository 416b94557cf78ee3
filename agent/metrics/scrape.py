"""One look at a server's page of metrics: ask, read, parse, map; what went wrong becomes a failed sample with a class.

The thread that looks at an interval belongs to the daemon; nothing here waits for anything but the server, and for
that no longer than the endpoint's timeout.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal
from urllib.parse import urlsplit

from agent.metrics.fetch import Endpoint, FetchError, Response, fetch, printable
from agent.metrics.mapping import SignalMapper
from agent.metrics.parse import LineFault, Page, parse_page
from agent.metrics.trtllm_json import IterationReader
from agent.model import Sample

__all__ = ["PageFormat", "ScrapeResult", "Scraper"]

PageFormat = Literal["prometheus", "trtllm_json"]
"""``trtllm_json``: TensorRT-LLM's ``/metrics``, whose records each reading takes away from everybody else."""

ACCEPT: Final = "text/plain;version=0.0.4;q=1,application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1"
"""The text format first: it has no exemplars."""

_CPU_CLOCK: Final = b"process_cpu_seconds_total"
"""A page that counts its process's CPU time never stays the same, whatever the engine does."""

MAX_SERIES: Final = 20_000
"""Most series of wanted names on one page; eight engines have about a hundred."""


@dataclass(frozen=True, slots=True)
class ScrapeResult:
    """How the last look went, for people and for our own metrics page.

    ``reason`` is a class of :data:`agent.metrics.fetch.Reason` or empty; ``error`` the sentence. ``digest`` names the
    body; ``repeats`` counts the looks in a row before this one that brought the same body. ``seconds`` is how long
    it took.
    """

    timestamp: float
    reason: str = ""
    error: str = ""
    status: int = 0
    size: int = 0
    seconds: float = 0.0
    lines: int = 0
    series: int = 0
    bad_lines: int = 0
    faults: tuple[LineFault, ...] = ()
    partial: bool = False
    digest: str = ""
    repeats: int = 0

    @property
    def ok(self) -> bool:
        return not self.reason


class Scraper:
    """Looks at one server. Not for use by two threads at once."""

    def __init__(
        self,
        endpoint: Endpoint,
        mapper: SignalMapper,
        *,
        server: str,
        format: PageFormat = "prometheus",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._endpoint = endpoint
        self._mapper = mapper
        self._server = server
        self._records = IterationReader() if format == "trtllm_json" else None
        self._clock = clock
        self._stamp: float | None = None
        self.last: ScrapeResult | None = None

    @property
    def mapper(self) -> SignalMapper:
        return self._mapper

    def scrape(self, now: float) -> list[Sample]:
        """Samples of this instant (``now``: Unix seconds), or one failed sample. Raises nothing that a server can
        cause."""
        began = self._clock()
        response: Response | None = None
        digest = ""
        try:
            response = fetch(self._endpoint, headers={"Accept": ACCEPT}, clock=self._clock)
            self._check(response)
            digest = hashlib.blake2b(response.body, digest_size=16).hexdigest()
            if self._records is not None:
                samples = self._records.read(response.body, server=self._server, timestamp=now)
                page = Page([])
            else:
                samples, page = self._read(response, now, digest)
        except FetchError as error:
            self.last = ScrapeResult(
                now,
                error.reason,
                error.text,
                status=response.status if response is not None else 0,
                size=len(response.body) if response is not None else 0,
                seconds=self._clock() - began,
            )
            return [Sample(now, self._server, "metrics", {}, ok=False, error=f"{error.reason}: {error.text}")]
        self.last = ScrapeResult(
            now,
            status=response.status,
            size=len(response.body),
            seconds=self._clock() - began,
            lines=page.lines,
            series=len(page.series),
            bad_lines=page.bad_lines,
            faults=page.faults,
            partial=response.partial or page.cut,
            digest=digest,
            repeats=samples[0].repeats if samples else 0,
        )
        return samples

    @staticmethod
    def _check(response: Response) -> None:
        status = response.status
        if 300 <= status < 400:
            where = _without_secrets(response.headers.get("location", ""))
            raise FetchError("redirect", f"{status} to {where}; redirects are not followed, configure that address")
        if status != 200:
            hint = {
                401: "; check the credentials",
                403: "; check the credentials",
                404: "; is this the path of the metrics? vLLM: /metrics, TensorRT-LLM: /prometheus/metrics",
                501: "; metrics may have to be switched on in the engine",
            }.get(status, "")
            raise FetchError("http", f"{status} {printable(response.reason, 60)}{hint}")

    def _read(self, response: Response, now: float, digest: str) -> tuple[list[Sample], Page]:
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        body = response.body
        page = parse_page(
            body,
            self._mapper.wanted(body),
            openmetrics=kind == "application/openmetrics-text",
            partial=response.partial,
            limit=MAX_SERIES,
        )
        if len(page.series) > MAX_SERIES:
            raise FetchError("too_large", f"the page holds more than {MAX_SERIES} series of the metrics that are read")
        if page.kind == "html":
            raise FetchError("html", "the answer is an HTML page: a login, a proxy or another program answers there")
        if page.kind == "json":
            raise FetchError(
                "parse",
                "the answer is JSON; for TensorRT-LLM use the path /prometheus/metrics, "
                "or format: trtllm_json if nobody else reads those records",
            )
        if page.kind == "other":
            raise FetchError("parse", f"no line of the answer is a metric (it begins '{_beginning(body)}')")
        samples = self._mapper.map(page, server=self._server, timestamp=now, repeats=self._count_repeats(digest, page))
        stamped = any(series.timestamp is not None for series in page.series)
        if samples[0].repeats and (stamped or _CPU_CLOCK in body):
            samples = [replace(sample, clocked=True) for sample in samples]
        return samples, page

    def _count_repeats(self, digest: str, page: Page) -> int:
        """How many looks before this one brought the same page; a page with stamps of its own that stand still is
        the same page too."""
        stamps = [series.timestamp for series in page.series if series.timestamp is not None]
        stamp = max(stamps) if stamps else None
        last = self.last
        same = (
            last is not None
            and last.ok
            and bool(page.lines)
            and (last.digest == digest or (stamp is not None and stamp == self._stamp))
        )
        self._stamp = stamp
        return last.repeats + 1 if same and last is not None else 0


def _beginning(body: bytes) -> str:
    return printable(body[:60].decode("utf-8", "replace").strip(), 40)


def _without_secrets(location: str) -> str:
    """The address of a redirect without user, password, query and fragment, where tokens travel."""
    try:
        parts = urlsplit(location)
        host = f"{parts.scheme}://{parts.hostname}" if parts.hostname else ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "another address"
    return printable(f"{host}{port}{parts.path}") or "another address"
