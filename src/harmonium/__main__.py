"""``python -m harmonium``: the command line."""

import sys

from harmonium.cli import main

if __name__ == "__main__":
    sys.exit(main())
