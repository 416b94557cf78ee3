"""A wrong configuration is refused whole, with every fault; a running daemon keeps the old one."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.daemon.live import RULES, Live, MetricsServer, line, vllm_page

OTHER = RULES.replace("take note of", "mark the word")


def test_every_fault_is_named_at_its_place(live: Live) -> None:
    live.configure(
        "webb: {}\nreceivers: [{name: a, slack_configs: [{api_url: 5}]}]\nroute: {receiver: b}\n",
        rules=RULES.replace("failure: engine_dead", "failure: engine_ded").replace("within: 10m", "within: 10 minutes"),
    )
    live.start(ready=False)
    assert live.wait() == 2
    assert not live.stdout
    faults = live.stderr.splitlines()
    assert faults[-1].endswith("fault(s), nothing was started")
    assert all(row.count(":") >= 3 for row in faults[:-1])
    for wanted in ("'webb'", "did you mean 'web'", "unknown receiver 'b'", "engine_ded", "10 minutes"):
        assert wanted in live.stderr, wanted


def test_nothing_to_watch_and_too_much(live: Live) -> None:
    live.configure()
    live.start("-c", str(live.config_file), "--log", str(live.log), ready=False)
    assert live.wait() == 2
    assert "not both" in live.stderr


def test_sources_that_cannot_be_read_are_said_at_the_start(live: Live) -> None:
    live.configure(servers="servers: [{name: llama, logs: [{loki: {url: 'http://l:3100', query: '{app=\"x\"}'}}]}]\n")
    live.start(ready=False)
    assert live.wait() == 2
    assert "Loki" in live.stderr


def test_rules_are_taken_up_when_their_file_changes(live: Live) -> None:
    """Without a signal; what an unchanged rule has collected so far stays::

    I W                    | the other rule changes |            E
    EngineGone is half filled                        Noted by the new word
    """
    live.configure(rules=RULES)
    live.log.touch()
    live.start()
    live.write(line("I", "engine is set up"), line("W", "queue holds 5 requests"))
    live.counts("source_lines_read_total", 2, source="llama")
    live.rules_file.write_text(OTHER)
    live.says("configuration reloaded")
    live.write(line("I", "take note of nothing"), line("I", "mark the word reloaded"))
    assert live.fires("Noted")["stages"][0]["fields"] == {"what": "reloaded"}
    live.write(line("E", "engine loop died: after all"))
    assert [s["stage"] for s in live.fires("EngineGone")["stages"]] == ["start", "pressure", "symptom"]
    assert live.metric("config_last_reload_successful") == 1
    assert live.metric("source_lines_read_total", source="llama") == 5
    assert len([alert for alert in live.alerts("firing") if alert["alertname"] == "Noted"]) == 1
    assert live.stop() == 0


def test_a_bad_file_keeps_the_old_and_says_so(live: Live) -> None:
    live.configure(rules=RULES)
    live.log.touch()
    live.start()
    live.rules_file.write_text(RULES.replace("any: [", "anny: ["))
    live.says("reload refused")
    assert live.metric("config_last_reload_successful") == 0
    assert "anny" in live.api("health")["config_error"]
    assert any("anny" in text for text in live.api("health")["problems"])
    assert ":".join((str(live.rules_file), "8")) in live.stderr
    live.write(line("I", "take note of the old"))
    live.fires("Noted")
    live.rules_file.write_text(OTHER)
    live.says("configuration reloaded")
    live.until("it is well again", lambda: not live.api("health")["config_error"])
    assert live.stop() == 0


def test_a_mounted_config_map_is_swapped(live: Live) -> None:
    """Kubernetes swaps the folder behind a link::

    rules.d/noted.yaml -> ..data/noted.yaml,  ..data -> ..1, then -> ..2
    """
    mounted = live.folder / "rules.d"
    for version, text in (("..1", RULES), ("..2", OTHER)):
        (mounted / version).mkdir(parents=True)
        (mounted / version / "noted.yaml").write_text(text)
    data = mounted / "..data"
    data.symlink_to("..1")
    (mounted / "noted.yaml").symlink_to("..data/noted.yaml")
    live.rules_file = mounted
    live.configure()
    live.log.touch()
    live.start()
    live.write(line("I", "mark the word early"), line("I", "take note of one"))
    assert live.fires("Noted")["stages"][0]["fields"] == {"what": "one"}
    swap = Path(mounted / "..data_tmp")
    swap.symlink_to("..2")
    swap.replace(data)
    live.says("configuration reloaded")
    live.write(line("I", "mark the word late"))
    live.counts("rule_matches_total", 2, rule="Noted")
    assert live.stop() == 0


def test_servers_come_and_go_with_a_hangup(live: Live, server: MetricsServer) -> None:
    """A new server is watched, the old one goes on where it was, its look at metrics included."""
    other = live.folder / "other.log"
    metrics = f"metrics: {{url: '{server.url}/metrics'}}"
    one = f"  - {{name: one, logs: [{{path: {live.log}, poll_interval: 50ms}}], {metrics}}}\n"
    two = f"  - {{name: two, logs: [{{path: {other}, poll_interval: 50ms}}]}}\n"
    server.page = vllm_page(running=1)
    live.configure(servers="servers:\n" + one)
    live.log.touch()
    other.touch()
    live.start()
    live.write(line("I", "engine is set up"), line("W", "queue holds 5 requests"))
    live.counts("source_lines_read_total", 2, source="one")
    scrapes = live.metric("scrapes_total", server="one")
    live.configure(servers="servers:\n" + two + one)
    live.signal(signal.SIGHUP)
    live.says("2 servers")
    assert live.metric("scrapes_total", server="one") >= scrapes
    assert live.metric("source_lines_read_total", source="one") == 2
    live.dies()
    live.write(line("I", "take note of two"), path=other)
    assert live.fires("EngineGone")["server"] == "one"
    assert live.fires("Noted")["server"] == "two"
    live.configure(servers="servers:\n" + two)
    live.signal(signal.SIGHUP)
    live.until("one is gone", lambda: [s["name"] for s in live.api("servers")] == ["two"])
    assert {thread["name"] for thread in live.api("health")["threads"]} >= {"log two"}
    assert "log one" not in {thread["name"] for thread in live.api("health")["threads"]}
    assert live.stop() == 0


def test_a_state_folder_has_one_daemon(live: Live, tmp_path: Path, shared_cache: Path) -> None:
    live.configure()
    live.start()
    second = Live(tmp_path / "second", shared_cache)
    second.config_file = live.config_file
    try:
        second.start(ready=False)
        assert second.wait() == 2
        assert str(live.folder / "state") in second.stderr
    finally:
        second.close()
    assert not live.ended
    assert live.stop() == 0
