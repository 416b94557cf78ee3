"""What a receiver is: one method, four outcomes, one exception tree.

A receiver turns one :class:`Notification` into one attempt at its service and says how it went. It keeps no queue,
never sleeps and never retries: the outbox does, and survives restarts. It raises nothing but :class:`DeliveryError`.

Exceptions::

    DeliveryError              anything that ended an attempt; its text is safe to log and to store
    ├── Unreachable            no connection: refused, name not found, reset, TLS
    │   └── TlsFailed          certificate or handshake; the text says which CA was tried
    ├── DeadlineExceeded       the attempt's time was up (``sent``: the request had gone out, so it may have arrived)
    ├── Redirected             a redirect, which is never followed: a login page must not look like success
    └── ConfigFault            the receiver cannot work as configured: a secret's file is missing, a URL is malformed
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from agent.model import Alert, Duration

__all__ = [
    "Action",
    "ConfigFault",
    "DeadlineExceeded",
    "DeliveryError",
    "LevelReceiver",
    "Notification",
    "Outcome",
    "Reason",
    "Receiver",
    "ReceiverOptions",
    "Redirected",
    "TlsFailed",
    "Traits",
    "Unreachable",
]

Action = Literal["open", "update", "repeat", "resolve", "acknowledge", "change"]
Reason = Literal["", "timeout", "network", "tls", "rate_limited", "client", "server", "auth", "config", "other"]
"""Why an attempt failed, as a bounded metric label."""


class DeliveryError(Exception):
    """An attempt ended without an answer. ``text`` holds no credential."""

    reason: Reason = "other"


class Unreachable(DeliveryError):
    """The peer could not be talked to."""

    reason: Reason = "network"

    def __init__(self, text: str, *, sent: bool = False) -> None:
        super().__init__(text)
        self.sent = sent


class TlsFailed(Unreachable):
    """The peer's certificate or handshake was refused."""

    reason: Reason = "tls"


class DeadlineExceeded(DeliveryError):
    """The total time of the attempt was up."""

    reason: Reason = "timeout"

    def __init__(self, text: str, *, sent: bool = False) -> None:
        super().__init__(text)
        self.sent = sent


class Redirected(DeliveryError):
    """The peer wants the request elsewhere."""

    reason: Reason = "client"


