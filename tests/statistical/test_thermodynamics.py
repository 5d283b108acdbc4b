"""Observables by temperature beside enumeration and Kaufman's ln Z: means, errors that hold, doubts, ladders.

Energies, magnetisations and overlaps of the oracles are made by NumPy from a list of all states. Failure rate
of every test on a fresh seed: at most 1e-3, shared over its comparisons, but where a test states another.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import log
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from scipy import stats

import harmonium as hm
from harmonium.chains import Tempering, thermodynamics

from .support import FAILURE_RATE

BETAS = (1.2, 0.8, 0.4, 0.1)
CHAINS = 32
Array = np.ndarray[Any, np.dtype[np.float64]]


class Case(NamedTuple):
    """A machine with the states of its units, and its energies and overlaps by NumPy."""

    machine: hm.BoltzmannMachine
    states: Array
    energy: Array
    overlap: Array
    m: Array | None


def states_of(*values: range | tuple[int, ...]) -> Array:
    return np.array(list(product(*values)), float)


def glass(n: int, seed: int, fields: float, coupling: str) -> Case:
    """Spins with normal couplings of about half of the pairs; "tied": rings of equal ones; and fields."""
    random = np.random.default_rng(seed)
    joined = np.triu(random.random((n, n)) < 0.5, 1)
    J = joined * random.normal(size=(n, n))
    h = fields * random.normal(size=n)
    pairs = np.argwhere(joined)
    edge = hm.Sparse(pairs) if coupling == "sparse" else hm.Masked(torch.from_numpy(joined | joined.T))
    machine = hm.BoltzmannMachine([hm.Spin(n)], {(0, 0): edge}, seed=None)
    machine.couplings[0].fill_(torch.from_numpy(J + J.T).float())
    machine.layers[0].set_finite_(bias=torch.from_numpy(h).float())
    s = states_of(*[(-1, 1)] * n)
    return Case(machine, s, -(s @ h) - np.einsum("si,ij,sj->s", s, J, s), s @ s.T / n, s.mean(1))


def rbm() -> Case:
    """Four visible and three hidden units of 0 and 1, with biases and a constant of the energy."""
    random = np.random.default_rng(2)
    W, b = random.normal(size=(4, 3)), random.normal(size=7)
    machine = hm.BoltzmannMachine([hm.Bernoulli(4), hm.Bernoulli(3)], seed=None)
    machine.couplings[0].fill_(torch.from_numpy(W).float())
    for layer, part in zip(machine.layers, (b[:4], b[4:]), strict=True):
        layer.set_finite_(bias=torch.from_numpy(part).float())
    x = states_of(*[(0, 1)] * 7)
    s = 2 * x - 1
    machine.constant = 25.0
    energy = 25 - x @ b - np.einsum("si,ij,sj->s", x[:, :4], W, x[:, 4:])
    return Case(machine, x, energy, s @ s.T / 7, s.mean(1))


def potts() -> Case:
    """Four units of three categories, with fields."""
    random = np.random.default_rng(3)
    J, h = random.normal(size=(4, 4, 3, 3)), random.normal(size=(4, 3))
    machine = hm.BoltzmannMachine([hm.Categorical(4, 3)], {(0, 0): hm.Dense()}, seed=None)
    above = np.triu(np.ones((4, 4)), 1)[:, :, None, None] * J
    whole = (above + above.transpose(1, 0, 3, 2)).transpose(0, 2, 1, 3).reshape(12, 12)
    machine.couplings[0].fill_(torch.from_numpy(whole).float())
    machine.layers[0].set_finite_(bias=torch.from_numpy(h).float())
    s = states_of(*[range(3)] * 4)
    one_hot = (s[:, :, None] == np.arange(3)).reshape(len(s), 12).astype(float)
    energy = -(one_hot @ h.reshape(12)) - 0.5 * np.einsum("si,ij,sj->s", one_hot, whole, one_hot)
    same = (s[:, None, :] == s[None, :, :]).sum(-1)
    return Case(machine, s, energy, (3 * same / 4 - 1) / 2, None)


CASES: dict[str, Callable[[], Case]] = {
    "glass": lambda: glass(8, 0, 0.0, "sparse"),
    "glass in fields": lambda: glass(7, 1, 1.0, "masked"),
    "restricted machine with biases": rbm,
    "Potts": potts,
}


def expected(case: Case) -> tuple[dict[str, list[float]], Array, Array]:
    """Values by name at every temperature, the values of q, and their probabilities by temperature."""
    values: dict[str, list[float]] = {}
    overlaps, which = np.unique(np.round(case.overlap, 9), return_inverse=True)
    n, density = len(case.states[0]), []
    for beta in BETAS:
        p = np.exp(-beta * (case.energy - case.energy.min()))
        p /= p.sum()
        both = np.bincount(which.reshape(-1), np.outer(p, p).reshape(-1))
        q2, q4 = both @ overlaps**2, both @ overlaps**4
        E = p @ case.energy
        row = {
            "energy": E / n,
            "heat capacity": beta**2 * (p @ (case.energy - E) ** 2) / n,
            "q²": q2,
            "q Binder": 1 - q4 / (3 * q2**2),
        }
        if case.m is not None:
            m2, m4 = p @ case.m**2, p @ case.m**4
            row |= {"m": p @ case.m, "|m|": p @ abs(case.m), "m²": m2, "Binder": 1 - m4 / (3 * m2**2)}
        for name, value in row.items():
            values.setdefault(name, []).append(float(value))
        density.append(both)
    return values, overlaps, np.array(density)


def deviations(case: Case, seed: int) -> dict[str, Array]:
    """Deviations from enumeration in standard errors, by name, each (temperatures, ...)."""
    found = thermodynamics(case.machine, BETAS, chains=CHAINS, sweeps=800, seed=seed)
    values, overlaps, probability = expected(case)
    z = {}
    for name, value in values.items():
        mean, error = found.values[name]
        z[name] = ((mean - torch.tensor(value)) / error).numpy()
    middles = (found.edges[1:] + found.edges[:-1]) / 2
    np.testing.assert_allclose(middles, overlaps, atol=1e-9)  # a bin for every value
    mean, error = (x * found.edges.diff() for x in found.overlap_density)
    np.testing.assert_allclose(mean.sum(1), 1, rtol=1e-9)
    often = probability > 0.03  # where a share of 80 draws of 16 pairs is normal
    z["P(q)"] = ((mean - torch.from_numpy(probability)) / error).numpy()[often]
    return z


@pytest.mark.parametrize("name", CASES)
def test_means_are_those_of_all_states(name: str) -> None:
    z = np.concatenate([x.ravel() for x in deviations(CASES[name](), 0).values()])
    assert np.isfinite(z).all()
    assert abs(z).max() < stats.t.isf(FAILURE_RATE / (2 * z.size), CHAINS // 2 - 1)


@pytest.mark.nightly
@pytest.mark.parametrize("name", CASES)
def test_errors_hold(name: str) -> None:
    """Within one and two standard errors lie 66.7 % and 93.6 % of Student's t with 15 degrees of freedom.

    Of 100 runs the shares of each observable have a standard error below .05 and .025, as temperatures of
    one run depend on each other; no share may be six of them below, which fails less than once in 1e5.
    """
    runs = [deviations(CASES[name](), seed) for seed in range(100)]
    for observable in runs[0]:
        z = abs(np.stack([run[observable] for run in runs]))
        assert (z < 1).mean() > 0.667 - 0.15 and (z < 2).mean() > 0.936 - 0.06, observable


def kaufman(side: int, beta: float) -> float:
    """ln Z of a square lattice of side × side spins with J = 1 and periodic ends (Kaufman 1949)."""
    l = np.arange(2 * side)
    cosine = np.cosh(2 * beta) ** 2 / np.sinh(2 * beta) - np.cos(l * np.pi / side)
    gamma = np.arccosh(np.maximum(cosine, 1))
    gamma[0] = 2 * beta + log(np.tanh(beta))
    half = side / 2 * gamma
    size = abs(half) + np.log1p(np.exp(-2 * abs(half)))  # ln 2 cosh
    ratio = np.tanh(half)  # of 2 sinh to 2 cosh
    odd, even = size[1::2].sum(), size[::2].sum()
    terms = np.exp(odd - even) * (1 + ratio[1::2].prod()) + 1 + ratio[::2].prod()
    return float(side**2 / 2 * log(2 * np.sinh(2 * beta)) - log(2) + even + np.log(terms))


def ferromagnet(side: int) -> hm.BoltzmannMachine:
    place = np.arange(side**2).reshape(side, side)
    pairs = np.concatenate([np.stack([place, np.roll(place, 1, axis)], -1).reshape(-1, 2) for axis in (0, 1)])
    machine = hm.BoltzmannMachine([hm.Spin(side**2)], {(0, 0): hm.Sparse(np.sort(pairs, 1))}, seed=None)
    machine.couplings[0].fill_(torch.ones(len(pairs)))
    return machine


def test_kaufman_is_the_sum_over_all_states() -> None:
    s = states_of(*[(-1, 1)] * 16).reshape(-1, 4, 4)
    energy = -(s * np.roll(s, 1, 1) + s * np.roll(s, 1, 2)).sum((1, 2))
    for beta in (0.2, 0.44, 0.9):
        assert kaufman(4, beta) == pytest.approx(np.logaddexp.reduce(-beta * energy), rel=1e-12)


def test_energy_and_heat_capacity_of_a_lattice_are_exact() -> None:
    """8×8 spins through the transition, by derivatives of ln Z."""
    betas, step = [0.6, 0.5, 0.44, 0.38, 0.3, 0.2], 1e-3
    found = thermodynamics(ferromagnet(8), betas, chains=CHAINS, sweeps=2000, seed=1)
    below, at, above = (np.array([kaufman(8, beta + d) for beta in betas]) for d in (-step, 0.0, step))
    energy, capacity = (below - above) / (2 * step), np.square(betas) * (above - 2 * at + below) / step**2
    limit = stats.t.isf(FAILURE_RATE / 24, CHAINS - 1)
    for name, exact in (("energy", energy), ("heat capacity", capacity)):
        mean, error = found.values[name]
        assert float(((mean - torch.from_numpy(exact / 64)) / error).abs().max()) < limit
        assert float((error / mean.abs()).max()) < 0.1  # so that the comparison says something
    assert found.doubts == ()


def test_what_has_not_come_to_rest_is_doubted() -> None:
    """A cold lattice alone orders slowly, and swaps over a wide gap are never accepted."""
    found = thermodynamics(ferromagnet(16), [1.5, 0.01], chains=CHAINS, sweeps=200)
    assert len(found.doubts) > 1 and "of swaps between β = 1.5 and 0.01" in found.doubts[-1]
    assert found.doubts[-1] in repr(found)
    assert "drifts" in found.doubts[0] or "have not seen the same states" in found.doubts[0]


class Counting(hm.chains.Kernel):
    """Gibbs sweeps, counted by the chains that they move."""

    invariant = True

    def __init__(self) -> None:
        self.moved = 0

    def step(self, hamiltonian: Any, state: Any, generator: torch.Generator) -> Any:
        self.moved += len(state.states[0])
        return hm.chains.Gibbs().step(hamiltonian, state, generator)


@pytest.mark.parametrize("sweeps", [35, 100, 1000])
def test_adapting_takes_a_fifth_of_the_run(sweeps: int) -> None:
    counting = Counting()
    adapted = Tempering(5, kernel=counting).adapt(ferromagnet(4), chains=4, sweeps=sweeps)
    assert 0 < counting.moved <= sweeps * 4 * 5 / 5 and adapted.kernel is counting


def test_temperatures_are_found_where_none_are_given() -> None:
    """Over ten seeds the largest rate was at most 1.5 times the least; evenly spaced it is 8 times."""
    run = {"chains": CHAINS, "sweeps": 1000}
    found = thermodynamics(ferromagnet(8), replicas=10, **run)
    even = thermodynamics(ferromagnet(8), Tempering(10).betas, **run)
    assert found.betas[0] == 1 and found.betas[-1] == 0 and len(found.betas) == 10
    for swaps, equal in ((found.swap_rates, True), (even.swap_rates, False)):
        assert (float(swaps.max() / swaps.min()) < 2.5) is equal
    assert float(found.values["energy"].mean[0]) == pytest.approx(-2, abs=0.01)
    assert float(found.values["heat capacity"].mean[-1]) == 0


def test_the_picture(tmp_path: Path) -> None:
    found = thermodynamics(ferromagnet(4), [0.4, 0.2], chains=CHAINS, sweeps=200, bins=5)
    path = tmp_path / "observables.png"
    hm.report.observables_by_temperature(found, path, references={"heat capacity": ([0.2, 0.4], [0.1, 0.5])})
    assert path.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match=r"references: expected one of .*heat capacity.*received 'entropy'"):
        hm.report.observables_by_temperature(found, path, references={"entropy": ([0.2], [0.1])})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"betas": [1.0]}, r"betas: expected two or more different numbers from 0 on, received \[1.0\]"),
        ({"betas": [1.0, 1.0]}, "betas: expected"),
        ({"betas": [1.0, -0.5]}, "betas: expected"),
        ({"betas": [1.0, float("nan")]}, "betas: expected"),
        ({"betas": [float("inf"), 1.0]}, "betas: expected"),
        ({"betas": "cold"}, "betas: expected a sequence of numbers"),
        ({"chains": 9}, "chains: expected an even number, received 9"),
        ({"chains": 6}, "chains: expected an int of at least 8"),
        ({"sweeps": 10}, "sweeps: expected an int of at least 200"),
        ({"bins": 18}, "bins: expected from 1 to the 17 values of q, received 18"),
        ({"bins": 0}, "bins: expected"),
        ({"betas": None, "replicas": 1}, "replicas: expected an int of at least 2"),
        ({"kernel": "gibbs"}, "kernel: expected a kernel"),
        ({"kernel": Tempering(2)}, "kernel: expected one without replicas"),
        ({"machine": hm.BoltzmannMachine([hm.Gaussian(2), hm.Bernoulli(2)])}, "machine: expected units with"),
    ],
)
def test_refused(change: dict[str, Any], message: str) -> None:
    arguments = {"machine": ferromagnet(4), "betas": [0.4, 0.2], "chains": 8, "sweeps": 200} | change
    with pytest.raises((TypeError, ValueError), match=message):
        thermodynamics(**arguments)


@pytest.mark.parametrize("betas", [None, [1.0, 0.5]])
@pytest.mark.parametrize("name", ["layers.0.bias", "couplings.0.weight"])
def test_forbidden_states_are_refused_by_name(name: str, betas: list[float] | None) -> None:
    machine = hm.BoltzmannMachine([hm.Categorical(3, 3), hm.Categorical(2, 2)], seed=0)
    with torch.no_grad():
        machine.get_parameter(name)[1, 0] = -torch.inf
    for use in (
        lambda: thermodynamics(machine, betas, chains=8, sweeps=200),
        lambda: Tempering(4).adapt(machine, chains=8, sweeps=200),
    ):
        with pytest.raises(ValueError, match=rf"machine: expected finite .* -inf in {name} at \[1, 0\]"):
            use()
