"""Machines that are worse than independent columns: how they are found, and who says so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

import harmonium as hm
from harmonium.tables import find_collapse

from .command_line import CommandLine

torch.set_num_threads(1)

ROWS = np.random.Generator(np.random.PCG64(0)).random((200, 12)) < np.linspace(0.1, 0.6, 12)
X = torch.from_numpy(ROWS).float()
LOST = {"initial_std": 2.0, "learning_rate": 0.0, "method": "chains"}


def machine(*hidden: int, std: float = 0.0) -> hm.BoltzmannMachine:
    made = hm.BoltzmannMachine([hm.Bernoulli(12), *map(hm.Bernoulli, hidden)])
    hm.machine.normal_(made, std, torch.Generator().manual_seed(0))
    hm.machine.init_visible_biases_(made, X)
    return made


@pytest.mark.parametrize("hidden", [(), (5,), (5, 4), (30, 20)], ids=str)
def test_it_is_found_by_likelihoods(hidden: tuple[int, ...]) -> None:
    """By their exact values, where they can be summed; machines of independent columns are not worse."""
    if not hidden:
        lost, sound = (hm.BoltzmannMachine([hm.Bernoulli(12)], edges=[(0, 0)]) for _ in range(2))
        hm.machine.init_visible_biases_(sound, X)
    else:
        lost, sound = machine(*hidden, std=2.0), machine(*hidden)
    assert find_collapse(sound, X) is None
    found = find_collapse(lost, X, seed=1)
    assert found is not None and found.startswith("the machine is worse than independent columns")
    means = X.double().mean(0)
    alone = float((X.double() @ means.log() + (1 - X.double()) @ (1 - means).log()).mean())
    numbers = [float(word) for word in found.split() if word.lstrip("-").replace(".", "").isdigit()]
    assert numbers[0] == pytest.approx(alone, abs=0.05)  # biases are smoothed a little
    if sum(hidden) < 20:
        truth = float(hm.likelihood.exact_log_likelihood(lost.double(), X.double()).mean())
        assert truth - 1.0 < numbers[1] < truth + 0.01  # a bound below it where hidden layers are joined


def test_what_is_hardly_worse_is_none() -> None:
    """Nor are fewer than 50 rows judged, missing cells read, or rows of weight 0."""
    lost = machine(5, std=2.0)
    assert find_collapse(machine(5, std=0.1), X) is None
    assert find_collapse(lost, X[:49]) is None
    holes = X.clone()
    holes[:, 0] = torch.nan
    assert find_collapse(lost, holes) is None
    best = int(hm.likelihood.exact_log_likelihood(lost, X).argmax())
    one = X[[best]].repeat(60, 1)
    weights = torch.cat([torch.ones(60), torch.zeros(len(X))])
    again = find_collapse(lost, torch.cat([one, X]), weights)
    assert again is None or again != find_collapse(lost, torch.cat([one, X]))


def test_the_command_says_so_and_fails(cli: CommandLine, tmp_path: Path) -> None:
    data, run = tmp_path / "x.npy", tmp_path / "run"
    np.save(data, ROWS.astype(np.uint8))
    options = ("--hidden", 5, "--updates", 5, "--method", "chains", "--json")
    answer = cli("train", data, run, *options, "--initial-std", 2, "--learning-rate", 0)
    assert answer.status == 1 and (run / "machine.safetensors").exists()
    assert answer.json["status"] == "completed"
    assert answer.json["verdict"].startswith("the machine is worse than independent columns")
    assert "--learning-rate" in answer.json["verdict"]
    sound = cli.succeed("train", data, tmp_path / "sound", *options)
    assert "verdict" not in sound.json
    sampler = ("--rule", "noise_cd", "--sweeps", 2, "--initial-std", 2, "--learning-rate", 0)
    cli.succeed("train", data, tmp_path / "sampler", *options, *sampler)


@pytest.mark.parametrize("estimator", [hm.RBM(5), hm.DBM((5, 4))], ids=str)
def test_estimators_warn(estimator: hm.RBM | hm.DBM, recwarn: pytest.WarningsRecorder) -> None:
    estimator.set_params(max_updates=5, random_state=0, method="chains")
    estimator.fit(ROWS)
    assert not [w for w in recwarn if "worse than independent" in str(w.message)]
    with pytest.warns(ConvergenceWarning, match="worse than independent columns.* learning_rate"):
        estimator.set_params(**LOST).fit(ROWS)
