"""What each service accepts, each number with the page that states it. Everything that is sent is cut to these by
construction; the fakes in the tests enforce them.

Lengths are in characters as the service counts them: where it does not say, in UTF-16 code units, the strictest of
the usual readings (an emoji counts twice). Where a service has an undocumented total, the budget here is below the
smallest message that was seen to fail.
"""

from __future__ import annotations

from typing import Final

__all__ = ["Discord", "Kubernetes", "PagerDuty", "Slack", "Teams", "Text", "Webhook"]


class Slack:
    """https://docs.slack.dev/reference/block-kit/blocks"""

    BLOCKS: Final = 50
    HEADER: Final = 150
    SECTION: Final = 2900  # documented 3000; a margin, since what counts as a character is not
    FIELDS: Final = 10
    FIELD: Final = 1900  # documented 2000
    CONTEXT_ELEMENTS: Final = 10
    ACTIONS: Final = 5  # documented 25 elements; more than five buttons help nobody
    BUTTON_TEXT: Final = 75
    URL: Final = 3000
    ALT_TEXT: Final = 2000
    TEXT: Final = 3500  # recommended 4000, cut at 40000: https://docs.slack.dev/messaging/formatting-message-text
    # Messages of about 13200 characters over all blocks fail: https://github.com/slackapi/bolt-js/issues/2509
    ALL_BLOCKS: Final = 10_000


class PagerDuty:
    """https://developer.pagerduty.com/docs/send-alert-event"""

    ROUTING_KEY: Final = 32
    SUMMARY: Final = 1024  # code points
    DEDUP_KEY: Final = 255
    EVENT_BYTES: Final = 500_000  # documented 512 KB; whether that is 512000 or 524288 is not
    LINKS: Final = 10
    DEFAULT_RETRY_AFTER: Final = 30.0  # a 429 comes without Retry-After: retry 30 s apart


class Discord:
    """https://discord.com/developers/docs/resources/message#embed-object-embed-limits"""

    CONTENT: Final = 2000
    EMBEDS: Final = 10
    TITLE: Final = 256
    DESCRIPTION: Final = 4096
    FIELDS: Final = 25
    FIELD_NAME: Final = 256
    FIELD_VALUE: Final = 1024
    FOOTER: Final = 2048
    TOTAL: Final = 6000
    UPLOAD_BYTES: Final = 8 * 1024 * 1024


class Teams:
    """https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/how-to/connectors-using"""

    # 28 KB after their own re-encoding, which added 18 % to a card of 24 453 bytes:
    # https://github.com/MicrosoftDocs/msteams-docs/issues/11274
    CARD_BYTES: Final = 18_000


class Webhook:
    """Receivers of Alertmanager's payload differ; some refuse more than 512 KB, one of them with 429."""

    BODY_BYTES: Final = 500_000
    ALERTS: Final = 256


class Kubernetes:
    """https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/"""

    NOTE: Final = 1024
    REASON: Final = 128
    ACTION: Final = 128


class Text:
    """Our own: what a person reads at 3 am."""

    TITLE_HEAD: Final = 60  # a phone's lock screen and PagerDuty's SMS show about this much
    TITLE: Final = 140
    SUMMARY: Final = 600
    EVIDENCE_LINES: Final = 12
    EVIDENCE_LINE: Final = 1200
    EVIDENCE_LINE_SHORT: Final = 300
    ALERTS_LISTED: Final = 20
