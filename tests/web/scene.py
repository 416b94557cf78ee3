"""A night at work, made of the example incidents: four servers, one stuck, for the page and the API to show.

Numbers come from the cases' own metrics and lines from their logs; the verdict on them is written here, so that the
tests of what is shown do not rest on what detects.
"""

from __future__ import annotations

import bisect
import io
import itertools
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from agent.model import Alert, Checklist, ProgressSummary, StageEvidence, alert_fingerprint, parse_rfc3339
from agent.web.view import (
    PLOT_SIGNALS,
    Change,
    ContextLine,
    Delivery,
    EvidenceFile,
    Health,
    Incident,
    MuteView,
    Observed,
    OnsetPoint,
    OnsetView,
    OutboxItem,
    Replica,
    RuleView,
    SeriesView,
    ServerView,
    SourceView,
    StageMatch,
    ThreadView,
    Transition,
)

CASES = Path(__file__).parent.parent / "cases"
NOW = parse_rfc3339("2026-11-20T09:05:10Z")
ONSET = parse_rfc3339("2026-11-20T09:01:55Z")

_SIGNALS = {
    "num_requests_waiting": "requests_waiting",
    "num_requests_running": "requests_running",
    "kv_cache_utilization": "kv_cache_usage_ratio",
    "kv_cache_usage_perc": "kv_cache_usage_ratio",
    "request_success_total": "finished_per_minute",
    "generation_tokens_total": "generation_tokens_per_second",
    "prompt_tokens_total": "prompt_tokens_per_second",
}
Points = list[tuple[float, float | None]]


def series_of_case(case: str) -> dict[tuple[str, str], Points]:
    """``(engine_index, signal) -> points`` of a case's metrics file; counters become rates."""
    raw: dict[tuple[str, str], Points] = {}
    for line in (CASES / case / "metrics.om").read_text().splitlines():
        match = re.fullmatch(r"(?:vllm:|trtllm_)(\w+)\{(.*)\} (\S+) (\S+)", line)
        if match and match[1] in _SIGNALS:
            engine = re.search(r'engine="(\d+)"', match[2])
            key = (engine[1] if engine else "", _SIGNALS[match[1]])
            raw.setdefault(key, []).append((float(match[4]), float(match[3])))
    rates = {"finished_per_minute": 60.0, "generation_tokens_per_second": 1.0, "prompt_tokens_per_second": 1.0}
    return {key: _rate(points, rates[key[1]]) if key[1] in rates else points for key, points in sorted(raw.items())}


def _rate(points: Points, scale: float) -> Points:
    out: Points = []
    for (t0, v0), (t1, v1) in itertools.pairwise(points):
        assert v0 is not None
        assert v1 is not None
        out.append((t1, max(0.0, v1 - v0) * scale / (t1 - t0)))
    return out


def moved(points: Points, shift: float, until: float) -> Points:
    """Points later in time, the last value held on to ``until``."""
    out = [(t + shift, v) for t, v in points]
    while out and out[-1][0] + 5 < until:
        out.append((out[-1][0] + 5, out[-1][1]))
    return [(t, v) for t, v in out if t <= until]


def wedge_series() -> dict[tuple[str, str], Points]:
    """The wedge of the case, looked at three minutes later: clients went on sending, so the queue kept growing."""
    series = {key: moved(points, 0, NOW) for key, points in series_of_case("trtllm-assertion-wedge").items()}
    waiting = series[("", "requests_waiting")]
    series[("", "requests_waiting")] = [(t, (v or 0) + max(0.0, round((t - ONSET) * 1.07))) for t, v in waiting]
    return series


def log_lines(case: str) -> list[str]:
    return (CASES / case / "server.log").read_text(errors="replace").splitlines()


