"""Settings of the tests of the implementation."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harmonium import backends
from harmonium.backends import choice


@pytest.fixture
def bits_always(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Takes bits for products of any size."""
    monkeypatch.setattr(choice, "WORTHWHILE", 0)
    for least in ("_NARROW", "_LITTLE", "_MANY", "_ACROSS"):
        monkeypatch.setattr(backends.products, least, 1)
    before = backends.backend_name()
    backends.set_backend("torch,bits=1")
    yield
    backends.set_backend(before)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Uses the compiled steps of batches whatever the size."""
    monkeypatch.setattr(choice, "HALF_STEP", 0)
    monkeypatch.setattr(choice, "NARROW", 0)
    monkeypatch.setattr(choice, "WORTHWHILE", 0)
    monkeypatch.setattr(choice, "SMALL_PAIRS", 0)
    before = backends.backend_name()
    backends.set_backend("torch")
    yield
    backends.set_backend(before)
