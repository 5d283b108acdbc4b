"""Grey images in Gaussian units: what both doors do with them where nothing else is asked for."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium.tables import Codec, Fitting

from .command_line import CommandLine

GREY, _ = hm.data.digits()


@pytest.mark.parametrize(
    ("X", "pixels"),
    [
        (GREY[:60], True),
        (np.uint8(GREY[:60] * 255), True),
        (GREY[:60, :40], False),  # as narrow as a table
        (GREY[:60] - 0.5, False),
    ],
    ids=["fractions", "bytes", "narrow", "below 0"],
)
def test_pixels_have_one_scale(X: np.ndarray, pixels: bool) -> None:
    encoder = Codec.fit(X, "gaussian", images=True).encoder
    assert isinstance(encoder, hm.data.Standardise)
    if pixels:
        assert encoder.mean == pytest.approx(X.mean(), rel=1e-6)
        assert encoder.scale == pytest.approx(X.std(), rel=1e-6)
    else:
        assert np.shape(encoder.mean) == (X.shape[1],)
    assert np.shape(Codec.fit(X, "gaussian").encoder.mean) == (X.shape[1],)


def test_both_doors_make_the_sampler_of_liao_and_others(cli: CommandLine, tmp_path: Path) -> None:
    run = tmp_path / "run"
    told = cli.succeed("train", "digits", run, "--visible", "gaussian", "--updates", 2, "--json").json
    assert told["rule"] == "noise_cd(20, chains=100)"
    settings = tomllib.loads((run / "run.toml").read_text("utf-8"))
    wanted = {
        **{"rule": "noise_cd", "sweeps": 20, "centred": False, "clip_norm": 10.0},
        **{"optimizer": "adam", "learning_rate": 0.003, "schedule": "linear", "hidden": ["100"]},
    }
    assert {name: settings[name] for name in wanted} == wanted
    machine = hm.load(run)
    rbm = hm.RBM(visible="gaussian", max_updates=2, random_state=0).fit(GREY)
    assert all(map(torch.equal, machine.parameters(), rbm.machine_.parameters()))
    fitting = Fitting.go_on(Codec.of(machine), GREY)
    fitting.plan(options={})
    assert fitting.decided["updates"] == 1000
    few = ("--chains", 2, "--temperatures", 2, "--json")
    notes = cli.succeed("evaluate", run, "digits", *few).json["notes"]
    assert "log_likelihood: the machine has learned a sampler from noise, and no density" in notes
    given = ("--visible", "gaussian", "--rule", "pcd", "--updates", 2, "--json")
    other = cli("train", "digits", tmp_path / "other", *given)  # so short that columns alone are better
    assert other.status == 1 and "pcd" in other.json["rule"] and "verdict" in other.json
    assert np.shape(Codec.of(hm.load(tmp_path / "other")).encoder.mean) == (64,)
    for estimator in (
        hm.RBM(visible="gaussian", rule="pcd", max_updates=1),
        hm.RBMOutlier(visible="gaussian", max_updates=1),
    ):
        machine = estimator.fit(GREY[:100]).machine_
        assert "sweeps_from_noise" not in machine.metadata
        assert len(machine.metadata["encoder"]["mean"]) == 64


def test_a_sampler_that_another_rule_trains_on_is_none_any_more(cli: CommandLine, tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    cli.succeed("train", "digits", one, "--visible", "gaussian", "--hidden", 5, "--updates", 1)
    assert hm.load(one).metadata["sweeps_from_noise"] == 20
    cli("train", "--from", one, other, "--rule", "pcd", "--updates", 1)  # worse than columns alone
    assert "sweeps_from_noise" not in hm.load(other).metadata


def test_samples_are_the_means_after_as_many_sweeps_as_were_learned(cli: CommandLine, tmp_path: Path) -> None:
    machine = hm.BoltzmannMachine([hm.Gaussian(64), hm.Bernoulli(40)], seed=0)  # too many to sum
    machine.metadata = {
        "encoder": hm.data.Standardise(0.5, 0.2).to_dict(),
        "data": {"name": "digits", "source": "digits", "image_shape": [8, 8]},
    }
    for learned, sweeps in ((None, 1000), (7, 7), ("x", 1000)):
        if learned is not None:
            machine.metadata["sweeps_from_noise"] = learned
        machine.save(tmp_path / "m.safetensors", overwrite=True)
        assert hm.tasks.usual_sweeps(machine) == sweeps
        arguments = ("sample", tmp_path / "m.safetensors", "--rows", 2, "--out", tmp_path / "a.png")
        assert cli.succeed(*arguments, "--overwrite", "--json").json["sweeps"] == sweeps
    machine.metadata["sweeps_from_noise"] = 7
    rbm, state = hm.RBM.from_machine(machine), 3
    assert np.array_equal(rbm.sample(2, random_state=state), rbm.sample(2, sweeps=7, random_state=state))
    few = hm.BoltzmannMachine([hm.Gaussian(3), hm.Bernoulli(4)], seed=0)  # the sampler, and not its density
    assert hm.tasks.sample(few, 2).method == "exact"
    few.metadata["sweeps_from_noise"] = 7
    assert hm.tasks.sample(few, 2).method == "gibbs"
