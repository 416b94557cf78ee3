"""Small dialects and shortcuts for the tests of the log engine; the real dialects are data, tested as such."""

from __future__ import annotations

import atexit
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

from agent.logs.engine import LogEngine, LogStream, Matched
from agent.logs.timestamps import YearReference
from agent.model import parse_rfc3339
from agent.rules.model import Condition, Dialect, LineFormat, Matcher

_CACHE = Path(mkdtemp(prefix="wedgewatch-tests-"))  # compiling a set of patterns takes longer than most tests
atexit.register(rmtree, _CACHE, ignore_errors=True)
NOVEMBER = parse_rfc3339("2026-11-20T12:00:00Z")

VLLM = Dialect(
    engine="vllm",
    detect_lines=(Condition(any=(Matcher("regex", r"^\((?:APIServer|EngineCore\w*) pid=\d+\) "),)),),
    formats=(
        LineFormat(
            "tagged",
            r"\((?P<process>[\w.]+)(?: rank=(?P<rank>\d+))? pid=(?P<pid>\d+)\) (?P<severity>[A-Z]+) "
            r"(?P<time>\d\d-\d\d \d\d:\d\d:\d\d) \[(?P<code>[^\]]*)\] ?(?P<message>.*)",
            "%m-%d %H:%M:%S",
        ),
        LineFormat("uvicorn", r"(?:\((?P<process>\w+) pid=(?P<pid>\d+)\) )?(?P<severity>[A-Z]+): {2,9}(?P<message>.*)"),
        LineFormat(
            "json", time="%Y-%m-%d %H:%M:%S,%f",
            json={"message": "message", "time": "asctime", "severity": "levelname", "exception": "exc_info"},
        ),
    ),
    untrusted=(Condition(any=(Matcher("contains", "Received request"),)),),
)  # fmt: skip
TRTLLM = Dialect(
    engine="tensorrt_llm",
    detect_lines=(Condition(any=(Matcher("contains", "[TRT-LLM]"),)),),
    formats=(
        LineFormat(
            "python",
            r"(?:\[(?P<time>\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d)\] )?\[TRT-LLM\] (?:\[RANK (?P<rank>\d+)\] )?"
            r"\[(?P<severity>[FEWIVD])\] ?(?P<message>.*)",
            "%m/%d/%Y-%H:%M:%S",
        ),
    ),
)
DIALECTS = {"vllm": VLLM, "tensorrt_llm": TRTLLM}


def contains(*texts: str, **options: Any) -> Condition:
    """A condition on any of some literals."""
    return Condition(any=tuple(Matcher("contains", text) for text in texts), **options)


def regex(*patterns: str, **options: Any) -> Condition:
    """A condition on any of some patterns."""
    return Condition(any=tuple(Matcher("regex", pattern) for pattern in patterns), **options)


def engine(conditions: Sequence[Condition], **options: Any) -> LogEngine:
    """An engine that knows the two dialects above and takes November 2026 for now."""
    options.setdefault("year_reference", YearReference(NOVEMBER))
    options.setdefault("cache_dir", _CACHE)
    return LogEngine(conditions, options.pop("dialects", DIALECTS), **options)


def stream(conditions: Sequence[Condition], **options: Any) -> LogStream:
    """A stream of such an engine."""
    where = {name: options.pop(name) for name in ("envelope", "first_line") if name in options}
    spoken = options.pop("engine", "auto")
    return engine(conditions, **options).stream(server="s", file="f.log", engine=spoken, **where)


def read(conditions: Sequence[Condition], text: str | bytes, **options: Any) -> list[Matched]:
    """Everything a finished log gives."""
    return read_all(stream(conditions, **options), [text.encode() if isinstance(text, str) else text])


def read_all(target: LogStream, pieces: Iterable[bytes]) -> list[Matched]:
    """Feed pieces, then end the input."""
    out = [matched for piece in pieces for matched in target.feed(piece)]
    return out + target.flush()


def utc(timestamp: float | None) -> str:
    """``2026-11-20 09:00:00`` with milliseconds when there are any."""
    assert timestamp is not None
    text = datetime.fromtimestamp(round(timestamp * 1000) / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    return text.removesuffix(".000")
