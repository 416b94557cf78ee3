"""All lines that the packs, their tests and the samples hold, and what is found in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from agent.logs.engine import LogEngine, Matched
from agent.logs.timestamps import YearReference
from agent.rules.load import LoadedFiles, load_files
from agent.rules.model import Condition, Matcher, Rule

ROOT = Path(__file__).parents[2]
RULES = ROOT / "rules"
YEAR = YearReference(1_796_000_000.0)  # 2026-11-30


@dataclass(frozen=True)
class Text:
    """A log: a sample or the input of a rule test. ``expected``: alerts that the test wants."""

    name: str
    engine: str
    text: str
    expected: frozenset[str] = frozenset()
    pack: str = ""


@cache
def loaded() -> LoadedFiles:
    return load_files([], bundled=True, tests=True, verify_bundled=True)


def samples() -> Iterator[Text]:
    for path in sorted((RULES / "samples").glob("*.log")):
        yield Text(path.name, path.stem, path.read_text(encoding="utf-8"))


def rule_tests() -> Iterator[Text]:
    for bound in loaded().rule_files:
        pack = Path(bound.document.file)
        for test in bound.value.tests if bound.value is not None else ():
            expected = frozenset(item.alert for item in test.expect if item.alert and item.state == "firing")
            if test.log is None:
                yield Text(test.name, test.engine, "", expected, pack.stem)
                continue
            inline = "\n" in test.log
            text = test.log if inline else (RULES / "packs" / test.log).resolve().read_text(encoding="utf-8")
            yield Text(test.name, test.engine, text, expected, pack.stem)


def fingerprints() -> Iterator[tuple[int, Rule]]:
    for index, rule in enumerate(loaded().ruleset.rules):
        if rule.fingerprint is not None:
            yield index, rule


def alone(matcher: Matcher) -> Condition:
    return Condition(any=(matcher,))


EVERYTHING = alone(Matcher("regex", r"\S"))


def read(engine: LogEngine, text: Text, *, as_engine: str | None = None) -> list[Matched]:
    stream = engine.stream(server="server", file=text.name, engine=as_engine or text.engine)
    return stream.feed(text.text.encode()) + stream.flush()
