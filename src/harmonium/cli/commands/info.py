"""``harmonium info``."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from harmonium import backends
from harmonium.backends import choice, processor

EXAMPLES = ("harmonium info", "harmonium info --json")

_PACKAGES = ("torch", "numpy", "numba", "scipy", "scikit-learn", "h5py")


def info() -> dict[str, Any]:
    """Show what harmonium runs on here, and which matrix-multiplication backend it uses."""
    backend = backends.get_backend()
    return {
        "harmonium": version("harmonium"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor(),
        "threads": torch.get_num_threads(),
        "torch build": _build(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "packages": {name: _version(name) for name in _PACKAGES},
        "products": str(backend),
        "notes": _notes(backend),
    }


def _notes(backend: backends.Backend) -> list[str]:
    bits = f"states of two values are multiplied by their bits from {backend.bits_from} rows on"
    notes = ["the library multiplies all states" if backend.bits_from is None else bits]
    if os.environ.get(backends.VARIABLE):
        notes.append(f"{backends.VARIABLE} says so; by default {backends.Backend.default()}")
    if choice.COMPILED:
        notes.append(
            f"runs of at least {choice.LEAST_UPDATES} updates of small machines, two-valued, categorical "
            "or Gaussian units beside one layer of two-valued hidden ones, make many in one compiled call; "
            "run.toml of a run has its engine"
        )
    else:
        notes.append(
            "numba is not installed: everything works, slower; harmonium requires it where it has wheels; "
            "elsewhere pip install numba adds it"
        )
    return notes


def _build() -> str:
    """Returns what the torch that is installed was built for."""
    if torch.version.cuda:
        return f"CUDA {torch.version.cuda}"
    return "ROCm" if torch.version.hip else "CPU"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
