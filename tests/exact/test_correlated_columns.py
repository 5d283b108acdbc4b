"""Columns x = R u of a machine of u: roots, the machine folded into columns, and the Gaussian of rows."""

from __future__ import annotations

import pytest
import torch
from sklearn.decomposition import FactorAnalysis
from torch import Tensor

import harmonium as hm
from harmonium.likelihood import HiddenStates
from harmonium.tables.correlated import Shape, choose_shape, list_shapes

from .graphs import data_for, oracle_of
from .test_hidden_states import close, made, rows_of

MIXED = ["Gaussian", "a table", "joined columns", "joined layers"]


def roots_for(machine: hm.BoltzmannMachine) -> dict[int, Tensor]:
    """A lower triangle for every Gaussian layer."""
    generator = torch.Generator().manual_seed(8)
    widths = {l: machine.layers[l].width for l in machine.visible if machine.layers[l].gaussian}
    noise = {l: torch.randn(n, n, generator=generator, dtype=torch.float64) for l, n in widths.items()}
    return {l: x.tril(-1) * 0.6 + torch.diag(x.diagonal().exp()) for l, x in noise.items()}


@pytest.mark.parametrize("name", ["Gaussian", "a table"])
def test_the_folded_machine_is_that_of_the_columns(name: str) -> None:
    """Against the oracle, which knows of no roots; complete rows have the energies of u."""
    machine = made(name)
    roots, v = roots_for(machine), rows_of(machine)
    folded = hm.tables.fold(machine, roots)
    table = HiddenStates(machine.hamiltonian(), roots)
    oracle = oracle_of(folded)
    assert table.log_partition == pytest.approx(oracle.log_partition().item(), abs=1e-8)
    close(table.log_weights(v), oracle.log_unnormalised(v))
    close(table.posterior(v).moments().mean, HiddenStates(folded.hamiltonian()).posterior(v).moments().mean)
    whole = data_for(machine, 3)
    states = machine.split(whole)
    for l, root in roots.items():
        states[l] = torch.linalg.solve(root, states[l].T).T
    u = torch.cat([states[l] for l in machine.visible], 1)
    close(table.log_weights(whole), -machine.free_energy(u))


@pytest.mark.mostly_nightly(2)
@pytest.mark.parametrize("name", MIXED)
def test_gradient_with_roots(name: str) -> None:
    """By differences of the log-likelihood of the columns."""
    machine = made(name)
    roots, v = roots_for(machine), rows_of(machine)
    found = hm.rules.exact(roots=roots).gradient(machine, v, seed=0).parameters
    for key, parameter in machine.named_parameters():
        flat, step = parameter.data.view(-1), 1e-5
        for i in range(len(flat)):
            values = []
            for sign in (1, -1):
                flat[i] += sign * step
                values.append(HiddenStates(machine.hamiltonian(), roots).log_likelihood(v).mean())
                flat[i] -= sign * step
            close(found[key].reshape(-1)[i], (values[0] - values[1]) / (2 * step), 1e-6)


