"""The requirements that the metadata name: numba where it has wheels."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
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


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13", "3.14", "3.15"])
@pytest.mark.parametrize(
    ("system", "machine"),
    [("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"), ("win32", "AMD64")],
)
def test_numba_is_required_where_it_has_wheels(system: str, machine: str, python: str) -> None:
    assert required(system, machine, python)


def test_numba_is_not_required_elsewhere() -> None:
    for system, machine in (
        *(("linux", "ppc64le"), ("linux", "riscv64"), ("linux", "i686"), ("darwin", "x86_64")),
        *(("win32", "ARM64"), ("freebsd14", "amd64"), ("emscripten", "wasm32")),
    ):
        assert not required(system, machine), (system, machine)
    assert not required("linux", "x86_64", "3.16")
    assert not required("linux", "x86_64", kind="PyPy")
