"""Training that diverges begins again at a third of the rate, and a resumed run goes on with that attempt."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

import harmonium as hm
from harmonium.training import TrainingDiverged, TrainingRun, read_checkpoint

X = torch.tensor(hm.data.bars_and_stripes())
RATE = 270.0  # diverges at once, after two updates at a third of it, and after 16 at a ninth
FILES = ("machine.safetensors", "checkpoint.safetensors", "run.toml")
pytestmark = pytest.mark.usefixtures("one_thread")


class Killed(Exception):
    """Stands for a kill."""


class Watch:
    """A callback that notes the rate of every attempt, and kills one of them after so many updates."""

    def __init__(self, attempt: int = -1, step: int = -1) -> None:
        self.attempt, self.step, self.rates = attempt, step, list[float]()

    def begin(self, judged: hm.BoltzmannMachine, metrics: Any) -> None:
        self.rates.append(math.nan)

    def __call__(self, update: hm.training.Update) -> None:
        self.rates[-1] = update.learning_rate
        if (len(self.rates), update.step) == (self.attempt, self.step):
            raise Killed


def trained(
    folder: Path, kill: tuple[int, int] = (-1, -1), **options: Any
) -> tuple[TrainingRun, list[float]]:
    """Trains in a folder, killed in an attempt after so many updates; returns the rates of all attempts."""
    machine, watch = hm.BoltzmannMachine([hm.Bernoulli(16), hm.Bernoulli(8)], seed=1), Watch(*kill)
    run = hm.train(
        machine, X, rule=hm.rules.centred(hm.rules.pcd()), updates=120, learning_rate=RATE, run_dir=folder,
        callbacks=[watch], checkpoint_every=5, record_every=10, progress=False, on_divergence="slower",
        **options,
    )  # fmt: skip
    return run, watch.rates


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
        rates = trained(folder, resume=True)[1]
        assert len(rates) == len(again) and rates[-1] == again[-1]
        for name in FILES:
            ours, theirs = ((where / name).read_bytes() for where in (tmp_path / "whole", folder))
            if name != "checkpoint.safetensors":  # in which seconds differ
                assert ours == theirs
    kept = read_checkpoint(tmp_path / "whole" / "checkpoint.safetensors")
    assert kept["settings"]["learning_rate"] == attempts[3]


def test_the_last_attempt_raises_and_each_begins_with_the_machine() -> None:
    machine, seen = hm.BoltzmannMachine([hm.Bernoulli(16), hm.Bernoulli(8)], seed=1), list[torch.Tensor]()

    class Look:
        def begin(self, judged: hm.BoltzmannMachine, metrics: Any) -> None:
            seen.append(judged.couplings[0].weight.detach().clone())

        def __call__(self, update: hm.training.Update) -> None:
            pass

    told: dict[str, Any] = {"rule": "pcd", "updates": 20, "learning_rate": 1e9, "progress": False}
    with pytest.warns(RuntimeWarning, match="begins again at a third"), pytest.raises(TrainingDiverged):
        hm.train(machine, X, callbacks=[Look()], on_divergence="slower", **told)
    assert len(seen) == 5 and all(torch.equal(each, seen[0]) for each in seen)


@pytest.mark.filterwarnings("ignore:training diverged:RuntimeWarning")
def test_rates_of_an_optimiser_of_ones_own_fall_too() -> None:
    machine, rates = hm.BoltzmannMachine([hm.Bernoulli(16), hm.Bernoulli(8)], seed=1), Watch()

    def make(parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD([{"params": parameters, "lr": RATE}], lr=1.0)

    told: dict[str, Any] = {"optimizer": make, "on_divergence": "slower", "progress": False}
    hm.train(machine, X, rule="pcd", updates=20, callbacks=[rates], **told)
    assert rates.rates[-1] == pytest.approx(RATE / 3 ** (len(rates.rates) - 1)) and len(rates.rates) > 1
