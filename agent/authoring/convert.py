"""Rules of other tools into ours, and our conditions out: the library behind ``wedgewatch convert``."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from agent.authoring.cre import convert_cre, is_cre
from agent.authoring.prometheus import to_prometheus
from agent.rules.load import load_files
from agent.schema import Fault, errors, read_document

__all__ = ["convert", "convert_text"]


def convert(file: str, to: str | None = None, output: str | None = None, *, notes: TextIO | None = None) -> int:
    """Converts ``file`` and writes the result to ``output`` (default: standard output).

    ``to`` is ``wedgewatch`` (from CRE) or ``prometheus`` (from ours); by default what fits the file. What could not be
    carried over is said on ``notes`` (default: standard error). 0 something was carried over, 1 nothing was, 2 the
    file cannot be used.
    """
    said = notes if notes is not None else sys.stderr
    try:
        text, faults, carried = convert_text(file, to)
    except ValueError as error:
        print(error, file=said)
        return 2
    for fault in faults:
        print(fault, file=said)
    if errors(faults):
        return 2
    if not carried:
        print(f"{file}: nothing could be carried over", file=said)
        return 1
    if output is None:
        print(text, end="")
        return 0
    try:
        with open(output, "w", encoding="utf-8") as handle:
            handle.write(text)
    except OSError as error:
        print(f"{output}: cannot be written: {error.strerror or error}", file=said)
        return 2
    return 0


def convert_text(file: str, to: str | None = None) -> tuple[str, list[Fault], int]:
    """The converted text, what there is to say about it, and how many rules were carried over.

    Raises ValueError with a sentence when the file is not of the kind that ``to`` wants.
    """
    document = read_document(file)
    if errors(document.faults):
        return "", document.faults, 0
    foreign = is_cre(document)
    if to == "prometheus" and foreign:
        raise ValueError(f"{file}: holds CRE rules; convert them into ours first, then those to Prometheus")
    if to == "wedgewatch" and not foreign:
        raise ValueError(f"{file}: holds no CRE rules (a list 'rules' with 'cre' and 'rule' in each)")
    return _from_cre(file) if foreign else _to_prometheus(file)


def _from_cre(file: str) -> tuple[str, list[Fault], int]:
    result = convert_cre(read_document(file))
    head = [
        f"# Converted from {os.path.basename(file)}: {result.seen} CRE rules read, {len(result.rules)} rules written."
    ]
    head += [f"# - {' '.join(note.message.split())}" for note in result.notes]
    return "\n".join(head) + "\n" + _yaml({"rules": result.rules}), result.notes, len(result.rules)


def _to_prometheus(file: str) -> tuple[str, list[Fault], int]:
    loaded = load_files([file])
    mine = {os.path.abspath(file)}
    rules = [rule for rule in loaded.ruleset.rules if os.path.abspath(rule.position.file) in mine]
    result = to_prometheus(rules, loaded.ruleset)
    places = {rule.alert: rule.position for rule in rules}
    notes = [Fault(places[note.split(":", 1)[0]], note, "warning") for note in result.notes]
    carried = sum(len(group["rules"]) for group in result.groups if not group["name"].startswith("wedgewatch-signals"))
    head = f"# Made from {os.path.basename(file)} by wedgewatch convert: signals first, then the alerts over them.\n"
    return head + _yaml({"groups": result.groups}), [*loaded.faults, *notes], carried


def _yaml(content: Mapping[str, Any] | Sequence[Any]) -> str:
    """Readable YAML: texts with line breaks as blocks, keys in the order given, no aliases."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Dumper.add_representer(str, text)
    return yaml.dump(content, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=110)
