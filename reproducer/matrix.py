"""Everything that docs/reproducer.md states as a number, measured by one command.

Each section returns Markdown. ``matrix --write FILE`` puts them between the markers of that file, with the date and the
kind of machine; nobody types a figure into the documentation.
"""

from __future__ import annotations

import io
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from .config import Config, preset
from .live import paged_live, run_live
from .published import RATES, REPORTED, published_matrix
from .replay import replay
from .siblings import SCENARIOS
from .simulate import simulate
from .threshold import Curve, onset, plot
from .users import Population, population_for

__all__ = ["SECTIONS", "matrix"]

BEGIN, END = "<!-- matrix: begin -->", "<!-- matrix: end -->"
Tell = Callable[[str], None]
Section = Callable[[bool, Tell], str]


def bounds(quick: bool, tell: Tell) -> str:
    """At the provable bound nothing wedges; at one and a half times the onset nearly everything does."""
    seeds, rows = (40 if quick else 200), []
    for profile, onset_at in (("draft", 17.5), ("deadlock", 11.8), ("prefill", 11.9), ("transfer", 4.1)):
        config = preset(profile)
        tell(f"{profile} at and above its bounds")
        began = time.process_time()
        below = sum(_wedges(config, config.safe_concurrency, seed, 600) for seed in range(seeds))
        seconds = time.process_time() - began
        above = sum(_wedges(config, round(1.5 * onset_at), seed, 3000) for seed in range(20))
        rows.append(
            f"| {profile} | {config.safe_concurrency} | {below} of {seeds} | {seconds:.0f} s "
            f"| {round(1.5 * onset_at)} | {above} of 20 |"
        )
    head = "| profile | provably safe up to | wedges there | CPU time | 1.5x the onset | wedges there |"
    return "\n".join((head, "|---|---|---|---|---|---|", *rows))


def curves(quick: bool, tell: Tell) -> str:
    """Onset, interval, width, prediction."""
    measured = measure_curves(quick, tell)
    head = "| profile | C50 | 95% interval | width 10-90% | width / C50 | predicted | provably safe |"
    rows = []
    for curve in measured:
        predicted = f"{curve.predicted['low']} to {curve.predicted['high']}" if curve.predicted else "-"
        rows.append(
            f"| {curve.profile} | {curve.c50:.1f} | {curve.low:.1f} to {curve.high:.1f} | {curve.width:.1f} "
            f"| {curve.width / curve.c50:.0%} | {predicted} | {curve.safe or 'none'} |"
        )
    notes = [f"`{curve.profile}` is not a threshold: {curve.falls}." for curve in measured if curve.falls]
    return "\n".join((head, "|---|---|---|---|---|---|---|", *rows, "", *notes))


def measure_curves(quick: bool, tell: Tell) -> list[Curve]:
    if not (measured := _CURVES.get(quick)):
        measured = _CURVES[quick] = [
            onset(preset(profile), runs=6 if quick else 16, steps=1500 if quick else 3000, tell=tell)
            for profile in ("draft", "deadlock", "prefill", "transfer", "reuse")
        ]
    return measured


_CURVES: dict[bool, list[Curve]] = {}


def replays(quick: bool, tell: Tell) -> str:
    """The two-sided replay of each mechanism."""
    parts = []
    for profile, users in (("draft", 27), ("deadlock", 18), ("prefill", 18), ("transfer", 8), ("oversize", 8)):
        result = replay(preset(profile), users, seeds=4 if quick else 10, steps=1500 if quick else 3000, tell=tell)
        parts.append(f"**{profile}**, {users} users. {result.answer}\n\n{result.table()}")
    return "\n\n".join(parts)


def controls(quick: bool, tell: Tell) -> str:
    """Arrivals at one and a half times what the pool can serve: the controls grow a queue and go on completing."""
    seeds, steps, rows = (4 if quick else 10), (3000 if quick else 8000), []
    for profile in ("reserve", "preempt", "deadlock"):
        config = preset(profile)
        full = simulate(
            preset("preempt" if profile == "deadlock" else profile), Population(seed=99), users=64, steps=3000
        )
        rate = 1.5 * full.completed / full.steps
        tell(f"{profile} at 1.5x capacity")
        runs = [
            simulate(config.with_(seed=seed), Population(seed=seed), arrivals_per_step=rate, steps=steps)
            for seed in range(seeds)
        ]
        queue = sorted(run.waiting for run in runs)
        silence = max(run.largest_silence for run in runs)
        rows.append(
            f"| {profile} | {1000 * rate:.0f} | {sum(1 for run in runs if run.wedged)} of {seeds} "
            f"| {queue[0]} to {queue[-1]} | {min(run.completed for run in runs)} | {silence} |"
        )
    head = (
        "| profile | arrivals / 1000 steps | wedged | waiting at the end | completed, least | longest silence, steps |"
    )
    return "\n".join((head, "|---|---|---|---|---|---|", *rows))


