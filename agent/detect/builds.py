"""Which version with which flags a server runs, and when that changed.

What tells is text that only has to be compared: a start line with the version, the list of arguments, the labels of an
info metric. Several processes of one start may say different things under one name; what they say within two minutes of
each other is one deployment.
"""

from __future__ import annotations

import hashlib
from typing import Any, ClassVar, Final

from agent.detect.state import Remembered

__all__ = ["Builds"]

_ONE_START: Final = 120.0
"""Seconds in which the processes of one start have all said what they are."""
_MOST: Final = 16
"""Texts that are remembered of one start."""


class Builds(Remembered):
    """What was said of version and flags at the present start. Texts are kept as digests: they may hold secrets."""

    __slots__ = ("_known",)
    _PLAIN: ClassVar = __slots__

    def __init__(self) -> None:
        self._known: dict[str, list[Any]] = {}
        """Name -> when the present texts were first said, and their digests."""

    def see(self, name: str, text: str, timestamp: float) -> bool:
        """``text`` was said at ``timestamp``. Is it another deployment than before?"""
        digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]
        since, said = self._known.get(name, (timestamp, []))
        if digest in said:
            return False
        if said and abs(timestamp - since) > _ONE_START:
            self._known[name] = [timestamp, [digest]]
            return True
        self._known[name] = [since, [*said, digest][-_MOST:]]
        return False

    def restore(self, data: Any) -> None:
        """Inverse of :meth:`snapshot`; what is of another shape is left out."""
        known = data.get("_known", {}) if isinstance(data, dict) else {}
        self._known = {name: [float(since), list(said)] for name, (since, said) in known.items()}
