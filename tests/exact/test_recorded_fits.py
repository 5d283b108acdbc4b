"""Fits of small tables end where they ended when their numbers were recorded.

Recorded in float64, where rounding moves them by less than 1e-8. A change on purpose records them again.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

import harmonium as hm
from harmonium.tables import train_table
from harmonium.training import Objective

torch.set_num_threads(1)
# Mean ln p of the rows in nats, and the norm of all couplings.
REAL = [-3.5912402, 0.5900981]
BIRDS = [-6.5029361, 8.7449517]
MIXED = [-4.9853215, 7.1835223]
HYBRID = [-7.0068648, 7.4965929]
DISCRIMINATIVE = [-8.0456993, 11.352617]


def real_columns() -> tuple[hm.BoltzmannMachine, Tensor, None]:
    """Two groups of rows with five correlated real columns."""
    random = np.random.default_rng(3)
    group = random.choice(2, 140)
    x = random.normal(size=(140, 5)) @ random.normal(size=(5, 5)) + 2 * group[:, None] * [1, -1, 0, 1, 0]
    machine = hm.machine.join_layers([hm.Gaussian(5)], [hm.Bernoulli(4)], 0).double()
    return machine, torch.from_numpy((x - x.mean(0)) / x.std(0)), None


def birds() -> tuple[hm.BoltzmannMachine, Tensor, None]:
    """Island, sex, three measures with holes, and the species, which all of them tell."""
    random = np.random.default_rng(5)
    species, sex = random.choice(3, 120), random.random(120) < 0.5
    island = (species + random.choice(3, 120, p=[0.7, 0.2, 0.1])) % 3
    real = np.eye(3)[species] * 2 + sex[:, None] * [0.8, 0.2, 0.5] + random.normal(size=(120, 3))
    real[random.random((120, 3)) < 0.05] = np.nan
    visible = [hm.Categorical(1, 3), hm.Bernoulli(1), hm.Gaussian(3), hm.Categorical(1, 3)]
    machine = hm.machine.join_layers(visible, [hm.Bernoulli(4)], 0).double()
    v = np.concatenate([np.eye(3)[island], sex[:, None], real, np.eye(3)[species]], 1)
    return machine, torch.from_numpy(v), None


def mixed() -> tuple[hm.BoltzmannMachine, Tensor, Tensor]:
    """Bits, a category and two real columns, a tenth of the cells missing, and weights."""
    random = np.random.default_rng(7)
    group = random.choice(2, 150)
    bits = (random.random((150, 3)) < np.where(group[:, None] > 0, 0.85, 0.2)).astype(float)
    letters = np.eye(4)[group * 2 + random.choice(2, 150)]
    real = random.normal(size=(150, 2)) + group[:, None] * [1, 2]
    real[:, 1] += 0.7 * real[:, 0]
    bits[random.random((150, 3)) < 0.1] = np.nan
    letters[random.random(150) < 0.1] = np.nan
    real[random.random((150, 2)) < 0.1] = np.nan
    v = np.concatenate([bits, letters, real], 1)
    v[np.isnan(v).all(1), 0] = 1.0
    visible = [hm.Bernoulli(3), hm.Categorical(1, 4), hm.Gaussian(2)]
    machine = hm.machine.join_layers(visible, [hm.Bernoulli(4)], 0).double()
    return machine, torch.from_numpy(v), torch.from_numpy(random.uniform(0.2, 2.0, 150))


def numbers_of(made: hm.BoltzmannMachine, v: Tensor) -> list[float]:
    """The mean ln p of the rows, and the norm of all couplings."""
    score = hm.likelihood.exact_log_likelihood(made, v).mean()
    return [float(score), float(torch.cat([c.weight.detach().flatten() for c in made.couplings]).norm())]


@pytest.mark.parametrize(
    ("table", "recorded"),
    [(real_columns, REAL), (birds, BIRDS), (mixed, MIXED)],
    ids=["real", "birds", "mixed"],
)
@pytest.mark.nightly
def test_tables(table, recorded: list[float]) -> None:
    machine, v, weights = table()
    made = train_table(machine, v, weights, seed=1).machine
    assert numbers_of(made, v) == pytest.approx(recorded, abs=1e-5)


@pytest.mark.parametrize(("joint", "recorded"), [(0.03, HYBRID), (0.0, DISCRIMINATIVE)])
@pytest.mark.nightly
def test_labels(joint: float, recorded: list[float]) -> None:
    machine, v, _ = birds()
    made = train_table(machine, v, objective=Objective([0, 1, 2], joint), seed=1).machine
    assert numbers_of(made, v) == pytest.approx(recorded, abs=1e-5)
