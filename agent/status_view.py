"""``wedgewatch status`` and ``wedgewatch probe``: a running daemon, seen from the terminal."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TextIO

from agent.api_client import ApiUnreachable, ask
from agent.model import parse_rfc3339
from agent.observed import report_text
from integrations.terminal import color_wanted, visible_width
from integrations.text import clip, duration, number, one_line, sparkline

__all__ = ["probe", "render", "show"]

_STATES: Final[Mapping[str, tuple[str, str, str, int]]] = {
    # state: word, sign, colour, rank
    "stalled": ("stuck", "■", "31;1", 0),
    "down": ("down", "✕", "31;1", 1),
    "unknown": ("not seen", "?", "35", 2),
    "saturated": ("overloaded", "▲", "33", 3),
    "starting": ("starting", "◔", "36", 4),
    "serving": ("working", "●", "32", 5),
    "idle": ("idle", "○", "2", 6),
}
_COLUMNS: Final = ("SERVER", "STATE", "FOR", "WAIT", "RUN", "DONE/MIN", "TOK/S", "KV", "ENGINE")
_RIGHT: Final = frozenset({"FOR", "WAIT", "RUN", "DONE/MIN", "TOK/S", "KV"})
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"


def render(
    status: Mapping[str, Any],
    color: bool,
    width: int,
    series: Mapping[str, Sequence[float]] | None = None,
) -> str:
    """The answer of ``/api/v1/status`` as text of at most ``width`` columns. ``series``: finished requests per minute
    of each server, for a small plot at the end of its line. Whatever others wrote is cleaned of escape codes."""
    now = float(status["now"])
    paint = _painter(color)
    servers = sorted(status["servers"], key=lambda item: (_state(item, status["alerts"])[3], item["name"]))
    lines = [paint(clip(f"wedgewatch {one_line(status['health']['version'])}", width), "2")]
    lines += _headline(servers, status["alerts"], now, width, paint)
    lines.append("")
    lines += _table(servers, status["alerts"], now, width, paint, series or {})
    problems = [one_line(text) for text in status["health"]["problems"]]
    if problems:
        lines += ["", paint("wedgewatch itself:", "33")] + [clip(f"  - {text}", width) for text in problems[:10]]
    if status["health"]["observe"]:
        lines += ["", clip("observing only: nothing is sent to anyone", width)]
    if status.get("observed"):
        lines += report_text(status["observed"], width).splitlines()[:20]
    return "\n".join(lines) + "\n"


def show(
    url: str,
    *,
    as_json: bool = False,
    watch: bool = False,
    out: TextIO | None = None,
    interval: float = 2.0,
    sleep: Callable[[float], None] = time.sleep,
    rounds: int | None = None,
) -> int:
    """The ``status`` command; ``watch`` keeps the view up to date until interrupted (or for ``rounds`` rounds).

    Returns 0, or 1 when the daemon cannot be asked."""
    out = out or sys.stdout
    full_screen = watch and not as_json and out.isatty()
    done = 0
    try:
        if full_screen:
            out.write(_ENTER)
        while True:
            text, code = _look(url, as_json=as_json, color=color_wanted(out), out=out)
            if full_screen:
                text = _HOME + text.replace("\n", _CLEAR_LINE + "\n") + _CLEAR_BELOW
            if code and not watch:
                sys.stderr.write(text)
                return code
            out.write(text)
            out.flush()
            done += 1
            if not watch or done == rounds:
                return code
            sleep(interval)
    except KeyboardInterrupt:
        return 0
    finally:
        if full_screen:
            out.write(_LEAVE)
            out.flush()


def probe(server: str, url: str) -> int:
    """1 while a confirmed alert of the stalled or dead family is open for ``server``; else 0, also when nobody
    answers: a fault of ours must not restart a healthy server."""
    from urllib.parse import quote

    try:
        status, answer = ask(url, f"/api/v1/servers/{quote(server, safe='')}/live", timeout=3.0)
    except ApiUnreachable as error:
        print(f"{error}; that is no reason to restart {one_line(server)}", file=sys.stderr)
        return 0
    if not isinstance(answer, dict):
        return 0
    print(one_line(str(answer.get("why", ""))))
    return 1 if status == 503 and answer.get("live") is False else 0


def _look(url: str, *, as_json: bool, color: bool, out: TextIO) -> tuple[str, int]:
    try:
        status, answer = ask(url, "/api/v1/status")
        if status != 200 or not isinstance(answer, dict) or "servers" not in answer:
            raise ApiUnreachable(f"{url} answered {status}: {one_line(str(answer))[:200]}")
        if as_json:
            return json.dumps(answer) + "\n", 0
        width = shutil.get_terminal_size((100, 40)).columns if out.isatty() else 120
        series = _finished(url, answer["servers"]) if width >= 96 else {}
        return render(answer, color, width, series), 0
    except ApiUnreachable as error:
        return f"wedgewatch: {error}\n", 1


def _finished(url: str, servers: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Finished requests per minute of the first few servers, all replicas together."""
    from urllib.parse import quote

    out: dict[str, list[float]] = {}
    for server in servers[:20]:
        path = f"/api/v1/series?server={quote(str(server['name']), safe='')}&signal=finished_per_minute&points=60"
        try:
            _, found = ask(url, path)
        except ApiUnreachable:
            break
        sums: dict[int, float] = {}
        for item in found if isinstance(found, list) else ():
            for moment, value in item["points"]:
                if value is not None:
                    sums[round(moment)] = sums.get(round(moment), 0.0) + value
        out[str(server["name"])] = [value for _, value in sorted(sums.items())]
    return out


