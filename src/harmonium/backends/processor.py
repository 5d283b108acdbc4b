"""The processor's name, maker and vector instructions."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

import torch

_VECTORS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx_vnni", "amx_int8", "asimddp", "i8mm", "sve")


@cache
def _told() -> dict[str, str]:
    """Returns what the system tells of its first processor, by its own names; nothing where it does not."""
    told: dict[str, str] = {}
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            told.setdefault(name.strip(), value.strip())
    except OSError:
        pass
    return told


def vendor() -> str:
    """Returns the maker's name, "AuthenticAMD" or "GenuineIntel" on x86; empty where it is not known."""
    # Windows tells it in the description, "AMD64 Family 25 Model 17 Stepping 1, AuthenticAMD".
    return _told().get("vendor_id", platform.processor().rpartition(", ")[2])


def wide() -> bool:
    """Returns whether torch uses vectors of 512 bits here."""
    return str(torch.backends.cpu.get_cpu_capability()) == "AVX512"


def processor() -> str:
    """Returns name, family and vector instructions of the processor."""
    told = _told()
    name = told.get("model name") or platform.processor() or platform.machine()
    family = f", family {told['cpu family']} model {told['model']}" if "cpu family" in told else ""
    flags = (told.get("flags") or told.get("Features") or "").split()
    return f"{name}{family} ({' '.join(flag for flag in _VECTORS if flag in flags) or 'no flags known'})"
