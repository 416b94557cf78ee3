"""Runs a program within bounds: no shell, total time, bounded output, and no waiting for one that cannot be killed.

A process that hangs inside a driver (``nvidia-smi`` beside a hung GPU) survives SIGKILL for as long as the driver
likes; :func:`subprocess.run` would wait for it after its own time-out. Here it is left behind.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["Finished", "run_bounded"]

_KEPT_VARIABLES: Final = ("PATH", "HOME", "LANG", "TZ", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")


@dataclass(frozen=True, slots=True)
class Finished:
    """How it went. ``code`` is None when it did not end in time or never began; ``fault`` is a sentence then."""

    output: bytes
    code: int | None
    fault: str = ""
    cut: bool = False

    @property
    def ok(self) -> bool:
        return self.code == 0 and not self.fault


def run_bounded(
    argv: Sequence[str],
    *,
    timeout: float,
    max_bytes: int = 1 << 20,
    stdin: bytes = b"",
    environment: Mapping[str, str] | None = None,
) -> Finished:
    """Runs ``argv`` for at most ``timeout`` seconds; its output and errors are read together, up to ``max_bytes``.

    Only a few harmless variables of our environment are handed on: it may hold credentials.
    """
    end = time.monotonic() + timeout
    variables = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**variables, **(environment or {})},
        )
    except FileNotFoundError:
        return Finished(b"", None, f"{argv[0]} is not installed here")
    except (OSError, ValueError) as error:
        return Finished(b"", None, f"{argv[0]} cannot be run: {error}")
    output, cut = _talk(process, stdin, end, max_bytes)
    code: int | None = None
    with contextlib.suppress(subprocess.TimeoutExpired):
        code = process.wait(max(0.0, min(end - time.monotonic(), timeout)) if not cut else 0)
    if code is None:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
        fault = "" if cut else f"{argv[0]} did not end within {timeout:g} s"
        return Finished(output, process.returncode if cut else None, fault, cut)
    return Finished(output, code, "", cut)


def _talk(process: subprocess.Popen[bytes], stdin: bytes, end: float, max_bytes: int) -> tuple[bytes, bool]:
    """Writes and reads until both pipes are done, time is up or the output is long enough."""
    assert process.stdin is not None
    assert process.stdout is not None
    output, rest = bytearray(), memoryview(stdin)
    with selectors.DefaultSelector() as selector, process.stdout, contextlib.suppress(BrokenPipeError):
        os.set_blocking(process.stdin.fileno(), False)
        selector.register(process.stdout, selectors.EVENT_READ)
        if rest:
            selector.register(process.stdin, selectors.EVENT_WRITE)
        else:
            process.stdin.close()
        while selector.get_map():
            left = end - time.monotonic()
            if left <= 0:
                break
            for key, _ in selector.select(left):
                if key.fileobj is process.stdin:
                    try:
                        rest = rest[os.write(process.stdin.fileno(), rest[:65536]) :]
                    except BrokenPipeError:  # it does not read its input: its choice
                        rest = rest[:0]
                    if not rest:
                        selector.unregister(process.stdin)
                        process.stdin.close()
                    continue
                chunk = os.read(process.stdout.fileno(), 65536)
                if not chunk:
                    selector.unregister(process.stdout)
                output += chunk
                if len(output) >= max_bytes:
                    _close(process.stdin)
                    return bytes(output[:max_bytes]), True
    _close(process.stdin)
    return bytes(output), False


def _close(pipe: object) -> None:
    with contextlib.suppress(OSError):
        pipe.close()  # type: ignore[attr-defined]  # an IO object; closing a full pipe may raise
