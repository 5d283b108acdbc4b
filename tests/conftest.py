from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

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
