"""Where the assets are, and the tools that check them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "integrations" / "deploy"
Tool = Callable[..., str]


@pytest.fixture
def tool() -> Tool:
    """``tool("promtool", "check", ...)`` runs a program from the path or from our environment; it must succeed."""

    def run(name: str, *arguments: str | Path, cwd: Path = DEPLOY) -> str:
        beside = Path(sys.executable).parent / name
        found = shutil.which(name) or (str(beside) if beside.exists() else None)
        if found is None:
            pytest.skip(f"{name} is not installed")
        done = subprocess.run([found, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{name} {' '.join(map(str, arguments))}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    return run
