"""From YAML nodes to frozen dataclasses, by the type hints of their fields; all faults, each at its place.

Hints that are understood: ``str int float bool Duration Secret``, ``tuple[X, ...]``, ``Mapping[str, X]``,
``X | None``, ``Literal[...]``, other dataclasses, ``Any``, and unions of those that differ in shape (a text, a list, a
mapping). Field metadata:

``name``      the key in YAML where it differs (``for`` for ``for_seconds``)
``doc``       one sentence for editors; goes into the JSON Schema
``choices``   the texts that are accepted (in a list or mapping: for each value), for texts that are no ``Literal``
``minimum``, ``maximum``  bounds of a number or duration
``nonempty``  a text or list that must hold something
``required``  must be given although the dataclass has a default
``stand_in``  what takes the place of a required value that is missing or wrong, so that the rest of the object is still
              looked at; the object is then among :attr:`Bound.unsound`

A class may define ``check(self)``, which yields ``(field path, message)`` or ``(field path, message, "warning")``;
``HINTS: ClassVar[Mapping[str, str]]`` (a word other tools use -> what to write here); a field ``position: Position``,
which receives where the object stands; and the classmethod ``extra_fields() -> Mapping[key, hint]`` with an attribute
``EXTRA: ClassVar[str]``, the name of the ``Mapping`` field that gathers those keys.

A field of type ``Secret`` is written as ``key: text`` or ``key_file: path``, exactly one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar, get_args, get_origin, get_type_hints

from agent.model import Position, Secret
from agent.schema.document import Document, kind_of, plain_value
from agent.schema.faults import Fault, nearest
from agent.schema.scalars import Scalar, convert_scalar, expected, members_of, shortened

if TYPE_CHECKING:
    from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

__all__ = ["Bound", "FieldInfo", "bind", "field_infos", "plain_tree"]

T = TypeVar("T")
Path = tuple[str | int, ...]

_INVALID: Final = object()  # what a node becomes that has a fault: nothing more is said about it
_ENV: Final = re.compile(
    r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}|\$\{(?P<bad>[^}]*)\}?"
)


@dataclass(frozen=True, slots=True)
class FieldInfo:
    """One key of a mapping: the dataclass field, its resolved hint, its YAML key."""

    key: str
    attribute: str
    hint: Any
    required: bool
    metadata: Mapping[str, Any]
    default: Any = MISSING

    @property
    def secret(self) -> bool:
        return Secret in members_of(self.hint)


class Bound(Generic[T]):
    """What became of a document: the value (None when it cannot be used), the faults, and where each thing stands."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.value: T | None = None
        self.faults: list[Fault] = list(document.faults)
        self._nodes: dict[Path, Node] = {}
        self._keys: dict[Path, Node] = {}
        self._paths: dict[int, Path] = {}
        self._keep: list[object] = []  # keeps ids in _paths unique
        self._unsound: set[int] = set()

    def position(self, owner: object, *path: str | int) -> Position:
        """Where a value stands: ``position(rule, "fingerprint", "stages", 0)``; ``owner`` is a bound dataclass.

        Falls back to the nearest thing around it that is written in the file.
        """
        return self.document.position(self._node(owner, path))

    def key_position(self, owner: object, *path: str | int) -> Position:
        """Where the key of a value stands."""
        full = self._paths.get(id(owner), ()) + path
        node = self._keys.get(full)
        return self.document.position(node) if node is not None else self.position(owner, *path)

    def inside(self, owner: object, *path: str | int, offset: int) -> Position:
        """Where character ``offset`` of a text stands."""
        node = self._node(owner, path)
        return self.document.inside(node, offset) if node is not None else self.document.position(None)

    def written(self, owner: object, *path: str | int) -> bool:
        """Whether the file itself gives this value."""
        return self._paths.get(id(owner), ()) + path in self._nodes

    def unsound(self, owner: object) -> bool:
        """Whether a required value of this object is missing or wrong, and something stands in for it."""
        return id(owner) in self._unsound

    def fault(self, position: Position, message: str, severity: Literal["error", "warning"] = "error") -> None:
        self.faults.append(Fault(position, message, severity))

    def rebase(self, value: T) -> None:
        """Puts a changed copy of the whole value in its place; what is known of places goes on to hold for it."""
        self._paths[id(value)] = ()
        self._keep.append(value)
        self.value = value

    def _node(self, owner: object, path: Path) -> Node | None:
        full = self._paths.get(id(owner), ()) + path
        while full and full not in self._nodes:
            full = full[:-1]
        return self._nodes.get(full, self.document.root)


