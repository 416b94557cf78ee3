"""Credentials in text that others wrote: hidden; and what only looks like one: left."""

from __future__ import annotations

import pytest

from agent.redact import HIDDEN, LONGEST_TEXT, bounded, redact, redact_alert, redact_json
from tests.delivery.build import alert

SECRET = "s3cr3tv4lue"


@pytest.mark.parametrize(
    "text",
    [
        f"Authorization: Bearer {SECRET}",
        f"authorization: bearer {SECRET}abc.def",
        f"'Authorization': 'Basic {SECRET}dXNlcjpwdw=='",
        f"token={SECRET}",
        f"?access_token={SECRET}&x=1",
        f"HF_TOKEN={SECRET}",
        f"AWS_SECRET_ACCESS_KEY={SECRET}",
        f"aws_secret_access_key: {SECRET}",
        f'{{"api_key": "{SECRET}"}}',
        f"{{'password': '{SECRET}'}}",
        f"password: {SECRET}",
        f"--api-key {SECRET}",
        f"--hf-token {SECRET}",
        f"X-API-Key: {SECRET}",
        f"x-amz-security-token: {SECRET}",
        f"redis://:{SECRET}@cache:6379/0",
        f"postgresql://bob:{SECRET}@db.example/x",
        f"https://hooks.slack.com/services/T0/B0/{SECRET}",
        f"https://discord.com/api/webhooks/1/{SECRET}",
        f"https://x.webhook.office.com/webhookb2/{SECRET}",
        f"https://prod.logic.azure.com/workflows/x?sig={SECRET}",
        f"routing_key={SECRET}",
        f"client-secret={SECRET}",
        f"hf_{SECRET}",
        f"sk-{SECRET}",
        f"sk-proj-{SECRET}",
        f"ghp_{SECRET}00000000",
        f"github_pat_{SECRET}00000000",
        f"xoxb-{SECRET}",
        f"nvapi-{SECRET}",
        f"eyJhbGciOiJIUzI1NiJ9.{SECRET}.x",
        f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\n{SECRET}",
        f"set-cookie=session={SECRET}",
        f'token="{SECRET} with spaces"',
    ],
)
def test_hidden(text: str) -> None:
    once = redact(f"before {text} after")
    assert SECRET not in once
    assert HIDDEN in once
    assert once.startswith("before ")
    assert redact(once) == once


def test_amazons_key_ids() -> None:
    assert redact("AKIAIOSFODNN7EXAMPLE and ASIAIOSFODNN7EXAMPLE") == f"{HIDDEN} and {HIDDEN}"


@pytest.mark.parametrize(
    "text",
    [
        "max_num_tokens=8192 max_batch_size=64",
        "total_num_tokens (9001) should be less than or equal to max_num_tokens (8192)",
        "eos_token=None pad_token=True bos_token=null token=4096",
        "KV cache usage: 90.1%, Prefix cache hit rate: 5.0%",
        "basic functionality tokens passed",
        "the bearer of this",
        "https://example.com/path?x=1&y=2",
        "key wedgewatch/prod-eu1/trtllm-0/fp",
        "[TRT-LLM] [E] Error in event loop: signature mismatch",
        "tokens/s: 4100, session idle",
        "skipping sk-1",
        "",
    ],
)
def test_left_alone(text: str) -> None:
    assert redact(text) == text


def test_hosts_stay_readable() -> None:
    assert redact("https://bob:pw@hub.example:8443/m failed") == f"https://{HIDDEN}@hub.example:8443/m failed"
    assert redact("https://hooks.slack.com/services/T/B/x") == f"https://hooks.slack.com/{HIDDEN}"


def test_known_secrets_are_hidden_wherever_they_stand() -> None:
    assert redact("abc-my-routing-key-def", known=["my-routing-key", "ab"]) == f"abc-{HIDDEN}-def"


def test_an_alert_is_redacted_and_bounded_in_all_its_parts() -> None:
    leaky = alert(
        annotations={"description": "token=" + SECRET + " x" * 40_000},
        context={"actions": [f"curl -H 'X-API-Key: {SECRET}'"], "n": {f"sk-{SECRET}": [1.5, None, True]}},
    )
    clean = redact_alert(leaky)
    assert SECRET not in repr(clean)
    assert len(clean.annotations["description"]) < LONGEST_TEXT + 100
    assert clean.context["n"][HIDDEN] == [1.5, None, True]
    assert redact_json(("a", 1)) == ["a", 1]


def test_a_cut_leaves_no_half_of_a_credential() -> None:
    words = " ".join(f"token={SECRET}{number:05d}" for number in range(3000))
    for limit in range(2000, 2060):
        assert SECRET[:6] not in redact(bounded(words, limit))
