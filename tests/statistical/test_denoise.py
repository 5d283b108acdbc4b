"""Denoising against the enumerated posterior, its baselines against the definition, and what it refuses.

A chain's test fails for a fresh seed with probability at most 1e-3, shared over its comparisons: errors are
compared with those of as many independent draws as there are chains, which averages of conditional means over
sweeps do not exceed.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium.tasks import GaussianChannel, SymmetricChannel, denoise

sys.path.insert(0, str(Path(__file__).parents[1]))
from exact import oracle
from exact.machines import array, build, describe
from exact.specifications import Specification

from .support import z_limit

CHAINS = 2000
P = 0.15
DEVIATION = 0.4
DISCRETE = [
    Specification("bernoulli", (("bernoulli", 5), ("bernoulli", 3))),
    Specification("spin deep", (("spin", 4), ("bernoulli", 3), ("spin", 2))),
    Specification("categorical", (("categorical", 2, 3), ("spin", 3))),
]
REAL = [
    Specification("truncated", (("truncated_gaussian", 2), ("bernoulli", 3))),
    Specification("sparse", (("truncated_gauss_bernoulli", 2), ("spin", 3))),
    Specification("gaussian", (("gaussian", 2), ("bernoulli", 3))),
]
ALL = pytest.mark.parametrize("specification", [*DISCRETE, *REAL], ids=lambda s: s.name)


def visible_states(layer: oracle.Layer) -> tuple[np.ndarray, np.ndarray]:
    """All visible states, or a fine grid of them, and the log of what each stands for."""
    if layer.kind != "gaussian":
        return oracle.weighted_states(layer)
    axis = np.arange(-7, 7, 0.05)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    return grid, np.full(len(grid), 2 * np.log(0.05))


def posteriors(machine: hm.BoltzmannMachine, noisy: torch.Tensor) -> list[tuple[np.ndarray, np.ndarray]]:
    """Mean and variance of the clean state given each noisy row, NaN where erased, from p(v) p(y | v)."""
    description = oracle.natural(describe(machine))
    layer = description.layers[0]
    states, logs = visible_states(layer)
    # ln p(v) up to a constant, hidden layers enumerated: quick through the library, which has its own tests.
    v = torch.from_numpy(states)
    logs = logs + array(hm.likelihood.exact_log_likelihood(machine, v))
    return [posterior(layer, states, logs, y) for y in array(noisy)]


def posterior(
    layer: oracle.Layer, states: np.ndarray, logs: np.ndarray, y: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """That of one row, with ln p(v) of every state."""
    seen = ~np.isnan(y)
    if layer.kind in ("bernoulli", "spin", "categorical"):
        q = 2 if layer.kind != "categorical" else layer.natural[0].shape[1]
        columns = layer.width // layer.n_units
        for unit in range(layer.n_units):
            part = slice(unit * columns, (unit + 1) * columns)
            if seen[part].all():
                same = (states[:, part] == y[part]).all(1)
                logs = logs + np.where(same, np.log(1 - P), np.log(P / (q - 1)))
    else:
        logs = logs - (0.5 * (states - y)[:, seen] ** 2 / DEVIATION**2).sum(1)
    weight = np.exp(logs - logs.max())
    weight /= weight.sum()
    mean = weight @ states
    return mean, weight @ states**2 - mean**2


def observations(specification: Specification, machine: hm.BoltzmannMachine) -> tuple[torch.Tensor, dict]:
    """Four noisy rows; in the last two some units are erased."""
    generator = torch.Generator().manual_seed(5)
    clean = machine.random_states(4, seed=generator)[0]
    layer = machine.layers[0]
    if layer.discrete:
        channel, noise = SymmetricChannel(P), {"flip_probability": P}
    else:
        channel, noise = GaussianChannel(DEVIATION), {"noise_std": DEVIATION}
    noisy = channel.corrupt(layer, clean, generator)
    noisy[2, : layer.width // layer.n_units] = torch.nan
    noisy[3] = torch.nan
    return noisy, noise


def takes(machine: hm.BoltzmannMachine, method: str) -> bool:
    """Returns whether a method is for units of as many columns as the machine's have."""
    return method not in ("adatap", "relaxed_bp") or all(x.columns_per_unit == 1 for x in machine.layers)


@ALL
@pytest.mark.parametrize("wrong", [False, True], ids=["right", "wrong"])
@pytest.mark.mostly_nightly(2)
def test_chains_have_the_posterior_mean(specification: Specification, wrong: bool) -> None:
    """And a posterior under three times the noise does not pass for it."""
    machine = build(specification)
    noisy, noise = observations(specification, machine)
    if wrong:
        noise = {name: 3 * value for name, value in noise.items()}
    sweeps = 10 if wrong else 40
    found = denoise(machine, noisy, **noise, method="gibbs", chains=CHAINS, sweeps=sweeps, seed=3)
    worst = 0.0
    for row, (mean, variance) in enumerate(posteriors(machine, noisy)):
        error = np.abs(array(found.mean[row]) - mean) / np.sqrt(variance / CHAINS)
        worst = max(worst, float(error.max()))
        if not wrong:
            np.testing.assert_allclose(array(found.variance[row]), variance, rtol=0.25, atol=1e-3)
    limit = z_limit(noisy.numel())
    assert worst > 2 * limit if wrong else worst < limit


