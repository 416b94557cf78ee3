"""A YAML file as nodes that know where they stand.

YAML is read by PyYAML (its C parser when that is there) up to the node tree and no further: what a plain
scalar means is decided here, by a resolver that is narrower than YAML 1.1's. ``on`` and ``yes`` are no
booleans, ``1:30`` is no number, ``010`` is a fault and a date is text, so that a file means the same to every
reader. Tags (``!something``) are refused; anchors, aliases and merge keys (``<<``) work, within bounds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from agent.model import Position
from agent.schema.faults import Fault

if TYPE_CHECKING:
    from pathlib import Path

    from yaml import Loader, Mark, MarkedYAMLError
    from yaml.nodes import MappingNode, Node, ScalarNode

__all__ = ["Document", "ScalarValue", "kind_of", "parse_document", "plain_value", "read_document"]

MAX_BYTES: Final = 8 * 1024 * 1024
"""A larger file is no configuration; reading it would only eat memory."""
MAX_DEPTH: Final = 100
MAX_NODES: Final = 200_000
"""Bounds the tree with aliases followed, so that nested aliases cannot blow up ("billion laughs")."""

ScalarValue = str | int | float | bool | None

_IMPLICIT: Final = "implicit"  # the tag of a node whose author wrote none
_UNPRINTABLE: Final = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_INT: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]*)", re.ASCII)
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_VARIABLE_IN_FLOW: Final = "a ${VAR} between braces or brackets needs quotes around it"
_SPECIAL_FLOAT: Final = {".inf": "inf", "+.inf": "inf", "-.inf": "-inf", ".nan": "nan"}


@dataclass(slots=True)
class Document:
    """One parsed file: its root node (None when it is empty or broken), its text and the faults found so far."""

    file: str
    text: str = ""
    root: Node | None = None
    faults: list[Fault] = field(default_factory=list)
    _lines: list[str] | None = None

    def position(self, node: Node | None) -> Position:
        """Where the node begins; the start of the file when there is none."""
        if node is None:
            return Position(self.file, 1, 1)
        return Position(self.file, node.start_mark.line + 1, node.start_mark.column + 1)

    def inside(self, node: Node, offset: int) -> Position:
        """Where character ``offset`` of a scalar's *value* stands in the file.

        Exact for plain and quoted scalars on one line and for literal blocks; otherwise where the scalar begins.
        """
        start = node.start_mark
        where = self.position(node)
        style = getattr(node, "style", None)
        if style in {"|", ">"}:
            return self._inside_block(node, offset)
        if start.line != node.end_mark.line:
            return where
        line = self.lines[start.line]
        column = start.column
        if not style:
            return Position(self.file, where.line, where.column + offset)
        column += 1  # the opening quote
        for _ in range(offset):
            column += _escape_length(line, column) if style == '"' else (2 if line.startswith("''", column) else 1)
        return Position(self.file, where.line, column + 1)

    def _inside_block(self, node: Node, offset: int) -> Position:
        rest = offset
        first = node.start_mark.line + 1
        block = self.lines[first : node.end_mark.line + 1]
        indent = next((len(line) - len(line.lstrip(" ")) for line in block if line.strip()), 0)
        for number, line in enumerate(block, first):
            length = max(len(line) - indent, 0) + 1  # with its line break (a fold's space)
            if rest < length:
                return Position(self.file, number + 1, indent + rest + 1)
            rest -= length
        return self.position(node)

    @property
    def lines(self) -> list[str]:
        if self._lines is None:
            self._lines = self.text.split("\n")
        return self._lines

    def fault(self, node: Node | None, message: str) -> None:
        self.faults.append(Fault(self.position(node), message))

    def items(self, node: MappingNode) -> Iterator[tuple[ScalarNode, Node]]:
        """Keys and values of a mapping, merge keys resolved; what stands in the mapping itself wins."""
        seen: set[str] = set()
        merged: list[Node] = []
        for key, value in node.value:
            if kind_of(key) != "scalar":
                continue  # already a fault
            if key.value == "<<" and not key.style:
                merged.extend(value.value if kind_of(value) == "sequence" else [value])
            elif key.value not in seen:
                seen.add(key.value)
                yield key, value
        for source in merged:
            if kind_of(source) == "mapping":
                for key, value in self.items(source):  # type: ignore[arg-type]  # kind_of has looked
                    if key.value not in seen:
                        seen.add(key.value)
                        yield key, value


def kind_of(node: Node) -> str:
    """``scalar``, ``sequence`` or ``mapping``."""
    return node.id  # type: ignore[attr-defined, no-any-return]  # the stubs leave it out


def plain_value(text: str) -> ScalarValue:
    """What a plain (unquoted) scalar means: YAML's JSON-like core, and nothing that two readers disagree about."""
    if text in {"", "~", "null", "Null", "NULL"}:
        return None
    if text in {"true", "True", "TRUE"}:
        return True
    if text in {"false", "False", "FALSE"}:
        return False
    if _INT.fullmatch(text) and len(text) < 32:
        return int(text)
    if _FLOAT.fullmatch(text) and len(text) < 64:
        return float(text)
    if text.lower() in _SPECIAL_FLOAT:
        return float(_SPECIAL_FLOAT[text.lower()])
    return text


