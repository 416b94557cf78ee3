"""Other tools that match rules in logs, each with a rule set equal in meaning; only those that are installed run.

Debian: ``apt-get install ripgrep ugrep mtail sec fail2ban swatch syslog-ng-core``. They look at each rule for each
line, so their samples are cut. What each counts: fail2ban stops at the first rule that matches (which favours it), the
others go on to the last.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.logdata import patterns

__all__ = ["PEERS", "Peer", "version"]


@dataclass(frozen=True, slots=True)
class Peer:
    """A tool: how it is called with rules on a file.

    ``sample``: MiB it gets at ten rules, less with more; 0: all. ``most``: rules that it can take.
    """

    name: str
    program: str
    version_flag: str
    command: Callable[[Path, int, Path], Sequence[str]]
    sample: float = 0.0
    most: int = 1 << 30
    from_stdin: bool = False


def version(peer: Peer) -> str:
    """What the tool says of itself, empty when it is not installed."""
    if shutil.which(peer.program) is None:
        return ""
    said = subprocess.run([peer.program, peer.version_flag], capture_output=True, text=True, check=False)
    lines = (said.stdout or said.stderr).strip().splitlines()
    return lines[0].strip() if lines else peer.program


def _patterns_file(folder: Path, rules: int) -> Path:
    path = folder / f"patterns-{rules}.txt"
    path.write_text("".join(f"{pattern}\n" for pattern in patterns(rules)))
    return path


def _ugrep(folder: Path, rules: int, log: Path) -> Sequence[str]:
    return ["ugrep", "-c", "-P", "-f", str(_patterns_file(folder, rules)), str(log)]


def _mtail(folder: Path, rules: int, log: Path) -> Sequence[str]:
    programs = folder / f"mtail-{rules}"
    programs.mkdir(exist_ok=True)
    text = "".join(
        f"counter c{n}\n/{pattern.replace('/', chr(92) + '/')}/ {{\n  c{n}++\n}}\n"
        for n, pattern in enumerate(patterns(rules))
    )
    (programs / "rules.mtail").write_text(text)
    return ["mtail", "-one_shot", "-logs", str(log), "-progs", str(programs)]


def _sec(folder: Path, rules: int, log: Path) -> Sequence[str]:
    path = folder / f"sec-{rules}.conf"
    path.write_text(
        "".join(
            f"type=Single\ncontinue=TakeNext\nptype=RegExp\npattern={pattern}\ndesc=r{n}\naction=none\n\n"
            for n, pattern in enumerate(patterns(rules))
        )
    )
    return ["sec", f"--conf={path}", f"--input={log}", "--notail", "--intevents", f"--log={folder}/sec.out"]


def _fail2ban(folder: Path, rules: int, log: Path) -> Sequence[str]:
    path = folder / f"fail2ban-{rules}.conf"
    indented = "\n            ".join(f"^.*(?:{_local_flags(pattern)})<F-ID></F-ID>" for pattern in patterns(rules))
    path.write_text(f"[Definition]\nfailregex = {indented}\nignoreregex =\n".replace("%", "%%"))
    return ["fail2ban-regex", "--print-no-missed", "-d", "{NONE}", str(log), str(path)]


def _local_flags(pattern: str) -> str:
    return f"(?i:{pattern[4:]})" if pattern.startswith("(?i)") else pattern


def _swatchdog(folder: Path, rules: int, log: Path) -> Sequence[str]:
    path = folder / f"swatch-{rules}.conf"
    path.write_text(
        "".join(f"watchfor /{pattern.replace('/', chr(92) + '/')}/\n    continue\n" for pattern in patterns(rules))
    )
    return ["swatchdog", f"--config-file={path}", f"--examine={log}", f"--script-dir={folder}"]


def _syslog_ng(folder: Path, rules: int, log: Path) -> Sequence[str]:
    path = folder / f"syslog-ng-{rules}.conf"
    out = folder / "syslog-ng.out"

    def quoted(pattern: str) -> str:
        return pattern.replace("'", "\\'")

    body = "".join(
        f"log {{ source(s); filter {{ match('{quoted(pattern)}' type(pcre) value('MESSAGE')); }}; destination(d); }};\n"
        for pattern in patterns(rules)
    )
    path.write_text(
        "@version: 3.38\noptions { stats-freq(0); keep-hostname(yes); };\n"
        "source s { stdin(flags(no-parse)); };\n"
        f'destination d {{ file("{out}" template("$MSG\\n")); }};\n{body}'
    )
    return [
        "syslog-ng", "-F", "-e", "--no-caps", f"--cfgfile={path}", f"--persist-file={folder}/sn.persist",
        f"--pidfile={folder}/sn.pid", f"--control={folder}/sn.ctl",
    ]  # fmt: skip


RG: Final = Peer(
    "rg -c -j1",
    "rg",
    "--version",
    lambda folder, rules, log: ["rg", "-c", "-j1", "-f", str(_patterns_file(folder, rules)), str(log)],
)
PEERS: Final = (
    Peer("wc -l", "wc", "--version", lambda folder, rules, log: ["wc", "-l", str(log)]),
    Peer("ugrep -c", "ugrep", "--version", _ugrep, most=100),
    Peer("mtail", "mtail", "--version", _mtail, 16.0),
    Peer("SEC", "sec", "--version", _sec, 8.0),
    Peer("fail2ban-regex", "fail2ban-regex", "--version", _fail2ban, 8.0),
    Peer("swatchdog", "swatchdog", "--version", _swatchdog, 16.0),
    Peer("syslog-ng", "syslog-ng", "--version", _syslog_ng, 32.0, from_stdin=True),
)  # fmt: skip
