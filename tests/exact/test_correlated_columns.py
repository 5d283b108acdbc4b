"""Columns x = R u of a machine of u: roots, the machine folded into columns, and the Gaussian of rows."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import harmonium as hm
from harmonium.likelihood import HiddenStates
from harmonium.tables.joint_normal import normal

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


# More columns than rows ------------------------------------------------------------------------------------


def test_lines_fill_in_more_columns_than_rows() -> None:
    """Nearer than means by far, and than by the ridge of tables that are not wide."""
    generator = torch.Generator().manual_seed(5)
    z, loadings, noise = (
        torch.randn(*shape, generator=generator, dtype=torch.float64)
        for shape in ((60, 2), (2, 150), (60, 150))
    )
    x = 3.0 + z @ loadings + noise * torch.linspace(0.3, 1.0, 150, dtype=torch.float64)
    hidden = torch.rand(x.shape, generator=torch.Generator().manual_seed(2)) < 0.1
    shown = x.masked_fill(hidden, torch.nan)
    table, _ = normal(*hm.tables.fit_normal(shown, ridge=0.05))
    by_ridge = torch.cat([posterior.moments().mean for _, posterior in table.blocks(shown)])
    by_lines = hm.tables.LinearPrediction.fit(shown).predict(shown)
    errors = [(filled - x)[hidden].square().mean() for filled in (by_lines, by_ridge, shown.nanmean(0))]
    assert errors[0] < 0.95 * errors[1] and errors[0] < 0.36 * errors[2]


def test_lines_of_columns_without_noise_can_be_kept() -> None:
    """A machine whose lines rounding had left without an inverse was refused as damaged."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(90, 2, generator=generator).double() @ torch.randn(2, 60, generator=generator).double()
    machine = hm.BoltzmannMachine([hm.Gaussian(60), hm.Bernoulli(1)])
    lines = hm.tables.LinearPrediction.fit(x)
    lines.keep_in(machine)
    read = hm.tables.LinearPrediction.of(machine)
    assert read is not None
    shown = x.masked_fill(torch.eye(90, 60).bool(), torch.nan)
    torch.testing.assert_close(read.predict(shown), lines.predict(shown), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(read.predict(shown), x, rtol=0.05, atol=0.15)
