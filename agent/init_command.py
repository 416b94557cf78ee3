"""``wedgewatch init``: looks at a running server, writes a configuration for it with the reasons, and tries it.

What is looked for when nothing is given: the usual ports of this machine for a metrics page that an engine's dialect
recognises; then the process behind that port, for where its output goes (a file, or a systemd unit).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TextIO
from urllib.parse import urlsplit, urlunsplit

from agent import processes
from agent.metrics.fetch import Endpoint, FetchError, fetch
from agent.metrics.mapping import SignalMapper
from agent.metrics.parse import parse_page
from agent.rules.model import Dialect

__all__ = ["PORTS", "Findings", "init", "look", "write"]

PORTS: Final = (8000, 30000, 8080, 8001, 8002, 23333, 3000, 8265, 9090)
"""Where engines listen unless told otherwise: vLLM, trtllm-serve, SGLang, TGI, llama.cpp, Triton's metrics, ..."""

_PATHS: Final = ("/metrics", "/prometheus/metrics", "/v1/metrics")
_NEEDED: Final = ("requests_running", "requests_waiting", "requests_finished_total", "generation_tokens_total")
_HEAD, _TAIL = 256 * 1024, 512 * 1024


@dataclass(slots=True)
class Findings:
    """What was found out. ``notes`` are sentences for the terminal and for comments in the file."""

    engine: str = ""
    metrics: str = ""
    log: str = ""
    journald: str = ""
    signals: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)

    @property
    def watchable(self) -> bool:
        return bool(self.metrics or self.log or self.journald)


def init(
    log: str | None,
    metrics: str | None,
    output: str,
    *,
    force: bool = False,
    out: TextIO | None = None,
    ports: Sequence[int] = PORTS,
) -> int:
    """The command. Returns 0, or 2 when nothing can be watched or the file cannot be written."""
    from agent.config import load_config
    from agent.rules.load import load_rules

    out = out or sys.stdout
    if os.path.exists(output) and not force:
        print(f"wedgewatch: {output} exists; --force overwrites it, -o FILE writes another", file=sys.stderr)
        return 2
    ruleset, _ = load_rules()
    found = look(log, metrics, ruleset.dialects, ports=ports)
    for note in found.notes:
        print(f"- {note}", file=out)
    if not found.watchable:
        print(
            "wedgewatch: nothing to watch was found. Give the log with --log PATH and the metrics page with "
            "--metrics http://HOST:PORT/metrics",
            file=sys.stderr,
        )
        return 2
    try:
        write(found, output)
    except OSError as error:
        print(f"wedgewatch: {output} cannot be written: {error.strerror}", file=sys.stderr)
        return 2
    _, faults = load_config(output)
    errors = [fault for fault in faults if fault.severity == "error"]
    for fault in errors:
        print(fault, file=sys.stderr)
    if errors:
        return 2
    print(f"\nWrote {output}; it was checked and has no faults. Next:", file=out)
    print(f"  wedgewatch run -c {output} --observe    # decides and shows everything, sends nothing", file=out)
    print("  then open http://127.0.0.1:9464, and give it a receiver (see the end of the file)", file=out)
    return 0


def look(
    log: str | None, metrics: str | None, dialects: Mapping[str, Dialect], *, ports: Sequence[int] = PORTS
) -> Findings:
    """Finds out what there is to watch."""
    found = Findings()
    if metrics is not None:
        _page(found, metrics, dialects)
    elif log is None:
        for port in ports:
            if _page(found, f"http://127.0.0.1:{port}", dialects, quiet=True):
                break
        else:
            tried = ", ".join(map(str, ports))
            found.notes.append(f"No metrics page of a known engine answers on this machine (tried ports {tried}).")
    if log is not None:
        _log(found, log, dialects)
    elif found.metrics:
        _output_of(found, dialects)
    if not found.engine and found.watchable:
        found.notes.append("The engine was not recognised yet; 'auto' recognises it from its lines as they come.")
    return found


def _page(found: Findings, url: str, dialects: Mapping[str, Dialect], *, quiet: bool = False) -> bool:
    """Reads the metrics page at ``url`` or at the usual paths below it; True when an engine's page was found."""
    faults = []
    for address in _addresses(url):
        try:
            response = fetch(Endpoint(address, timeout=1.0 if quiet else 5.0))
        except (FetchError, ValueError) as error:
            faults.append(f"{address}: {error}")
            continue
        if response.status != 200:
            faults.append(f"{address}: HTTP {response.status}")
            continue
        mapper = SignalMapper(dialects)
        page = parse_page(response.body, mapper.wanted(response.body))
        samples = mapper.map(page, server="server", timestamp=0.0)
        signals = tuple(sorted({name for sample in samples for name in sample.values} - {"up"}))
        if mapper.engine:
            found.metrics, found.engine, found.signals = address, mapper.engine, signals
            replicas = f", {len(samples)} replicas" if len(samples) > 1 else ""
            title = dialects[mapper.engine].title or mapper.engine
            found.notes.append(f"{address} is a metrics page of {title}: {len(signals)} signals{replicas}.")
            missing = [name for name in _NEEDED if name not in signals]
            if missing:
                found.notes.append(f"It does not show {', '.join(missing)} (yet); some appear with the first request.")
            return True
        faults.append(f"{address}: it answers, but no engine is recognised in it")
    if not quiet:
        found.notes += faults
        if not found.metrics and faults and "no engine is recognised" in faults[0]:
            found.metrics = url
    return False


def _addresses(url: str) -> Iterator[str]:
    """``url`` itself when it names a path, then the usual paths of the host."""
    parts = urlsplit(url if "//" in url else f"http://{url}")
    if parts.path.strip("/"):
        yield urlunsplit(parts)
    for path in _PATHS:
        if path != parts.path:
            yield urlunsplit((parts.scheme, parts.netloc, path, "", ""))


