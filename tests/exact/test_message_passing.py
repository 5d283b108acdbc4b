"""Relaxed belief propagation and adaptive TAP: exact cases, order of the error, fixed points, clamps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
import torch
from machines import with_normal_parameters

import harmonium as hm
from harmonium.machine.coupling_matrices import CouplingMatrices
from harmonium.meanfield import AdaTAP, RelaxedBP, Solution, Status, iterate, solve

from . import oracle
from .machines import array, describe
from .mean_field import MACHINES, SEEDS, TIGHT, exact_log_partition, noise, random_machine, tight

pytestmark = pytest.mark.slow

SOLVERS = {name: partial(hm.meanfield.tap, solver=name) for name in ("relaxed_bp", "adatap")}
SCHEMES = {"relaxed_bp": RelaxedBP, "adatap": AdaTAP}
SCALAR = [name for name in MACHINES if "categorical" not in name]

of_both = pytest.mark.parametrize("solver", SOLVERS)
of_scalar = pytest.mark.parametrize("name", SCALAR)


@cache
def error(solver: Callable[..., Solution], name: str, scale: float) -> float:
    """Root mean square over machines of F - F_enumerated."""
    errors = []
    for seed in SEEDS:
        machine = random_machine(name, seed, scale)
        solution = solver(machine, noise(machine), **tight(scale))
        assert bool(solution.converged.all())
        errors.append(abs(float(-solution.free_energy[0]) - exact_log_partition(name, seed, scale)))
    return float(np.sqrt(np.mean(np.square(errors))))


@of_both
@of_scalar
@pytest.mark.mostly_nightly(2)
def test_the_error_falls_like_the_cube_and_beats_the_first_order_tenfold(solver: str, name: str) -> None:
    assert np.log2(error(SOLVERS[solver], name, 0.1) / error(SOLVERS[solver], name, 0.05)) > 2.8
    assert error(hm.meanfield.naive, name, 1.0) > 10 * error(SOLVERS[solver], name, 1.0)


@of_scalar
@pytest.mark.parametrize("clamped", [False, True], ids=["free", "clamped"])
def test_adatap_agrees_with_its_gaussian(name: str, clamped: bool) -> None:
    """The dense inverse of the paper's step has the units' means and variances (Alg. 3; FORMULAS §6)."""
    machine = random_machine(name, 0, 1.0)
    start = noise(machine)
    solution = SOLVERS["adatap"](machine, start, start if clamped else None, **TIGHT)
    assert bool(solution.converged.all())
    couplings = [array(J) for J in machine.hamiltonian().J]
    widths = [layer.width for layer in machine.layers]
    ends = np.cumsum([0, *widths])
    J = np.zeros((ends[-1], ends[-1]))
    for l, block in enumerate(couplings):
        J[ends[l] : ends[l + 1], ends[l + 1] : ends[l + 2]] = block
    J += J.T
    a, c, B, A = (
        np.concatenate([array(x[0]) for x in part])
        for part in (solution.means, solution.variances, solution.fields, solution.curvatures)
    )
    free = slice(widths[0] if clamped else 0, None)
    external = J[free, : widths[0]] @ a[: widths[0]] if clamped else 0.0
    C = np.linalg.inv(np.diag(1 / c[free] - A[free]) - J[free, free])
    np.testing.assert_allclose(np.diag(C), c[free], rtol=1e-7)
    np.testing.assert_allclose(C @ (a[free] / c[free] - B[free] + external), a[free], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(B[free], A[free] * a[free] + (J @ a)[free], rtol=1e-7, atol=1e-9)


def gaussian_machine(widths: tuple[int, ...]) -> hm.BoltzmannMachine:
    return with_normal_parameters(hm.BoltzmannMachine([hm.Gaussian(n) for n in widths]).double(), 0.3, 2)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("widths", [(4, 1), (4, 3), (3, 1, 2), (3, 2, 3)])
def test_a_gaussian_machine_is_solved_exactly(solver: str, widths: tuple[int, ...]) -> None:
    """Adaptive TAP always; belief propagation in its means, and wholly where the machine is a tree."""
    machine = gaussian_machine(widths)
    description = oracle.natural(describe(machine))
    exact = oracle.expectations(description)
    solution = SOLVERS[solver](machine, noise(machine), **TIGHT)
    assert bool(solution.converged.all())
    for l, statistics in enumerate(exact.statistics):
        np.testing.assert_allclose(array(solution.means[l][0]), statistics[0], rtol=1e-8, atol=1e-9)
    if solver == "relaxed_bp" and widths not in [(4, 1), (3, 1, 2)]:
        return
    for l, statistics in enumerate(exact.statistics):
        variance = -2 * statistics[1] - statistics[0] ** 2
        np.testing.assert_allclose(array(solution.variances[l][0]), variance, rtol=1e-8)
    assert float(-solution.free_energy[0]) == pytest.approx(exact.log_partition, rel=1e-9)


def test_belief_propagation_is_exact_between_one_unit_and_gaussian_leaves() -> None:
    """What a Gaussian unit tells is exact, so the centre's marginal is."""
    machine = random_machine("gaussian-bernoulli", 1, 2.0)
    centre = hm.BoltzmannMachine([hm.Gaussian(12), hm.Bernoulli(1)]).double()
    with torch.no_grad():
        for mine, theirs in zip(centre.parameters(), machine.parameters(), strict=True):
            mine.copy_(theirs[tuple(slice(n) for n in mine.shape)])
    exact = oracle.expectations(oracle.natural(describe(centre)))
    solution = SOLVERS["relaxed_bp"](centre, noise(centre), **TIGHT)
    np.testing.assert_allclose(array(solution.means[1][0]), exact.statistics[1][0], rtol=1e-9)


