"""Names of 0.2 that are gone: the error names what to write, and the page of the upgrade has them all."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import harmonium as hm
from harmonium._upgrade import GONE, MEMBERS, MOVED, OPTIONS

from .command_line import CommandLine

PAGE = Path(__file__).parents[2] / "docs" / "upgrade.md"
NAMES = [(module, name) for module, names in GONE.items() for name in names]


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_a_name_that_is_gone_says_what_to_write(module: str, name: str) -> None:
    with pytest.raises(AttributeError, match=f"{name}.*since version 0.3: .*"):
        getattr(import_module(module), name)
    assert f"`{module.removeprefix('harmonium.')}.{name}`" in PAGE.read_text("utf-8")


@pytest.mark.parametrize("module", GONE)
def test_any_other_name_is_missing_as_usual(module: str) -> None:
    with pytest.raises(AttributeError, match=r"has no attribute 'nonsense'$"):
        _ = import_module(module).nonsense


@pytest.mark.parametrize("package", MOVED)
def test_a_package_that_moved_says_where(package: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=f"since version 0.3: write harmonium.{MOVED[package]}"):
        import_module(f"harmonium.{package}")
    with pytest.raises(AttributeError, match=f"since version 0.3: write {MOVED[package]}"):
        getattr(hm, package)
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'harmonium.nonsense'$"):
        import_module("harmonium.nonsense")
    assert f"| `{package}`" in PAGE.read_text("utf-8")


def test_members_that_are_gone_say_what_to_write() -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(2), hm.Bernoulli(1)])
    rule, law = hm.rules.cd(), machine.hamiltonian()
    having = (rule, law, machine.graph, law.clamp({0: np.zeros((1, 2))}, 1).held, hm.machine.Statistics(law))
    having = (*having, rule.request(machine, np.zeros((1, 2)), 0))
    assert {type(each).__name__ for each in having} == set(MEMBERS)
    for each in having:
        for old, new in MEMBERS[type(each).__name__].items():
            with pytest.raises(AttributeError, match=f"'{old}' since version 0.3: write {new}$"):
                getattr(each, old)
            assert hasattr(each, new)
            assert f"{old}`" in PAGE.read_text("utf-8") and f"`{new}`" in PAGE.read_text("utf-8")
        with pytest.raises(AttributeError, match=r"has no attribute 'nonsense'$"):
            _ = each.nonsense


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_that_is_gone_says_what_to_write(option: str, cli: CommandLine, tmp_path: Path) -> None:
    assert OPTIONS[option] in cli.refuse("train", "digits", tmp_path / "run", option)
    assert f"{option}`" in PAGE.read_text("utf-8")
