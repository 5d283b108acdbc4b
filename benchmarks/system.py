"""What the numbers were measured on."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from harmonium import _products

PACKAGES = ("harmonium", "torch", "numpy", "scikit-learn", "rbms")


def describe() -> dict[str, Any]:
    """Processor, threads, versions, and how busy the machine is."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "system": f"{platform.system()} {platform.machine()}",
        "products": "oneDNN" if _products._ONEDNN else "torch",
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
    }


def text(description: dict[str, Any]) -> str:
    """It in two lines."""
    versions = ", ".join(f"{name} {each}" for name, each in description["versions"].items())
    return (
        f"{description['processor']}, {description['cores']} cores, {description['system']}; "
        f"threads {description['threads']}, load {description['load']}, "
        f"large products by {description['products']}\n{versions}"
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    return f"{name} ({torch.backends.cpu.get_cpu_capability()})"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
