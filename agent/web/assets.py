"""The files of the page: read once from the package, served with an ETag, nothing from anywhere else."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

__all__ = ["CONTENT_SECURITY_POLICY", "Asset", "asset", "asset_names"]

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'"
)
"""Only our own files run, nothing inline, and no text can become markup (trusted types, with no policy defined)."""

_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".yaml": "application/yaml",
}
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]*\.(?:html|css|js|svg|yaml)")


@dataclass(frozen=True, slots=True)
class Asset:
    body: bytes
    content_type: str
    etag: str


@cache
def asset(name: str) -> Asset | None:
    """The file ``name`` of the page; None when the page has no such file."""
    if name not in asset_names():
        return None
    body = (files("agent.web") / "static" / name).read_bytes()
    return Asset(body, _TYPES[name[name.rindex(".") :]], f'"{hashlib.sha256(body).hexdigest()[:20]}"')


@cache
def asset_names() -> frozenset[str]:
    folder = files("agent.web") / "static"
    return frozenset(item.name for item in folder.iterdir() if _NAME.fullmatch(item.name))
