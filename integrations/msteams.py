"""Microsoft Teams through a Power Automate workflow, which takes an adaptive card.

The workflow answers 202 before it posts, so whether the card was shown cannot be known. The old connectors are retired;
they answered 200 with an error in words, which counts as a failure here. All text that came from elsewhere stands in
TextRuns, which know no markup and no mentions.
https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/how-to/connectors-using
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from agent.model import Secret
from integrations.base import DeliveryError, Notification, Outcome, ReceiverOptions, Traits
from integrations.http import HttpClient, HttpConfig, encode_json, reveal
from integrations.limits import Teams
from integrations.message import Message, build, fit
from integrations.plain import evidence_lines, spark_lines
from integrations.status import by_status

__all__ = ["MsTeamsConfig", "MsTeamsReceiver", "card"]


@dataclass(frozen=True, kw_only=True)
class MsTeamsConfig(ReceiverOptions):
    """One Teams workflow ("post to a channel when a webhook request is received")."""

    webhook_url: Secret = field(metadata={"doc": "the workflow's URL; its sig= is the credential"})
    http_config: HttpConfig | None = None


class MsTeamsReceiver:
    """Posts a card for each change."""

    kind = "msteams"
    traits = Traits()

    def __init__(self, config: MsTeamsConfig, client: HttpClient) -> None:
        self._config = config
        self._client = client

    def notify(self, notification: Notification) -> Outcome:
        message = build(notification, self._config)
        start = {0: 0, 1: 4}.get(notification.degraded, 6)
        body: bytes = fit(message, lambda m: encode_json(card(m)), lambda data: len(data) <= Teams.CARD_BYTES, start)
        try:
            answer = self._client.request(
                "POST",
                reveal(self._config.webhook_url, "webhook_url"),
                timeout=self._config.timeout,
                body=body,
                headers={"Content-Type": "application/json"},
            )
        except DeliveryError as error:
            return Outcome.from_error(error)
        said = answer.text(200)
        if answer.ok and "error" in said.lower() and "429" in said:
            return Outcome.retry(said, reason="rate_limited", after=answer.retry_after())
        if answer.ok and ("delivery failed" in said.lower() or "error" in said.lower()):
            return Outcome.degrade(said)
        return by_status(answer)


def card(message: Message) -> dict[str, Any]:
    """The request's body."""
    color = "good" if "RESOLVED" in message.state else "attention" if message.severity == "critical" else "warning"
    body: list[dict[str, Any]] = [_runs(_run(message.headline, weight="bolder", size="medium", color=color))]
    if message.summary:
        body.append(_runs(_run(message.summary)))
    body += [_runs(_run(f"{fact.name}: ", weight="bolder"), _run(fact.value)) for fact in message.facts]
    if message.sparks:
        body += [_mono(line) for line in spark_lines(message)]
    if message.evidence:
        body.append(_title("Evidence"))
        body += [_mono(line) for line in evidence_lines(message.evidence)]
    if message.checks:
        body.append(_title("Checks"))
        body += [_runs(_run(f"[{check.mark}] {check.text}")) for check in message.checks]
    if message.excluded:
        body.append(_runs(_run("Not this: " + ", ".join(message.excluded))))
    if message.actions:
        body.append(_title("Do now"))
        body += [_runs(_run(f"{index}. {action}")) for index, action in enumerate(message.actions, 1)]
    body += [_runs(_run(other)) for other in message.others]
    tail = " | ".join([*message.notes, f"key {message.key}"] if message.key else message.notes)
    if tail:
        body.append(_runs(_run(tail, size="small", is_subtle=True)))
    content: dict[str, Any] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "fallbackText": message.headline,
        "msteams": {"width": "full"},
        "body": body,
    }
    if message.links:
        content["actions"] = [
            {"type": "Action.OpenUrl", "title": link.text, "url": link.url} for link in message.links[:6]
        ]
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": content}
    return {"type": "message", "attachments": [attachment]}


def _run(text: str, *, is_subtle: bool = False, **style: str) -> dict[str, Any]:
    run: dict[str, Any] = {"type": "TextRun", "text": text or " ", **style}
    if is_subtle:
        run["isSubtle"] = True
    return run


def _runs(*runs: dict[str, Any]) -> dict[str, Any]:
    return {"type": "RichTextBlock", "inlines": list(runs)}


def _mono(line: str) -> dict[str, Any]:
    return _runs(_run(line, fontType="monospace"))


def _title(text: str) -> dict[str, Any]:
    return _runs(_run(text, weight="bolder"))
