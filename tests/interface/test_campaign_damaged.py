"""The campaign of damaged files finds what it is to find."""

from __future__ import annotations

import gc
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from campaigns import damaged
from campaigns._honest import machine_kinds
from campaigns._kind import Kind

import harmonium as hm
from harmonium.layers import Layer


def test_it_has_machines_of_every_kind_of_unit(tmp_path: Path) -> None:
    (machines,) = [kind for kind in machine_kinds() if kind.name == "machine"]
    found = set()
    for i, files in enumerate(machines.variants):
        (tmp_path / f"{i}").write_bytes(files[machines.target])
        found |= {layer.kind for layer in hm.load(tmp_path / f"{i}").layers}
    missing = set(Layer.registry) - found
    assert not missing, f"add a machine with {missing} to _machines in tests/campaigns/_honest.py"


def reader(does: Callable[[bytes], Any]) -> Kind:
    """A reader of files of two bytes that goes wrong on all but the honest one."""

    def use(path: Path) -> Any:
        content = path.read_bytes()
        return content if content == b"ok" else does(content)

    return Kind("fake", "x", [{"x": b"ok"}], use, lambda path: ["--version"], sealed=True)


def refuse(content: bytes) -> None:
    raise ValueError("no file is named")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("does", "end"),
    [
        (lambda content: content, "changed"),
        (lambda content: {}[content], "exception"),
        (refuse, "exception"),
        # Far above the allowance: a process that has run other tests gives memory back in its own time.
        (lambda content: gc.collect() + len(bytearray(400 << 20)), "memory"),
        (lambda content: bytearray(1 << 50), "memory"),
        (lambda content: signal.raise_signal(signal.SIGKILL), "crash"),
        (lambda content: time.sleep(100), "hang"),
    ],
    ids=["other content", "KeyError", "nameless", "400 MiB", "1 PiB", "kill", "sleep"],
)
def test_it_finds_what_goes_wrong(
    does: Callable[[bytes], Any], end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if end == "hang":
        monkeypatch.setattr(damaged, "SECONDS", 0.05)
    monkeypatch.setattr(damaged, "ALLOWANCE", 64 << 20)
    waste: list[Any] = [bytearray(100 << 20)]  # of earlier tests, say: no room for what is asked
    waste.append(waste)
    campaign = damaged.Campaign(0, [reader(does)])
    del waste
    assert campaign.run(cases=5, seconds=60) == 5
    counts = dict(zip(damaged.ENDS, campaign.counts[0].tolist(), strict=True))
    assert counts["read"] + counts["refused"] + counts[end] == sum(counts.values()) == 5
    assert counts[end] >= 3
    assert {found for _, found, _ in campaign.failures} == {end}
