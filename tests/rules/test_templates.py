"""Templates look values up and format them: they cannot fail, and what comes out of a log is data."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.rules.templates import FILTERS, MAX_RENDERED, check_template, render

VALUES: dict[str, Any] = {
    "server": "llama-0",
    "stalled_for": 130.4,
    "fields": {"line": "first\nsecond", "total": "12,345", "evil": "{{ server }}{{7*7}}{% raw %}"},
    "signal": {"requests_waiting": 214.0, "kv_cache_usage_ratio": 0.9333, "up": None},
    "labels": {"model": "m"},
}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no template", "no template"),
        ("{{server}} and {{ labels.model }}", "llama-0 and m"),
        ("{{ stalled_for | duration }}", "2m10s"),
        ("{{ signal.requests_waiting }}", "214"),
        ("{{ signal.kv_cache_usage_ratio | percent }}", "93.3%"),
        ("{{ signal.kv_cache_usage_ratio }}", "0.9333"),
        ("{{ fields.total | humanize }}", "12.35k"),
        ("{{ fields.line | first_line }}", "first"),
        ("{{ fields.line | first_line | truncate(3) }}", "fi…"),
        ("{{ signal.up }} {{ fields.none }} {{ nothing.at.all }}", "n/a n/a n/a"),
        ('{{ signal.up | default("?") }}', "?"),
        ("{{ signal.up | duration | default('0s') }}", "0s"),
        ("{{ server | duration | percent | humanize }}", "llama-0"),
        ('{{ "{{" }} server }}', "{{ server }}"),
        ("{{ server", "{{ server"),
        ("{{ 7*7 }}", "{{ 7*7 }}"),
        ("{{ server | upper }}", "{{ server | upper }}"),
        ("{{ server.__class__.__mro__ }}", "n/a"),
        ("{{ fields.__class__ }}", "n/a"),
        ("{{ fields }}", "n/a"),
        ("}} {{ server }} {{", "}} llama-0 {{"),
    ],
)
def test_what_is_shown(text: str, shown: str) -> None:
    assert render(text, VALUES) == shown


def test_log_text_is_data_and_never_a_template() -> None:
    assert render("saw {{ fields.evil }}", VALUES) == "saw {{ server }}{{7*7}}{% raw %}"


def test_a_megabyte_of_log_text_does_not_go_out() -> None:
    assert len(render("{{ fields.a }}" * 100, {"fields": {"a": "x" * 100_000}})) == MAX_RENDERED


@pytest.mark.parametrize(
    ("text", "offset", "words"),
    [
        ("{{ servr }}", 3, "unknown name 'servr', did you mean 'server'?"),
        ("{{ total }}", 3, "write {{ fields.total }}"),
        ("{{ requests_waiting }}", 3, "write {{ signal.requests_waiting }}"),
        ("{{ fields.totl }}", 3, "no stage catches a field 'totl', did you mean 'total'?"),
        ("{{ signal.requests_wating }}", 3, "did you mean 'requests_waiting'?"),
        ("{{ now.finished_per_minut }}", 3, "did you mean 'finished_per_minute'?"),
        ("{{ server.name }}", 3, "write {{ server }}"),
        ("{{ fields }}", 3, "wants one name after the dot"),
        ("for {{ stalled_for | durration }}", 21, "unknown filter 'durration', did you mean 'duration'?"),
        ("{{ server | truncate }}", 12, "write truncate(80)"),
        ("{{ server | duration(3) }}", 12, "takes nothing in brackets"),
        ('{{ server | truncate("x") }}', 12, "truncate wants a number"),
        ("{{ $labels.instance }}", 3, "write {{ labels.NAME }}"),
        ("{{ $value }}", 3, "write {{ signal.NAME }}"),
        ("{{ range .Alerts }}", 9, "there are no loops here"),
        ("a {{ server", 2, "is never closed"),
        ("{{ }}", 3, "is no name"),
    ],
)
def test_mistakes_are_found_where_they_stand(text: str, offset: int, words: str) -> None:
    found = check_template(text, fields={"total"}, signals={"requests_waiting"})
    assert [(at, words in message) for at, message in found] == [(offset, True)], found


def test_what_is_right_is_not_blamed() -> None:
    text = "{{ server }} {{ fields.total | humanize }} {{ signal.requests_waiting }} {{ labels.any }}"
    assert check_template(text, fields={"total"}, signals={"requests_waiting"}) == []


texts = st.text(alphabet="{}|. abrsever\"'()x0", max_size=40)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10) | st.binary(max_size=4),
    lambda inner: st.dictionaries(st.text(max_size=6), inner, max_size=3) | st.lists(inner, max_size=2),
    max_leaves=6,
)


@given(texts, st.dictionaries(st.sampled_from(["server", "fields", "stalled_for", "a", "b"]), anything, max_size=4))
def test_nothing_makes_it_fail(text: str, values: dict[str, Any]) -> None:
    assert isinstance(render(text, values), str)
    check_template(text, fields=(), signals=())


@given(anything, st.sampled_from(sorted(FILTERS)), st.none() | st.text(max_size=5) | st.integers().map(str))
def test_no_value_makes_a_filter_fail(value: Any, name: str, argument: str | None) -> None:
    written = "" if argument is None else f"({argument})" if argument.lstrip("-").isdigit() else f'("{argument}")'
    assert isinstance(render(f"{{{{ a | {name}{written} }}}}", {"a": value}), str)
