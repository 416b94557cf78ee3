"""Envelopes: what container runtimes, journals and launchers put around a line before we see it.

Two steps, because they cost differently. :func:`normalise` works on whole blocks with a few passes in C: it takes
out colours, carriage returns and NULs, and turns JSON envelopes, whose escapes hide the text from the scanner,
into plain lines. :func:`peel` takes one textual prefix off one line that is being decoded, and is called again
for the next layer (CRI around compose around a rank).

Formats, each from its own documentation:
CRI https://github.com/kubernetes/design-proposals-archive/blob/main/node/kubelet-cri-logging.md ·
json-file https://docs.docker.com/engine/logging/drivers/json-file/ ·
journald https://www.freedesktop.org/software/systemd/man/latest/systemd.journal-fields.html ·
torchrun https://docs.pytorch.org/docs/stable/elastic/multiprocessing.html ·
Ray https://docs.ray.io/en/latest/ray-observability/user-guides/configure-logging.html
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from agent.logs.patterns import NEWLINE, first_characters
from agent.logs.shipped import Shipped

__all__ = ["ALIASES", "ENVELOPES", "MARK", "PARTIAL_MARKS", "WEAK", "Peeled", "normalise", "peel"]

MARK: Final = "\x02"
"""Begins a line that :func:`normalise` took out of a JSON envelope."""
_FIELD: Final = "\x1f"
_END: Final = "\x03"
PARTIAL_MARKS: Final = (b" stdout P ", b" stderr P ", b"\x1fP\x1f")
"""Literals of which every line that continues on the next one holds one."""


@dataclass(frozen=True, slots=True)
class Peeled:
    """A line without one layer. ``stream`` tells writers behind one file apart; ``time`` is as written."""

    kind: str
    text: str
    time: str = ""
    stream: str = ""
    severity: str = ""
    partial: bool = False
    attributes: Mapping[str, str] | None = None


# --- whole blocks -------------------------------------------------------------------------------------------

_ANSI: Final = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[ -/]*[0-~])?")
_SPELLED: Final = re.compile(rb"(?:#033|\^\[|\\u001[bB]|\\x1[bB]|\\033|\\e)\[[0-9;]{0,16}m")
"""Colours whose escape character a syslog daemon, a pager or an exporter wrote out."""
_CR_ENDS: Final = re.compile(rb"\r+(?=\n|\Z)")
_OVERWRITTEN: Final = re.compile(rb"[^\n]*\r")
_DOCKER_PLAIN: Final = re.compile(
    rb'^\{"log":"([^"\\\n]*)\\n","stream":"(stdout|stderr)","time":"([^"\\\n]{20,40})"\}$', re.MULTILINE
)
_JSON_LINE: Final = re.compile(rb"^[ \t]*(\{[^\n]*\})[ \t]*$", re.MULTILINE)


def normalise(block: bytes, *, unwrap_json: bool = True, shipped: Shipped | None = None) -> bytes:
    """Whole lines as the scanner and the decoder read them; the number of lines stays the same.

    ``unwrap_json`` is False for an input that is known to have no JSON envelopes, ``shipped`` the keys of those that
    were learned.
    """
    if b"\x00" in block:
        block = block.replace(b"\x00", b"")
    if b"\x02" in block:
        block = block.replace(b"\x02", b"")  # only we may mark a line
    if unwrap_json and (shipped is not None or b'"log":' in block or b'"__REALTIME_TIMESTAMP"' in block):
        block = _unwrap_json(block, shipped)
    if b"\x1b" in block:
        block = _ANSI.sub(b"", block)
    if b"[0m" in block or b"[39m" in block:
        block = _SPELLED.sub(b"", block)
    if b"\r" in block:
        # What a carriage return overwrites was a state of a progress bar, never a message.
        block = _OVERWRITTEN.sub(b"", _CR_ENDS.sub(b"", block))
    return block


def _unwrap_json(block: bytes, shipped: Shipped | None) -> bytes:
    block = _DOCKER_PLAIN.sub(b"\x02\\3\x1f\\2\x1fF\x1f\x03\\1", block)
    return _JSON_LINE.sub(lambda match: _unwrap_json_line(match, shipped), block)


def _unwrap_json_line(match: re.Match[bytes], shipped: Shipped | None) -> bytes:
    try:
        item = json.loads(match[1])
    except (ValueError, RecursionError):
        return match[0]
    if not isinstance(item, dict):
        return match[0]
    found = _docker(item) or _journald(item) or (shipped.unwrap(item) if shipped is not None else None)
    if found is None:
        return match[0]
    fields, text = found
    head = _FIELD.join(field.replace(_END, "").replace("\n", " ") for field in fields)
    line = text.replace("\r\n", "\n").replace("\n", NEWLINE.decode())
    return f"{MARK}{head}{_FIELD}{_END}{line}".encode("utf-8", "replace")


def _docker(item: Mapping[str, Any]) -> tuple[tuple[str, ...], str] | None:
    log, moment = item.get("log"), item.get("time")
    if not isinstance(log, str) or not isinstance(moment, str):
        return None
    # Docker cuts a line at 16 KiB; only the last piece ends with a newline.
    return (moment, str(item.get("stream", "")), "F" if log.endswith("\n") else "P"), log.removesuffix("\n")


_PRIORITIES: Final = ("FATAL", "FATAL", "FATAL", "ERROR", "WARN")


def _journald(item: Mapping[str, Any]) -> tuple[tuple[str, ...], str] | None:
    moment = item.get("_SOURCE_REALTIME_TIMESTAMP") or item.get("__REALTIME_TIMESTAMP")
    if not isinstance(moment, str) or "MESSAGE" not in item:
        return None
    message = item["MESSAGE"]
    if isinstance(message, list):
        # A message that is no UTF-8 comes as numbers, a repeated field as a list of texts.
        if all(isinstance(part, int) and 0 <= part < 256 for part in message):
            message = bytes(message).decode("utf-8", "replace")
        else:
            message = "\n".join(str(part) for part in message)
    name = str(item.get("SYSLOG_IDENTIFIER") or item.get("_COMM") or "")
    pid = str(item.get("_PID") or "")
    priority = str(item.get("PRIORITY", ""))
    # Everything a service prints is "info" to the journal: only worse levels were meant.
    severity = _PRIORITIES[int(priority)] if priority.isdecimal() and int(priority) < len(_PRIORITIES) else ""
    unit = str(item.get("_SYSTEMD_UNIT") or item.get("_SYSTEMD_USER_UNIT") or "")
    return (moment, f"{name}[{pid}]", "F", severity, unit, pid), str(message or "").removesuffix("\n")


# --- one line -----------------------------------------------------------------------------------------------

_STAMP: Final = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)"
_PATTERNS: Final[tuple[tuple[str, str], ...]] = (
    ("cri", rf"(?P<time>{_STAMP}) (?P<stream>stdout|stderr) (?P<flag>[PF])(?::[\w:]*)? (?P<rest>.*)"),
    ("kubectl", r"\[(?P<pod>pod/[^/\] ]+)/(?P<container>[^\] ]+)\] (?P<rest>.*)"),
    ("timestamps", r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}(?:Z|[+-]\d\d:\d\d))(?: (?P<rest>.*)|$)"),
    ("timestamps", r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,8})?Z) (?P<rest>[^ ].*)"),
    ("syslog", r"(?P<time>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,6})?) (?P<host>[\w.-]+) "
               r"(?P<unit>[\w./@-]+)(?:\[(?P<pid>\d+)\])?: (?P<rest>.*)"),
    ("syslog", rf"(?P<time>{_STAMP}) (?P<host>[\w.-]+) (?P<unit>[\w./@-]+)\[(?P<pid>\d+)\]: (?P<rest>.*)"),
    ("cloud", rf"(?P<severity>[A-Z]+) (?P<time>{_STAMP}) "
              r"\[resource\.labels\.\w+: (?P<container>[^\]]+)\] (?P<rest>.*)"),
    ("mpirun", r"\[(?:prterun-)?[\w.@-]*?\d+,(?P<rank>\d+)\]<(?P<stream>stdout|stderr|stddiag)>: ?(?P<rest>.*)"),
    ("torchrun", r"\[(?:default|rank|worker|trainer)(?P<rank>\d+)\]: ?(?P<rest>.*)"),
    ("ray", r"\((?P<process>[A-Za-z][\w.:#-]{0,120})?(?: (?:rank=|TP)(?P<rank>\d+))?(?:(?<=\() ?| )pid=(?P<pid>\d+)"
            r"(?:, ip=(?P<ip>[\w.:]+))?(?:, actor_id=\w+)?\) (?P<rest>.*)"),
    ("ray", r"\((?P<process>autoscaler) \+\w+\) (?P<rest>.*)"),
    ("residue", r"(?:\[\d{1,3}(?:;\d{1,3})*m)+(?P<rest>.*)"),
    ("frame", r"│ ?(?P<rest>.*?)\s*│?"),
    ("supervisord", r"(?P<container>[\w.:-]+) (?P<stream>stdout|stderr) \| (?P<rest>.*)"),
    ("compose", r"(?P<container>[A-Za-z0-9][\w.-]*) *\| (?P<rest>.*)"),
    ("compose", r"(?P<container>[A-Za-z0-9][\w.-]*) *\|(?P<rest>)"),
    ("slurm", r" *(?P<rank>\d{1,5}): (?P<rest>.*)"),
    ("quote", r"> (?P<rest>.*)"),
)  # fmt: skip
_COMPILED: Final = tuple((kind, re.compile(pattern, re.ASCII | re.DOTALL)) for kind, pattern in _PATTERNS)
WEAK: Final = frozenset({"compose", "slurm", "quote", "supervisord"})
"""Prefixes that ordinary text may begin with too: believed once what follows them was an engine's own line."""
ENVELOPES: Final = ("auto", "none", "docker", "journald", *dict.fromkeys(kind for kind, _ in _PATTERNS))
"""What may be asked for: ``auto`` sees by itself, ``none`` takes nothing off, a kind is believed at once."""
ALIASES: Final[Mapping[str, str]] = {"raw": "none", "docker_json": "docker", "json": "auto"}
"""Other names of the same, as configurations write them."""
_STREAM_FIELDS: Final = ("stream", "pod", "container", "host", "unit", "pid", "process", "rank")
_NO_ATTRIBUTE: Final = frozenset({"rest", "time", "flag", "severity"})


