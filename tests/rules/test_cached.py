"""The rule set from disk is the rule set that was read, and is never that of other files."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.rules import load
from agent.rules.cached import is_cached, load_rules_cached
from agent.rules.load import load_rules

RULE = """
rules:
  - alert: {name}
    failure: silent_stall
    progress: stalled
    fingerprint: {{stages: [{{stage: symptom, any: [{{contains: "{text}"}}]}}]}}
    annotations: {{summary: "stuck"}}
"""


@pytest.fixture
def no_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on nothing is read but the cache."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the files were read")

    monkeypatch.setattr(load, "load_rules", refuse)


def write(path: Path, name: str = "Own", text: str = "stuck for good") -> Path:
    path.write_text(RULE.format(name=name, text=text))
    return path


def test_what_comes_back_is_what_was_kept(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    read, faults = load_rules_cached(cache_dir=tmp_path)
    assert not faults
    request.getfixturevalue("no_reading")
    kept, _ = load_rules_cached(cache_dir=tmp_path)
    assert kept == read
    assert repr(kept) == repr(read)  # positions too, which do not count in comparisons


def test_another_word_in_a_file_is_seen(tmp_path: Path) -> None:
    own = write(tmp_path / "own.yaml")
    load_rules_cached([own], cache_dir=tmp_path)
    assert is_cached([own], True, disabled=(), cache_dir=tmp_path)
    write(own, text="stuck for ever")
    assert not is_cached([own], True, disabled=(), cache_dir=tmp_path)
    found, _ = load_rules_cached([own], cache_dir=tmp_path)
    rule = next(rule for rule in found.rules if rule.alert == "Own")
    assert rule.fingerprint is not None
    assert rule.fingerprint.stages[0].condition.any[0].pattern == "stuck for ever"


def test_other_choices_are_other_rule_sets(tmp_path: Path) -> None:
    own = write(tmp_path / "own.yaml")
    alone, _ = load_rules_cached([own], bundled=False, cache_dir=tmp_path)
    assert [rule.alert for rule in alone.rules] == ["Own"]
    without, _ = load_rules_cached([own], bundled=False, disabled=["Own"], cache_dir=tmp_path)
    assert not without.rules
    again, _ = load_rules_cached([own], bundled=False, cache_dir=tmp_path)
    assert again == alone


def test_a_set_with_faults_is_read_each_time(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("rules:\n  - alert: Own\n    failure: no_such_failure\n")
    first = load_rules_cached([own], cache_dir=tmp_path)[1]
    assert first
    assert [str(fault) for fault in load_rules_cached([own], cache_dir=tmp_path)[1]] == [str(f) for f in first]
    assert load_rules_cached([tmp_path / "missing.yaml"], cache_dir=tmp_path)[1]


@pytest.mark.parametrize("damage", [b"", b"x", b"\0" * 4096])
def test_a_damaged_file_is_read_anew(tmp_path: Path, damage: bytes) -> None:
    whole = load_rules([], True)[0]
    load_rules_cached(cache_dir=tmp_path)
    (place,) = tmp_path.glob("*.rules")
    place.write_bytes(damage or place.read_bytes()[:-1])
    assert load_rules_cached(cache_dir=tmp_path)[0] == whole


def test_a_folder_that_cannot_be_written_is_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert load_rules_cached(cache_dir=tmp_path / "file" / "cache")[0].rules


def test_old_sets_go(tmp_path: Path) -> None:
    for number in range(7):
        own = write(tmp_path / "own.yaml", text=f"stuck {number}")
        load_rules_cached([own], bundled=False, cache_dir=tmp_path)
    assert len(list(tmp_path.glob("*.rules"))) == 4
