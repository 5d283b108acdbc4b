"""``python -m tests.campaigns NAME ...``: every module of this folder with a function ``main``."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

NAMES = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("_"))


def main(arguments: list[str]) -> int:
    """The campaign's own exit status; 0 for the list of campaigns, 2 for a name that is not in it."""
    if arguments and arguments[0] in NAMES:
        return int(import_module(f".{arguments[0]}", __package__).main(arguments[1:]))
    asked = not arguments or arguments[0] in ("-h", "--help")
    lines = [f"unknown campaign {arguments[0]}"] if not asked else []
    lines += ["python -m tests.campaigns NAME ... (NAME --help says more)"]
    for name in NAMES:
        about = (import_module(f".{name}", __package__).__doc__ or "").partition("\n")[0]
        lines.append(f"  {name:12} {about}")
    print("\n".join(lines), file=sys.stdout if asked else sys.stderr)
    return 0 if asked else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
