"""``python -m tests.fakes.receiver --port 0 --port-file F``: the fakes' contracts as a process that prints arrivals."""

from __future__ import annotations

import sys

from integrations.local_receiver import main

if __name__ == "__main__":
    sys.exit(main())
