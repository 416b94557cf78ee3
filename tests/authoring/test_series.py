"""Series in promtool's notation, with the same values that promtool takes from them."""

from __future__ import annotations

import math
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from agent.authoring.series import expand_values, to_openmetrics


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("7", [7]),
        ("0+5x3", [0, 5, 10, 15]),
        ("10-2x2", [10, 8, 6]),
        ("3x2", [3, 3, 3]),
        ("1 2 3", [1, 2, 3]),
        ("_ 1 _x2 4", [None, 1, None, None, 4]),
        ("-1+1.5x2", [-1, 0.5, 2]),
        ("1e3+1e2x1", [1000, 1100]),
        ("5 stale 6", [5, None, 6]),
        ("0x0", [0]),
    ],
)
def test_values(text: str, values: list[float | None]) -> None:
    assert expand_values(text) == values


def test_infinity_and_nan() -> None:
    plus, minus, nan = expand_values("Inf -Inf NaN")
    assert (plus, minus) == (math.inf, -math.inf)
    assert nan is not None
    assert math.isnan(nan)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no value"),
        ("0+5", "says no times, write 0+5x10"),
        ("five", "is no value"),
        ("0+1x", "is no value"),
        ("0+1x99999999", "is more than 100000 values"),
        ("_x99999999", "is more than 100000 values"),
    ],
)
def test_what_is_none(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        expand_values(text)
    assert words in str(caught.value)


def test_lines_come_in_order_of_time_with_timestamps() -> None:
    text = to_openmetrics({'a{x="1"}': "1 2", "b": "_ 7"}, start=1000.0, interval=5.0)
    assert text == 'a{x="1"} 1 1000.000\na{x="1"} 2 1005.000\nb 7 1005.000\n# EOF\n'


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="is no series"):
        to_openmetrics({"a b": "1"}, start=0, interval=1)


@pytest.mark.peer
@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize("text", ["0+5x3", "10-2x2", "3x2", "_ 1 _x2 4", "-1+1.5x2", "1e3+1e2x1", "1 2 3"])
def test_promtool_sees_the_same_values(text: str, tmp_path: Path) -> None:
    values = expand_values(text)
    (tmp_path / "none.yaml").write_text("groups: []\n", encoding="utf-8")
    checks = [
        {
            "expr": "last_over_time(a[1s])",
            "eval_time": f"{index}m",
            "exp_samples": [] if value is None else [{"labels": "a", "value": value}],
        }
        for index, value in enumerate(values)
    ]
    test = {
        "rule_files": ["none.yaml"],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": [{"series": "a", "values": text}], "promql_expr_test": checks}],
    }
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(test), encoding="utf-8")
    done = subprocess.run(["promtool", "test", "rules", "test.yaml"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
