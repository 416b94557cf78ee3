"""No file makes the loader raise: half-broken rules are faults, whatever they are broken by."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.config import read_config
from agent.rules.load import load_files

GUIDE = (Path(__file__).parents[2] / "docs" / "rules.md").read_text(encoding="utf-8")
TEXTS = [block.split("```")[0] for block in GUIDE.split("```yaml\n")[1:]]
JUNK: list[Any] = [
    None, True, 5, -1, 1.5, float("nan"), "", "x", "on", [], {}, ["a"], {"a": "b"}, [[]], "5m", "${X}", "(", "{{",
    [None], {"contains": None}, {"regex": "("}, "1 within 2s", {"exactly": "WARN"},
    {"n": 0, "within": "0"}, 10**30, "a\nb",
]  # fmt: skip
CUTS = ["", "\n", "  ", "- ", ": ", "{", "}", "[", "]", "'", '"', "\t", "!", "&a ", "*a", "#", "|", "\x00", "é", "<<: "]


def distorted(value: Any, dice: random.Random) -> Any:
    """The same shape with parts left out, swapped or replaced by nonsense."""
    if dice.random() < 0.06:
        return dice.choice(JUNK)
    if isinstance(value, dict):
        kept = {key: item for key, item in value.items() if dice.random() > 0.04}
        return {
            dice.choice(["x", "any", 5, None, key]) if dice.random() < 0.03 else key: distorted(item, dice)
            for key, item in kept.items()
        }
    if isinstance(value, list):
        return [distorted(item, dice) for item in value if dice.random() > 0.04]
    return value


def broken(seed: int) -> str:
    dice = random.Random(seed)
    text = dice.choice(TEXTS)
    if dice.random() < 0.5:
        at = dice.randrange(len(text))
        return text[:at] + dice.choice(CUTS) + text[at + dice.randrange(1, 30) :]
    return yaml.safe_dump(distorted(yaml.safe_load(text), dice), allow_unicode=True)


@pytest.mark.parametrize("start", range(0, 120, 20))
def test_faults_and_never_an_exception(start: int, tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    for seed in range(start, start + 20):
        path.write_text(broken(seed), encoding="utf-8")
        for fault in load_files([path], bundled=False, tests=True).faults:
            assert fault.position.file == str(path)
            assert fault.position.line >= 1


def test_nor_as_a_configuration(tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    for seed in range(40):
        path.write_text(broken(seed), encoding="utf-8")
        for fault in read_config(path, env={}).faults:
            assert fault.position.line >= 1
