"""Passes standard input on to standard output and into a file that rotates by size; for the server's container.

    exec my-server > >(exec python3 -u tee_log.py /var/log/server/server.log) 2>&1

Standard library only, for any Python from 3.6 on. Never in the server's way: a disk that is full or gone costs the file
some lines, not the server its output. Keeps the file and one predecessor (``.1``), each of at most ``limit`` bytes.
"""

import os
import sys


def main(path: str, limit: int = 64 << 20) -> None:
    """Copies until the input ends. The file changes at the end of a line, so no line lies in two."""
    out, size = -1, 0
    while True:
        data = os.read(0, 65536)
        if not data:
            return
        pass_on(data)
        try:
            if out < 0:
                out, size = append_to(path)
            if size + len(data) > limit and b"\n" in data:
                head, _, data = data.partition(b"\n")
                write_all(out, head + b"\n")
                os.close(out)
                out = -1
                os.replace(path, path + ".1")
                out, size = append_to(path)
            write_all(out, data)
            size += len(data)
        except OSError:
            if out >= 0:
                os.close(out)
            out = -1  # tried again with the next piece


def append_to(path: str) -> "tuple[int, int]":
    out = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    return out, os.fstat(out).st_size


def write_all(out: int, data: bytes) -> None:
    while data:
        data = data[os.write(out, data) :]


def pass_on(data: bytes) -> None:
    try:
        write_all(1, data)
    except OSError:
        return  # nobody reads our output any more: the file still counts


if __name__ == "__main__":
    main(sys.argv[1], *(int(text) for text in sys.argv[2:3]))
