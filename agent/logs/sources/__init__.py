"""Where log bytes come from: finished files, standard input, journald, the Kubernetes API.

Files that grow are followed by :mod:`agent.logs.follow`.
"""

from __future__ import annotations

from agent.logs.sources.finished import FinishedLog, open_finished

__all__ = ["FinishedLog", "open_finished"]