def bind(
    cls: type[T],
    document: Document,
    *,
    env: Mapping[str, str] | None = None,
    base: str = "",
    skip: Iterable[str] = (),
) -> Bound[T]:
    """Makes an instance of ``cls`` of a document.

    ``env``: the environment for ``${VAR}``; None leaves such texts as they are. ``base``: folder that relative
    ``*_file`` paths of secrets start from. ``skip``: keys of the outermost mapping that are known but not read.
    """
    bound: Bound[T] = Bound(document)
    if document.root is None:
        if not document.faults:
            bound.fault(document.position(None), "the file is empty")
        return bound
    value = _Binder(bound, env, base, frozenset(skip)).value(cls, document.root, (), {})
    if value is not _INVALID:
        bound.value = value
    return bound


def plain_tree(document: Document) -> Any:
    """The whole document as plain mappings, tuples and scalars, for files of another program's shape."""
    if document.root is None:
        return None
    return _Binder(Bound(document), None, "", frozenset()).anything(document.root, ())


@cache
def field_infos(cls: type) -> tuple[FieldInfo, ...]:
    """The keys that a mapping for ``cls`` may have."""
    hints = get_type_hints(cls)
    infos = []
    for item in fields(cls):
        if hints[item.name] is Position or not item.init or item.name == getattr(cls, "EXTRA", None):
            continue
        key = item.metadata.get("name", item.name)
        infos.append(FieldInfo(key, item.name, hints[item.name], _required(item), item.metadata, _default(item)))
    return tuple(infos)


def _required(item: Field[Any]) -> bool:
    if item.metadata.get("required"):  # a field that follows others with defaults cannot go without one itself
        return True
    return item.default is MISSING and item.default_factory is MISSING


def _default(item: Field[Any]) -> Any:
    return item.default_factory() if item.default_factory is not MISSING else item.default


@dataclass(frozen=True, slots=True)
class _Shape:
    """What a hint accepts, taken apart once: a class or value hint of a mapping, the item hint of a list."""

    members: tuple[Any, ...]
    object: type | None
    mapping: Any
    sequence: Any
    anything: bool
    secret: bool


@cache
def _shape(hint: Any) -> _Shape:
    members = members_of(hint)
    classes = [member for member in members if isinstance(member, type) and is_dataclass(member)]
    mappings = [get_args(member)[1] for member in members if get_origin(member) is Mapping]
    lists = [get_args(member)[0] for member in members if get_origin(member) is tuple]
    return _Shape(
        members,
        classes[0] if classes else None,
        mappings[0] if mappings else None,
        lists[0] if lists else None,
        Any in members,
        Secret in members,
    )


