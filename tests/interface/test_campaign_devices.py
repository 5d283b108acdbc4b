"""The campaign of the pretend device finds devices that are mixed, and goes on from a report."""

from __future__ import annotations

import re

import pytest
from campaigns import devices


@pytest.mark.parametrize("name", [name for names in devices.HOST.values() for name in names])
def test_what_is_left_out_is_there(name: str) -> None:
    file, _, function = name.partition("::")
    (path,) = devices.TESTS.glob(f"*/{file}")
    named = re.findall(r"def (test_\w+)", path.read_text())
    assert not function or any(re.match(function, f"{each}[sparse-True]") for each in named)
