"""Truncated units with every rule, in estimators, files and commands."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import harmonium as hm

from .command_line import CommandLine

MACHINES = {
    "visible": lambda: [hm.TruncatedGaussian(4, 0.0, 1.0), hm.Bernoulli(3)],
    "sparse": lambda: [hm.TruncatedGaussBernoulli(4, 0.0, [1.0, 2.0, 1.0, 3.0]), hm.Spin(3)],
    "hidden": lambda: [hm.Bernoulli(4), hm.TruncatedGaussBernoulli(3, -1.0, 1.0)],
    "deep": lambda: [hm.Bernoulli(4), hm.TruncatedGaussian(3, 0.0, 2.0), hm.Spin(2)],
}
WHOLE_STATE = ("ucd_lmi",)
SETTINGS = {
    "cd": {"k": 1},
    "noise_cd": {"k": 3},
    "tempered_pcd": {"replicas": 3},
    "ucd": {"max_sweeps": 200},
}


def data(machine: hm.BoltzmannMachine) -> torch.Tensor:
    return machine.random_states(12, seed=torch.Generator().manual_seed(0))[0]


@pytest.mark.parametrize("rule", sorted(set(hm.rules.RECIPES) - set(WHOLE_STATE)))
@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.mostly_nightly(4)
def test_every_rule_learns(name: str, rule: str) -> None:
    machine = hm.BoltzmannMachine(MACHINES[name](), seed=1)
    X = data(machine)
    made = hm.rules.RECIPES[rule](**SETTINGS.get(rule, {}))
    run = hm.train(machine, X, rule=made, updates=4, batch_size=6, learning_rate=0.01)
    assert run.status == "completed"
    for parameter in run.machine.parameters():
        assert bool(torch.isfinite(parameter).all())


def test_pairs_of_whole_state_proposals_are_refused() -> None:
    machine = hm.BoltzmannMachine(MACHINES["visible"]())
    with pytest.raises(ValueError, match="expected discrete layers for Metropolis pairs"):
        hm.coupled.meet(
            machine, hm.coupled.Metropolis(), data(machine), seed=torch.Generator().manual_seed(0)
        )


def test_estimators_and_commands(cli: CommandLine, tmp_path: Path) -> None:
    images, visible = hm.data.digits()[0], "truncated_gauss_bernoulli"
    rbm = hm.RBM(n_hidden=8, visible=visible, method="chains", epochs=3, random_state=0).fit(images)
    assert rbm.machine_.layers[0].kind == visible
    untrained = hm.RBM(
        n_hidden=8, visible=visible, method="chains", epochs=1, learning_rate=0, random_state=0
    ).fit(images)
    assert rbm.score(images) > untrained.score(images)
    samples = rbm.sample(10, sweeps=20)
    assert ((samples >= 0) & (samples <= 1)).all()
    assert rbm.transform(images[:3]).shape == (3, 8)

    np.save(tmp_path / "x.npy", images.astype(np.float32))
    cli.train(tmp_path / "x.npy", tmp_path / "run", "--visible", visible)
    result = cli.succeed("evaluate", tmp_path / "run", tmp_path / "x.npy", "--json").json
    assert result["log_partition"]["method"] == "exact"
    assert np.isfinite(result["results"][0]["log_likelihood"])
    cli.succeed("sample", tmp_path / "run", "--rows", 5, "--sweeps", 5, "--out", tmp_path / "s.npy")
    drawn = np.load(tmp_path / "s.npy")
    assert ((drawn >= 0) & (drawn <= 1)).all()
