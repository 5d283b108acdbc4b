from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from harmonium.tables import table_fit

from .command_line import CommandLine


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capsys)


@pytest.fixture
def short_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten(monkeypatch)


def shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends exact fits of tables after a few updates, where a test does not look at how well they fit."""
    for name in ("_ROWS", "_LABELS"):
        usual = getattr(table_fit, name)
        monkeypatch.setattr(table_fit, name, usual._replace(updates=10, last_updates=2))


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Bits of real sums depend on the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
