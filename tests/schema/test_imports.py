"""The daemon starts fast: nothing heavy comes in before it is needed."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("agent.schema", ["yaml", "difflib", "requests", "regex", "integrations"]),
        ("agent.rules.load", ["yaml", "difflib", "requests", "promql_parser", "hyperscan", "integrations"]),
        ("agent.config", ["yaml", "requests", "prometheus_client", "numpy", "torch"]),
    ],
)
def test_what_an_import_does_not_bring_along(module: str, absent: list[str]) -> None:
    code = f"import sys, {module}; print(*(name for name in {absent!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
