"""A log is followed whatever happens to it, and to us."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.daemon.live import Live, line


def test_a_missing_log_is_waited_for(live: Live) -> None:
    live.configure()
    live.start()
    live.says("waiting for it")
    assert live.metric("source_up", source="llama") == 0
    live.dies()
    alert = live.fires("EngineGone")
    assert alert["server"] == "llama"
    assert [stage["stage"] for stage in alert["stages"]] == ["start", "pressure", "symptom"]
    assert alert["stages"][2]["fields"]["why"] == "budget"
    assert (alert["stages"][2]["file"], alert["stages"][2]["line"]) == (str(live.log), 3)
    assert live.metric("source_up", source="llama") == 1
    assert live.stop() == 0


def test_renamed_and_copied_logs_are_followed(live: Live) -> None:
    """::

    server.log  I W | renamed, new file      E |          copied, truncated     take note
                    ^ read to here, no gap  ^  ^ EngineGone                  ^ ^ Noted
    """
    live.configure()
    live.log.touch()
    live.start()
    live.write(line("I", "engine is set up"), line("W", "queue holds 3 requests"))
    live.counts("source_lines_read_total", 2, source="llama")
    live.log.rename(live.folder / "server.log.1")
    live.write(line("I", "hello again"), line("E", "engine loop died: rotated"))
    alert = live.fires("EngineGone")
    assert [stage["line"] for stage in alert["stages"]] == [1, 2, 2]
    assert live.metric("source_rotations_total", source="llama") == 1

    (live.folder / "server.log.2").write_bytes(live.log.read_bytes())
    os.truncate(live.log, 0)
    live.counts("source_truncations_total", 1, source="llama")
    live.write(line("I", "take note of truncation"))
    assert live.fires("Noted")["stages"][0]["line"] == 1
    assert live.metric("source_lines_read_total", source="llama") == 5
    assert live.stop() == 0


def test_a_restart_in_the_middle_of_a_fingerprint(live: Live) -> None:
    live.configure()
    live.log.touch()
    live.start()
    live.write(line("I", "engine is set up"), line("W", "queue holds 12 requests"))
    live.counts("source_lines_read_total", 2, source="llama")
    assert live.stop() == 0
    assert not live.alerts()
    live.start()
    live.write(line("E", "engine loop died: later"))
    alert = live.fires("EngineGone")
    assert [stage["stage"] for stage in alert["stages"]] == ["start", "pressure", "symptom"]
    assert alert["stages"][1]["fields"]["waiting"] == "12"
    assert live.stop() == 0


def test_what_was_written_while_we_were_down_pages(live: Live) -> None:
    """The daemon is away, the server dies, its log is rotated, and minutes pass."""
    live.configure()
    live.log.touch()
    live.start()
    live.write(line("I", "engine is set up", time.time() - 300))
    live.counts("source_lines_read_total", 1, source="llama")
    live.stop()
    live.write(line("W", "queue holds 9 requests", time.time() - 200))
    live.log.rename(live.folder / "server.log.1")
    live.write(line("E", "engine loop died: alone", time.time() - 180))
    live.start()
    alert = live.fires("EngineGone")
    assert alert["stages"][1]["fields"]["waiting"] == "9"
    assert live.api("alerts")[0]["fingerprint"] == alert["fingerprint"]
    assert live.stop() == 0


def test_two_logs_of_one_server_are_told_in_order_of_time(live: Live) -> None:
    """The error stands in the file that is read first, its warning in the other::

    a.log                          E
    b.log            I       W
    """
    first, second = live.folder / "a.log", live.folder / "b.log"
    sources = f"{{path: {first}, start_at: beginning}}, {{path: {second}, start_at: beginning}}"
    live.configure(servers=f"servers: [{{name: llama, logs: [{sources}]}}]\n")
    now = time.time()
    live.write(line("E", "engine loop died: apart", now + 2), path=first)
    live.write(line("I", "engine is set up", now - 9), line("W", "queue holds 4 requests", now - 8), path=second)
    live.start()
    alert = live.fires("EngineGone")
    assert [Path(stage["file"]).name for stage in alert["stages"]] == ["b.log", "b.log", "a.log"]
    assert live.stop() == 0
