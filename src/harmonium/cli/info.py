"""``harmonium info``."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version

import torch

from harmonium import products
from harmonium.cli import options
from harmonium.cli.output import show, working
from harmonium.compiled.serving import COMPILED
from harmonium.products.processor import processor

_PACKAGES = ("torch", "numpy", "numba", "scipy", "scikit-learn", "h5py")


def info(as_json: options.Json = False, threads: options.Threads = None) -> None:
    """Say what harmonium runs on here, and what multiplies: measured now, in tens of milliseconds."""
    options.set_threads(threads)
    with working("multiplying"):
        measured = products.measure()
    made = products.choice() if os.environ.get(products.VARIABLE) else measured
    show(
        {
            "harmonium": version("harmonium"),
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.machine()}",
            "processor": processor(),
            "threads": torch.get_num_threads(),
            "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
            "packages": {name: _version(name) for name in _PACKAGES},
            "products": str(made),
            "gflops": {name: round(value, 1) for name, value in measured.gflops.items()},
            "notes": _notes(made, measured),
        },
        as_json,
    )


def _notes(made: products.Choice, measured: products.Choice) -> list[str]:
    bits = f"states of two values are multiplied by their bits from {made.bits_from} rows on"
    notes = ["the library multiplies all states" if made.bits_from is None else bits]
    if made != measured:
        notes.append(f"{products.VARIABLE} says so; measured here: {measured}")
    else:
        notes.append(f"{products.VARIABLE}={made} makes it so without a measurement")
    if not COMPILED:
        notes.append("without numba (pip install 'harmonium[fast]') everything works, slower")
    return notes


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
