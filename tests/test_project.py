"""Promises about the project as a whole: what an import costs, what a wheel holds, which way imports go."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from agent.cli import main

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("module", ["agent", "agent.cli", "agent.daemon", "agent.replay", "integrations.registry"])
def test_the_daemon_pulls_in_neither_torch_nor_numpy(module: str) -> None:
    code = (
        f"import sys, {module}; print([m for m in sys.modules if m.split('.')[0] in ('torch', 'numpy', 'reproducer')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True, timeout=120
    )
    assert done.stdout.strip() == "[]"


def test_torch_is_an_extra() -> None:
    needed = [line for line in metadata.requires("wedgewatch") or [] if "extra ==" not in line]
    assert not [line for line in needed if line.lower().startswith(("torch", "numpy", "matplotlib"))]
    assert [line for line in metadata.requires("wedgewatch") or [] if line.startswith("torch") and "reproducer" in line]


def test_a_wheel_holds_the_packages_and_the_data_of_rules(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=300,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    on_disk = {str(path.relative_to(ROOT)) for path in (ROOT / "rules").rglob("*.yaml")}
    assert on_disk
    assert on_disk <= names
    for name in ("agent/cli.py", "integrations/slack.py", "reproducer/scheduler.py", "agent/web/static/index.html"):
        assert name in names
    assert not [name for name in names if name.startswith(("tests/", "bench/", "docs/"))]


def test_check_finds_nothing_wrong_with_us_wherever_it_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "wedgewatch.yaml"
    config.write_text("servers: [{name: a, logs: [{path: /var/log/a.log}]}]\n")
    monkeypatch.chdir(tmp_path)
    assert main(["check"]) == 0
    assert main(["check", "-c", str(config)]) == 0
    assert "fault" not in capsys.readouterr().out.replace("no faults found", "")


def test_version_is_said() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "agent", "--version"], capture_output=True, text=True, cwd=ROOT, check=True, timeout=120
    )
    assert done.stdout.split() == ["wedgewatch", metadata.version("wedgewatch")]


def test_imports_run_down_the_house() -> None:
    done = subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports"))],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:]
