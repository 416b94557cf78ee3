"""A command of the user's: the notification as JSON on its standard input, no shell, a time limit.

Exit status 0 is success, 75 (EX_TEMPFAIL) and every other status is tried again until ``max_age``, 78 (EX_CONFIG) is a
fault that trying again does not cure. The command and all its children end with the time limit. What it prints is kept
up to a bound and shown with an error.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from agent.redact import redact
from integrations.base import Notification, Outcome, ReceiverOptions, Traits
from integrations.http import encode_json
from integrations.limits import Webhook
from integrations.message import build
from integrations.text import clip, one_line
from integrations.webhook import payload

__all__ = ["CommandConfig", "CommandReceiver"]

_EX_CONFIG: Final = 78
_OUTPUT: Final = 4096


@dataclass(frozen=True, kw_only=True)
class CommandConfig(ReceiverOptions):
    """A program and its arguments. No shell sees them, so nothing in an alert can become a command."""

    command: tuple[str, ...] = field(
        metadata={"doc": "program and arguments, for example [/usr/local/bin/page, --team, ml]", "nonempty": True}
    )

    def check(self) -> Iterable[tuple[str, str]]:
        if self.command and not self.command[0].strip():
            yield "command.0", "the name of the program is empty"


class CommandReceiver:
    """Runs the command once for each change."""

    kind = "command"
    traits = Traits(partial=True)

    def __init__(self, config: CommandConfig) -> None:
        self._config = config

    def notify(self, notification: Notification) -> Outcome:
        message = build(notification, self._config)
        body = encode_json(payload(notification, message, limit=Webhook.ALERTS, full=True))
        name = os.path.basename(self._config.command[0])
        # Output goes to a file, not a pipe: a grandchild that keeps a pipe open would hold us past the time limit.
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as given:
            given.write(body)
            given.seek(0)
            try:
                process = subprocess.Popen(
                    self._config.command, stdin=given, stdout=output, stderr=output, start_new_session=True
                )
            except (OSError, ValueError) as error:
                return Outcome.permanent(
                    f"{name}: {getattr(error, 'strerror', None) or 'cannot be run'}", reason="config"
                )
            try:
                status = process.wait(self._config.timeout)
            except subprocess.TimeoutExpired:
                _end(process)
                return Outcome.retry(
                    f"{name}: not done within {self._config.timeout:g} s", reason="timeout", uncertain=True
                )
            output.seek(0)
            said = clip(redact(one_line(output.read(_OUTPUT).decode("utf-8", "replace"))), 160)
        if status == 0:
            return Outcome.success()
        detail = f"{name}: exit status {status}" + (f": {said}" if said else "")
        return Outcome.permanent(detail, reason="config") if status == _EX_CONFIG else Outcome.retry(detail)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the command and what it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