def deadlock_alert() -> Alert:
    """The seed's failure as the core would hand it on, 3 minutes after the onset."""
    file = "/var/log/server/server.log"
    lines = log_lines("trtllm-assertion-wedge")

    def stage(name: str, needle: str, at: float, severity: str, count: int = 1, **fields: str) -> StageEvidence:
        number = next(index for index, line in enumerate(lines, 1) if needle in line)
        body = lines[number - 1].split("] ", 3)[-1]
        return StageEvidence(name, at, body, file, number, severity, fields, count)

    context_series = {signal: [[t, v] for t, v in points[-60:]] for (_, signal), points in wedge_series().items()}
    return Alert(
        alertname="TokenBudgetDeadlock",
        failure="token_budget_deadlock",
        state="firing",
        confidence="confirmed",
        severity="critical",
        server="trtllm-0",
        engine="tensorrt_llm",
        fingerprint=alert_fingerprint(alertname="TokenBudgetDeadlock", server="trtllm-0"),
        starts_at=ONSET,
        fired_at=parse_rfc3339("2026-11-20T09:02:11Z"),
        detected_at=parse_rfc3339("2026-11-20T09:02:11.412Z"),
        stages=(
            stage("start", "PyTorchConfig", ONSET - 113, "INFO", max_num_tokens="4096"),
            stage("pressure", "num_fitting_reqs=0", ONSET + 3, "WARN"),
            StageEvidence("symptom", ONSET + 5, "\n".join(lines[40:47]), file, 41, "ERROR", {}, 3),  # a whole traceback
            stage("loop_end", "Error in event loop", ONSET + 6, "ERROR"),
        ),
        progress=ProgressSummary("stalled", ONSET, 214, 40, 0, 0),
        checklist=Checklist(
            "yes", "yes: load was 1.9 times its 5-minute mean; no restart or change for 6h12m", "not run"
        ),
        labels={"alertname": "TokenBudgetDeadlock", "severity": "critical", "server": "trtllm-0", "cluster": "eu1"},
        annotations={
            "summary": "trtllm-0: scheduler deadlocked, no completions for 3m15s (214 waiting)",
            "description": "Admitted requests claim more of the token budget than it holds: none can advance and none "
            "can be admitted. The event loop ended on its own assertion; the HTTP front end still answers.",
            "runbook_url": "https://github.com/wedgewatch/wedgewatch/blob/main/docs/runbooks/token_budget_deadlock.md",
        },
        context={
            "before": {"finished_per_minute": 72, "tokens_per_second": 975, "requests_waiting": 5},
            "now": {"finished_per_minute": 0, "tokens_per_second": 0, "requests_waiting": 214},
            "series": context_series,
            "stalled_for": NOW - ONSET,
            "facts": {"max_batched_tokens": 4096, "max_running_requests": 64},
            "excluded": [
                "overload (would still finish, slowly)",
                "out of memory (no such line)",
                "client disconnects (0 aborts)",
            ],
            "actions": [
                "Keep evidence: it was taken at 09:02:12, see the proof.",
                "Restart: `kubectl delete pod trtllm-0`",
                "Prevent: cap concurrency at 48, or lower `--max_batch_size`; see the runbook.",
            ],
            "deadline_s": 10,
            "deadline_source": "the event loop's own last line",
        },
    )


def replica_alert() -> Alert:
    """One replica of four, last night; it was restarted."""
    start = NOW - 9 * 3600
    return Alert(
        alertname="SilentStall",
        failure="silent_stall",
        state="resolved",
        confidence="confirmed",
        severity="critical",
        server="vllm-0",
        engine="vllm",
        fingerprint=alert_fingerprint(alertname="SilentStall", server="vllm-0", engine_index="2"),
        starts_at=start,
        fired_at=start + 74,
        ends_at=start + 611,
        progress=ProgressSummary("stalled", start, 17, 8, 0, 0),
        checklist=Checklist("yes", "unknown", "not run"),
        labels={"alertname": "SilentStall", "server": "vllm-0", "engine_index": "2", "severity": "critical"},
        annotations={"summary": "vllm-0: replica 2 issues no work, no line says why (17 waiting)"},
        context={"engine_index": "2", "actions": ["Restart replica 2."]},
    )


