"""The retry class of a plain HTTP status: one table for every service.

| status | class |
|---|---|
| 2xx | success, unless it is a web page |
| 408, 425, 429, 5xx | retry |
| 400, 413, 422 (as the service uses them) | degrade: the content was refused |
| 401, 403, 404, 410 and other 4xx | permanent |
"""

from __future__ import annotations

from typing import Final

from integrations.base import Outcome
from integrations.http import HttpResponse

__all__ = ["by_status"]

_PASSING: Final = frozenset({408, 425, 429})


def by_status(
    answer: HttpResponse,
    *,
    content_refused: frozenset[int] = frozenset({400, 413}),
    retry_after: float | None = None,
    hint: str = "",
    html_is_fine: bool = False,
) -> Outcome:
    """Outcome of an answer by its status. ``retry_after`` overrides the header; ``hint`` is added to permanent ones.

    A web page with status 200 is a proxy's login or a captive portal, not the receiver, unless ``html_is_fine``."""
    status, said = answer.status, answer.text(160)
    detail = f"{status}: {said}" if said else str(status)
    after = answer.retry_after() if retry_after is None else retry_after
    if answer.ok:
        if not html_is_fine and answer.body[:512].lstrip().lower().startswith((b"<!doctype html", b"<html")):
            return Outcome.retry(f"answered {status} with a web page (a login?), not by the receiver", reason="client")
        return Outcome.success()
    if status == 429:
        return Outcome.retry(detail, reason="rate_limited", after=after)
    if status in _PASSING:
        return Outcome.retry(detail, reason="client", after=after)
    if status >= 500:
        return Outcome.retry(detail, reason="server", after=after)
    if status in content_refused:
        return Outcome.degrade(detail)
    if status in {401, 403}:
        return Outcome.permanent(f"{detail}; {hint}" if hint else detail, reason="auth")
    return Outcome.permanent(f"{detail}; {hint}" if hint else detail, reason="client")
