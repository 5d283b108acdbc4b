"""One machine by three doors: the command, an estimator and ``hm.train`` give the same bits."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium.machine import hidden_for
from harmonium.tables import Codec, Fitting, as_root

from .command_line import CommandLine

X = hm.data.bars_and_stripes().astype(np.uint8)
SEED, UPDATES = 3, 10

# Options of the command, and parameters of the estimator.
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "by the data": ("", {}),
    "adam": ("--optimizer adam", {"optimizer": "adam"}),
    "numbers": (
        "--sweeps 3 --chains 20 --learning-rate 0.2 --schedule cosine --batch-size 7 --clip-norm 0.5 "
        "--weight-decay 0.01",
        {"sweeps": 3, "chains": 20, "learning_rate": 0.2, "schedule": "cosine", "batch_size": 7}
        | {"clip_norm": 0.5, "weight_decay": 0.01},
    ),
    "average": ("--averaging 0.9", {"averaging": 0.9}),
    "start by names": ("--init orthogonal,logistic", {"init": "orthogonal,logistic"}),
    "spins": ("--hidden spin:6", {"hidden_kind": "spin"}),
}


class Odd:
    """An optimiser of one's own, whose description has two lines."""

    def __call__(self, parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.1)

    def __repr__(self) -> str:
        return "odd\nrule = 3"


@pytest.mark.parametrize("name", SETTINGS)
def test_three_doors_give_one_machine(cli: CommandLine, tmp_path: Path, name: str) -> None:
    options, parameters = SETTINGS[name]
    np.save(tmp_path / "rows.npy", X)
    if "hidden_kind" not in parameters:
        options += " --hidden 6"
    told = ("--updates", UPDATES, "--method", "chains", "--seed", SEED, *options.split())
    cli.succeed("train", tmp_path / "rows.npy", tmp_path / "run", *told)
    file = "averaged.safetensors" if "averaging" in parameters else "machine.safetensors"
    made = hm.load(tmp_path / "run" / file)
    estimator = hm.RBM(6, method="chains", max_updates=UPDATES, random_state=SEED, **parameters).fit(X)
    assert bits(made) == bits(estimator.machine_) == bits(by_hand(tmp_path / "run", parameters))


def test_an_array_may_have_missing_cells_by_two_doors(cli: CommandLine, tmp_path: Path) -> None:
    holes = np.where(np.random.default_rng(0).random(X.shape) < 0.2, np.nan, X)
    np.save(tmp_path / "holes.npy", holes)
    told = ("--hidden", 6, "--updates", UPDATES, "--method", "chains", "--seed", SEED)
    cli.succeed("train", tmp_path / "holes.npy", tmp_path / "run", *told)
    made = hm.load(tmp_path / "run" / "machine.safetensors")
    estimator = hm.RBM(6, method="chains", max_updates=UPDATES, random_state=SEED).fit(holes)
    assert bits(made) == bits(estimator.machine_)
    np.save(tmp_path / "none.npy", np.full((3, 2), np.nan))
    assert "every cell of every row is missing" in cli.refuse("train", tmp_path / "none.npy", tmp_path / "no")


def by_hand(run: Path, parameters: dict[str, Any]) -> hm.BoltzmannMachine:
    """A machine from ``hm.train`` with the settings that ``run.toml`` says were in force."""
    record = tomllib.loads((run / "run.toml").read_text())
    hidden, init = hidden_for(parameters.get("hidden_kind", "bernoulli"), [6]), parameters.get("init")
    codec, std = Codec(hm.data.Identity(), [hm.Bernoulli(16)]), parameters.get("initial_std")
    begun = Fitting.begin(codec, X, hidden=hidden, method="chains", init=init, std=std, seed=as_root(SEED))
    names = {"batch_size", "learning_rate", "schedule", "optimizer", "weight_decay", "clip_norm"}
    names |= {"averaging", "seed"}
    settings = {name: record["run"][name] for name in names & record["run"].keys()}
    rule = eval(record["run"]["rule"], vars(hm.rules))
    trained = hm.train(begun.machine, X, rule=rule, updates=UPDATES, progress=False, **settings)
    return trained.averaged_machine or trained.machine


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"learning_rate": np.float64(0.1)}, {"learning_rate": 0.1}),
        ({"rates": {"bias": 0.5}}, {"rate": ["bias=0.5"]}),
        ({"ladder": hm.ladder.Ladder()}, {}),
        ({"optimizer": Odd()}, {}),
    ],
    ids=str,
)
def test_the_file_of_a_run_in_python_is_read_by_the_command(
    cli: CommandLine, tmp_path: Path, given: dict[str, Any], found: dict[str, Any]
) -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(16), hm.Bernoulli(3)])
    hm.train(machine, X, rule="pcd", updates=3, run_dir=tmp_path / "run", progress=False, **given)
    file = tmp_path / "run" / "run.toml"
    record = tomllib.loads(file.read_text())
    assert {name: record[name] for name in found} == found and "rule" not in record
    np.save(tmp_path / "rows.npy", X)
    told = ("--config", file, tmp_path / "rows.npy", tmp_path / "again", "--hidden", 3)
    assert cli.succeed("train", *told, "--json").json["updates"] == 3


def test_metadata_that_no_file_holds_are_refused_before_training(tmp_path: Path) -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(16), hm.Bernoulli(3)])
    machine.metadata = {"mine": {1, 2}}
    before = bits(machine)
    with pytest.raises(TypeError, match="machine: expected metadata of values that JSON has"):
        hm.train(machine, X, rule="pcd", updates=3, run_dir=tmp_path / "run", progress=False)
    assert bits(machine) == before


def bits(machine: hm.BoltzmannMachine) -> list[bytes]:
    return [parameter.detach().numpy().tobytes() for parameter in machine.parameters()]
