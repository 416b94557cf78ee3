"""The JSON Schema files for editors: current, and in agreement with our own reader."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agent.authoring.schemas import schema_files

ROOT = Path(__file__).parents[2]
SCHEMAS = ROOT / "rules" / "schema"


def accepts(schema: str, *files: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", "--schemafile", str(SCHEMAS / schema), *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", sorted(schema_files()))
def test_the_files_are_what_the_classes_say(name: str) -> None:
    assert (SCHEMAS / name).read_text(encoding="utf-8") == schema_files()[name], (
        "the classes have changed: run `python -m agent.authoring.schemas`"
    )


def test_they_are_schemas() -> None:
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--check-metaschema",
        *map(str, sorted(SCHEMAS.glob("*.json"))),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("schema", "folder"), [("rules.schema.json", "packs"), ("dialect.schema.json", "dialects")])
def test_the_bundled_files_pass(schema: str, folder: str) -> None:
    done = accepts(schema, *sorted((ROOT / "rules" / folder).glob("*.yaml")))
    assert done.returncode == 0, done.stdout


def test_what_our_reader_refuses_an_editor_marks_too(tmp_path: Path) -> None:
    bad = {
        "unknown key": "rules: [{alrt: x, failure: overload}]",
        "missing key": "rules: [{failure: overload, progress: saturated}]",
        "unknown failure": "rules: [{alert: X, failure: overlaod, progress: saturated}]",
        "bare number for a duration": "rules: [{alert: X, failure: overload, progress: saturated, for: 5}]",
        "no list": "rules: {alert: X}",
    }
    for what, text in bad.items():
        path = tmp_path / "bad.yaml"
        path.write_text(text, encoding="utf-8")
        assert accepts("rules.schema.json", path).returncode == 1, what
