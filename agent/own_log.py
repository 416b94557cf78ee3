"""wedgewatch's own log, on standard error; never fed to our own rules."""

from __future__ import annotations

import json
import logging
import sys
from typing import Final, Literal

__all__ = ["set_up"]

_SAFE: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:%+@,")


def set_up(level: str, form: Literal["logfmt", "json"] = "logfmt") -> None:
    """Begin to log from ``level`` on, one line a message, as ``key=value`` or as JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Logfmt())
    logging.root.handlers[:] = [handler]
    logging.root.setLevel(level.upper())


class _Formatter(logging.Formatter):
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__()
        from time import gmtime

        self.converter = gmtime

    def fields(self, record: logging.LogRecord) -> dict[str, str]:
        out = {
            "ts": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        if record.exc_info:
            out["error"] = self.formatException(record.exc_info)
        return out


class _Json(_Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(self.fields(record), ensure_ascii=False)


class _Logfmt(_Formatter):
    """https://pkg.go.dev/github.com/kr/logfmt: what holds more than plain characters is quoted."""

    def format(self, record: logging.LogRecord) -> str:
        return " ".join(f"{key}={_quoted(value)}" for key, value in self.fields(record).items())


def _quoted(text: str) -> str:
    return text if text and _SAFE.issuperset(text) else json.dumps(text, ensure_ascii=False)