def test_the_gaussian_of_rows_with_holes() -> None:
    """A stationary point of ln p of what rows show, and of complete rows their moments."""
    generator = torch.Generator().manual_seed(4)
    mixing = torch.randn(3, 3, generator=generator, dtype=torch.float64)
    x = 2 + torch.randn(200, 3, generator=generator, dtype=torch.float64) @ mixing
    weights = torch.rand(200, generator=generator, dtype=torch.float64)
    mean, covariance = hm.tables.fit_normal(x, weights, ridge=0.0)
    close(mean, weights @ x / weights.sum())
    close(covariance, torch.cov(x.T, aweights=weights, correction=0))
    holed = x.masked_fill(torch.rand(x.shape, generator=generator) < 0.3, torch.nan)
    mean, covariance = hm.tables.fit_normal(holed, ridge=0.0, rounds=500, tolerance=0.0)
    mean.requires_grad_()
    root = torch.linalg.cholesky(covariance).requires_grad_()
    total = torch.zeros((), dtype=torch.float64)
    for row in holed:
        seen = ~row.isnan()
        if bool(seen.any()):
            spread = (root @ root.T)[seen][:, seen]
            distribution = torch.distributions.MultivariateNormal(mean[seen], spread)
            total = total + distribution.log_prob(row[seen])
    for gradient in torch.autograd.grad(total / len(holed), (mean, root)):
        assert float(gradient.abs().max()) < 1e-5


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (torch.zeros(3), "X: expected"),
        (torch.tensor([[1.0, 2.0], [2.0, 2.0]]), "X: expected columns that vary, received column 1"),
        (
            torch.tensor([[1.0, torch.nan], [2.0, torch.nan]]),
            "X: expected columns that vary, received column 1",
        ),
    ],
)
def test_rows_without_a_gaussian_are_refused(X: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        hm.tables.fit_normal(X)


def test_roots_that_do_not_fit_are_refused() -> None:
    machine = made("a table")
    for roots in ({1: torch.eye(2)}, {4: torch.eye(4)}):
        with pytest.raises(ValueError, match="roots: expected some of visible Gaussian layers"):
            hm.tables.fold(machine, roots)
        with pytest.raises(ValueError, match="machine: expected discrete hidden layers"):
            HiddenStates(machine.hamiltonian(), roots)
    with pytest.raises(ValueError, match="roots: expected some of visible Gaussian layers"):
        hm.tables.fold(made("joined columns"), {0: torch.eye(4)})


def test_residuals_are_those_of_a_regression_on_the_hidden_units() -> None:
    """Against weighted least squares over every row beside every hidden state, by p(h | row)."""
    generator = torch.Generator().manual_seed(3)
    rows = torch.randn(40, 3, generator=generator).double() @ torch.randn(3, 3, generator=generator).double()
    machine = hm.BoltzmannMachine([hm.Gaussian(3), hm.Bernoulli(2)], seed=1).double()
    hm.machine.normal_(machine, 1.0, 2)
    root = torch.linalg.cholesky(hm.tables.fit_normal(rows)[1])
    weights = torch.arange(1.0, 41.0).double()
    found = hm.tables.fit_residuals(machine, rows, weights, roots={0: root}, ridge=0.0)[0]
    table = hm.likelihood.HiddenStates(machine.hamiltonian(), {0: root})
    p = (table.posterior(rows).probabilities * weights.unsqueeze(1) / weights.sum()).flatten()
    x, h = rows.repeat_interleave(4, 0), table.states.repeat(40, 1)
    phi = torch.cat([torch.ones(160, 1).double(), h], 1)
    solution = torch.linalg.lstsq(phi * p.sqrt().unsqueeze(1), x * p.sqrt().unsqueeze(1)).solution
    left = x - phi @ solution
    torch.testing.assert_close(found, left.t() @ (left * p.unsqueeze(1)), rtol=1e-4, atol=1e-4)
    holed = rows.masked_fill(torch.rand(40, 3, generator=generator) < 0.2, torch.nan)
    some = hm.tables.fit_residuals(machine, holed, roots={0: root})[0]
    assert bool((torch.linalg.eigvalsh(some) > 0).all())


# Factors ---------------------------------------------------------------------------------------------------


def rows_of_factors(rows: int, columns: int, seed: int = 5) -> Tensor:
    """Two factors, and noise of another size in each column."""
    generator = torch.Generator().manual_seed(seed)
    z, loadings, noise = (
        torch.randn(*shape, generator=generator, dtype=torch.float64)
        for shape in ((rows, 2), (2, columns), (rows, columns))
    )
    return 3.0 + z @ loadings + noise * torch.linspace(0.3, 1.0, columns, dtype=torch.float64)


@pytest.mark.nightly
def test_factors_of_complete_rows_are_those_of_scikit_learn() -> None:
    x = rows_of_factors(300, 7)
    mean, covariance = hm.tables.fit_normal(x, factors=2, rounds=3000, tolerance=1e-13)
    expected = FactorAnalysis(2, tol=1e-8, max_iter=5000, svd_method="lapack").fit(x.numpy())
    torch.testing.assert_close(mean, x.mean(0))
    torch.testing.assert_close(covariance, torch.from_numpy(expected.get_covariance()), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("weighted", [False, True])
def test_factors_of_rows_with_holes_are_where_the_likelihood_is_flat(weighted: bool) -> None:
    """By derivatives of the density of what rows show, row by row."""
    x = rows_of_factors(80, 6)
    generator = torch.Generator().manual_seed(1)
    x[torch.rand(x.shape, generator=generator) < 0.2] = torch.nan
    weights = torch.rand(80, generator=generator, dtype=torch.float64) + 0.5 if weighted else None
    mean, covariance = hm.tables.fit_normal(x, weights, factors=1, rounds=5000, tolerance=1e-14)
    outer = covariance - torch.diag(covariance.diagonal())
    pairs = [(outer[0, j] * outer[0, k] / outer[j, k], j, k) for j, k in ((1, 2), (3, 4))]
    first = pairs[0][0].sqrt()  # of one factor the covariance tells the loadings
    torch.testing.assert_close(pairs[0][0], pairs[1][0])
    loadings = torch.cat([first.view(1), outer[0, 1:] / first]).requires_grad_()
    noise = (covariance.diagonal() - loadings.detach().square()).requires_grad_()
    middle = mean.clone().requires_grad_()
    total = torch.zeros((), dtype=torch.float64)
    for i, row in enumerate(x):
        seen = ~row.isnan()
        of_row = torch.outer(loadings, loadings)[seen][:, seen] + torch.diag(noise[seen])
        density = torch.distributions.MultivariateNormal(middle[seen], of_row).log_prob(row[seen])
        total = total + density * (1.0 if weights is None else weights[i])
    total.backward()
    for parameter in (loadings, noise, middle):
        assert parameter.grad is not None and float(parameter.grad.abs().max()) < 1e-3


def test_factors_fill_in_more_columns_than_rows() -> None:
    """Nearer than means by far, and than any ridge."""
    x = rows_of_factors(60, 150)
    hidden = torch.rand(x.shape, generator=torch.Generator().manual_seed(2)) < 0.1
    shown = x.masked_fill(hidden, torch.nan)

    def error(shape: Shape) -> float:
        filled = hm.tables.LinearPrediction.fit(shown, None, shape).predict(shown)
        return float((filled - x)[hidden].square().mean().sqrt())

    by_factors, by_means = (
        error(Shape(factors=2)),
        float((shown.nanmean(0) - x)[hidden].square().mean().sqrt()),
    )
    assert by_factors < 0.6 * by_means
    assert by_factors < min(error(Shape(ridge)) for ridge in (0.005, 0.05, 0.2))
    families = list_shapes(shown, (0.005, 0.05))
    assert [[shape.factors for shape in some] for some in families] == [[2, 4, 8]]
    assert choose_shape(families, lambda shape: -error(shape)).factors == 2
    assert [some[0].factors for some in list_shapes(x[:, :8], (0.1,))] == [None, 2]
    assert [some[0].factors for some in list_shapes(x[:, :2], (0.1,))] == [None]


def test_residuals_of_factors_have_the_variances_left() -> None:
    x = rows_of_factors(400, 6)
    machine = hm.machine.join_layers([hm.Gaussian(6)], [hm.Bernoulli(2)], 0).double()
    root = {0: torch.linalg.cholesky(hm.tables.fit_normal(x)[1])}
    free, held = (
        hm.tables.fit_residuals(machine, x, roots=root, ridge=0.0, factors=factors)[0]
        for factors in (None, 2)
    )
    torch.testing.assert_close(held, free, rtol=0.2, atol=0.2)
    torch.testing.assert_close(held.diagonal(), free.diagonal(), rtol=0.01, atol=0.01)
