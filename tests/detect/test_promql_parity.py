"""The same questions to us and to a real Prometheus; bench/promql_parity.py asks thousands."""

from __future__ import annotations

from pathlib import Path
from shutil import which

import pytest

from bench.promql_parity import compare, generate

pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(which("promtool") is None, reason="promtool (Debian package prometheus) is not installed"),
]


@pytest.mark.parametrize("seed", [11, 12])
def test_random_pairs_have_prometheus_answers(tmp_path: Path, seed: int) -> None:
    differences, kinds = compare(generate(seed, 160), tmp_path)
    assert differences == []
    assert kinds["elements"] > 40  # the comparison is not one of empty answers
