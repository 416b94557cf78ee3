"""Our own metrics page: clean by promtool, bounded, and there before the first event."""

from __future__ import annotations

import shutil
import subprocess
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.telemetry import MAX_CHILDREN, METRICS, Telemetry


@pytest.fixture
def telemetry() -> Telemetry:
    made = Telemetry(version="1.2.3")
    made.register_server("llama-0")
    made.register_source("llama-0:/var/log/server/server.log")
    made.register_receiver("oncall", "pagerduty")
    made.register_rule("TokenBudgetDeadlock", ["start", "pressure", "symptom"])
    return made


def page(telemetry: Telemetry, accept: str = "") -> str:
    return telemetry.render(accept)[1].decode()


@pytest.mark.peer
@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_finds_nothing_to_say(telemetry: Telemetry) -> None:
    telemetry.observe("line_match_duration_seconds", 0.001)
    telemetry.set("server_requests_finished_total", 12, server="llama-0")
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=telemetry.render()[1], capture_output=True, timeout=20, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_series_exist_at_zero_before_anything_happened(telemetry: Telemetry) -> None:
    text = page(telemetry)
    for line in (
        'wedgewatch_scrape_failures_total{reason="timeout",server="llama-0"} 0.0',
        'wedgewatch_notifications_failed_total{integration="pagerduty",reason="auth",receiver="oncall"} 0.0',
        'wedgewatch_rule_matches_total{rule="TokenBudgetDeadlock",stage="symptom"} 0.0',
        'wedgewatch_source_lines_read_total{source="llama-0:/var/log/server/server.log"} 0.0',
        'wedgewatch_incidents_total{confidence="confirmed",rule="TokenBudgetDeadlock"} 0.0',
        'wedgewatch_notifications_suppressed_total{reason="storm"} 0.0',
    ):
        assert line in text, line
    assert "_created" not in text
    assert 'wedgewatch_build_info{python_version="' in text


def test_openmetrics_only_when_asked_for(telemetry: Telemetry) -> None:
    assert telemetry.render("")[0].startswith("text/plain")
    content_type, body = telemetry.render("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


def test_no_flood_of_labels_grows_the_page(telemetry: Telemetry) -> None:
    for number in range(MAX_CHILDREN * 3):
        telemetry.inc("source_lines_read_total", source=f"file-{number}")
        telemetry.set("server_requests_finished_total", number, server=f"s{number}")
    text = page(telemetry)
    assert text.count("wedgewatch_source_lines_read_total{") <= MAX_CHILDREN + 1
    assert text.count("wedgewatch_server_requests_finished_total{") <= MAX_CHILDREN
    # nothing is lost: what has no series of its own is counted together
    assert f'wedgewatch_source_lines_read_total{{source="other"}} {2 * MAX_CHILDREN + 1}.0' in text


def test_an_unlisted_reason_is_counted_as_the_last_of_the_list(telemetry: Telemetry) -> None:
    telemetry.inc("scrape_failures_total", server="llama-0", reason="<script>")
    assert 'wedgewatch_scrape_failures_total{reason="other",server="llama-0"} 1.0' in page(telemetry)


def test_a_wrong_name_or_label_is_a_fault_of_ours(telemetry: Telemetry) -> None:
    with pytest.raises(KeyError):
        telemetry.inc("no_such_total")
    with pytest.raises(KeyError):
        telemetry.inc("scrapes_total", receiver="x")


def test_a_mirrored_counter_may_fall(telemetry: Telemetry) -> None:
    telemetry.set("server_requests_finished_total", 500, server="llama-0")
    telemetry.set("server_requests_finished_total", 3, server="llama-0")
    text = page(telemetry)
    assert 'wedgewatch_server_requests_finished_total{server="llama-0"} 3.0' in text
    assert "# TYPE wedgewatch_server_requests_finished_total counter" in text


def test_gauges_that_cost_something_are_read_at_the_last_moment(telemetry: Telemetry) -> None:
    telemetry.before_render(lambda: telemetry.set("state_db_size_bytes", 4096))
    assert "wedgewatch_state_db_size_bytes 4096.0" in page(telemetry)


def test_two_instances_do_not_meet() -> None:
    one, two = Telemetry(version="1"), Telemetry(version="2")
    one.register_server("a")
    assert 'server="a"' not in page(two)


def test_threads_lose_no_increment(telemetry: Telemetry) -> None:
    def work() -> None:
        for _ in range(500):
            telemetry.inc("scrapes_total", server="llama-0")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 'wedgewatch_scrapes_total{server="llama-0"} 2000.0' in page(telemetry)


@settings(max_examples=60, deadline=None)
@given(accept=st.text(max_size=80))
def test_no_accept_header_breaks_the_page(accept: str) -> None:
    content_type, body = SHARED.render(accept)
    assert body.startswith(b"# HELP")
    assert content_type


SHARED = Telemetry(version="1", process=False)


def test_names_follow_the_convention() -> None:
    for row in METRICS:
        assert row.help.endswith("."), row.name
        assert row.name.endswith("_total") == (row.kind == "counter"), row.name
        assert not row.name.endswith(("_ms", "_milliseconds", "_percent")), row.name
    assert len({row.name for row in METRICS}) == len(METRICS)
