"""For the site that mkdocs builds: a link from a page to a file outside ``docs/`` leads to the repository."""

from __future__ import annotations

import posixpath
import re
from typing import Any


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Called by mkdocs with the text of each page (https://www.mkdocs.org/dev-guide/plugins/#on_page_markdown)."""
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))

    def lead(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, match[1]))
        return match[0] if target.startswith("docs/") else f"]({config.repo_url.rstrip('/')}/blob/main/{target}"

    return re.sub(r"\]\((\.\./[^)\s#]*)", lead, markdown)
