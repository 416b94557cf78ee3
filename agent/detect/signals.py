"""The recent past of a server's signals, for the ``when`` conditions of rules and for the page.

Series carry the labels ``server`` and, where replicas are told apart, ``engine_index``. Numbers of the start block are
series too, repeated at each look so that they never go stale while the server is seen.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from agent.detect.series import SeriesStore
from agent.model import SIGNALS, Sample

if TYPE_CHECKING:
    from agent.detect.promql import Expr

__all__ = ["SignalStore"]

RETENTION: Final = 3600.0
"""Seconds of history that conditions can look back on."""


@lru_cache(maxsize=512)
def _compiled(text: str) -> Expr:
    from agent.detect.promql import compile_expr  # the parser is loaded when the first condition is asked

    return compile_expr(text)


class SignalStore:
    """Series of one server, bounded in time and points."""

    def __init__(self, server: str) -> None:
        self.server = server
        self.store = SeriesStore(retention=RETENTION)
        self._facts: dict[str, float] = {}

    def append(self, sample: Sample, facts: Mapping[str, float]) -> None:
        """One look; a failed one ends the series it should have fed, as Prometheus does."""
        labels = self._labels(sample.instance)
        if not sample.ok:
            self.store.mark_stale(labels, sample.timestamp)
            return
        for name, value in {**self._facts, **facts, **sample.values}.items():
            self.store.append(name, labels, sample.timestamp, value)

    def facts(self, values: Mapping[str, float], timestamp: float) -> None:
        """Numbers of the start block."""
        self._facts.update(values)
        for name, value in values.items():
            self.store.append(name, self._labels(""), timestamp, value)

    def holds(self, expression: str, timestamp: float, instance: str, fields: Mapping[str, str] | None = None) -> bool:
        """Does a condition hold for this engine now? An empty result, as in Prometheus, is "no".

        ``fields``: what the rule's stages caught; those that are numbers are series for the condition, under their own
        names, as of now. A field cannot take the place of a signal."""
        for name, text in (fields or {}).items():
            if name in expression and name not in SIGNALS:
                with contextlib.suppress(ValueError):  # a field that is no number is no series
                    self.store.append(name, self._labels(instance), timestamp, float(text.replace(",", "")))
        return _compiled(expression).holds(self.store, timestamp, self._labels(instance))

    def _labels(self, instance: str) -> dict[str, str]:
        labels = {"server": self.server}
        if instance:
            labels["engine_index"] = instance
        return labels
