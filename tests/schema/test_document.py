"""YAML as nodes that know where they stand; nothing in a file can crash, hang or blow up the reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from agent.schema import parse_document, read_document
from agent.schema.document import MAX_BYTES, Document, plain_value

PRINTABLE = st.characters(
    min_codepoint=0x20, max_codepoint=0x2FFF, exclude_categories=["Cs", "Cc", "Co", "Cn", "Zl", "Zp"]
)


def value_of(document: Document, key: str) -> Any:
    root: Any = document.root
    return next(value for name, value in document.items(root) if name.value == key)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None), ("~", None), ("null", None),
        ("true", True), ("False", False), ("on", "on"), ("yes", "yes"),
        ("7", 7), ("-3", -3), ("1.5", 1.5), ("1e3", 1000.0), ("5.", 5.0), (".5", 0.5),
        ("010", "010"), ("0x10", "0x10"), ("1_000", "1_000"), ("1:30", "1:30"), ("2026-01-01", "2026-01-01"),
        ("٣", "٣"), ("9" * 80, "9" * 80),
    ],
)  # fmt: skip
def test_plain_scalars_mean_what_every_reader_agrees_on(text: str, value: object) -> None:
    assert plain_value(text) == value
    assert type(plain_value(text)) is type(value)


@given(st.text(PRINTABLE, min_size=1, max_size=40), st.sampled_from(["'", '"', "|", None]))
def test_the_place_inside_a_scalar_is_the_place_in_the_file(text: str, style: str | None) -> None:
    if style == "|":
        # a block cannot begin with blanks unless it says how deep it is
        if not text.strip() or text[0].isspace() or text[-1].isspace():
            return
        source = "key: |\n" + "".join(f"  {line}\n" for line in text.split("\n"))
    else:
        source = "key: " + yaml.dump(text, default_style=style, width=10_000, allow_unicode=True)
    document = parse_document(source, "f")
    node = value_of(document, "key")
    lines = source.split("\n")
    for offset, character in enumerate(node.value.rstrip("\n")):
        where = document.inside(node, offset)
        found = lines[where.line - 1][where.column - 1 :]
        if node.style == '"' and found.startswith("\\"):
            continue  # an escape: begins where the character does, and is longer
        if node.start_mark.line == node.end_mark.line or node.style == "|":
            assert found.startswith(character)


def test_escapes_do_not_shift_what_comes_after_them() -> None:
    document = parse_document("a: \"x\\ty\\u0041z\"\nb: 'it''s'\nc: |\n  ab\n  cd\n", "f")
    places = {}
    for key, offsets in {"a": (0, 1, 2, 3, 4), "b": (2, 3), "c": (0, 4)}.items():
        found = [document.inside(value_of(document, key), offset) for offset in offsets]
        places[key] = [(where.line, where.column) for where in found]
    assert places == {
        "a": [(1, 5), (1, 6), (1, 8), (1, 9), (1, 15)],
        "b": [(2, 7), (2, 9)],
        "c": [(4, 3), (5, 4)],
    }


def test_merge_keys_fill_in_and_what_stands_there_wins() -> None:
    document = parse_document("base: &b {x: 1, y: 2}\nuse:\n  <<: *b\n  y: 3\n", "f")
    used = {key.value: value.value for key, value in document.items(value_of(document, "use"))}
    assert used == {"y": "3", "x": "1"}
    assert document.faults == []


def test_nested_aliases_cannot_blow_up() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    document = parse_document("\n".join(lines), "f")
    assert document.root is None
    assert "use fewer aliases" in document.faults[0].message


@pytest.mark.parametrize("text", ["[" * 100_000, "- " * 5_000 + "x", "{a: " * 3_000, "? " * 3_000])
def test_deep_nesting_is_a_fault_and_not_the_end_of_the_process(text: str) -> None:
    document = parse_document(text, "f")
    assert document.root is None
    assert document.faults


def test_a_huge_file_is_refused_without_being_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "huge.yaml"
    with path.open("wb") as handle:
        handle.truncate(MAX_BYTES * 50)
    document = read_document(path)
    assert "is larger than 8 MiB" in document.faults[0].message


def test_a_missing_file_is_a_fault(tmp_path: Path) -> None:
    assert "No such file" in str(read_document(tmp_path / "none.yaml").faults[0])


@given(st.binary(max_size=300))
def test_no_bytes_crash_the_reader(data: bytes) -> None:
    document = parse_document(data.decode("utf-8", "replace"), "f")
    assert document.root is not None or document.faults or not data.strip() or b"#" in data or document.root is None


@given(st.text(alphabet="ab:-[]{}&*!|>'\"%@`#,? \n\t0", max_size=60))
def test_no_yaml_crashes_the_reader(text: str) -> None:
    document = parse_document(text, "f")
    for fault in document.faults:
        assert fault.position.line >= 1
        assert fault.position.column >= 1
