"""``wedgewatch mute``, ``send-test`` and ``outbox``: what a person does to delivery from a terminal."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from agent.config import Config, load_config, state_path
from agent.model import rfc3339
from agent.notify.mutes import add_mute
from agent.notify.sendtest import send_test as try_receiver
from agent.schema import parse_duration
from agent.store import Store

__all__ = ["mute", "open_state", "outbox", "send_test"]


def _config(path: str | None) -> Config | None:
    """The configuration, or None after its faults were printed."""
    if not path:
        return Config()
    config, faults = load_config(path)
    errors = [fault for fault in faults if fault.severity == "error"]
    for fault in errors:
        print(fault, file=sys.stderr)
    return None if errors else config


def open_state(config_file: str | None, state: str | None) -> Store | None:
    """The store of a daemon, also while that runs; None after a sentence that says why it cannot be opened."""
    config = _config(config_file)
    if config is None:
        return None
    folder = Path(state) if state else state_path(config)
    if not (folder / "state.db").exists():
        print(f"wedgewatch: {folder} holds no state; give -c FILE or --state DIR of the daemon", file=sys.stderr)
        return None
    return Store(folder, exclusive=False)


def mute(config: str | None, state: str | None, matchers: Sequence[str], duration: str, comment: str) -> int:
    """Silence alerts that match, for so long; the running daemon sees it within seconds."""
    try:
        seconds = parse_duration(duration)
    except ValueError as error:
        print(f"wedgewatch: --for: {error}", file=sys.stderr)
        return 2
    store = open_state(config, state)
    if store is None:
        return 2
    with store:
        try:
            silence = add_mute(store, matchers, seconds, now=time.time(), comment=comment, created_by="command line")
        except ValueError as error:
            print(f"wedgewatch: {error}", file=sys.stderr)
            return 2
        print(f"muted until {rfc3339(silence.ends_at)}: {', '.join(matchers)} (id {silence.id})")
    return 0


def send_test(config_file: str, receiver: str) -> int:
    """One marked firing and resolved pair through the real path; 0 when every target of the receiver took both."""
    config = _config(config_file)
    if config is None:
        return 2
    names = [item.name for item in config.receivers]
    if receiver not in names:
        print(
            f"wedgewatch: no receiver {receiver!r} in {config_file}; there are: {', '.join(names) or 'none'}",
            file=sys.stderr,
        )
        return 2
    failed = False
    for result in try_receiver(config, receiver):
        print(result)
        failed = failed or not result.ok
    return 1 if failed else 0


def outbox(config: str | None, state: str | None, action: str, *, as_json: bool = False) -> int:
    """List what is undelivered or dead, or give the dead another try."""
    store = open_state(config, state)
    if store is None:
        return 2
    with store:
        if action == "retry":
            print(f"{store.revive()} notification(s) will be tried again")
            return 0
        rows = store.outbox()
        for row in rows:
            if as_json:
                print(
                    json.dumps(
                        {
                            "id": row.id,
                            "receiver": row.receiver,
                            "action": row.action,
                            "state": row.state,
                            "created": rfc3339(row.created),
                            "attempts": row.attempts,
                            "last_error": row.last_error,
                        }
                    )
                )
            else:
                print(
                    f"{row.id:>6}  {row.state:<8} {row.receiver:<24} {row.action:<10} "
                    f"since {rfc3339(row.created)}, {row.attempts} attempts  {row.last_error}"
                )
        if not rows and not as_json:
            print("nothing is waiting, nothing is dead")
    return 0
