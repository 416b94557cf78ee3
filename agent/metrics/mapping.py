"""From a page in an engine's own names to signals: one :class:`Sample` for each replica on the page.

What names mean is data (``rules/dialects/*.yaml``); what is code here are the traps that all pages share:

* a client library appends ``_total`` to counters, so both spellings of a counter are tried;
* a labelled counter has no series before its first event: a family that is declared but empty counts 0, otherwise a
  server that wedges before its first completion would seem to have no completion counter at all;
* tensor- and pipeline-parallel ranks of one replica report the same work: they are reduced by ``max``, never added;
* a family of which a line was lost is not summed: a sum over the rest would look like a counter reset.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from agent.metrics.names import any_of, plain_name
from agent.metrics.parse import Page, Series
from agent.model import SIGNALS, Sample
from agent.rules.model import Dialect, MetricSource

__all__ = ["SHARD_LABELS", "SignalMapper"]

SHARD_LABELS: Final = frozenset(
    (
        "tp_rank",
        "pp_rank",
        "cp_rank",
        "ep_rank",
        "moe_ep_rank",
        "moe_tp_rank",
        "moe_dp_rank",
        "attn_tp_rank",
        "attn_cp_rank",
    )
)
"""Labels that tell shards of one replica apart; such series show the same work several times."""

_FIRST_LINE: Final = 256
"""Bytes of a page in which the name of its first line must end."""
_GENERIC: Final = ("process_start_time_seconds", "up")
_COUNTERS: Final = frozenset(name for name, meaning in SIGNALS.items() if meaning.startswith("counter"))


class SignalMapper:
    """Maps pages of one server to samples; keeps which engine was recognised, nothing else that changes an answer.

    ``engine`` is an id of ``dialects`` or ``auto``: then a page is taken for the engine whose metric prefixes it
    bears and whose dialect reads the most signals from it. Raises ValueError when ``engine`` has no dialect.
    """

    def __init__(self, dialects: Mapping[str, Dialect], engine: str = "auto") -> None:
        if engine != "auto" and engine not in dialects:
            known = ", ".join(sorted(dialects)) or "none"
            raise ValueError(f"engine {engine!r} is not known, use auto or one of: {known}")
        self._engine = engine
        self._readers = {name: _DialectReader(dialect) for name, dialect in dialects.items()}
        self._recognised = "" if engine == "auto" else engine
        self._seen: set[str] = set()
        self._now: frozenset[str] = frozenset()

    @property
    def engine(self) -> str:
        """Id of the engine: as given, or as recognised; ``""`` while it is not."""
        return self._recognised

    @property
    def vanished(self) -> frozenset[str]:
        """Signals that earlier pages had and the last one has not: a metric went away or was renamed."""
        return frozenset(self._seen) - self._now

    def wanted(self, data: bytes) -> frozenset[str]:
        """The metric names worth parsing on this page (for :func:`parse_page`)."""
        names = set(_GENERIC)
        for reader in self._candidates(data):
            names |= reader.names
        return frozenset(names)

    def _candidates(self, data: bytes) -> Iterable[_DialectReader]:
        if self._recognised:
            return (self._readers[self._recognised],)
        # one pass over the page for all engines: what was found leaves the pattern, and the search goes on from there
        left = [reader for reader in self._readers.values() if reader.prefixes]
        found: list[_DialectReader] = []
        position = 0
        first = b"\n" + data[:_FIRST_LINE].removeprefix(b"\xef\xbb\xbf")
        while left:
            pattern = _prefix_pattern(frozenset().union(*(reader.prefixes for reader in left)))
            match = pattern.search(data, position) or pattern.match(first)
            if match is None:
                break
            spelled = match.group(1).decode("ascii").replace(":", "_")
            found += [reader for reader in left if spelled.startswith(reader.prefixes)]
            left = [reader for reader in left if not spelled.startswith(reader.prefixes)]
            position = match.end() if match.string is data else position
        return found

    def map(self, page: Page, *, server: str, timestamp: float, repeats: int = 0) -> list[Sample]:
        """One sample for each replica; values that belong to the page as a whole go to the only replica, or to a
        sample with ``instance`` ``""`` where there are several."""
        index = _Index(page)
        by_instance = _one_if_shared(self._signals(index))
        generic, is_up = self._generic(index)
        builds = self._readers[self._recognised].builds(index) if self._recognised else {}
        if not is_up:
            return [Sample(timestamp, server, "metrics", {}, ok=False, error="http: `up` is 0, the scrape had failed")]
        instances = sorted((name for name in by_instance if name), key=_instance_order)
        if not instances:
            instances = [""]
        elif "" in by_instance:
            whole = by_instance[""]
            if len(instances) == 1:
                by_instance[instances[0]] = {**whole, **by_instance[instances[0]]}
            else:
                instances.insert(0, "")
        return [
            Sample(
                timestamp,
                server,
                "metrics",
                {**generic, **by_instance.get(name, {})},
                instance=name,
                repeats=repeats,
                builds=builds,
            )
            for name in instances
        ]

    def _signals(self, index: _Index) -> dict[str, dict[str, float]]:
        if self._recognised:
            found = self._readers[self._recognised].read(index)
        else:
            found, self._recognised = self._recognise(index)
        self._now = frozenset(signal for values in found.values() for signal in values)
        self._seen |= self._now
        if self._engine == "auto" and not self._now:
            # the page may now come from another engine: look afresh at the next one
            self._recognised = ""
        return found

    def _recognise(self, index: _Index) -> tuple[dict[str, dict[str, float]], str]:
        best: tuple[int, dict[str, dict[str, float]], str] = (0, {}, "")
        for name, reader in self._readers.items():
            if reader.owns(index):
                found = reader.read(index)
                count = len({signal for values in found.values() for signal in values})
                if count > best[0]:
                    best = (count, found, name)
        return best[1], best[2]

    @staticmethod
    def _generic(index: _Index) -> tuple[dict[str, float], bool]:
        up = [series.value for series in index.series("up") if math.isfinite(series.value)]
        values = {"up": 1.0}
        starts = [series.value for series in index.series("process_start_time_seconds") if math.isfinite(series.value)]
        if starts:
            values["process_start_time_seconds"] = max(starts)
        return values, not up or min(up) > 0


def _one_if_shared(by_instance: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Replicas with gauges of their own whose work is counted for all of them together cannot be told apart: of each
    it would be said that nothing comes of its work."""
    counted = by_instance.get("", {}).keys() & _COUNTS_WORK
    replicas = [values for name, values in by_instance.items() if name]
    if not counted or len(replicas) < 2 or any(values.keys() & _SHOWS_WORK for values in replicas):
        return by_instance
    whole: dict[str, float] = {}
    for values in by_instance.values():
        for signal, value in values.items():
            known = whole.get(signal)
            together = max if signal in _SHARES else float.__add__
            whole[signal] = value if known is None else together(float(known), float(value))
    return {"": whole}


