"""What reading a log costs, beside ripgrep and the tools that people would otherwise use.

    python -m bench.logs [--size 48] [--rules 10,100,1000] [--runs 3] [--no-peers] [--write docs/bench-logs.md]

Logs and rules are made from a seed (bench/logdata.py). Every program gets rules equal in meaning and the same bytes;
the runs are interleaved, so that a busy minute of the machine falls on all of them. Counted is CPU time, start-up
included, for each byte read, as a ratio to ``rg -c -j1`` in the same round: the median, the lowest and the highest.
Slow tools get the head of the file only, and their start-up is taken off, which favours them. Exit 1 when two
programs that say how many lines match do not say the same.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.logdata import write_log
from bench.logs_page import Row, page
from bench.logs_peers import PEERS, RG, Peer, version

__all__ = ["Cost", "main", "measure", "run"]

MIB: Final = 1 << 20
OURS: Final = ("scan", "scan with all packs", "engine", "engine, re2", "engine, re", "block scanner")
_WHAT: Final = {
    "scan": "scan",
    "scan with all packs": "packs",
    "engine": "engine-hyperscan",
    "engine, re2": "engine-re2",
    "engine, re": "engine-python",
    "block scanner": "matcher",
    "re, each rule on each line": "naive",
}
_PACKS: Final = "scan with all packs"  # it has its own rules, whatever the others have
_SLOW: Final = {_PACKS: 24.0, "engine, re": 32.0, "re, each rule on each line": 8.0}
"""MiB at ten rules of what is too slow for the whole file."""


@dataclass(frozen=True, slots=True)
class Cost:
    """One run: CPU seconds (user and system), what it printed, and what it said on standard error."""

    seconds: float
    said: str
    errors: str

    @property
    def memory(self) -> float:
        """Peak in MiB, of a child that says it."""
        return int(self.errors.rpartition("peak ")[2]) / 1024


def measure(command: Sequence[str], stdin: Path | None = None) -> Cost:
    """Run ``command`` to its end, with ``stdin`` from a pipe. Raises SystemExit with what it said when it fails."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        feeder = subprocess.Popen(["cat", str(stdin)], stdout=subprocess.PIPE) if stdin else None
        source = feeder.stdout if feeder else subprocess.DEVNULL
        child = subprocess.Popen(command, stdin=source, stdout=out, stderr=err)
        if feeder and feeder.stdout:
            feeder.stdout.close()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if feeder:
            feeder.wait()
        out.seek(0)
        err.seek(0)
        if child.returncode not in (0, 1):  # grep and its kin say 1 when nothing matched
            raise SystemExit(f"{' '.join(command)[:200]}: exit {child.returncode}: {err.read(2000).decode()}")
        return Cost(used.ru_utime + used.ru_stime, out.read(1 << 16).decode(), err.read(1 << 16).decode())


@dataclass
class _Contestant:
    """A program in one setting, with what its rounds cost. ``take_off``: CPU seconds of its start."""

    name: str
    command: Callable[[Path], Sequence[str]]
    log: Path
    counts: bool = False
    from_stdin: bool = False
    take_off: float = 0.0
    per_byte: list[float] = field(default_factory=list)

    def run(self) -> Cost:
        cost = measure(self.command(self.log), self.log if self.from_stdin else None)
        self.per_byte.append(max(1e-12, cost.seconds - self.take_off) / self.log.stat().st_size)
        return cost


def _ours(what: str, rules: int) -> Callable[[Path], Sequence[str]]:
    return lambda log: [sys.executable, "-m", "bench.logs_child", what, str(rules), str(log)]


def _head(log: Path, mebibytes: float) -> Path:
    """The first lines of ``log``, in a file of their own."""
    target = log.with_name(f"{log.name}.{mebibytes:.3f}")
    if mebibytes * MIB >= log.stat().st_size:
        return log
    if not target.exists():
        with log.open("rb") as handle:
            data = handle.read(int(mebibytes * MIB))
        target.write_bytes(data[: data.rfind(b"\n") + 1])
    return target