def end_to_end(quick: bool, tell: Tell) -> str:
    """Over HTTP with the model, on this machine: seconds from the first request to the wedge."""
    rows = []
    for profile, users in (("draft", 26), ("deadlock", 18), ("prefill", 18), ("transfer", 8)):
        tell(f"{profile} end to end")
        runs = [run_live(preset(profile), users, seed, seconds=60) for seed in range(3 if quick else 9)]
        wedged = sorted(run.step / 1000 for run in runs if run.wedged)
        median = f"{wedged[len(wedged) // 2]:.1f} s" if wedged else "-"
        rows.append(
            f"| {profile} | {users} | {len(wedged)} of {len(runs)} | {median} | {max(wedged, default=0):.1f} s |"
        )
    head = "| profile | users | wedged | median time to the wedge | longest |"
    return "\n".join((head, "|---|---|---|---|---|", *rows))


def afterwards(quick: bool, tell: Tell) -> str:
    """A minute after the wedge, then a restart, then the same load again."""
    from .fingerprint import fingerprint
    from .live import arguments_for

    rows = []
    for profile in ("draft", "deadlock"):
        tell(f"{profile}: what is left after the wedge")
        config = preset(profile)
        for attempt in ("first", "after a restart, same load"):
            with tempfile.TemporaryDirectory() as folder:
                result = fingerprint(
                    config,
                    Path(folder),
                    serve_arguments=arguments_for(config),
                    levels=(4, 27 if profile == "draft" else 18),
                    level_seconds=20,
                    after_seconds=15 if quick else 60,
                )
            wedge: dict[str, Any] = result["wedge"] or {}
            last = result["queue"][-1]
            queue = last["running"] + last["waiting"] + last["unanswered"]
            rows.append(
                f"| {profile} | {attempt} | {wedge.get('mode', 'none')} | {wedge.get('seconds', '-')} s "
                f"| {result['completed']} | +{wedge.get('completed_since')} | {wedge.get('accepted_since')} | {queue} "
                f"| {wedge.get('http_after', {}).get('/health')}, {wedge.get('http_after', {}).get('/v1/models')} |"
            )
    head = (
        "| profile | run | wedge | after | completed before | since | accepted since | open now | /health, /v1/models |"
    )
    return "\n".join((head, "|---|---|---|---|---|---|---|---|---|", *rows))


def watched(quick: bool, tell: Tell, names: Sequence[str] = tuple(SCENARIOS)) -> str:
    """wedgewatch on the virtual scenarios: named rightly, and how long after the last step it fired."""
    rows, seeds = [], (5 if quick else 20)
    for name in names:
        scenario = SCENARIOS[name]
        right, delays, said = 0, [], set()
        for seed in range(seeds):
            tell(f"{name}, seed {seed}")
            fired, last_step = _scan(name, seed)
            pages = [alert["failure"] for alert in fired if alert["severity"] == "critical"]
            warnings = [alert["failure"] for alert in fired if alert["severity"] != "critical"]
            said |= {*pages, *warnings}
            good = set(warnings) <= set(scenario.warnings)
            right += good and (bool(pages) and set(pages) <= set(scenario.pages) if scenario.pages else not pages)
            delays += [
                _after(alert, last_step) for alert in fired if alert["severity"] == "critical" and scenario.pages
            ]
        delays.sort()
        spent = f"{delays[len(delays) // 2]:.0f} s, {delays[-1]:.0f} s" if delays else "-"
        rows.append(f"| {name} | {scenario.about} | {right} of {seeds} | {', '.join(sorted(said)) or '-'} | {spent} |")
    head = "| scenario | what happens | right | said | fired after the last step: median, longest |"
    return "\n".join((head, "|---|---|---|---|---|", *rows))


