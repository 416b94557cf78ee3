"""The terminal's view of a running daemon."""

from __future__ import annotations

import io
import json
import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from agent.api_client import ApiUnreachable, ask
from agent.model import Secret
from agent.status_view import probe, render, show
from agent.web.jsonable import jsonable
from integrations.terminal import visible_width
from tests.web.conftest import Serve
from tests.web.scene import NOW, MemoryView, bad_night, deadlock_alert, hostile_alert, quiet_night


def status_of(view: MemoryView) -> dict[str, object]:
    made = {"now": NOW, "health": view.health, "servers": view.server_list, "alerts": view.alerts()}
    loaded: dict[str, object] = json.loads(json.dumps(jsonable(made)))
    return loaded


def test_the_first_lines_say_it() -> None:
    lines = render(status_of(bad_night()), False, 100).splitlines()
    assert lines[1] == "■ trtllm-0 is stuck for 3m15s"
    assert lines[2] == "  214 requests wait and 40 run, but nothing finishes and no token comes out."
    assert lines[3] == "  cause: token budget deadlock (confirmed)"
    assert "kubectl delete pod trtllm-0" in lines[5]
    table = [line.split() for line in lines]
    assert ["■", "trtllm-0", "stuck", "3m15s", "214", "40", "0", "0", "97%", "tensorrt_llm"] in table
    assert "  - Receiver am-1 has refused 4 deliveries: is http://am-1:9093 up?" in lines


def test_what_to_do_is_said_to_its_end() -> None:
    view = bad_night()
    context = {**view.alert_list[0].context, "actions": ["Restart it: " + "word " * 30 + "and then rest."]}
    view.alert_list = [view.alert_list[0].with_(context=context)]
    said = render(status_of(view), False, 80)
    assert "and then rest." in said


def test_a_quiet_night() -> None:
    assert "✓ All is well: 2 at work, 1 idle, starting or slow" in render(status_of(quiet_night()), False, 100)
    assert "No server is watched yet" in render(status_of(MemoryView()), False, 80)


@pytest.mark.parametrize("width", [20, 40, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    view = bad_night()
    view.server_list[1] = replace(view.server_list[1], name="名前の長いサーバ" * 9, why="x" * 500)
    for line in render(status_of(view), False, width, {"trtllm-0": [1.0, 2.0, 0.0]}).splitlines():
        assert len(line) <= width
        if "名" not in line:
            assert visible_width(line) <= width


def test_hostile_text_cannot_drive_the_terminal() -> None:
    view = bad_night()
    text = "\x1b]0;owned\x07\x1b[2J\u202e\r\nFAKE LINE\x9b31m"
    view.alert_list = [hostile_alert(text).with_(server="trtllm-0")]
    view.server_list[0] = replace(view.server_list[0], why=text, engine=text)
    view.health = replace(view.health, problems=(text,))
    shown = render(status_of(view), False, 100)
    assert not any(char in shown for char in "\x1b\x07\x9b\u202e\r")
    assert "\nFAKE LINE" not in shown


def test_colours_only_when_wanted() -> None:
    assert "\x1b[" not in render(status_of(bad_night()), False, 100)
    assert "\x1b[31;1m■ trtllm-0 is stuck" in render(status_of(bad_night()), True, 100)


def test_the_command(serve: Serve) -> None:
    client = serve()
    out = io.StringIO()
    assert show(client.server.url, out=out) == 0
    assert "trtllm-0 is stuck" in out.getvalue()
    assert "DONE, 15 MIN" in out.getvalue()
    assert "▇" in out.getvalue() or "█" in out.getvalue()


def test_json_for_scripts(serve: Serve) -> None:
    out = io.StringIO()
    assert show(serve().server.url, as_json=True, out=out) == 0
    assert json.loads(out.getvalue())["servers"][0]["state"] == "stalled"


def test_watching_draws_anew_and_survives_a_daemon_that_goes(serve: Serve) -> None:
    client = serve()
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        client.view.server_list = quiet_night().server_list
        client.view.alert_list = []
        if len(pauses) == 2:
            client.server.close()

    out = io.StringIO()
    assert show(client.server.url, watch=True, out=out, sleep=sleep, rounds=3) == 1
    assert "trtllm-0 is stuck" in out.getvalue()
    assert "All is well" in out.getvalue()
    assert "does not answer" in out.getvalue()


def test_a_terminal_is_left_as_it_was(serve: Serve) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    out = Terminal()
    assert show(serve().server.url, watch=True, out=out, sleep=interrupted) == 0
    assert out.getvalue().startswith("\x1b[?1049h")
    assert out.getvalue().endswith("\x1b[?1049l")


def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def test_nobody_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert show(f"http://127.0.0.1:{closed_port()}") == 1
    assert "does not answer (Connection refused); does `wedgewatch run` run there?" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://[", "http://x:99999"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(ApiUnreachable, match="is no address"):
        ask(url, "/api/v1/status")


def test_the_token_comes_from_a_file_or_the_environment(serve: Serve, tmp_path: Path) -> None:
    url = serve(token=Secret("s3cret")).server.url
    with pytest.raises(ApiUnreachable, match="WEDGEWATCH_TOKEN_FILE"):
        ask(url, "/api/v1/status", environment={})
    (tmp_path / "token").write_text("s3cret\n")
    assert ask(url, "/api/v1/status", environment={"WEDGEWATCH_TOKEN_FILE": f"{tmp_path}/token"})[0] == 200
    assert ask(url, "/api/v1/status", environment={"WEDGEWATCH_TOKEN": "s3cret"})[0] == 200
    with pytest.raises(ApiUnreachable, match="cannot be read"):
        ask(url, "/api/v1/status", environment={"WEDGEWATCH_TOKEN_FILE": f"{tmp_path}/gone"})


def test_a_page_that_is_not_ours() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def answer() -> None:
            sock, _ = listener.accept()
            with sock:
                sock.recv(65536)
                sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ApiUnreachable, match="something that is not wedgewatch's"):
            ask(f"127.0.0.1:{listener.getsockname()[1]}", "/api/v1/status")
        thread.join()


# ---- probe -------------------------------------------------------------------------------------------------------


def test_the_exec_probe(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    view = bad_night()
    url = serve(view).server.url
    assert probe("trtllm-0", url) == 1
    assert "token_budget_deadlock, confirmed" in capsys.readouterr().out
    assert [probe(name, url) for name in ("vllm-0", "sglang-0", "vllm-1", "no such")] == [0, 0, 0, 0]
    view.pending_evidence = {deadlock_alert().fingerprint}
    assert probe("trtllm-0", url) == 0


def test_a_daemon_that_is_not_there_restarts_nobody() -> None:
    assert probe("trtllm-0", f"http://127.0.0.1:{closed_port()}") == 0
    assert probe("trtllm-0", "nonsense://") == 0
