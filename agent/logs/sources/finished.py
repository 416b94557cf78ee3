"""Logs that grow no more: plain or compressed files, and standard input."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from types import TracebackType
from typing import IO, Any, Final, Self

__all__ = ["COMPRESSED", "FinishedLog", "open_finished"]

COMPRESSED: Final = (".gz", ".zst", ".xz", ".bz2")
"""Endings by which a compressed log is known, and its first bytes are what makes sure."""
_MAGIC: Final = {b"\x1f\x8b": ".gz", b"\x28\xb5\x2f\xfd": ".zst", b"\xfd7zXZ": ".xz", b"BZh": ".bz2"}


class FinishedLog:
    """A log to be read to its end. Use as a context manager.

    A compressed file that is cut short gives what is there and sets ``damaged`` to a sentence.
    """

    def __init__(self, name: str, raw: IO[bytes], ending: str, size: int | None) -> None:
        self.name = name
        self.size = size
        self.damaged = ""
        self._raw = raw
        self._handle: Any = _decompressor(name, raw, ending)
        self._read = 0

    def read(self, size: int = 256 << 10) -> bytes:
        """At most ``size`` bytes, empty at the end. Raises OSError."""
        if self._handle is self._raw:
            data: bytes = self._raw.read(size) or b""
            self._read += len(data)
            return data
        data = b""
        while len(data) < size and not self.damaged:
            # Piece by piece: a larger read loses what it had when it comes to damage.
            piece = self._piece(size - len(data))
            if not piece:
                break
            data += piece
        return data

    def _piece(self, size: int) -> bytes:
        try:
            return self._handle.read1(size) or b""
        except EOFError:
            self.damaged = f"{self.name}: the compressed file ends early, what is there was read"
        except OSError as error:
            if error.errno is not None:
                raise
            self.damaged = f"{self.name}: damaged, read up to there: {error}"
        except Exception as error:
            # lzma, zlib and zstandard each raise a class of their own for damaged data.
            if type(error).__module__ not in ("zlib", "_lzma", "lzma", "zstd", "zstandard", "zstandard.backend_c"):
                raise
            self.damaged = f"{self.name}: damaged, read up to there: {error}"
        return b""

    def position(self) -> int:
        """Bytes of the file itself that were read: compressed ones of a compressed file."""
        if self._handle is self._raw:
            return self._read
        return self._raw.tell()

    def close(self) -> None:
        """Close the file; standard input stays open."""
        if self._handle is not self._raw:
            self._handle.close()
        if self.name != "-":
            self._raw.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_finished(name: str, stdin: IO[bytes] | None = None) -> FinishedLog:
    """Open a log by name, ``-`` for standard input; compressed ones are recognised by their first bytes.

    Raises OSError when it cannot be opened, and with a sentence when a package for its compression is missing.
    """
    if name == "-":
        return FinishedLog(name, stdin or sys.stdin.buffer, "", None)
    raw = open(name, "rb", buffering=0)  # noqa: SIM115  # FinishedLog closes it
    try:
        size = os.fstat(raw.fileno()).st_size
        magic = raw.read(6) if raw.seekable() else b""
        if magic:
            raw.seek(0)
        ending = next((kind for start, kind in _MAGIC.items() if magic.startswith(start)), "")
        return FinishedLog(name, raw, ending, size)
    except OSError:
        raw.close()
        raise


def _decompressor(name: str, raw: IO[bytes], ending: str) -> Any:
    if ending == ".gz":
        import gzip

        return gzip.GzipFile(fileobj=raw, mode="rb")
    if ending == ".xz":
        import lzma

        return lzma.LZMAFile(raw)
    if ending == ".bz2":
        import bz2

        return bz2.BZ2File(raw)
    if ending == ".zst":
        return _zstandard(name)(raw)
    return raw


def _zstandard(name: str) -> Callable[[IO[bytes]], IO[bytes]]:
    try:
        from compression import zstd  # type: ignore[import-not-found]  # part of Python since 3.14

        opener: Callable[[IO[bytes]], IO[bytes]] = zstd.ZstdFile
        return opener
    except ImportError:
        pass
    try:
        import zstandard
    except ImportError as error:
        raise OSError(f"{name}: reading .zst needs the package zstandard: pip install 'wedgewatch[zstd]'") from error

    def open_frames(raw: IO[bytes]) -> IO[bytes]:
        # Rotated logs are often several frames one after the other.
        stream = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True, closefd=False)
        return io.BufferedReader(stream)

    return open_frames