def read_document(path: str | Path, *, name: str = "") -> Document:
    """Reads and parses a file. A file that cannot be read is a fault of the document, not an exception."""
    document = Document(name or str(path))
    try:
        with open(path, "rb") as handle:
            data = handle.read(MAX_BYTES + 1)
    except OSError as error:
        document.fault(None, f"cannot be read: {error.strerror or error}")
        return document
    if len(data) > MAX_BYTES:
        document.fault(None, f"is larger than {MAX_BYTES // 2**20} MiB, which is no file of rules or configuration")
        return document
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8", "replace")) + 1
        where = Position(document.file, before.count(b"\n") + 1, column)
        document.faults.append(Fault(where, f"byte 0x{data[error.start]:02x} is not UTF-8, save the file as UTF-8"))
        return document
    return parse_document(text, document.file)


def parse_document(text: str, file: str) -> Document:
    """Parses YAML text; syntax faults, duplicate keys and refused features become faults of the document."""
    from yaml import MarkedYAMLError, YAMLError

    text = text.replace("\r\n", "\n")
    document = Document(file, text)
    bad = _UNPRINTABLE.search(text)
    if bad:
        line = text.count("\n", 0, bad.start())
        column = bad.start() - (text.rfind("\n", 0, bad.start()) + 1)
        message = f"control character {bad.group()!r} is not allowed, write it as an escape inside double quotes"
        document.faults.append(Fault(Position(file, line + 1, column + 1), message))
        return document
    loader = _loader(text)
    try:
        root = loader.get_single_node()
    except MarkedYAMLError as error:
        mark = _best_mark(error)
        where = Position(file, mark.line + 1, mark.column + 1) if mark else Position(file, 1, 1)
        message = _syntax_message(error, document, where)
        if message is _VARIABLE_IN_FLOW:  # noticed at the brace, meant is the dollar
            where = Position(file, where.line, document.lines[where.line - 1].rfind("${", 0, where.column) + 1)
        document.faults.append(Fault(where, message))
        return document
    except (YAMLError, RecursionError) as error:
        document.fault(None, f"is no YAML: {type(error).__name__}")
        return document
    finally:
        loader.dispose()
    if root is not None and _sound(document, root):
        document.root = root
    return document


def _loader(text: str) -> Loader:
    """A loader that leaves untagged nodes untagged. The class is made once, when YAML is first needed."""
    global _loader_class
    if _loader_class is None:
        import yaml

        base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

        class NodeLoader(base):  # type: ignore[valid-type, misc]  # which base is known only at run time
            def resolve(self, kind: object, value: object, implicit: object) -> str:
                return _IMPLICIT

        _loader_class = NodeLoader
    return _loader_class(text)  # type: ignore[no-any-return]


_loader_class: type | None = None