def live(quick: bool, tell: Tell) -> str:
    """The daemon itself beside a live server: 45 s of four users, then more than the profile can bear.

    Most of it is waiting, so four servers are watched at once.
    """
    runs, loads = (2 if quick else 5), {"draft": 27, "deadlock": 18, "prefill": 18, "transfer": 8}

    def page(profile: str, seed: int) -> tuple[str, str, float]:
        tell(f"{profile} live, seed {seed}")
        return paged_live(preset(profile), loads[profile], seed)

    with ThreadPoolExecutor(len(loads)) as pool:
        pages = {profile: [pool.submit(page, profile, seed) for seed in range(runs)] for profile in loads}
    rows = []
    for profile, users in loads.items():
        got = [future.result() for future in pages[profile]]
        right = sum(1 for failure, sure, _ in got if (failure, sure) == (SCENARIOS[profile].pages[0], "confirmed"))
        said = ", ".join(sorted({failure or "nothing" for failure, _, _ in got}))
        delays = sorted(seconds for _, _, seconds in got)
        spent = f"{delays[len(delays) // 2]:.0f} s, {delays[-1]:.0f} s"
        rows.append(f"| {profile} | {users} | {right} of {runs} | {said} | {spent} |")
    head = "| profile | users | right and confirmed | said | paged after the last step: median, longest |"
    return "\n".join((head, "|---|---|---|---|---|", *rows))


def published(quick: bool, tell: Tell) -> str:
    """The reported matrix and ours."""
    cells = published_matrix(seeds=3 if quick else 10, tell=tell)
    rows = []
    for cell in cells:
        switch = "on" if cell.reuse else "off"
        reported = REPORTED.get((cell.hard, switch, cell.rate), "not run") if cell.hard == cell.packed else "-"
        rows.append(
            f"| {cell.hard} | {cell.packed} | {switch} | {cell.rate} | {reported} "
            f"| {cell.wedges} of {len(cell.outcomes)} ({cell.example}) |"
        )
    assert len(cells) % len(RATES) == 0
    head = "| H | A | reuse | requests / s | reported (one run each) | here, runs that wedge (largest step) |"
    note = (
        "Off is partial reuse off in the report, and all reuse off here: nobody is discounted then, and nothing grows. "
        "The last rows are the same loads with room between A and H."
    )
    return "\n".join((head, "|---|---|---|---|---|---|", *rows, "", note))


def without_assertions(quick: bool, tell: Tell) -> str:
    """The same runs with ``python`` and ``python -O``."""
    tell("python -O")
    rows = []
    for flag in ((), ("-O",)):
        words = [sys.executable, *flag, "-c", _PROGRAM]
        done = json.loads(subprocess.run(words, capture_output=True, text=True, check=True, timeout=300).stdout)
        rows.append(
            f"| `{' '.join(('python', *flag))}` | {done['draft']} | {', '.join(done['how_draft'])} "
            f"| {done['deadlock']} | {', '.join(done['how_deadlock'])} |"
        )
    head = "| | draft: wedge step of seeds 0-4 | how | deadlock: wedge step of seeds 0-4 | how |"
    return "\n".join((head, "|---|---|---|---|---|", *rows))


_PROGRAM: Final = """
import json
from reproducer.config import preset
from reproducer.simulate import simulate
from reproducer.users import population_for

def run(profile, users):
    return [simulate(preset(profile, seed=s), population_for(profile, 384, s), users=users) for s in range(5)]

def how(outcomes):
    return sorted({outcome.error or "nothing scheduled" for outcome in outcomes})

draft, deadlock = run("draft", 27), run("deadlock", 18)
print(json.dumps({
    "draft": [o.step for o in draft], "how_draft": how(draft),
    "deadlock": [o.step for o in deadlock], "how_deadlock": how(deadlock),
}))
"""


def on_a_card(quick: bool, tell: Tell) -> str:
    """CPU against CUDA on the step clock, memory, and bandwidth; says why it is skipped when there is no card."""
    import torch

    if not torch.cuda.is_available():
        return "Not run: this machine has no CUDA device."
    from .bandwidth import decode_bandwidth
    from .build import build, device_report
    from .stepclock import wedge_step

    tell("CUDA")

    config = preset("deadlock")
    same = [(wedge_step(config, 18, seed, "cpu"), wedge_step(config, 18, seed, "cuda")) for seed in range(3)]
    built = build(preset("draft"), io.StringIO(), device="cuda", large=True)
    speed = decode_bandwidth(built.runner, built.engine.config, rows=128, context=1024)
    report = {**device_report(built), **speed.to_json()}
    lines = [f"Wedge step, deadlock profile, seeds 0-2, (CPU, CUDA): {same}.", ""]
    return "\n".join([*lines, *(f"- {key}: {value}" for key, value in report.items())])


