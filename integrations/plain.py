"""A message as plain text: mail bodies, PagerDuty's details, whatever has no markup of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from integrations.message import Evidence, Fact, Message

__all__ = ["evidence_lines", "fact_lines", "render_plain", "spark_lines"]


def render_plain(message: Message, *, escape: Callable[[str], str] = lambda text: text) -> str:
    """The whole message, a block a paragraph; ``escape`` is applied to every text that came from elsewhere."""
    parts = [escape(message.headline)]
    if message.summary:
        parts.append(escape(message.summary))
    if message.facts:
        parts.append("\n".join(escape(line) for line in fact_lines(message.facts)))
    if message.sparks:
        parts.append("\n".join(escape(line) for line in spark_lines(message)))
    if message.evidence:
        parts.append("Evidence\n" + "\n".join(f"  {escape(line)}" for line in evidence_lines(message.evidence)))
    if message.checks:
        parts.append("Checks\n" + "\n".join(f"  [{check.mark}] {escape(check.text)}" for check in message.checks))
    if message.excluded:
        parts.append("Not this: " + escape(", ".join(message.excluded)))
    if message.actions:
        steps = (f"  {index}. {escape(action)}" for index, action in enumerate(message.actions, 1))
        parts.append("Do now\n" + "\n".join(steps))
    if message.others:
        parts.append("Also\n" + "\n".join(f"  {escape(other)}" for other in message.others))
    if message.links:
        parts.append("\n".join(f"{link.text}: {link.url}" for link in message.links))
    tail = [escape(note) for note in message.notes]
    if message.key:
        tail.append(f"key {escape(message.key)}")
    if tail:
        parts.append("\n".join(tail))
    return "\n\n".join(parts) + "\n"


def fact_lines(facts: Sequence[Fact]) -> list[str]:
    """Names and values in two columns."""
    width = max((len(fact.name) for fact in facts), default=0)
    return [f"{fact.name:<{width}}  {fact.value}" for fact in facts]


def spark_lines(message: Message) -> list[str]:
    """Bars in columns, what they span on the last line."""
    width = max((len(spark.name) for spark in message.sparks), default=0)
    bars = max((len(spark.bars) for spark in message.sparks), default=0)
    lines = [f"{spark.name:<{width}}  {spark.bars:<{bars}}  {spark.text}" for spark in message.sparks]
    if lines and message.span:
        lines[-1] += f"   {message.span}"
    return lines


def evidence_lines(evidence: Sequence[Evidence]) -> list[str]:
    """A line each (a traceback has several), where it stands at the end of its first line."""
    lines: list[str] = []
    for item in evidence:
        first, *rest = item.text.split("\n")
        repeat = f"  (x{item.count})" if item.count > 1 else ""
        where = f"  {item.place}" if item.place else ""
        lines.append(f"{item.when} {item.severity:<5} {first}{repeat}{where}")
        lines += [f"               {line}" for line in rest]
    return lines
