"""The requirements that the metadata name: numba where it has wheels."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
NUMBA = next(each for each in map(Requirement, PROJECT["dependencies"]) if each.name == "numba")


def required(system: str, machine: str, python: str = "3.13", kind: str = "CPython") -> bool:
    assert NUMBA.marker is not None
    environment: dict[str, Any] = {
        "sys_platform": system,
        "platform_machine": machine,
        "python_version": python,
        "platform_python_implementation": kind,
    }
    return NUMBA.marker.evaluate(environment)


def test_numba_is_required_where_it_has_wheels_and_nowhere_else() -> None:
    for system, machine in (("linux", "x86_64"), ("darwin", "arm64"), ("win32", "AMD64")):
        assert required(system, machine) and required(system, machine, "3.15"), (system, machine)
    for system, machine in (("linux", "riscv64"), ("darwin", "x86_64"), ("win32", "ARM64")):
        assert not required(system, machine), (system, machine)
    assert not required("linux", "x86_64", "3.16")
    assert not required("linux", "x86_64", kind="PyPy")
