"""Memory and CPU of the daemon at rest, with three servers, beside two neighbours measured the same way.

    python -m bench.footprint [--seconds 60] [--lines 0]

Three toy servers serve an idle vLLM page each and own a log; ``--lines`` writes so many statistics lines a second
into each. Memory is the resident set, CPU the share of one core, both from ``/proc`` over the same span, after a
warm-up. The neighbours are mtail (follows the same logs) and Alertmanager (holds no alert), from Debian's packages
where they are.
"""

from __future__ import annotations

import argparse
import http.server
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SERVERS = 3
WARM_UP = 10.0
GOAL_MIB, GOAL_CPU = 60.0, 0.5

PAGE = b"""# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 0
vllm:num_requests_waiting{engine="0",model_name="m"} 0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0
vllm:generation_tokens_total{engine="0",model_name="m"} 1200345
vllm:prompt_tokens_total{engine="0",model_name="m"} 9200345
vllm:request_success_total{engine="0",model_name="m",finished_reason="stop"} 4211
"""
LINE = (
    "(APIServer pid=851) INFO {stamp} [loggers.py:123] Engine 000: Avg prompt throughput: 0.0 tokens/s, "
    "Avg generation throughput: 0.0 tokens/s, Running: 0 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.0%, "
    "Prefix cache hit rate: 0.0%\n"
)
MTAIL_PROGRAM = """counter errors_total
/ERROR/ { errors_total++ }
/Error in event loop/ { errors_total++ }
"""


@dataclass(frozen=True)
class Measured:
    name: str
    rss_mib: float = 0.0
    cpu_percent: float = 0.0
    note: str = ""


class Page(http.server.BaseHTTPRequestHandler):
    """An idle server's metrics, padded to the size of a real page."""

    padding = b"".join(b'vllm:other_bucket{le="%d"} 0\n' % number for number in range(600))

    def do_GET(self) -> None:
        body = PAGE + self.padding
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def usage(pid: int) -> tuple[float, float]:
    """Resident MiB and CPU seconds of a process and all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    resident = int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    return resident, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(name: str, argv: Sequence[str], seconds: float, cwd: Path, ready: str) -> Measured:
    """Runs a program, waits until ``ready`` answers and it has warmed up, then watches it for ``seconds``."""
    with open(cwd / f"{name}.out", "wb") as out:
        process = subprocess.Popen(argv, cwd=cwd, stdout=out, stderr=out)
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(ready, timeout=1).close()
                break
            except OSError:
                if process.poll() is not None:
                    return Measured(name, note=f"did not start: {(cwd / f'{name}.out').read_text()[-300:]}")
                time.sleep(0.1)
        time.sleep(WARM_UP)
        _, before = usage(process.pid)
        began, peak = time.monotonic(), 0.0
        while time.monotonic() - began < seconds:
            time.sleep(min(1.0, seconds))
            peak = max(peak, usage(process.pid)[0])
        _, after = usage(process.pid)
        return Measured(name, peak, 100 * (after - before) / (time.monotonic() - began))
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wedgewatch(folder: Path, ports: Sequence[int], seconds: float) -> Measured:
    port = free_port()
    servers = "\n".join(
        f'  - {{name: s{i}, engine: vllm, logs: [{{path: "{folder}/s{i}.log"}}], '
        f'metrics: {{url: "http://127.0.0.1:{at}/metrics"}}}}'
        for i, at in enumerate(ports)
    )
    (folder / "wedgewatch.yaml").write_text(
        f'state: {{path: "{folder}/state"}}\nweb: {{listen_address: "127.0.0.1:{port}"}}\nservers:\n{servers}\n'
    )
    argv = [sys.executable, "-m", "agent", "run", "-c", str(folder / "wedgewatch.yaml"), "--log-level", "warning"]
    environment = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parent.parent), environment]))
    return measure("wedgewatch", argv, seconds, folder, f"http://127.0.0.1:{port}/-/ready")


def mtail(folder: Path, seconds: float) -> Measured:
    if shutil.which("mtail") is None:
        return Measured("mtail", note="not installed (apt-get install mtail)")
    port = free_port()
    (folder / "progs").mkdir()
    (folder / "progs" / "errors.mtail").write_text(MTAIL_PROGRAM)
    logs = ",".join(f"{folder}/s{i}.log" for i in range(SERVERS))
    argv = ["mtail", "--progs", str(folder / "progs"), "--logs", logs, "--address", "127.0.0.1", "--port", str(port)]
    return measure("mtail", argv, seconds, folder, f"http://127.0.0.1:{port}/")


def alertmanager(folder: Path, seconds: float) -> Measured:
    name = "prometheus-alertmanager"
    if shutil.which(name) is None:
        return Measured("alertmanager", note=f"not installed (apt-get install {name})")
    port = free_port()
    (folder / "am.yml").write_text("route: {receiver: none}\nreceivers: [{name: none}]\n")
    argv = [
        name, f"--config.file={folder}/am.yml", f"--storage.path={folder}/am", f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    ]  # fmt: skip
    return measure("alertmanager", argv, seconds, folder, f"http://127.0.0.1:{port}/-/ready")


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table; returns 1 when the goal of the footprint is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--lines", type=float, default=0.0, help="statistics lines a second into each log")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="footprint-") as name:
        folder = Path(name)
        pages = [http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) for _ in range(SERVERS)]
        for page in pages:
            threading.Thread(target=page.serve_forever, daemon=True).start()
        stop = threading.Event()
        writers = [
            threading.Thread(target=write, args=(folder / f"s{i}.log", given.lines, stop)) for i in range(SERVERS)
        ]
        for writer in writers:
            writer.start()
        rows = [
            wedgewatch(folder, [page.server_port for page in pages], given.seconds),
            mtail(folder, given.seconds),
            alertmanager(folder, given.seconds),
        ]
        stop.set()
        for writer in writers:
            writer.join()
        for page in pages:
            page.shutdown()
    print(f"{SERVERS} servers, {given.lines:g} lines/s each, over {given.seconds:g} s after {WARM_UP:g} s of warm-up")
    print(f"{'':14}{'RSS MiB':>9}{'CPU %':>8}")
    for row in rows:
        print(
            f"{row.name:14}{row.rss_mib:9.1f}{row.cpu_percent:8.2f}" if not row.note else f"{row.name:14}  {row.note}"
        )
    ours = rows[0]
    missed = bool(ours.note) or ours.rss_mib > GOAL_MIB or (given.lines == 0 and ours.cpu_percent > GOAL_CPU)
    print(f"goal: under {GOAL_MIB:g} MiB and, at rest, {GOAL_CPU:g} % of a core: {'missed' if missed else 'met'}")
    return 1 if missed else 0


def write(path: Path, rate: float, stop: threading.Event) -> None:
    """A log with one old line, and ``rate`` lines a second after it."""
    with open(path, "a", encoding="utf-8", buffering=1) as log:
        log.write(LINE.format(stamp=time.strftime("%m-%d %H:%M:%S", time.gmtime())))
        while not stop.wait(1 / rate if rate else 1.0):
            if rate:
                log.write(LINE.format(stamp=time.strftime("%m-%d %H:%M:%S", time.gmtime())))


if __name__ == "__main__":
    sys.exit(main())