def hostile_alert(text: str) -> Alert:
    """An alert whose every text came from an enemy."""
    return replace(
        deadlock_alert(),
        server=text[:200],
        alertname=text[:100],
        stages=(StageEvidence("symptom", ONSET, text, text[:100], 7, "ERROR", {text[:50]: text}),),
        annotations={"summary": text, "description": text, "runbook_url": "javascript:alert(1)"},
        labels={"server": text[:100]},
        context={**deadlock_alert().context, "actions": [text], "excluded": [text], "facts": {text[:40]: 1}},
        fingerprint="feedfacecafebeef",
    )


def incident_of(alert: Alert) -> Incident:
    fired = alert.fired_at or alert.starts_at
    lines = log_lines("trtllm-assertion-wedge")
    stage_lines = {stage.line: stage for stage in alert.stages}
    context = tuple(
        ContextLine(
            ONSET - 20 + index * 1.4,
            line,
            "/var/log/server/server.log",
            number,
            stage_lines[number].severity if number in stage_lines else "INFO",
            stage_lines[number].stage if number in stage_lines else "",
        )
        for index, (number, line) in enumerate(list(enumerate(lines, 1))[-22:])
    )
    sent = [
        Delivery(fired + 0.3, "oncall", "pagerduty", "trigger", "delivered", "202, 0.31 s"),
        Delivery(fired + 0.4, "chat", "slack", "post", "delivered", "200, 0.28 s"),
        Delivery(fired + 0.4, "am-1", "alertmanager", "firing", "pending", "connection refused, 4 attempts"),
    ]
    if alert.ends_at:
        sent.append(Delivery(alert.ends_at + 0.2, "oncall", "pagerduty", "resolve", "delivered", "202, 0.29 s"))
    history = [
        Transition(alert.starts_at + 6, "pending", "suspected", alert.failure, "the symptom's line came"),
        Transition(fired, "firing", "confirmed", alert.failure, "16 s busy without any progress"),
    ]
    if alert.ends_at:
        history.append(
            Transition(alert.ends_at, "resolved", "confirmed", alert.failure, "work went on after a restart")
        )
    return Incident(
        id=f"{alert.fingerprint}-{int(alert.starts_at)}",
        alert=alert,
        history=tuple(history),
        deliveries=tuple(sent),
        evidence=(
            EvidenceFile("alert.json", 6120),
            EvidenceFile("log/server.log", 98304, "the last 5 minutes"),
            EvidenceFile("metrics.txt", 40211),
            EvidenceFile("series.json", 22110),
            EvidenceFile("processes.txt", 2204),
            EvidenceFile("stacks/41.txt", 18220),
            EvidenceFile("gpu.txt", 0, "nvidia-smi is not installed here"),
        ),
        context=context,
        actions_taken=("dry run: would restart with /usr/local/bin/restart-model trtllm-0",),
    )


