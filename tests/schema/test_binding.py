"""From YAML to dataclasses: every fault at its place, no fault twice, no secret in any of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model import Duration, Position, Secret
from agent.schema import Bound, bind, errors, parse_document


@dataclass(frozen=True)
class Inner:
    name: str
    size: int = field(default=1, metadata={"minimum": 1, "maximum": 9})
    position: Position = field(default=Position(), compare=False)


@dataclass(frozen=True)
class Outer:
    url: Secret | None = None
    token: Secret | None = None
    wait: Duration = field(default=Duration(5.0), metadata={"name": "for", "minimum": 1.0})
    kind: Literal["red", "green"] = "red"
    on: bool = False
    ratio: float = 1.0
    items: tuple[Inner, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    either: str | int | Inner | tuple[str, ...] | None = None
    anything: Any = None
    color: str = field(default="", metadata={"choices": ("blue", "black"), "noun": "colour"})

    HINTS: ClassVar[Mapping[str, str]] = {"colour": "write 'color'"}

    def check(self) -> Iterator[tuple[str, ...]]:
        if self.ratio > 1:
            yield "ratio", "is more than all of it"
        if len(self.items) == 1:
            yield "items.0.name", "is alone", "warning"


def read(text: str, env: Mapping[str, str] | None = None) -> Bound[Outer]:
    return bind(Outer, parse_document(text, "f"), env=env, base="/etc/x")


def said(text: str, env: Mapping[str, str] | None = None) -> list[str]:
    return [str(fault) for fault in read(text, env).faults]


def test_every_kind_of_value_arrives() -> None:
    bound = read(
        "for: 1m\nkind: green\non: true\nratio: 1\nitems: [{name: a, size: 2}, {name: b}]\n"
        "labels: {shard: 7, x: y}\neither: 5\nanything: {a: [1, null, 'x']}\ncolor: blue\n"
    )
    assert bound.faults == []
    value = bound.value
    assert value is not None
    assert (value.wait, value.kind, value.on, value.ratio) == (60.0, "green", True, 1.0)
    assert value.items == (Inner("a", 2), Inner("b", 1))
    assert value.items[1].position == Position("f", 5, 29)
    assert value.labels == {"shard": "7", "x": "y"}
    assert value.either == 5
    assert value.anything == {"a": (1, None, "x")}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("either: text", "text"),
        ("either: 7", 7),
        ("either: {name: n}", Inner("n")),
        ("either: [a, b]", ("a", "b")),
        ("either:", None),
    ],
)
def test_a_union_is_told_apart_by_shape(text: str, value: object) -> None:
    bound = read(text)
    assert bound.faults == []
    assert bound.value is not None
    assert bound.value.either == value


def test_all_faults_come_at_once_each_at_its_place() -> None:
    assert said(
        "for: 5\nkind: rd\non: yes\nratio: x\nitems: [{nam: a}, {name: b, size: 10}]\ncolor: blu\nwhat: 1\n"
    ) == [
        "f:1:6: for: expected a duration such as 10s or 1h30m: '5' has no unit, write for example 5s",
        "f:2:7: kind: 'rd' is not one of red, green, did you mean 'red'?",
        "f:3:5: on: expected true or false; plain yes is a boolean to YAML 1.1 readers and text to others, "
        "write true or false",
        "f:4:8: ratio: expected a number, got 'x'",
        "f:5:10: items[0]: unknown key 'nam', did you mean 'name'?",
        "f:5:35: items[1].size: 10 is too large, the most is 9",
        "f:6:8: color: unknown colour 'blu', did you mean 'blue'?",
        "f:7:1: unknown key 'what', known here: anything, color, either, for, items, kind, labels, on, ratio, token, "
        "token_file, url, url_file",
    ]


def test_a_class_checks_itself_and_points_into_itself() -> None:
    assert said("ratio: 2\nitems: [{name: solo}]\n") == [
        "f:1:8: ratio: is more than all of it",
        "f:2:16: warning: items[0].name: is alone",
    ]


def test_words_of_other_tools_are_translated() -> None:
    assert said("colour: blue") == ["f:1:1: unknown key 'colour', write 'color'"]


def test_keys_that_begin_with_x_are_for_the_writer() -> None:
    assert said("x-common: &c {name: a}\nitems: [*c, {<<: *c, size: 3}]") == []


class TestSecrets:
    def test_from_text_or_from_a_file_beside_the_configuration(self, tmp_path: Any) -> None:
        bound = read("url: 'https://x/T0K3N'\ntoken_file: secrets/token")
        assert bound.faults == []
        assert bound.value is not None
        assert bound.value.url is not None
        assert bound.value.url.reveal() == "https://x/T0K3N"
        assert bound.value.token == Secret(path="/etc/x/secrets/token")

    def test_not_both(self) -> None:
        assert said("token: T0K3N\ntoken_file: x") == ["f:2:1: give either 'token' or 'token_file', not both"]

    @pytest.mark.parametrize(
        "text",
        [
            "token: [T0K3N]",
            "token: {a: T0K3N}",
            "token: T0K3N\ntoken_file: x",
            "token: ${NOPE}T0K3N",
            "tokn: T0K3N",
            "url_file: [T0K3N]",
        ],
    )
    def test_no_fault_shows_one(self, text: str) -> None:
        faults = said(text, env={"OTHER": "T0K3N"})
        assert faults
        assert "T0K3N" not in " ".join(faults)

    def test_nor_does_printing_what_was_read(self) -> None:
        assert "T0K3N" not in repr(read("token: T0K3N").value)


class TestVariables:
    def test_in_values_of_every_type(self) -> None:
        bound = read(
            'color: ${C}\nfor: ${D:-5m}\nratio: "${R}"\non: ${B}\nlabels: {a: "x ${C} y", b: "$${C}"}\n',
            env={"C": "blue", "R": "0.5", "B": "true"},
        )
        assert bound.faults == []
        value = bound.value
        assert value is not None
        assert (value.color, value.wait, value.ratio, value.on) == ("blue", 300.0, 0.5, True)
        assert value.labels == {"a": "x blue y", "b": "${C}"}

    def test_one_that_is_not_set_is_a_fault_at_its_dollar(self) -> None:
        assert said("color: blue-${NOPE}", env={}) == [
            "f:1:13: color: environment variable NOPE is not set; set it, or write ${NOPE:-default}"
        ]

    def test_what_it_holds_is_never_yaml_and_never_shown(self) -> None:
        assert said("for: ${D}", env={"D": "[h4ck: 3d]"}) == [
            "f:1:6: for: expected a duration such as 10s or 1h30m: the value of '${D}' is none"
        ]

    def test_names_that_are_none(self) -> None:
        assert "'${A B}' is no variable" in said("color: ${A B}", env={})[0]

    def test_not_in_keys(self) -> None:
        assert said("labels: {'${C}': x}", env={"C": "c"}) == []

    def test_left_alone_where_files_have_none(self) -> None:
        bound = read("color: blue\nlabels: {a: '${HOME}'}")
        assert bound.value is not None
        assert bound.value.labels == {"a": "${HOME}"}


KEYS = [
    "url",
    "token",
    "token_file",
    "for",
    "kind",
    "on",
    "ratio",
    "items",
    "labels",
    "either",
    "color",
    "name",
    "size",
]
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=8)


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)


@given(st.recursive(SCALARS, nested, max_leaves=12))
def test_no_document_crashes_and_what_has_no_error_has_a_value(data: Any) -> None:
    import yaml

    bound = read(yaml.safe_dump(data, allow_unicode=True), env={})
    if not errors(bound.faults):
        assert isinstance(bound.value, Outer)
    for fault in bound.faults:
        assert fault.position.file == "f"
        assert fault.position.line >= 1
