"""The small picture: a real PNG, and where it goes."""

from __future__ import annotations

import json
import struct
import zlib
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs

import pytest

from agent.model import Secret
from integrations.email import EmailConfig, EmailReceiver
from integrations.http import HttpClient
from integrations.local_receiver import Reply
from integrations.picture import PANEL, WIDTH, draw
from integrations.slack import SlackConfig, SlackReceiver
from tests.delivery.build import T, alert, notification
from tests.fakes.discord import FakeDiscord
from tests.fakes.slack import FakeSlack

ONSET = T - 130
SERIES = {
    "requests_waiting": [[ONSET - 300 + 10 * i, float(i)] for i in range(40)],
    "requests_running": [[ONSET - 300 + 10 * i, 64.0] for i in range(40)],
    "finished_per_minute": [[ONSET - 300 + 10 * i, 31.0 if i < 30 else 0.0] for i in range(40)],
    "kv_cache_usage_ratio": [[ONSET - 300 + 10 * i, 0.9] for i in range(40)],
}


def with_course(**changes: object):  # type: ignore[no-untyped-def]
    return alert(context={"series": SERIES}, **changes)


def decode(data: bytes) -> tuple[int, int, bytes]:
    """Width, height and dots; every chunk's sum is checked."""
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    at, dots, size = 8, b"", (0, 0)
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length : at + 12 + length])[0] == zlib.crc32(kind + body)
        if kind == b"IHDR":
            size = struct.unpack(">II", body[:8])
        if kind == b"IDAT":
            dots += body
        at += 12 + length
    return (*size, zlib.decompress(dots))


def test_it_is_a_png_with_a_panel_for_each_course() -> None:
    data = draw(with_course())
    assert data is not None
    width, height, dots = decode(data)
    assert (width, height) == (WIDTH, 4 * PANEL + 16)
    assert len(dots) == height * (width + 1)
    assert {1, 2, 3, 4} <= set(dots), "words, frame, line and the onset's mark are there"
    assert len(data) < 10_000


@pytest.mark.parametrize(
    "series",
    [
        None,
        {},
        "x",
        {"requests_waiting": []},
        {"requests_waiting": [[1, 1], [1, 2], [1, 3]]},
        {"requests_waiting": [[1, 2]]},
    ],
)
def test_without_a_course_there_is_no_picture(series: object) -> None:
    assert draw(alert(context={"series": series})) is None


def test_odd_numbers_are_drawn() -> None:
    for values in ([-5.0, 0.0, 5.0], [1e18, 0.0, -1e18], [0.0, 0.0, 0.0], [float("nan"), 1.0, 2.0, 3.0]):
        series = {"requests_waiting": [[ONSET + i, value] for i, value in enumerate(values)]}
        assert draw(alert(context={"series": series})) is not None


class PictureSlack(FakeSlack):
    """A Slack that takes uploads."""

    def __init__(self, *script: object, scope: bool = True) -> None:
        super().__init__(*script)  # type: ignore[arg-type]
        self.scope = scope
        self.uploads: list[bytes] = []
        self.finished: list[dict[str, object]] = []

    def _before(self, handler: BaseHTTPRequestHandler, data: bytes) -> Reply | None:
        reply = super()._before(handler, data)
        if reply is not None or ("files." not in handler.path and "/upload" not in handler.path):
            return reply
        if handler.path.endswith("getUploadURLExternal"):
            if not self.scope:
                return Reply.json(200, {"ok": False, "error": "missing_scope"})
            assert int(parse_qs(data.decode())["length"][0]) > 100
            return Reply.json(200, {"ok": True, "upload_url": f"{self.url}/upload/1", "file_id": "F1"})
        if handler.path == "/upload/1":
            self.uploads.append(data)
            return Reply.text(200, "OK - 1")
        self.finished.append(json.loads(data))
        return Reply.json(200, {"ok": True})


def test_slack_gets_it_into_the_thread_of_the_first_message() -> None:
    with PictureSlack() as slack:
        receiver = SlackReceiver(slack.bot(picture=True), HttpClient())
        first = receiver.notify(notification(with_course()))
        assert first.kind == "success"
        decode(slack.uploads[0])
        assert slack.finished[0]["thread_ts"] == first.ref["ts"]
        assert slack.finished[0]["channel_id"] == "C0LOCAL"
        receiver.notify(notification(with_course(), action="repeat", ref=dict(first.ref)))
        assert len(slack.uploads) == 1


def test_a_picture_that_cannot_be_sent_costs_no_message() -> None:
    with PictureSlack(scope=False) as slack:
        outcome = SlackReceiver(slack.bot(picture=True), HttpClient()).notify(notification(with_course()))
        assert outcome.kind == "success"
        assert outcome.ref["ts"]
        assert slack.uploads == []
    assert [path for path, _ in SlackConfig(api_url=Secret("https://x"), picture=True).check()] == ["picture"]


def test_discord_gets_it_with_the_message() -> None:
    class PictureDiscord(FakeDiscord):
        def _before(self, handler: BaseHTTPRequestHandler, data: bytes) -> Reply | None:
            kind = handler.headers["Content-Type"]
            if kind.startswith("multipart/form-data; boundary="):
                parts = data.split(b"--" + kind.rpartition("=")[2].encode())
                bodies = [part.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n") for part in parts]
                decode(bodies[2])
                data = bodies[1]
            return super()._before(handler, data)

    with PictureDiscord() as discord:
        from integrations.discord import DiscordReceiver

        receiver = DiscordReceiver(discord.config(picture=True), HttpClient())
        assert receiver.notify(notification(with_course())).kind == "success"
        assert receiver.notify(notification(alert())).kind == "success"
        assert len(discord.messages) == 2


def test_mail_has_it_attached() -> None:
    config = EmailConfig(to="a@x", from_="b@x", smarthost="h:25", picture=True)
    mail = EmailReceiver(config)._mail(notification(with_course()))
    (attached,) = mail.iter_attachments()
    assert attached.get_content_type() == "image/png"
    decode(attached.get_content())
    assert not list(EmailReceiver(config)._mail(notification(with_course(), action="resolve")).iter_attachments())
