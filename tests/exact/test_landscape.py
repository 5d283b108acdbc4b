"""The landscape of solutions, its hashing, and the likelihood of TAP."""

from __future__ import annotations

import pytest
import torch

import harmonium as hm
from harmonium.meanfield import distinct

from .mean_field import MACHINES, TIGHT, noise, random_machine


def partition(labels: torch.Tensor) -> set[frozenset[int]]:
    return {frozenset(torch.nonzero(labels == k).flatten().tolist()) for k in labels.unique().tolist()}


@pytest.mark.parametrize("width", [3, 40, 900])
def test_hashing_finds_what_comparing_all_pairs_finds(width: int) -> None:
    """Clusters around centres, with a jitter that often crosses the borders of cells."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.rand(30, width, generator=generator).double()
    own = torch.randint(30, (400,), generator=generator)
    points = centres[own] + 1e-3 * torch.randn(400, width, generator=generator, dtype=torch.float64)
    found = distinct([points[:, : width // 2], points[:, width // 2 :]], 0.01)
    brute = (torch.cdist(points, points) <= 0.01 * width**0.5).double()
    for _ in range(9):  # the transitive closure
        brute = ((brute @ brute) > 0).double()
    expected = brute.argmax(1)
    assert partition(found) == partition(expected)
    # Numbered in the order of first appearance.
    assert [int(k) for k in dict.fromkeys(found.tolist())] == list(range(len(found.unique())))


def test_one_solution_and_all_different() -> None:
    generator = torch.Generator().manual_seed(0)
    same = torch.zeros(1000, 500) + 1e-4 * torch.randn(1000, 500, generator=generator)
    assert int(distinct([same], 0.01).max()) == 0
    other = torch.rand(1000, 500, generator=generator)
    assert len(distinct([other], 0.01).unique()) == 1000


def memories() -> hm.BoltzmannMachine:
    """Three ferromagnets side by side: eight solutions, up to a slight bias of their own each."""
    machine = hm.BoltzmannMachine([hm.Spin(12), hm.Spin(12)]).double()
    with torch.no_grad():
        machine.couplings[0].weight.copy_(torch.block_diag(*[torch.full((4, 4), 0.6)] * 3))
        machine.layers[0].bias.copy_(torch.linspace(0.01, 0.05, 12))
    return machine


def ferromagnet() -> hm.BoltzmannMachine:
    """Two solutions, nearly all up and nearly all down, and a slight bias between them."""
    machine = hm.BoltzmannMachine([hm.Spin(8), hm.Spin(6)]).double()
    with torch.no_grad():
        machine.couplings[0].weight.fill_(0.5)
        machine.layers[0].bias.fill_(0.01)
    return machine


def test_the_landscape_of_a_ferromagnet() -> None:
    machine = ferromagnet()
    generator = torch.Generator().manual_seed(0)
    X = torch.where(torch.rand(50, 8, generator=generator) < 0.5, 1.0, -1.0).double()
    X = X[X.sum(1).abs() > 2]
    found = hm.meanfield.landscape(machine, X, damping=0.3)
    up = X.sum(1) > 0
    assert len(found.counts) == 2
    assert found.counts.tolist() == sorted([int(up.sum()), int((~up).sum())], reverse=True)
    signs = found.solutions.means[0].mean(1)[found.basin].sign()
    assert torch.equal(signs > 0, up)
    assert float(found.solutions.means[0].abs().min()) > 0.9
    higher, lower = (found.free_energies[found.solutions.means[0].mean(1) < 0],
                     found.free_energies[found.solutions.means[0].mean(1) > 0])  # fmt: skip
    assert float(lower) < float(higher)


def test_solutions_come_by_the_starts_that_flow_to_them() -> None:
    machine = memories()
    found = hm.meanfield.landscape(machine, noise(machine, 60))
    assert len(found.counts) == 8
    assert int(found.counts.sum()) == int((found.basin >= 0).sum())
    assert bool((found.counts[:-1] >= found.counts[1:]).all())
    assert torch.equal(torch.bincount(found.basin[found.basin >= 0]), found.counts)


def test_starts_that_do_not_converge_belong_to_no_basin() -> None:
    machine = memories()
    X = noise(machine, 20)
    sweeps = hm.meanfield.tap(machine, X, tolerance=1e-5).sweeps
    limit = int(sweeps.double().mean())
    assert bool((sweeps > limit).any())
    found = hm.meanfield.landscape(machine, X, max_sweeps=limit)
    assert torch.equal(found.basin < 0, sweeps > limit)
    with pytest.raises(ValueError, match="converges"):
        hm.meanfield.landscape(machine, X, max_sweeps=1)


@pytest.mark.parametrize("name", [n for n in MACHINES if n != "categorical-categorical"])
def test_the_likelihood_of_tap_is_close_where_couplings_are_weak(name: str) -> None:
    machine = random_machine(name, 0, 0.4)
    X = noise(machine, 5)
    value = hm.likelihood.tap_log_partition(machine, X, tolerance=1e-10)
    assert value.solutions == 1
    assert value.converged == 1.0
    assert value.spread == pytest.approx(0.0, abs=1e-9)
    solution = hm.meanfield.tap(machine, X[:1], **TIGHT)
    assert value.value == pytest.approx(float(-solution.free_energy[0]), abs=1e-8)
    likelihood = hm.likelihood.tap_log_likelihood(machine, X, value)
    if len(machine.layers) == 2:
        exact = hm.likelihood.exact_log_partition(machine)
        expected = hm.likelihood.log_likelihood(machine, X, exact)
    else:
        expected = hm.likelihood.exact_log_likelihood(machine, X)
    gap = float((likelihood - expected).abs().max())
    first = hm.meanfield.naive(machine, X, X).free_energy - hm.meanfield.naive(machine, X).free_energy
    assert gap < 0.02
    assert gap < 0.2 * float((-first - expected).abs().max())


@pytest.mark.parametrize("solver", hm.meanfield.SOLVERS)
def test_every_solver_has_its_own_solutions_and_is_close_where_couplings_are_weak(solver: str) -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(5), hm.Spin(4)]).double()
    hm.machine.normal_(machine, 0.4, 3)
    X = noise(machine, 5)
    found = hm.meanfield.landscape(machine, X, solver=solver, tolerance=1e-9)
    alone = hm.meanfield.tap(machine, X[:1], solver=solver, tolerance=1e-9)
    assert found.counts.tolist() == [5] and bool(found.admissible.all())
    for means, expected in zip(found.solutions.means, alone.means, strict=True):
        assert torch.allclose(means, expected, atol=1e-7)
    exact = hm.likelihood.exact_log_partition(machine)
    assert float(-alone.free_energy[0]) == pytest.approx(exact, abs=0.02)
    if solver == "tap":
        value = hm.likelihood.tap_log_partition(machine, X, tolerance=1e-9)
        assert value.value == pytest.approx(float(-alone.free_energy[0]), abs=1e-8)
        assert (value.admissible, value.doubts) == (1, ())


def test_other_solvers_than_tap_have_no_order() -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(4), hm.Bernoulli(2)])
    with pytest.raises(ValueError, match='order: expected 2 with solver="adatap", received 3'):
        hm.meanfield.landscape(machine, torch.zeros(2, 4), solver="adatap", order=3)
    with pytest.raises(ValueError, match="solver: expected one of"):
        hm.meanfield.landscape(machine, torch.zeros(2, 4), solver="bethe")


def test_the_value_is_the_sum_over_distinct_solutions_however_many_starts() -> None:
    """Both are of the same solutions: the sum for the value, the plain mean for ``mean``."""
    machine = memories()
    X = noise(machine, 30)
    found = hm.meanfield.landscape(machine, X, tolerance=1e-8)
    value = hm.likelihood.tap_log_partition(machine, X)
    assert value.solutions == value.admissible == len(found.counts) > 1
    assert value.value == pytest.approx(float((-found.free_energies).logsumexp(0)))
    assert value.mean == pytest.approx(float(-found.free_energies.mean()))
    assert value.spread == pytest.approx(float(found.free_energies.std(correction=0)))
    again = hm.likelihood.tap_log_partition(machine, X.repeat(2, 1))
    assert (again.value, again.solutions) == (pytest.approx(value.value, abs=1e-8), value.solutions)


def test_strong_couplings_want_a_heavier_damping_and_the_error_says_so() -> None:
    random = torch.Generator().manual_seed(0)
    J = torch.randn(36, 36, generator=random).triu(1)
    machine = hm.BoltzmannMachine([hm.Spin(36)], edges={(0, 0): hm.Dense()})
    machine.couplings[0].fill_(0.6 * (J + J.T))
    machine.layers[0].set_finite_(bias=0.3 * torch.randn(36, generator=random))
    starts = machine.random_states(20, seed=1)[0]
    with pytest.raises(ValueError, match=r"within 300 sweeps.* damping=0.9 and max_sweeps=1500"):
        hm.likelihood.tap_log_partition(machine, starts, max_sweeps=300)
    with pytest.warns(RuntimeWarning, match="no solution is admissible|Plefka|no minima"):
        found = hm.likelihood.tap_log_partition(machine, starts, damping=0.95, max_sweeps=20_000)
    assert found.converged > 0 and found.admissible == 0
