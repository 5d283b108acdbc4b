"""What the numbers were measured on."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, final

from harmonium import backends

PACKAGES = ("harmonium", "torch", "numpy", "scikit-learn", "rbms")

_VENDORS = {"GenuineIntel": "Intel", "AuthenticAMD": "AMD"}
_FLAGS = (
    "avx2",
    "avx512f",
    "avx512_bf16",
    "avx512_vnni",
    "avx_vnni",
    "amx_bf16",
    "amx_int8",
    "asimddp",
    "sve",
)
"""What decides how fast products are."""
_TELLING = ("avx512_vnni", "amx_int8")
_NOISE = re.compile(r"\((?:r|tm)\)|\bcpu\b|\bprocessor\b|@.*", re.IGNORECASE)


@final
@dataclass(frozen=True)
class Processor:
    """What a processor says of itself.

    Attributes:
        name: the model's, often vague.
        vendor: "Intel", "AMD", or as the processor spells it.
        family, model: numbers that tell generations apart; None where they are not told.
        flags: those of ``_FLAGS`` that it has.
    """

    name: str
    vendor: str
    family: int | None
    model: int | None
    flags: tuple[str, ...]

    @property
    def slug(self) -> str:
        """A name for files: name, family, model, and whether it has the instructions for whole numbers."""
        parts = [_NOISE.sub("", self.name)]
        if self.family is not None and self.model is not None:
            parts.append(f"family {self.family} model {self.model}")
        parts += [flag for flag in _TELLING if flag in self.flags]
        return re.sub(r"[^a-z0-9]+", "-", " ".join(parts).lower()).strip("-")


def processor(text: str | None = None) -> Processor:
    """The processor at hand, or that of the text of a /proc/cpuinfo."""
    if text is None:
        try:
            text = Path("/proc/cpuinfo").read_text("utf-8")
        except OSError:
            text = ""
    first = text.partition("\n\n")[0]
    told = {
        key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())
    }
    vendor = told.get("vendor_id", told.get("CPU implementer", "unknown"))
    flags = told.get("flags", told.get("Features", "")).split()
    family, model = (
        int(told[key]) if told.get(key, "").isdigit() else None for key in ("cpu family", "model")
    )
    name = told.get("model name") or platform.processor() or platform.machine()
    return Processor(
        name, _VENDORS.get(vendor, vendor), family, model, tuple(each for each in _FLAGS if each in flags)
    )


def describe() -> dict[str, Any]:
    """When and with what a run began: date, commit, versions, and what multiplies."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "commit": _commit(),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
        "products": str(backends.get_backend()),
    }


def load() -> float | None:
    """Processes that ran or waited, on average over the last minute."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def _commit() -> str | None:
    command = ["git", "describe", "--always", "--dirty"]
    try:
        found = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.strip()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
