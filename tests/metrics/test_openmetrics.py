from __future__ import annotations

import gzip
import subprocess
from pathlib import Path
from shutil import which

import pytest

from agent.metrics.mapping import SignalMapper
from agent.metrics.openmetrics import SeriesFileError, read_samples
from tests.metrics.dialects import ALL

SERIES = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0"} 3 1000.000
vllm:num_requests_running{engine="0"} 4 1005.000
vllm:num_requests_running{engine="0"} 5 1010
# TYPE vllm:request_success counter
vllm:request_success_total{engine="0",finished_reason="stop"} 7 1005.000
vllm:request_success_total{engine="0",finished_reason="stop"} 8 1010.000
# EOF
"""


def write(folder: Path, text: str | bytes, name: str = "metrics.om") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def fault(path: Path) -> str:
    with pytest.raises(SeriesFileError) as caught:
        read_samples(path, SignalMapper(ALL), "s")
    return str(caught.value)


def test_lines_of_one_scrape_become_one_sample(tmp_path: Path) -> None:
    samples = read_samples(write(tmp_path, SERIES), SignalMapper(ALL), "s")
    #     1000      1005      1010
    #  running 3         4         5
    # finished (0)       7         8      declared, no series yet: 0
    assert [(sample.timestamp, sample.values["requests_running"]) for sample in samples] == [
        (1000, 3),
        (1005, 4),
        (1010, 5),
    ]
    assert [sample.values["requests_finished_total"] for sample in samples] == [0, 7, 8]


def test_a_packed_file_reads_the_same(tmp_path: Path) -> None:
    plain = read_samples(write(tmp_path, SERIES), SignalMapper(ALL), "s")
    packed = write(tmp_path, gzip.compress(SERIES.encode()), "metrics.om.gz")
    assert read_samples(packed, SignalMapper(ALL), "s") == plain


def test_lines_a_moment_apart_are_one_scrape(tmp_path: Path) -> None:
    text = (
        "vllm:num_requests_running 1 1000.00\nvllm:num_requests_running 2 1000.20\n"
        "vllm:num_requests_waiting 5 1000.01\nvllm:num_requests_waiting 6 1001.00\n# EOF\n"
    )
    samples = read_samples(write(tmp_path, text), SignalMapper(ALL), "s")
    assert [(sample.timestamp, dict(sample.values)) for sample in samples] == [
        (1000.01, {"up": 1, "requests_running": 1, "requests_waiting": 5}),
        (1000.20, {"up": 1, "requests_running": 2}),
        (1001.00, {"up": 1, "requests_waiting": 6}),
    ]


def test_a_file_in_any_order_is_sorted_by_time(tmp_path: Path) -> None:
    lines = SERIES.splitlines()
    shuffled = "\n".join([*reversed(lines[:-1]), lines[-1]]) + "\n"
    assert read_samples(write(tmp_path, shuffled), SignalMapper(ALL), "s") == read_samples(
        write(tmp_path, SERIES, "b.om"), SignalMapper(ALL), "s"
    )


def test_replicas_stay_apart(tmp_path: Path) -> None:
    text = "".join(f'vllm:num_requests_running{{engine="{e}"}} {e} {t}\n' for e in (0, 1) for t in (10, 20)) + "# EOF\n"
    samples = read_samples(write(tmp_path, text), SignalMapper(ALL), "s")
    assert [(sample.timestamp, sample.instance) for sample in samples] == [(10, "0"), (10, "1"), (20, "0"), (20, "1")]


def test_a_cut_last_line_is_left_out(tmp_path: Path) -> None:
    samples = read_samples(write(tmp_path, SERIES[: SERIES.index("1010.000")] + "10"), SignalMapper(ALL), "s")
    assert samples[0].values["requests_running"] == 3
    samples = read_samples(write(tmp_path, SERIES[: SERIES.index('"stop"} 8')]), SignalMapper(ALL), "s")
    assert len(samples) == 3


def test_what_is_wrong_with_a_file_is_said_with_its_line(tmp_path: Path) -> None:
    bad = SERIES.replace("} 4 1005.000", "} four 1005.000")
    assert fault(write(tmp_path, bad)).endswith(
        """metrics.om:3:1: value 'four' is no number: 'vllm:num_requests_running{engine="0"} four 1005.000'"""
    )
    bare = SERIES.replace("} 4 1005.000", "} 4")
    assert "metrics.om:3:1: series 'vllm:num_requests_running' has no timestamp" in fault(write(tmp_path, bare))
    millis = SERIES.replace("1005.000", "1795165235000")
    assert "metrics.om:3:1:" in fault(write(tmp_path, millis))
    assert "OpenMetrics counts seconds" in fault(write(tmp_path, millis))


def test_files_that_are_something_else(tmp_path: Path) -> None:
    assert "HTML" in fault(write(tmp_path, "<html><body>404</body></html>"))
    assert "JSON" in fault(write(tmp_path, '[{"iter": 1}]'))
    assert "no metrics" in fault(write(tmp_path, "2026-11-20 INFO started\n" * 60))
    assert "empty" in fault(write(tmp_path, ""))
    assert "of any engine that is known here" in fault(write(tmp_path, "node_load1 3 1000\n# EOF\n"))
    assert "damaged or cut" in fault(write(tmp_path, gzip.compress(SERIES.encode())[:-12]))
    assert "cannot be read" in fault(tmp_path / "absent.om")
    assert "cannot be read" in fault(tmp_path)


def test_a_file_without_any_scrape_is_no_fault(tmp_path: Path) -> None:
    assert read_samples(write(tmp_path, "# EOF\n"), SignalMapper(ALL), "s") == []


@pytest.mark.peer
@pytest.mark.skipif(which("promtool") is None, reason="promtool (Debian package prometheus) is not installed")
def test_the_same_file_is_taken_by_promtool(tmp_path: Path) -> None:
    source = write(tmp_path, SERIES)
    done = subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(source), str(tmp_path / "blocks")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def _export(rows: list[tuple[str, float, int]]) -> str:
    """Lines of ``vllm:generation_tokens_total`` of some pods: (pod, time, value)."""
    return (
        "".join(f'vllm:generation_tokens_total{{engine="0",pod="{pod}"}} {value} {time}\n' for pod, time, value in rows)
        + "# EOF\n"
    )


def test_targets_of_an_export_are_told_apart(tmp_path: Path) -> None:
    #  a  *   *   *        each at times of its own: summed, they would hide the one that stands still;
    #  b    *   *   *      taken for one, they would look like a restart at every sample
    path = tmp_path / "fleet.om"
    path.write_text(
        _export([("a", 100, 5), ("a", 115, 5), ("a", 130, 5), ("b", 107, 50), ("b", 122, 60), ("b", 137, 70)])
    )
    samples = read_samples(path, SignalMapper(ALL), "s")
    assert [(one.timestamp, one.instance, one.values["generation_tokens_total"]) for one in samples] == [
        (100, "a", 5),
        (107, "b", 50),
        (115, "a", 5),
        (122, "b", 60),
        (130, "a", 5),
        (137, "b", 70),
    ]


def test_a_pod_that_took_anothers_place_is_the_same_server(tmp_path: Path) -> None:
    path = tmp_path / "replaced.om"
    path.write_text(_export([("a", 100, 5), ("a", 115, 9), ("b", 160, 0), ("b", 175, 4)]))
    assert {one.instance for one in read_samples(path, SignalMapper(ALL), "s")} == {"0"}
