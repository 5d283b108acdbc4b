"""Names of 0.2 that are gone: the error names what to write, and the page of the upgrade has them all."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from harmonium._upgrade import GONE, OPTIONS

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


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_that_is_gone_says_what_to_write(option: str, cli: CommandLine, tmp_path: Path) -> None:
    assert OPTIONS[option] in cli.refuse("train", "digits", tmp_path / "run", option)
    assert f"{option}`" in PAGE.read_text("utf-8")