def _by_first_character() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    known = [(item, first_characters(item[1].pattern)) for item in _COMPILED]
    table = {chr(code): [item for item, first in known if first is None or chr(code) in first] for code in range(128)}
    table[""] = [item for item, first in known if first is None or item[0] == "frame"]
    return table


_TABLE: Final[dict[str, list[tuple[str, re.Pattern[str]]]]] = {}
"""Filled when the first line is looked at: what is known of patterns by then comes from disk."""


def peel(text: str, believed: Collection[str], only: str = "auto") -> Peeled | None:
    """``text`` without its outermost envelope; None when it has none.

    Weak prefixes are taken off when ``believed`` holds them, or when they are asked for by ``only``. ``only`` =
    ``none`` takes nothing off.
    """
    if text.startswith(MARK):
        return _peel_mark(text)
    if only == "none":
        return None
    if not _TABLE:
        _TABLE.update(_by_first_character())
    for kind, pattern in _TABLE.get(text[:1]) or _TABLE[""]:
        if kind in WEAK and kind not in believed and kind != only:
            continue
        match = pattern.fullmatch(text)
        if match is not None:
            return _peeled(kind, match.groupdict())
    return None


def _peeled(kind: str, groups: Mapping[str, str | None]) -> Peeled:
    attributes = {name: value for name, value in groups.items() if value and name not in _NO_ATTRIBUTE}
    return Peeled(
        kind,
        groups.get("rest") or "",
        time=groups.get("time") or "",
        stream="|".join(groups.get(name) or "" for name in _STREAM_FIELDS if groups.get(name)),
        severity=groups.get("severity") or "",
        partial=groups.get("flag") == "P",
        attributes=attributes,
    )


def _peel_mark(text: str) -> Peeled:
    head, _, rest = text[1:].partition(_END)
    moment, stream, flag, *more = (*head.split(_FIELD), "", "", "")
    if len(more) < 6:
        return Peeled(
            "docker", rest, moment, stream, partial=flag == "P", attributes={"stream": stream} if stream else {}
        )
    severity, unit, pid = more[:3]
    attributes = {name: value for name, value in (("unit", unit), ("pid", pid)) if value}
    return Peeled("journald", rest, moment, stream, severity, attributes=attributes)
