"""Every way a time is written; what it lacks is taken from what is known."""

from __future__ import annotations

import gzip
import lzma
import os
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from agent.logs.timestamps import TimeContext, TimeFormat, TimeFormatError, YearReference
from agent.model import parse_rfc3339
from tests.logs.helpers import NOVEMBER, utc

BERLIN = ZoneInfo("Europe/Berlin")


def context(
    reference: float | None = NOVEMBER, span: tuple[float, float] | None = None, **options: object
) -> TimeContext:
    return TimeContext(YearReference(reference, span), **options)  # type: ignore[arg-type]


def parse(pattern: str, text: str, **options: object) -> str:
    return utc(TimeFormat(pattern).parse(text, context(**options)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("%m-%d %H:%M:%S", "11-20 09:00:00", "2026-11-20 09:00:00"),  # vLLM
        ("%m/%d/%Y-%H:%M:%S", "08/07/2025-02:28:51", "2025-08-07 02:28:51"),  # TensorRT-LLM
        ("%Y-%m-%d %H:%M:%S", "2026-11-20 09:00:00", "2026-11-20 09:00:00"),  # SGLang
        ("%Y-%m-%d %H:%M:%S,%f", "2024-06-17 04:42:39,520", "2024-06-17 04:42:39.520"),  # Python logging
        ("%Y-%m-%d %H:%M:%S.%f", "2024-06-17 04:42:39,520", "2024-06-17 04:42:39.520"),  # comma or point
        ("%m%d %H:%M:%S.%f", "1118 19:56:24.568955", "2026-11-18 19:56:24.569"),  # glog
        ("%b %e %H:%M:%S", "Nov  4 05:15:44", "2026-11-04 05:15:44"),  # syslog
        ("%d/%b/%Y:%H:%M:%S %z", "20/Nov/2026:10:00:00 +0100", "2026-11-20 09:00:00"),  # access logs
        ("%I:%M:%S %p %y/%m/%d", "09:00:00 PM 26/11/20", "2026-11-20 21:00:00"),
        ("%Y %j %T", "2026 032 01:02:03", "2026-02-01 01:02:03"),
        ("%s", "1795165265", "2026-11-20 09:01:05"),
        ("%H:%M:%S", "16:43:33", "2026-11-20 16:43:33"),  # the oldest SGLang
        ("iso8601", "2025-07-21T16:05:59.967500Z", "2025-07-21 16:05:59.968"),  # TGI
        ("iso8601", "2026-11-20 09:00:00,250", "2026-11-20 09:00:00.250"),
        ("iso8601", "2026-11-20T10:00:00+01:00", "2026-11-20 09:00:00"),
        ("iso8601", "2026-11-20T10:00:00+0100", "2026-11-20 09:00:00"),
        ("iso8601", "2026-11-20T03:30:00-05:30", "2026-11-20 09:00:00"),
        ("iso8601", "2026-11-20T09:00Z", "2026-11-20 09:00:00"),
        ("epoch", "1795165265.5", "2026-11-20 09:01:05.500"),
        ("epoch", "1795165265500", "2026-11-20 09:01:05.500"),  # it is in milliseconds, whatever was said
        ("epoch_ms", "1795165265500", "2026-11-20 09:01:05.500"),
        ("epoch", "1795165265500000000", "2026-11-20 09:01:05.500"),
    ],
)  # fmt: skip
def test_formats_of_the_engines(pattern: str, text: str, expected: str) -> None:
    assert parse(pattern, text) == expected


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("%m-%d %H:%M:%S", "13-20 09:00:00"),
        ("%m-%d %H:%M:%S", "02-30 09:00:00"),
        ("%m-%d %H:%M:%S", "11-20 25:00:00"),
        ("%b %d %H:%M:%S", "Foo 20 09:00:00"),
        ("iso8601", "yesterday"),
        ("iso8601", "2026-13-01T00:00:00Z"),
        ("epoch", "nan"),
        ("epoch", "soon"),
        ("uptime", "soon"),
    ],
)
def test_what_is_no_time_is_none(pattern: str, text: str) -> None:
    assert TimeFormat(pattern).parse(text, context()) is None