def _sound(document: Document, root: Node) -> bool:
    """Looks at every node once: tags, keys, duplicates; then bounds depth and size with aliases followed."""
    sizes: dict[int, int] = {}
    open_nodes: set[int] = set()

    def visit(node: Node, depth: int) -> int:
        known = sizes.get(id(node))
        if known is not None:
            return known
        if id(node) in open_nodes:
            document.fault(node, "an alias refers to a value that contains it")
            return MAX_NODES + 1
        if depth > MAX_DEPTH:
            document.fault(node, f"is nested more than {MAX_DEPTH} deep")
            return MAX_NODES + 1
        open_nodes.add(id(node))
        kind = kind_of(node)
        if node.tag != _IMPLICIT:
            document.fault(node, f"tags are not used here, remove {_short_tag(node.tag)}")
        total = 1
        if kind == "sequence":
            for item in node.value:
                total += visit(item, depth + 1)
        elif kind == "mapping":
            first: dict[str, Node] = {}
            for key, value in node.value:
                if kind_of(key) != "scalar":
                    document.fault(key, "a key must be plain text")
                elif key.value in first and key.value != "<<":
                    line = first[key.value].start_mark.line + 1
                    document.fault(key, f"key '{key.value}' is given twice, first in line {line}; remove one")
                else:
                    first[key.value] = key
                    if key.tag != _IMPLICIT:
                        document.fault(key, f"tags are not used here, remove {_short_tag(key.tag)}")
                total += 1 + visit(value, depth + 1)
        open_nodes.discard(id(node))
        sizes[id(node)] = total
        return total

    size = visit(root, 0)
    if size > MAX_NODES and not document.faults:
        document.fault(root, f"unfolds to more than {MAX_NODES} values, use fewer aliases")
    return size <= MAX_NODES


def _short_tag(tag: str) -> str:
    return tag.replace("tag:yaml.org,2002:", "!!")[:60]


def _escape_length(line: str, column: int) -> int:
    """How many source characters one value character takes at ``column`` of a double-quoted scalar."""
    if line[column : column + 1] != "\\":
        return 1
    return {"x": 4, "u": 6, "U": 10}.get(line[column + 1 : column + 2], 2)


def _best_mark(error: MarkedYAMLError) -> Mark | None:
    """Where the mistake was made rather than where it was noticed: the quote or bracket that is never closed."""
    problem, noticed, opened = error.problem or "", error.problem_mark, error.context_mark
    if noticed and opened and opened.line != noticed.line:
        unclosed = "unexpected end of stream" in problem or "expected ',' or" in problem
        return opened if unclosed else noticed
    return noticed or opened


def _syntax_message(error: object, document: Document, where: Position) -> str:
    problem = str(getattr(error, "problem", "") or "syntax error")
    context = str(getattr(error, "context", "") or "")
    lines = document.lines
    line = lines[where.line - 1] if where.line <= len(lines) else ""
    at = line[where.column - 1 : where.column]
    if "cannot start any token" in problem:
        if at == "\t":
            return "a tab indents this line, YAML indents with spaces"
        return f"a value cannot begin with '{at}', put it in quotes"
    if "mapping values are not allowed" in problem:
        return "a second ': ' in one line, put the value in quotes or begin a new line"
    if "expected ',' or" in problem:
        if "${" in line[: where.column]:
            return _VARIABLE_IN_FLOW
        opener, closer = ("[", "]") if "sequence" in context else ("{", "}")
        return f"expected ',' or '{closer}': a '{opener}' is not closed, or a value inside it needs quotes"
    if "unexpected end of stream" in problem and "quoted scalar" in context:
        return "a quote is opened and never closed"
    if "found another document" in problem:
        return "a second document begins here, one file holds one document"
    if "expected key" in problem or "block end" in problem.lower() or "expected '-' indicator" in problem:
        return f"{problem} ({context}): the indentation does not fit the lines above"
    if "could not find expected ':'" in problem:
        return "expected ': ' after a key"
    if "undefined alias" in problem:
        return "this alias names no anchor above it"
    if "unknown escape character" in problem:
        return "unknown escape in a double-quoted text: double the backslash, or use single quotes for regexes"
    return f"is no YAML: {problem}" + (f" ({context})" if context else "")