def _log(found: Findings, path: str, dialects: Mapping[str, Dialect]) -> None:
    """Recognises the engine of a log file by its beginning and end."""
    from agent.logs.engine import LogEngine

    given = os.path.abspath(os.path.expanduser(path))
    try:
        with open(given, "rb") as handle:
            size = os.fstat(handle.fileno()).st_size
            parts = [handle.read(_HEAD)]
            if size > _HEAD:
                handle.seek(max(_HEAD, size - _TAIL))
                parts.append(handle.read(_TAIL))
    except OSError as error:
        found.notes.append(f"{given} cannot be read: {error.strerror}.")
        if error.errno != 2:  # it is there, but not for us: the daemon may run as another user
            found.log = given
        return
    found.log = given
    stream = LogEngine([], dialects).stream(server="server", file=given)
    for part in parts:
        stream.feed(part)
    stream.flush()
    engine = stream.dialect or ""
    title = (dialects[engine].title or engine) if engine in dialects else ""
    found.notes.append(f"{given}: {size} bytes, " + (f"written by {title}." if title else "engine not recognised."))
    if engine and found.engine and engine != found.engine:
        found.notes.append(f"The page says {found.engine}, the log says {engine}; the configuration says auto.")
        found.engine = ""
    elif engine:
        found.engine = engine


def _output_of(found: Findings, dialects: Mapping[str, Dialect]) -> None:
    """Where the process behind the page writes to: a file, or the journal."""
    parts = urlsplit(found.metrics)
    if parts.hostname not in ("127.0.0.1", "localhost", "::1"):
        found.notes.append("The server is on another machine: its log cannot be found from here, add it under logs:.")
        return
    for pid in processes.listeners(parts.port or 80):
        for descriptor in ("1", "2"):
            try:
                target = os.readlink(f"/proc/{pid}/fd/{descriptor}")
            except OSError:
                continue
            if target.startswith("/") and os.path.isfile(target):
                found.notes.append(f"Process {pid} writes its output to {target}.")
                _log(found, target, dialects)
                return
        if unit := _unit_of(pid):
            found.journald = unit
            found.notes.append(f"Process {pid} is systemd's {unit}: its log is read from the journal.")
            return
    found.notes.append(
        "Where the server's log goes could not be seen: give it with --log PATH, or add it under logs: in the file."
    )


def _unit_of(pid: int) -> str:
    try:
        text = Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return ""
    match = re.search(r"/([A-Za-z0-9:_.@\\-]+\.service)(?:/|$)", text, re.M)
    return match[1] if match and not match[1].startswith(("user@", "docker", "containerd")) else ""


def write(found: Findings, output: str) -> None:
    """Writes the configuration. Raises OSError."""
    quoted = _quoted
    engine = found.engine or "auto"
    lines = [
        "# Written by `wedgewatch init`. `wedgewatch check -c FILE` names every fault with line and column.",
        *(f"#   {note}" for note in (note.replace("\n", " ") for note in found.notes)),
        "servers:",
        f"  - name: {quoted('${POD_NAME:-' + (engine if engine != 'auto' else 'server').replace('_', '-') + '-0}')}",
        f"    engine: {engine:<12}  # auto recognises it from the lines and the page",
    ]
    if found.log or found.journald:
        lines.append("    logs:")
        lines.append(
            f"      - journald: {quoted(found.journald)}" if found.journald else f"      - path: {quoted(found.log)}"
        )
        if found.log:
            lines.append("        # a glob works too; rotation is followed; old lines never page")
    else:
        lines += [
            "    # logs:                       # they give a stall its name; without them it is silent_stall",
        ]
        lines += ["    #   - path: /var/log/server/*.log"]
    if found.metrics:
        lines += ["    metrics:", f"      url: {quoted(found.metrics)}"]
        if found.signals:
            lines += _wrapped("signals seen: " + ", ".join(found.signals))
    else:
        lines += [
            "    # metrics:                    # they confirm a stall; without them many look like idling",
            "    #   url: http://127.0.0.1:8000/metrics",
        ]
    lines += [
        "    # labels: {model: llama-3-70b}   # every alert of this server carries them",
        "",
        "state:",
        "  path: ./wedgewatch-state         # offsets, alerts and undelivered messages survive a restart here",
        "web:",
        '  listen_address: "127.0.0.1:9464" # page, API, probes and /metrics; this machine only',
        "",
        "# Whom to tell. Until something stands here, alerts are shown on the page and in the terminal only.",
        "# Try each with: wedgewatch send-test NAME -c FILE",
        "# receivers:",
        "#   - name: chat",
        "#     slack_configs: [{api_url_file: /run/secrets/slack_webhook}]",
        "#   - name: oncall",
        "#     pagerduty_configs: [{routing_key_file: /run/secrets/pagerduty_key}]",
        '#     alertmanager_configs: [{urls: ["http://alertmanager-0:9093", "http://alertmanager-1:9093"]}]',
        "# route:",
        "#   receiver: chat",
        "#   routes:",
        "#     - {matchers: ['severity=\"critical\"'], receiver: oncall, continue: true}",
        "#",
        "# A ping that stops when this machine or wedgewatch itself does:",
        "# heartbeat: {url_file: /run/secrets/deadman_url, interval: 1m}",
        "",
    ]
    temporary = f"{output}.part"
    with open(temporary, "w", encoding="utf-8") as handle:
        handle.write("\n".join(lines))
    os.replace(temporary, output)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _wrapped(text: str, width: int = 112) -> Iterator[str]:
    import textwrap

    for line in textwrap.wrap(text, width - 8):
        yield f"      # {line}"
