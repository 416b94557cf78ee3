"""A message in Slack's Block Kit, within its limits by construction.

Only header, section, context and actions blocks: newer kinds are not on every client. Every text that came from
elsewhere is escaped, also in the header and in the fallback: ``<!channel>`` in a log line must not ring anybody.
https://docs.slack.dev/reference/block-kit/blocks, https://docs.slack.dev/messaging/formatting-message-text
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from integrations.limits import Slack
from integrations.message import Message, clock, fit, shorten
from integrations.plain import evidence_lines, render_plain, spark_lines
from integrations.text import escaped, utf16

__all__ = ["escape", "message_payload", "reply_text"]

_ZERO_WIDTH: Final = "\u200b"


def escape(text: str) -> str:
    """The three characters that carry meaning in Slack's text, and a code fence, which would swallow what follows."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace("``", f"`{_ZERO_WIDTH}`") if "``" in text else text


def message_payload(message: Message, degraded: int = 0) -> dict[str, Any]:
    """``text`` and ``blocks``; with ``degraded`` 1 text alone, with 2 title and links alone."""
    common = {"unfurl_links": False, "unfurl_media": False}
    if degraded >= 1:
        short = shorten(message, 6 if degraded >= 2 else 3)
        return {"text": _clip(render_plain(short), Slack.TEXT), **common}
    blocks = fit(message, _blocks, _fits)
    fallback = message.headline + (f"\n{message.summary}" if message.summary else "")
    return {"text": _clip(fallback, Slack.TEXT), "blocks": blocks, **common}


def reply_text(message: Message) -> str:
    """What goes into the thread when the message itself was edited: an edit rings nobody."""
    facts = {fact.name: fact.value for fact in message.facts}
    told = [f"{name}: {facts[name]}" for name in ("Lasted", "Recovered by", "Requests hit", "Queue") if name in facts]
    parts = [message.headline, ". ".join(told), *message.others, *message.notes]
    return _clip("\n".join(part for part in parts if part), Slack.TEXT)


def _fits(blocks: list[dict[str, Any]]) -> bool:
    return len(blocks) <= Slack.BLOCKS and sum(_texts_of(blocks)) <= Slack.ALL_BLOCKS


def _texts_of(value: Any) -> Iterable[int]:
    """Lengths of all texts and URLs in blocks."""
    if isinstance(value, str):
        yield utf16(value)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts_of(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts_of(item)


def _blocks(message: Message) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = [
        {
            "type": "header",
            "text": {"type": "plain_text", "text": _clip(message.headline, Slack.HEADER), "emoji": False},
        }
    ]
    if message.summary:
        blocks.append(_section(_clip(message.summary, Slack.SECTION)))
    if message.facts:
        fields = [
            _mrkdwn(f"*{_clip(fact.name, 100)}*\n{_clip(fact.value, Slack.FIELD - 110)}")
            for fact in message.facts[: Slack.FIELDS]
        ]
        blocks.append({"type": "section", "fields": fields})
    if message.sparks:
        blocks.append(_section(_fenced("", spark_lines(message))))
    if message.evidence:
        blocks.append(_section(_fenced("*Evidence*\n", evidence_lines(message.evidence))))
    if message.checks or message.excluded:
        lines = [f"[{check.mark}] {check.text}" for check in message.checks]
        if message.excluded:
            lines.append("Not this: " + ", ".join(message.excluded))
        blocks.append(_section(_listed("*Checks*\n", lines)))
    if message.actions:
        steps = [f"{index}. {action}" for index, action in enumerate(message.actions, 1)]
        blocks.append(_section(_listed("*Do now*\n", steps)))
    if message.others:
        blocks.append(_section(_listed("*Also*\n", list(message.others))))
    remarks = [*(_clip(note, 300) for note in message.notes[:6]), _date(message.timestamp)]
    if message.key:
        remarks.append(f"key {_clip(message.key, 255)}")
    blocks.append({"type": "context", "elements": [_mrkdwn(text) for text in remarks[: Slack.CONTEXT_ELEMENTS]]})
    buttons = [
        {
            "type": "button",
            "text": {"type": "plain_text", "text": _clip(link.text, Slack.BUTTON_TEXT), "emoji": False},
            "url": link.url,
        }
        for link in message.links[: Slack.ACTIONS]
        if len(link.url) <= Slack.URL
    ]
    if buttons:
        blocks.append({"type": "actions", "elements": buttons})
    return blocks


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": _mrkdwn(text)}


def _mrkdwn(text: str) -> dict[str, Any]:
    # verbatim: no automatic links, channels or mentions are made of what looks like one
    return {"type": "mrkdwn", "text": text or _ZERO_WIDTH, "verbatim": True}


def _clip(text: str, limit: int) -> str:
    return escaped(text, limit, escape) or _ZERO_WIDTH


def _fenced(title: str, lines: list[str]) -> str:
    """Monospaced lines; a fence in a line is broken up so that it cannot end ours."""
    room = Slack.SECTION - len(title) - 8
    return f"{title}```{_joined(lines, room, lambda text: escape(text.replace('`', '`' + _ZERO_WIDTH)))}```"


def _listed(title: str, lines: list[str]) -> str:
    return title + _joined(lines, Slack.SECTION - len(title), escape)


def _joined(lines: list[str], room: int, escape_line: Any) -> str:
    """Whole lines while there is room; the last one that does not fit is cut."""
    taken: list[str] = []
    for index, line in enumerate(lines):
        rest = f"\n… {len(lines) - index} more lines"
        text = escape_line(line)
        last = index == len(lines) - 1
        if utf16(text) + 1 + (0 if last else len(rest)) > room:
            if not taken:
                taken.append(escaped(line, room - len(rest), escape_line))
                rest = f"\n… {len(lines) - index - 1} more lines" if not last else ""
            return "\n".join(taken) + rest
        taken.append(text)
        room -= utf16(text) + 1
    return "\n".join(taken)


def _date(timestamp: float) -> str:
    """The moment in each reader's own time zone."""
    return f"<!date^{int(timestamp)}^{{date_short_pretty}} {{time_secs}}|{clock(timestamp)}>"