@of_both
@of_scalar
def test_the_clamped_phase_of_one_hidden_layer_is_exact(solver: str, name: str) -> None:
    machine = random_machine(name, 0, 2.0)
    v = noise(machine, 3)
    solution = SOLVERS[solver](machine, v, v)
    assert torch.equal(solution.means[0], v)
    if len(machine.layers) == 2:
        expected = -machine.free_energy(v)
        np.testing.assert_allclose(array(-solution.free_energy), array(expected), rtol=1e-9)


@of_both
@pytest.mark.parametrize("name", ["bernoulli", "gaussian-bernoulli", "bernoulli deep"])
def test_held_units_are_as_good_as_gone(solver: str, name: str) -> None:
    machine = random_machine(name, 0, 1.0)
    keep = machine.layers[0].n_units // 2
    start = noise(machine, 2)
    clamp = start.clone()
    clamp[:, :keep] = torch.nan
    solution = SOLVERS[solver](machine, start, clamp, **TIGHT)
    rest = hm.BoltzmannMachine([type(machine.layers[0])(keep), *MACHINES[name]()[1:]]).double()
    J = machine.hamiltonian().J[0]
    for row in range(2):
        held = start[row, keep:]
        with torch.no_grad():
            for mine, theirs in zip(rest.parameters(), machine.parameters(), strict=True):
                mine.copy_(theirs[tuple(slice(n) for n in mine.shape)])
            rest.layers[1].bias += held @ J[keep:]
        alone = SOLVERS[solver](rest, start[row : row + 1, :keep], **TIGHT)
        for l, mean in enumerate(alone.means):
            mine = array(solution.means[l][row])[: mean.shape[1]]
            np.testing.assert_allclose(mine, array(mean[0]), atol=1e-9)
        terms = zip(machine.layers[0].statistics(held), machine.hamiltonian().thetas[0], strict=True)
        weight = float(sum((t * p[keep:]).sum() for t, p in terms).detach())
        assert float(-solution.free_energy[row]) == pytest.approx(
            float(-alone.free_energy[0]) + weight, abs=1e-8
        )


@of_scalar
def test_the_statistics_of_adatap_are_the_derivative_of_its_free_energy(name: str) -> None:
    machine = random_machine(name, 0, 0.8)
    hamiltonian = machine.hamiltonian()
    scheme = AdaTAP(hamiltonian)
    point, status, _ = iterate(scheme, noise(machine), **TIGHT)
    assert int(status[0]) == Status.CONVERGED
    generator = torch.Generator().manual_seed(5)
    one = torch.ones(1, dtype=torch.float64)
    for l, (below, above, J) in enumerate(hamiltonian.edges):
        along = torch.randn(J.shape, generator=generator, dtype=J.dtype)
        products = point.means[below].t() @ point.means[above] + scheme.covariances(l, point, one)
        slope = float((products * along).sum().detach())
        values = []
        for sign in (1, -1):
            couplings = list(hamiltonian.J)
            couplings[l] = (J + sign * 1e-5 * along).detach()
            moved = replace(hamiltonian, J=CouplingMatrices(couplings))
            values.append(float(solve(AdaTAP(moved), point, **TIGHT).free_energy[0]))
        assert (values[1] - values[0]) / 2e-5 == pytest.approx(slope, rel=1e-7, abs=1e-7)


