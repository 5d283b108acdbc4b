from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from harmonium.tables import table_training

from .command_line import TINY, CommandLine, train_once


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capsys)


@pytest.fixture(scope="session")
def trained_bars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_once(tmp_path_factory.mktemp("bars") / "run", "bars-and-stripes", *TINY)


@pytest.fixture
def run(trained_bars: Path, tmp_path: Path) -> Path:
    """A copy of a run of 5 hidden units on bars and stripes."""
    return Path(shutil.copytree(trained_bars, tmp_path / "run"))


@pytest.fixture
def short_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten(monkeypatch)


def shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends exact fits of tables after a few updates, where a test does not look at how well they fit."""
    for name in ("_ROWS", "_LABELS"):
        usual = getattr(table_training, name)
        monkeypatch.setattr(table_training, name, usual._replace(updates=10, last_updates=2))


@pytest.fixture
def blank_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves the files of figures empty, where a test does not look at their pixels."""
    figure = pytest.importorskip("matplotlib.figure")
    monkeypatch.setattr(figure.Figure, "savefig", lambda self, file, **settings: None)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Bits of real sums depend on the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
