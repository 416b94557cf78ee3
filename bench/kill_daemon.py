"""Kill the whole daemon at random instants while logrotate turns its log: is every alert told exactly once?

``python -m bench.kill_daemon --kills 100`` runs it in each of logrotate's modes. What :mod:`bench.kill_rotate` does
with a follower is done here with ``wedgewatch run``: configuration, decoding, rules, the store and the alert log. Each
wanted line has a rule of its own. At the end the alert log is compared with what was written: none missing, none twice.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

from bench.kill_rotate import MODES, Writer, rotate

__all__ = ["campaign"]

ALERTS: Final = 1000
"""Wanted lines that there is a rule for; a campaign ends early when the writer comes so far."""
_RULES: Final = "rules:\n" + "".join(
    f"""\
  - alert: Item{number:04}
    failure: config_risk
    fingerprint: {{stages: [{{stage: line, any: [{{regex: "item {number:04} line [0-9]+ wanted"}}]}}]}}
    for: 0s
    annotations: {{summary: "item {number:04}"}}
"""
    for number in range(ALERTS)
)
_HEAD: Final = "WARNING {time} [core.py:7] item {count:04} "
_DRAIN: Final = 90.0


def campaign(mode: str, kills: int, folder: Path, *, seed: int, longest: float = 1.2) -> str:
    """Run one campaign in ``folder``; gives what was found, in a sentence. ``longest``: seconds of a life at most.

    Raises SystemExit when a line is missing or told twice.
    """
    folder.chmod(0o755)  # logrotate refuses a folder that others may write to
    log, alerts, rotation = folder / "app.log", folder / "alerts.jsonl", folder / "rotate.conf"
    log.touch()
    rotation.write_text(f"{log} {{\nrotate 1000\nmissingok\n{MODES[mode]}\n}}\n")
    rotation.chmod(0o644)
    (folder / "rules.yaml").write_text(_RULES)
    config = folder / "wedgewatch.yaml"
    config.write_text(
        f"state: {{path: {folder}/state}}\nweb: {{enabled: false}}\nrule_files: [{folder}/rules.yaml]\n"
        f"servers: [{{name: s, engine: vllm, logs: [{{path: {log}, poll_interval: 200ms, rotate_wait: 1s}}]}}]\n"
    )
    rng = random.Random(seed)
    writer = Writer(log, seed, reopen=mode == "create", share=0.05, pause=0.04, head=_HEAD)

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "agent", "run", "-c", str(config), "--alert-log", str(alerts)],
            cwd=Path(__file__).parents[1], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=(folder / "stderr").open("ab"),
        )  # fmt: skip

    daemon = start()
    while not (folder / "state" / "state.db").exists():  # before its first start there is only history
        if daemon.poll() is not None:
            raise SystemExit((folder / "stderr").read_text())
        time.sleep(0.01)
    time.sleep(1.0)
    writer.start()
    rotations = 0
    done = 0
    while done < kills and len(writer.wanted) < ALERTS - 50:
        done += 1
        time.sleep(rng.random() * longest)
        if rng.random() < 0.5:
            rotations += 1
            rotate(writer, rotation, folder / "rotate.state")
        daemon.kill()
        daemon.wait()
        daemon = start()
    writer.done.set()
    writer.join()
    deadline = time.monotonic() + _DRAIN
    while time.monotonic() < deadline and len(_told(alerts)) < len(writer.wanted):
        time.sleep(0.2)
    time.sleep(2.0)
    daemon.terminate()
    daemon.wait()
    told = _told(alerts)
    written = range(len(writer.wanted))
    missing = sorted(set(written) - set(told))
    twice = sorted(number for number, count in told.items() if count > 1)
    found = f"{mode}: {done} kills, {rotations} rotations, {len(writer.wanted)} alerts"
    if missing or twice or set(told) - set(written):
        raise SystemExit(f"{found}; missing {missing[:20]}, twice {twice[:20]}; seed {seed}, kept in {folder}")
    return f"{found}: each told exactly once"


def _told(alerts: Path) -> Counter[int]:
    rows = [json.loads(row) for row in alerts.read_text().splitlines() if row.endswith("}")] if alerts.exists() else []
    return Counter(int(row["alertname"].removeprefix("Item")) for row in rows if row["state"] == "firing")


def main() -> None:
    """Run the campaign in each mode."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=300, help="kills in all, shared by the modes (default: 300)")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3)))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    for number, mode in enumerate(MODES):
        folder = Path(tempfile.mkdtemp(prefix=f"wedgewatch-kill-{mode}-"))
        print(campaign(mode, max(1, options.kills // len(MODES)), folder, seed=options.seed + number), flush=True)


if __name__ == "__main__":
    main()
