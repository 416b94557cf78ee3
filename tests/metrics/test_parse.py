from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from agent.metrics.names import plain_name
from agent.metrics.parse import Page, Series, parse_page


def read(text: str | bytes, *wanted: str, openmetrics: bool = False, partial: bool = False) -> Page:
    data = text if isinstance(text, bytes) else text.encode()
    return parse_page(data, frozenset(wanted) if wanted else None, openmetrics=openmetrics, partial=partial)


def values(page: Page) -> list[tuple[str, dict[str, str], float]]:
    return [(series.name, dict(series.labels), series.value) for series in page.series]


def test_only_wanted_names_are_read() -> None:
    page = read('a{x="1"} 1\nab 2\nb 3\na 4\n# HELP a text\n', "a")
    assert values(page) == [("a", {"x": "1"}, 1), ("a", {}, 4)]
    assert (page.lines, page.bad_lines, page.kind) == (5, 0, "metrics")


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("vllm:num_requests_running 1", "vllm:num_requests_running"),
        ("vllm_num_requests_running 1", "vllm_num_requests_running"),
        ('ray_vllm_num_requests_running{ReplicaId="x"} 1', "ray_vllm_num_requests_running"),
        ("  vllm:num_requests_running\t1", "vllm:num_requests_running"),
        ('{"vllm:num_requests_running", engine="0"} 1', "vllm:num_requests_running"),
    ],
)
def test_every_spelling_of_a_wanted_name_is_found(line: str, name: str) -> None:
    for text in (f"{line}\n", f"first 1\n{line}\nlast 2\n", line, f"first 1\r\n{line}\r\n"):
        assert [series.name for series in read(text, "vllm:num_requests_running").series] == [name]


def test_names_that_only_begin_alike_are_not_wanted() -> None:
    page = read("x_total_count 1\nx_total_bucket 2\nx_total 3\nmy_x_total 4\n", "x_total")
    assert values(page) == [("x_total", {}, 3)]


@pytest.mark.parametrize(
    ("text", "value"),
    [("NaN", math.nan), ("+Inf", math.inf), ("-Inf", -math.inf), ("inf", math.inf), ("1.5e+06", 1.5e6), ("-0", 0.0)],
)
def test_values_that_are_numbers(text: str, value: float) -> None:
    (series,) = read(f"a {text}\n").series
    assert series.value == value or (math.isnan(value) and math.isnan(series.value))


@pytest.mark.parametrize(
    "line",
    [
        "a",
        "a ",
        "a one",
        "a 1_000",
        "a 0x1f",
        "a １",
        "a 1 2 3",
        "a 1 1.5",
        "a 1 soon",
        "a{x=1} 1",
        'a{x="1} 1',
        'a{x="1"',
        'a{x="1",,y="2"} 1',
        'a{x="1" y="2"} 1',
        'a{x="1",x="2"} 1',
        "a{x} 1",
        'a{"b", x="1"} 1',
        '{x="1"} 1',
        "1 2",
        "a-b 1",
        "<td>a 1</td>",
    ],
)
def test_a_bad_line_is_counted_and_costs_only_itself(line: str) -> None:
    page = read(f"good 1\n{line}\ngood2 2\n")
    assert values(page) == [("good", {}, 1), ("good2", {}, 2)]
    assert page.bad_lines == 1
    assert page.faults[0].line == 2


def test_bad_lines_are_described_five_times_and_counted_always() -> None:
    page = read("a x\n" * 100 + "b 1\n", "a", "b")
    assert (page.bad_lines, len(page.faults), page.suspect) == (100, 5, {"a"})
    assert page.faults[4].line == 5
    assert "'a x'" in page.faults[0].message


def test_label_values_are_unescaped() -> None:
    (series,) = read(r'a{x="say \"hi\"\n\\ \d",y="}",z="{# 1"} 1' + "\n").series
    assert series.labels == {"x": 'say "hi"\n\\ \\d', "y": "}", "z": "{# 1"}


def test_utf8_names_in_quotes() -> None:
    (series,) = read('{"näme with space","läbel.x"="wert"} 1\n').series
    assert (series.name, dict(series.labels)) == ("näme with space", {"läbel.x": "wert"})


