"""Counts, half lines and truncated units with every rule, in estimators, files and commands."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import harmonium as hm

from .command_line import CommandLine

MACHINES = {
    "counts": lambda: [hm.Binomial(4, 5), hm.Bernoulli(3)],
    "rectified": lambda: [hm.ReLU(4), hm.Spin(3)],
    "above": lambda: [hm.Bernoulli(4), hm.DoubleReLU(3)],
    "deep": lambda: [hm.Bernoulli(4), hm.Binomial(3, 2), hm.ReLU(2)],
    "truncated": lambda: [hm.TruncatedGaussian(4, 0.0, 1.0), hm.Bernoulli(3)],
    "sparse": lambda: [hm.TruncatedGaussBernoulli(4, 0.0, [1.0, 2.0, 1.0, 3.0]), hm.Spin(3)],
    "truncated above": lambda: [hm.Bernoulli(4), hm.TruncatedGaussBernoulli(3, -1.0, 1.0)],
    "truncated between": lambda: [hm.Bernoulli(4), hm.TruncatedGaussian(3, 0.0, 2.0), hm.Spin(2)],
}
SETTINGS = {"cd": {"k": 1}, "noise_cd": {"k": 3}, "tempered_pcd": {"replicas": 3}, "ucd": {"max_sweeps": 200}}


@pytest.mark.parametrize("rule", sorted(hm.rules.RECIPES))
@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.mostly_nightly(8)
def test_every_rule_learns_or_names_the_units(name: str, rule: str) -> None:
    machine = hm.BoltzmannMachine(MACHINES[name](), seed=1)
    X = machine.random_states(12, seed=torch.Generator().manual_seed(0))[0]
    made = hm.rules.RECIPES[rule](**SETTINGS.get(rule, {}))

    def learn() -> None:
        run = hm.train(machine, X, rule=made, updates=4, batch_size=6, learning_rate=0.01)
        assert run.status == "completed"
        assert all(bool(torch.isfinite(parameter).all()) for parameter in run.machine.parameters())

    if rule == "ucd_lmi" and name != "counts":
        with pytest.raises(ValueError, match="discrete layers for Metropolis pairs, received "):
            learn()
    elif rule == "quadrature":
        with pytest.raises(ValueError, match="expected Gaussian visible units"):
            learn()
    else:
        learn()


def test_learning_raises_the_likelihood_of_counts() -> None:
    """Two clusters of counts: the exact likelihood passes that of independent units."""
    generator = np.random.default_rng(0)
    side = generator.integers(0, 2, (400, 1))
    X = torch.from_numpy(generator.binomial(6, np.where(side, 0.8, 0.2), (400, 5))).float()
    machine = hm.BoltzmannMachine([hm.Binomial(5, 6), hm.Bernoulli(2)], seed=0)
    hm.machine.init_visible_biases_(machine, hm.data.Rows.of(X))
    before = hm.likelihood.exact_log_likelihood(machine, X).mean()
    rule = hm.rules.centred(hm.rules.pcd(1))
    run = hm.train(machine, X, rule=rule, epochs=60, batch_size=50, learning_rate=0.05, seed=0)
    after = hm.likelihood.exact_log_likelihood(run.machine, X).mean()
    assert float(after - before) > 4.0  # of the 5.1 that tell the clusters apart


@pytest.mark.parametrize("visible", ["binomial", "relu", "double_relu", "truncated_gauss_bernoulli"])
def test_estimators_and_commands(visible: str, cli: CommandLine, tmp_path: Path) -> None:
    most = 1 if visible.startswith("truncated") else 16
    X = np.round(16 * hm.data.digits()[0])[:300, 18:46] / (16 // most)
    settings = {"n_hidden": 8, "visible": visible, "method": "chains", "random_state": 0}
    rbm = hm.RBM(**settings, epochs=3).fit(X)
    assert rbm.machine_.layers[0].kind == visible
    assert rbm.score(X) > hm.RBM(**settings, epochs=1, learning_rate=0).fit(X).score(X)
    samples = rbm.sample(10, sweeps=20)
    assert visible == "double_relu" or bool((samples >= 0).all())
    if visible == "binomial":
        assert set(np.unique(samples)) <= set(range(17))
    if visible.startswith("truncated"):
        assert bool((samples <= 1).all())
    holes = X[:4].copy()
    holes[:, :5] = np.nan
    filled = rbm.impute(holes, sweeps=10)
    assert np.isfinite(filled).all()
    np.testing.assert_allclose(filled[:, 5:], X[:4, 5:], rtol=1e-12)

    np.save(tmp_path / "x.npy", X.astype(np.float32))
    cli.train(tmp_path / "x.npy", tmp_path / "run", "--visible", visible)
    result = cli.succeed("evaluate", tmp_path / "run", tmp_path / "x.npy", "--json").json
    assert np.isfinite(result["results"][0]["log_likelihood"])
    cli.succeed("sample", tmp_path / "run", "--rows", 5, "--sweeps", 5, "--out", tmp_path / "s.npy")
    drawn = np.load(tmp_path / "s.npy")
    assert np.isfinite(drawn).all() and (visible == "double_relu" or bool((drawn >= 0).all()))


def test_data_that_a_kind_does_not_take_are_refused_by_name() -> None:
    rows = hm.data.Rows.of(np.array([[0.0, -2.0], [1.5, 3.0]]), torch.float64)
    with pytest.raises(ValueError, match=r'X: for visible="relu": expected numbers from 0, received -2'):
        hm.tables.visible_for(rows, "relu")
    with pytest.raises(ValueError, match=r'X: for visible="binomial": expected counts 0..N, received -2'):
        hm.tables.visible_for(rows, "binomial")
    with pytest.raises(ValueError, match=r"X: expected counts 0..4 for Binomial\(2, 4\), received 5"):
        hm.Binomial(2, 4).check(torch.full((1, 2), 5.0), "X")
    with pytest.raises(ValueError, match="trials: expected at most 16777216"):
        hm.Binomial(1, 1 << 31)  # which would ask for 16 GB
    with pytest.raises(ValueError, match="trials: expected an int of at least 1, received 0"):
        hm.Binomial(2, 0)
