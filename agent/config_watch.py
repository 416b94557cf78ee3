"""Has a file of the configuration changed? Looked at by name, size, time and content, also through symbolic links.

A ConfigMap is swapped by a link to a folder (``..data``), an editor renames a new file into place, a deploy tool
writes in place: all three show in what the path leads to. A change counts once it has settled: two looks in a row see
the same, so that a file is not read half written.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable

__all__ = ["ConfigWatch"]

_Stamp = tuple[str, int, int, int] | None


class ConfigWatch:
    """``files`` gives the paths that matter now. Looks when asked to; keeps no clock. Belongs to one thread."""

    def __init__(self, files: Callable[[], Iterable[str]]) -> None:
        self._files = files
        self._stamps = self._look()
        self._digest = self._read()
        self._moving: dict[str, _Stamp] | None = None

    def changed(self) -> bool:
        """Whether something changed since the last time that this was true (or :meth:`seen`), and has settled."""
        found = self._look()
        if found == self._stamps:
            self._moving = None
            return False
        if found != self._moving:
            self._moving = found
            return False
        self._stamps, self._moving = found, None
        digest = self._read()
        if digest == self._digest:
            return False
        self._digest = digest
        return True

    def seen(self) -> None:
        """What is there now is known."""
        self._stamps, self._digest, self._moving = self._look(), self._read(), None

    def _look(self) -> dict[str, _Stamp]:
        found: dict[str, _Stamp] = {}
        for path in self._files():
            try:
                status = os.stat(path)
                found[path] = (os.path.realpath(path), status.st_ino, status.st_size, status.st_mtime_ns)
            except OSError:
                found[path] = None
        return found

    def _read(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for path in self._files():
            digest.update(path.encode(errors="surrogateescape"))
            try:
                with open(path, "rb") as handle:
                    digest.update(handle.read(64 << 20))
            except OSError as error:
                digest.update(f"\0{error.errno}".encode())
        return digest.hexdigest()
