"""The DBM estimator, and what it shares with the RBM: samples and missing values."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from harmonium import rules
from harmonium.coupled import Gibbs
from harmonium.data import bars_and_stripes
from harmonium.estimators import DBM, RBM
from harmonium.likelihood import exact_log_likelihood

torch.set_num_threads(1)

PICTURES = bars_and_stripes(3)


def small(**settings) -> DBM:
    return DBM(**{"n_hidden": (4, 3), "epochs": 10, "random_state": 0} | settings)


@pytest.mark.parametrize(("hidden", "rate", "epochs"), [("bernoulli", 0.2, 200), ("spin", 0.05, 400)])
def test_scores_are_lower_bounds(hidden, rate, epochs):
    """Spins, whose values lie twice as far apart, run away at the higher rate from 3 of 12 seeds."""
    steps = {"epochs": epochs, "learning_rate": rate}
    dbm = small(hidden_kind=hidden, initial_std=0.5, **steps).fit(PICTURES)
    every = np.array(list(itertools.product([0, 1], repeat=9)))
    scores = dbm.score_samples(every)
    truth = exact_log_likelihood(dbm.machine_.double(), torch.from_numpy(every).double()).numpy()
    assert dbm.log_partition_.standard_error == 0
    assert (scores <= truth + 1e-9).all()
    assert (truth - scores).max() > 1e-6
    assert dbm.score(PICTURES) == pytest.approx(dbm.score_samples(PICTURES).mean())
    assert dbm.score(PICTURES) > small(epochs=1, learning_rate=0.0).fit(PICTURES).score(PICTURES) + 0.5


def test_one_hidden_layer_has_exact_scores_of_rows_with_missing_cells():
    dbm = small(n_hidden=(4,), initial_std=0.5, epochs=100, learning_rate=0.8).fit(PICTURES)
    every = np.array(list(itertools.product([0, 1], repeat=9)))
    p = np.exp(dbm.score_samples(every))
    holed = np.where(np.arange(9) % 3 == np.arange(len(PICTURES))[:, None] % 3, np.nan, PICTURES)
    truth = [np.log(p[((every == row) | np.isnan(row)).all(1)].sum()) for row in holed]
    np.testing.assert_allclose(dbm.score_samples(holed), truth, atol=1e-6)


def test_transform_gives_the_posterior_means_of_every_layer():
    dbm = small().fit(PICTURES)
    means = dbm.transform(PICTURES)
    assert means.shape == (len(PICTURES), 7)
    assert list(dbm.get_feature_names_out()) == [f"dbm{i}" for i in range(7)]
    # A fixed point: every layer is the mean given the others.
    machine = dbm.machine_.double()
    states = [torch.from_numpy(x).double() for x in (PICTURES, means[:, :4], means[:, 4:])]
    hamiltonian = machine.hamiltonian()
    for l in (1, 2):
        expected = hamiltonian.mean(l, hamiltonian.field(l, states)).detach()
        assert torch.allclose(expected, states[l], atol=1e-4)


UCD = {"init": "orthogonal,logistic,data", "epochs": 16}


@pytest.mark.filterwarnings("ignore:.*pairs were given up")
@pytest.mark.parametrize(
    ("rule", "learning_rate", "others"),
    [
        ("mean_field_pcd", 0.1, {}),
        ("pcd", 0.4, {}),
        ("tempered_pcd", 0.4, {}),
        ("tap", 0.2, {}),
        (rules.ucd_lmi(pair_kernel=None), 0.2, UCD),
        (rules.ucd_lmi(pair_kernel=Gibbs(), max_sweeps=20), 0.2, UCD),
        (rules.ucd(pair_kernel=Gibbs(), max_sweeps=20), 0.2, UCD),
    ],
    ids=str,
)
@pytest.mark.mostly_nightly(2)
def test_every_way_to_learn_a_deep_machine_learns(rule, learning_rate, others):
    """The companions of Taniguchi et al. (2023): each raises the bound on the training rows."""
    settings = {"rule": rule, "learning_rate": learning_rate, "epochs": 80, **others}
    settings |= {"hidden_kind": "spin", "visible": "spin", "batch_size": 32}
    before = small(**settings | {"epochs": 1, "learning_rate": 0.0}).fit(PICTURES).score(PICTURES)
    after = small(**settings).fit(PICTURES).score(PICTURES)
    assert after > before + 0.5


def test_a_trained_machine_fills_bars_and_stripes_in_better_than_their_columns_do():
    rbm = RBM(n_hidden=16, epochs=200, learning_rate=1.0, random_state=0).fit(PICTURES)
    with pytest.raises(ValueError, match="value: expected one of"):
        rbm.impute(PICTURES, value="median")
    rows = np.repeat(PICTURES[2:-2], 10, axis=0).astype(float)  # neither all black nor all white
    holes = np.random.Generator(np.random.PCG64(3)).random(rows.shape) < 0.3
    filled = rbm.impute(np.where(holes, np.nan, rows), sweeps=60)
    assert (filled == rows)[holes].mean() > 0.75  # a column alone tells nothing: half


@pytest.mark.parametrize("n_hidden", [(), (0,), (3, -1), (2.5,)])
def test_sizes_that_are_none(n_hidden):
    with pytest.raises(ValueError, match="n_hidden: expected sizes"):
        small(n_hidden=n_hidden).fit(PICTURES)


def test_one_hidden_layer_is_an_rbm_and_three_are_fine():
    one = small(n_hidden=(5,)).fit(PICTURES)
    truth = exact_log_likelihood(one.machine_.double(), torch.from_numpy(PICTURES).double()).numpy()
    assert np.allclose(one.score_samples(PICTURES), truth)
    assert small(n_hidden=(4, 3, 2)).fit(PICTURES).transform(PICTURES).shape[1] == 9
