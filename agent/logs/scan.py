"""One pass over a block of whole lines for all patterns at once: which lines are worth decoding?

Three engines give the same lines, because each gets the same prefilters (``patterns.py``):

=============  =========================================================================================
``hyperscan``  Vectorscan. One automaton, linear time, end offsets. The cost per byte hardly grows with rules.
``re2``        A ``google-re2`` set says which patterns are in the block, then each of those is located.
``python``     ``bytes.find`` for a literal that every match holds, then ``re``. Fine for a few dozen patterns.
=============  =========================================================================================

Compiled automata are kept on disk, named by what they were compiled from. Measured figures: docs/bench-logs.md.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from time import process_time
from typing import Any, Final, Literal, Protocol

from agent.logs.patterns import Analysis

__all__ = [
    "MATCHERS",
    "MatcherName",
    "Scanner",
    "ScannerUnavailable",
    "make_scanner",
    "measure_speed",
    "read_cache",
    "write_cache",
]

MatcherName = Literal["auto", "hyperscan", "re2", "python"]
MATCHERS: Final[tuple[str, ...]] = ("auto", "hyperscan", "re2", "python")

SHIFT: Final = 20
"""A hit is one integer, ``offset << SHIFT | id``: it sorts by offset, and a list of integers costs little."""
MASK: Final = (1 << SHIFT) - 1


class ScannerUnavailable(Exception):
    """The engine that was asked for is not installed here."""


class Scanner(Protocol):
    """Finds the patterns ``0..n-1`` it was made from. Safe to use from several threads."""

    name: str
    refused: dict[int, str]
    """Patterns that this engine cannot look for, with its reason: their lines must be found another way."""

    def scan(self, block: bytes) -> list[int]:
        """Hits in ``block``, sorted, as ``offset << SHIFT | id`` where ``offset`` is inside the line of the match."""

    def ids(self, text: bytes) -> set[int]:
        """The patterns found in one record whose newlines are ``NEWLINE``."""


def make_scanner(patterns: Sequence[Analysis], matcher: MatcherName = "auto", cache_dir: Path | None = None) -> Scanner:
    """A scanner for ``patterns``, each of which has a prefilter.

    ``auto`` takes the fastest engine that is installed. Raises ScannerUnavailable when another one is asked for
    and missing.
    """
    if matcher in ("auto", "hyperscan"):
        try:
            return HyperscanScanner(patterns, cache_dir)
        except ImportError as error:
            if matcher == "hyperscan":
                raise ScannerUnavailable("matcher hyperscan: the package is not installed, use `auto`") from error
    if matcher in ("auto", "re2"):
        try:
            return Re2Scanner(patterns)
        except ImportError as error:
            if matcher == "re2":
                raise ScannerUnavailable("matcher re2: google-re2 is not installed, use `auto`") from error
    return PythonScanner(patterns)


def measure_speed(scanner: Scanner, size: int = 4 << 20) -> float:
    """MiB of ordinary log text that ``scanner`` reads in a second of CPU, measured now."""
    line = b'INFO:     10.0.0.7:51234 - "POST /v1/chat/completions HTTP/1.1" 200 OK, usage 61.0%, took 17.2 s\n'
    block = line * ((256 << 10) // len(line))
    rounds = max(1, size // len(block))
    scanner.scan(block)
    begin = process_time()
    for _ in range(rounds):
        scanner.scan(block)
    return rounds * len(block) / (1 << 20) / max(process_time() - begin, 1e-6)


# Vectorscan has a special path for a handful of patterns that is slower, on machines without AVX2, than the one for
# many. Literals that cannot occur move a small set to the fast one (measured: about 1.2 to 1.8 times the speed).
_PADDING_BELOW: Final = 64
_PADDING: Final = tuple(
    b"\\x01\\x02" + hashlib.sha256(b"pad %d" % number).hexdigest()[:12].encode() for number in range(96)
)


class HyperscanScanner:
    """Vectorscan through the ``hyperscan`` package. Raises ImportError when that is not there."""

    def __init__(self, patterns: Sequence[Analysis], cache_dir: Path | None = None) -> None:
        import hyperscan

        self._hs: Any = hyperscan
        self.name = f"hyperscan {self._hs.__version__}"
        self.refused: dict[int, str] = {}
        self.from_cache = False
        self._local = threading.local()
        self._database: Any = None
        if patterns:
            self._database = self._load_or_compile([_expression(pattern) for pattern in patterns], cache_dir)

    def scan(self, block: bytes) -> list[int]:
        hits: list[int] = []
        if self._database is None or not block:
            return hits
        append = hits.append

        def on_match(number: int, start: int, end: int, flags: int, context: object) -> None:
            append((end - 1) << SHIFT | number)

        self._database.scan(block, match_event_handler=on_match, scratch=self._scratch())
        hits.sort()
        return hits

    def ids(self, text: bytes) -> set[int]:
        found: set[int] = set()
        if self._database is None or not text:
            return found
        add = found.add

        def on_match(number: int, start: int, end: int, flags: int, context: object) -> None:
            add(number)

        self._database.scan(text, match_event_handler=on_match, scratch=self._scratch())
        return found

    def _scratch(self) -> Any:
        # Scratch space serves one scan at a time, so each thread has its own.
        try:
            return self._local.scratch
        except AttributeError:
            self._local.scratch = self._hs.Scratch(self._database)
            return self._local.scratch

    def _load_or_compile(self, expressions: list[bytes], cache_dir: Path | None) -> Any:
        padding = _PADDING if len(expressions) < _PADDING_BELOW else ()
        key = hashlib.sha256(b"\0".join((self.name.encode(), *expressions, *padding))).hexdigest()
        path = None if cache_dir is None else cache_dir / f"{key}.hs"
        if path is not None and (stored := read_cache(path)) is not None:
            with contextlib.suppress(self._hs.HyperscanError):
                database = self._hs.loadb(stored, self._hs.HS_MODE_BLOCK)
                database.scratch = self._hs.Scratch(database)
                self.from_cache = True
                return database
        good = list(enumerate(expressions))
        try:
            database = self._compile(good, padding)
        except self._hs.HyperscanError:
            self.refused = dict(self._refusals(good))
            good = [item for item in good if item[0] not in self.refused]
            if not good:
                return None
            database = self._compile(good, padding)
        if path is not None and not self.refused:
            write_cache(path, self._hs.dumpb(database))
        return database

    def _compile(self, expressions: Sequence[tuple[int, bytes]], padding: Sequence[bytes]) -> Any:
        database = self._hs.Database(mode=self._hs.HS_MODE_BLOCK)
        database.compile(
            expressions=[text for _, text in expressions] + list(padding),
            ids=[number for number, _ in expressions] + [MASK - index for index in range(len(padding))],
            flags=[0] * (len(expressions) + len(padding)),
        )
        return database

    def _refusals(self, expressions: list[tuple[int, bytes]]) -> list[tuple[int, str]]:
        # One bad pattern fails the whole set: halve until it is alone, so that it can be named.
        try:
            self._compile(expressions, ())
        except self._hs.HyperscanError as error:
            if len(expressions) == 1:
                return [(expressions[0][0], str(error))]
            half = len(expressions) // 2
            return self._refusals(expressions[:half]) + self._refusals(expressions[half:])
        return []


class Re2Scanner:
    """A ``google-re2`` set over the block, then one search for each pattern that is in it. Raises ImportError."""

    def __init__(self, patterns: Sequence[Analysis]) -> None:
        import re2

        self.name = "re2"
        self.refused: dict[int, str] = {}
        options = re2.Options()
        options.encoding = re2.Options.Encoding.LATIN1
        options.log_errors = False
        self._set = re2.Set.SearchSet(options)
        self._numbers: list[int] = []
        self._locate: list[Callable[[bytes, list[int]], None]] = []
        for number, pattern in enumerate(patterns):
            expression = _expression(pattern)
            try:
                compiled = re2.compile(expression, options)
                self._set.Add(expression)
            except re2.error as error:
                self.refused[number] = str(error)
                continue
            self._numbers.append(number)
            self._locate.append(_finder(number, pattern, compiled))
        if self._numbers:
            self._set.Compile()

    def scan(self, block: bytes) -> list[int]:
        hits: list[int] = []
        if self._numbers:
            for index in self._set.Match(block) or ():
                self._locate[index](block, hits)
            hits.sort()
        return hits

    def ids(self, text: bytes) -> set[int]:
        return {self._numbers[index] for index in self._set.Match(text) or ()} if self._numbers else set()


class PythonScanner:
    """The standard library only: a literal first, the expression where the literal stands."""

    def __init__(self, patterns: Sequence[Analysis]) -> None:
        self.name = "python re"
        self.refused: dict[int, str] = {}
        self._compiled = [re.compile(_expression(pattern)) for pattern in patterns]
        self._patterns = list(patterns)
        self._finders = [
            _finder(number, pattern, compiled)
            for number, (pattern, compiled) in enumerate(zip(patterns, self._compiled, strict=True))
        ]
        self._folds = [pattern.fold for pattern in patterns]

    def scan(self, block: bytes) -> list[int]:
        hits: list[int] = []
        lowered = block.lower() if any(self._folds) else block
        for number, pattern in enumerate(self._patterns):
            if pattern.literals:
                _find_by_literal(number, pattern, self._compiled[number], block, lowered, hits)
            else:
                self._finders[number](block, hits)
        hits.sort()
        return hits

    def ids(self, text: bytes) -> set[int]:
        return {hit & MASK for hit in self.scan(text)}


def _finder(number: int, pattern: Analysis, compiled: Any) -> Callable[[bytes, list[int]], None]:
    """Appends one hit for each line of a block that ``compiled`` is found in."""
    expression = _expression(pattern)
    literal = pattern.literals[0] if len(pattern.literals) == 1 and not pattern.fold else b""
    if literal and _plain(expression) == literal:

        def find_literal(block: bytes, hits: list[int]) -> None:
            position = block.find(literal)
            while position >= 0:
                hits.append(position << SHIFT | number)
                line_end = block.find(b"\n", position)
                position = block.find(literal, line_end) if line_end >= 0 else -1

        return find_literal

    def find_expression(block: bytes, hits: list[int]) -> None:
        # No prefilter crosses a line, so the search may go on at the next one.
        match = compiled.search(block)
        while match is not None:
            hits.append(match.start() << SHIFT | number)
            line_end = block.find(b"\n", match.start())
            match = compiled.search(block, line_end) if line_end >= 0 else None

    return find_expression


def _find_by_literal(
    number: int, pattern: Analysis, compiled: re.Pattern[bytes], block: bytes, lowered: bytes, hits: list[int]
) -> None:
    text = lowered if pattern.fold else block
    for literal in pattern.literals:
        position = text.find(literal)
        while position >= 0:
            start = block.rfind(b"\n", 0, position) + 1
            end = block.find(b"\n", position)
            end = len(block) if end < 0 else end
            if compiled.search(block, start, end) is not None:
                hits.append(position << SHIFT | number)
            position = text.find(literal, end)


def _plain(expression: bytes) -> bytes:
    """The text of an expression that is one literal."""
    text = re.sub(rb"\\x([0-9a-f]{2})", lambda match: bytes.fromhex(match[1].decode()), expression)
    return text if re.fullmatch(rb"(?:[\w ]|\\x[0-9a-f]{2})+", expression) else b""


def _expression(pattern: Analysis) -> bytes:
    if pattern.prefilter is None:
        raise ValueError("a pattern without a prefilter cannot be scanned for")
    return pattern.prefilter


# --- the cache ----------------------------------------------------------------------------------------------


def read_cache(path: Path) -> bytes | None:
    """What is stored there, if its checksum is right; anything else is made anew."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    digest, body = data[:32], data[32:]
    return body if hashlib.sha256(body).digest() == digest else None


def write_cache(path: Path, body: bytes) -> None:
    """Store something with its checksum, whole or not at all."""
    # A cache that cannot be written only costs the compile time of the next start.
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{os.getpid()}")
        temporary.write_bytes(hashlib.sha256(body).digest() + body)
        temporary.replace(path)
