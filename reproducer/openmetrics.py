"""Many readings of a metrics page in one OpenMetrics file with timestamps, as promtool and wedgewatch read it."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["Recording"]

_SUFFIXES = ("_bucket", "_count", "_sum")


class Recording:
    """Families stay together and series in time order, as the format demands. Times are Unix seconds."""

    def __init__(self) -> None:
        self.kinds: dict[str, str] = {}
        self.series: dict[str, dict[str, list[tuple[float, str]]]] = {}

    def add(self, page: str, timestamp: float) -> None:
        """One reading: a page in Prometheus's text format."""
        for line in page.splitlines():
            if line.startswith("# TYPE "):
                _, _, name, kind = line.split(" ", 3)
                self.kinds[name] = kind
            elif line and not line.startswith("#"):
                series, value = line.rsplit(" ", 1)
                name = series.partition("{")[0]
                self.series.setdefault(self._family(name), {}).setdefault(series, []).append((timestamp, value))

    def lines(self) -> Iterable[str]:
        for family, group in self.series.items():
            kind = self.kinds.get(family, "unknown")
            yield f"# TYPE {family.removesuffix('_total') if kind == 'counter' else family} {kind}"
            samples = [(moment, series, value) for series, points in group.items() for moment, value in points]
            if kind == "histogram":  # a histogram's samples of one moment belong together, buckets in order
                samples.sort(key=lambda sample: sample[0])
            for moment, series, value in samples:
                yield f"{series} {value} {moment:.3f}"
        yield "# EOF"

    def text(self) -> str:
        return "\n".join(self.lines()) + "\n"

    def _family(self, name: str) -> str:
        for suffix in _SUFFIXES:
            if self.kinds.get(name.removesuffix(suffix)) == "histogram" and name.endswith(suffix):
                return name.removesuffix(suffix)
        return name
