"""A metrics page in Prometheus's text format, version 0.0.4, built family by family."""

from __future__ import annotations

from collections.abc import Mapping

from reproducer.stats import Histogram

__all__ = ["Page", "escape"]


def escape(value: str) -> str:
    """A label value as the format wants it."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Page:
    """Families in the order in which they are added; ``labels`` go on every sample."""

    def __init__(self, **labels: str) -> None:
        self.labels = labels
        self.lines: list[str] = []

    def gauge(self, name: str, about: str, value: float, **labels: str) -> None:
        self._head(name, "gauge", about)
        self.sample(name, value, **labels)

    def counter(self, name: str, about: str, value: float, **labels: str) -> None:
        """``name`` as exposed, with its ``_total``."""
        self._head(name, "counter", about)
        self.sample(name, value, **labels)

    def counters(self, name: str, about: str, label: str, values: Mapping[str, float]) -> None:
        """One counter family, a sample for each value of ``label``."""
        self._head(name, "counter", about)
        for key, value in values.items():
            self.sample(name, value, **{label: key})

    def gauges(self, name: str, about: str, label: str, values: Mapping[str, float]) -> None:
        self._head(name, "gauge", about)
        for key, value in values.items():
            self.sample(name, value, **{label: key})

    def histogram(self, name: str, about: str, histogram: Histogram) -> None:
        self._head(name, "histogram", about)
        total = 0
        for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
            total += count
            self.sample(f"{name}_bucket", total, le="+Inf" if bound == float("inf") else repr(float(bound)))
        self.sample(f"{name}_count", histogram.count)
        self.sample(f"{name}_sum", histogram.sum)

    def sample(self, name: str, value: float, **labels: str) -> None:
        pairs = ",".join(f'{key}="{escape(text)}"' for key, text in {**self.labels, **labels}.items())
        self.lines.append(f"{name}{{{pairs}}} {float(value)!r}" if pairs else f"{name} {float(value)!r}")

    def render(self) -> str:
        return "\n".join(self.lines) + "\n"

    def _head(self, name: str, kind: str, about: str) -> None:
        self.lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
