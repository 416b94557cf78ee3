"""Passes standard input on to standard output and into a file that rotates by size; for the server's container.

    exec my-server > >(exec python3 -u tee_log.py /var/log/server/server.log) 2>&1

Standard library only, for any Python from 3.6 on. Never in the server's way: a disk that is full or gone costs the file
some lines, not the server its output. Keeps the file and one predecessor (``.1``), each of at most ``limit`` bytes.
"""

import os
import sys


def main(path, limit=64 << 20):
    """Copies until the input ends. Files are cut between reads, so a line may lie half in one and half in the next:
    a follower that drains the renamed file first sees it whole."""
    out, size = None, 0
    while True:
        data = os.read(0, 65536)
        if not data:
            return
        pass_on(data)
        try:
            if out is None:
                out = open(path, "ab", buffering=0)
                size = out.tell()
            if size and size + len(data) > limit:
                out.close()
                os.replace(path, path + ".1")
                out, size = open(path, "ab", buffering=0), 0
            out.write(data)
            size += len(data)
        except OSError:
            out = None  # tried again with the next piece


def pass_on(data):
    try:
        while data:
            data = data[os.write(1, data) :]
    except OSError:
        return  # nobody reads our output any more: the file still counts


if __name__ == "__main__":
    main(sys.argv[1], *(int(text) for text in sys.argv[2:3]))
