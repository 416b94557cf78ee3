"""Rule and dialect files -> one checked :class:`~agent.rules.model.RuleSet`, with every fault at its place.

Bundled files are found in the package ``rules`` (also inside a wheel or a zip). A user's dialect replaces the bundled
one of the same engine; a user's rules are added to the bundled ones.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Final

from agent.model import Position
from agent.rules.checks import CheckExpr, LoadedRule, check_rules
from agent.rules.compile import compile_rules
from agent.rules.compile_dialect import compile_dialect
from agent.rules.dialect_spec import DialectFile
from agent.rules.digest import canonical, digest
from agent.rules.model import Dialect, RuleSet
from agent.rules.spec import RuleFile
from agent.schema import Bound, Document, Fault, bind, kind_of, parse_document, read_document, sort_faults

__all__ = ["LoadedFiles", "bundled_files", "expand_paths", "load_files", "load_rules"]

_SUFFIXES: Final = (".yaml", ".yml")


@dataclass(slots=True)
class LoadedFiles:
    """What a set of files holds: the rule set, the bound files behind it (``own_files``: those that are not bundled;
    ``alerts``: names of all alerts, those that are turned off too), all faults."""

    ruleset: RuleSet = field(default_factory=RuleSet)
    rule_files: list[Bound[RuleFile]] = field(default_factory=list)
    own_files: list[Bound[RuleFile]] = field(default_factory=list)
    alerts: frozenset[str] = frozenset()
    faults: list[Fault] = field(default_factory=list)


def load_rules(
    paths: Iterable[str | Path] = (),
    bundled: bool = True,
    *,
    check_expr: CheckExpr | None = None,
    disabled: Iterable[str] = (),
) -> tuple[RuleSet, list[Fault]]:
    """The rules and dialects of some files, folders and globs, and of the bundled ones.

    ``check_expr`` gives the faults of a ``when`` expression as sentences (``agent.detect.promql`` has one).
    ``disabled``: names of alerts to leave out. With an error among the faults the set must not be used.
    """
    loaded = load_files(paths, bundled=bundled, check_expr=check_expr, disabled=disabled)
    return loaded.ruleset, loaded.faults


def load_files(
    paths: Iterable[str | Path] = (),
    *,
    bundled: bool = True,
    check_expr: CheckExpr | None = None,
    disabled: Iterable[str] = (),
    tests: bool = False,
    verify_bundled: bool = False,
) -> LoadedFiles:
    """As :func:`load_rules`, with the files themselves.

    ``tests``: whether the files' unit tests are read too. ``verify_bundled``: whether the bundled files are looked at
    as closely as a user's, which costs time at each start and finds nothing once our own tests have passed.
    """
    result = LoadedFiles()
    skip = () if tests else ("tests",)
    rules: list[LoadedRule] = []
    own: list[LoadedRule] = []
    dialects: dict[str, Dialect] = {}
    bounds: list[Bound[RuleFile] | Bound[DialectFile]] = []
    user_dialects: dict[str, Dialect] = {}

    def take(document: Document, *, verify: bool, target: dict[str, Dialect]) -> None:
        if is_dialect(document):
            bound = bind(DialectFile, document)
            bounds.append(bound)
            dialect = compile_dialect(bound, verify=verify)
            if dialect is None:
                return
            if dialect.engine in target:
                first = target[dialect.engine].position
                bound.fault(dialect.position, f"dialect '{dialect.engine}' is defined twice, first at {first}")
            else:
                target[dialect.engine] = dialect
            return
        rule_bound = bind(RuleFile, document, skip=skip)
        bounds.append(rule_bound)
        result.rule_files.append(rule_bound)
        made = [LoadedRule(rule, spec, rule_bound) for rule, spec in compile_rules(rule_bound, verify=verify)]
        rules.extend(made)
        if verify:
            own.extend(made)
        if target is user_dialects:
            result.own_files.append(rule_bound)

    if bundled:
        for document in bundled_files():
            take(document, verify=verify_bundled, target=dialects)
    files, missing = expand_paths(paths)
    result.faults.extend(missing)
    for path in files:
        take(read_document(path), verify=True, target=user_dialects)
    dialects.update(user_dialects)

    rules = _without_copies(rules, own)
    check_rules(own, dialects, check_expr, known=[item.rule.alert for item in rules])
    result.alerts = frozenset(item.rule.alert for item in rules)
    off = frozenset(disabled)
    kept = tuple(item.rule for item in rules if item.rule.alert not in off)
    ordered = dict(sorted(dialects.items()))
    result.ruleset = RuleSet(kept, ordered, digest([*kept, *ordered.values()]))
    for bound in bounds:
        result.faults.extend(bound.faults)
    result.faults = sort_faults(result.faults)
    return result


def _without_copies(rules: list[LoadedRule], own: list[LoadedRule]) -> list[LoadedRule]:
    """Leaves out bundled rules that a user's file repeats word for word, as when the bundled files themselves are named
    (``wedgewatch test rules/``) or a pack was copied to be changed."""
    if len(own) == len(rules):
        return rules
    mine = {id(item) for item in own}
    repeated = {canonical(item.rule) for item in own}
    return [item for item in rules if id(item) in mine or canonical(item.rule) not in repeated]


def is_dialect(document: Document) -> bool:
    """Whether a file is about an engine (``dialect: vllm``) rather than about rules."""
    root = document.root
    if root is None or kind_of(root) != "mapping":
        return False
    return any(getattr(key, "value", "") == "dialect" for key, _ in root.value)


def expand_paths(paths: Iterable[str | Path]) -> tuple[list[str], list[Fault]]:
    """Files of some paths, folders (all YAML files below) and globs, each once and in order.

    A path that names nothing is a fault; a glob or a folder that is empty is none.
    """
    found: dict[str, None] = {}
    faults: list[Fault] = []
    for item in paths:
        text = str(item)
        if os.path.isdir(text):
            for folder, names, files in os.walk(text):
                # A mounted ConfigMap keeps its files in a hidden folder, and links to them.
                names[:] = sorted(name for name in names if not name.startswith("."))
                for name in sorted(files):
                    if name.endswith(_SUFFIXES):
                        found.setdefault(os.path.join(folder, name))
        elif glob.has_magic(text) and not os.path.exists(text):
            for name in sorted(glob.glob(text, recursive=True)):
                if os.path.isfile(name):
                    found.setdefault(name)
        elif os.path.exists(text):
            found.setdefault(text)
        else:
            faults.append(Fault(Position(text, 1, 1), "there is no such file"))
    return list(found), faults


def bundled_files(package: str = "rules") -> Iterator[Document]:
    """The bundled dialects and packs, parsed; their file names read ``rules/packs/vllm.yaml``."""
    root = resources.files(package)
    for folder in ("dialects", "packs"):
        place = root.joinpath(folder)
        if not place.is_dir():
            continue
        for entry in sorted(place.iterdir(), key=lambda item: item.name):
            if entry.name.endswith(_SUFFIXES):
                yield parse_document(entry.read_text(encoding="utf-8"), f"{package}/{folder}/{entry.name}")
