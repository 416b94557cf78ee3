"""The rule set of some files, from disk when exactly these files were read and found without fault before.

To read the bundled packs costs a quarter of a second of CPU and several MiB. What is kept are plain values (numbers,
texts, lists), named by the bytes of every file read and of the code that read them: nothing in it is run.
"""

from __future__ import annotations

import hashlib
import marshal
import os
from collections.abc import Iterable, Mapping
from dataclasses import fields
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agent import __version__
from agent.model import Position
from agent.rules import model

if TYPE_CHECKING:
    from agent.rules.checks import CheckExpr
    from agent.schema import Fault

__all__ = ["is_cached", "load_rules_cached"]

_KINDS: Final[tuple[type, ...]] = (
    Position,
    model.Matcher,
    model.Condition,
    model.Stage,
    model.Fingerprint,
    model.Rule,
    model.LineFormat,
    model.Lifecycle,
    model.Fact,
    model.ValueTest,
    model.StatsField,
    model.StatsLine,
    model.MetricSource,
    model.MetricMap,
    model.Dialect,
    model.RuleSet,
    model.Build,
)
_FIELDS: Final = {kind: tuple(item.name for item in fields(kind)) for kind in _KINDS}
_NUMBER: Final = {kind: number for number, kind in enumerate(_KINDS)}
_OLD: Final = 4
"""Rule sets that are kept; older ones go when a new one is written."""


def load_rules_cached(
    paths: Iterable[str | Path] = (),
    bundled: bool = True,
    *,
    check_expr: CheckExpr | None = None,
    disabled: Iterable[str] = (),
    cache_dir: Path | None = None,
) -> tuple[model.RuleSet, list[Fault]]:
    """As :func:`agent.rules.load.load_rules`. ``check_expr`` must be the same at each call."""
    listed, off = [str(path) for path in paths], sorted(disabled)
    place = _place(cache_dir, listed, bundled, off)
    if place is not None:
        found = _read(place)
        if found is not None:
            return found, []
    from agent.rules.load import load_rules

    ruleset, faults = load_rules(listed, bundled, check_expr=check_expr, disabled=off)
    if place is not None and not faults:
        _write(place, ruleset)
    return ruleset, faults


def is_cached(paths: Iterable[str | Path], bundled: bool, *, disabled: Iterable[str], cache_dir: Path | None) -> bool:
    """Whether the rule set of these files is on disk."""
    place = _place(cache_dir, [str(path) for path in paths], bundled, sorted(disabled))
    return place is not None and place.exists()


def _place(cache_dir: Path | None, paths: list[str], bundled: bool, disabled: list[str]) -> Path | None:
    """Where the rule set of these files is kept; None when they cannot all be read as plain files."""
    if cache_dir is None:
        return None
    digest = hashlib.sha256(repr((__version__, paths, bundled, disabled)).encode(errors="surrogateescape"))
    try:
        for path in (*_code(), *_inputs(paths, bundled)):
            data = Path(path).read_bytes()
            digest.update(f"\0{path}\0{len(data)}\0".encode(errors="surrogateescape"))
            digest.update(data)
    except (OSError, TypeError):
        return None
    return cache_dir / f"{digest.hexdigest()[:32]}.rules"


def _inputs(paths: list[str], bundled: bool) -> Iterable[str]:
    if bundled:
        root = str(resources.files("rules"))
        for folder in ("dialects", "packs"):
            yield from sorted(str(item) for item in Path(root, folder).iterdir() if item.suffix == ".yaml")
    if paths:
        from agent.rules.load import expand_paths

        files, faults = expand_paths(paths)
        if faults:
            raise FileNotFoundError("some path names nothing")
        yield from files


def _code() -> Iterable[str]:
    """What reads rules: another version reads them anew."""
    here = Path(__file__).parent
    for folder in (here, here.parent / "schema"):
        yield from sorted(str(item) for item in folder.iterdir() if item.suffix == ".py")


def _read(place: Path) -> model.RuleSet | None:
    try:
        data = place.read_bytes()
        if hashlib.sha256(data[32:]).digest() != data[:32]:
            return None
        found = _revive(marshal.loads(data[32:]))
    except (OSError, ValueError, EOFError, TypeError, IndexError):
        return None
    return found if isinstance(found, model.RuleSet) else None


def _write(place: Path, ruleset: model.RuleSet) -> None:
    # Without a cache the next start takes longer; that is all.
    try:
        body = marshal.dumps(_plain(ruleset))
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary = place.with_name(f"{place.name}.{os.getpid()}")
        temporary.write_bytes(hashlib.sha256(body).digest() + body)
        temporary.replace(place)
        known = sorted(place.parent.glob("*.rules"), key=lambda item: item.stat().st_mtime, reverse=True)
        for old in known[_OLD:]:
            old.unlink(missing_ok=True)
    except (OSError, ValueError):
        return


def _plain(value: Any) -> Any:
    """Tuples become lists, dataclasses tuples that begin with the number of their kind."""
    kind = type(value)
    if kind in _NUMBER:
        return (_NUMBER[kind], *(_plain(getattr(value, name)) for name in _FIELDS[kind]))
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if value is None or isinstance(value, str | int | float):
        return value
    raise ValueError(f"{kind.__name__} is no plain value")


def _revive(value: Any) -> Any:
    kind = type(value)
    if kind is tuple:
        return _KINDS[value[0]](*[_revive(item) for item in value[1:]])
    if kind is list:
        return tuple([_revive(item) for item in value])
    if kind is dict:
        return {key: _revive(item) for key, item in value.items()}
    return value
