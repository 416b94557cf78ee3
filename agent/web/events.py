"""Who is told that something changed.

A subscriber does not get a queue of events but a set of topics that changed since it last looked: a slow page costs
a few words of memory, however long it sleeps, and a page that was away simply reads everything anew.
"""

from __future__ import annotations

import threading
from typing import Final

__all__ = ["TOPICS", "EventBus", "Subscription"]

TOPICS: Final = ("servers", "alerts", "incidents", "outbox", "rules", "sources", "health")


class Subscription:
    """One listener. Close it (it is a context manager) to leave the bus."""

    def __init__(self, bus: EventBus) -> None:
        self._bus = bus
        self._pending: set[str] = set()

    def wait(self, timeout: float) -> frozenset[str]:
        """Topics that changed, as soon as there is one; empty after ``timeout`` seconds or when the bus closes."""
        with self._bus.changed:
            if not self._pending and not self._bus.closed:
                self._bus.changed.wait(timeout)
            topics, self._pending = frozenset(self._pending), set()
            return topics

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self._bus.drop(self)

    def _notice(self, topics: set[str]) -> None:
        self._pending |= topics


class EventBus:
    """Passes topics on; ``revision`` counts the publications. Safe from any thread, never blocks a publisher."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.revision = 0
        self._closed = threading.Event()
        self._listeners: list[Subscription] = []

    def publish(self, *topics: str) -> None:
        """Tells every subscriber. Raises ValueError for a topic that is not in :data:`TOPICS`."""
        news = set(topics)
        if not news <= set(TOPICS):
            raise ValueError(f"unknown topic: {', '.join(sorted(news - set(TOPICS)))}")
        with self.changed:
            self.revision += 1
            for listener in self._listeners:
                listener._notice(news)
            self.changed.notify_all()

    def subscribe(self) -> Subscription:
        subscription = Subscription(self)
        with self.changed:
            self._listeners.append(subscription)
        return subscription

    def drop(self, subscription: Subscription) -> None:
        with self.changed:
            if subscription in self._listeners:
                self._listeners.remove(subscription)

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    def rest(self, seconds: float) -> None:
        """Waits, but no longer than until the bus closes: what comes meanwhile is told together."""
        self._closed.wait(seconds)

    def close(self) -> None:
        """Wakes every subscriber for the last time."""
        with self.changed:
            self._closed.set()
            self.changed.notify_all()

    @property
    def subscribers(self) -> int:
        return len(self._listeners)
