"""``harmonium info``."""

from __future__ import annotations

import platform
from importlib.metadata import version
from typing import Any

import torch

from harmonium import backends
from harmonium.backends import processor

EXAMPLES = ("harmonium info", "harmonium info --json")


def info() -> dict[str, Any]:
    """Show what harmonium runs on here, and which matrix-multiplication backend it uses."""
    return {
        "harmonium": version("harmonium"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor(),
        "threads": torch.get_num_threads(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "products": str(backends.get_backend()),
        "notes": backends.notes(),
    }