def test_broken_utf8_in_a_label_does_not_lose_the_value() -> None:
    page = read(b'a{x="\xff\xfe"} 1\na{x="\xff\xfd"} 2\n')
    assert [series.value for series in page.series] == [1, 2]
    assert page.series[0].labels != page.series[1].labels


def test_exemplars_are_not_read_as_timestamps() -> None:
    page = read('a_total 1 # {trace_id="x"} 1\na_bucket{le="1"} 3 # {t="}"} 0.5 1.5\n')
    assert [series.timestamp for series in page.series] == [None, None]
    assert [series.value for series in page.series] == [1, 3]


def test_timestamps_are_milliseconds_in_text_and_seconds_in_openmetrics() -> None:
    assert read("a 1 1795165235500\n").series[0].timestamp == 1795165235.5
    assert read("a 1 1795165235.5\n# EOF\n", openmetrics=True).series[0].timestamp == 1795165235.5
    assert read("a 1 1795165235.5\n").bad_lines == 1
    assert read("a 1 NaN\n# EOF\n", openmetrics=True).bad_lines == 1


def test_windows_newlines_mark_and_missing_last_newline() -> None:
    page = read(b'\xef\xbb\xbfa{x="1"} 1\r\nb 2\r\nc 3')
    assert values(page) == [("a", {"x": "1"}, 1), ("b", {}, 2), ("c", {}, 3)]
    assert not page.cut


def test_a_cut_last_line_is_left_out_and_its_family_suspect() -> None:
    page = read('a{x="1"} 1\na{x="2', "a", "b")
    assert (values(page), page.bad_lines, page.cut, page.suspect) == ([("a", {"x": "1"}, 1)], 1, True, {"a"})
    page = read("b 1\nvllm:num_req", "vllm:num_requests_running", "vllm:num_requests_waiting", "b")
    assert page.suspect == {"vllm_num_requests_running", "vllm_num_requests_waiting"}


def test_a_broken_transfer_is_not_trusted_with_its_last_line() -> None:
    # `b 12` may have been `b 1234`, and more lines of b may have followed
    page = read("a 1\nb 12", "a", "b", partial=True)
    assert (values(page), page.cut) == ([("a", {}, 1)], True)
    assert "b" in page.suspect
    page = read("a 1\nb 12\n", "a", "b", partial=True)
    assert (page.cut, page.suspect) == (True, {"b"})


def test_openmetrics_without_its_end_mark_is_cut() -> None:
    assert read("a 1\n", openmetrics=True).cut
    assert not read("a 1\n# EOF\n", openmetrics=True).cut


def test_declared_families_are_known_without_series() -> None:
    page = read(
        "# HELP x_total is a\n# TYPE x_total counter\n# TYPE vllm:y histogram\n# TYPE z gauge\nz 1\n",
        "x_total",
        "vllm:y_count",
        "z",
    )
    assert page.families == {"x_total": "counter", "vllm_y": "histogram", "z": "gauge"}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("<!DOCTYPE html><html><body>Log in</body></html>", "html"),
        ("\n\n  <html>\na 1\n</html>", "html"),
        ('[{"iter": 1}]', "json"),
        ('{"detail":"Not Found"}', "json"),
        ("{}", "json"),
        ("", "empty"),
        ("\n \n", "empty"),
        ("internal error\nsee the log\n", "other"),
        ("\x00\x01\x02\xff" * 1000, "other"),
        ("# EOF\n", "metrics"),
        ('{"quoted", a="b"} 1\n', "metrics"),
        ("a 1\n", "metrics"),
        ("some_other_program 1\n", "metrics"),
    ],
)
def test_what_a_page_is(text: str, kind: str) -> None:
    page = read(text, "wanted_name")
    assert page.kind == kind
    assert page.looks_like_html == (kind == "html")


def test_reading_stops_at_the_limit() -> None:
    page = parse_page(b"a 1\n" * 1000, frozenset(["a"]), limit=10)
    assert len(page.series) == 11


def test_plain_names() -> None:
    assert plain_name("ray_vllm:num_requests_running") == "vllm_num_requests_running"
    assert plain_name("ray_serve_deployment_queued_queries") == "ray_serve_deployment_queued_queries"


