"""Greedy pretraining: what every pair sees and what is kept of it."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.exceptions import NotFittedError

import harmonium as hm
from harmonium.training import pretrain


def deep(*, seed: int = 0) -> hm.BoltzmannMachine:
    return hm.BoltzmannMachine([hm.Bernoulli(16), hm.Spin(6), hm.Bernoulli(4)], seed=seed)


BARS = torch.from_numpy(hm.data.bars_and_stripes())
SETTINGS: dict[str, Any] = {"updates": 30, "batch_size": 16, "learning_rate": 0.1, "progress": False}


@pytest.mark.parametrize("rule", [hm.rules.cd(1), hm.rules.pcd(1), hm.rules.tap()], ids=repr)
def test_every_pair_is_trained_and_kept(rule: hm.learning.Rule, tmp_path: Path) -> None:
    machine = deep()
    runs = pretrain(machine, BARS, rule=rule, run_dir=tmp_path, seed=3, **SETTINGS)
    lower, upper = (run.machine for run in runs)
    assert torch.equal(machine.couplings[0].weight, lower.couplings[0].weight)
    assert torch.equal(machine.couplings[1].weight, upper.couplings[0].weight)
    assert torch.equal(machine.layers[0].bias, lower.layers[0].bias)
    assert torch.equal(machine.layers[1].bias, lower.layers[1].bias)  # and not what the upper pair learned
    assert torch.equal(machine.layers[2].bias, upper.layers[1].bias)
    assert {path.name for path in tmp_path.iterdir()} == {"pair-1", "pair-2"}

    # The lowest pair is the plain run of a machine with one hidden layer.
    alone = hm.BoltzmannMachine([hm.Bernoulli(16), hm.Spin(6)])
    with torch.no_grad():
        alone.couplings[0].weight.copy_(deep().couplings[0].weight)
    hm.train(alone, BARS, rule=rule, seed=3, **SETTINGS)
    assert torch.equal(alone.couplings[0].weight, machine.couplings[0].weight)


def test_the_same_seed_gives_the_same_bits_and_another_does_not() -> None:
    machines = [deep(), deep(), deep()]
    for machine, seed in zip(machines, (1, 1, 2), strict=True):
        pretrain(machine, BARS, rule=hm.rules.pcd(1), seed=seed, **SETTINGS)
    first, second, third = (machine.couplings[1].weight for machine in machines)
    assert torch.equal(first, second)
    assert not torch.equal(first, third)


def test_the_upper_pair_learns_the_lower_layer() -> None:
    """Hidden units that copy one bit each: the upper pair sees what the data say about them."""
    generator = torch.Generator().manual_seed(0)
    bit = (torch.rand(400, 1, generator=generator) < 0.5).float()
    X = bit.repeat(1, 4)
    machine = hm.BoltzmannMachine([hm.Bernoulli(4), hm.Bernoulli(3), hm.Bernoulli(2)])
    with torch.no_grad():
        machine.couplings[0].weight.fill_(4.0)
        machine.layers[1].bias.fill_(-8.0)
        machine.layers[0].bias.fill_(-6.0)
    for parameter in (
        *machine.layers[0].parameters(),
        *machine.layers[1].parameters(),
        machine.couplings[0].weight,
    ):
        parameter.requires_grad_(False)
    pretrain(machine, X, rule=hm.rules.cd(1), updates=300, batch_size=100, learning_rate=0.5, progress=False)
    h = torch.cat([torch.zeros(1, 3), torch.ones(1, 3)])
    field = h @ machine.couplings[1].weight + machine.layers[2].bias
    assert bool(((field[1] - field[0]).abs() > 1.5).any())


def test_refusals() -> None:
    shallow = hm.BoltzmannMachine([hm.Bernoulli(16), hm.Bernoulli(3)])
    with pytest.raises(ValueError, match="two hidden layers"):
        pretrain(shallow, BARS, rule=hm.rules.cd(1), **SETTINGS)
    with pytest.raises(ValueError, match="validation"):
        pretrain(deep(), BARS, rule=hm.rules.cd(1), validation=BARS, **SETTINGS)
    with pytest.raises(ValueError, match="X"):
        pretrain(deep(), BARS[:, :5], rule=hm.rules.cd(1), **SETTINGS)


def interrupt(update: hm.training.callbacks.Update) -> None:
    if update.step == 3:
        signal.raise_signal(signal.SIGINT)


def test_an_interrupt_ends_the_pretraining() -> None:
    machine = deep()
    runs = pretrain(machine, BARS, rule=hm.rules.cd(1), callbacks=[interrupt], **SETTINGS)
    assert [(run.status, run.updates) for run in runs] == [("interrupted", 3)]
    assert torch.equal(machine.couplings[0].weight, runs[0].machine.couplings[0].weight)


def test_an_interrupt_of_pretraining_ends_the_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: Any, **settings: Any) -> list[hm.TrainingRun]:
        return pretrain(*arguments, **settings, callbacks=[interrupt])

    monkeypatch.setattr("harmonium.training.recipe.pretrain", interrupted)
    model = hm.DBM((6, 4), pretrain=2, epochs=1, batch_size=4, random_state=0)
    with pytest.raises(KeyboardInterrupt):
        model.fit(BARS.numpy())
    with pytest.raises(NotFittedError):  # not all layers had been trained together
        model.score_samples(BARS.numpy())
