"""Progress for whoever waits: one line that renews itself on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

__all__ = ["bar", "teller"]


def bar(share: float, width: int = 24) -> str:
    full = round(max(0.0, min(1.0, share)) * width)
    return f"[{'#' * full}{'.' * (width - full)}]"


def teller(seconds: float = 5.0) -> Callable[[str], None]:
    """A printer to stderr: renews one line on a terminal, else prints at most every ``seconds``."""
    last = [float("-inf")]

    def tell(line: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
        elif time.monotonic() - last[0] >= seconds:
            last[0] = time.monotonic()
            print(line, file=sys.stderr, flush=True)

    return tell