NAMES = st.from_regex(r"[a-z_:][a-z0-9_:]{0,8}", fullmatch=True)
LABEL_NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"), max_size=8)
LABELS = st.dictionaries(LABEL_NAMES, TEXTS, max_size=3)
VALUES = st.floats(allow_nan=True, allow_infinity=True)
TIMES = st.none() | st.integers(0, 4_000_000_000_000)


def escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def block(labels: Mapping[str, str]) -> str:
    inner = ",".join(f'{name}="{escaped(text)}"' for name, text in labels.items())
    return f"{{{inner}}}" if inner else ""


def number(value: float) -> str:
    return (
        "NaN" if math.isnan(value) else "+Inf" if value == math.inf else "-Inf" if value == -math.inf else repr(value)
    )


def same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return one == other or (math.isnan(one) and math.isnan(other))


def agree(ours: list[Series], theirs: list[tuple[str, dict[str, str], float, float | None]]) -> None:
    assert len(ours) == len(theirs)
    for series, (name, labels, value, stamp) in zip(ours, theirs, strict=True):
        assert (series.name, dict(series.labels)) == (name, labels)
        assert same(series.value, value)
        assert same(series.timestamp, stamp)


@given(st.lists(st.tuples(NAMES, LABELS, VALUES, TIMES), max_size=8), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_text_pages_read_as_the_official_client_reads_them(
    lines: list[tuple[str, dict[str, str], float, int | None]], newline: str, last: bool
) -> None:
    text = newline.join(
        f"{name}{block(labels)} {number(value)}" + ("" if stamp is None else f" {stamp}")
        for name, labels, value, stamp in lines
    ) + (newline if last else "")
    theirs = [
        (sample.name, dict(sample.labels), float(sample.value), sample.timestamp)
        for family in parse_text(text)
        for sample in family.samples
    ]
    page = read(text)
    assert page.bad_lines == 0
    agree(page.series, [(name, labels, value, None if at is None else float(at)) for name, labels, value, at in theirs])
    # asking for the names gives what asking for all gives, whatever the others are
    names = {name for name, *_ in lines}
    for name in names:
        one = read(text, name)
        assert one.bad_lines == 0
        wanted = [series for series in page.series if plain_name(series.name) == plain_name(name)]
        agree(one.series, [(s.name, dict(s.labels), s.value, s.timestamp) for s in wanted])


@given(
    st.lists(
        st.tuples(LABELS, VALUES, st.integers(0, 4_000_000_000)), min_size=1, max_size=5, unique_by=lambda x: str(x[0])
    )
)
def test_openmetrics_pages_read_as_the_official_client_reads_them(
    lines: list[tuple[dict[str, str], float, int]],
) -> None:
    text = (
        "# TYPE a gauge\n"
        + "".join(f"a{block(labels)} {number(value)} {at}.25\n" for labels, value, at in lines)
        + "# EOF\n"
    )
    theirs = [
        (sample.name, dict(sample.labels), float(sample.value), float(sample.timestamp))
        for family in parse_openmetrics(text)
        for sample in family.samples
    ]
    page = read(text, openmetrics=True)
    assert (page.bad_lines, page.cut) == (0, False)
    agree(page.series, theirs)


@given(st.binary(max_size=400), st.booleans(), st.booleans())
def test_no_bytes_make_it_raise(data: bytes, openmetrics: bool, partial: bool) -> None:
    for wanted in (None, frozenset(["a", "b_total"])):
        page = parse_page(data, wanted, openmetrics=openmetrics, partial=partial)
        assert page.bad_lines <= page.lines


@given(
    st.lists(
        st.sampled_from(['a{x="1"} 1', 'a{x="1"} 2 5', "b 1", "a{x=", "b x", 'b{y="}"} 3', "a 1 # {} 2"]), max_size=12
    )
)
def test_remembering_label_blocks_changes_nothing(lines: list[str]) -> None:
    whole = read("".join(f"{line}\n" for line in lines))
    apart = [series for line in lines for series in read(f"{line}\n").series]
    assert whole.series == apart
