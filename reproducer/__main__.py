"""``python -m reproducer``: see :mod:`reproducer.cli`."""

import sys

from .cli import main

sys.exit(main())
