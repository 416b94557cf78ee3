"""``python -m agent`` is ``wedgewatch``."""

from agent.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
