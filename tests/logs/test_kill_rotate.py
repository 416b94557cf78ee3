"""kill -9 at random instants while real logrotate turns the log: every line is matched exactly once.

The campaign with 500 kills is ``python -m bench.kill_rotate``; this is the same with fewer.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bench.kill_rotate import campaign


@pytest.mark.peer
@pytest.mark.skipif(shutil.which("logrotate") is None, reason="needs logrotate")
@pytest.mark.parametrize(("mode", "kills"), [("create", 13), ("copytruncate", 6), ("copytruncate-compress", 6)])
def test_every_line_is_matched_once_whenever_we_are_killed(mode: str, kills: int, tmp_path: Path) -> None:
    result = campaign(mode, kills, tmp_path, seed=20261120, longest=0.1)
    assert result.kills == kills
    assert result.written > 0
    assert result.problems == "", str(result)
