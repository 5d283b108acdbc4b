from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

TESTS = Path(__file__).parent

# Run by test_pretend_device.py in a process of its own.
collect_ignore = ["implementation/test_devices.py"]


@pytest.fixture(scope="session", autouse=True)
def heed_signals() -> Iterator[None]:
    """A shell starts background processes with SIGINT ignored, and their children inherit that."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    ignored = [number for number in usual if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, usual[number])
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.fixture(scope="module", autouse=True)
def one_thread_for_tiny_tensors(request: pytest.FixtureRequest) -> Iterator[None]:
    """In all folders but that of the interface, where a test asks for ``one_thread``."""
    before = torch.get_num_threads()
    if request.path.parent.name != "interface":
        torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks each test by its folder: exact, statistical, interface or implementation."""
    for item in items:
        if item.path.is_relative_to(TESTS):
            item.add_marker(item.path.relative_to(TESTS).parts[0])