@pytest.mark.parametrize("pattern", ["%Q %H", "%H:%M %H", "%Y-%m-%d"])
def test_a_format_that_cannot_work_says_why(pattern: str) -> None:
    with pytest.raises(TimeFormatError, match="time format"):
        TimeFormat(pattern)


class TestYear:
    # reference (modification time)      full stamps       metrics span
    #          |                             |                 |
    #   weakest evidence             better evidence      best evidence

    pattern = "%m-%d %H:%M:%S"

    def test_without_more_it_is_the_nearest_to_the_reference(self) -> None:
        january = parse_rfc3339("2027-01-02T00:00:00Z")
        assert parse(self.pattern, "12-31 23:59:59", reference=january) == "2026-12-31 23:59:59"
        assert parse(self.pattern, "01-01 00:00:01", reference=january) == "2027-01-01 00:00:01"

    def test_full_stamps_of_the_input_beat_the_reference(self) -> None:
        known = YearReference(NOVEMBER)
        known.observe(parse_rfc3339("2019-03-01T00:00:00Z"))
        found = TimeFormat(self.pattern).parse("02-27 10:00:00", TimeContext(known))
        assert utc(found) == "2019-02-27 10:00:00"

    def test_the_range_of_the_metrics_beats_both(self) -> None:
        span = (parse_rfc3339("2023-06-01T00:00:00Z"), parse_rfc3339("2023-06-02T00:00:00Z"))
        known = YearReference(NOVEMBER, span)
        known.observe(parse_rfc3339("2019-03-01T00:00:00Z"))
        assert utc(TimeFormat(self.pattern).parse("06-01 10:00:00", TimeContext(known))) == "2023-06-01 10:00:00"

    def test_a_range_over_new_year_holds_both_years(self) -> None:
        span = (parse_rfc3339("2023-12-31T00:00:00Z"), parse_rfc3339("2024-01-02T00:00:00Z"))
        assert parse(self.pattern, "12-31 10:00:00", span=span) == "2023-12-31 10:00:00"
        assert parse(self.pattern, "01-01 10:00:00", span=span) == "2024-01-01 10:00:00"

    def test_of_several_years_in_a_long_range_the_last(self) -> None:
        span = (parse_rfc3339("2019-01-01T00:00:00Z"), parse_rfc3339("2026-11-20T00:00:00Z"))
        assert parse(self.pattern, "06-01 10:00:00", span=span) == "2026-06-01 10:00:00"

    def test_the_envelope_beats_all(self) -> None:
        near = parse_rfc3339("2025-11-20T09:00:01Z")
        assert parse(self.pattern, "11-20 09:00:00", near=near) == "2025-11-20 09:00:00"

    def test_leap_day(self) -> None:
        assert parse(self.pattern, "02-29 10:00:00") == "2028-02-29 10:00:00"

    def test_learning_a_full_stamp_counts_from_then_on(self) -> None:
        known, form = YearReference(NOVEMBER), TimeFormat(self.pattern)
        assert utc(form.parse("06-01 10:00:00", TimeContext(known))) == "2026-06-01 10:00:00"
        known.observe(parse_rfc3339("2020-06-01T00:00:00Z"))
        assert utc(form.parse("06-01 10:00:00", TimeContext(known))) == "2020-06-01 10:00:00"