SECTIONS: Final[dict[str, tuple[str, Section]]] = {
    "bounds": ("Below the bound, above the onset", bounds),
    "curves": ("The onset", curves),
    "replays": ("Two-sided headroom replay", replays),
    "controls": ("Controls at 1.5x capacity", controls),
    "end-to-end": ("End to end, over HTTP, with the model", end_to_end),
    "afterwards": ("A minute later, and after a restart", afterwards),
    "watched": ("wedgewatch against it, in virtual time, 5 s scrapes", watched),
    "live": ("wedgewatch run beside it, live, 5 s scrapes, in the server's first minutes", live),
    "published": ("The published matrix, in kind", published),
    "assertions-off": ("Without assertions", without_assertions),
    "card": ("On a card", on_a_card),
}


def matrix(
    names: Sequence[str], *, quick: bool, write: Path | None, plot_to: Path | None, tell: Tell = lambda _: None
) -> int:
    """Run the sections; 2 when a name is none."""
    known = {*SECTIONS, *(f"watched:{name}" for name in SCENARIOS)}
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"no section {unknown[0]!r}; there are {', '.join(SECTIONS)}, and watched:SCENARIO")
    written = _read(write) if write else {}
    for name in names or SECTIONS:
        title, section = SECTIONS[name.partition(":")[0]]
        body = section(quick, tell) if name in SECTIONS else _with_row(written.get(title, ""), name, quick, tell)
        written[title] = f"{body}\n\n_{_machine()}{', quick' if quick else ''}_"
        print(f"\n### {title}\n\n{written[title]}", flush=True)
        if write:
            _write(write, written)
    if plot_to:
        drawn = [curve for curve in measure_curves(quick, tell) if curve.profile in ("draft", "deadlock")]
        plot(drawn, plot_to, subtitle=f"python -m reproducer matrix curves --plot, {_machine()}")
    return 0


def _with_row(table: str, name: str, quick: bool, tell: Tell) -> str:
    """The table of ``watched`` with one scenario measured anew; all of them together take most of an hour."""
    fresh = watched(quick, tell, [name.partition(":")[2]]).splitlines()
    rows = {row.split("|")[1].strip(): row for row in [*table.splitlines(), *fresh] if row.startswith("| ")}
    return "\n".join([*fresh[:2], *(rows[known] for known in SCENARIOS if known in rows)])


def _wedges(config: Config, users: int, seed: int, steps: int) -> bool:
    population = population_for(config.profile, config.max_seq_len, seed)
    return bool(simulate(config.with_(seed=seed), population, users=users, steps=steps).wedged)


def _scan(name: str, seed: int, minutes: float = 0.0) -> tuple[list[dict[str, Any]], float]:
    """(each alert's last firing line, time of the last step) of a scenario under ``wedgewatch scan``."""
    scenario = SCENARIOS[name]
    world = scenario.build(seed).run(minutes or scenario.minutes)
    with tempfile.TemporaryDirectory() as folder:
        log, metrics = Path(folder, "server.log"), Path(folder, "metrics.om")
        log.write_text(world.log())
        metrics.write_text(world.metrics())
        words = [sys.executable, "-m", "agent", "scan", "--json", "--metrics", str(metrics), str(log)]
        done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"wedgewatch scan: {done.stderr.strip()[-500:]}")
    fired: dict[str, dict[str, Any]] = {}
    for line in done.stdout.splitlines():
        row = json.loads(line)
        if row["kind"] == "alert" and row["state"] == "firing":
            fired[row["fingerprint"]] = row
    return list(fired.values()), world.died or world.last_step


def _after(alert: dict[str, Any], last_step: float) -> float:
    """Seconds from the last step to the page."""
    return datetime.fromisoformat(alert["fired_at"]).timestamp() - last_step


def _machine() -> str:
    """When and on what, without a name that leads anywhere."""
    try:
        import torch

        with_torch = f", torch {torch.__version__}"
    except ImportError:
        with_torch = ""
    day = datetime.now(UTC).strftime("%Y-%m-%d")
    return f"{day}, {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}{with_torch}"


def _read(path: Path) -> dict[str, str]:
    text = path.read_text()
    if BEGIN not in text or END not in text:
        raise ValueError(f"{path}: no place for the tables; it needs the lines {BEGIN} and {END}")
    inside = text.split(BEGIN)[1].split(END)[0]
    parts = inside.split("\n### ")[1:]
    return {part.split("\n", 1)[0].strip(): part.split("\n", 1)[1].strip() for part in parts}


def _write(path: Path, written: dict[str, str]) -> None:
    text = path.read_text()
    order = [title for title, _ in SECTIONS.values() if title in written]
    inside = "\n\n".join(f"### {title}\n\n{written[title]}" for title in order)
    path.write_text(f"{text.split(BEGIN)[0]}{BEGIN}\n\n{inside}\n\n{END}{text.split(END)[1]}")
