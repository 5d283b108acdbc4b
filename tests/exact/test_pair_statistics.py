"""Pair statistics, their way from noise and scaled errors of moments, against enumeration and numpy."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium.report import resampling
from harmonium.report.moments import PairStatistics


def correlated(rows: int, columns: int, seed: int = 0) -> torch.Tensor:
    """Rows of zeros and ones of one distribution, whatever the seed."""
    mixing = torch.randn(columns, columns, generator=torch.Generator().manual_seed(99))
    mixed = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) @ mixing
    return (mixed > torch.linspace(-3, 3, columns)).float()


def test_covariances_are_those_of_different_units() -> None:
    X, Y = correlated(300, 6), correlated(200, 6, seed=1)
    machine = hm.BoltzmannMachine([hm.Bernoulli(6), hm.Bernoulli(2)])
    pairs = PairStatistics(machine, X)
    above = np.triu_indices(6, 1)
    x, y = (np.cov(each.double().numpy().T, bias=True)[above] for each in (X, Y))
    np.testing.assert_allclose(pairs.covariances(Y).numpy(), y, atol=1e-12)
    assert float(pairs.correlation(Y)) == pytest.approx(np.corrcoef(x, y)[0, 1], abs=1e-12)
    assert float(pairs.correlation(X)) == pytest.approx(1, abs=1e-12)
    # Columns of one unit exclude each other whatever was learned: no pair of them counts.
    joined = hm.BoltzmannMachine([hm.Categorical(2, 3), hm.Bernoulli(3), hm.Bernoulli(2)], visible=[0, 1])
    assert len(PairStatistics(joined, torch.ones(2, 9)).covariances(torch.ones(3, 9))) == 9 + 18 + 3


def test_the_jackknife_leaves_one_group_out() -> None:
    X, Y = correlated(300, 6), correlated(203, 6, seed=1)
    pairs = PairStatistics(hm.BoltzmannMachine([hm.Bernoulli(6), hm.Bernoulli(2)]), X)
    whole, without = pairs.jackknife(Y, 4)
    assert float(whole) == pytest.approx(float(pairs.correlation(Y)), abs=1e-12)
    groups = torch.tensor_split(torch.arange(203), 4)
    for own, group in zip(without, groups, strict=True):
        rest = torch.ones(203, dtype=torch.bool)
        rest[group] = False
        assert float(own) == pytest.approx(float(pairs.correlation(Y[rest])), abs=1e-12)


def test_weights_count_rows_as_often() -> None:
    X, Y = correlated(60, 6), correlated(50, 6, seed=1)
    machine = hm.BoltzmannMachine([hm.Bernoulli(6), hm.Bernoulli(2)], seed=0)
    counts, others = (torch.arange(n) % 4 for n in (60, 50))  # some of them 0
    weighed = PairStatistics(machine, X, counts / 7)
    repeated = PairStatistics(machine, X.repeat_interleave(counts, 0))
    torch.testing.assert_close(
        weighed.covariances(X, counts / 7), repeated.covariances(X.repeat_interleave(counts, 0))
    )
    found = weighed.correlation(Y, others.double())
    torch.testing.assert_close(found, repeated.correlation(Y.repeat_interleave(others, 0)))
    # Chains are the same ones, and are compared with the data as they are weighed.
    curves = [resampling(machine, X, chains=40, sweeps=4, weights=w, seed=0) for w in (None, counts / 7)]
    expected = [each.correlation(curves[0].states[0]) for each in (PairStatistics(machine, X), repeated)]
    for curve, correlation in zip(curves, expected, strict=True):
        torch.testing.assert_close(curve.correlation[-1], correlation)
    same = resampling(machine, X, chains=40, sweeps=4, weights=torch.full((60,), 3.0), seed=0)
    torch.testing.assert_close(same.correlation, curves[0].correlation)
    assert same.data == pytest.approx(curves[0].data, abs=1e-9)
    with pytest.raises(ValueError, match="weights: "):
        resampling(machine, X, weights=torch.ones(59))


def test_the_curve_is_that_of_the_chains_distribution() -> None:
    """The distribution of v after t sweeps from noise by conditional ones; 12 replicates of 2,000 chains.

    Student's t over 4 times shares a rate of 1e-3; 0.003 is left for the bias of a correlation of estimates.
    """
    machine = hm.BoltzmannMachine([hm.Bernoulli(5), hm.Bernoulli(3)], seed=0)
    hm.machine.normal_(machine, 2.0, torch.Generator().manual_seed(3))
    X = correlated(400, 5)
    W = machine.couplings[0].weight.detach().double().numpy()
    b, c = (layer.bias.detach().double().numpy() for layer in machine.layers)
    v, h = (np.array(list(product((0.0, 1.0), repeat=width))) for width in (5, 3))

    def given(field: np.ndarray, states: np.ndarray) -> np.ndarray:
        up = states @ field.T - np.log1p(np.exp(field)).sum(1)
        return np.exp(up).T

    down, up = given(b + h @ W.T, v), given(c + v @ W, h)
    distribution, expected = np.full(8, 1 / 8) @ down, {}
    above = np.triu_indices(5, 1)
    data = np.cov(X.double().numpy().T, bias=True)[above]
    for t in range(1, 9):
        mean = distribution @ v
        covariance = (v * distribution[:, None]).T @ v - np.outer(mean, mean)
        expected[t] = np.corrcoef(data, covariance[above])[0, 1]
        distribution = distribution @ up @ down
    found = [resampling(machine, X, chains=2000, sweeps=8, seed=seed) for seed in range(12)]
    assert found[0].sweeps.tolist() == [1, 2, 4, 8]
    curves = torch.stack([each.correlation for each in found])
    exact = torch.tensor([expected[t] for t in (1, 2, 4, 8)])
    error = curves.std(0) / len(curves) ** 0.5
    assert bool(((curves.mean(0) - exact).abs() < 5.6 * error + 0.003).all())
    # The jackknife knows how far a drop scatters, to a factor that 12 replicates tell (rate below 1e-3).
    scatter = torch.stack([each.drop for each in found]).std(0)[:-1]
    claimed = torch.stack([each.drop_error for each in found]).mean(0)[:-1]
    assert bool(((claimed / scatter > 0.5) & (claimed / scatter < 2.5)).all())
    assert all(float(each.drop[-1]) == 0 == float(each.score[-1]) for each in found)


def test_resampling_refuses_what_it_cannot_judge() -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(4), hm.Bernoulli(2)], seed=0)
    X = correlated(50, 4)
    for rows in (torch.ones(10, 4), X[:1]):
        with pytest.raises(ValueError, match="data: expected rows in which at least two pairs"):
            resampling(machine, rows)
    with pytest.raises(ValueError, match="chains: expected an int of at least 40, received 39"):
        resampling(machine, X, chains=39)
    with pytest.raises(ValueError, match="sweeps: expected an int of at least 1, received 0"):
        resampling(machine, X, sweeps=0)
    with pytest.raises(ValueError, match="data: "):
        resampling(machine, X[:, :3])
    for width in (1, 2):  # no pair, and one
        with pytest.raises(ValueError, match="at least two pairs"):
            resampling(hm.BoltzmannMachine([hm.Bernoulli(width), hm.Bernoulli(2)]), correlated(50, width))
    one = resampling(machine, X, sweeps=1, chains=40)
    assert not one.falls and not one.rises and one.peak == 1
