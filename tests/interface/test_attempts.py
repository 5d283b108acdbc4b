"""Training that diverges begins anew at a third of the rate, and a resumed run goes on with that attempt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import harmonium as hm
from harmonium.training import TrainingDiverged, TrainingRun, read_checkpoint, train_slower

X = torch.tensor(hm.data.bars_and_stripes())
RATE = 270.0  # diverges at once, after two updates at a third of it, and after 16 at a ninth
FILES = ("machine.safetensors", "checkpoint.safetensors", "run.toml")
pytestmark = pytest.mark.usefixtures("one_thread")


class Killed(Exception):
    """Stands for a kill."""


class Kill:
    """A callback that kills the run after so many updates of an attempt."""

    def __init__(self, step: int) -> None:
        self.step = step

    def __call__(self, update: hm.training.Update) -> None:
        if update.step == self.step:
            raise Killed


def trained(
    folder: Path, kill: tuple[int, int] = (-1, -1), **options: Any
) -> tuple[TrainingRun, list[float]]:
    """Trains in a folder, killed in an attempt after so many updates; returns the factors of all attempts."""
    machine, factors = hm.BoltzmannMachine([hm.Bernoulli(16), hm.Bernoulli(8)], seed=1), list[float]()

    def attempt(factor: float, **folder_options: Any) -> TrainingRun:
        factors.append(factor)
        callbacks = [Kill(kill[1])] if len(factors) == kill[0] else []
        return hm.train(
            machine, X, rule=hm.rules.centred(hm.rules.pcd()), updates=120, learning_rate=RATE * factor,
            run_dir=folder, callbacks=callbacks, checkpoint_every=5, record_every=10, progress=False,
            **folder_options,
        )  # fmt: skip

    return train_slower(attempt, machine, run_dir=folder, learning_rate=RATE, **options), factors


@pytest.mark.filterwarnings("ignore:training (diverged|ended):RuntimeWarning")
def test_a_resumed_run_goes_on_with_its_attempt(tmp_path: Path) -> None:
    whole, attempts = trained(tmp_path / "whole")
    assert len(attempts) == 4 and whole.history[0]["learning_rate"] == pytest.approx(RATE / 27)
    assert [record["step"] for record in whole.history] == [*range(10, 121, 10)]
    # Before the last attempt has written anything, the folder holds a checkpoint of the one that diverged.
    for kill, again in (((4, 60), attempts[3:]), ((4, 3), attempts[2:]), ((3, 8), attempts[2:])):
        folder = tmp_path / f"killed-{kill[0]}-{kill[1]}"
        with pytest.raises(Killed):
            trained(folder, kill)
        assert trained(folder, resume=True)[1] == again
        for name in FILES:
            ours, theirs = ((where / name).read_bytes() for where in (tmp_path / "whole", folder))
            if name != "checkpoint.safetensors":  # in which seconds differ
                assert ours == theirs
    kept = read_checkpoint(tmp_path / "whole" / "checkpoint.safetensors")
    assert kept["settings"]["learning_rate"] == RATE * attempts[3]


def test_the_last_attempt_raises_and_each_begins_with_the_machine() -> None:
    machine, seen = hm.BoltzmannMachine([hm.Bernoulli(16), hm.Bernoulli(8)], seed=1), list[torch.Tensor]()

    def attempt(factor: float) -> TrainingRun:
        seen.append(machine.couplings[0].weight.detach().clone())
        return hm.train(machine, X, rule="pcd", updates=20, learning_rate=1e9 * factor, progress=False)

    with pytest.warns(RuntimeWarning, match="begins anew at a third"), pytest.raises(TrainingDiverged):
        train_slower(attempt, machine)
    assert len(seen) == 5 and all(torch.equal(each, seen[0]) for each in seen)