class ConfigFault(DeliveryError):
    """The receiver cannot work until somebody changes something on this side."""

    reason: Reason = "config"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one attempt went.

    ``success``  delivered; ``ref`` is what later updates of the same page need (a message's id), merged into the page.
    ``retry``    not now: again after ``after`` seconds, or after the outbox's own backoff when None. ``uncertain``: it
                 may have arrived all the same.
    ``degrade``  the service refused this content: again at once, with less of it.
    ``permanent`` it never will work as configured: the receiver is at fault, not the moment.
    """

    kind: Literal["success", "retry", "degrade", "permanent"]
    after: float | None = None
    reason: Reason = ""
    detail: str = ""
    ref: Mapping[str, Any] = field(default_factory=dict)
    uncertain: bool = False

    @classmethod
    def success(cls, detail: str = "", **ref: Any) -> Outcome:
        return cls("success", detail=detail, ref=ref)

    @classmethod
    def retry(
        cls, detail: str, *, reason: Reason = "other", after: float | None = None, uncertain: bool = False
    ) -> Outcome:
        return cls("retry", after=after, reason=reason, detail=detail, uncertain=uncertain)

    @classmethod
    def degrade(cls, detail: str, *, reason: Reason = "client") -> Outcome:
        return cls("degrade", reason=reason, detail=detail)

    @classmethod
    def permanent(cls, detail: str, *, reason: Reason = "client") -> Outcome:
        return cls("permanent", reason=reason, detail=detail)

    @classmethod
    def from_error(cls, error: DeliveryError) -> Outcome:
        """The retry class of an attempt without an answer: a fault of configuration is permanent, all else passes."""
        if isinstance(error, ConfigFault):
            return cls.permanent(str(error), reason="config")
        return cls.retry(str(error), reason=error.reason, uncertain=bool(getattr(error, "sent", False)))


@dataclass(frozen=True, slots=True)
class Notification:
    """What a receiver is to be told about one page, as it stands now.

    ``key`` is the dedup key, the same from the first word to the last; ``seq`` counts what was said under it.
    ``alerts`` are all members of the page in their present state; ``news`` the fingerprints of those that changed.
    ``ref`` is what the receiver returned earlier. ``degraded`` counts how often the content was refused: each step
    says less (see :func:`integrations.message.shorten`). ``delayed`` is how late this is in seconds, ``uncertain`` that
    an earlier attempt may have arrived, ``notes`` what the dispatcher has to add ("flapping: 6 times in 42 min").
    ``others`` names open alerts of the same group that have pages of their own; ``fleet`` is how many servers are
    watched, 0 when that is not known.
    """

    receiver: str
    key: str
    action: Action
    alerts: tuple[Alert, ...]
    now: float
    seq: int = 1
    group_key: str = ""
    group_labels: Mapping[str, str] = field(default_factory=dict)
    news: tuple[str, ...] = ()
    ref: Mapping[str, Any] = field(default_factory=dict)
    degraded: int = 0
    delayed: float = 0.0
    uncertain: bool = False
    notes: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    external_url: str = ""
    fleet: int = 0
    test: bool = False

    @property
    def firing(self) -> tuple[Alert, ...]:
        return tuple(alert for alert in self.alerts if alert.state != "resolved")

    @property
    def resolved(self) -> tuple[Alert, ...]:
        return tuple(alert for alert in self.alerts if alert.state == "resolved")


@dataclass(frozen=True, slots=True)
class Traits:
    """What the dispatcher must know of a receiver to plan for it.

    ``keyed``: the service has a dedup key, so a repeat is harmless. ``editable``: an earlier message can be changed.
    ``partial``: it wants to know when some but not all alerts of a page resolved. ``late``: a page that opened and
    resolved before anything could be delivered is still worth a message. ``level``: it wants the whole firing set again
    and again (Alertmanager) and has no outbox.
    """

    keyed: bool = False
    editable: bool = False
    partial: bool = False
    late: bool = True
    level: bool = False


@dataclass(frozen=True, kw_only=True)
class ReceiverOptions:
    """Options that every receiver has. Subclasses add their own; names are Alertmanager's where it has one."""

    send_resolved: bool = field(default=True, metadata={"doc": "also say when the alert is over"})
    timeout: Duration = field(
        default=Duration(10.0), metadata={"doc": "longest duration of one attempt, from name lookup to the last byte"}
    )
    max_age: Duration | None = field(
        default=None,
        metadata={"doc": "how long delivery is tried before it counts as failed; default 1h for critical, 15m else"},
    )
    title: str = field(default="", metadata={"doc": "template of the title; empty: the built-in one"})
    text: str = field(default="", metadata={"doc": "template of the summary below the title; empty: the built-in one"})


@runtime_checkable
class Receiver(Protocol):
    """One destination. ``kind`` names the integration (``slack``), ``traits`` what it can do."""

    @property
    def kind(self) -> str: ...

    @property
    def traits(self) -> Traits: ...

    def notify(self, notification: Notification) -> Outcome:
        """One attempt. Never sleeps; ends within the configured time-out; raises DeliveryError at most."""
        ...


@runtime_checkable
class LevelReceiver(Protocol):
    """A peer that wants all alerts that fire, and those that lately resolved, again and again."""

    @property
    def kind(self) -> str: ...

    @property
    def peer(self) -> str:
        """Host and port: which of several peers this is."""
        ...

    @property
    def resend_interval(self) -> float: ...

    def push(self, alerts: Sequence[Alert], *, now: float) -> Outcome: ...