class _Binder:
    def __init__(self, bound: Bound[Any], env: Mapping[str, str] | None, base: str, skip: frozenset[str]) -> None:
        self.bound = bound
        self.document = bound.document
        self.env = env
        self.base = base
        self.skip = skip
        self.wrong: set[Path] = set()  # values with a fault
        self.damaged: set[Path] = set()  # lists and mappings that lost an element to a fault

    # -- any node ---------------------------------------------------------------------------------------------

    def value(self, hint: Any, node: Node, path: Path, metadata: Mapping[str, Any]) -> Any:
        made = self.made(hint, node, path, metadata)
        if made is _INVALID:
            self.wrong.add(path)
        return made

    def made(self, hint: Any, node: Node, path: Path, metadata: Mapping[str, Any]) -> Any:
        self.bound._nodes[path] = node
        shape = _shape(hint)
        if shape.anything:
            return self.anything(node, path)
        kind = kind_of(node)
        if kind == "scalar":
            return self.scalar(shape, node, path, metadata)  # type: ignore[arg-type]  # kind_of has looked
        if kind == "mapping" and shape.object is not None:
            return self.object(shape.object, node, path)  # type: ignore[arg-type]
        if kind == "mapping" and shape.mapping is not None:
            return self.mapping(shape.mapping, node, path, metadata)  # type: ignore[arg-type]
        if kind == "sequence" and shape.sequence is not None:
            return self.sequence(shape.sequence, node, path, metadata)  # type: ignore[arg-type]
        return self.fault(node, path, f"expected {expected(shape.members)}, got {_described(node)}")

    def fault(self, node: Node, path: Path, message: str) -> Any:
        self.bound.fault(self.document.position(node), _at(path) + message)
        return _INVALID

    def anything(self, node: Node, path: Path) -> Any:
        kind = kind_of(node)
        if kind == "mapping":
            return {
                key.value: self.anything(value, (*path, key.value))
                for key, value in self.document.items(node)  # type: ignore[arg-type]
            }
        if kind == "sequence":
            return tuple(self.anything(item, (*path, index)) for index, item in enumerate(node.value))
        return node.value if node.style else plain_value(node.value)  # type: ignore[attr-defined]

    # -- lists and mappings -----------------------------------------------------------------------------------

    def sequence(self, hint: Any, node: SequenceNode, path: Path, metadata: Mapping[str, Any]) -> Any:
        if metadata.get("nonempty") and not node.value:
            return self.fault(node, path, "must not be empty")
        items = [self.value(hint, item, (*path, index), metadata) for index, item in enumerate(node.value)]
        if any(item is _INVALID for item in items):
            self.damaged.add(path)
        return tuple(item for item in items if item is not _INVALID)

    def mapping(self, hint: Any, node: MappingNode, path: Path, metadata: Mapping[str, Any]) -> Any:
        result = {}
        for key, item in self.document.items(node):
            self.bound._keys[(*path, key.value)] = key
            value = self.value(hint, item, (*path, key.value), metadata)
            if value is not _INVALID:
                result[key.value] = value
            else:
                self.damaged.add(path)
        return result

    def object(self, cls: type, node: MappingNode, path: Path) -> Any:
        infos = {info.key: info for info in field_infos(cls)}
        extra = dict(cls.extra_fields()) if hasattr(cls, "extra_fields") else {}
        secret_files = {f"{key}_file": info for key, info in infos.items() if info.secret}
        values: dict[str, Any] = {}
        gathered: dict[str, Any] = {}
        sound = True
        given: dict[str, Node] = {}
        misspelt: set[str] = set()
        for key, item in self.document.items(node):
            name = key.value
            where = (*path, name)
            self.bound._keys[where] = key
            given[name] = key
            if name in infos:
                info = infos[name]
                value = self.value(info.hint, item, where, info.metadata)
            elif name in secret_files:
                info = secret_files[name]
                value = self.secret_file(item, where)
                if info.key in given and f"{info.key}_file" in given:
                    self.fault(key, path, f"give either '{info.key}' or '{name}', not both")
            elif name in extra:
                value = self.value(extra[name], item, where, {})
                if value is not _INVALID:
                    gathered[name] = value
                sound = sound and value is not _INVALID and where not in self.damaged
                continue
            else:
                if not (name.startswith("x-") or (not path and name in self.skip)):
                    meant = self.unknown(cls, key, path, [*infos, *secret_files, *extra])
                    sound = sound and not meant
                    misspelt.add(meant.removesuffix("_file") if meant in secret_files else meant)
                    if meant in infos:
                        read = self.as_meant(infos[meant], item, (*path, meant))
                        self.wrong.add((*path, meant))
                        if read is not _INVALID:
                            values.setdefault(infos[meant].attribute, read)
                continue
            twin = f"{info.key}_file"
            if name == info.key and twin in secret_files and twin in given:
                self.fault(key, path, f"give either '{info.key}' or '{twin}', not both")
            if value is _INVALID:
                sound = False
                if info.required:
                    values[info.attribute] = _INVALID
            else:
                values[info.attribute] = value
                sound = sound and where not in self.damaged
        for info in infos.values():
            if info.required and info.attribute not in values:
                values[info.attribute] = _INVALID
                if info.key in misspelt:
                    continue
                wanted = f"'{info.key}' or '{info.key}_file'" if info.secret else f"'{info.key}'"
                self.fault(node, path, f"{wanted} is missing")
        lost = [info for info in infos.values() if values.get(info.attribute) is _INVALID]
        if not all("stand_in" in info.metadata for info in lost):
            return _INVALID
        for info in lost:
            values[info.attribute] = info.metadata["stand_in"]
        made = self.finish(cls, node, path, values, gathered, sound and not lost)
        if lost and made is not _INVALID:
            self.bound._unsound.add(id(made))
            self.damaged.add(path)
        return made

    def as_meant(self, info: FieldInfo, node: Node, path: Path) -> Any:
        """The value of a misspelt key, read as that of the key that was probably meant: faults inside it are found at
        once. What does not even have its shape was meant otherwise, and nothing is said of it."""
        if kind_of(node) == "scalar":
            before = len(self.bound.faults)
            value = self.value(info.hint, node, path, info.metadata)
            del self.bound.faults[before:]
            return value
        return self.value(info.hint, node, path, info.metadata) if _fits(info.hint, node) else _INVALID

    def finish(
        self, cls: type, node: Node, path: Path, values: dict[str, Any], gathered: dict[str, Any], sound: bool
    ) -> Any:
        names = {item.name for item in fields(cls)}
        if "position" in names and get_type_hints(cls).get("position") is Position:
            values["position"] = self.document.position(node)
        if gathered or hasattr(cls, "EXTRA"):
            values[cls.EXTRA] = gathered  # type: ignore[attr-defined]  # asked for by extra_fields
        try:
            made = cls(**values)
        except ValueError as error:  # a class's own __post_init__ may refuse
            return self.fault(node, path, str(error))
        self.bound._paths[id(made)] = path
        self.bound._keep.append(made)
        if hasattr(made, "check"):
            for found in made.check():
                where, message, *severity = found
                parts = tuple(int(part) if part.isdigit() else part for part in where.split(".") if part)
                if not sound and not (parts and self.stands(path + parts)):
                    continue  # what another fault left out may be why
                position = self.bound.position(made, *parts)
                self.bound.fault(position, _at(path + parts) + message, severity[0] if severity else "error")
        return made

    def stands(self, path: Path) -> bool:
        """Whether this value is in the file, and whole."""
        inner = len(path)
        whole = not any(other[:inner] == path or path[: len(other)] == other for other in self.wrong)
        return path in self.bound._nodes and whole

    def unknown(self, cls: type, key: ScalarNode, path: Path, known: list[str]) -> str:
        """Says that a key is unknown; gives the one that was probably meant, or ``?`` for one of another tool."""
        hints: Mapping[str, str] = getattr(cls, "HINTS", {})
        if key.value in hints:
            self.fault(key, path, f"unknown key '{shortened(key.value)}', {hints[key.value]}")
            return "?"
        near = nearest(key.value, known)
        rest = f"did you mean '{near}'?" if near is not None else f"known here: {', '.join(sorted(known))}"
        self.fault(key, path, f"unknown key '{shortened(key.value)}', {rest}")
        return near or ""

    # -- scalars ----------------------------------------------------------------------------------------------

    def secret_file(self, node: Node, path: Path) -> Any:
        self.bound._nodes[path] = node
        if kind_of(node) != "scalar":
            return self.fault(node, path, f"expected the path of a file, got {_described(node)}")
        text = self.expand(node, path)  # type: ignore[arg-type]
        if text is None:
            return _INVALID
        if not text:
            return self.fault(node, path, "expected the path of a file, got nothing")
        return Secret(path=os.path.join(self.base, text))

    def expand(self, node: ScalarNode, path: Path) -> str | None:
        """The scalar's text with ``${VAR}`` filled in; None, with a fault said, when that cannot be done."""
        text: str = node.value
        env = self.env
        if env is None or "${" not in text:
            return text
        sound = True

        def replace(found: re.Match[str]) -> str:
            nonlocal sound
            if found.group() == "$${":
                return "${"
            if found["bad"] is not None:
                wrong = shortened(found.group())
                problem = f"'{wrong}' is no variable, write ${{NAME}}, ${{NAME:-default}}, or $${{ for the text"
            elif found["name"] in env:
                return env[found["name"]]
            elif found["default"] is not None:
                return found["default"]
            else:
                name = found["name"]
                problem = f"environment variable {name} is not set; set it, or write ${{{name}:-default}}"
            sound = False
            self.bound.fault(self.document.inside(node, found.start()), _at(path) + problem)
            return ""

        text = _ENV.sub(replace, text)
        return text if sound else None

    def scalar(self, shape: _Shape, node: ScalarNode, path: Path, metadata: Mapping[str, Any]) -> Any:
        text = self.expand(node, path)
        if text is None:
            return _INVALID
        if shape.secret:
            if text:
                return Secret(text)
            return self.fault(node, path, f"expected a text, or '{path[-1]}_file' with the path of a file")
        given = Scalar(text=text, source=node.value, plain=not node.style)
        noun = metadata.get("noun") or str(path[-1] if path else "value")
        try:
            return convert_scalar(given, shape.members, metadata, noun=noun)
        except ValueError as error:
            return self.fault(node, path, str(error))


def _fits(hint: Any, node: Node) -> bool:
    """Whether a value of this shape may be what the hint asks for; of scalars nothing can be told by shape."""
    shape = _shape(hint)
    kind = kind_of(node)
    if kind == "mapping":
        return shape.object is not None or shape.mapping is not None
    return kind == "sequence" and shape.sequence is not None


def _described(node: Node) -> str:
    kind = kind_of(node)
    if kind != "scalar":
        return {"mapping": "a mapping", "sequence": "a list"}[kind]
    return f"'{shortened(node.value)}'" if node.value else "nothing"


def _at(path: Path) -> str:
    """``rules[0].fingerprint: `` or nothing at the top."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return f"{text}: " if text else ""
