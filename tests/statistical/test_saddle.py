"""Noise-started contrastive divergence from the start that users get, and from the saddle."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium.data import Rows, gaussian_mixture

UPDATES = 300


def excess(machine: hm.BoltzmannMachine, X: torch.Tensor) -> float:
    """Exact mean log-likelihood of standardised rows above that of N(0, I), in nats."""
    log_partition = hm.likelihood.quadrature_log_partition(machine)
    normal = -0.5 * (X.square() + np.log(2 * np.pi)).sum(1)
    return float((hm.likelihood.log_likelihood(machine, X, log_partition) - normal).mean())


def test_noise_cd_leaves_the_saddle_in_an_estimator() -> None:
    """The mixture lies 2.4 nats above N(0, I). Sixteen runs reached 1.37 ± 0.11, at least 1.15, and
    from the saddle 0.00: at 0.8 a correct library fails less than once in ten thousand."""
    rbm = hm.RBM(
        32, rule=hm.rules.noise_cd(10, chains=50), optimizer="adam", learning_rate=0.01, centred=False,
        batch_size=50, epochs=UPDATES * 50 // 500, schedule="cosine", clip_norm=10.0, random_state=1,
    )  # fmt: skip
    raw = gaussian_mixture(500, "anisotropic", 1)
    rbm.fit(raw)
    fresh = rbm.encoder_.encode(torch.from_numpy(gaussian_mixture(2000, "anisotropic", 11)))
    assert excess(rbm.machine_, fresh.float()) > 0.8


@pytest.mark.nightly
def test_train_warns_on_the_saddle_and_from_data_leaves_it() -> None:
    """The plain library: a new machine is told, the line that the warning names helps. Rates as above."""
    raw = gaussian_mixture(500, "isotropic", 2)
    X = torch.from_numpy((raw - raw.mean(0)) / raw.std(0))
    settings = {
        "rule": hm.rules.noise_cd(10, chains=50), "updates": UPDATES, "batch_size": 50, "optimizer": "adam",
        "learning_rate": 0.01, "schedule": "cosine", "progress": False,
    }  # fmt: skip
    machine = hm.BoltzmannMachine([hm.Gaussian(2), hm.Bernoulli(32)])
    with pytest.warns(RuntimeWarning, match="near a saddle.*init_from_data_"):
        hm.train(machine, X, **settings)
    assert abs(excess(machine, X)) < 0.05
    machine = hm.BoltzmannMachine([hm.Gaussian(2), hm.Bernoulli(32)])
    hm.machine.init_from_data_(machine, Rows.of(X), torch.Generator().manual_seed(0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hm.train(machine, X, **settings)
    assert excess(machine, X) > 0.8
