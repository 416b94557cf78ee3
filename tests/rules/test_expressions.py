"""Which signals a condition speaks of."""

from __future__ import annotations

import pytest

from agent.rules.expressions import names_in


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("requests_waiting > 0", ["requests_waiting"]),
        ("rate(generation_tokens_total[5m]) == 0 and up", ["generation_tokens_total", "up"]),
        ('vllm:num_requests_running{engine="0", x=~"a|b"} offset 5m', ["vllm:num_requests_running"]),
        ("sum by (engine, rank) (requests_running)", ["requests_running"]),
        ("sum(requests_running) without (rank)", ["requests_running"]),
        ("a / on (x) group_left (y) b", ["a", "b"]),
        ("clamp_max(a, 3) > bool 2 unless ignoring(z) c", ["a", "c"]),
        ('label_replace(a, "dst", "$1", "src", "(.*)")', ["a"]),
        ("1e3 < Inf or NaN", []),
        ("a # b\n> c", ["a", "c"]),
        ("absent(a) or time() - process_start_time_seconds < 60", ["a", "process_start_time_seconds"]),
        ("count(a", ["a"]),
        ("sum by (x", []),
        ("", []),
    ],
)
def test_names_of_metrics_and_nothing_else(expression: str, names: list[str]) -> None:
    assert [name for _, name in names_in(expression)] == names


def test_they_come_with_their_places() -> None:
    assert list(names_in("rate(aa[5m]) > bb")) == [(5, "aa"), (15, "bb")]
