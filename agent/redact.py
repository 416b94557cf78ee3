"""Takes credentials out of text that came from elsewhere: log lines, error bodies, URLs in error messages.

Log text reaches chat rooms, phones, a database and a web page; a token in it would reach them all. The patterns
cover what inference servers and their clients really print (request headers, hub tokens, cloud keys, database and
proxy URLs, webhook URLs). They err towards hiding: a lost word in an evidence line is cheap, a leaked key is not.
:func:`redact` is idempotent, keeps hosts and names readable and is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from agent.model import Alert, StageEvidence

__all__ = ["HIDDEN", "LONGEST_TEXT", "bounded", "redact", "redact_alert", "redact_json"]

HIDDEN: Final = "<secret>"
LONGEST_TEXT: Final = 16 * 1024
"""Characters of one line or annotation that are kept; a traceback of hundreds of frames fits."""

# Names whose value is a credential wherever they stand: query strings, JSON, environment dumps, command lines.
_NAME = (
    r"(?:[a-z0-9]{1,32}[_-]){0,4}(?:token|secret|passw(?:or)?d|passwd|pwd|api[_-]?key|apikey|access[_-]?key(?:[_-]id)?"
    r"|secret[_-]?access[_-]?key|routing[_-]?key|integration[_-]?key|signature|sig|credentials?|authorization"
    r"|auth[_-]?key|private[_-]?key|client[_-]?secret|session[_-]?id|cookie|hf[_-]?token)"
)

_PATTERNS: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (
        re.compile(
            r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:[^-]|-(?!----)){0,16000}"
            r"(?:-----END [A-Z ]{0,40}PRIVATE KEY-----)?"
        ),
        HIDDEN,
    ),
    # user:password@ in a URL; the host stays.
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]{1,20}://)[^\s/@<>\"']{1,400}@"), rf"\1{HIDDEN}@"),
    # webhook URLs whose path is the credential; the host stays.
    (re.compile(r"(?i)(https?://hooks\.slack(?:-gov)?\.com/)(?!<secret>)[^\s\"'<>|)]+"), rf"\1{HIDDEN}"),
    (
        re.compile(r"(?i)(https?://(?:\w+\.)?discord(?:app)?\.com/api/(?:v\d+/)?webhooks/)(?!<secret>)[^\s\"'<>|)]+"),
        rf"\1{HIDDEN}",
    ),
    (re.compile(r"(?i)(https?://[\w.-]*webhook\.office\.com/)(?!<secret>)[^\s\"'<>|)]+"), rf"\1{HIDDEN}"),
    # Authorization schemes. "token" and "basic" are common words, so those want a value that looks like one.
    (re.compile(r"(?i)\b(bearer)[ \t]+(?!<secret>)[^\s\"',;<>]{4,}"), rf"\1 {HIDDEN}"),
    (
        re.compile(
            r"(?i)\b(authorization[\"']?[ \t]*[:=][ \t]*[\"']?(?:basic|token|digest|genie\w*|apikey))[ \t]+(?!<secret>)"
            r"[^\s\"',;<>]+"
        ),
        rf"\1 {HIDDEN}",
    ),
    (re.compile(r"(?i)\b(basic)[ \t]+(?=[a-z0-9+/]{0,200}[A-Z0-9+/=])[A-Za-z0-9+/]{16,}={0,2}"), rf"\1 {HIDDEN}"),
    # Tokens that announce themselves.
    (re.compile(r"\bhf_[A-Za-z0-9]{8,}"), HIDDEN),
    (re.compile(r"\bsk-[A-Za-z0-9_-]{8,}"), HIDDEN),
    (re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,}|glpat-[A-Za-z0-9_-]{16,})"), HIDDEN),
    (re.compile(r"\bxox[abeoprs]-[A-Za-z0-9-]{8,}"), HIDDEN),
    (re.compile(r"\bxapp-[A-Za-z0-9-]{8,}"), HIDDEN),
    (re.compile(r"\bnvapi-[A-Za-z0-9_-]{8,}"), HIDDEN),
    (re.compile(r"\b(?:AKIA|ASIA|AROA|AIDA|ANPA|AGPA)[A-Z0-9]{12,}\b"), HIDDEN),
    (re.compile(r"\bAIza[A-Za-z0-9_-]{30,}"), HIDDEN),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?"), HIDDEN),
    # name=value and "name": "value".
    (
        re.compile(rf"(?i)(?<![a-z0-9])({_NAME})(=)(?!<secret>)(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s&\"',;)<>\]}}]+)"),
        rf"\1\2{HIDDEN}",
    ),
    (re.compile(rf"(?i)([\"']{_NAME}[\"'][ \t]*:[ \t]*)([\"'])(?!<secret>)[^\"'\n]+\2"), rf"\1\2{HIDDEN}\2"),
    (
        re.compile(
            r"(?i)(?<![a-z0-9\"'])((?:x-)?(?:api-key|auth-token|access-token|amz-security-token)[ \t]*:[ \t]*)"
            r"(?!<secret>)[^\s\"',;]+"
        ),
        rf"\1{HIDDEN}",
    ),
    (re.compile(r"(?i)\b((?:aws_)?secret_access_key[ \t]*:[ \t]*)(?!<secret>)[^\s\"',;]+"), rf"\1{HIDDEN}"),
    (re.compile(r"(?i)(?<![a-z0-9])(passw(?:or)?d[ \t]*:[ \t]*)(?!<secret>)[^\s\"',;]+"), rf"\1{HIDDEN}"),
    (re.compile(r"(--(?:api-key|hf-token|token|password)[ \t]+)(?!<secret>)[^\s\"']+"), rf"\1{HIDDEN}"),
)

# A cheap test first: most lines hold none of these, and a megabyte of log should not meet twenty patterns.
_HINT: Final = re.compile(
    r"(?i)token|secret|passw|pwd|key|sig|credential|authoriz|cookie|session|bearer|basic|://|hf_|sk-|gh[pousr]_|github_pat"
    r"|glpat|xox|xapp|nvapi|akia|asia|aroa|aida|anpa|agpa|aiza|eyj"
)
# Long counts of tokens ("max_num_tokens=8192") and the like are numbers that an operator needs, not credentials.
_NUMBER: Final = re.compile(r"\d[\d_,.]{0,15}(?![\w-])")


def redact(text: str, known: Iterable[str] = ()) -> str:
    """``text`` without credentials. ``known`` are literal secrets (configured ones) to hide wherever they stand."""
    for literal in known:
        if len(literal) >= 4:
            text = text.replace(literal, HIDDEN)
    if not _HINT.search(text):
        return text
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(lambda match, to=replacement: _replace(match, to), text)  # type: ignore[misc]  # bound default
    return text


def _replace(match: re.Match[str], replacement: str) -> str:
    value = match.group()
    if "=" in value and match.lastindex and match.lastindex >= 2 and match.group(2) == "=":
        rest = value.split("=", 1)[1]
        # `token=4096`, `eos_token=None`: settings, not secrets.
        if _NUMBER.fullmatch(rest) or rest in {"None", "True", "False", "null", "true", "false"}:
            return value
    return match.expand(replacement)


def redact_json(value: Any, known: Iterable[str] = ()) -> Any:
    """The same JSON value with every text in it redacted, keys included."""
    kind = type(value)
    if kind is float or kind is int or value is None or kind is bool:  # a course of numbers is most of a context
        return value
    if isinstance(value, str):
        return redact(bounded(value), known)
    if isinstance(value, list | tuple):
        return [redact_json(item, known) for item in value]
    if isinstance(value, Mapping):
        return {redact(str(key), known): redact_json(item, known) for key, item in value.items()}
    return value


def bounded(text: str, limit: int = LONGEST_TEXT) -> str:
    """A text by its beginning and, twice as long, its end, in about ``limit`` characters. Cuts fall on white space
    where there is some, so that no half of a credential is left that :func:`redact` would not know."""
    if len(text) <= limit:
        return text
    head, tail = limit // 3, len(text) - (limit - limit // 3)
    space = max(text.rfind(" ", head - 512, head), text.rfind("\n", head - 512, head))
    head = space if space > 0 else head
    spaces = [at for at in (text.find(" ", tail, tail + 512), text.find("\n", tail, tail + 512)) if at > 0]
    tail = min(spaces, default=tail)
    return f"{text[:head]} … {tail - head} characters … {text[tail:].lstrip()}"


def redact_alert(alert: Alert, known: Iterable[str] = ()) -> Alert:
    """The alert as it may be stored and sent: no credential in evidence, annotations or context, no megabytes."""
    return replace(
        alert,
        stages=tuple(_stage(stage, known) for stage in alert.stages),
        annotations={key: redact(bounded(value), known) for key, value in alert.annotations.items()},
        context=redact_json(alert.context, known),
    )


def _stage(stage: StageEvidence, known: Iterable[str]) -> StageEvidence:
    return replace(
        stage,
        body=redact(bounded(stage.body), known),
        fields={key: redact(bounded(value, 1024), known) for key, value in stage.fields.items()},
    )