def _instance_order(name: str) -> tuple[tuple[int, str], ...]:
    return tuple((int(part), "") if part.isdecimal() else (1 << 62, part) for part in name.split("/"))


class _Index:
    """The series of a page by plain name, the same series twice counted once (the first, as Prometheus does)."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self._by_name: dict[str, list[Series]] = {}
        seen: set[tuple[str, frozenset[tuple[str, str]]]] = set()
        for series in page.series:
            name = plain_name(series.name)
            key = (name, frozenset(series.labels.items()))
            if key not in seen:
                seen.add(key)
                self._by_name.setdefault(name, []).append(series)

    def series(self, name: str) -> Sequence[Series]:
        return self._by_name.get(name, ())

    def names(self) -> Iterable[str]:
        yield from self._by_name
        yield from self.page.families

    def declared_empty(self, name: str) -> bool:
        """Whether the page declares this counter and has no series of it, and that is not for being cut."""
        if self.page.cut or name in self._by_name:
            return False
        families = self.page.families
        if families.get(name) == "counter" or families.get(name.removesuffix("_total")) == "counter":
            return True
        base, _, part = name.rpartition("_")
        return part in ("count", "sum") and families.get(base) in ("histogram", "summary")


_COUNTS_WORK: Final = frozenset({"generation_tokens_total", "prompt_tokens_total", "requests_finished_total"})
_SHOWS_WORK: Final = _COUNTS_WORK | {"iterations_total", "progress_mark"}
_SHARES: Final = frozenset({"kv_cache_usage_ratio", "kv_cache_capacity_tokens", "max_model_len_tokens", "sleeping"})
"""Of replicas that are looked at as one, the highest; all else is added up."""


@dataclass(frozen=True, slots=True)
class _Source:
    """A :class:`MetricSource` made ready: names in plain form, label tests compiled."""

    source: MetricSource
    names: tuple[str, ...]
    where: tuple[tuple[str, bool, frozenset[str]], ...]
    per: _Source | None
    plus: tuple[_Source, ...] = ()

    @classmethod
    def of(cls, source: MetricSource) -> _Source:
        name = plain_name(source.metric)
        other = name.removesuffix("_total") if name.endswith("_total") else f"{name}_total"
        per = None
        if source.per:
            metric, where = _selector(source.per)
            per = cls.of(MetricSource(metric, where, agg=source.agg))
        parts = map(_selector, source.plus)
        plus = tuple(cls.of(MetricSource(metric, where, source.scale, source.agg)) for metric, where in parts)
        return cls(source, (name, other), _label_tests(source.where), per, plus)

    @property
    def every_name(self) -> Iterable[str]:
        """The names of all that goes into it."""
        for part in (self, *self.plus, *((self.per,) if self.per is not None else ())):
            yield from part.names

    def accepts(self, labels: Mapping[str, str]) -> bool:
        return all((labels.get(name, "") in texts) is wanted for name, wanted, texts in self.where)


def _label_tests(where: Mapping[str, str]) -> tuple[tuple[str, bool, frozenset[str]], ...]:
    """``{"reason": "!a|b"}`` -> label, whether it must be (or must not be) one of the texts."""
    return tuple(
        (label, not text.startswith("!"), frozenset(text.removeprefix("!").split("|"))) for label, text in where.items()
    )


def _selector(text: str) -> tuple[str, dict[str, str]]:
    """``name`` or ``name{label=text,...}``, as ``per`` of a source is written."""
    match = re.fullmatch(r"\s*([^{}\s]+)\s*(?:\{(.*)\})?\s*", text)
    if match is None:
        return text, {}
    pairs = (pair.partition("=") for pair in (match.group(2) or "").split(",") if pair.strip())
    return match.group(1), {name.strip(): value.strip().strip("\"'") for name, _, value in pairs}


@lru_cache(maxsize=64)
def _prefix_pattern(prefixes: frozenset[str]) -> re.Pattern[bytes]:
    """Finds a line, or a declaration, whose name begins with one of the prefixes (group 1), the longest that does."""
    return re.compile(rb'\n[ \t]*(?:#[ \t]+TYPE[ \t]+|\{[ \t]*")?(?:ray_)?(' + any_of(prefixes) + rb")")


class _DialectReader:
    """Reads the signals of one dialect off a page."""

    def __init__(self, dialect: Dialect) -> None:
        metrics = dialect.metrics
        self._instance_labels = metrics.instance_labels
        self.prefixes = tuple(plain_name(prefix) for prefix in dialect.detect_metrics)
        self._signals = {
            signal: tuple(_Source.of(source) for source in sources) for signal, sources in metrics.signals.items()
        }
        sources = [source for all_of in self._signals.values() for source in all_of]
        self._builds = {plain_name(name): frozenset(ignored) for name, ignored in metrics.builds.items()}
        self.names = frozenset(name for source in sources for name in source.every_name) | self._builds.keys()

    def owns(self, index: _Index) -> bool:
        return any(name.startswith(self.prefixes) for name in index.names()) if self.prefixes else False

    def builds(self, index: _Index) -> dict[str, str]:
        """What the page says of version and flags: the labels of each such metric, in an order of their own."""
        found = {}
        for name, ignored in self._builds.items():
            telling = {
                ",".join(f"{label}={text}" for label, text in sorted(series.labels.items()) if label not in ignored)
                for series in index.series(name)
            }
            if telling and name not in index.page.suspect and not index.page.cut:
                found[name] = "\n".join(sorted(telling))
        return found

    def read(self, index: _Index) -> dict[str, dict[str, float]]:
        """Instance -> signal -> value."""
        found: dict[str, dict[str, float]] = {}
        missing: list[str] = []
        for signal, sources in self._signals.items():
            values = self._first(sources, index, signal in _COUNTERS)
            if values is None:
                if signal in _COUNTERS and any(
                    index.declared_empty(name) for source in sources for name in source.names
                ):
                    missing.append(signal)
                continue
            for instance, value in values.items():
                if math.isfinite(value):
                    found.setdefault(instance, {})[signal] = value
        self._fill_zeros(found, missing, index)
        return found

    def _fill_zeros(self, found: dict[str, dict[str, float]], missing: Sequence[str], index: _Index) -> None:
        """Counters that have not counted yet: declared families without series, and replicas without a series of
        a counter that other replicas have."""
        instances = [name for name in found if name]
        for signal in missing:
            for instance in instances or [""]:
                found.setdefault(instance, {}).setdefault(signal, 0.0)
        if index.page.cut or len(instances) < 2:
            return
        for signal in _COUNTERS & self._signals.keys():
            if any(signal in found[name] for name in instances):
                for instance in instances:
                    found[instance].setdefault(signal, 0.0)

    def _first(self, sources: Sequence[_Source], index: _Index, counter: bool) -> dict[str, float] | None:
        for source in sources:
            values = self._read(source, index, counter) if not source.plus else self._total(source, index, counter)
            if values is not None:
                return values
        return None

    def _total(self, source: _Source, index: _Index, counter: bool) -> dict[str, float] | None:
        """A source of several metrics: the sum of those that the page has; nothing where a line of one was lost."""
        if any(name in index.page.suspect for name in source.every_name):
            return {}
        parts = [self._read(part, index, counter) for part in (source, *source.plus)]
        found = [part for part in parts if part is not None]
        instances = {instance for part in found for instance in part}
        total = {instance: sum(part.get(instance, 0.0) for part in found) for instance in instances}
        return (total or None) if found else None

    def _read(self, source: _Source, index: _Index, counter: bool) -> dict[str, float] | None:
        for name in source.names:
            if name in index.page.suspect:
                return {}
            every = index.series(name)
            if not every:
                continue
            values = self._sum(source, every, counter)
            if source.per is not None:
                return self._ratio(values, self._read(source.per, index, False) or {})
            # a gauge whose labels all fail the test is not this signal: the next source may be
            return values or None
        return None

    def _sum(self, source: _Source, every: Sequence[Series], counter: bool) -> dict[str, float]:
        shards: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
        for series in every:
            instance = self._instance(series.labels)
            if counter:
                shards.setdefault(instance, {})
            if math.isnan(series.value) or not source.accepts(series.labels):
                continue
            key = frozenset(pair for pair in series.labels.items() if pair[0] not in SHARD_LABELS)
            group = shards.setdefault(instance, {})
            group[key] = max(group.get(key, -math.inf), series.value)
        scale = source.source.scale
        return {
            instance: _aggregate(source.source.agg, list(group.values())) * scale for instance, group in shards.items()
        }

    @staticmethod
    def _ratio(values: Mapping[str, float], per: Mapping[str, float]) -> dict[str, float] | None:
        out = {}
        for instance, value in values.items():
            below = per.get(instance, per.get(""))
            if below:
                out[instance] = value / below
        return out or None

    def _instance(self, labels: Mapping[str, str]) -> str:
        parts = [labels[label] for label in self._instance_labels if labels.get(label)]
        return "/".join(str(int(part)) if part.isascii() and part.isdecimal() else part for part in parts)


def _aggregate(how: str, values: list[float]) -> float:
    if how == "max":
        return max(values, default=0.0)
    if how == "min":
        return min(values, default=0.0)
    total = math.fsum(values) if all(map(math.isfinite, values)) else sum(values)
    return total / len(values) if how == "avg" and values else total