class TestZone:
    def test_a_stamp_without_zone_is_in_the_configured_one(self) -> None:
        assert parse("%m-%d %H:%M:%S", "11-20 10:00:00", zone=BERLIN) == "2026-11-20 09:00:00"
        assert parse("iso8601", "2026-07-20 11:00:00", zone=BERLIN) == "2026-07-20 09:00:00"  # summer time
        assert parse("iso8601", "2026-11-20T09:00:00Z", zone=BERLIN) == "2026-11-20 09:00:00"

    def test_an_exact_envelope_shows_the_zone(self) -> None:
        near = parse_rfc3339("2026-11-20T09:00:00.4Z")
        assert parse("%m-%d %H:%M:%S", "11-20 17:00:00", near=near) == "2026-11-20 09:00:00"
        assert parse("%m-%d %H:%M:%S", "11-20 14:45:00", near=near) == "2026-11-20 09:00:00"  # Nepal
        assert parse("iso8601", "2026-11-20 04:00:00", near=near) == "2026-11-20 09:00:00"

    def test_a_late_delivery_is_no_zone(self) -> None:
        near = parse_rfc3339("2026-11-20T09:40:00Z")
        assert parse("%m-%d %H:%M:%S", "11-20 09:03:00", near=near) == "2026-11-20 09:03:00"

    def test_a_stamp_with_a_zone_is_believed(self) -> None:
        near = parse_rfc3339("2026-11-20T09:00:00Z")
        assert parse("iso8601", "2026-11-20T08:00:00Z", near=near) == "2026-11-20 08:00:00"


class TestDay:
    def test_midnight_is_passed_when_the_clock_falls(self) -> None:
        before = parse_rfc3339("2026-11-20T23:59:59Z")
        assert parse("%H:%M:%S", "00:00:01", previous=before) == "2026-11-21 00:00:01"

    def test_a_line_that_is_a_little_late_stays_on_its_day(self) -> None:
        before = parse_rfc3339("2026-11-21T00:00:03Z")
        assert parse("%H:%M:%S", "23:59:58", previous=before) == "2026-11-20 23:59:58"

    def test_the_first_one_is_on_the_first_day_known(self) -> None:
        span = (parse_rfc3339("2026-03-01T10:00:00Z"), parse_rfc3339("2026-03-03T10:00:00Z"))
        assert parse("%H:%M:%S", "10:05:00", span=span) == "2026-03-01 10:05:00"


class TestUptime:
    def test_counts_from_the_first_look(self) -> None:
        form, now = TimeFormat("uptime"), context(observed=NOVEMBER)
        assert utc(form.parse("868.50.896.345", now)) == "2026-11-20 12:00:00"
        now.previous = NOVEMBER
        assert utc(form.parse("868.52.896.345", now)) == "2026-11-20 12:00:02"

    def test_a_clock_that_falls_is_a_restart(self) -> None:
        form, now = TimeFormat("uptime"), context()
        now.previous = form.parse("100.0", now)
        assert utc(now.previous) == "2026-11-20 12:00:00"
        assert utc(form.parse("0.5", now)) == "2026-11-20 12:00:00"

    def test_the_envelope_knows_better(self) -> None:
        assert utc(TimeFormat("uptime").parse("0.00.001.000", context(near=NOVEMBER + 7))) == "2026-11-20 12:00:07"


class TestForScan:
    def test_modification_time_and_full_stamps_at_line_starts(self, tmp_path: Path) -> None:
        log = tmp_path / "a.log"
        log.write_text("11-20 09:00:00 x\n2024-01-02T03:04:05Z y\n" + "p" * 90 + "1999-01-01T00:00:00\n")
        os.utime(log, (1.7e9, 1.7e9))
        found = YearReference.for_scan([str(log), "-", str(tmp_path / "missing")])
        assert found.reference == 1.7e9
        assert found.full == (parse_rfc3339("2024-01-02T03:04:05Z"),) * 2

    def test_compressed_logs_are_looked_into(self, tmp_path: Path) -> None:
        text = b"2024-01-02 03:04:05 x\n"
        (tmp_path / "a.gz").write_bytes(gzip.compress(text))
        (tmp_path / "b.xz").write_bytes(lzma.compress(text))
        (tmp_path / "c.gz").write_bytes(b"no gzip at all")
        for name in ("a.gz", "b.xz"):
            assert YearReference.for_scan([str(tmp_path / name)]).full is not None
        assert YearReference.for_scan([str(tmp_path / "c.gz")]).full is None

    def test_without_any_file_now_is_the_reference(self) -> None:
        assert YearReference.for_scan(["-"]).moment() > NOVEMBER - 3e8
