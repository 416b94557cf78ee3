"""What was once found out about patterns, kept on disk beside the compiled automata.

To look through a pattern's parse tree costs half a millisecond of CPU, and a start looks through hundreds. The file is
named by the code that looked, so another version finds nothing in it, and bears a checksum; it holds plain values only.
"""

from __future__ import annotations

import hashlib
import marshal
import sys
from pathlib import Path
from typing import Any

from agent.logs import patterns
from agent.logs.scan import read_cache, write_cache

__all__ = ["keep", "preload"]


def preload(cache_dir: Path | None) -> None:
    """Make what is on disk known, so that :func:`agent.logs.patterns.analyse` need not look."""
    if cache_dir is None or patterns.known_analyses:
        return
    stored = read_cache(cache_dir / _name())
    if stored is None:
        return
    try:
        analyses, firsts = marshal.loads(stored)
        found = {key: patterns.Analysis(*values) for key, values in analyses.items()}
    except (ValueError, EOFError, TypeError, AttributeError):
        return
    patterns.known_analyses.update(found)
    patterns.known_firsts.update(firsts)


def keep(cache_dir: Path | None) -> None:
    """Write down what is known, when something was found out since it was read."""
    if cache_dir is None or not patterns.news:
        return
    analyses: dict[Any, Any] = {
        key: (item.prefilter, item.literals, item.fold, item.safe_length, item.plain, item.groups)
        for key, item in patterns.known_analyses.items()
    }
    write_cache(cache_dir / _name(), marshal.dumps((analyses, dict(patterns.known_firsts))))
    patterns.news.clear()


def _name() -> str:
    try:
        code = Path(patterns.__file__).read_bytes()
    except OSError:  # inside a zip
        code = b""
    digest = hashlib.sha256(sys.version.encode() + code)
    return f"{digest.hexdigest()[:32]}.patterns"
