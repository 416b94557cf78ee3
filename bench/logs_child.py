"""What is measured in a process of its own: the product and its parts on one file. Run by ``bench.logs``.

``python -m bench.logs_child WHAT RULES FILE [LIMIT]`` prints the lines that matched. WHAT: ``scan`` (rules, headers,
stages, verdicts: everything that ``wedgewatch scan`` does with a log), ``packs`` (the same with the bundled rules and
dialects), ``engine-hyperscan``, ``engine-re2``, ``engine-python`` (records only), ``matcher`` (the block scanner
alone), ``naive`` (each pattern on each line with ``re``), ``ready`` (everything loaded, nothing read). On standard
error it says how much memory it took at most, in KiB.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from bench.logdata import patterns

if TYPE_CHECKING:
    from agent.logs.engine import LogEngine
    from agent.logs.scan import MatcherName
    from agent.rules.model import RuleSet

CACHE = Path(__file__).parents[1] / ".cache" / "bench"


def main(arguments: Sequence[str]) -> None:
    """Do what is asked and print how many lines matched."""
    what, rules, path = arguments[0], int(arguments[1]), arguments[2]
    limit = int(arguments[3]) if len(arguments) > 3 else 1 << 62
    if what in ("scan", "packs"):
        print(_scan(rules, path, packs=what == "packs"))
    elif what == "naive":
        print(_naive(rules, path, limit))
    elif what == "matcher":
        print(_matcher(rules, path))
    elif what == "ready":
        _engine(rules, "auto")
        print(0)
    else:
        print(_records(rules, path, what.removeprefix("engine-"), limit))
    print(f"peak {_peak()}", file=sys.stderr)


def _peak() -> int:
    """KiB at most; what the parent would be told of a child counts the parent's own memory before the exec as well."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))


def _ruleset(rules: int) -> RuleSet:
    from dataclasses import replace

    from agent.rules.load import load_rules
    from agent.rules.model import Condition, Fingerprint, Matcher, Rule, RuleSet, Stage

    bundled, _ = load_rules([], bundled=True)
    # Headers of the engine are read, its stats lines are not looked for: the rules are what rg looks for, no more.
    vllm = replace(bundled.dialects["vllm"], stats=(), lifecycle=(), facts=(), detect_lines=())
    made = tuple(
        Rule(
            f"Rule{number}",
            "engine_dead",
            "critical",
            fingerprint=Fingerprint((Stage("symptom", Condition(any=(Matcher("regex", pattern),))),)),
        )
        for number, pattern in enumerate(patterns(rules))
    )
    return RuleSet(made, {"vllm": vllm})


def _scan(rules: int, path: str, *, packs: bool) -> int:
    from agent.replay import scan

    if packs:
        from agent.rules.load import load_rules

        ruleset, _ = load_rules([], bundled=True)
        result = scan(ruleset, [path], cache_dir=CACHE)
    else:
        result = scan(_ruleset(rules), [path], engine="vllm", cache_dir=CACHE)
    return result.lines


def _engine(rules: int, matcher: str) -> LogEngine:
    from agent.logs.engine import LogEngine
    from agent.logs.timestamps import YearReference
    from agent.rules.model import Condition, Dialect, LineFormat, Matcher

    # The header of the log, written as the dialect of the engine writes it.
    header = LineFormat(
        "v1",
        r"\((?P<process>[A-Za-z][\w:.-]{0,80})(?: pid=(?P<pid>\d+))?\) (?P<severity>[A-Z]+) "
        r"(?P<time>\d\d-\d\d \d\d:\d\d:\d\d) \[?(?P<code>[\w./<>-]{1,120}:\d+)\] ?(?P<message>.*)",
        "%m-%d %H:%M:%S",
    )
    conditions = [Condition(any=(Matcher("regex", pattern),)) for pattern in patterns(rules)]
    return LogEngine(
        conditions,
        {"vllm": Dialect("vllm", formats=(header,))},
        year_reference=YearReference(1795165265.0),
        matcher=cast("MatcherName", matcher),
        cache_dir=CACHE,
    )


def _records(rules: int, path: str, matcher: str, limit: int) -> int:
    stream = _engine(rules, matcher).stream(server="s", file=path, engine="vllm")
    found = read = 0
    buffer = bytearray(256 << 10)
    view = memoryview(buffer)
    with open(path, "rb", buffering=0) as handle:
        while read < limit and (size := handle.readinto(buffer)):
            found += len(stream.feed(view[:size]))
            read += size
    return found + len(stream.flush())


def _matcher(rules: int, path: str) -> int:
    from agent.logs.patterns import analyse
    from agent.logs.scan import SHIFT, make_scanner
    from agent.rules.model import Matcher

    scanner = make_scanner([analyse(Matcher("regex", pattern)) for pattern in patterns(rules)], "auto", CACHE)
    found = 0
    rest = b""
    with open(path, "rb", buffering=0) as handle:
        while data := handle.read(256 << 10):
            block, _, rest = (rest + data).rpartition(b"\n")
            found += len({block.rfind(b"\n", 0, hit >> SHIFT) for hit in scanner.scan(block)})
    return found


def _naive(rules: int, path: str, limit: int) -> int:
    import re

    compiled = [re.compile(pattern) for pattern in patterns(rules)]
    found = read = 0
    with open(path, encoding="utf-8", errors="replace") as handle:
        for line in handle:
            found += any(pattern.search(line) for pattern in compiled)
            read += len(line)
            if read >= limit:
                break
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
