"""What multiplies: the processor's name."""

from __future__ import annotations

import platform
from pathlib import Path

_VECTORS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx_vnni", "amx_int8", "asimddp", "i8mm", "sve")


def processor() -> str:
    """Name, family and vector instructions of the processor."""
    known: dict[str, str] = {}
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            known.setdefault(name.strip(), value.strip())
    except OSError:
        pass
    name = known.get("model name") or platform.processor() or platform.machine()
    family = f", family {known['cpu family']} model {known['model']}" if "cpu family" in known else ""
    flags = (known.get("flags") or known.get("Features") or "").split()
    return f"{name}{family} ({' '.join(flag for flag in _VECTORS if flag in flags) or 'no flags known'})"
