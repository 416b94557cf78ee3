"""What stands around a server's lines where something else carried them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class Line:
    """One physical line and the moment at which it was written (which the line itself may not say)."""

    t: float
    text: str


Envelope = Callable[[Line], str]


def _nanoseconds(t: float) -> str:
    return datetime.fromtimestamp(int(t), UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{int(t % 1 * 1e9):09d}Z"


def plain(line: Line) -> str:
    return line.text


def cri(line: Line) -> str:
    return f"{_nanoseconds(line.t)} stderr F {line.text}"


def docker(line: Line) -> str:
    return json.dumps({"log": line.text + "\n", "stream": "stdout", "time": _nanoseconds(line.t)}, ensure_ascii=False)


def kubectl(line: Line) -> str:
    return f"{_nanoseconds(line.t)} {line.text}"


def journald(line: Line) -> str:
    stamp = datetime.fromtimestamp(line.t, UTC).strftime("%b %d %H:%M:%S")
    return f"{stamp} gpu-07 inference[4412]: {line.text}"


def journald_json(line: Line) -> str:
    return json.dumps(
        {
            "__REALTIME_TIMESTAMP": str(int(line.t * 1e6)),
            "_PID": "4412",
            "SYSLOG_IDENTIFIER": "inference",
            "MESSAGE": line.text,
        }
    )


def compose(line: Line) -> str:
    return f"inference-1  | {line.text}"


def compose_coloured(line: Line) -> str:
    return f"\x1b[36minference-1  |\x1b[0m {line.text}"


def slurm(line: Line) -> str:
    return f"0: {line.text}"


def crlf(line: Line) -> str:
    return line.text + "\r"


ENVELOPES: dict[str, Envelope] = {
    "plain": plain,
    "cri": cri,
    "docker": docker,
    "kubectl": kubectl,
    "journald": journald,
    "journald-json": journald_json,
    "compose": compose,
    "compose-coloured": compose_coloured,
    "slurm": slurm,
    "crlf": crlf,
}


def join(lines: Iterable[Line], envelope: str = "plain") -> bytes:
    """A file's bytes: lines in order of time, those of one moment in the order given; a line with breaks is several."""
    wrap = ENVELOPES[envelope]
    out = []
    for line in sorted(lines, key=lambda line: line.t):
        out += [wrap(Line(line.t, text)) for text in line.text.split("\n")]
    return ("\n".join(out) + "\n").encode() if out else b""
