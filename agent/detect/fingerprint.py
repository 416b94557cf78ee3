"""Ordered stages of log lines, per server and key, inside a window of event time.

A :class:`FingerprintMatcher` watches one rule on one server. It is told which stages (and which ``absent``
conditions) a record satisfies, and keeps, for each value of the rule's ``by`` keys, the newest evidence of every stage.
It is complete when every required stage has evidence, in order, inside the window.

Semantics, with the reasons:

* equal times may satisfy successive stages, and a stage may even come up to ``TOLERANCE`` seconds early: clocks have
  one-second resolution, and stderr and stdout of one process overtake each other;
* a record without a ``by`` attribute (a bare traceback has no rank) goes with every value of it;
* a record fills one stage, the earliest that still lacks evidence, so that one line does not make a sequence;
* evidence of a match is spent when its alert ends, never reused for the next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

from agent.model import LogRecord, StageEvidence
from agent.rules.model import Rule

__all__ = ["FingerprintMatcher", "Match"]

TOLERANCE: Final = 2.0
MAX_KEYS: Final = 256
"""Values of ``by`` that are kept apart per rule; the one that was quiet longest is dropped."""
MAX_BODY: Final = 4096
"""Characters of a line that are kept as evidence."""


@dataclass(frozen=True, slots=True)
class Match:
    """A complete fingerprint. ``completed`` is the time of its last required stage, ``last`` of its last stage of all;
    ``decided`` is when the ``absent`` conditions can no longer rule it out. ``terminal``: a line said that no work
    follows."""

    rule: Rule
    key: tuple[str, ...]
    stages: tuple[StageEvidence, ...]
    started: float
    completed: float
    last: float
    decided: float
    terminal: bool
    rank: str = ""
    engine_index: str = ""

    @property
    def fields(self) -> dict[str, str]:
        out: dict[str, str] = {}
        for stage in self.stages:
            out.update(stage.fields)
        return out


@dataclass(slots=True)
class _Bucket:
    """Evidence of one key: for each stage index the line that fills it, the time of the newest such line, and the times
    of stages that must be counted."""

    evidence: dict[int, StageEvidence] = field(default_factory=dict)
    recent: dict[int, deque[float]] = field(default_factory=dict)
    latest: dict[int, float] = field(default_factory=dict)
    rank: str = ""
    engine_index: str = ""
    touched: float = 0.0


class FingerprintMatcher:
    """One rule's fingerprint on one server. Pure: told of records, asked for its match."""

    def __init__(self, rule: Rule) -> None:
        if rule.fingerprint is None:
            raise ValueError(f"rule {rule.alert} has no fingerprint to match")
        self.rule = rule
        self.fingerprint = rule.fingerprint
        self._buckets: dict[tuple[str, ...], _Bucket] = {}
        self._absent: dict[tuple[str, ...], float] = {}
        self._required = [i for i, stage in enumerate(self.fingerprint.stages) if not stage.optional]
        self._found: list[Match] | None = []

    def observe(
        self, record: LogRecord, stages: Mapping[int, Mapping[str, str]], *, absent: bool = False
    ) -> Match | None:
        """``record`` satisfies ``stages`` (index -> captured fields), or an ``absent`` condition.

        Returns the match that stands complete after it, if any."""
        key = tuple(
            record.server if name == "server" else record.attributes.get(name, "") for name in self.fingerprint.by
        )
        self._found = None
        if absent:
            self._absent[key] = record.timestamp
        if stages:
            bucket = self._bucket(key, record)
            index = self._choose(bucket, sorted(stages), record.timestamp)
            self._fill(bucket, index, record, stages[index])
        if not stages:
            return None
        # A bare line (no rank) may complete what a ranked one began.
        for candidate in (key, *(other for other in self._buckets if other != key and _compatible(key, other))):
            match = self.match(candidate)
            if match is not None:
                return match
        return None

    def _bucket(self, key: tuple[str, ...], record: LogRecord) -> _Bucket:
        bucket = self._buckets.get(key)
        if bucket is None:
            if len(self._buckets) >= MAX_KEYS:
                del self._buckets[min(self._buckets, key=lambda k: self._buckets[k].touched)]
            bucket = self._buckets[key] = _Bucket()
        bucket.touched = record.timestamp
        bucket.rank = bucket.rank or record.attributes.get("rank", "")
        bucket.engine_index = bucket.engine_index or record.attributes.get("engine_index", "")
        return bucket

    def _choose(self, bucket: _Bucket, indices: list[int], timestamp: float) -> int:
        for index in indices:
            evidence = bucket.evidence.get(index)
            if evidence is None or timestamp - evidence.timestamp > self.fingerprint.within:
                return index
        return indices[-1]

    def _fill(self, bucket: _Bucket, index: int, record: LogRecord, fields: Mapping[str, str]) -> None:
        stage = self.fingerprint.stages[index]
        bucket.latest[index] = max(record.timestamp, bucket.latest.get(index, record.timestamp))
        if stage.count > 1:
            times = bucket.recent.setdefault(index, deque(maxlen=stage.count))
            times.append(record.timestamp)
            if len(times) < stage.count or times[-1] - times[0] > (stage.count_within or self.fingerprint.within):
                return
        known = bucket.evidence.get(index)
        if known is not None and record.timestamp - known.timestamp <= self.fingerprint.within:
            # The first line is the evidence, later ones are counted: 60 requests that fail at once log 60 times.
            bucket.evidence[index] = replace(known, count=known.count + 1, fields={**fields, **known.fields})
            return
        bucket.evidence[index] = StageEvidence(
            stage=stage.name,
            timestamp=record.timestamp,
            body=record.body[:MAX_BODY],
            file=record.file,
            line=record.line,
            severity=record.severity_text,
            fields=dict(fields),
            count=max(1, stage.count),
        )

    def matches(self) -> list[Match]:
        """Every complete match, one for each key."""
        if self._found is None:
            found = (self.match(key) for key in self._buckets)
            self._found = [match for match in found if match is not None]
        return self._found

    def match(self, key: tuple[str, ...]) -> Match | None:
        """The complete match of ``key``, if any. Evidence without the attribute is shared by all its values."""
        bucket = self._buckets.get(key)
        if bucket is None:
            return None
        evidence, latest = dict(bucket.evidence), dict(bucket.latest)
        rank, engine_index = bucket.rank, bucket.engine_index
        for other_key, other in self._buckets.items():
            if other_key != key and _compatible(other_key, key):
                for index, item in other.evidence.items():
                    evidence.setdefault(index, item)
                    latest[index] = max(latest.get(index, 0.0), other.latest.get(index, 0.0))
                rank, engine_index = rank or other.rank, engine_index or other.engine_index
        return self._assemble(key, evidence, latest, rank, engine_index)

    def _assemble(
        self,
        key: tuple[str, ...],
        evidence: dict[int, StageEvidence],
        latest: Mapping[int, float],
        rank: str,
        engine_index: str,
    ) -> Match | None:
        if any(index not in evidence for index in self._required) or not evidence:
            return None
        required = [evidence[index] for index in self._required] or [evidence[max(evidence)]]
        completed = max(item.timestamp for item in required)
        if completed - min(item.timestamp for item in required) > self.fingerprint.within:
            return None
        for earlier, later in pairwise(required):
            if earlier.timestamp > later.timestamp + TOLERANCE:
                return None
        chosen = {i: item for i, item in evidence.items() if i in self._required or self._belongs(i, item, completed)}
        started = (
            min(item.timestamp for index, item in chosen.items() if not self._is_start(index))
            if len(chosen) > 1
            else completed
        )
        ruled_out = self._ruled_out(key, started, completed)
        if ruled_out:
            return None
        stages = tuple(chosen[index] for index in sorted(chosen))
        terminal = any(self.fingerprint.stages[index].terminal for index in chosen)
        return Match(
            rule=self.rule,
            key=key,
            stages=stages,
            started=min(started, completed),
            completed=completed,
            last=max(completed, max(latest.get(index, 0.0) for index in chosen)),
            decided=completed + self.fingerprint.absent_after,
            terminal=terminal,
            rank=rank,
            engine_index=engine_index,
        )

    def _is_start(self, index: int) -> bool:
        stage = self.fingerprint.stages[index]
        return index == 0 and stage.optional

    def _belongs(self, index: int, item: StageEvidence, completed: float) -> bool:
        """Optional evidence goes with a match inside the window; the start of the server always does: it is where the
        budget was printed, however long ago."""
        if self._is_start(index):
            return item.timestamp <= completed + TOLERANCE
        return abs(item.timestamp - completed) <= self.fingerprint.within

    def _ruled_out(self, key: tuple[str, ...], started: float, completed: float) -> bool:
        window_start = min(started, completed - self.fingerprint.within)
        return any(
            _compatible(other, key) and window_start <= at <= completed + max(self.fingerprint.absent_after, TOLERANCE)
            for other, at in self._absent.items()
        )

    def spend(self, key: tuple[str, ...], upto: float) -> None:
        """The match of ``key`` is over (recovered, resolved or too old): its evidence is not used again.

        The start of the server stays: it is still true."""
        self._found = None
        for other_key, bucket in self._buckets.items():
            if _compatible(other_key, key) or _compatible(key, other_key):
                bucket.evidence = {
                    index: item
                    for index, item in bucket.evidence.items()
                    if item.timestamp > upto or self._is_start(index)
                }
                bucket.recent.clear()

    def restart(self) -> None:
        """The server started anew: nothing that its predecessor said is evidence against it."""
        self._buckets.clear()
        self._absent.clear()
        self._found = []

    def snapshot(self) -> dict[str, Any]:
        return {
            "buckets": [
                {
                    "key": list(key),
                    "rank": bucket.rank,
                    "engine_index": bucket.engine_index,
                    "touched": bucket.touched,
                    "latest": {str(index): at for index, at in bucket.latest.items()},
                    "recent": {str(index): list(times) for index, times in bucket.recent.items()},
                    "evidence": {
                        str(index): [e.stage, e.timestamp, e.body, e.file, e.line, e.severity, dict(e.fields), e.count]
                        for index, e in bucket.evidence.items()
                    },
                }
                for key, bucket in self._buckets.items()
            ],
            "absent": [[list(key), at] for key, at in self._absent.items()],
        }

    def restore(self, data: Mapping[str, Any]) -> None:
        for item in data.get("buckets", []):
            bucket = _Bucket(rank=item["rank"], engine_index=item["engine_index"], touched=item["touched"])
            for index, values in item["evidence"].items():
                if int(index) < len(self.fingerprint.stages):
                    bucket.evidence[int(index)] = StageEvidence(*values)
            for index, times in item["recent"].items():
                if int(index) < len(self.fingerprint.stages):
                    stage = self.fingerprint.stages[int(index)]
                    bucket.recent[int(index)] = deque(times, maxlen=max(1, stage.count))
            bucket.latest = {int(index): at for index, at in item.get("latest", {}).items()}
            self._buckets[tuple(item["key"])] = bucket
        self._absent = {tuple(key): at for key, at in data.get("absent", [])}
        self._found = None


def _compatible(shared: tuple[str, ...], key: tuple[str, ...]) -> bool:
    """Does evidence under ``shared`` also speak for ``key``? It does when it leaves open what ``key`` says."""
    return all(left in ("", right) for left, right in zip(shared, key, strict=True))