def _contestants(log: Path, rules: int, folder: Path, peers: Sequence[Peer]) -> list[_Contestant]:
    empty = folder / "empty.log"
    empty.touch()
    out = [_Contestant(RG.name, lambda path: RG.command(folder, rules, path), log, counts=True)]
    for name in OURS:
        sample = _SLOW.get(name, 0.0) * (1.0 if name == _PACKS else min(1.0, 10 / rules))
        out.append(_Contestant(name, _ours(_WHAT[name], rules), _head(log, sample) if sample else log))
        out[-1].counts = not sample and name.startswith("engine")
    name = "re, each rule on each line"
    out.append(_Contestant(name, _ours("naive", rules), _head(log, _SLOW[name] * 10 / rules)))
    for peer in peers:
        if rules > peer.most:
            continue
        target = _head(log, peer.sample * min(1.0, 10 / rules)) if peer.sample else log

        def command(path: Path, peer: Peer = peer) -> Sequence[str]:
            return peer.command(folder, rules, path)

        start = 0.0
        if target is not log:
            start = measure(command(empty), empty if peer.from_stdin else None).seconds
        out.append(_Contestant(peer.name, command, target, from_stdin=peer.from_stdin, take_off=start))
    return out


def run(
    size: float,
    rules: Sequence[int],
    runs: int,
    folder: Path,
    peers: Sequence[Peer],
    kinds: Sequence[str] = ("sparse", "dense"),
) -> tuple[list[Row], list[str]]:
    """Measure everything; gives the rows of the table and the disagreements found."""
    rows: list[Row] = []
    faults: list[str] = []
    for kind in kinds:
        log = folder / f"{kind}.log"
        _, planted = write_log(log, int(size * MIB), kind)
        for number in rules:
            print(f"  {kind}, {number} rules", file=sys.stderr, flush=True)
            running = _contestants(log, number, folder, peers)
            for one in running:  # the first run of each fills the caches: pages of the file, compiled rules
                said = one.run().said
                one.per_byte.clear()
                if one.counts and int(said or 0) != planted:
                    faults.append(f"{one.name}, {kind}, {number} rules: {said.strip()} lines, {planted} were planted")
            for _ in range(runs):
                for one in running:
                    one.run()
            base = running[0].per_byte
            for one in running:
                ratios = sorted(a / b for a, b in zip(one.per_byte, base, strict=True))
                nanoseconds = 1e9 * statistics.median(one.per_byte)
                rows.append(Row(kind, number, one.name, statistics.median(ratios), ratios[0], ratios[-1], nanoseconds))
    return rows, faults


def _memory(log: Path, rules: int, times: int) -> dict[str, float]:
    """Peak MiB with ``rules`` rules: loaded, after the log, after ``times`` as much; and CPU seconds until loaded."""
    longer = log.with_name("longer.log")
    data = log.read_bytes()
    with longer.open("wb") as handle:
        for _ in range(times):
            handle.write(data)
    ready = [measure(_ours("ready", rules)(log)) for _ in range(5)]
    once, more = (measure(_ours("engine-hyperscan", rules)(path)).memory for path in (log, longer))
    result = {
        "rules loaded": statistics.median(one.memory for one in ready),
        f"{log.stat().st_size // MIB} MiB read": once,
        f"{longer.stat().st_size // MIB} MiB read": more,
        "start": statistics.median(one.seconds for one in ready),
        "start of the interpreter": measure([sys.executable, "-c", "pass"]).seconds,
    }
    longer.unlink()
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--size", type=float, default=48.0, help="MiB of each log (default: 48)")
    parser.add_argument("--rules", default="10,100,1000", help="numbers of rules, with commas")
    parser.add_argument("--runs", type=int, default=3, help="rounds (default: 3)")
    parser.add_argument("--no-peers", action="store_true", help="only ripgrep and wedgewatch")
    parser.add_argument("--write", type=Path, help="write the page for the docs, and its picture beside it")
    options = parser.parse_args(arguments)
    if not version(RG):
        raise SystemExit("rg is not installed; everything is measured against it: apt-get install ripgrep")
    there = [] if options.no_peers else [peer for peer in PEERS if version(peer)]
    absent = [peer.name for peer in PEERS if peer not in there and not options.no_peers]
    if absent:
        print(f"not installed, left out: {', '.join(absent)} (packages: bench/logs_peers.py)", file=sys.stderr)
    numbers = [int(number) for number in options.rules.split(",")]
    with tempfile.TemporaryDirectory(prefix="wedgewatch-logs-") as place:
        folder = Path(place)
        rows, faults = run(options.size, numbers, options.runs, folder, there)
        memory = _memory(folder / "sparse.log", max(numbers), 8)
    versions = [f"CPython {platform.python_version()}", *(version(peer) for peer in (RG, *there))]
    size = f"{options.size:g}"
    command = f"python -m bench.logs --size {size} --rules {options.rules} --runs {options.runs}"
    text = page(command, rows, memory, versions, picture=options.write)
    print(text)
    for fault in faults:
        print(f"not the same: {fault}")
    if options.write:
        options.write.write_text(text, encoding="utf-8")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
