"""An update is short: functions and files of the package that one update, and one temperature, enter."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import harmonium as hm
from harmonium.backends import choice

PACKAGE = str(Path(hm.__file__).parent)
pytestmark = pytest.mark.usefixtures("one_thread")


class Entered:
    """Counts what is entered of the package while ``on``."""

    def __init__(self) -> None:
        self.on, self.calls = False, Counter[tuple[str, str]]()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if self.on and event == "call" and code.co_filename.startswith(PACKAGE):
            self.calls[code.co_filename, f"{code.co_qualname}:{code.co_firstlineno}"] += 1

    @property
    def files(self) -> set[str]:
        return {file for file, _ in self.calls}


def count_updates(entered: Entered, counted: range, updates: int, record_every: int) -> None:
    """Trains a machine of 64 and 100 units, and counts what some updates enter."""
    X = (np.random.default_rng(0).random((100, 64)) < 0.4).astype(np.float32)
    machine = hm.BoltzmannMachine([hm.Bernoulli(64), hm.Bernoulli(100)], seed=0)

    def schedule(step: int, total: int) -> float:
        entered.on = step in counted
        return 1.0

    settings = {"updates": updates, "record_every": record_every, "schedule": schedule, "progress": False}
    hm.train(machine, X, rule=hm.rules.pcd(1, 100), **settings)


@pytest.fixture
def entered() -> Any:
    found = Entered()
    before = sys.getprofile()
    sys.setprofile(found)
    yield found
    sys.setprofile(before)


def test_an_update_enters_few_functions_in_few_files(entered: Entered) -> None:
    """From one look at the schedule to the next: an update by itself that neither records nor evaluates."""
    count_updates(entered, range(40, 41), updates=60, record_every=50)
    assert 30 < len(entered.calls) <= 52, sorted(entered.calls)
    assert len(entered.files) <= 20, sorted(entered.files)


@pytest.mark.skipif(not choice.COMPILED, reason="needs numba")
def test_many_updates_of_a_small_machine_enter_no_more(entered: Entered) -> None:
    """From one record to the next: a hundred updates, a record and a look for divergence."""
    count_updates(entered, range(300, 400), updates=600, record_every=100)
    updates = [name for _, name in entered.calls if "updates" in name or "make" in name]
    assert len(updates) <= 3, updates
    assert sum(entered.calls.values()) < 1_000, entered.calls.most_common(9)


def test_a_temperature_of_annealing_enters_few_functions(entered: Entered) -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(64), hm.Bernoulli(100)], seed=0)
    v = machine.random_states(100, seed=0)[0]
    counts = []
    for temperatures in (5, 20, 21):  # the first loads what compiles
        entered.on, entered.calls = True, Counter()
        hm.likelihood.ais(machine, 100, temperatures, data=v, reverse=False, seed=0)
        entered.on = False
        counts.append(entered.calls)
    more = counts[2] - counts[1]
    assert 5 < len(more) <= 16, sorted(more)
