"""Where compiled rules are kept between runs. A cache that cannot be written costs the next start some time."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache_folder"]


def cache_folder(state: Path | None = None) -> Path | None:
    """Inside the state folder of a daemon that has one (so that a read-only root works), else the user's own cache;
    None when there is no place to write."""
    if state is not None:
        folder = state / "cache"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        folder = Path(base) / "wedgewatch"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None
