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
    """Marks each test by its folder, and the cases beyond those that ``mostly_nightly`` keeps as nightly."""
    cases: dict[tuple[Path, str], list[pytest.Item]] = {}
    for item in items:
        if item.path.is_relative_to(TESTS):
            item.add_marker(item.path.relative_to(TESTS).parts[0])
        if item.get_closest_marker("mostly_nightly"):
            cases.setdefault((item.path, getattr(item, "originalname", item.name)), []).append(item)
    for of_test in cases.values():
        marker = of_test[0].get_closest_marker("mostly_nightly")
        assert marker is not None
        (kept,) = marker.args
        spread = {number * (len(of_test) - 1) // max(1, kept - 1) for number in range(kept)}
        for number, item in enumerate(of_test):
            if number not in spread:
                item.add_marker("nightly")