@ALL
@pytest.mark.parametrize("method", hm.meanfield.SOLVERS)
def test_solvers_are_near_the_posterior_where_couplings_are_weak(
    specification: Specification, method: str
) -> None:
    machine = build(specification)
    if not takes(machine, method):
        pytest.skip("units of several columns")
    with torch.no_grad():
        for W in (coupling.weight for coupling in machine.couplings):
            W.mul_(0.25)
    noisy, noise = observations(specification, machine)
    found = denoise(machine, noisy, **noise, method=method)
    assert bool(found.converged.all())
    for row, (mean, variance) in enumerate(posteriors(machine, noisy)):
        np.testing.assert_allclose(array(found.mean[row]), mean, atol=2e-3)
        np.testing.assert_allclose(array(found.variance[row]), variance, rtol=0.02, atol=2e-3)


@ALL
def test_pointwise_is_the_posterior_of_a_machine_without_couplings(specification: Specification) -> None:
    """Of one whose visible units have the data's statistics; the machine itself is not read."""
    machine = build(specification)
    noisy, noise = observations(specification, machine)
    data = machine.random_states(300, seed=torch.Generator().manual_seed(1))[0]
    found = denoise(machine, noisy, **noise, method="pointwise", clean=data)
    alone = build(specification)
    with torch.no_grad():
        for W in (coupling.weight for coupling in alone.couplings):
            W.zero_()
        hm.machine.init_visible_biases_(alone, hm.data.Rows.of(data, torch.float64))
    for row, (mean, variance) in enumerate(posteriors(alone, noisy)):
        np.testing.assert_allclose(array(found.mean[row]), mean, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(array(found.variance[row]), variance, rtol=1e-6, atol=1e-7)


@ALL
def test_what_is_certain_stays(specification: Specification) -> None:
    """Noise of zero: every method gives the observation back, and fills the erasures in."""
    machine = build(specification)
    layer = machine.layers[0]
    data = machine.random_states(50, seed=torch.Generator().manual_seed(2))[0]
    noisy = data[:6].clone()
    noisy[4:, : layer.width // layer.n_units] = torch.nan
    noise = {"flip_probability": 0.0} if layer.discrete else {"noise_std": 0.0}
    for method in filter(partial(takes, machine), hm.tasks.DENOISE_METHODS):
        found = denoise(machine, noisy, **noise, method=method, clean=data, sweeps=20)
        certain = ~torch.isnan(noisy)
        assert torch.equal(found.mean[certain], noisy[certain])
        assert torch.equal(found.mode[certain], noisy[certain])
        assert bool((found.variance[certain] == 0).all())
        for x in found[:3]:
            assert bool(torch.isfinite(x).all())
        if layer.discrete:
            layer.check(found.mode, "mode")


def test_half_of_all_flipped_says_nothing() -> None:
    machine = build(DISCRETE[0])
    y = torch.eye(5, dtype=torch.float64)
    found = denoise(machine, y, 0.5)
    erased = denoise(machine, torch.full_like(y, torch.nan), 0.2)
    torch.testing.assert_close(found.mean, erased.mean, rtol=0, atol=1e-5)


@pytest.mark.parametrize("layer", [hm.Bernoulli(4), hm.Spin(4), hm.Categorical(4, 3)], ids=repr)
def test_the_symmetric_channel_flips_as_often_as_it_says(layer: torch.nn.Module) -> None:
    """Failure rate 1e-3: every other state alike, by the normal limit."""
    rows, p = 20_000, 0.3
    generator = torch.Generator().manual_seed(8)
    x = layer.sample(torch.zeros(rows, layer.width), layer.noise((rows, layer.width), generator=generator))
    y = SymmetricChannel(p).corrupt(layer, x, generator)
    layer.check(y, "y")
    changed = (layer.by_unit(x) != layer.by_unit(y)).any(-1).double()
    z = (changed.mean(0) - p).abs() / (p * (1 - p) / rows) ** 0.5
    assert float(z.max()) < z_limit(4)


def test_errors_name_what_is_wrong() -> None:
    binary = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)])
    real = hm.BoltzmannMachine([hm.Gaussian(3), hm.Bernoulli(2)])
    many = hm.BoltzmannMachine([hm.Categorical(1, 3), hm.Bernoulli(2)])
    y = torch.zeros(2, 3)
    with pytest.raises(ValueError, match="flip_probability, noise_std: expected one of the two"):
        denoise(binary, y)
    with pytest.raises(ValueError, match="flip_probability: expected a finite number in"):
        denoise(binary, y, 1.5)
    with pytest.raises(ValueError, match="flip_probability: expected discrete visible units"):
        denoise(real, y, 0.1)
    with pytest.raises(ValueError, match="noise_std: expected real or two-state visible units"):
        denoise(many, y, noise_std=0.1)
    with pytest.raises(ValueError, match=r"noisy: expected values in \{0, 1\}"):
        denoise(binary, y + 0.5, 0.1)
    with pytest.raises(ValueError, match=r"noisy: expected \(batch, 3\)"):
        denoise(binary, y[:, :2], 0.1)
    with pytest.raises(ValueError, match='clean: expected clean rows for method="pointwise"'):
        denoise(binary, y, 0.1, method="pointwise")
    with pytest.raises(ValueError, match="method: expected one of adatap, gibbs, pointwise, relaxed_bp, tap"):
        denoise(binary, y, 0.1, method="median")