@dataclass
class MemoryView:
    """A View over values; tests change them and publish."""

    clock: float = NOW
    server_list: list[ServerView] = field(default_factory=list)
    series_map: dict[str, dict[tuple[str, str], Points]] = field(default_factory=dict)
    alert_list: list[Alert] = field(default_factory=list)
    incident_list: list[Incident] = field(default_factory=list)
    rule_list: list[RuleView] = field(default_factory=list)
    source_list: list[SourceView] = field(default_factory=list)
    outbox_list: list[OutboxItem] = field(default_factory=list)
    onsets: dict[str, OnsetView] = field(default_factory=dict)
    health: Health = field(default_factory=lambda: Health("0.1.0", True, NOW - 86400 * 3))
    pending_evidence: set[str] = field(default_factory=set)
    mute_list: list[MuteView] = field(default_factory=list)
    observed_report: Observed | None = None
    reload_fault: str = ""
    reloads: int = 0
    retried: list[int] = field(default_factory=list)

    def now(self) -> float:
        return self.clock

    def servers(self) -> Sequence[ServerView]:
        return list(self.server_list)

    def series(
        self, server: str, engine_index: str, signal: str, since: float, until: float, points: int
    ) -> Sequence[SeriesView]:
        out = []
        for (engine, name), full in self.series_map.get(server, {}).items():
            if engine_index not in ("", engine) or signal not in ("", name):
                continue
            times = [t for t, _ in full]
            part = full[bisect.bisect_right(times, since) : bisect.bisect_right(times, until)]
            step = max(1, -(-len(part) // points))
            out.append(SeriesView(server, name, part[::step], engine, PLOT_SIGNALS[name]))
        return out

    def alerts(self) -> Sequence[Alert]:
        return [alert for alert in self.alert_list if alert.state != "resolved"]

    def incidents(self, limit: int, server: str = "") -> Sequence[Incident]:
        return [item for item in self.incident_list if server in ("", item.alert.server)][:limit]

    def incident(self, incident_id: str) -> Incident | None:
        return next((item for item in self.incident_list if item.id == incident_id), None)

    def incident_tar(self, incident_id: str) -> tuple[int, Iterator[bytes]] | None:
        if self.incident(incident_id) is None:
            return None
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            info = tarfile.TarInfo("alert.json")
            info.size = 2
            tar.addfile(info, io.BytesIO(b"{}"))
        data = buffer.getvalue()
        return len(data), iter([data[:1000], data[1000:]])

    def rules(self) -> Sequence[RuleView]:
        return list(self.rule_list)

    def sources(self) -> Sequence[SourceView]:
        return list(self.source_list)

    def outbox(self) -> Sequence[OutboxItem]:
        return list(self.outbox_list)

    def onset(self, server: str) -> OnsetView | None:
        return self.onsets.get(server)

    def self_health(self) -> Health:
        return self.health

    def observed(self) -> Observed | None:
        return self.observed_report

    def evidence_pending(self, alert: Alert) -> bool:
        return alert.fingerprint in self.pending_evidence

    def mutes(self) -> Sequence[MuteView]:
        return list(self.mute_list)

    def mute(self, matchers: Sequence[str], seconds: float, comment: str) -> MuteView:
        for matcher in matchers:
            if "=" not in matcher:
                raise ValueError(f'matcher {matcher!r} has no =; write for example server="llama-0"')
        made = MuteView(f"m{len(self.mute_list) + 1}", tuple(matchers), self.clock, self.clock + seconds, comment)
        self.mute_list.append(made)
        return made

    def unmute(self, mute_id: str) -> bool:
        before = len(self.mute_list)
        self.mute_list = [item for item in self.mute_list if item.id != mute_id]
        return len(self.mute_list) < before

    def retry_outbox(self, item_id: int) -> bool:
        self.retried.append(item_id)
        return any(item.id == item_id for item in self.outbox_list)

    def reload(self) -> str:
        self.reloads += 1
        return self.reload_fault


def bad_night() -> MemoryView:
    """trtllm-0 is stuck, vllm-0 serves with four replicas, sglang-0 idles, vllm-1 cannot be seen."""
    alert = deadlock_alert()
    wedge = wedge_series()
    healthy_raw = series_of_case("vllm-one-replica-of-four")
    shift = NOW - max(points[-1][0] for points in healthy_raw.values())
    healthy: dict[tuple[str, str], Points] = {
        (engine, signal): [(t + shift, v) for t, v in healthy_raw[("0", signal)]] for engine, signal in healthy_raw
    }
    idle: dict[tuple[str, str], Points] = {
        ("", signal): [(NOW - 895 + 5 * i, 0.0) for i in range(180)] for signal in PLOT_SIGNALS
    }
    gap: dict[tuple[str, str], Points] = {
        ("", signal): [(t, v if t < NOW - 95 else None) for t, v in healthy[("0", signal)]] for signal in PLOT_SIGNALS
    }

    def last(series: Mapping[tuple[str, str], Points], engine: str) -> dict[str, float]:
        return {
            signal: points[-1][1]
            for (index, signal), points in series.items()
            if index == engine and points and points[-1][1] is not None
        }

    def total(series: Mapping[tuple[str, str], Points]) -> dict[str, float]:
        out: dict[str, float] = {}
        for index in {index for index, _ in series}:
            for signal, value in last(series, index).items():
                out[signal] = max(out.get(signal, 0), value) if "ratio" in signal else out.get(signal, 0) + value
        return out

    servers = [
        ServerView(
            "trtllm-0", "tensorrt_llm", "stalled", ONSET,
            "214 requests wait and 40 run, but nothing finishes and no token comes out.",
            {"model": "llama-3-70b", "cluster": "eu1"},
            {"requests_waiting": 214, "requests_running": 40, "finished_per_minute": 0,
             "generation_tokens_per_second": 0, "kv_cache_usage_ratio": 0.97},
            (Replica("", "stalled", ONSET, ONSET),), ONSET, NOW - 189, NOW - 2, "", NOW - 22400, 10.0,
            "the event loop's own last line", {"max_batched_tokens": 4096, "max_running_requests": 64},
        ),
        ServerView(
            "vllm-0", "vllm", "serving", NOW - 31000, "Requests finish and tokens flow on all 4 replicas.",
            {"model": "qwen3-32b", "cluster": "eu1"}, total(healthy),
            tuple(Replica(str(i), "serving", NOW - 31000 + 9 * i, NOW - 1, last(healthy, str(i))) for i in range(4)),
            NOW - 1, NOW - 4, NOW - 3, "", NOW - 90000, 41.0, "the gaps between 5,210 signs of progress",
        ),
        ServerView(
            "sglang-0", "sglang", "idle", NOW - 7300, "No request is waiting or running.", {"cluster": "eu1"},
            {"requests_waiting": 0, "requests_running": 0, "finished_per_minute": 0,
             "generation_tokens_per_second": 0, "kv_cache_usage_ratio": 0.0},
            (Replica("", "idle", NOW - 7300, NOW - 7300),), NOW - 7300, NOW - 30, NOW - 1, "", NOW - 200000, 120.0,
            "the cautious start (too little history)",
        ),
        ServerView(
            "vllm-1", "vllm", "unknown", NOW - 95,
            "Its metrics page does not answer, so it is not known whether work goes on.", {"cluster": "eu1"},
            {}, (Replica("", "unknown", NOW - 95),), NOW - 96, NOW - 90, NOW - 95,
            "no answer within 3 s from http://10.0.4.7:8000/metrics", NOW - 50000, 41.0, "the gaps seen so far",
        ),
    ]  # fmt: skip
    return MemoryView(
        server_list=servers,
        series_map={"trtllm-0": wedge, "vllm-0": healthy, "sglang-0": idle, "vllm-1": gap},
        alert_list=[alert],
        incident_list=[incident_of(alert), incident_of(replica_alert())],
        rule_list=[
            RuleView(
                "TokenBudgetDeadlock", "token_budget_deadlock", "stalled", "critical", ("tensorrt_llm",),
                (StageMatch("start", 3, NOW - 300, True), StageMatch("pressure", 5, NOW - 192, True),
                 StageMatch("symptom", 4, NOW - 189), StageMatch("loop_end", 1, NOW - 189, True)),
                "stalled", "requests_waiting > 0", 10.0, "{{ server }}: scheduler deadlocked",
                "rules/packs/tensorrt_llm.yaml", 1, NOW - 189, NOW - 179,
            ),
            RuleView(
                "SilentStall", "silent_stall", "stalled", "critical", (), (), "stalled", "", 0.0,
                "{{ server }}: issues no work and no line says why", "rules/packs/common.yaml", 1, None, NOW - 32326,
            ),
            RuleView("EngineDead", "engine_dead", "dead", "critical", ("vllm",), (StageMatch("symptom"),),
                     file="rules/packs/vllm.yaml"),
            RuleView("Overload", "overload", "degraded", "warning", (), (), "saturated", "", 300.0,
                     file="rules/packs/common.yaml", fired=4, last_fired=NOW - 86000),
        ],
        source_list=[
            SourceView("trtllm-0", "/var/log/server/*.log", "file", 1, 184213, 31804512, 0, NOW - 189, 2),
            SourceView("vllm-0", "unit vllm.service", "journald", 0, 902144, 120442112, 0, NOW - 4),
            SourceView("sglang-0", "/var/log/sglang.log", "file", 1, 20114, 4102442, 0, NOW - 30, 1),
            SourceView("vllm-1", "/var/log/vllm-1.log", "file", 0, 0, 0, 0, None, 0, 0,
                       "permission denied: run as a user of group adm, or change the file's mode"),
        ],
        outbox_list=[
            OutboxItem(91, alert.fingerprint, "am-1", "alertmanager", "firing", "pending", NOW - 179, 4, NOW + 8,
                       "connection refused"),
        ],
        onsets={
            "trtllm-0": OnsetView(
                "trtllm-0", "requests running",
                tuple(OnsetPoint(NOW - back, load, "token_budget_deadlock") for back, load in
                      ((195, 64), (86000, 61), (180000, 66), (260500, 63))),
                tuple((float(low), low + 4.0, seconds) for low, seconds in
                      zip(range(0, 68, 4), (3600, 2400, 9000, 14000, 21000, 30100, 42000, 51000, 60200, 48000, 36100,
                                            22000, 11000, 4100, 900, 240, 30), strict=True)),
                (Change(NOW - 22400, "restart"), Change(NOW - 200000, "version 1.0.0 -> 1.1.0")),
                60.5, 58.0, 63.0, 52.0, 48.0,
                "Load explains the onsets 48 times better than restarts or changes do (4 onsets).",
            )
        },
        health=Health(
            "0.1.0", True, NOW - 86400 * 3,
            ("Receiver am-1 has refused 4 deliveries: is http://am-1:9093 up?",
             "Source /var/log/vllm-1.log cannot be read: permission denied."),
            (ThreadView("logs", True, NOW - 0.2), ThreadView("scrape vllm-0", True, NOW - 3),
             ThreadView("detect", True, NOW - 0.1),
             ThreadView("notify oncall", True, NOW - 1),
             ThreadView("notify am-1", True, NOW - 2, 0, "connection refused")),
            False, "/etc/wedgewatch/wedgewatch.yaml", NOW - 86400 * 3, "", 44_100_000, 812.4, 8_400_000, 310.0,
            "hyperscan",
        ),
    )  # fmt: skip


def quiet_night() -> MemoryView:
    """Everything works: what the page shows on almost every night."""
    view = bad_night()
    view.alert_list = []
    view.incident_list = view.incident_list[1:]
    healthy = view.series_map["vllm-0"]
    serving = view.server_list[1]
    view.server_list = [
        replace(
            serving, name=name, engine=engine, why="Requests finish and tokens flow.", replicas=serving.replicas[:1]
        )
        for name, engine in (("trtllm-0", "tensorrt_llm"), ("vllm-0", "vllm"))
    ] + [view.server_list[2]]
    view.series_map = {"trtllm-0": {("", s): p for (e, s), p in healthy.items() if e == "0"}, **view.series_map}
    view.series_map["trtllm-0"] = {("", s): p for (e, s), p in healthy.items() if e == "0"}
    view.health = replace(view.health, problems=())
    view.outbox_list = []
    view.source_list = view.source_list[:3]
    return view
