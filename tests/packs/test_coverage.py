"""Nothing in the data is there unproven: each pattern finds a line, each rule has its case and its near miss."""

from __future__ import annotations

import re
from collections import defaultdict

import pytest

from agent.logs.engine import LogEngine
from agent.rules.model import Condition, Matcher
from tests.packs.corpus import EVERYTHING, YEAR, alone, fingerprints, loaded, read, rule_tests, samples

ENGINES = sorted(loaded().ruleset.dialects)


def _patterns() -> dict[Matcher, set[str]]:
    """Every matcher of rules and dialects -> where it stands."""
    found: dict[Matcher, set[str]] = defaultdict(set)

    def add(conditions: tuple[Condition, ...], where: str) -> None:
        for condition in conditions:
            for matcher in (*condition.any, *condition.all):
                found[matcher].add(f"{matcher.position} ({where})")

    for _, rule in fingerprints():
        assert rule.fingerprint is not None
        for stage in rule.fingerprint.stages:
            add((stage.condition,), f"{rule.alert}/{stage.name}")
        add(rule.fingerprint.absent, f"{rule.alert}/absent")
    for name, dialect in loaded().ruleset.dialects.items():
        add(tuple(item.condition for item in dialect.lifecycle), f"{name} lifecycle")
        add(tuple(item.condition for item in dialect.stats), f"{name} stats")
        for fact in dialect.facts:
            found[Matcher("regex", fact.regex)].add(f"{fact.position} ({name} facts)")
    return found


def test_every_pattern_finds_a_line() -> None:
    patterns = _patterns()
    matchers = list(patterns)
    engine = LogEngine([alone(matcher) for matcher in matchers], loaded().ruleset.dialects, year_reference=YEAR)
    hit: set[int] = set()
    for text in (*samples(), *rule_tests()):
        for matched in read(engine, text):
            hit.update(item.condition for item in matched.hits)
    missing = [sorted(patterns[matcher])[0] for index, matcher in enumerate(matchers) if index not in hit]
    assert missing == []


def test_every_format_reads_a_line() -> None:
    engine = LogEngine([EVERYTHING], loaded().ruleset.dialects, year_reference=YEAR)
    seen: set[tuple[str, str]] = set()
    for text in (*samples(), *rule_tests()):
        if text.engine in ENGINES:
            seen.update((text.engine, matched.record.attributes.get("format", "")) for matched in read(engine, text))
    wanted = {(name, item.name) for name, dialect in loaded().ruleset.dialects.items() for item in dialect.formats}
    assert wanted - seen == set()


def test_every_stats_line_gives_numbers_and_every_metric_is_a_signal() -> None:
    for name, dialect in loaded().ruleset.dialects.items():
        for stats in dialect.stats:
            assert stats.fields, f"{name}/{stats.name} reads nothing"
        assert dialect.detect_lines, f"{name} is recognised by no line"
        assert dialect.sources, f"{name} says not where its facts are from"


@pytest.mark.parametrize("engine", ENGINES)
def test_a_sample_is_recognised_as_its_engine(engine: str) -> None:
    scan = LogEngine([EVERYTHING], loaded().ruleset.dialects, year_reference=YEAR)
    text = next(item for item in samples() if item.engine == engine)
    stream = scan.stream(server="server", file=text.name, engine="auto")
    stream.feed(text.text.encode())
    stream.flush()
    assert stream.dialect == engine


def test_every_rule_has_its_case() -> None:
    by_pack: dict[str, set[str]] = defaultdict(set)
    for text in rule_tests():
        by_pack[text.pack] |= text.expected
    missing = [
        f"{rule.position} {rule.alert}"
        for rule in loaded().ruleset.rules
        if rule.alert not in by_pack[rule.position.file.rsplit("/", 1)[-1].removesuffix(".yaml")]
    ]
    assert missing == []


def test_every_fingerprint_has_a_near_miss() -> None:
    """Some test shows words of the rule (quoted, too few, at another severity ...) and wants another answer."""
    missing = []
    for _, rule in fingerprints():
        assert rule.fingerprint is not None
        conditions = (*(stage.condition for stage in rule.fingerprint.stages), *rule.fingerprint.absent)
        words = [
            re.compile(re.sub(r"(?<!\[)\^", "", matcher.pattern), re.IGNORECASE if matcher.ignore_case else 0)
            for condition in conditions
            for matcher in (*condition.any, *condition.all)
        ]
        if not any(
            rule.alert not in text.expected
            and (not rule.engines or text.engine in rule.engines)
            and any(word.search(text.text) for word in words)
            for text in rule_tests()
        ):
            missing.append(f"{rule.position} {rule.alert}")
    assert missing == []