def _state(server: Mapping[str, Any], alerts: Sequence[Mapping[str, Any]]) -> tuple[str, str, str, int]:
    """Word, sign, colour and rank; an open critical alert weighs more than the momentary state."""
    found = _STATES.get(server["state"], (server["state"], "?", "35", 2))
    own = [alert for alert in alerts if alert["server"] == server["name"] and alert["state"] == "firing"]
    if found[3] > 1 and any(alert["severity"] == "critical" for alert in own):
        return _STATES["stalled"]
    return found


def _since(server: Mapping[str, Any], alerts: Sequence[Mapping[str, Any]]) -> str | None:
    """The onset of an open critical alert, else when the state began: a stall is older than its verdict."""
    onsets = [
        str(alert["starts_at"])
        for alert in alerts
        if alert["server"] == server["name"] and alert["state"] == "firing" and alert["severity"] == "critical"
    ]
    return min(onsets, key=parse_rfc3339) if onsets else server["since"]


def _headline(
    servers: Sequence[Mapping[str, Any]],
    alerts: Sequence[Mapping[str, Any]],
    now: float,
    width: int,
    paint: Callable[[str, str], str],
) -> list[str]:
    if not servers:
        return [paint("No server is watched yet: add one under servers: in the configuration.", "33")]
    lines: list[str] = []
    for server in servers:
        word, sign, colour, rank = _state(server, alerts)
        if rank > 2:
            break
        since = _since(server, alerts)
        span = f" for {duration(now - parse_rfc3339(since))}" if since else ""
        lines.append(paint(clip(f"{sign} {one_line(server['name'])} is {word}{span}", width), colour))
        if server["why"]:
            lines += [clip(f"  {one_line(server['why'])}", width)]
        for alert in alerts:
            if alert["server"] == server["name"] and alert["state"] == "firing":
                lines += _alert(alert, width)
        if len(lines) > 24:
            lines.append("  ...")
            break
    if not lines:
        working = sum(server["state"] == "serving" for server in servers)
        rest = len(servers) - working
        lines = [paint(f"✓ All is well: {working} at work, {rest} idle, starting or slow", "32")]
    return lines


def _alert(alert: Mapping[str, Any], width: int) -> list[str]:
    cause = f"  cause: {one_line(alert['failure']).replace('_', ' ')} ({alert['confidence']})"
    lines = [clip(cause, width)]
    actions = alert.get("context", {}).get("actions") or []
    for index, text in enumerate(actions[:4], 1):  # an order that is cut short is none
        step = f"    {index}. {one_line(str(text))}"
        lines += [clip(line, width) for line in textwrap.wrap(step, width, subsequent_indent=" " * 7, max_lines=4)]
    return lines


def _table(
    servers: Sequence[Mapping[str, Any]],
    alerts: Sequence[Mapping[str, Any]],
    now: float,
    width: int,
    paint: Callable[[str, str], str],
    series: Mapping[str, Sequence[float]],
) -> list[str]:
    rows: list[tuple[str, list[str]]] = []
    for server in servers:
        word, sign, colour, _ = _state(server, alerts)
        values = server["values"]
        since = _since(server, alerts)
        rows.append(
            (
                colour,
                [
                    f"{sign} {clip(one_line(server['name']), 32)}",
                    word,
                    duration(now - parse_rfc3339(since)) if since else "-",
                    _number(values.get("requests_waiting")),
                    _number(values.get("requests_running")),
                    _number(values.get("finished_per_minute")),
                    _number(values.get("generation_tokens_per_second")),
                    _percent(values.get("kv_cache_usage_ratio")),
                    clip(one_line(server["engine"]), 14),
                ],
            )
        )
    heads = [f"  {_COLUMNS[0]}", *_COLUMNS[1:]]
    widths = [max(visible_width(cell) for cell in [head, *(row[i] for _, row in rows)]) for i, head in enumerate(heads)]
    title = "  ".join(_pad(head, widths[i], _COLUMNS[i]) for i, head in enumerate(heads))
    lines = [clip((title + ("  DONE, 15 MIN" if series else "")).rstrip(), width)]
    for (colour, row), server in zip(rows, servers, strict=True):
        text = clip("  ".join(_pad(cell, widths[i], _COLUMNS[i]) for i, cell in enumerate(row)).rstrip(), width)
        points = series.get(str(server["name"]))
        room = width - sum(widths) - 2 * len(widths)
        if points and room >= 12:
            text = text + " " * (sum(widths) + 2 * len(widths) - visible_width(text)) + sparkline(points, min(24, room))
        lines.append(paint(text, colour))
    return lines


def _pad(cell: str, width: int, column: str) -> str:
    blank = " " * (width - visible_width(cell))
    return blank + cell if column in _RIGHT else cell + blank


def _number(value: float | None) -> str:
    return "-" if value is None else number(value)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value * 100:.0f}%"


def _painter(color: bool) -> Callable[[str, str], str]:
    return (lambda text, code: f"\x1b[{code}m{text}\x1b[0m") if color else (lambda text, _: text)
