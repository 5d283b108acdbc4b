"""Groups of rows: the hidden units that stand for them, against mixtures, and training that starts there."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

import harmonium as hm
from harmonium.likelihood import HiddenStates
from harmonium.tables.groups import choose_groups, find_directions, group_start, halve, place_groups

MIXING = np.array([[0.3, 0.0, 0.0], [0.2, 0.15, 0.0], [-0.1, 0.1, 0.2]])  # within each group


def rows_in_groups(middles: list[list[float]], rows: int = 150, seed: int = 0) -> Tensor:
    """Rows about some middles, with columns that are correlated within each group."""
    random = np.random.default_rng(seed)
    group = np.arange(rows) % len(middles)
    return torch.from_numpy(np.array(middles)[group] + random.normal(size=(rows, 3)) @ MIXING.T)


def test_two_groups_are_exactly_one_unit() -> None:
    """The start of training has ln p of scikit-learn's mixture, fitted again from where it was."""
    x = rows_in_groups([[-1, 0, 1], [1, 1, -1]])
    machine = hm.machine.join_layers([hm.Gaussian(3)], [hm.Bernoulli(1)]).double()
    found = choose_groups(x, None, 1, 0)
    start, roots = group_start(machine, x, None, {0: found}, 0)
    again = {"reg_covar": found.reg_covar, "means_init": found.means_, "random_state": 0}
    again |= {"weights_init": found.weights_, "precisions_init": found.precisions_}
    mixture = GaussianMixture(2, covariance_type="tied", **again).fit(x.numpy())
    log_p = HiddenStates(start.hamiltonian(), roots).log_likelihood(x)
    torch.testing.assert_close(log_p, torch.from_numpy(mixture.score_samples(x.numpy())), rtol=0, atol=1e-10)


@pytest.mark.parametrize("middles", [[[0, 0, 0]], [[-1, 0, 1], [1, 1, -1]]], ids=["one group", "two"])
def test_halves_keep_the_mean_and_the_covariance_within_groups(middles: list[list[float]]) -> None:
    """They are independent of groups and of each other, and small turns of directions change them little."""
    found = choose_groups(rows_in_groups(middles), None, 4, 0)
    groups = place_groups(found)
    directions = find_directions(groups, 4)
    assert directions.shape == (4 - len(middles), 3)
    units = halve(groups, directions)
    halves = units.moves[len(groups.moves) :]
    np.testing.assert_allclose(halves @ groups.moves.T, 0, atol=1e-12)
    within = units.root @ (np.eye(3) + halves.T @ halves / 4) @ units.root.T
    np.testing.assert_allclose(within, found.covariances_, atol=1e-12)
    means = units.root @ (units.base + halves.sum(0) / 2)
    np.testing.assert_allclose(means, groups.root @ groups.base, atol=1e-12)
    np.testing.assert_allclose(units.biases[len(groups.moves) :], -halves @ units.base - 1.5**2 / 2)
    turned = halve(groups, directions + 1e-6)
    np.testing.assert_allclose(turned.moves, units.moves, atol=1e-5)


def test_rows_of_one_normal_distribution_are_one_group() -> None:
    assert [
        choose_groups(rows_in_groups([[0, 0, 0]], seed=k), None, 4, 0).n_components for k in range(3)
    ] == [1] * 3


def test_weights_and_missing_cells_are_taken() -> None:
    """A group that has no weight is not found, and lost cells hide no group."""
    x = rows_in_groups([[-1, 0, 1], [1, 1, -1]], 300)
    weights = (torch.arange(300) % 2).double()
    assert choose_groups(x, weights + 1e-9, 4, 0).n_components == 1
    holed = x.masked_fill(torch.rand(x.shape, generator=torch.Generator().manual_seed(1)) < 0.2, torch.nan)
    assert choose_groups(holed, None, 4, 0).n_components >= 2


def test_features_of_rows_in_groups_are_alive() -> None:
    """Hidden units that begin near 0 stayed there: 0.73 and 0.58 of the cultivars were right."""
    X, y = load_wine(return_X_y=True)
    right = []
    for seed in range(2):
        model = make_pipeline(StandardScaler(), hm.RBM(8, random_state=seed), LogisticRegression())
        right.append(cross_val_score(model, X, y, cv=3).mean())
    assert np.mean(right) > 0.93
    features = hm.RBM(8, random_state=0).fit_transform(StandardScaler().fit_transform(X))
    assert (np.asarray(features).std(0) > 0.1).all()


def test_features_of_rows_without_groups_are_alive() -> None:
    """Of one normal distribution training ends soon: units that began near 0 had a deviation of 0.01."""
    random = np.random.default_rng(0)
    factor = random.normal(size=300)
    X = np.outer(factor, np.linspace(0.5, 1.5, 6)) + random.normal(size=(300, 6))
    features, above = np.asarray(hm.RBM(8, random_state=0).fit_transform(X)), factor > 0
    assert (np.sort(features.std(0))[-6:] > 0.1).all()
    assert LogisticRegression().fit(features[:200], above[:200]).score(features[200:], above[200:]) > 0.75