@of_both
@pytest.mark.parametrize("damping", [0.3, "adaptive"])
def test_rows_are_solved_apart(solver: str, damping: float) -> None:
    machine = random_machine("bernoulli", 0, 3.0)
    start = noise(machine, 12)
    settings = {"damping": damping, "max_sweeps": 60}
    together = SOLVERS[solver](machine, start, **settings)
    for i in range(0, 12, 4):
        alone = SOLVERS[solver](machine, start[i : i + 1], **settings)
        assert int(alone.status[0]) == int(together.status[i])
        assert float(alone.free_energy[0]) == pytest.approx(float(together.free_energy[i]), rel=1e-8)
        for left, right in zip(alone.means, together.means, strict=True):
            np.testing.assert_allclose(array(left[0]), array(right[i]), rtol=1e-6, atol=1e-8)


@of_both
def test_rows_with_parameters_and_temperatures_of_their_own(solver: str) -> None:
    machine = random_machine("bernoulli deep", 0, 2.0)
    start = noise(machine, 4)
    shift = torch.randn(start.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    beta = torch.linspace(0, 1, 4, dtype=torch.float64).unsqueeze(-1)
    plain = machine.hamiltonian()
    bias = plain.thetas[0][0].detach()
    rows = replace(plain, thetas=((bias + shift,), *plain.thetas[1:]), beta=beta)
    made = SCHEMES[solver]
    together = solve(made(rows), start, **TIGHT)
    assert bool(together.converged.all())
    for i in range(4):
        h = replace(plain, thetas=((bias + shift[i],), *plain.thetas[1:]), beta=float(beta[i]))
        alone = solve(made(h), start[i : i + 1], **TIGHT)
        assert float(alone.free_energy[0]) == pytest.approx(float(together.free_energy[i]), rel=1e-9)


@of_both
def test_nothing_is_ever_nan(solver: str) -> None:
    """CouplingMatrices without a Gaussian normaliser, and saturated units in single precision."""
    machine = hm.BoltzmannMachine([hm.Spin(6), hm.Gaussian(4)])
    with torch.no_grad():
        machine.couplings[0].weight.fill_(0.9)
    strong = hm.BoltzmannMachine([hm.Bernoulli(8), hm.Bernoulli(6)])
    with torch.no_grad():
        strong.couplings[0].weight.copy_(30 * torch.randn(8, 6, generator=torch.Generator().manual_seed(0)))
    lost = SOLVERS[solver](machine, torch.zeros(1, 6), max_sweeps=50)
    assert lost.status.tolist() == [Status.UNBOUNDED]
    for solution in (lost, SOLVERS[solver](strong, noise(strong, 40), max_sweeps=50)):
        for part in (*solution.means, *solution.variances, solution.free_energy, *solution.fields):
            assert bool(torch.isfinite(part).all())


@of_both
def test_units_of_several_columns_are_refused(solver: str) -> None:
    machine = random_machine("categorical-bernoulli", 0, 1.0)
    with pytest.raises(ValueError, match="one column"):
        SOLVERS[solver](machine, noise(machine))


@of_both
def test_both_come_to_tap_as_machines_grow(solver: str) -> None:
    """CouplingMatrices N(0, 0.6²/N): the root mean square gap between their means and TAP's falls with N."""
    gaps = []
    for units in (10, 80):
        squares = []
        for seed in SEEDS:
            machine = hm.BoltzmannMachine([hm.Spin(units), hm.Spin(units)]).double()
            generator = torch.Generator().manual_seed(seed)
            with torch.no_grad():
                for layer in machine.layers:
                    layer.bias.copy_(0.5 * torch.randn(units, generator=generator))
                machine.couplings[0].weight.copy_(
                    0.6 * torch.randn(units, units, generator=generator) / units**0.5
                )
            tap = hm.meanfield.tap(machine, noise(machine), **TIGHT)
            other = SOLVERS[solver](machine, noise(machine), **TIGHT)
            assert bool(tap.converged.all() and other.converged.all())
            squares += [(a - b).square().mean() for a, b in zip(tap.means, other.means, strict=True)]
        gaps.append(float(torch.stack(squares).mean().sqrt()))
    assert gaps[0] > 2 * gaps[1]
