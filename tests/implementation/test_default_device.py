"""Where torch's default device is a GPU, machines are made on it, and what belongs on the CPU stays there."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from pretend_device import DEVICE, pretend_device

import harmonium as hm
from harmonium.data import Rows

pytestmark = pytest.mark.nightly
ROWS = np.random.default_rng(0)
BITS = (ROWS.random((300, 12)) < 0.4).astype(np.float32)
REAL = ROWS.normal(size=(300, 12)).astype(np.float32)
HOLES = np.where(ROWS.random((300, 12)) < 0.05, np.nan, BITS)
WIDE = (ROWS.random((300, 300)) < 0.4).astype(np.float32)  # of a size that libraries and digits serve


@pytest.fixture(autouse=True)
def default_device():
    with pretend_device(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of saddles, and few annealing runs
        torch.set_default_device(DEVICE)
        try:
            yield
        finally:
            torch.set_default_device(None)


@pytest.fixture(params=["there", "cpu"])
def device(request):
    return DEVICE if request.param == "there" else torch.device("cpu")


def rbm(device, visible=hm.Bernoulli, width=12, hidden=hm.Bernoulli):
    return hm.BoltzmannMachine([visible(width), hidden(width // 2)], seed=0).to(device)


def deep(device, kind=hm.Bernoulli, width=12):
    return hm.BoltzmannMachine([kind(width), kind(width // 2), kind(4)], seed=0).to(device)


def lattice(device):
    return hm.BoltzmannMachine([hm.Spin(12)], edges={(0, 0): hm.Dense()}, visible=[0], seed=0).to(device)


def labelled(device):
    layers = [hm.Bernoulli(10), hm.Categorical(1, 2), hm.Bernoulli(5)]
    return hm.BoltzmannMachine(layers, edges=[(0, 2), (1, 2)], visible=[0, 1], seed=0).to(device)


def train(machine, X, rule, **settings):
    settings = {"batch_size": 50, "updates": 3, "progress": False, **settings}
    return hm.train(machine, X, rule=rule, **settings)


R = hm.rules
TRAINED = {
    "pcd": lambda on: train(rbm(on), BITS, R.pcd()),
    "wide": lambda on: train(rbm(on, width=300), WIDE, R.pcd(3, 300), batch_size=150),
    "wide, spins": lambda on: train(rbm(on, hm.Spin, 300), 2 * WIDE - 1, R.cd(3), batch_size=300),
    "weighted": lambda on: train(rbm(on), BITS, R.pcd(), weights=np.arange(300)),
    "all rows": lambda on: train(rbm(on), BITS, R.centred(R.cd()), batch_size=300, updates=2),
    "over an epoch's end": lambda on: train(rbm(on), BITS, R.pcd(), batch_size=70, updates=9),
    "redrawn": lambda on: train(rbm(on), BITS * 0.9, R.pcd(), transform=hm.data.bernoulli_binarise),
    "averaged": lambda on: train(rbm(on), BITS, R.pcd(), optimizer="adam", averaging=0.9, clip_norm=1.0),
    "validated": lambda on: train(
        rbm(on), BITS, R.pcd(), validation=BITS[:50], metrics={"pl": hm.likelihood.pseudo_log_likelihood}
    ),
    "holes": lambda on: train(rbm(on), HOLES, R.pcd()),
    "exact": lambda on: train(rbm(on), BITS, R.exact()),
    "tempered": lambda on: train(rbm(on), BITS, R.tempered_pcd()),
    "from noise": lambda on: train(rbm(on, hm.Gaussian), REAL, R.noise_cd(5)),
    "half-lines": lambda on: train(rbm(on, hidden=hm.ReLU), BITS, R.pcd()),
    "ucd": lambda on: train(rbm(on), BITS, R.ucd(max_sweeps=50)),
    "ucd, wide": lambda on: train(rbm(on, width=300), WIDE, R.ucd(max_sweeps=5), updates=1),
    "local modes": lambda on: train(deep(on), BITS, R.ucd_lmi(max_sweeps=20)),
    "mean field": lambda on: train(deep(on), BITS, R.mean_field_pcd()),
    "tap": lambda on: train(rbm(on), BITS, R.tap()),
    "lattice": lambda on: train(lattice(on), 2 * BITS - 1, R.pcd()),
    "lattice, pseudo-likelihood": lambda on: train(lattice(on), 2 * BITS - 1, R.pseudo_likelihood()),
    "conditional": lambda on: train(
        labelled(on),
        np.c_[BITS[:, :10], BITS[:, :1], 1 - BITS[:, :1]],
        R.conditional(R.exact(), condition_on=[0]),
    ),
}
USED = {
    "initialised": lambda on: hm.machine.init_from_data_(rbm(on), Rows.of(BITS), seed=0),
    "annealed": lambda on: hm.likelihood.ais(rbm(on), 20, 20, data=BITS, seed=0),
    "enumerated": lambda on: hm.likelihood.exact_log_likelihood(rbm(on), BITS),
    "pseudo-likelihood": lambda on: hm.likelihood.pseudo_log_likelihood(rbm(on), BITS),
    "sampled": lambda on: hm.chains.run(
        rbm(on), hm.chains.Gibbs(), rbm(on).random_states(10, seed=0), 5, seed=0
    ),
    "met": lambda on: hm.coupled.meet(rbm(on), hm.coupled.Gibbs(), BITS[:10], max_sweeps=50, seed=0),
    "landscape": lambda on: hm.meanfield.landscape(rbm(on), BITS[:20]),
    "imputed": lambda on: hm.tasks.impute(rbm(on), BITS[:5], np.isnan(HOLES[:5]), seed=0),
    "denoised": lambda on: hm.tasks.denoise(rbm(on), BITS[:5], flip_probability=0.1, seed=0),
    "predicted": lambda on: hm.tasks.predict(labelled(on), np.c_[BITS[:5, :10], np.full((5, 2), np.nan)], 1),
}


@pytest.mark.parametrize("job", TRAINED.values(), ids=TRAINED)
def test_training(job, device):
    machine = job(device).machine
    assert machine.device == device
    assert all(bool(parameter.isfinite().all()) for parameter in machine.parameters())


@pytest.mark.parametrize("job", USED.values(), ids=USED)
def test_use(job, device):
    job(device)


def test_a_run_goes_on(tmp_path, device):
    train(rbm(device), BITS, R.pcd(), run_dir=tmp_path / "run")
    run = train(rbm(device), BITS, R.pcd(), run_dir=tmp_path / "run", updates=6, resume=True)
    assert run.updates == 6


def test_machines_are_made_there():
    assert rbm(None).device == DEVICE


def test_estimators():
    pytest.importorskip("sklearn")
    model = hm.RBM(6, epochs=2, random_state=0).fit(BITS)
    assert model.machine_.device == DEVICE
    assert model.sample(5).shape == (5, 12)
    assert model.score_samples(BITS[:4]).shape == (4,)
    hm.RBMClassifier(6, epochs=2, random_state=0).fit(BITS, BITS[:, 0]).predict_proba(BITS)
    hm.DBM((6, 4), epochs=2, random_state=0).fit(BITS).transform(BITS)
