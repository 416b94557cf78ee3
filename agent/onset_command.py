"""``wedgewatch onset``: load at each onset against restarts and changes, from the daemon's own history."""

from __future__ import annotations

import json

from agent.detect.onset import OnsetLedger
from agent.notify.commands import open_state

__all__ = ["onset"]


def onset(config: str | None, state: str | None, *, as_json: bool = False) -> int:
    """Print, for each server, which explanation the evidence favours, how strongly, and the estimated threshold."""
    store = open_state(config, state)
    if store is None:
        return 2
    with store:
        ledgers = store.load_state("onset") or {}
        advice = store.load_state("advice") or {}
    if not ledgers and not as_json:
        print("no history yet: the daemon has not watched any server with metrics")
    for name, data in sorted(ledgers.items()):
        ledger = OnsetLedger()
        ledger.restore(data)
        report = ledger.report()
        if as_json:
            print(json.dumps({"kind": "onset", "server": name, **report.to_json(), "advice": advice.get(name, {})}))
            continue
        print(f"{name}: {report.sentence()}")
        counts = f"{report.onsets} onsets, {report.restarts} restarts, {report.changes} changes"
        print(f"  {counts} in {report.healthy_days:.2f} healthy days")
        if report.log10_bayes_factor is not None:
            print(
                f"  log10 Bayes factor of load against the better alternative: {report.log10_bayes_factor:+.2f} "
                "(undecided between -1 and 1)"
            )
        if report.threshold is not None:
            interval = f"90% interval {report.threshold_low:.1f} to {report.threshold_high:.1f}"
            print(f"  threshold {report.threshold:.1f} requests in flight, {interval}")
        if report.onset_rates is not None:
            print(f"  at an onset {_rates(report.onset_rates)}")
        if report.healthy_rates is not None:
            print(f"  busiest five healthy minutes: {_rates(report.healthy_rates)}")
        if report.safe_load is not None:
            print(f"  held for an hour or more without trouble: {report.safe_load:.1f} requests in flight")
        for engine, item in sorted(advice.get(name, {}).items()):
            for sentence in item["sentences"]:
                print(f"  {f'engine {engine}: ' if engine else ''}{sentence}")
    return 0


def _rates(rates: tuple[float, float]) -> str:
    requests, tokens = rates
    return f"{requests:.2f} requests and {tokens:,.0f} tokens a second"
