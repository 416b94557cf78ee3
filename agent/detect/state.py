"""Parts of the tracker that can be written down and taken up again.

A part names its plain values (numbers, texts, None, lists and maps of them); what is written is JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

__all__ = ["Remembered"]


class Remembered:
    """Something whose plain values survive a restart of the daemon."""

    __slots__ = ()
    _PLAIN: ClassVar[tuple[str, ...]] = ()
    _TIMES: ClassVar[tuple[str, ...]] = ()
    """Those of the plain values that are event times."""

    def snapshot(self) -> dict[str, Any]:
        """The plain values by name."""
        return {name: getattr(self, name) for name in self._PLAIN}

    def restore(self, data: Mapping[str, Any]) -> None:
        """Inverse of :meth:`snapshot`; unknown names are left out, missing ones keep their value."""
        for name in self._PLAIN:
            if name in data:
                setattr(self, name, data[name])

    def shift(self, seconds: float) -> None:
        """The clock of the signals was set by ``seconds``: what happened before is told in the new time."""
        for name in self._TIMES:
            value = getattr(self, name)
            if value is not None:
                setattr(self, name, value + seconds)
