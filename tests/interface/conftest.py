from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from .command_line import CommandLine


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capsys)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Bits of real sums depend on the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
